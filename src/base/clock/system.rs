//! Clocks that read the machine's time.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::{Clock, Timestamp, saturating_nanos};
use crate::base::multiply_high;
use crate::base::sync::{AtomicU64, Ordering};

/// Returns the wall clock's nanoseconds since the Unix epoch, or zero if the wall clock is set before 1970.
pub(crate) fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, saturating_nanos)
}

/// Returns the clock from which all other clocks of the process start. The process reads the wall clock once, so the
/// clocks' times agree.
#[expect(clippy::disallowed_methods, reason = "the lint sends all other code to these clocks")]
fn process_clock() -> &'static StdClock {
    static CLOCK: OnceLock<StdClock> = OnceLock::new();
    CLOCK.get_or_init(|| StdClock { start: Instant::now(), origin_ns: unix_nanos().min(u64::MAX / 2) })
}

/// The default clock: the processor's time-stamp counter if it is invariant, otherwise the operating system's monotonic
/// clock. Calibrated by [`quanta`].
///
/// A reading costs about half as much as one of [`StdClock`]. The first `QuantaClock` of a process calibrates the
/// counter for up to 200 ms; no check ever waits for the calibration.
///
/// On machines whose counters differ between cores, two threads can disagree by that difference. This can only deny
/// more; choose [`StdClock`] there. The clock is chosen by value, never by a cargo feature, so no other crate can
/// change it.
///
/// # Examples
/// ```
/// use tollgate::{Gcra, QuantaClock, Quota, RateLimiter, SlidingWindow};
///
/// let clock = QuantaClock::new();
/// let second = RateLimiter::builder(Gcra::new(Quota::per_second(10))).clock(clock.clone()).compact()?;
/// let day = RateLimiter::builder(SlidingWindow::new(Quota::per_day(1_000))).clock(clock).compact()?;
/// assert!(tollgate::check_all((second.on("alice"), day.on("alice"))).is_allowed());
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Clone)]
pub struct QuantaClock {
    clock: quanta::Clock,
    /// Nanoseconds for 2⁶⁴ counts of the processor's counter. Zero if [`quanta`] does not read that counter, or if one
    /// count takes a nanosecond or longer.
    scale: u64,
    /// The time at which the counter was zero, in nanoseconds since the origin, modulo 2⁶⁴.
    zero_ns: u64,
}

/// Reads the processor's counter directly. [`quanta`]'s function is not inlined, so a check would have to save all its
/// registers to memory around that call.
#[inline(always)]
fn counter() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let (low, high): (u64, u64);
        // SAFETY: every x86-64 processor has the instruction; it writes these two registers and nothing else. A system
        // that forbids the instruction stops `quanta` first, because `quanta` reads the same counter when it is
        // calibrated.
        unsafe {
            core::arch::asm!("rdtsc", out("rax") low, out("rdx") high, options(nomem, nostack, preserves_flags));
        }
        high << 32 | low
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        0
    }
}

/// Returns the [`QuantaClock::scale`] of a clock, or zero if the clock does not use the processor's counter.
///
/// A clock uses the counter if it scales its readings, and one of its readings lies between two readings of the
/// counter.
fn scale_of(clock: &quanta::Clock) -> u64 {
    // Exact except for the last two bits. At four counts per nanosecond, the error is a sixteenth of a nanosecond in a
    // year.
    let scaled = clock.delta_as_nanos(0, 1 << 62);
    let (before, raw, after) = (counter(), clock.raw(), counter());
    if scaled < 1 << 62 && (before..=after).contains(&raw) { scaled << 2 } else { 0 }
}

impl QuantaClock {
    /// Creates a clock. The first call in a process calibrates the counter and reads the wall clock; all clocks of a
    /// process share one origin.
    #[must_use]
    pub fn new() -> Self {
        static CLOCK: OnceLock<QuantaClock> = OnceLock::new();
        let begin = || {
            let clock = quanta::Clock::new();
            let clock = Self { scale: scale_of(&clock), zero_ns: 0, clock };
            let (now_ns, counted_ns) = (process_clock().now().as_nanos(), clock.counted_ns());
            Self { zero_ns: now_ns.wrapping_sub(counted_ns), ..clock }
        };
        CLOCK.get_or_init(begin).clone()
    }

    /// Returns the nanoseconds since the counter was zero.
    #[inline(always)]
    fn counted_ns(&self) -> u64 {
        match self.scale {
            0 => self.slowly_counted_ns(),
            scale => multiply_high(counter(), scale),
        }
    }

    /// Returns the nanoseconds since the counter was zero, as [`quanta`] reads them.
    #[cold]
    #[inline(never)]
    fn slowly_counted_ns(&self) -> u64 {
        self.clock.delta_as_nanos(0, self.clock.raw())
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
        // The count wraps after 292 years at the earliest, because the process began in the first half of the range.
        // Until then the sum is right, even if the counter was zero before the origin.
        Timestamp(self.zero_ns.wrapping_add(self.counted_ns()))
    }
}

/// The operating system's monotonic clock, [`Instant`], anchored once to the wall clock.
///
/// The clock never steps back: the standard library guarantees this. No call waits for calibration. On most systems the
/// clock stops while the machine is suspended.
///
/// # Examples
/// ```
/// use tollgate::{Clock, Gcra, Quota, RateLimiter, StdClock, Timestamp};
///
/// let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(10))).clock(StdClock::new()).direct();
/// assert!(limiter.check().is_allowed());
/// assert!(limiter.clock().now() > Timestamp::from_secs(1_700_000_000)); // since 1970
/// ```
#[derive(Clone, Debug)]
pub struct StdClock {
    start: Instant,
    origin_ns: u64,
}

impl StdClock {
    /// Creates a clock, anchored to the wall clock.
    #[must_use]
    pub fn new() -> Self {
        process_clock().clone()
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

/// A clock that returns the time of the last [`CoarseClock::refresh`], from one shared word.
///
/// Use it in servers that already have a regular tick, such as each iteration of an event loop. A reading costs one
/// load instead of 10 to 20 ns. Clones share the word.
///
/// Between refreshes all checks see the same time. In any interval of length `t`, a limiter therefore admits at most
/// its bound for `t` plus the longest time between two refreshes.
///
/// # Examples
/// ```
/// use tollgate::{Clock, CoarseClock};
///
/// let clock = CoarseClock::new();
/// let turn = clock.now();
/// assert_eq!(clock.now(), turn); // the same reading until the next refresh
/// clock.refresh(); // at the next iteration of the loop
/// assert!(clock.now() >= turn);
/// ```
#[derive(Clone, Debug)]
pub struct CoarseClock {
    source: Arc<QuantaClock>,
    latest_ns: Arc<AtomicU64>,
}

impl CoarseClock {
    /// Creates a clock that returns the current time until it is refreshed.
    #[must_use]
    pub fn new() -> Self {
        let source = Arc::new(QuantaClock::new());
        let latest_ns = Arc::new(AtomicU64::new(source.now().0));
        Self { source, latest_ns }
    }

    /// Reads the real clock, and makes the time visible to every clone. Never moves the time back.
    pub fn refresh(&self) {
        // Ordering: Relaxed. The word is the whole message; it publishes nothing else.
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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// The scale agrees with quanta within a nanosecond, now and after 2^61 counts (about 24 years at three counts per
    /// nanosecond).
    #[test]
    fn counter_agrees_with_quanta() {
        let clock = QuantaClock::new();
        if clock.scale == 0 {
            return;
        }
        for _ in 0..10_000 {
            let before = clock.slowly_counted_ns();
            let counted = clock.counted_ns();
            assert!((before..=clock.slowly_counted_ns() + 1).contains(&(counted + 1)), "{counted}");
        }
        for count in (0..=61).map(|bits| 1_u64 << bits) {
            let (ours, quantas) = (multiply_high(count, clock.scale), clock.clock.delta_as_nanos(0, count));
            assert!(ours.abs_diff(quantas) <= 1, "{count} counts: {ours} ns here, {quantas} ns in quanta");
        }
    }
}
