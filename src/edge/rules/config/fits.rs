//! Whether a quota, its algorithm and its store go together: they are made, small.

use crate::edge::rules::{Algorithm, Store};
use crate::{
    Capacity, CompactAlgorithm, FixedWindow, Gcra, LeakyBucketMeter, ManualClock, Quota, QuotaError,
    RateLimiter, SlidingLog, SlidingWindow, SubWindow, TokenBucket, WindowAlgorithm,
};

/// A sketch that is made to be looked at needs no more; a smaller one is refused for its size, and rightly.
const ENOUGH: usize = 1 << 10;

/// The limiter that the engine would make.
pub(super) fn check(quota: Quota, algorithm: Algorithm, store: Option<Store>) -> Result<(), QuotaError> {
    #[cfg(feature = "redis")]
    if let Some(Store::Redis(_)) = store {
        crate::edge::rules::shared::check(quota, algorithm)?;
    }
    match algorithm {
        Algorithm::FixedWindow => window(FixedWindow::try_new(quota)?, store),
        Algorithm::Gcra => compact(Gcra::new(quota), store),
        Algorithm::TokenBucket => compact(TokenBucket::new(quota), store),
        Algorithm::LeakyBucket => compact(LeakyBucketMeter::new(quota), store),
        Algorithm::SlidingWindow { strict } => {
            let window_ = SlidingWindow::try_new(quota)?;
            window(if strict { window_.strict() } else { window_ }, store)
        }
        Algorithm::SubWindow { parts, .. } => SubWindow::try_new(quota, parts).map(drop),
        Algorithm::SlidingLog => SlidingLog::try_new(quota).map(drop),
    }
}

fn compact<A: CompactAlgorithm>(algorithm: A, store: Option<Store>) -> Result<(), QuotaError> {
    match store {
        Some(Store::Compact(_)) => {
            let small = RateLimiter::builder(algorithm).capacity(Capacity::memory(ENOUGH));
            small.clock(ManualClock::default()).compact().map(drop)
        }
        _ => Ok(()),
    }
}

fn window<A: CompactAlgorithm + WindowAlgorithm>(
    algorithm: A,
    store: Option<Store>,
) -> Result<(), QuotaError> {
    match store {
        Some(Store::Sketch(capacity)) => {
            let bytes = capacity.bytes().unwrap_or(ENOUGH).min(ENOUGH);
            let small = RateLimiter::builder(algorithm).capacity(Capacity::memory(bytes));
            small.clock(ManualClock::default()).sketch().map(drop)
        }
        store => compact(algorithm, store),
    }
}

/// The highest limit that a fixed window so short can count, if this one is above it: some half a billion a second.
pub(super) fn most_in_window(quota: &Quota) -> Option<u64> {
    let fits = |limit| Quota::try_new(limit, quota.period()).and_then(FixedWindow::try_new).is_ok();
    if fits(quota.limit()) {
        return None;
    }
    let (mut below, mut above) = (0, quota.limit());
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if fits(middle) {
            below = middle;
        } else {
            above = middle;
        }
    }
    (below > 0).then_some(below)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn short_windows_count_to_half_a_billion() {
        assert_eq!(most_in_window(&Quota::per_second(u64::from(u32::MAX))), Some((1 << 29) - 2));
        assert_eq!(most_in_window(&Quota::per_second((1 << 29) - 2)), None);
        assert_eq!(most_in_window(&Quota::per_minute(u64::from(u32::MAX))), None);
    }
}
