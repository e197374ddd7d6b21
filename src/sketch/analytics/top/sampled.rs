//! Counts the records of many threads by sampling, outside the request path.
//!
//! *Protocol.* A record works in these steps:
//!
//! 1. Draw a random number from the thread's stripe. If the record is not sampled, return. This takes a load, a store
//!    and a few multiplications, in a cache line that hardly any other thread uses.
//! 2. If the record is sampled, try the lock of the thread's stripe.
//! 3. If another thread or a reader holds that lock, try the lock of each other stripe once.
//! 4. If all locks are taken, drop the sample and count it as dropped.
//!
//! So a record never waits and never allocates. A reader locks one stripe after the other, and waits for a record that
//! holds the lock. That record then wakes the reader with a system call, which is the only system call that a record
//! may make.
//!
//! A record holds a lock for a tenth of a microsecond. So samples are dropped only if threads are preempted while they
//! hold a lock. For this reason there are more stripes than processors.
//!
//! *Sampling.* Each call is sampled with probability `1 / every`. Each stripe has its own random generator: a counter
//! that is mixed with a secret (SplitMix64). Sampling every 64th call would cost the same. But a key could then avoid
//! all samples, by chance or on purpose, if its calls are never at a 64th position.

use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crossbeam_utils::CachePadded;

use super::super::error::SketchError;
use super::{CutText, TopKey, TopKeys};
use crate::base::sync::Ordering::Relaxed;
use crate::base::sync::{AtomicU64, processors, thread_number};
use crate::sketch::hash::mix;

/// The increment of SplitMix64, from the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// For each thread that can run at the same time: one stripe for the running thread, and one for a preempted thread
/// that holds a lock.
const STRIPES_PER_THREAD: usize = 2;
const MAX_STRIPES: usize = 16;

/// Finds the heaviest keys among the records of many threads, by sampling: for example, the most-denied keys.
///
/// One in `every` records is sampled at random. A sample goes into one of several [`TopKeys`], which threads share as
/// little as possible. [`take`](Self::take) and [`snapshot`](Self::snapshot) merge these and multiply counts and bounds
/// by `every`. A limiter never calls this type: the caller records a request itself, for example after a denial.
///
/// # Error
/// There are two errors, which add up:
///
/// - The counts of the samples are within the bounds of [`TopKeys`], after scaling. With `n` scaled units sampled and
///   `m` entries, a count is too high by at most `n / m`.
/// - The number of samples of a key is random. For a key that was recorded `d` times, the scaled samples have the
///   standard deviation `√(d × (every − 1))`, and their mean is exact. With one sample in 64 records, the deviation
///   is 8 % of 10,000 records and 2.5 % of 100,000. For a key with less than a few hundred records, the result is
///   little more than a guess.
///
/// If `every` is 1, each record is sampled, and only the first error remains. In both cases,
/// [dropped](TopSample::dropped) samples are missing from the counts.
///
/// # Consistency
/// Records take `&self`, never wait, never allocate, and can be made from any number of threads. If other threads use
/// all stripes, a sample is dropped and counted as dropped. If `every` is 1, each recorded unit is either in the
/// sample or counted as dropped. Each record belongs to one period: before or after a [`take`](Self::take) that runs
/// at the same time.
///
/// The `Hash`, `Eq`, `Clone` and `Drop` implementations of the keys may panic. They must not use the sample that
/// contains the key, because its lock is held.
///
/// # Memory
/// All memory is allocated at creation. There are two [`TopKeys`] of `entries` entries for each thread that can run
/// at the same time. Their number is rounded up to a power of two and is at most 16.
///
/// # Examples
/// ```
/// use tollgate::sketch::{CutText, SampledTopKeys};
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::new(Quota::per_minute(10));
/// // Keys are texts of at most 48 bytes; one denial in 8 is sampled.
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
/// // For example, every minute:
/// let minute = denied.take();
/// assert_eq!(minute.keys.len(), 2);
/// assert!(denied.top(1).is_empty());
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
pub struct SampledTopKeys<K> {
    stripes: Box<[CachePadded<TopStripe<K>>]>,
    entries: usize,
    every: u64,
    /// A draw up to this value is sampled.
    last: u64,
}

struct TopStripe<K> {
    /// The number of calls so far, approximately.
    turn: AtomicU64,
    secret: u64,
    /// The units of dropped samples, from threads of this stripe that found all locks taken.
    dropped: AtomicU64,
    keys: Mutex<TopKeys<K>>,
}

/// The samples of a period, scaled to the number of records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopSample<K> {
    /// The heaviest keys. Counts and errors are scaled. The total is scaled too, and estimates the sum of all
    /// recorded units.
    pub keys: TopKeys<K>,
    /// The units of the dropped samples, scaled. A sample is dropped if all stripes are in use.
    pub dropped: u64,
}

impl<K> SampledTopKeys<K> {
    /// Creates a sample with room for `entries` keys that samples one in `every` records at random. 0 and 1 sample
    /// all records.
    ///
    /// # Errors
    /// If `entries` is 0, or if the memory cannot be allocated.
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

    /// Returns `every`: one in this many records is sampled.
    #[must_use]
    pub fn every(&self) -> u64 {
        self.every
    }

    /// Returns the size of the memory in bytes, without the memory that keys allocate themselves.
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
    /// O(1); amortised O(log m) if the record is sampled. It never waits and never allocates.
    #[inline]
    pub fn record(&self, key: K) {
        self.record_with(1, || key);
    }

    /// Records `n` units for a key; all of them are sampled, or none. `key` is called only if they are sampled.
    ///
    /// The variance of a key's count is `every − 1` times the sum of the squared `n`. So unequal values of `n` increase
    /// it.
    #[inline]
    pub fn record_with(&self, n: u64, key: impl FnOnce() -> K) {
        let own = thread_number() & (self.stripes.len() - 1);
        if self.last == u64::MAX || self.stripes[own].draw() <= self.last {
            self.sample(own, key(), n);
        }
    }

    /// Out of line, because most records do not call it.
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
        // Ordering: Relaxed, here and below. This is a plain counter; the locks protect the samples.
        let _ = self.stripes[own].dropped.fetch_update(Relaxed, Relaxed, more);
    }

    /// Returns the sample up to now, scaled. The sample continues.
    ///
    /// # Complexity
    /// O(m log m) for each stripe. While a stripe is copied, its samples go to other stripes. Allocates.
    #[must_use]
    pub fn snapshot(&self) -> TopSample<K>
    where
        K: Clone,
    {
        self.gather(|stripe| (stripe.lock().clone(), stripe.dropped.load(Relaxed)))
    }

    /// Returns the sample up to now, scaled, and starts an empty one.
    ///
    /// # Complexity
    /// O(m log m) for each stripe, whose lock is held only for an exchange. Allocates.
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

    /// Drops the sample and starts an empty one.
    ///
    /// # Complexity
    /// O(m) for each stripe. While a stripe is cleared, its samples go to other stripes. Never allocates.
    pub fn reset(&self) {
        for stripe in &self.stripes {
            stripe.lock().clear();
            stripe.dropped.store(0, Relaxed);
        }
    }

    /// Returns the heaviest `n` keys up to now, scaled, in the order of [`TopKeys::top`].
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
    /// Records one unit for a text. The text is hashed and cut only if the record is sampled.
    #[inline]
    pub fn record_text(&self, text: &str) {
        self.record_with(1, || CutText::new(text));
    }
}

impl<K> TopStripe<K> {
    /// Returns a random number.
    #[inline]
    fn draw(&self) -> u64 {
        // Ordering: Relaxed. Threads that share the stripe may draw the same number; each draw is still random.
        let turn = self.turn.load(Relaxed).wrapping_add(1);
        self.turn.store(turn, Relaxed);
        mix(self.secret.wrapping_add(turn.wrapping_mul(GOLDEN)))
    }

    /// Locks the keys. They are consistent even if a key panicked under the lock: see `TopKeys::add`.
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
