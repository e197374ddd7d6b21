//! Computes the sizes of the table and the sketch for a capacity.

use super::Overflow;
use crate::sketch::tat::Cells;
use crate::store::capacity::{Capacity, Size};

const SLOT: usize = size_of::<u64>();

/// The sizes that a capacity gives.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    pub(super) buckets: usize,
    pub(super) sketch_bytes: usize,
    /// Groups of keys in the sketch. Each group has one word for its longest debt.
    pub(super) ends: usize,
}

impl Sizes {
    pub(super) fn bytes(&self, ways: usize) -> u64 {
        let table = (self.buckets as u64).saturating_mul((ways * SLOT) as u64);
        table.saturating_add(self.sketch_bytes as u64).saturating_add((self.ends as u64).saturating_mul(8))
    }
}

impl Capacity {
    /// The number of slots in a store of this capacity that spills.
    pub(crate) fn without_sketch(self) -> Self {
        Self::slots(self.sizes(Overflow::Spill, super::WAYS).buckets.saturating_mul(super::WAYS))
    }

    pub(crate) fn sizes(&self, overflow: Overflow, ways: usize) -> Sizes {
        let spills = overflow == Overflow::Spill;
        let bytes = match self.0 {
            Size::Bytes(bytes) => bytes,
            Size::Slots(slots) => {
                let buckets = slots.div_ceil(ways).max(1);
                let table = buckets.saturating_mul(ways * SLOT).min(usize::MAX / 4);
                return Sizes { buckets, ..Self::memory(table / 9 * 16).sizes(overflow, ways) };
            }
            Size::Busy { keys, burst } => busy_bytes(keys, burst, spills),
        };
        // The sketch and its ends get seven sixteenths of the bytes, and the ends a 64th, in whole units. The table
        // gets the rest. See the design text.
        let (ends, sketch) = if spills {
            let ends = whole(bytes / 64, 2 * SLOT);
            (ends, whole((bytes / 16 * 7).saturating_sub(ends), Cells::MIN_BYTES))
        } else {
            (0, 0)
        };
        let bucket = ways * SLOT;
        Sizes {
            buckets: whole(bytes.saturating_sub(ends).saturating_sub(sketch), bucket) / bucket,
            sketch_bytes: sketch,
            ends: ends / SLOT,
        }
    }
}

/// Rounds down to whole units, with a minimum of one unit.
const fn whole(bytes: usize, unit: usize) -> usize {
    let units = bytes / unit;
    if units == 0 { unit } else { units * unit }
}

/// The bytes for `keys` keys that owe at the same time. With a sketch, each takes 12.3 bytes. Without a sketch, a bucket
/// overflows more often the fuller the table is, and small bursts suffer most. So the table is larger for them.
fn busy_bytes(keys: usize, burst: u64, spills: bool) -> usize {
    let percent = if spills {
        65
    } else {
        match burst {
            1 => 38,
            2 => 55,
            _ => 65,
        }
    };
    let slots = keys as u128 * 100 / percent;
    usize::try_from(slots * SLOT as u128).unwrap_or(usize::MAX)
}
