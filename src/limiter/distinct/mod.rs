//! Limits on the number of different values of a key.
//!
//! A filter holds the pairs of a key and a value that were admitted in the window. A check has these steps:
//!
//! 1. If the filter holds the pair, the check is admitted without a charge.
//! 2. Otherwise it charges one unit to the key, or is denied.
//! 3. An admitted check inserts the pair. If another thread inserted the pair in the meantime, the unit is refunded.
//!
//! The pair is inserted after the charge, so a value that was denied is never in the filter.
//!
//! *One window for the unit and its pair.* At the turn of a window, a caller may be late for the filter, for its key, or
//! for both, because other callers have begun the later window there. If the filter is ahead, the check charges the unit
//! at the start of the filter's window. If the key is ahead, the charge says which window has counted it, and the pair is
//! inserted there. With two windows, a value would be known where it was never counted.
//!
//! *A wrong time.* Keys share the words of the filter. If a check followed a word by any number of windows, one check whose
//! time is a day ahead would move the keys of its word there, and the next values of these keys would move the keys of
//! other words. So a check follows by a second, or by one window if that is longer. It takes a word that is further ahead
//! for an old one, counts in its own window, and replaces the word.
//!
//! *Full words.* All bits of a pair are in one word of the filter. If more than a third of the word's bits are set, the
//! check does not trust it, and charges the unit. So a new value is taken for a known one with a probability of at most
//! (1/3)³, however many values there are, and a filter that is too small denies too much instead of too little.

#[cfg(all(test, tollgate_loom))]
mod models;

use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::algorithm::FixedWindow;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, DefaultClock, Timestamp};
use crate::base::decision::Decision;
use crate::base::quota::{QuotaError, Reason};
use crate::limiter::RateLimiter;
use crate::limiter::at::{At, Timed};
use crate::sketch::window::{Insert, Late, Moment, WindowedBloom, Windows, tag_bits};
use crate::store::op::StoreBase as _;
use crate::store::{Compact, HashedStore, Operation, Store};

/// The bytes of the filter for each value.
const BYTES_A_VALUE: usize = 16;

/// A limit on the number of *different* values of a key in a window: user names of an address, or devices of an account.
///
/// The first check of a value costs one unit of the key, and later checks of the same value in the window cost nothing.
/// So a client that uses one user name a hundred times is admitted, and a client that tries a hundred user names is
/// not.
///
/// # Wrong answers
/// The values are in a filter of constant memory, so a new value can be taken for a known one. It is then admitted
/// without being counted. As long as the window admits no more values of all keys than the filter was made for, this
/// happens to one new value in 2,000. Beyond that, it never happens to more than one new value in 27, because the limit
/// then counts some known values again. A filter that is too small therefore denies too much.
///
/// # Consistency
/// If threads check the same new value of a key at the same time, the value is counted once. Until then, it may take
/// one unit for each of these threads, and deny other new values of the key.
///
/// A check whose time is behind that of other checks counts in their window, if that is the next one or begins within a
/// second. Otherwise it counts at its own time, so that a time that is wrong by a day moves no other key. Then a few values
/// are forgotten, those that share a word of the filter with the checked value, and each of them costs one unit again.
///
/// # Examples
/// ```
/// use tollgate::{Distinct, FixedWindow, Quota, RateLimiter};
///
/// // Three user names of an address in an hour, and 100,000 names of all addresses together.
/// let window = FixedWindow::new(Quota::per_hour(3));
/// let names = Distinct::new(RateLimiter::builder(window).compact()?, 100_000)?;
/// for name in ["alice", "bob", "alice", "carol", "bob"] {
///     assert!(names.check("203.0.113.7", name).is_allowed());
/// }
/// assert!(names.check("203.0.113.7", "dave").is_denied());
/// assert!(names.check("203.0.113.7", "alice").is_allowed());
/// assert!(names.check("203.0.113.8", "dave").is_allowed());
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
///
/// # Source
/// Bloom 1970; Putze, Sanders and Singler 2007 (blocks).
pub struct Distinct<C = DefaultClock, H = ahash::RandomState> {
    limiter: RateLimiter<Compact<FixedWindow, H>, C>,
    known: KnownPairs,
    hasher: ahash::RandomState,
}

/// The pairs of a key and a value that were admitted in a window.
#[derive(Debug)]
pub struct KnownPairs {
    windows: Windows,
    filter: WindowedBloom,
}

/// A request: the hashes of its key, and of the pair.
#[derive(Copy, Clone, Debug)]
struct Pair {
    key: u64,
    both: u64,
}

impl<C, H: BuildHasher> Distinct<C, H> {
    /// Creates a limit from a limiter of fixed windows. `values` is the number of different values, of all keys
    /// together, that a window admits.
    ///
    /// # Errors
    /// If the memory cannot be allocated, if the windows are so short that the filter would mistake them for one
    /// another (below 31 µs), or if the limiter cannot refund: with
    /// [`Overflow::Inherit`](crate::Overflow::Inherit), a value that threads check at the same time would stay counted
    /// twice.
    ///
    /// # Memory
    /// That of the limiter, and 16 bytes for each of `values`.
    pub fn new(limiter: RateLimiter<Compact<FixedWindow, H>, C>, values: usize) -> Result<Self, QuotaError> {
        if !limiter.store.can_refund() {
            return Err(Reason::CannotCountValues.into());
        }
        let window_ns = limiter.store.algorithm().quota().0.period_ns();
        let known = KnownPairs::new(window_ns, values.saturating_mul(BYTES_A_VALUE))?;
        Ok(Self { limiter, known, hasher: ahash::RandomState::new() })
    }

    /// Returns this limit at the time `now`: no clock is read.
    pub const fn at(&self, now: Timestamp) -> At<'_, Self> {
        At::new(self, now)
    }

    /// Returns the limiter, which counts the values of each key.
    pub const fn limiter(&self) -> &RateLimiter<Compact<FixedWindow, H>, C> {
        &self.limiter
    }

    /// Returns the bytes of the limiter's states and of the filter.
    pub fn state_bytes(&self) -> usize {
        self.limiter.state_bytes() + self.known.filter.bytes()
    }

    fn pair<K: Hash + ?Sized, V: Hash + ?Sized>(&self, key: &K, value: &V) -> Pair {
        Pair { key: self.limiter.store.hash(key), both: self.hasher.hash_one((key, value)) }
    }

    fn check_at(&self, pair: Pair, at: CheckTime) -> Decision {
        let windows = &self.known.windows;
        let own = windows.moment(at.ns());
        let mut moment = own;
        loop {
            match self.check_in(moment, own, pair, at) {
                Ok(decision) => return decision,
                // Another thread has begun a later window.
                Err(late) => moment = windows.catch_up(moment, late),
            }
        }
    }

    /// Checks in the window of a moment. `own` is the moment of the caller's own time.
    ///
    /// # Errors
    /// If the caller is late: the pair's word belongs to a later window that the caller follows.
    fn check_in(&self, moment: Moment, own: Moment, pair: Pair, at: CheckTime) -> Result<Decision, Late> {
        let (store, KnownPairs { windows, filter }) = (&self.limiter.store, &self.known);
        let window = moment.window;
        // The unit may count far ahead, or the word may have moved on. Then the value stays unknown.
        let follow = |late| if windows.trusts(own.window, late) { Err(late) } else { Ok(false) };
        let key = store.prepare_hash(pair.key);
        let (when, ahead_ns) = windows.caught_up(window, at);
        let charge =
            |cost| Store::<u64>::apply(store, key, Operation::Check, when, cost).seen_earlier(ahead_ns);
        let refund = |decision: &Decision| Store::<u64>::refund(store, key, when, decision, 1);
        let found = filter.find(windows, &filter.probe(windows, pair.both), window);
        if found.map(|found| found.is_known(windows)).or_else(follow)? {
            return Ok(charge(0));
        }
        let decision = charge(1);
        if !decision.is_allowed() {
            // Another thread may have used the last unit for the same value.
            let is_known = self.known.is_known_where(pair.both, &decision).or_else(follow)?;
            return Ok(if is_known { charge(0) } else { decision });
        }
        match self.known.insert(pair.both, &decision).or_else(follow) {
            Ok(true) => {
                refund(&decision);
                Ok(charge(0))
            }
            Ok(false) => Ok(decision),
            Err(late) => {
                refund(&decision);
                Err(late)
            }
        }
    }

    fn peek_at(&self, pair: Pair, at: CheckTime) -> Decision {
        let (store, (window, is_known)) = (&self.limiter.store, self.known.find(pair.both, at));
        let (when, ahead_ns) = self.known.windows.caught_up(window, at);
        let key = store.prepare_hash(pair.key);
        Store::<u64>::peek(store, key, when, u64::from(!is_known)).seen_earlier(ahead_ns)
    }
}

impl KnownPairs {
    /// # Errors
    /// If the memory cannot be allocated, or if the windows are too short.
    pub fn new(window_ns: u64, bytes: usize) -> Result<Self, QuotaError> {
        let windows = Windows::new(window_ns, tag_bits(window_ns), u64::MAX).trusting_a_second();
        if let Some(min_ns) = windows.too_short() {
            return Err(
                Reason::ShortWindow { algorithm: "distinct values", got_ns: window_ns, min_ns }.into()
            );
        }
        let filter = WindowedBloom::new(bytes, false).ok_or(Reason::Memory { bytes: bytes as u64 })?;
        Ok(Self { windows, filter })
    }

    /// Returns the window in which a request with the pair counts, and whether the pair was admitted in it.
    fn find(&self, pair: u64, at: CheckTime) -> (u64, bool) {
        let Self { windows, filter } = self;
        let probe = filter.probe(windows, pair);
        let own = windows.moment(at.ns());
        let mut moment = own;
        loop {
            match filter.find(windows, &probe, moment.window) {
                Ok(found) => return (moment.window, found.is_known(windows)),
                Err(late) if windows.trusts(own.window, late) => moment = windows.catch_up(moment, late),
                Err(_) => return (moment.window, false),
            }
        }
    }

    /// Whether a pair was admitted in this window.
    #[inline]
    pub fn holds(&self, pair: u64, at: CheckTime) -> bool {
        self.find(pair, at).1
    }

    /// Whether a pair was admitted in the window that made a decision.
    ///
    /// # Errors
    /// If the pair's word in the filter belongs to a later window.
    fn is_known_where(&self, pair: u64, decision: &Decision) -> Result<bool, Late> {
        let Self { windows, filter } = self;
        let window = windows.index(decision.owed_as_of_ns());
        Ok(filter.find(windows, &filter.probe(windows, pair), window)?.is_known(windows))
    }

    /// Returns the window of a time, and the words of the filter that have pairs of this window.
    pub fn words(&self, at: CheckTime) -> (u64, impl Iterator<Item = (usize, u64)>) {
        let window = self.windows.moment(at.ns()).window;
        (window, self.filter.words_in(&self.windows, window))
    }

    /// Sets a word of the filter, if it has pairs of the window.
    pub fn set_word(&self, window: u64, (index, word): (usize, u64)) {
        self.windows.begin(window);
        self.filter.set_word(&self.windows, window, (index, word));
    }

    /// Inserts a pair into the window that counted its unit. Returns whether another thread has inserted it since
    /// [`holds`](Self::holds), so that the unit is counted twice.
    ///
    /// # Errors
    /// If the pair's word in the filter belongs to a later window. Then nothing is inserted.
    pub fn insert(&self, pair: u64, charge: &Decision) -> Result<bool, Late> {
        let Self { windows, filter } = self;
        let window = windows.index(charge.owed_as_of_ns());
        let found = filter.find(windows, &filter.probe(windows, pair), window)?;
        Ok(found.insert(windows, window)? == Insert::Again && !found.is_crowded(windows))
    }
}

impl<C: Clock, H: BuildHasher> Distinct<C, H> {
    /// Checks a value of a key now, and counts it if it is new and admitted. The decision's figures count values.
    ///
    /// # Complexity
    /// O(1) and lock-free. A value that is known: one load in the filter, and one in the table. A new value: also two
    /// exchanges. Allocates nothing.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check<K: Hash + ?Sized, V: Hash + ?Sized>(&self, key: &K, value: &V) -> Decision {
        self.check_at(self.pair(key, value), self.limiter.time())
    }

    /// Returns the decision that [`Distinct::check`] would make now, and counts nothing.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn peek<K: Hash + ?Sized, V: Hash + ?Sized>(&self, key: &K, value: &V) -> Decision {
        self.peek_at(self.pair(key, value), self.limiter.time())
    }
}

impl<C, H: BuildHasher> At<'_, Distinct<C, H>> {
    /// [`Distinct::check`] at this time.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check<K: Hash + ?Sized, V: Hash + ?Sized>(self, key: &K, value: &V) -> Decision {
        self.limiter.check_at(self.limiter.pair(key, value), CheckTime::given(self.now))
    }

    /// [`Distinct::peek`] at this time.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn peek<K: Hash + ?Sized, V: Hash + ?Sized>(self, key: &K, value: &V) -> Decision {
        self.limiter.peek_at(self.limiter.pair(key, value), CheckTime::given(self.now))
    }
}

impl<C, H> fmt::Debug for Distinct<C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distinct").field("filter_bytes", &self.known.filter.bytes()).finish_non_exhaustive()
    }
}
