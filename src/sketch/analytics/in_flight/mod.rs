//! The number of requests of each key in flight.
//!
//! The sketch is a plain count-min sketch. A caller that enters adds to each of the key's counters. A caller that
//! leaves subtracts the same number. So each counter is the sum of all requests in flight whose keys use it. The
//! smallest of a key's counters is at least the key's own number. (Conservative update does not work here. An entry
//! would raise only some of the counters, and the caller could not subtract from the others when it leaves.)
//!
//! # Entering with a limit
//! `try_enter` counts first and decides afterwards:
//!
//! 1. Add `n` to all counters of the key. All callers of one key add in the same order.
//! 2. Read all counters. The smallest value is the count.
//! 3. If the count is above the limit, subtract `n` from all counters again.
//!
//! Why the limit holds: suppose that several callers of one key were admitted, are in flight at the same time, and
//! exceed the limit together. One of them, L, was the last to add to the key's last counter. There L followed the
//! additions of all the others. All additions are Acquire and Release, so L also saw their additions to the other
//! counters. None of them had left yet. So L read at least their sum, its own `n` included, in every counter, and was
//! denied. This is a contradiction.
//!
//! Two simpler schemes admit one caller too many, which the models show. The first decides from the values that the
//! additions return: each of two callers may be the first in a different counter. The second uses Relaxed additions.
//!
//! # No counter wraps
//! A counter at 2⁶² or more is *stuck*: it reports that the count is unknown.
//!
//! 1. The first thread whose addition finds the counter at 2⁶² or more sets it to 3 × 2⁶². Each later thread that adds
//!    to it sets it to this value again.
//! 2. A caller that leaves subtracts nothing from a stuck counter.
//!
//! So a counter that was set once stays between 2⁶² and 2⁶⁴, and is stuck forever, if there are fewer than 2²⁹
//! threads. Each addition and each subtraction is below 2³². At any time, a thread has at most one addition after
//! which it has not yet set the counter. A thread can also make one subtraction that it decided on before the counter
//! got stuck. So all threads together move the counter by less than 2⁶¹ from 3 × 2⁶².
//!
//! A counter gets stuck only if guards for 2⁶² requests exist at the same time: for example, after 2³⁰ guards with
//! the largest `n` were leaked (`mem::forget`).

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
/// The number of counters in a cache line. In the models, it is the smallest number that keeps a key's counters
/// apart.
const LINE: usize = if cfg!(tollgate_loom) { 2 } else { 8 };
/// The number of counters of a key: two in each of two lines.
const DEPTH: usize = 4;
/// A counter with this value or more is stuck.
const STUCK_FROM: u64 = 1 << 62;
/// The value that a stuck counter is set to.
const STUCK: u64 = 3 << 62;

/// Counts the requests in flight per key, for any number of keys in constant memory; the counts are never too low.
///
/// `InFlight` is a count-min sketch of 64-bit counters, with four counters for each key. A call to
/// [`enter`](Self::enter) counts a request until its guard is dropped. The count of a key is too high if each of its
/// four counters is shared with a key that is also in flight. With a thousand other keys in flight, this affects one
/// key in 1,300 with 256 KiB (the default), and one key in 42,000 with 1 MiB.
///
/// To limit the requests in flight, use [`try_enter`](Self::try_enter), which decides from the count that includes
/// the new request. A comparison after a separate `enter` admits too many requests when threads race.
///
/// # Consistency
/// All methods take `&self`, never wait and can be called from any number of threads. A count includes every request
/// that entered before the call began and has not left. It may also include requests that other threads are being
/// denied at that moment.
///
/// # Keys that clients choose
/// The default hasher has a secret. Clients can find keys that share counters only by trial.
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
/// // At most two at the same time.
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
    /// The number of lines in each half.
    lines: usize,
}

/// The indices of a key's counters; all are different.
#[derive(Copy, Clone, Debug)]
struct KeyCounters([usize; DEPTH]);

/// The error of [`InFlight::try_enter`]: the key has reached its limit of requests in flight.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Full {
    count: u64,
    limit: u64,
}

impl Full {
    /// Returns the number in flight without the denied `n`: at least the key's own number. It may include requests
    /// that other threads were being denied at that moment.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the limit that the caller passed.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in flight, limit {}", self.count, self.limit)
    }
}

crate::base::debug_shows_message!(Full);

impl Error for Full {}

impl Rows {
    fn new(bytes: usize) -> Option<Self> {
        let lines = bytes / Self::MIN_BYTES;
        Some(Self { counters: Array::zeroed(lines.checked_mul(2 * LINE)?)?, lines })
    }

    /// The bytes of one line in each half.
    const MIN_BYTES: usize = 2 * LINE * size_of::<u64>();

    #[inline]
    fn place(&self, hash: u64) -> KeyCounters {
        KeyCounters(places::<LINE, 3>(hash, self.lines))
    }

    /// Returns the smallest of a key's counters.
    #[inline]
    fn read(&self, place: &KeyCounters) -> u64 {
        let mut least = u64::MAX;
        for &index in &place.0 {
            // Ordering: Acquire; pairs with the Release of the additions: see the module docs.
            least = least.min(self.counters[index].load(Acquire));
        }
        if least >= STUCK_FROM { u64::MAX } else { least }
    }

    /// Adds `n` to each of the key's counters.
    #[inline]
    fn add(&self, place: &KeyCounters, n: u32) {
        for &index in &place.0 {
            let counter = &self.counters[index];
            // Ordering: AcqRel. A thread that adds to the last counter after other threads also sees their additions
            // to the other counters: see the module docs.
            if counter.fetch_add(n.into(), AcqRel) >= STUCK_FROM {
                stick(counter);
            }
        }
    }

    /// Subtracts `n`, which was added before, from each of the key's counters.
    #[inline]
    fn subtract_units(&self, place: &KeyCounters, n: u32) {
        for &index in &place.0 {
            let counter = &self.counters[index];
            // Ordering: Relaxed. The load needs no other data. If the counter gets stuck after this load, the thread
            // subtracts once from a stuck counter, which the module docs allow.
            if counter.load(Relaxed) < STUCK_FROM {
                // Ordering: Release; pairs with the Acquire of the next entry. The next caller sees everything that
                // this caller did while it was in flight.
                counter.fetch_sub(n.into(), Release);
            }
        }
    }

    /// Adds `n` and returns the new count: at least `n` plus all requests in flight that entered before.
    #[inline]
    fn enter(&self, place: &KeyCounters, n: u32) -> u64 {
        self.add(place, n);
        self.read(place)
    }

    /// Adds `n`, and subtracts it again if the new count is above `limit`.
    #[inline]
    fn try_enter(&self, place: &KeyCounters, n: u32, limit: u64) -> Result<u64, Full> {
        let count = self.enter(place, n);
        if count <= limit {
            return Ok(count);
        }
        self.subtract_units(place, n);
        // A stuck count stays at the maximum.
        let others = if count == u64::MAX { count } else { count - u64::from(n) };
        Err(Full { count: others, limit })
    }
}

#[cold]
fn stick(counter: &AtomicU64) {
    // Ordering: Relaxed. A stuck counter carries no information.
    counter.store(STUCK, Relaxed);
}

impl InFlight {
    /// Creates a sketch of 256 KiB, with 32,768 counters.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "as for any small allocation")]
    pub fn new() -> Self {
        Self::with_memory(DEFAULT_BYTES).expect("a quarter of a MiB")
    }

    /// Creates a sketch of at most `bytes` bytes (128 or more), with eight bytes per counter. The operating system
    /// supplies pages as keys touch them.
    ///
    /// # Errors
    /// If `bytes` is below 128, or if the memory cannot be allocated.
    pub fn with_memory(bytes: usize) -> Result<Self, SketchError> {
        if bytes < Rows::MIN_BYTES {
            return Err(SketchReason::TooFewBytes { got: bytes, least: Rows::MIN_BYTES }.into());
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
    /// Returns the same counters with another hasher. Default: ahash with random keys.
    ///
    /// The hasher must return 64 bits of good quality. With a hasher that has no secret, clients can choose keys that
    /// share counters.
    #[must_use]
    pub fn with_hasher<I>(self, hasher: I) -> InFlight<I> {
        InFlight { rows: self.rows, hasher }
    }

    /// Returns the size of the counters in bytes. Pages that no key has touched are not resident.
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

    /// Counts `n` in flight for a key until the guard is dropped. The guard holds the count after the entry.
    ///
    /// # Complexity
    /// O(1): a hash, two cache lines, four additions. It never allocates. Wait-free.
    #[inline]
    pub fn enter<K: Hash + ?Sized>(&self, key: &K, n: u32) -> Guard<'_> {
        let place = self.place(key);
        Guard::new(&self.rows, place, n, self.rows.enter(&place, n))
    }

    /// Counts `n` in flight for a key if the new count is at most `limit`. Otherwise the call changes nothing.
    ///
    /// # Consistency
    /// The requests of a key that this method admitted never exceed `limit` at any time. A race can cause a false
    /// denial, because a request that is being denied is counted for a moment. So if two requests race for the last
    /// place, both may be denied. A request is always admitted if it fits within the limit *together with* all
    /// requests of the sketch that use the same counters: those in flight and those that try to enter at the same
    /// time.
    ///
    /// # Errors
    /// [`Full`], with the current count.
    ///
    /// # Complexity
    /// The same as [`InFlight::enter`]; a denial takes four more subtractions.
    #[inline]
    pub fn try_enter<K: Hash + ?Sized>(&self, key: &K, n: u32, limit: u64) -> Result<Guard<'_>, Full> {
        let place = self.place(key);
        let count = self.rows.try_enter(&place, n, limit)?;
        Ok(Guard::new(&self.rows, place, n, count))
    }

    /// Like [`InFlight::enter`], with a guard that keeps the counters alive. Use it for tasks and threads that may
    /// outlive the caller's reference.
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

    /// Like [`InFlight::try_enter`], with a guard that keeps the counters alive.
    ///
    /// # Errors
    /// [`Full`], with the current count.
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

    /// Returns the number in flight for a key: at least the true number.
    ///
    /// # Complexity
    /// O(1): a hash, two cache lines. It writes nothing.
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
    fn key_has_four_different_counters() {
        let rows = Rows::new(3 * Rows::MIN_BYTES).unwrap();
        for hash in (0..10_000).map(mix) {
            let KeyCounters(places) = rows.place(hash);
            for (row, place) in places.iter().enumerate() {
                assert!(!places[..row].contains(place) && *place < rows.counters.len(), "{hash}: {places:?}");
            }
        }
    }

    #[test]
    fn full_counter_sticks_and_never_wraps() {
        let rows = Rows::new(Rows::MIN_BYTES).unwrap();
        let place = rows.place(7);
        // Leaked guards have left room for two more guards with the largest number.
        for counter in rows.counters.iter() {
            counter.store(STUCK_FROM - 2 * u64::from(u32::MAX), Relaxed);
        }
        assert_eq!(rows.enter(&place, u32::MAX), STUCK_FROM - u64::from(u32::MAX));
        rows.subtract_units(&place, u32::MAX);
        assert_eq!(rows.read(&place), STUCK_FROM - 2 * u64::from(u32::MAX));
        rows.add(&place, u32::MAX);
        // The counter gets stuck and stays stuck, even if requests enter and leave.
        for _ in 0..3 {
            assert_eq!(rows.enter(&place, u32::MAX), u64::MAX);
        }
        for _ in 0..10 {
            rows.subtract_units(&place, u32::MAX);
            assert_eq!(rows.read(&place), u64::MAX);
        }
        assert_eq!(
            rows.try_enter(&place, 1, u64::MAX - 1),
            Err(Full { count: u64::MAX, limit: u64::MAX - 1 })
        );
        assert!(rows.counters.iter().all(|counter| counter.load(Relaxed) <= STUCK));
    }
}
