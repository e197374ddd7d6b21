//! Making a [`Rate`] with what is optional.

use std::hash::BuildHasher;
use std::time::Duration;

use super::super::error::SketchError;
use super::Rate;
use super::counts::RateCounters;
use crate::base::clock::{IntoClock, saturating_nanos};

const DEFAULT_BYTES: usize = 1 << 20;
const DEFAULT_LARGEST: u64 = (1 << 24) - 1;

/// Sets what is optional about a [`Rate`]; made by [`Rate::builder`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::StdClock;
/// use tollgate::sketch::Rate;
///
/// let bytes_sent = Rate::builder(Duration::from_secs(1))
///     .memory(4 << 20)
///     .largest((1 << 40) - 1)
///     .clock(StdClock::new())
///     .build()?;
/// assert_eq!(bytes_sent.observe("203.0.113.7", 30_000_000), 30_000_000);
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until a rate is made"]
pub struct RateBuilder<C = (), H = ahash::RandomState> {
    window: Duration,
    bytes: usize,
    largest: u64,
    clock: C,
    hasher: H,
}

impl RateBuilder {
    pub(super) fn new(window: Duration) -> Self {
        let hasher = ahash::RandomState::new();
        Self { window, bytes: DEFAULT_BYTES, largest: DEFAULT_LARGEST, clock: (), hasher }
    }
}

impl<C, H> RateBuilder<C, H> {
    /// At most so many bytes, at least 256, for the counts of two windows. Default: 1 MiB. Pages are taken as
    /// keys touch them.
    ///
    /// How much too high counts are depends on the bytes for each event of keys that come seldom: see
    /// [`Rate`].
    pub fn memory(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// The largest count of a key in a window that is wanted; beyond it nothing is counted. Default: 2²⁴ − 1
    /// = 16,777,215.
    ///
    /// Counters are as wide as this needs, in words of 64 bits that also say their window: below 2¹² four
    /// counters fit or more, below 2¹⁶ three, below 2²⁴ two, below 2⁴⁸ one. More counters in a word make less
    /// error in the same memory, and from four on an event costs two exchanges instead of four.
    ///
    /// Windows below about a millisecond leave less room: below 2²⁸ for windows of a nanosecond.
    pub fn largest(mut self, count: u64) -> Self {
        self.largest = count;
        self
    }

    /// The clock. Default: [`QuantaClock`](crate::QuantaClock).
    pub fn clock<D>(self, clock: D) -> RateBuilder<D, H> {
        let Self { window, bytes, largest, hasher, .. } = self;
        RateBuilder { window, bytes, largest, clock, hasher }
    }

    /// The hasher of keys. Default: ahash with random keys.
    ///
    /// It needs 64 bits of good quality. One without a secret lets clients choose keys that share counters.
    pub fn hasher<I>(self, hasher: I) -> RateBuilder<C, I> {
        let Self { window, bytes, largest, clock, .. } = self;
        RateBuilder { window, bytes, largest, clock, hasher }
    }
}

impl<C: IntoClock, H: BuildHasher> RateBuilder<C, H> {
    /// Makes it; with a `QuantaClock`, if no clock was given.
    ///
    /// # Errors
    /// If the window or the largest count is 0, if the count needs more bits than the window leaves, if there
    /// are fewer than 256 bytes, or no such memory.
    pub fn build(self) -> Result<Rate<C::Clock, H>, SketchError> {
        let counts = RateCounters::new(saturating_nanos(self.window), self.largest, self.bytes)?;
        Ok(Rate { counts, clock: self.clock.into_clock(), hasher: self.hasher })
    }
}
