//! The counters of the rules of one load.
//!
//! ```text
//! stripe of a thread: [ counter 0 of all rules | counter 1 of all rules | … ]
//! ```
//! A check adds to one counter of one rule. With thousands of rules in use, the counters that checks add to should fill few
//! cache lines and pages, so the same counter of all rules is side by side: ten thousand rules take 80 KB of each thread's
//! stripe, as long as all requests are admitted. When each rule had stripes of its own, they took 2 KiB of each rule, and each
//! check waited for a line and a page of its own.
//!
//! Rules that are next to each other belong to one thread's stripe, so their counters in one line do not hinder each other.

use std::alloc::{Layout, handle_alloc_error};
use std::array::from_fn;
use std::convert::Infallible;
use std::fmt;

use super::stripes::STRIPES;
use crate::base::lazy::Lazy;
use crate::base::memory::Array;
use crate::base::sync::Ordering::Relaxed;
use crate::base::sync::{AtomicU64, thread_number};

/// Words of two cache lines: a stripe ends where no other memory shares its last line.
const UNIT: usize = 16;

/// `N` striped counters for each of several rules. All accesses are relaxed, because the counters publish no other data. The first
/// event of a thread creates its stripe, whose pages are resident only as far as they are used.
pub struct RuleTallies<const N: usize> {
    stripes: [Lazy<Array<AtomicU64>>; STRIPES],
    rules: usize,
}

impl<const N: usize> fmt::Debug for RuleTallies<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleTallies").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl<const N: usize> RuleTallies<N> {
    /// Creates the counters of this number of rules.
    pub(super) fn new(rules: usize) -> Self {
        Self { stripes: from_fn(|_| Lazy::default()), rules }
    }

    #[inline(always)]
    fn own(&self) -> &Lazy<Array<AtomicU64>> {
        &self.stripes[thread_number() % self.stripes.len()]
    }

    /// Returns a counter of a rule in the current thread's stripe, if the stripe exists.
    #[inline(always)]
    pub(super) fn get(&self, rule: usize, counter: usize) -> Option<&AtomicU64> {
        self.own().get()?.get(counter * self.rules + rule)
    }

    /// Creates the current thread's stripe.
    #[cold]
    #[inline(never)]
    pub(super) fn make(&self) {
        let words = self.rules.saturating_mul(N).next_multiple_of(UNIT);
        let no_memory =
            || handle_alloc_error(Layout::array::<AtomicU64>(words).unwrap_or(Layout::new::<u8>()));
        let zeros = || Ok::<_, Infallible>(Array::zeroed(words).unwrap_or_else(no_memory));
        let Ok(_) = self.own().get_or_make(zeros);
    }

    /// Returns the sum of a counter of a rule over all stripes. The sum wraps on overflow.
    pub(super) fn sum(&self, rule: usize, counter: usize) -> u64 {
        let stripes = self.stripes.iter().filter_map(Lazy::get);
        let counters = stripes.filter_map(|stripe| stripe.get(counter * self.rules + rule));
        counters.fold(0, |sum, counter| sum.wrapping_add(counter.load(Relaxed)))
    }
}
