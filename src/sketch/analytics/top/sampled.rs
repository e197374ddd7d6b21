//! Counting from many threads, on the side.
//!
//! *Off the path of a check.* A record that is not sampled reads the thread's number and touches one line
//! that hardly any other thread does: a load, a store, a few multiplications. One that is sampled tries the
//! lock of its stripe, and if another thread or a reader holds it, those of the other stripes, each once. If
//! all are taken the sample is dropped and counted as dropped. So no record ever waits, and none allocates.
//! Who reads waits for the record that is under way in each stripe, and that record wakes the reader, which
//! is the one system call that a record may meet.
//!
//! Locks are held for a tenth of a microsecond, so what is dropped is due to threads that lose their
//! processor while they hold one. For them there are more stripes than processors.
//!
//! *Sampling.* Each call is sampled with probability `1 / every`, by a generator of its own for each stripe:
//! a counter that is mixed with a secret (SplitMix64). Every 64th call would be as cheap, but would miss a
//! key that comes at every 64th plus one, by chance or on purpose.

use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crossbeam_utils::CachePadded;

use super::super::error::SketchError;
use super::{CutText, TopKey, TopKeys};
use crate::base::sync::Ordering::Relaxed;
use crate::base::sync::{AtomicU64, processors, thread_number};
use crate::sketch::hash::mix;

/// SplitMix64's increment, the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// For each thread that can run at once, one that runs and one that was interrupted.
const STRIPES_PER_THREAD: usize = 2;
const MAX_STRIPES: usize = 16;

/// The heaviest keys of what many threads record, from a sample: who is denied most, say.
///
/// One in `every` records is sampled, at random, into one of a few [`TopKeys`] that threads share as little
/// as possible. [`take`](Self::take) and [`snapshot`](Self::snapshot) merge these, and scale counts and
/// bounds by `every`. Nothing here is on the path of a limiter's check: call it beside one, for the requests
/// that were denied.
///
/// # Error
/// Two errors, one on the other:
///
/// - What is counted of the samples is within the bounds of [`TopKeys`], scaled: with `n` units sampled and
///   scaled, and `m` entries, too high by `n / m` at most.
/// - What is sampled of a key varies by chance. For a key that was recorded `d` times, scaled samples have
///   the standard deviation `√(d × (every − 1))`, and are right on average. At one in 64, that is 8 % of
///   10,000 records, 2.5 % of 100,000, and for a key of less than a few hundred little more than a guess.
///
/// With `every` at 1 all is sampled, and only the first error is left. What was [dropped](TopSample::dropped)
/// is missing in either case.
///
/// # Consistency
/// Records take `&self`, never wait, never allocate, and can be made from any number of threads. If others
/// are at work on all stripes, a sample is dropped, and counted as such: with every record sampled, what was
/// recorded is what is in the sample and what was dropped, and nothing else. Each record is in one period,
/// before or after a [`take`](Self::take) that runs beside it.
///
/// The keys' own `Hash`, `Eq`, `Clone` and `Drop` may panic, but must not read the sample that they are in:
/// it is locked.
///
/// # Memory
/// Fixed when it is made: two [`TopKeys`] of `entries` for each thread that can run at once, rounded up to a
/// power of two, and 16 at most.
///
/// # Examples
/// ```
/// use tollgate::sketch::{CutText, SampledTopKeys};
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::new(Quota::per_minute(10));
/// // Keys as text of at most 48 bytes; one denial in 8.
/// let denied = SampledTopKeys::<CutText<48>>::try_new(500, 8)?;
/// for request in 0..20_000 {
///     let key = if request % 4 == 0 { "203.0.113.7" } else { "198.51.100.1" };
///     if limiter.check(key).is_denied() {
///         denied.record_text(key);
///     }
/// }
/// let top = denied.top(1);
/// assert_eq!(top[0].key.as_str(), "198.51.100.1");
/// assert!((13_000..17_000).contains(&top[0].count), "about 14,990, of one in 8");
///
/// // Every minute, say:
/// let minute = denied.take();
/// assert_eq!(minute.keys.len(), 2);
/// assert!(denied.top(1).is_empty());
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
pub struct SampledTopKeys<K> {
    stripes: Box<[CachePadded<TopStripe<K>>]>,
    entries: usize,
    every: u64,
    /// Draws up to this are sampled.
    last: u64,
}

struct TopStripe<K> {
    /// Calls so far, more or less.
    turn: AtomicU64,
    secret: u64,
    /// Units of the samples of its threads that found all locks taken.
    dropped: AtomicU64,
    keys: Mutex<TopKeys<K>>,
}

/// What was sampled in a period, scaled to what was recorded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopSample<K> {
    /// The heaviest keys. Counts and errors are scaled, and so is the total, an estimate of all that was
    /// recorded.
    pub keys: TopKeys<K>,
    /// Units of the samples that were dropped, scaled: all stripes were in use.
    pub dropped: u64,
}

impl<K> SampledTopKeys<K> {
    /// Room for so many keys, and one in `every` records sampled at random; 0 and 1 sample all.
    ///
    /// # Errors
    /// If `entries` is 0, or there is no memory for so many.
    pub fn try_new(entries: usize, every: u32) -> Result<Self, SketchError> {
        let threads = processors().unwrap_or(4);
        let stripes = threads.saturating_mul(STRIPES_PER_THREAD).min(MAX_STRIPES).next_power_of_two();
        let stripes = if cfg!(tollgate_loom) { 1 } else { stripes };
        let secrets = ahash::RandomState::new();
        let stripe = |number: usize| {
            Ok(CachePadded::new(TopStripe {
                turn: AtomicU64::new(0),
                secret: secrets.hash_one(number),
                dropped: AtomicU64::new(0),
                keys: Mutex::new(TopKeys::try_new(entries)?),
            }))
        };
        let stripes = (0..stripes).map(stripe).collect::<Result<_, SketchError>>()?;
        let every = u64::from(every.max(1));
        Ok(Self { stripes, entries, every, last: u64::MAX / every })
    }

    /// One in how many records is sampled.
    #[must_use]
    pub fn every(&self) -> u64 {
        self.every
    }

    /// The bytes of its memory, without what keys allocate for themselves.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        let keys = |stripe: &CachePadded<TopStripe<K>>| stripe.lock().state_bytes();
        self.stripes.iter().map(keys).sum::<usize>() + size_of_val(&*self.stripes)
    }
}

impl<K: Hash + Eq> SampledTopKeys<K> {
    /// Records one unit for a key.
    ///
    /// # Complexity
    /// O(1); if it is sampled, amortised O(log m). Never waits, never allocates.
    #[inline]
    pub fn record(&self, key: K) {
        self.record_with(1, || key);
    }

    /// Records `n` units for a key that is only made if they are sampled; together or not at all.
    ///
    /// With costs that differ, what is sampled varies by the more: the variance of a key's count is `every −
    /// 1` times the sum of its squared costs.
    #[inline]
    pub fn record_with(&self, n: u64, key: impl FnOnce() -> K) {
        let own = thread_number() & (self.stripes.len() - 1);
        if self.last == u64::MAX || self.stripes[own].draw() <= self.last {
            self.sample(own, key(), n);
        }
    }

    /// Out of line: mostly it is not called.
    #[inline(never)]
    fn sample(&self, own: usize, key: K, n: u64) {
        let (before, from) = self.stripes.split_at(own);
        for stripe in from.iter().chain(before) {
            match stripe.keys.try_lock() {
                Ok(mut keys) => return keys.add(key, n),
                Err(TryLockError::Poisoned(keys)) => return keys.into_inner().add(key, n),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let more = |dropped: u64| Some(dropped.saturating_add(n));
        // Ordering: Relaxed, here and below. A plain tally; the samples are behind the locks.
        let _ = self.stripes[own].dropped.fetch_update(Relaxed, Relaxed, more);
    }

    /// The sample up to now, scaled; recording goes on.
    ///
    /// # Complexity
    /// O(m log m) for each stripe, whose samples go to others while it is copied. Allocates.
    #[must_use]
    pub fn snapshot(&self) -> TopSample<K>
    where
        K: Clone,
    {
        self.gather(|stripe| (stripe.lock().clone(), stripe.dropped.load(Relaxed)))
    }

    /// The sample up to now, scaled; the next begins anew.
    ///
    /// # Complexity
    /// O(m log m) for each stripe, whose lock is held for an exchange only. Allocates.
    #[must_use]
    pub fn take(&self) -> TopSample<K>
    where
        K: Clone,
    {
        self.gather(|stripe| {
            let empty = TopKeys::empty(self.entries);
            (std::mem::replace(&mut *stripe.lock(), empty), stripe.dropped.swap(0, Relaxed))
        })
    }

    /// Forgets the sample; the next begins.
    ///
    /// # Complexity
    /// O(m) for each stripe, whose samples go to others meanwhile. Never allocates.
    pub fn reset(&self) {
        for stripe in &self.stripes {
            stripe.lock().clear();
            stripe.dropped.store(0, Relaxed);
        }
    }

    /// The heaviest `n` keys up to now, scaled, in the order of [`TopKeys::top`].
    #[must_use]
    pub fn top(&self, n: usize) -> Vec<TopKey<K>>
    where
        K: Clone,
    {
        self.snapshot().keys.top(n).into_iter().cloned().collect()
    }

    fn gather(&self, mut part: impl FnMut(&TopStripe<K>) -> (TopKeys<K>, u64)) -> TopSample<K>
    where
        K: Clone,
    {
        let (mut keys, mut dropped) = part(&self.stripes[0]);
        for stripe in &self.stripes[1..] {
            let (more, more_dropped) = part(stripe);
            keys.merge(&more);
            dropped = dropped.saturating_add(more_dropped);
        }
        keys.scale(self.every);
        TopSample { keys, dropped: dropped.saturating_mul(self.every) }
    }
}

impl<const N: usize> SampledTopKeys<CutText<N>> {
    /// Records one unit for a text, which is hashed and cut only if it is sampled.
    #[inline]
    pub fn record_text(&self, text: &str) {
        self.record_with(1, || CutText::new(text));
    }
}

impl<K> TopStripe<K> {
    /// A random number.
    #[inline]
    fn draw(&self) -> u64 {
        // Ordering: Relaxed. Threads that share the stripe may draw the same number, of which each is as
        // random.
        let turn = self.turn.load(Relaxed).wrapping_add(1);
        self.turn.store(turn, Relaxed);
        mix(self.secret.wrapping_add(turn.wrapping_mul(GOLDEN)))
    }

    /// What was locked when a key panicked is in order: see `TopKeys::add`.
    fn lock(&self) -> MutexGuard<'_, TopKeys<K>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> fmt::Debug for SampledTopKeys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampledTopKeys")
            .field("stripes", &self.stripes.len())
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
