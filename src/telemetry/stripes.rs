//! Counters that many threads add to.

use std::array::from_fn;
use std::convert::Infallible;
use std::fmt;

use crossbeam_utils::CachePadded;

use crate::base::lazy::Lazy;
use crate::base::sync::Ordering::Relaxed;
use crate::base::sync::{AtomicU64, thread_number};

/// The number of stripes. More would help only more than 16 threads that count at the same time.
pub(super) const STRIPES: usize = if cfg!(tollgate_loom) { 1 } else { 16 };

/// `N` striped counters. All accesses are relaxed, because the counters publish no other data. Stripes keep the cores
/// from writing the same cache line, for example while a server does not answer.
///
/// The first call of [`Stripes::own`] creates the stripes.
pub struct Stripes<const N: usize>(Lazy<[Stripe<N>; STRIPES]>);

type Stripe<const N: usize> = CachePadded<[AtomicU64; N]>;

/// The current thread's stripe.
#[inline(always)]
fn own<const N: usize>(stripes: &[Stripe<N>; STRIPES]) -> &[AtomicU64; N] {
    &stripes[thread_number() % stripes.len()]
}

impl<const N: usize> fmt::Debug for Stripes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..N).map(|tally| self.sum(tally))).finish()
    }
}

impl<const N: usize> Default for Stripes<N> {
    fn default() -> Self {
        Self(Lazy::default())
    }
}

impl<const N: usize> Stripes<N> {
    /// Returns the current thread's counters, if they exist.
    #[inline(always)]
    fn get(&self) -> Option<&[AtomicU64; N]> {
        self.0.get().map(own)
    }

    /// Returns the current thread's counters.
    #[inline]
    pub fn own(&self) -> &[AtomicU64; N] {
        self.get().unwrap_or_else(|| self.make())
    }

    #[cold]
    #[inline(never)]
    fn make(&self) -> &[AtomicU64; N] {
        let zeros = || from_fn(|_| CachePadded::new(from_fn(|_| AtomicU64::new(0))));
        let Ok(stripes) = self.0.get_or_make(|| Ok::<_, Infallible>(zeros()));
        own(stripes)
    }

    /// Returns the sum of a counter over all stripes. The sum wraps on overflow.
    pub fn sum(&self, tally: usize) -> u64 {
        let stripes = self.0.get().into_iter().flatten();
        stripes.fold(0, |sum, stripe| sum.wrapping_add(stripe[tally].load(Relaxed)))
    }
}
