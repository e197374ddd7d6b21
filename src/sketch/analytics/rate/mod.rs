//! Rates: how many events of a key there were, in this window and the last.
//!
//! | part | holds |
//! |---|---|
//! | [`counts`] | counting, and times that lag |
//! | [`components`] | what is made of two counts |
//! | [`builder`] | what is optional |

mod builder;
mod components;
mod counts;
#[cfg(all(test, tollgate_loom))]
mod models;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

pub use self::builder::RateBuilder;
pub use self::components::RateComponents;
use self::counts::{LastTwoWindows, RateCounters};
use super::error::SketchError;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, QuantaClock, Timestamp};

/// Counts events of any number of keys by windows of time, in constant memory: how many in this window, and
/// at which rate in the last.
///
/// A count-min sketch with conservative update: each count is at least the key's events, and more if other
/// keys share all of its four counters. How much more, in 1 MiB, when so many keys had an event each in a
/// window:
///
/// | keys | 1,000 | 10,000 | 100,000 | 1 million |
/// |---|---|---|---|---|
/// | counts up to 2²⁴ − 1 (default) | 0.0000 | 0.007 | 1.0 | 13 |
/// | counts up to 2¹² − 1 | 0.0000 | 0.004 | 0.42 | 6.8 |
/// | pingora-limits' `Rate` in as much | 0.0001 | 0.045 | 3.7 | 53 |
///
/// It counts and decides nothing. To limit, prefer [`RateLimiter`](crate::RateLimiter): it charges only what
/// it allows. For [pingora-limits](https://docs.rs/pingora-limits), from which the names are, see
/// [`guide::from_pingora_limits`](crate::guide::from_pingora_limits).
///
/// # Windows
/// Windows are aligned to the Unix epoch (to the clock's origin) and half-open: an event on a boundary is in
/// the window that begins there. They turn by themselves: nothing is ever cleared, and no call pays for a
/// turn.
///
/// # Consistency
/// All calls take `&self`, are lock-free and can be made from any number of threads. No event is ever lost:
/// each is counted in the window that its thread's clock showed, or in a later one if the thread was held up
/// for more than a window meanwhile. So a count of the last window may still grow while other threads are
/// late.
///
/// # Times that step back
/// Threads' clocks may differ, and times may be given ([`observe_at`](Self::observe_at)) and read in turn. An event that is more
/// than a window late counts in the window that is the latest where the key's counters are. A time that is behind the
/// newest by more than two windows (or a second, if that is longer) counts as of two windows behind it. If such times
/// go on for a second (or a window, if that is longer) and no other call brings a newer one, the newest time was
/// wrong: counting begins again at theirs.
///
/// # Range
/// A word of counters knows its window by 16 bits or more. A key whose counters nobody touched for just 2¹⁶
/// windows (18 hours of one-second windows, and never less than a minute) finds its old counts in place of
/// none, for a window.
///
/// # Keys that clients choose
/// The default hasher has a secret, so clients cannot choose keys that share counters but by trying them out.
/// Two keys with the same 64-bit hash are one key.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::sketch::Rate;
///
/// let requests = Rate::try_new(Duration::from_secs(1))?;
/// assert_eq!(requests.observe("203.0.113.7", 3), 3);
/// assert_eq!(requests.rate("203.0.113.7"), 0.0); // a second, in the last whole window
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
///
/// # Source
/// Cormode and Muthukrishnan 2005 (count-min); Estan and Varghese 2002 (conservative update). The two windows
/// and their weights: Cloudflare's "Counting things, a lot of different things" (2017).
pub struct Rate<C = QuantaClock, H = ahash::RandomState> {
    counts: RateCounters,
    clock: C,
    hasher: H,
}

impl Rate {
    /// Counts by windows of this length, in 1 MiB, by the default clock: [`Rate::builder`] sets more.
    ///
    /// Any length works, from a nanosecond on; more than 584 years are 584 years.
    ///
    /// # Errors
    /// If the window is 0, or there is no memory.
    pub fn try_new(window: Duration) -> Result<Self, SketchError> {
        Self::builder(window).build()
    }

    /// Sets what is optional: memory, the largest count, clock, hasher.
    pub fn builder(window: Duration) -> RateBuilder {
        RateBuilder::new(window)
    }
}

impl<C: Clock, H: BuildHasher> Rate<C, H> {
    /// Counts `events` of a key now, and returns its count in the present window: at least all its events
    /// there, these included.
    ///
    /// With 0 events it only looks. Counts stop at [`Rate::largest`].
    ///
    /// # Complexity
    /// O(1): a clock reading, a hash, two cache lines, at most four exchanges. Never allocates. Lock-free:
    /// begins again only if another thread's write took effect.
    #[inline]
    pub fn observe<K: Hash + ?Sized>(&self, key: &K, events: u64) -> u64 {
        self.observe_hash(self.hash(key), events)
    }

    /// Counts `events` of a key at a time that the caller says; see [`Rate::observe`], and
    /// [Times that step back](#times-that-step-back).
    #[inline]
    pub fn observe_at<K: Hash + ?Sized>(&self, key: &K, events: u64, now: Timestamp) -> u64 {
        self.observe_hash_at(self.hash(key), events, now)
    }

    /// Events a second of a key in the last whole window: at least its own.
    ///
    /// # Complexity
    /// O(1): a clock reading, a hash, two cache lines. Writes nothing. So for all that only look.
    pub fn rate<K: Hash + ?Sized>(&self, key: &K) -> f64 {
        self.components(key).rate()
    }

    /// [`Rate::rate`] at a time that the caller says.
    pub fn rate_at<K: Hash + ?Sized>(&self, key: &K, now: Timestamp) -> f64 {
        self.components_at(key, now).rate()
    }

    /// A key's events in the present window, until now: at least its own.
    pub fn current<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.components(key).current
    }

    /// [`Rate::current`] at a time that the caller says.
    pub fn current_at<K: Hash + ?Sized>(&self, key: &K, now: Timestamp) -> u64 {
        self.components_at(key, now).current
    }

    /// A key's events in the last whole window: at least its own.
    pub fn previous<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.components(key).previous
    }

    /// [`Rate::previous`] at a time that the caller says.
    pub fn previous_at<K: Hash + ?Sized>(&self, key: &K, now: Timestamp) -> u64 {
        self.components_at(key, now).previous
    }

    /// Both counts of a key, and how much of the present window has passed: for estimates over the last
    /// window of time ([`RateComponents::sliding_rate`]) or any other.
    pub fn components<K: Hash + ?Sized>(&self, key: &K) -> RateComponents {
        self.components_hash(self.hash(key))
    }

    /// [`Rate::components`] at a time that the caller says.
    pub fn components_at<K: Hash + ?Sized>(&self, key: &K, now: Timestamp) -> RateComponents {
        self.components_hash_at(self.hash(key), now)
    }

    /// The hash of a key, for the calls that take one: hash once, count in several.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::sketch::Rate;
    ///
    /// let requests = Rate::try_new(Duration::from_secs(60))?;
    /// let bytes = Rate::builder(Duration::from_secs(60)).largest((1 << 48) - 1).build()?;
    /// let hash = requests.hash("203.0.113.7");
    /// requests.observe_hash(hash, 1);
    /// bytes.observe_hash(hash, 1_514);
    /// assert_eq!(bytes.components_hash(hash).current, 1_514);
    /// # Ok::<(), tollgate::sketch::SketchError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }
}

impl<C: Clock, H> Rate<C, H> {
    /// [`Rate::observe`] for the key with this hash.
    ///
    /// It must be of a keyed hasher of 64-bit quality, the same for all calls: it is all that is known of the
    /// key.
    #[inline]
    pub fn observe_hash(&self, hash: u64, events: u64) -> u64 {
        self.counts.observe(hash, || CheckTime::read(&self.clock), events).count
    }

    /// [`Rate::observe_at`] for the key with this hash.
    #[inline]
    pub fn observe_hash_at(&self, hash: u64, events: u64, now: Timestamp) -> u64 {
        self.counts.observe(hash, || CheckTime::given(now), events).count
    }

    /// [`Rate::components`] of the key with this hash.
    pub fn components_hash(&self, hash: u64) -> RateComponents {
        self.look(hash, CheckTime::read(&self.clock))
    }

    /// [`Rate::components_at`] of the key with this hash.
    pub fn components_hash_at(&self, hash: u64, now: Timestamp) -> RateComponents {
        self.look(hash, CheckTime::given(now))
    }

    fn look(&self, hash: u64, time: CheckTime) -> RateComponents {
        let LastTwoWindows { previous, current, passed_ns } = self.counts.look(hash, time);
        let window_ns = self.counts.window_ns();
        #[expect(clippy::cast_precision_loss, reason = "a share, rounded in the sixteenth digit")]
        let fraction = passed_ns as f64 / window_ns as f64;
        // Two long times may differ by less than the rounding.
        let fraction = fraction.min(1.0 - f64::EPSILON);
        RateComponents { previous, current, window: Duration::from_nanos(window_ns), fraction }
    }
}

impl<C, H> Rate<C, H> {
    /// The length of a window.
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.counts.window_ns())
    }

    /// The largest count: one that is as large means so many or more. What was asked for, rounded up to a
    /// power of two less one.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.counts.largest()
    }

    /// The bytes of its counters. Pages that no key has touched are not resident.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.counts.bytes()
    }

    /// Forgets all counts. Events that other threads count meanwhile may be forgotten or not.
    ///
    /// # Complexity
    /// O(memory): nobody waits for it, but the caller does.
    pub fn clear(&self) {
        self.counts.clear();
    }
}

impl<C: fmt::Debug, H> fmt::Debug for Rate<C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rate")
            .field("window", &self.window())
            .field("largest", &self.largest())
            .field("state_bytes", &self.state_bytes())
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
