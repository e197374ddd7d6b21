//! The builder of a [`Rate`].

use std::hash::BuildHasher;
use std::time::Duration;

use super::super::error::SketchError;
use super::Rate;
use super::counts::RateCounters;
use crate::base::clock::{IntoClock, saturating_nanos};

const DEFAULT_BYTES: usize = 1 << 20;
const DEFAULT_LARGEST: u64 = (1 << 24) - 1;

/// Builds a [`Rate`] with options; created by [`Rate::builder`].
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
#[must_use = "a builder does nothing until `build` is called"]
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
    /// Sets the memory limit for the counts of two windows, in bytes; at least 256. Default: 1 MiB. The operating
    /// system supplies a page when a key first touches it.
    ///
    /// The error of the counts depends on the memory per event of rare keys; see the table at [`Rate`].
    pub fn memory(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the largest count of a key in a window; counts stop there. At least 1. Default: 2²⁴ − 1 = 16,777,215.
    ///
    /// Counters have as many bits as this value needs. They share 64-bit words with a window tag. If the value is
    /// below 2¹², a word holds four counters or more; below 2¹⁶ three, below 2²⁴ two, below 2⁴⁸ one. More counters
    /// per word reduce the error in the same memory. With four or more per word, an event also costs two exchanges
    /// instead of four.
    ///
    /// The value must be below 2⁴⁸. Windows shorter than about a millisecond leave fewer bits: for windows of one
    /// nanosecond, the value must be below 2²⁸.
    pub fn largest(mut self, count: u64) -> Self {
        self.largest = count;
        self
    }

    /// Sets the clock. Default: [`DefaultClock`](crate::DefaultClock).
    pub fn clock<D>(self, clock: D) -> RateBuilder<D, H> {
        let Self { window, bytes, largest, hasher, .. } = self;
        RateBuilder { window, bytes, largest, clock, hasher }
    }

    /// Sets the hasher of keys. Default: ahash with random keys.
    ///
    /// The hasher must return 64 bits of good quality. With a hasher that has no secret, clients can choose keys that
    /// share counters.
    pub fn hasher<I>(self, hasher: I) -> RateBuilder<C, I> {
        let Self { window, bytes, largest, clock, .. } = self;
        RateBuilder { window, bytes, largest, clock, hasher }
    }
}

impl<C: IntoClock, H: BuildHasher> RateBuilder<C, H> {
    /// Creates the `Rate`. If no clock was set, it uses a `DefaultClock`.
    ///
    /// # Errors
    /// Returns an error in these cases:
    ///
    /// - The window or the largest count is 0.
    /// - The largest count needs more bits than a word has left after its window tag.
    /// - The memory limit is below 256 bytes, or the memory cannot be allocated.
    pub fn build(self) -> Result<Rate<C::Clock, H>, SketchError> {
        let counts = RateCounters::new(saturating_nanos(self.window), self.largest, self.bytes)?;
        Ok(Rate { counts, clock: self.clock.into_clock(), hasher: self.hasher })
    }
}
