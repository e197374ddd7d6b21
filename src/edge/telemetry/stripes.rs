//! Tallies that many threads add to.

use crossbeam_utils::CachePadded;

use crate::base::sync::Ordering::Relaxed;
use crate::base::sync::{AtomicU64, processors, thread_number};

/// `N` tallies that publish nothing, all of them relaxed. Threads count in stripes: otherwise all cores would write the same line for a rule
/// that each request meets, or while a server cannot be asked.
pub(crate) struct Stripes<const N: usize>(Box<[CachePadded<[AtomicU64; N]>]>);

impl<const N: usize> Default for Stripes<N> {
    fn default() -> Self {
        let stripes = processors().unwrap_or(4).min(16).next_power_of_two();
        Self((0..stripes).map(|_| std::array::from_fn(|_| AtomicU64::default()).into()).collect())
    }
}

impl<const N: usize> Stripes<N> {
    /// The present thread's tallies.
    #[inline]
    pub(crate) fn own(&self) -> &[AtomicU64; N] {
        &self.0[thread_number() & (self.0.len() - 1)]
    }

    /// A tally of all threads. It wraps around.
    pub(crate) fn sum(&self, tally: usize) -> u64 {
        self.0.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe[tally].load(Relaxed)))
    }
}
