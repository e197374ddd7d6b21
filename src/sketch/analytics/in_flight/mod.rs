//! How many of a key there are at once.
//!
//! A plain count-min sketch: who enters adds to each of the key's counters, who leaves takes it away again.
//! So each counter is what those who are in have added to it, of this key and others, and the least of a
//! key's is at least its own. (Conservative update would not do: it leaves out what nobody could take away
//! later.)
//!
//! # Entering with a limit
//! Count, then judge: all counters are added to first, in the same order by all of one key; then they are
//! read; who is above the limit takes back what it added. Suppose more than the limit of one key were let in
//! and are in at once. One of them was the last to add to the key's last counter. It read there what the
//! others had added, so all that they had added before too (all additions are Acquire and Release), and none
//! of them had left yet. So it read their sum in every counter, its own included, and was not let in: a
//! contradiction. (Judging by what the additions returned lets two in: each may be the first in another
//! counter. So do relaxed additions. See the models.)
//!
//! # No counter wraps
//! One addition is below 2³². A counter that is found at 2⁶² or more is *stuck*: it is set to 3 × 2⁶²,
//! whoever meets it sets it again, and who leaves takes nothing from it any more. Between seeing and setting,
//! or between looking and taking away, each thread moves it by less than 2³² once. So it stays between 2⁶²
//! and 2⁶⁴ if there are fewer than 2²⁹ threads, and says for ever that it cannot say. What it takes to get
//! there are 2³⁰ guards that are leaked (`mem::forget`) with the largest numbers.

mod guard;
#[cfg(all(test, tollgate_loom))]
mod models;

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

pub use self::guard::{Guard, OwnedGuard};
use super::error::{SketchError, SketchReason};
use crate::base::memory::Array;
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sketch::hash::places;

const DEFAULT_BYTES: usize = 256 << 10;
/// Counters of a cache line; in the models, as few as keep a key's apart.
const LINE: usize = if cfg!(tollgate_loom) { 2 } else { 8 };
/// Counters of a key: two in each of two lines.
const DEPTH: usize = 4;
/// From here on a counter is stuck.
const STUCK_FROM: u64 = 1 << 62;
/// What a stuck counter is set to.
const STUCK: u64 = 3 << 62;

/// How many requests of each key are in flight, for any number of keys in constant memory: counts that are
/// never too low.
///
/// A count-min sketch of 64-bit counters, four for a key. Who [enters](Self::enter) is counted until its
/// guard is dropped. The count of a key is too high if others are in that share all of its four counters.
/// With 256 KiB, the default, and a thousand other keys in flight that is one key in 1,300; with 1 MiB, one
/// in 42,000.
///
/// To limit how many there are at once, use [`try_enter`](Self::try_enter), which decides by the count that
/// it leaves behind: counting first and comparing afterwards lets more in when threads race.
///
/// # Consistency
/// All calls take `&self`, never wait and can be made from any number of threads. A count holds everyone who
/// entered before it began and has not left. Those who are being turned away are counted for a moment too.
///
/// # Keys that clients choose
/// The default hasher has a secret, so clients cannot choose keys that share counters but by trying them out.
///
/// # Examples
/// ```
/// use tollgate::sketch::InFlight;
///
/// let in_flight = InFlight::new();
/// let first = in_flight.enter("alice", 1);
/// let second = in_flight.enter("alice", 2);
/// assert_eq!((first.count(), second.count()), (1, 3));
/// drop(second);
/// assert_eq!(in_flight.current("alice"), 1);
///
/// // At most two at once.
/// let third = in_flight.try_enter("alice", 1, 2).expect("one more is allowed");
/// let refused = in_flight.try_enter("alice", 1, 2).unwrap_err();
/// assert_eq!((refused.count(), in_flight.current("alice")), (2, 2));
/// # drop((first, third));
/// ```
///
/// # Source
/// Cormode and Muthukrishnan 2005 (count-min, with deletions).
pub struct InFlight<H = ahash::RandomState> {
    rows: Rows,
    hasher: H,
}

/// The counters.
#[derive(Debug)]
struct Rows {
    counters: Array<AtomicU64>,
    /// Lines in each half.
    lines: usize,
}

/// Where a key's counters are; all different.
#[derive(Copy, Clone, Debug)]
struct KeyCounters([usize; DEPTH]);

/// A key that has as many in flight as are allowed at once.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Full {
    count: u64,
    limit: u64,
}

impl Full {
    /// How many there were, without those that were not let in: at least the key's own, and those that others
    /// were being turned away with at that moment.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in flight, of {} that may be at once", self.count, self.limit)
    }
}

impl Error for Full {}

impl Rows {
    fn new(bytes: usize) -> Option<Self> {
        let lines = bytes / Self::LEAST_BYTES;
        Some(Self { counters: Array::zeroed(lines.checked_mul(2 * LINE)?)?, lines })
    }

    /// A line in each half.
    const LEAST_BYTES: usize = 2 * LINE * size_of::<u64>();

    #[inline]
    fn place(&self, hash: u64) -> KeyCounters {
        KeyCounters(places::<LINE, 3>(hash, self.lines))
    }

    /// The least of a key's counters.
    #[inline]
    fn read(&self, place: &KeyCounters) -> u64 {
        let mut least = u64::MAX;
        for &index in &place.0 {
            // Ordering: Acquire; pairs with the additions: who is counted here entered before.
            least = least.min(self.counters[index].load(Acquire));
        }
        if least >= STUCK_FROM { u64::MAX } else { least }
    }

    /// Counts `n` more.
    #[inline]
    fn add(&self, place: &KeyCounters, n: u32) {
        for &index in &place.0 {
            let counter = &self.counters[index];
            // Ordering: AcqRel: who adds to the last counter after others sees all that they added. See the
            // module's text.
            if counter.fetch_add(n.into(), AcqRel) >= STUCK_FROM {
                stick(counter);
            }
        }
    }

    /// Counts `n` less, that were added before.
    #[inline]
    fn take_away(&self, place: &KeyCounters, n: u32) {
        for &index in &place.0 {
            let counter = &self.counters[index];
            // Ordering: Relaxed for the look: a counter that is stuck is stuck for ever, and one that sticks
            // after the look is allowed for.
            if counter.load(Relaxed) < STUCK_FROM {
                // Ordering: Release; pairs with the Acquire of who enters next: what was done inside is done.
                counter.fetch_sub(n.into(), Release);
            }
        }
    }

    /// Counts `n` more, and says how many there are then: at least itself, and all that it came after.
    #[inline]
    fn enter(&self, place: &KeyCounters, n: u32) -> u64 {
        self.add(place, n);
        self.read(place)
    }

    /// Counts `n` more, if there are no more than `limit` then.
    #[inline]
    fn try_enter(&self, place: &KeyCounters, n: u32, limit: u64) -> Result<u64, Full> {
        let count = self.enter(place, n);
        if count <= limit {
            return Ok(count);
        }
        self.take_away(place, n);
        // What is stuck stays at the top.
        let others = if count == u64::MAX { count } else { count - u64::from(n) };
        Err(Full { count: others, limit })
    }
}

#[cold]
fn stick(counter: &AtomicU64) {
    // Ordering: Relaxed. It says nothing any more.
    counter.store(STUCK, Relaxed);
}

impl InFlight {
    /// Counts in 256 KiB, with 32,768 counters.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "as for any small allocation")]
    pub fn new() -> Self {
        Self::with_memory(DEFAULT_BYTES).expect("a quarter of a MiB")
    }

    /// Counts in at most so many bytes, at least 128. Eight bytes a counter; pages are taken as keys touch
    /// them.
    ///
    /// # Errors
    /// If there are fewer than 128 bytes, or there is no such memory.
    pub fn with_memory(bytes: usize) -> Result<Self, SketchError> {
        if bytes < Rows::LEAST_BYTES {
            return Err(SketchReason::TooFewBytes { got: bytes, least: Rows::LEAST_BYTES }.into());
        }
        let rows = Rows::new(bytes).ok_or(SketchReason::Memory { bytes: bytes as u128 })?;
        Ok(Self { rows, hasher: ahash::RandomState::new() })
    }
}

impl Default for InFlight {
    fn default() -> Self {
        Self::new()
    }
}

impl<H> InFlight<H> {
    /// The same counters with another hasher. Default: ahash with random keys.
    ///
    /// It needs 64 bits of good quality. One without a secret lets clients choose keys that share counters.
    #[must_use]
    pub fn with_hasher<I>(self, hasher: I) -> InFlight<I> {
        InFlight { rows: self.rows, hasher }
    }

    /// The bytes of its counters. Pages that no key has touched are not resident.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.rows.counters.len() * size_of::<u64>()
    }
}

impl<H: BuildHasher> InFlight<H> {
    #[inline]
    fn place<K: Hash + ?Sized>(&self, key: &K) -> KeyCounters {
        self.rows.place(self.hasher.hash_one(key))
    }

    /// Counts `n` in flight for a key, until the guard is dropped. The guard says how many there are then.
    ///
    /// # Complexity
    /// O(1): a hash, two cache lines, four additions. Never allocates. Wait-free.
    #[inline]
    pub fn enter<K: Hash + ?Sized>(&self, key: &K, n: u32) -> Guard<'_> {
        let place = self.place(key);
        Guard::new(&self.rows, place, n, self.rows.enter(&place, n))
    }

    /// Counts `n` in flight for a key if there are no more than `limit` then; else changes nothing.
    ///
    /// # Consistency
    /// At no time are more than `limit` of a key in that were let in by this call. A race can turn away
    /// wrongly: those that are being turned away are counted for a moment, so of two that come at once for
    /// the last place both may be. Whoever finds that much room *beside* all that are in or are trying at
    /// once is let in.
    ///
    /// # Errors
    /// [`Full`], with how many there are.
    ///
    /// # Complexity
    /// As [`InFlight::enter`]; if it is turned away, four subtractions more.
    #[inline]
    pub fn try_enter<K: Hash + ?Sized>(&self, key: &K, n: u32, limit: u64) -> Result<Guard<'_>, Full> {
        let place = self.place(key);
        let count = self.rows.try_enter(&place, n, limit)?;
        Ok(Guard::new(&self.rows, place, n, count))
    }

    /// [`InFlight::enter`] with a guard that keeps the counters alive: for tasks and threads that outlive the
    /// caller.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::sketch::InFlight;
    ///
    /// let in_flight = Arc::new(InFlight::new());
    /// let guard = in_flight.enter_owned("alice", 1);
    /// let task = std::thread::spawn(move || guard.count());
    /// assert_eq!(task.join().unwrap(), 1);
    /// assert_eq!(in_flight.current("alice"), 0);
    /// ```
    #[inline]
    pub fn enter_owned<K: Hash + ?Sized>(self: &Arc<Self>, key: &K, n: u32) -> OwnedGuard<H> {
        let place = self.place(key);
        OwnedGuard::new(self.clone(), place, n, self.rows.enter(&place, n))
    }

    /// [`InFlight::try_enter`] with a guard that keeps the counters alive.
    ///
    /// # Errors
    /// [`Full`], with how many there are.
    #[inline]
    pub fn try_enter_owned<K: Hash + ?Sized>(
        self: &Arc<Self>,
        key: &K,
        n: u32,
        limit: u64,
    ) -> Result<OwnedGuard<H>, Full> {
        let place = self.place(key);
        let count = self.rows.try_enter(&place, n, limit)?;
        Ok(OwnedGuard::new(self.clone(), place, n, count))
    }

    /// How many of a key are in flight: at least its own.
    ///
    /// # Complexity
    /// O(1): a hash, two cache lines. Writes nothing.
    #[inline]
    pub fn current<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.rows.read(&self.place(key))
    }
}

impl<H> fmt::Debug for InFlight<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("state_bytes", &self.state_bytes()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::sketch::hash::mix;

    #[test]
    fn a_keys_counters_are_four() {
        let rows = Rows::new(3 * Rows::LEAST_BYTES).unwrap();
        for hash in (0..10_000).map(mix) {
            let KeyCounters(places) = rows.place(hash);
            for (row, place) in places.iter().enumerate() {
                assert!(!places[..row].contains(place) && *place < rows.counters.len(), "{hash}: {places:?}");
            }
        }
    }

    #[test]
    fn a_counter_that_is_full_is_stuck_and_never_wraps() {
        let rows = Rows::new(Rows::LEAST_BYTES).unwrap();
        let place = rows.place(7);
        // As many were leaked as leave room for two more.
        for counter in rows.counters.iter() {
            counter.store(STUCK_FROM - 2 * u64::from(u32::MAX), Relaxed);
        }
        assert_eq!(rows.enter(&place, u32::MAX), STUCK_FROM - u64::from(u32::MAX));
        rows.take_away(&place, u32::MAX);
        assert_eq!(rows.read(&place), STUCK_FROM - 2 * u64::from(u32::MAX));
        rows.add(&place, u32::MAX);
        // It gets there, and then sticks, whoever comes and goes.
        for _ in 0..3 {
            assert_eq!(rows.enter(&place, u32::MAX), u64::MAX);
        }
        for _ in 0..10 {
            rows.take_away(&place, u32::MAX);
            assert_eq!(rows.read(&place), u64::MAX);
        }
        assert_eq!(
            rows.try_enter(&place, 1, u64::MAX - 1),
            Err(Full { count: u64::MAX, limit: u64::MAX - 1 })
        );
        assert!(rows.counters.iter().all(|counter| counter.load(Relaxed) <= STUCK));
    }
}
