//! Checks that a quota, its algorithm and its store work together, by creating a small store.

use crate::edge::rules::counting::{AnyStore, Hasher, NoCounter, StoreKind};
use crate::edge::rules::rule::{Algorithm, Store};
use crate::{Capacity, FixedWindow, Quota, QuotaError};

/// The maximum memory of the sketch that [`check`] creates. If the file sets less memory, the sketch gets that amount,
/// so that a sketch that is too small is rejected.
const ENOUGH: usize = 1 << 10;

/// Creates the store that the engine would create, but small.
pub(super) fn check(quota: Quota, algorithm: Algorithm, store: Option<Store>) -> Result<(), QuotaError> {
    #[cfg(feature = "redis")]
    if let Some(Store::Redis(_)) = store {
        crate::edge::rules::counting::check(quota, algorithm)?;
    }
    let algorithm = algorithm.with_quota(quota)?;
    let kind = match store {
        Some(Store::Compact(_)) => StoreKind::Compact(Capacity::memory(ENOUGH)),
        Some(Store::Sketch(memory)) => {
            StoreKind::Sketch(Capacity::memory(memory.bytes().unwrap_or(ENOUGH).min(ENOUGH)))
        }
        _ => return Ok(()),
    };
    match AnyStore::new(kind, algorithm, &Hasher::new()) {
        Err(NoCounter::Quota(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Returns the highest limit that a fixed window of this length can count, if the given limit is above it. It is about
/// half a billion per second.
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
    fn short_windows_cap_the_limit() {
        assert_eq!(most_in_window(&Quota::per_second(u64::from(u32::MAX))), Some((1 << 29) - 2));
        assert_eq!(most_in_window(&Quota::per_second((1 << 29) - 2)), None);
        assert_eq!(most_in_window(&Quota::per_minute(u64::from(u32::MAX))), None);
    }
}
