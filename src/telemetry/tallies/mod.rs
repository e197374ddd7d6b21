//! The counters of the rules of one load.
//!
//! ```text
//! stripe of a thread: [ counter 0 of all rules | counter 1 of all rules | … ]
//! ```
//! A check adds to one counter of one rule. With thousands of rules in use, the counters that checks add to should fill few
//! cache lines and pages. So the same counter of all rules is side by side. Ten thousand rules then take 80 KB of each thread's
//! stripe, as long as all requests are admitted. When each rule had stripes of its own, they took 2 KiB of each rule, and each
//! check waited for a line and a page of its own.
//!
//! Rules that are next to each other belong to one thread's stripe, so their counters in one line do not hinder each other.
//!
//! # Stripes of one thread
//! The first [`OWN`] threads of the process have a stripe each, to which no other thread adds. Such a thread adds by a load and a
//! store, because a locked instruction would wait for the exchange of the check before it. All later threads share the other
//! stripes, so they add by one `fetch_add`. No thread ever gets the number of another one ([`thread_number`]), so nothing is
//! handed over when a thread ends.

#[cfg(all(test, tollgate_loom))]
mod models;

use std::alloc::{Layout, handle_alloc_error};
use std::array::from_fn;
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use super::stripes::STRIPES;
use crate::base::lazy::Lazy;
use crate::base::memory::Array;
use crate::base::memory::prefetch::prefetch;
use crate::base::sync::Ordering::Relaxed;
#[cfg(not(tollgate_loom))]
use crate::base::sync::known_thread_number;
use crate::base::sync::{AtomicU64, thread_number};

/// Words of two cache lines: a stripe ends where no other memory shares its last line.
const UNIT: usize = 16;

/// The number of threads that have a stripe of their own: the workers of most servers.
const OWN: usize = if cfg!(tollgate_loom) { 1 } else { 16 };

/// `N` striped counters for each of several rules. All accesses are relaxed, because the counters publish no other data. The first
/// event of a thread creates its stripe, whose pages are resident only as far as they are used.
pub struct RuleTallies<const N: usize> {
    /// Each of one thread.
    own: [Lazy<Array<AtomicU64>>; OWN],
    /// Those of all other threads.
    shared: [Lazy<Array<AtomicU64>>; STRIPES],
    rules: usize,
}

impl<const N: usize> fmt::Debug for RuleTallies<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleTallies").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// A counter in the stripe of the current thread. It is neither `Send` nor `Sync`, because another thread may not add to it.
#[derive(Copy, Clone, Debug)]
pub(super) struct OwnCounter<'t> {
    counter: &'t AtomicU64,
    thread: PhantomData<*const ()>,
}

impl OwnCounter<'_> {
    #[inline(always)]
    pub(super) fn add(self, count: u64) {
        add(self.counter, number(), count);
    }

    #[inline(always)]
    pub(super) fn prefetch(self) {
        prefetch(self.counter);
    }
}

/// Adds to a counter in the stripe of the thread with this number.
#[inline(always)]
fn add(counter: &AtomicU64, thread: usize, count: u64) {
    if thread < OWN {
        // Ordering: Relaxed; see `RuleTallies`. No other thread writes the counter between the load and the store.
        counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
    } else {
        // Ordering: Relaxed; see `RuleTallies`.
        counter.fetch_add(count, Relaxed);
    }
}

/// The number of the current thread. A thread without a number has a large one, and gets its own in
/// [`RuleTallies::other_stripe`].
#[cfg(not(tollgate_loom))]
#[inline(always)]
fn number() -> usize {
    known_thread_number()
}

/// In models, all threads that pass no number share a stripe.
#[cfg(tollgate_loom)]
fn number() -> usize {
    OWN + thread_number()
}

impl<const N: usize> RuleTallies<N> {
    /// Creates the counters of this number of rules.
    pub(super) fn new(rules: usize) -> Self {
        Self { own: from_fn(|_| Lazy::default()), shared: from_fn(|_| Lazy::default()), rules }
    }

    #[inline(always)]
    fn stripe(&self, thread: usize) -> &Lazy<Array<AtomicU64>> {
        if thread < OWN { &self.own[thread] } else { self.other_stripe(thread) }
    }

    /// Returns the stripe of a thread that shares one, or that has no number yet.
    #[inline(never)]
    fn other_stripe(&self, thread: usize) -> &Lazy<Array<AtomicU64>> {
        let thread = if thread == usize::MAX { thread_number() } else { thread };
        self.own.get(thread).unwrap_or(&self.shared[thread % self.shared.len()])
    }

    #[inline(always)]
    fn counter(&self, thread: usize, rule: usize, counter: usize) -> Option<&AtomicU64> {
        self.stripe(thread).get()?.get(counter * self.rules + rule)
    }

    /// Returns a counter of a rule in the current thread's stripe, if the stripe exists.
    #[inline(always)]
    pub(super) fn get(&self, rule: usize, counter: usize) -> Option<OwnCounter<'_>> {
        Some(OwnCounter { counter: self.counter(number(), rule, counter)?, thread: PhantomData })
    }

    /// Creates the current thread's stripe.
    #[cold]
    #[inline(never)]
    pub(super) fn make(&self) {
        self.make_for(number());
    }

    fn make_for(&self, thread: usize) {
        let words = self.rules.saturating_mul(N).next_multiple_of(UNIT);
        let no_memory =
            || handle_alloc_error(Layout::array::<AtomicU64>(words).unwrap_or(Layout::new::<u8>()));
        let zeros = || Ok::<_, Infallible>(Array::zeroed(words).unwrap_or_else(no_memory));
        let Ok(_) = self.stripe(thread).get_or_make(zeros);
    }

    /// Returns the sum of a counter of a rule over all stripes. The sum wraps on overflow.
    pub(super) fn sum(&self, rule: usize, counter: usize) -> u64 {
        let stripes = self.own.iter().chain(&self.shared).filter_map(Lazy::get);
        let counters = stripes.filter_map(|stripe| stripe.get(counter * self.rules + rule));
        counters.fold(0, |sum, counter| sum.wrapping_add(counter.load(Relaxed)))
    }
}
