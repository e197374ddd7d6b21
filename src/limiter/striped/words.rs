//! The memory layouts for the words of one limit.

use crossbeam_utils::CachePadded;

use super::deposits::Deposits;
use crate::base::sync::AtomicU64;

/// The words of one limit: stripes with one lease each, and deposits that all stripes draw from.
pub trait Words {
    /// Returns the stripe of the thread with this number.
    fn home(&self, thread: usize) -> &AtomicU64;
    /// Returns all stripes.
    fn stripes(&self) -> impl ExactSizeIterator<Item = &AtomicU64>;
    /// Returns the deposits.
    fn deposits(&self) -> &Deposits;

    /// Returns the number of stripes.
    fn holders(&self) -> u64 {
        self.stripes().len() as u64
    }

    /// Returns all words that may hold live units.
    fn all(&self, now_ns: u64) -> impl Iterator<Item = &AtomicU64> {
        self.stripes().chain(self.deposits().slots(now_ns))
    }
}

/// The number of deposit slots for many stripes. A life has about 16 to 32 ticks, so units with different expiries
/// rarely share a slot.
const SLOTS: usize = if cfg!(tollgate_loom) { 2 } else { 16 };

/// The words of a limit that many cores use at the same time.
#[derive(Debug)]
pub struct Padded {
    /// The number of stripes is a power of two. Each stripe is padded, because only the threads of that stripe write it
    /// often; other threads read it rarely.
    pub(super) stripes: Box<[CachePadded<AtomicU64>]>,
    pub(super) deposits: CachePadded<Deposits<[AtomicU64; SLOTS]>>,
}

impl Padded {
    /// Creates empty words. `stripes` must be a power of two.
    pub fn new(stripes: usize) -> Self {
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

/// The number of deposit slots for one key. Blocks last for a quarter of a life, so about four expiries are alive at
/// once.
const FEW: usize = if cfg!(tollgate_loom) { 2 } else { 4 };

/// The words of one of many keys: one stripe and four deposit slots, 48 bytes.
#[derive(Debug)]
pub struct Small {
    stripe: AtomicU64,
    deposits: Deposits<[AtomicU64; FEW]>,
}

impl Default for Small {
    /// Creates empty words.
    fn default() -> Self {
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
