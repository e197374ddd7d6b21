//! Times a random sample of the checks.

use std::cell::Cell;

use metrics::{Histogram, Label};

use super::{CHECK_DURATION, has_recorder, histogram, value};
use crate::base::clock::{Clock, DefaultClock, Timestamp};

// The state of the thread's random number generator.
thread_local!(static RANDOM: Cell<u64> = const { Cell::new(0) });

/// Returns the thread's next 32 random bits: the upper half of a linear congruential generator with the constants of
/// MMIX (Knuth). This quality suffices for a sample. All threads have the same sequence, and each thread applies it to
/// its own checks.
#[inline(always)]
fn random() -> u64 {
    RANDOM.with(|random| {
        let next =
            random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random.set(next);
        next >> 32
    })
}

/// The timer of a domain's checks.
pub(crate) struct SampleTimer {
    /// How many of the 2³² random numbers select a check. 0 if no recorder was installed.
    turns: u64,
    clock: DefaultClock,
    histogram: Histogram,
}

impl SampleTimer {
    /// Registers the metric. The sample is one check in `every` on average.
    pub(crate) fn register(domain: &str, every: u32) -> Self {
        Self {
            turns: if every == 0 || !has_recorder() { 0 } else { (1_u64 << 32).div_ceil(every.into()) },
            clock: DefaultClock::new(),
            histogram: histogram(CHECK_DURATION, vec![Label::new("domain", value(domain))]),
        }
    }

    /// Returns the start time of a check in the sample, or `None` for other checks.
    #[inline(always)]
    pub(crate) fn start(&self) -> Option<Timestamp> {
        if self.turns > 0 && random() < self.turns { Some(self.now()) } else { None }
    }

    /// Reads the clock. Not inlined, because few checks are in the sample.
    #[cold]
    #[inline(never)]
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Records the duration of a check in the sample.
    #[inline]
    pub(crate) fn stop(&self, start: Option<Timestamp>) {
        if let Some(start) = start {
            self.record_since(start);
        }
    }

    #[cold]
    fn record_since(&self, start: Timestamp) {
        self.histogram.record(self.clock.now().duration_since(start));
    }
}
