//! How long checks take, of a sample of them.

#[cfg(feature = "metrics")]
use std::cell::Cell;
use std::fmt;

#[cfg(feature = "metrics")]
use crate::clock::{Clock, QuantaClock};

#[cfg(feature = "metrics")]
thread_local!(static TURN: Cell<u32> = const { Cell::new(0) });

/// Times one in so many checks of each thread, and feeds `tollgate_check_duration_seconds` with feature `metrics`. Without, it only
/// calls what it is given.
///
/// A check takes tens of nanoseconds and two readings of the clock as much again, so not every one is timed.
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
    /// Times one check in `every`, under the label `domain`; all if it is 1, none if it is 0. Registers its metric: install the
    /// recorder before.
    #[must_use]
    pub fn new(domain: &str, every: u32) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = domain;
        Self {
            every,
            #[cfg(feature = "metrics")]
            clock: QuantaClock::new(),
            #[cfg(feature = "metrics")]
            histogram: super::facade::check_duration(domain),
        }
    }

    /// Does `check`, and times it if it is its turn.
    #[inline]
    pub fn time<T>(&self, check: impl FnOnce() -> T) -> T {
        #[cfg(feature = "metrics")]
        if self.is_turn() {
            return self.timed(check);
        }
        check()
    }

    /// Whether this call is the thread's next in so many.
    #[cfg(feature = "metrics")]
    fn is_turn(&self) -> bool {
        let turn = TURN.get().saturating_add(1);
        let is_turn = self.every > 0 && turn >= self.every;
        TURN.set(if is_turn { 0 } else { turn });
        is_turn
    }

    #[cfg(feature = "metrics")]
    fn timed<T>(&self, check: impl FnOnce() -> T) -> T {
        let start = self.clock.now();
        let answer = check();
        self.histogram.record(self.clock.now().duration_since(start));
        answer
    }
}
