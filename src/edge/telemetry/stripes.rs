//! Counters that many threads add to.

use crossbeam_utils::CachePadded;

use crate::base::sync::Ordering::Relaxed;
use crate::base::sync::{AtomicU64, processors, thread_number};

/// `N` striped counters. All accesses are relaxed, because the counters publish no other data. Stripes keep the cores
/// from writing the same cache line, for example for a rule that every request matches, or while a server does not
/// answer.
pub(crate) struct Stripes<const N: usize>(Box<[CachePadded<[AtomicU64; N]>]>);

impl<const N: usize> Default for Stripes<N> {
    fn default() -> Self {
        let stripes = processors().unwrap_or(4).min(16).next_power_of_two();
        Self((0..stripes).map(|_| std::array::from_fn(|_| AtomicU64::default()).into()).collect())
    }
}

impl<const N: usize> Stripes<N> {
    /// Returns the current thread's counters.
    #[inline]
    pub(crate) fn own(&self) -> &[AtomicU64; N] {
        &self.0[thread_number() & (self.0.len() - 1)]
    }

    /// Returns the sum of a counter over all stripes. The sum wraps on overflow.
    pub(crate) fn sum(&self, tally: usize) -> u64 {
        self.0.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe[tally].load(Relaxed)))
    }
}
