//! The memory layouts for the words of one limit.

use crossbeam_utils::CachePadded;

use super::deposits::Deposits;
use crate::base::sync::AtomicU64;

/// Stripes, each with one lease, and deposits that all draw from.
pub(crate) trait Words {
    /// Returns the stripe of the thread with this number.
    fn home(&self, thread: usize) -> &AtomicU64;
    /// All stripes.
    fn stripes(&self) -> impl ExactSizeIterator<Item = &AtomicU64>;
    fn deposits(&self) -> &Deposits;

    /// How many stripes there are.
    fn holders(&self) -> u64 {
        self.stripes().len() as u64
    }

    /// All words in which anything may be alive.
    fn all(&self, now_ns: u64) -> impl Iterator<Item = &AtomicU64> {
        self.stripes().chain(self.deposits().slots(now_ns))
    }
}

/// The slots for deposits to many stripes: nearly as many as the ticks in a life, so that units with different
/// expiries seldom share a slot.
const SLOTS: usize = if cfg!(tollgate_loom) { 2 } else { 16 };

/// Stripes for cores that hit one limit at once.
#[derive(Debug)]
pub(crate) struct Padded {
    /// A power of two of them. Padded: the threads that chose a stripe write it, and other threads read it seldom.
    pub(super) stripes: Box<[CachePadded<AtomicU64>]>,
    pub(super) deposits: CachePadded<Deposits<[AtomicU64; SLOTS]>>,
}

impl Padded {
    /// `stripes` is a power of two.
    pub(crate) fn new(stripes: usize) -> Self {
        Self {
            stripes: (0..stripes).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            deposits: CachePadded::new(Deposits::new()),
        }
    }
}

impl Words for Padded {
    #[inline(always)]
    fn home(&self, thread: usize) -> &AtomicU64 {
        &self.stripes[thread & (self.stripes.len() - 1)]
    }

    fn stripes(&self) -> impl ExactSizeIterator<Item = &AtomicU64> {
        self.stripes.iter().map(|stripe| &**stripe)
    }

    fn deposits(&self) -> &Deposits {
        &*self.deposits
    }
}

/// Slots for the deposits of a key: blocks last for a quarter of a life, so about four expiries are alive at once.
const FEW: usize = if cfg!(tollgate_loom) { 2 } else { 4 };

/// One stripe, for one of many keys: 48 bytes.
#[derive(Debug)]
pub(crate) struct Small {
    stripe: AtomicU64,
    deposits: Deposits<[AtomicU64; FEW]>,
}

impl Small {
    pub(crate) fn new() -> Self {
        Self { stripe: AtomicU64::new(0), deposits: Deposits::new() }
    }
}

impl Words for Small {
    #[inline(always)]
    fn home(&self, _thread: usize) -> &AtomicU64 {
        &self.stripe
    }

    fn stripes(&self) -> impl ExactSizeIterator<Item = &AtomicU64> {
        std::iter::once(&self.stripe)
    }

    fn deposits(&self) -> &Deposits {
        &self.deposits
    }
}
