//! Checks that a limit and its store work together, by creating a small store.

use ahash::RandomState;
use tollgate::stores::AnyStore;
use tollgate::{Block, Capacity, FixedWindow, Limit, LimitKind, Quota, QuotaError, StoreKind};

use crate::rule::Store;

/// The maximum memory of the sketch that [`checked`] creates. If the file sets less memory, the sketch gets that amount,
/// so that a sketch that is too small is rejected.
const ENOUGH: usize = 1 << 10;

/// Creates the limit, and the store that `tollgate-rules` would create, but small.
pub(super) fn checked(
    kind: LimitKind,
    quota: Quota,
    block: Option<Block>,
    store: Option<Store>,
) -> Result<Limit, QuotaError> {
    let limit = Limit::try_new(kind, quota)?;
    let limit = block.map_or(Ok(limit), |block| limit.with_block(block))?;
    let Some(Store::Local(config)) = store else { return Ok(limit) };
    let memory = match config.kind() {
        StoreKind::Compact => ENOUGH,
        StoreKind::Sketch => {
            config.capacity().and_then(|memory| memory.bytes()).unwrap_or(ENOUGH).min(ENOUGH)
        }
        StoreKind::Keyed | StoreKind::Direct => return Ok(limit),
    };
    let small = config.with_capacity(Capacity::memory(memory));
    AnyStore::<String>::new(small, limit, &RandomState::new()).map(|_| limit)
}

/// Returns the highest limit that a fixed window of this length can count, if the given limit is above it. It is about
/// half a billion per second.
pub(super) fn most_in_window(quota: &Quota) -> Option<u64> {
    let fits = |limit| Quota::try_new(limit, quota.period()).and_then(FixedWindow::try_new).is_ok();
    if fits(quota.limit()) {
        return None;
    }
    // Bit by bit, from the highest.
    let most = (0..u64::BITS)
        .rev()
        .map(|bit| 1 << bit)
        .fold(0, |most, bit| if fits(most | bit) { most | bit } else { most });
    (most > 0).then_some(most)
}
