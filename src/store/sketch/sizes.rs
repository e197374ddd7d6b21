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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::base::quota::Quota;

    #[test]
    fn sketch_sizes_use_exactly_the_memory() {
        for limit in [1, 2, 3, 16, 100, 1 << 30] {
            for bytes in [MIN_BYTES, 1_000, 4 << 20, usize::MAX] {
                let sizes = Sizes::new(Capacity::memory(bytes), limit, false).unwrap();
                assert_eq!(sizes.bytes(), bytes as u64);
                assert!(sizes.counters >= WindowCounters::MIN_BYTES && sizes.seen > 0);
            }
        }
    }

    #[test]
    fn invalid_sketch_capacity_is_refused_with_advice() {
        let refused = |capacity| Sizes::new(capacity, 10, false).unwrap_err().to_string();
        let error = refused(Capacity::memory(MIN_BYTES - 1));
        assert!(error.contains("255 bytes") && error.contains("at least 256"), "{error}");
        let error = refused(Capacity::slots(1_000));
        assert!(error.contains("no slots") && error.contains("4MiB"), "{error}");
    }

    #[test]
    fn sliding_window_doubles_traffic_size() {
        let capacity = Capacity::for_traffic(50_000, &Quota::per_minute(100));
        let fixed = Sizes::new(capacity, 100, false).unwrap().bytes();
        assert_eq!(fixed, 40 * 30_000);
        assert_eq!(Sizes::new(capacity, 100, true).unwrap().bytes(), 2 * fixed);
        // A minimum size applies to any small amount of traffic.
        let little = Capacity::for_traffic(1, &Quota::per_second(100));
        assert!(Sizes::new(little, 100, false).unwrap().bytes() >= 64 << 10);
    }
}
