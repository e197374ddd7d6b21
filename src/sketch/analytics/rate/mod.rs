//! Rates: the numbers of events of a key in the current window and in the previous one.
//!
//! | part | contents |
//! |---|---|
//! | [`counts`] | counts of events, and what happens if a thread's clock reading lags |
//! | [`components`] | estimates from the two counts |
//! | [`builder`] | the options |

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
use crate::base::clock::{Clock, DefaultClock, Timestamp};

/// Counts events per key and window of time, for any number of keys in constant memory. It returns the count in the
/// current window and the rate in the previous window.
///
/// `Rate` is a count-min sketch with conservative update. Each count is at least the number of the key's events. It
/// is higher if other keys share all four counters of the key. This table shows the mean error in 1 MiB: the mean
/// count of a key without events, after the given number of other keys had one event each in a window.
///
/// | keys | 1,000 | 10,000 | 100,000 | 1 million |
/// |---|---|---|---|---|
/// | counts up to 2²⁴ − 1 (default) | 0.0000 | 0.007 | 1.0 | 13 |
/// | counts up to 2¹² − 1 | 0.0000 | 0.004 | 0.42 | 6.8 |
/// | pingora-limits' `Rate` in the same memory | 0.0001 | 0.045 | 3.7 | 53 |
///
/// `Rate` only counts; it does not decide. To limit requests, prefer [`RateLimiter`](crate::RateLimiter), which
/// charges only the requests that it admits. The names are those of [pingora-limits](https://docs.rs/pingora-limits);
/// see [`docs/from_pingora_limits.md`](https://docs.rs/crate/tollgate/latest/source/docs/from_pingora_limits.md).
///
/// # Windows
/// Windows are aligned to the Unix epoch (the clock's origin) and half-open: an event on a boundary belongs to the
/// window that begins there. No window is ever cleared, and no call is slow because a new window begins.
///
/// # Consistency
/// All methods take `&self`, are lock-free and can be called from any number of threads. No event is ever lost. Each
/// event is counted in the window of its thread's clock reading. If the thread is then preempted for more than a
/// window, the event is counted in a later window. The count of the previous window may still grow, because of
/// threads that are late.
///
/// # Times that step back
/// Clocks of threads may differ, and a caller may mix clock readings with its own times
/// ([`observe_at`](Self::observe_at)).
///
/// - An event that is more than a window late counts in the latest window that any of the key's counters shows.
/// - Let the allowed lag be two windows, or one second if that is longer. A time that is further behind the newest
///   time counts as the newest time minus the allowed lag.
/// - Suppose that such times continue for one second, or one window if that is longer, and that no other call has a
///   newer time. Then the newest time was wrong, and counting restarts at the older times.
///
/// # Range
/// Each word of counters stores its window in a tag of 16 bits or more. Suppose that no thread writes a key's
/// counters for exactly 2¹⁶ windows (18 hours of one-second windows, and never less than a minute). Then the key has
/// its old counts again for one window, instead of zero.
///
/// # Keys that clients choose
/// The default hasher has a secret. Clients can find keys that share counters only by trial. Two keys with the same
/// 64-bit hash are one key.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::sketch::Rate;
///
/// let requests = Rate::try_new(Duration::from_secs(1))?;
/// assert_eq!(requests.observe("203.0.113.7", 3), 3);
/// assert_eq!(requests.rate("203.0.113.7"), 0.0); // events per second in the previous window
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
///
/// # Source
/// Cormode and Muthukrishnan 2005 (count-min); Estan and Varghese 2002 (conservative update). Cloudflare's "Counting
/// things, a lot of different things" (2017) describes the two windows and their weights.
pub struct Rate<C = DefaultClock, H = ahash::RandomState> {
    counts: RateCounters,
    clock: C,
    hasher: H,
}

impl Rate {
    /// Creates a `Rate` with this window, 1 MiB of memory and the default clock. [`Rate::builder`] sets other
    /// options.
    ///
    /// Any length from one nanosecond is allowed. A length above 584 years counts as 584 years.
    ///
    /// # Errors
    /// If the window is 0, or if the memory cannot be allocated.
    pub fn try_new(window: Duration) -> Result<Self, SketchError> {
        Self::builder(window).build()
    }

    /// Returns a builder for the options: memory, largest count, clock and hasher.
    pub fn builder(window: Duration) -> RateBuilder {
        RateBuilder::new(window)
    }
}

impl<C: Clock, H: BuildHasher> Rate<C, H> {
    /// Counts `events` of a key now and returns its count in the current window. The count is at least the number of
    /// the key's events in the window, including these.
    ///
    /// With 0 events it only reads the count. Counts stop at [`Rate::largest`].
    ///
    /// # Complexity
    /// O(1): a clock reading, a hash, two cache lines, at most four exchanges. It never allocates. Lock-free: it
    /// retries only if a write of another thread took effect.
    #[inline]
    pub fn observe<K: Hash + ?Sized>(&self, key: &K, events: u64) -> u64 {
        self.observe_hash(self.hash(key), events)
    }

    /// Counts `events` of a key at a time that the caller passes; see [`Rate::observe`] and [Times that step
    /// back](#times-that-step-back).
    #[inline]
    pub fn observe_at<K: Hash + ?Sized>(&self, key: &K, events: u64, now: Timestamp) -> u64 {
        self.observe_hash_at(self.hash(key), events, now)
    }

    /// Returns the key's events per second in the previous window: at least its true rate.
    ///
    /// # Complexity
    /// O(1): a clock reading, a hash, two cache lines. It writes nothing. The same holds for all methods that only
    /// read.
    pub fn rate<K: Hash + ?Sized>(&self, key: &K) -> f64 {
        self.components(key).rate()
    }

    /// Like [`Rate::rate`], at a time that the caller passes.
    pub fn rate_at<K: Hash + ?Sized>(&self, key: &K, now: Timestamp) -> f64 {
        self.components_at(key, now).rate()
    }

    /// Returns the key's events in the current window until now: at least the true number.
    pub fn current<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.components(key).current
    }

    /// Like [`Rate::current`], at a time that the caller passes.
    pub fn current_at<K: Hash + ?Sized>(&self, key: &K, now: Timestamp) -> u64 {
        self.components_at(key, now).current
    }

    /// Returns the key's events in the previous window: at least the true number.
    pub fn previous<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.components(key).previous
    }

    /// Like [`Rate::previous`], at a time that the caller passes.
    pub fn previous_at<K: Hash + ?Sized>(&self, key: &K, now: Timestamp) -> u64 {
        self.components_at(key, now).previous
    }

    /// Returns both counts of a key and the elapsed part of the current window. With them, a caller can estimate the
    /// rate over the last `window` of time ([`RateComponents::sliding_rate`]) or over another period.
    pub fn components<K: Hash + ?Sized>(&self, key: &K) -> RateComponents {
        self.components_hash(self.hash(key))
    }

    /// Like [`Rate::components`], at a time that the caller passes.
    pub fn components_at<K: Hash + ?Sized>(&self, key: &K, now: Timestamp) -> RateComponents {
        self.components_hash_at(self.hash(key), now)
    }

    /// Returns the hash of a key, for the methods that take a hash. A caller can hash a key once and count it in
    /// several sketches.
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
    /// Like [`Rate::observe`], for the key with this hash.
    ///
    /// The hash must come from a keyed hasher of 64-bit quality, and from the same hasher in all calls. The sketch
    /// knows nothing else about the key.
    #[inline]
    pub fn observe_hash(&self, hash: u64, events: u64) -> u64 {
        self.counts.observe(hash, || CheckTime::read(&self.clock), events).count
    }

    /// Like [`Rate::observe_at`], for the key with this hash.
    #[inline]
    pub fn observe_hash_at(&self, hash: u64, events: u64, now: Timestamp) -> u64 {
        self.counts.observe(hash, || CheckTime::given(now), events).count
    }

    /// Like [`Rate::components`], for the key with this hash.
    pub fn components_hash(&self, hash: u64) -> RateComponents {
        self.read(hash, CheckTime::read(&self.clock))
    }

    /// Like [`Rate::components_at`], for the key with this hash.
    pub fn components_hash_at(&self, hash: u64, now: Timestamp) -> RateComponents {
        self.read(hash, CheckTime::given(now))
    }

    fn read(&self, hash: u64, time: CheckTime) -> RateComponents {
        let LastTwoWindows { previous, current, passed_ns } = self.counts.read(hash, time);
        let window_ns = self.counts.window_ns();
        #[expect(clippy::cast_precision_loss, reason = "a share, rounded in the sixteenth digit")]
        let fraction = passed_ns as f64 / window_ns as f64;
        // If the two numbers differ by less than the rounding error, the quotient is 1.
        let fraction = fraction.min(1.0 - f64::EPSILON);
        RateComponents { previous, current, window: Duration::from_nanos(window_ns), fraction }
    }
}

impl<C, H> Rate<C, H> {
    /// Returns the length of a window.
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.counts.window_ns())
    }

    /// Returns the largest count: a count of this value means this many or more. It is the value passed to the
    /// builder, rounded up to a power of two minus one.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.counts.largest()
    }

    /// Returns the size of the counters in bytes. Pages that no key has touched are not resident.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.counts.bytes()
    }

    /// Resets all counts to zero. Events that other threads count at the same time may be dropped or kept.
    ///
    /// # Complexity
    /// O(memory) for the caller. Other threads do not wait.
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
