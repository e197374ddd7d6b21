//! The sketch that keeps the debts of evicted keys.

use crossbeam_utils::CachePadded;

use super::sizes::Sizes;
use crate::algorithm::compact::CompactState;
use crate::algorithm::compact::slot::FINGERPRINT_BITS;
use crate::base::quota::{QuotaError, Reason};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire, Release};
use crate::sketch::hash::mix;
use crate::sketch::tat::{Cells, CellsImage, end, left};

/// The minimum of half the range of a cell. No thread may be preempted for longer.
const MIN_HALF_RANGE_NS: u64 = 1_000_000_000;

/// A sketch of the debts of evicted keys.
///
/// 1. The evicting thread raises `newest`, then the end and the cells of the evicted key.
/// 2. It exchanges the key's word in the table. So a thread that sees that the key is gone also sees its debt.
/// 3. A new key reads `newest`. If a debt may be unpaid, the new key also reads its end and its cells.
#[derive(Debug)]
pub(super) struct Spill {
    cells: Cells,
    /// A time at which all debts in the sketch are paid.
    ///
    /// Each new key reads this word. It changes about once per horizon. If all debts are paid, new keys read no other
    /// word of the sketch.
    newest: CachePadded<AtomicU64>,
}

/// The identity of a key in the spill: its bucket and its fingerprint. At the eviction, nothing else of the key is
/// known.
#[derive(Copy, Clone, Debug)]
pub(super) struct Identity(u64);

impl Identity {
    pub(super) fn new(bucket: usize, fingerprint: u64) -> Self {
        Self(mix(((bucket as u64) << FINGERPRINT_BITS) | fingerprint))
    }
}

impl Spill {
    /// The number of bits that the cells cut off a state of this word.
    ///
    /// # Errors
    /// Returns an error if the cells would wrap around within a second.
    pub(super) fn shift<N: CompactState>(word: &N) -> Result<u32, QuotaError> {
        let mut shift = Cells::shift_for(word.horizon());
        // Make the cells coarser if they would wrap around within a second.
        while word.span_ns(Cells::half_range(shift)) < MIN_HALF_RANGE_NS {
            if shift >= N::COARSEST {
                return Err(Reason::SpillRange.into());
            }
            shift += 1;
        }
        Ok(shift)
    }

    pub(super) fn new<N: CompactState>(word: &N, sizes: &Sizes) -> Result<Self, QuotaError> {
        let spill = Self::with_shift(word, sizes, Self::shift(word)?);
        spill.ok_or_else(|| Reason::Memory { bytes: sizes.sketch_bytes as u64 }.into())
    }

    fn with_shift<N: CompactState>(word: &N, sizes: &Sizes, shift: u32) -> Option<Self> {
        let cells = Cells::new(sizes.sketch_bytes, sizes.ends, word, shift)?;
        Some(Self { cells, newest: CachePadded::new(AtomicU64::new(0)) })
    }

    /// A spill whose cells are as fine as states, for models: their times are small, and no thread stops for a second.
    #[cfg(all(test, tollgate_loom))]
    pub(super) fn for_models<N: CompactState>(word: &N, sizes: &Sizes) -> Self {
        Self::with_shift(word, sizes, 0).unwrap()
    }

    /// Whether the sketch holds a debt that matters at `reference` or later.
    #[inline]
    pub(super) fn is_used(&self, reference: u64) -> bool {
        // Ordering: Acquire, as for the cells. This word is raised before the cells.
        left(self.newest.load(Acquire), reference) > 0
    }

    /// An upper bound for how far a key's spilled debt is ahead of `reference`.
    ///
    /// `reference` must not be before the time of any spilled debt.
    #[inline]
    pub(super) fn debt(&self, key: Identity, reference: u64, latest: &impl Fn() -> u64) -> u64 {
        self.cells.estimate(key.0, reference, latest)
    }

    /// Records that a key is `ahead` of `reference`, as for [`Spill::debt`]. The caller evicts the key after this call.
    pub(super) fn record(&self, key: Identity, ahead: u64, reference: u64, latest: &impl Fn() -> u64) {
        self.begin(ahead, reference);
        self.cells.raise(key.0, ahead, reference, latest);
    }

    /// Announces a debt that is `ahead` of `reference`. The caller records the debt afterwards.
    fn begin(&self, ahead: u64, reference: u64) {
        let mut seen = self.newest.load(Acquire);
        while left(seen, reference) < ahead {
            // Later than necessary by one horizon, so that writes are rare.
            let next = end(ahead + self.cells.horizon(), reference);
            // Ordering: AcqRel; pairs with the load in `is_used`: a thread that sees the evicted slot also sees this
            // write.
            match self.newest.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.cells.bytes()
    }

    pub(super) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Replaces the debts, like [`Cells::replace`].
    pub(super) fn replace(&self, image: &CellsImage, then: u64, now: u64, passed: bool) {
        if !image.cells.is_empty() {
            self.begin(self.cells.horizon(), now);
        }
        self.cells.replace(image, then, now, passed);
    }

    pub(super) fn clear(&self) {
        self.cells.clear();
        self.newest.store(0, Release);
    }
}
