//! Where the words of one limit lie.

use crossbeam_utils::CachePadded;

use super::reserve::{Reserve, Slots};
use crate::base::sync::AtomicU64;

/// Stripes, each with one lease, and a reserve that all draw from.
pub(crate) trait Words {
    /// The stripe of the thread of a number.
    fn home(&self, thread: usize) -> &AtomicU64;
    /// All stripes.
    fn stripes(&self) -> impl Iterator<Item = &AtomicU64>;
    /// How many stripes there are.
    fn holders(&self) -> u64;
    fn reserve(&self) -> Slots<'_>;
}

/// Slots of a reserve beside many stripes: as many as there are ticks in a life, nearly, so that seldom need units with different
/// expiries be put together.
const SLOTS: usize = if cfg!(tollgate_loom) { 2 } else { 16 };

/// Stripes for cores that hit one limit at once.
#[derive(Debug)]
pub(crate) struct Padded {
    /// A power of two of them. Padded: a stripe is written by the threads that chose it, and read by the
    /// others seldom.
    pub(super) stripes: Box<[CachePadded<AtomicU64>]>,
    pub(super) reserve: CachePadded<Reserve<SLOTS>>,
}

impl Padded {
    /// `stripes` is a power of two.
    pub(crate) fn new(stripes: usize) -> Self {
        Self {
            stripes: (0..stripes).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            reserve: CachePadded::new(Reserve::new()),
        }
    }
}

impl Words for Padded {
    #[inline(always)]
    fn home(&self, thread: usize) -> &AtomicU64 {
        &self.stripes[thread & (self.stripes.len() - 1)]
    }

    fn stripes(&self) -> impl Iterator<Item = &AtomicU64> {
        self.stripes.iter().map(|stripe| &**stripe)
    }

    fn holders(&self) -> u64 {
        self.stripes.len() as u64
    }

    fn reserve(&self) -> Slots<'_> {
        self.reserve.slots_of()
    }
}

/// Slots of a key's reserve: blocks last for a quarter of a life, so there are about so many expiries at once.
const FEW: usize = if cfg!(tollgate_loom) { 2 } else { 4 };

/// One stripe, for one of many keys: 48 bytes.
#[derive(Debug)]
pub(crate) struct Small {
    stripe: AtomicU64,
    reserve: Reserve<FEW>,
}

impl Small {
    pub(crate) fn new() -> Self {
        Self { stripe: AtomicU64::new(0), reserve: Reserve::new() }
    }
}

impl Words for Small {
    #[inline(always)]
    fn home(&self, _thread: usize) -> &AtomicU64 {
        &self.stripe
    }

    fn stripes(&self) -> impl Iterator<Item = &AtomicU64> {
        std::iter::once(&self.stripe)
    }

    fn holders(&self) -> u64 {
        1
    }

    fn reserve(&self) -> Slots<'_> {
        self.reserve.slots_of()
    }
}
