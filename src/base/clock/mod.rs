//! Clocks: a trait that users can implement, and four clocks.
//!
//! All times are nanoseconds since the clock's origin, in a `u64`. The shipped real clocks read the wall clock *once*,
//! when they are built, and count monotonically from that reading. Their origin is the Unix epoch, so windows align to
//! the epoch. A later step of the wall clock does not change their time.

#[cfg(tollgate_loom)]
pub(crate) mod models;
#[cfg(feature = "std")]
mod system;

use alloc::sync::Arc;
use core::fmt;
use core::ops::Add;
use core::time::Duration;

#[cfg(feature = "std")]
pub use self::system::{CoarseClock, DefaultClock, StdClock, unix_nanos};
use crate::base::sync::{AtomicU64, Ordering};

/// A point in time: nanoseconds since the clock's origin, which for the shipped clocks is the Unix epoch.
///
/// The range is 0 to `u64::MAX` nanoseconds: from 1970 to the year 2554. Arithmetic saturates.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::Timestamp;
///
/// let start = Timestamp::from_secs(5);
/// assert_eq!((start + Duration::from_millis(1)).as_nanos(), 5_001_000_000);
/// assert_eq!(start.duration_since(Timestamp::from_secs(9)), Duration::ZERO);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// The latest time: the year 2554 for clocks that start at the Unix epoch.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a time `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Creates a time `millis` milliseconds after the origin, saturating at [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Creates a time `secs` seconds after the origin, saturating at [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time of an [`Instant`](std::time::Instant). `anchor` is one moment on both scales, such as a reading of each
    /// clock at the start of the program.
    ///
    /// The result saturates at [`Timestamp::ZERO`] and [`Timestamp::MAX`].
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tollgate::{Clock, Quota, RateLimiter, Timestamp};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(1));
    /// let anchor = (Instant::now(), limiter.clock().now()); // once
    ///
    /// let received = Instant::now(); // from the caller's own event loop
    /// let at = Timestamp::from_instant(received, anchor);
    /// assert!(limiter.at(at).check("alice").is_allowed());
    /// let retry = limiter.at(at).check("alice").retry_after().unwrap();
    /// assert!((at + retry).to_instant(anchor).unwrap() > received + Duration::from_secs(59));
    /// ```
    #[cfg(feature = "std")]
    #[must_use]
    pub fn from_instant(instant: std::time::Instant, anchor: (std::time::Instant, Self)) -> Self {
        let (then, at) = anchor;
        match instant.checked_duration_since(then) {
            Some(after) => at + after,
            None => Self(at.0.saturating_sub(saturating_nanos(then.duration_since(instant)))),
        }
    }

    /// Returns the [`Instant`](std::time::Instant) of this time, as [`Timestamp::from_instant`] does in the other direction.
    /// `None` if the system has no such instant.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn to_instant(self, anchor: (std::time::Instant, Self)) -> Option<std::time::Instant> {
        let (then, at) = anchor;
        if self >= at {
            then.checked_add(self.duration_since(at))
        } else {
            then.checked_sub(at.duration_since(self))
        }
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    #[must_use]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`Timestamp::MAX`].
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(rhs)))
    }
}

/// Returns a duration's nanoseconds, at most `u64::MAX` (584 years).
pub const fn saturating_nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 {
        u64::MAX
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "compared with the maximum just above")]
        let nanos = nanos as u64;
        nanos
    }
}

/// A source of time.
///
/// A clock should not step back. If it does, limiters deny more, by less than the step. They admit nothing that they
/// would have denied without the step, with one exception: a key that was removed as idle before the step starts with
/// its full quota.
///
/// # Examples
/// ```
/// use tollgate::{Clock, Gcra, Quota, RateLimiter, Timestamp};
///
/// struct Frames(u64); // a game's own time: 60 frames per second
/// impl Clock for Frames {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_nanos(self.0 * 1_000_000_000 / 60)
///     }
/// }
/// let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(1))).clock(Frames(30)).direct();
/// assert!(limiter.check().is_allowed());
/// assert!(limiter.check().is_denied());
/// ```
pub trait Clock {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// The clock argument of a [`Builder`](crate::Builder): every [`Clock`], or `()` for the default clock.
pub trait IntoClock {
    /// The type of the resulting clock.
    type Clock: Clock;

    /// Returns the clock.
    fn into_clock(self) -> Self::Clock;
}

impl<C: Clock> IntoClock for C {
    type Clock = C;

    #[inline]
    fn into_clock(self) -> C {
        self
    }
}

#[cfg(feature = "std")]
impl IntoClock for () {
    type Clock = DefaultClock;

    fn into_clock(self) -> DefaultClock {
        DefaultClock::new()
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    #[inline]
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    #[inline]
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// A placeholder: without `std` there is no default clock, and this type has no values.
#[cfg(not(feature = "std"))]
#[derive(Debug)]
pub enum DefaultClock {}

/// A clock that moves only when the caller sets it: for tests, simulations and replays.
///
/// Clones share the time.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::new(Timestamp::from_secs(60));
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.now(), Timestamp::from_secs(61));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    now_ns: Arc<AtomicU64>,
}

impl ManualClock {
    /// Creates a clock that reads `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { now_ns: Arc::new(AtomicU64::new(now.0)) }
    }

    /// Sets the clock to `now`, which may be earlier than the clock's present time.
    pub fn set(&self, now: Timestamp) {
        // Ordering: Relaxed. The word is the whole message; it publishes nothing else.
        self.now_ns.store(now.0, Ordering::Relaxed);
    }

    /// Moves the clock forward by `by`, saturating at [`Timestamp::MAX`].
    pub fn advance(&self, by: Duration) {
        let by = saturating_nanos(by);
        let mut now = self.now_ns.load(Ordering::Relaxed);
        // Ordering: Relaxed, as in `set`. A loop, because `fetch_add` would wrap.
        while let Err(actual) = self.now_ns.compare_exchange_weak(
            now,
            now.saturating_add(by),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            now = actual;
        }
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp(self.now_ns.load(Ordering::Relaxed))
    }
}
