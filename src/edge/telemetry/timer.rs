//! Measures the duration of a sample of the checks.

#[cfg(feature = "metrics")]
use std::cell::Cell;
use std::fmt;

use crate::base::clock::Timestamp;
#[cfg(feature = "metrics")]
use crate::base::clock::{Clock, QuantaClock};

#[cfg(feature = "metrics")]
// The state of the thread's random number generator.
thread_local!(static RANDOM: Cell<u64> = const { Cell::new(0) });

/// Returns the thread's next 32 random bits: the upper half of a linear congruential generator with the constants of
/// MMIX (Knuth). This quality suffices for a sample. All threads have the same sequence, and each thread applies it to
/// its own checks.
#[cfg(feature = "metrics")]
#[inline]
fn random() -> u64 {
    RANDOM.with(|random| {
        let next =
            random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random.set(next);
        next >> 32
    })
}

/// Times a random sample of the checks. With the feature `metrics`, it feeds `tollgate_check_duration_seconds`; without
/// it, the timer only calls the given function.
///
/// A check takes tens of nanoseconds, and two clock readings take about the same time again, so only a sample is timed.
/// The sample is random, because a counter could fall into step with the calls. For example, if a thread uses two
/// timers in turn, a shared counter could always pick the same timer.
///
/// # Examples
/// ```
/// use tollgate::telemetry::CheckTimer;
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::new(Quota::per_minute(60));
/// let timer = CheckTimer::new("api", 1_000);
/// let decision = timer.time(|| limiter.check("203.0.113.7"));
/// assert!(decision.is_allowed());
/// ```
pub struct CheckTimer {
    every: u32,
    /// How many of the 2³² random numbers select a check.
    #[cfg(feature = "metrics")]
    turns: u64,
    #[cfg(feature = "metrics")]
    clock: QuantaClock,
    #[cfg(feature = "metrics")]
    histogram: metrics::Histogram,
}

impl fmt::Debug for CheckTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckTimer").field("every", &self.every).finish_non_exhaustive()
    }
}

impl CheckTimer {
    /// Creates a timer for one check in `every` on average, under the label `domain`. With 1 it times all checks; with
    /// 0 it times none. Registers its metric; install the recorder first.
    #[must_use]
    pub fn new(domain: &str, every: u32) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = domain;
        Self {
            every,
            #[cfg(feature = "metrics")]
            turns: if every == 0 { 0 } else { (1_u64 << 32).div_ceil(every.into()) },
            #[cfg(feature = "metrics")]
            clock: QuantaClock::new(),
            #[cfg(feature = "metrics")]
            histogram: super::facade::check_duration(domain),
        }
    }

    /// Runs `check`, and times it if it is in the sample.
    #[inline]
    pub fn time<T>(&self, check: impl FnOnce() -> T) -> T {
        let start = self.start();
        let answer = check();
        self.stop(start);
        answer
    }

    /// Returns the start time of a check in the sample, or `None` for other checks.
    #[inline]
    pub(crate) fn start(&self) -> Option<Timestamp> {
        #[cfg(feature = "metrics")]
        if random() < self.turns {
            return Some(self.clock.now());
        }
        None
    }

    /// Records the duration of a check in the sample.
    #[inline]
    pub(crate) fn stop(&self, start: Option<Timestamp>) {
        #[cfg(feature = "metrics")]
        if let Some(start) = start {
            self.record_since(start);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = start;
    }

    #[cfg(feature = "metrics")]
    #[cold]
    fn record_since(&self, start: Timestamp) {
        self.histogram.record(self.clock.now().duration_since(start));
    }
}
