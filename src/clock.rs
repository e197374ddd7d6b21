//! Where time comes from: an open trait, four clocks, one unit.
//!
//! All times are nanoseconds since the clock's origin in a `u64`. The shipped real clocks read the wall clock
//! *once*, when they are built, and count monotonically from there: their origin is the Unix epoch, so windows
//! align to it, and a later step of the wall clock moves nothing.

use std::fmt;
use std::ops::Add;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sync::{AtomicU64, Ordering};

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
    /// The end of time: 2554 for clocks that start at the Unix epoch.
    pub const MAX: Self = Self(u64::MAX);

    /// A time `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A time `millis` milliseconds after the origin, saturating at [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A time `secs` seconds after the origin, saturating at [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this, or zero if `earlier` is later.
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

/// A duration's nanoseconds, at most `u64::MAX` (584 years).
pub(crate) const fn saturating_nanos(duration: Duration) -> u64 {
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
/// An implementation should not step back. If it does, limiters deny more, by less than the step, and admit
/// nothing that they would have refused without the step (but a key that was forgotten as idle before the step is new).
///
/// # Examples
/// ```
/// use tollgate::{Clock, Gcra, Quota, RateLimiter, Timestamp};
///
/// struct Frames(u64); // a game's own time: 60 frames a second
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
    /// The time now.
    fn now(&self) -> Timestamp;
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

/// Nanoseconds since the Unix epoch by the wall clock; zero if the wall clock stands before 1970.
pub(crate) fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, saturating_nanos)
}

/// The default clock: the processor's time-stamp counter where it is invariant, else the operating system's
/// monotonic clock, by [`quanta`].
///
/// About half the cost of [`StdClock`]. Building the first one in a process calibrates the counter for up to
/// 200 ms; no check ever waits for that. On machines whose counters differ between cores two threads can
/// disagree by that difference, which can only deny more; choose [`StdClock`] there. The choice is this value,
/// never a cargo feature, so no other crate can change it.
#[derive(Clone)]
pub struct QuantaClock {
    clock: quanta::Clock,
    start_raw: u64,
    origin_ns: u64,
}

impl QuantaClock {
    /// Calibrates (once per process) and anchors the clock to the wall clock.
    #[must_use]
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        Self { start_raw: clock.raw(), origin_ns: unix_nanos(), clock }
    }
}

impl Default for QuantaClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for QuantaClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuantaClock").field("now", &self.now()).finish()
    }
}

impl Clock for QuantaClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let elapsed = self.clock.delta_as_nanos(self.start_raw, self.clock.raw());
        Timestamp(self.origin_ns.saturating_add(elapsed))
    }
}

/// The operating system's monotonic clock, [`Instant`], anchored once to the wall clock.
#[derive(Clone, Debug)]
pub struct StdClock {
    start: Instant,
    origin_ns: u64,
}

impl StdClock {
    /// Anchors the clock to the wall clock.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others are sent to")]
    pub fn new() -> Self {
        Self { start: Instant::now(), origin_ns: unix_nanos() }
    }
}

impl Default for StdClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for StdClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp(self.origin_ns.saturating_add(saturating_nanos(self.start.elapsed())))
    }
}

/// A clock that answers from one shared word, and is as fresh as the last [`CoarseClock::refresh`].
///
/// For servers that have a tick anyway (an event loop's turn): reading costs one load instead of 10 to 20 ns.
/// Clones share the word. Between refreshes all checks see one time, so a limiter may admit in any interval of
/// length `t` what its bound allows for `t` plus the longest time between two refreshes, and no more.
#[derive(Clone, Debug)]
pub struct CoarseClock {
    source: Arc<QuantaClock>,
    latest_ns: Arc<AtomicU64>,
}

impl CoarseClock {
    /// A coarse clock that stands at the present until it is refreshed.
    #[must_use]
    pub fn new() -> Self {
        let source = Arc::new(QuantaClock::new());
        let latest_ns = Arc::new(AtomicU64::new(source.now().0));
        Self { source, latest_ns }
    }

    /// Reads the real clock and lets every clone see it. Never moves the time back.
    pub fn refresh(&self) {
        // Ordering: Relaxed. The word is the whole message; nothing else is published through it.
        self.latest_ns.fetch_max(self.source.now().0, Ordering::Relaxed);
    }
}

impl Default for CoarseClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Timestamp {
        // Ordering: Relaxed, as in `refresh`.
        Timestamp(self.latest_ns.load(Ordering::Relaxed))
    }
}

/// A clock that stands where it is put: for tests, simulations and replays.
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
    /// A clock that stands at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { now_ns: Arc::new(AtomicU64::new(now.0)) }
    }

    /// Puts the clock to `now`, which may be earlier than before.
    pub fn set(&self, now: Timestamp) {
        // Ordering: Relaxed, as for `CoarseClock`.
        self.now_ns.store(now.0, Ordering::Relaxed);
    }

    /// Moves the clock on by `by`, saturating at [`Timestamp::MAX`].
    pub fn advance(&self, by: Duration) {
        let by = saturating_nanos(by);
        let mut now = self.now_ns.load(Ordering::Relaxed);
        // Ordering: Relaxed. A loop rather than `fetch_add`, which would wrap.
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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn timestamps_saturate_at_both_ends() {
        assert_eq!(Timestamp::MAX + Duration::from_nanos(1), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::from_secs(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_millis(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO.duration_since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(format!("{:?}", Timestamp::from_millis(1_500)), "1.500000000s");
    }

    #[test]
    fn real_clocks_start_at_the_wall_clock_and_go_on() {
        let wall = unix_nanos();
        for clock in [&QuantaClock::new() as &dyn Clock, &StdClock::new(), &CoarseClock::new()] {
            let first = clock.now().as_nanos();
            assert!(first.abs_diff(wall) < 60_000_000_000, "{first} against {wall}");
            assert!(clock.now().as_nanos() >= first);
        }
    }

    #[test]
    fn a_coarse_clock_stands_until_it_is_refreshed() {
        let clock = CoarseClock::new();
        let other = clock.clone();
        let before = clock.now();
        assert_eq!(clock.now(), before);
        while clock.source.now() <= before {}
        clock.refresh();
        assert!(other.now() > before);
    }

    #[test]
    fn a_manual_clock_saturates_and_can_go_back() {
        let clock = ManualClock::new(Timestamp::MAX);
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), Timestamp::MAX);
        clock.set(Timestamp::ZERO);
        assert_eq!(clock.clone().now(), Timestamp::ZERO);
    }
}
