//! How long checks take, of a sample of them.

#[cfg(feature = "metrics")]
use std::cell::Cell;
use std::fmt;

use crate::base::clock::Timestamp;
#[cfg(feature = "metrics")]
use crate::base::clock::{Clock, QuantaClock};

#[cfg(feature = "metrics")]
// The state of the thread's random numbers.
thread_local!(static RANDOM: Cell<u64> = const { Cell::new(0) });

/// The thread's next 32 random bits, good enough for a sample: the upper half of a linear congruential generator, with the constants
/// of MMIX (Knuth). Threads have the same sequence, each for its own checks.
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

/// Times one in so many checks, by chance, and feeds `tollgate_check_duration_seconds` with feature `metrics`. Without, it only
/// calls what it is given.
///
/// A check takes tens of nanoseconds and two readings of the clock as much again, so not every one is timed. By chance, since a count
/// could keep step with the calls: of two timers that a thread asks in turn, one would never be timed.
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
    /// Of 2³² random numbers, how many make it a check's turn.
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
    /// Times one check in `every` on average, under the label `domain`; all if it is 1, none if it is 0. Registers its metric: install the
    /// recorder before.
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

    /// Does `check`, and times it if it is its turn.
    #[inline]
    pub fn time<T>(&self, check: impl FnOnce() -> T) -> T {
        let start = self.start();
        let answer = check();
        self.stop(start);
        answer
    }

    /// When a check began, if it is its turn.
    #[inline]
    pub(crate) fn start(&self) -> Option<Timestamp> {
        #[cfg(feature = "metrics")]
        if random() < self.turns {
            return Some(self.clock.now());
        }
        None
    }

    /// Records how long a check took, if it was its turn.
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
