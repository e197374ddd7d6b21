//! Helpers for tests of the sketch store.

use super::compact::Seeded;
use super::kinds::Kind;
use super::oracle::Spec;
use super::subjects::Subject;
use std::fmt::Debug;
use std::hash::BuildHasher;
use tollgate::{Capacity, Clock, ManualClock, QuotaError, RateLimiter, Sketch, Timestamp, WindowAlgorithm};

/// The least memory that the sketch store accepts, in bytes.
pub const LEAST: usize = 256;

/// Returns the number of windows after which tags repeat, so a word that was not written since then looks current.
/// The tags have 16 to 24 bits and cover three months.
pub fn round(window_ns: u64) -> u64 {
    const THREE_MONTHS: u64 = 90 * 86_400 * 1_000_000_000;
    (THREE_MONTHS / window_ns + 1).next_power_of_two().clamp(1 << 16, 1 << 24)
}

/// Returns the longest time between any two times of a test for which all windows stay unambiguous.
pub fn reach(window_ns: u64) -> u64 {
    window_ns.saturating_mul(round(window_ns) / 4 - 4)
}

/// Builds a limiter in a sketch. Returns `None` if the algorithm itself refuses the quota.
pub fn sketch_of(kind: Kind, spec: Spec, bytes: usize) -> Option<Result<Box<dyn Subject>, QuotaError>> {
    with_windows!(kind, spec, algorithm => {
        build(algorithm, bytes, ManualClock::new(Timestamp::ZERO))
            .map(|limiter| Box::new(limiter) as Box<dyn Subject>)
    })
}

pub fn build<A: WindowAlgorithm, C: Clock>(
    algorithm: A,
    bytes: usize,
    clock: C,
) -> Result<RateLimiter<Sketch<A, Seeded>, C>, QuotaError> {
    let builder = RateLimiter::builder(algorithm).clock(clock).hasher(Seeded(7));
    builder.capacity(Capacity::memory(bytes)).sketch()
}

impl<A, H, C> Subject for RateLimiter<Sketch<A, H>, C>
where
    A: WindowAlgorithm,
    H: BuildHasher + Send + Sync,
    C: Clock + Debug + Send + Sync,
{
    verbs!(key => &key);

    fn holds(&self, _key: u32) -> bool {
        true
    }
}
