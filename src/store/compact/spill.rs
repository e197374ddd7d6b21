//! Where evicted debts go.

use super::capacity::Sizes;
use crate::algorithm::narrow::Narrow;
use crate::quota::{QuotaError, Reason};
use crate::sketch::{Cells, Doorkeeper, mix};
use crate::word::FINGERPRINT_BITS;

/// Half the range of a cell must be longer than any thread is preempted for.
const MIN_HALF_RANGE_NS: u64 = 1_000_000_000;

/// A sketch of debts, and in front of it a doorkeeper that knows most keys never to have had one there.
#[derive(Debug)]
pub(super) struct Spill {
    cells: Cells,
    doorkeeper: Doorkeeper,
}

/// A key as the spill knows it: bucket and fingerprint, which are all that is left of it when it is evicted.
#[derive(Copy, Clone, Debug)]
pub(super) struct Identity(u64);

impl Identity {
    pub(super) fn new(bucket: usize, fingerprint: u64) -> Self {
        Self(mix(((bucket as u64) << FINGERPRINT_BITS) | fingerprint))
    }
}

impl Spill {
    pub(super) fn new<N: Narrow>(word: &N, sizes: &Sizes) -> Result<Self, QuotaError> {
        let horizon = word.horizon();
        let mut shift = Cells::shift_for(horizon);
        // Coarser, if the cells would come round within a second.
        while word.span_ns(Cells::half_range(shift)) < MIN_HALF_RANGE_NS {
            if shift >= N::COARSEST {
                return Err(Reason::SpillRange.into());
            }
            shift += 1;
        }
        let refused = || Reason::Memory { bytes: sizes.sketch_bytes as u64 };
        // What is put in is remembered until its debt, rounded up, is paid.
        let memory_shift = u64::BITS - (horizon + (2 << shift)).leading_zeros();
        Ok(Self {
            cells: Cells::new(sizes.sketch_bytes, horizon, shift, N::COARSEST == 0).ok_or_else(refused)?,
            doorkeeper: Doorkeeper::new(sizes.doorkeeper_words, memory_shift).ok_or_else(refused)?,
        })
    }

    /// With cells as fine as states: times in the models are small, and nobody is preempted for a second.
    #[cfg(all(test, tollgate_loom))]
    pub(super) fn for_models<N: Narrow>(word: &N, sizes: &Sizes) -> Self {
        Self {
            cells: Cells::new(sizes.sketch_bytes, word.horizon(), 0, false).unwrap(),
            doorkeeper: Doorkeeper::new(sizes.doorkeeper_words, 10).unwrap(),
        }
    }

    /// Whether anything is in there that matters at `reference` or later.
    #[inline]
    pub(super) fn is_used(&self, reference: u64) -> bool {
        self.doorkeeper.is_used(reference)
    }

    /// At most how far a key is ahead of `reference` by what was spilled of it; never less than it is. `reference` is not
    /// before any time as of which a debt was spilled.
    #[inline]
    pub(super) fn debt(&self, key: Identity, reference: u64, latest: &impl Fn() -> u64) -> u64 {
        if self.doorkeeper.contains(key.0, reference) {
            self.cells.estimate(key.0, reference, latest)
        } else {
            0
        }
    }

    /// Records that a key is `ahead` of `reference`, as for [`Spill::debt`]. Returns before it is evicted.
    pub(super) fn record(&self, key: Identity, ahead: u64, reference: u64, latest: &impl Fn() -> u64) {
        self.cells.raise(key.0, ahead, reference, latest);
        self.doorkeeper.insert(key.0, reference.wrapping_add(ahead));
    }

    pub(super) fn bytes(&self) -> usize {
        self.cells.bytes() + self.doorkeeper.bytes()
    }

    pub(super) fn cells(&self) -> &Cells {
        &self.cells
    }

    pub(super) fn doorkeeper(&self) -> &Doorkeeper {
        &self.doorkeeper
    }

    pub(super) fn clear(&self) {
        self.cells.clear();
        self.doorkeeper.clear();
    }
}
