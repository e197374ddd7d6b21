//! Measures the duration of a sample of the checks.

use std::fmt;

use super::facade::SampleTimer;
use crate::base::clock::Timestamp;

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
    sample: SampleTimer,
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
        Self { every, sample: SampleTimer::register(domain, every) }
    }

    /// Runs `check`, and times it if it is in the sample.
    #[inline]
    pub fn time<T>(&self, check: impl FnOnce() -> T) -> T {
        let start = self.start();
        let answer = check();
        self.stop(start);
        answer
    }

    /// Returns the start time of a check in the sample, or `None` for other checks. Pass it to [`CheckTimer::stop`]. For a
    /// check that a closure cannot contain, such as one with an `await`.
    #[inline(always)]
    #[must_use]
    pub fn start(&self) -> Option<Timestamp> {
        self.sample.start()
    }

    /// Records the duration of a check in the sample.
    #[inline]
    pub fn stop(&self, start: Option<Timestamp>) {
        self.sample.stop(start);
    }
}
