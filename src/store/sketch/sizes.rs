//! Computes the sizes of the doorkeeper and the counters for a capacity.

use crate::base::quota::{QuotaError, Reason};
use crate::sketch::window::WindowCounters;
use crate::store::capacity::Capacity;

/// Two lines of counters, and the same amount for the doorkeeper. In a smaller sketch, all keys would share one
/// counter.
const MIN_BYTES: usize = 2 * WindowCounters::MIN_BYTES;

/// The sizes that a capacity gives, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) seen: usize,
    pub(super) counters: usize,
}

impl Sizes {
    /// The sizes for windows of `limit` units. `last` means that the last window also counts.
    pub(super) fn new(capacity: Capacity, limit: u64, last: bool) -> Result<Self, QuotaError> {
        let bytes = capacity.sketch_bytes().ok_or(Reason::NoSlots)?;
        // A size that comes from traffic covers one window.
        let by_traffic = capacity.busy_keys().is_some();
        let bytes = if by_traffic && last { bytes.saturating_mul(2) } else { bytes };
        if bytes < MIN_BYTES {
            return Err(Reason::TooSmall { got: bytes as u64, min: MIN_BYTES as u64 }.into());
        }
        // The doorkeeper's share of the memory, in eighths. The doorkeeper keeps the first unit of each key, and a false
        // positive costs a new key one unit. Both matter more when the limit is small. Measured on 10 M keys (Zipf 1.0)
        // in 2 and 4 MiB.
        let eighths = match limit {
            1 => 8,
            2 => 6,
            3..=15 => 4,
            16..=63 => 3,
            _ => 2,
        };
        let seen = (bytes / 8 * eighths).min(bytes - WindowCounters::MIN_BYTES);
        Ok(Self { seen, counters: bytes - seen })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.seen as u64 + self.counters as u64
    }
}
