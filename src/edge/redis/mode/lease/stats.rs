//! What leases count about themselves.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::base::sync::{AtomicU64, Ordering, thread_number};
use crate::edge::redis::mode::count::Count;

/// What became of the units that a lease limiter was granted, since it was made.
///
/// `granted = spent + returned + held + stranded`; estimates while other threads are at work.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Questions that were sent to the server for units.
    pub asked: u64,
    /// Of them, those that are under way.
    pub in_flight: u64,
    /// Of them, those that the server had nothing for.
    pub refused: u64,
    /// Of them, those that were not answered: what they were charged, if anything, is in none of the sums here.
    pub lost: u64,
    /// Units that the server granted.
    pub granted: u64,
    /// Units that checks spent.
    pub spent: u64,
    /// Units that the server took back when the limiter was closed. What it may have taken without an answer is in `stranded`.
    pub returned: u64,
    /// Units that are there to be spent.
    pub held: u64,
    /// Units that expired before anybody spent them, or came too late.
    pub stranded: u64,
    /// Keys that are held.
    pub keys: u64,
    /// Checks of keys that there was no room for.
    pub full: u64,
}

/// Words that checks count in. So many threads, the first ones of the process, have one for themselves, and count without an atomic
/// addition; others share as many more.
const OWN: usize = 32;
const SHARED: usize = 16;

/// What became of questions: they count it themselves, as some are dropped where there is nothing else.
#[derive(Debug, Default)]
pub(super) struct RequestTally {
    pub(super) landed: Count,
    pub(super) lost: Count,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    own: Box<[CachePadded<AtomicU64>; OWN]>,
    shared: Box<[CachePadded<AtomicU64>; SHARED]>,
    /// What was spent, and is there again.
    pub(super) unspent: Count,
    pub(super) asked: Count,
    pub(super) requests: Arc<RequestTally>,
    pub(super) refused: Count,
    pub(super) granted: Count,
    pub(super) returned: Count,
    pub(super) full: Count,
}

// Ordering: Relaxed throughout. Tallies, which publish nothing.
impl Counters {
    #[inline(always)]
    pub(super) fn spent(&self, units: u64) {
        let thread = thread_number();
        if thread < OWN {
            // No other thread has this number, now or later, so nobody writes between the two.
            let spent = &self.own[thread];
            spent.store(spent.load(Ordering::Relaxed).wrapping_add(units), Ordering::Relaxed);
        } else {
            self.spent_shared(thread, units);
        }
    }

    #[inline(never)]
    fn spent_shared(&self, thread: usize, units: u64) {
        self.shared[thread % SHARED].fetch_add(units, Ordering::Relaxed);
    }

    /// All of them.
    pub(super) fn sum(&self, held: u64, keys: usize) -> LeaseStats {
        let spent = self.own.iter().chain(&*self.shared).map(|stripe| stripe.load(Ordering::Relaxed));
        let spent = spent.fold(0, u64::wrapping_add).wrapping_sub(self.unspent.get());
        let (granted, returned, asked) = (self.granted.get(), self.returned.get(), self.asked.get());
        LeaseStats {
            asked,
            in_flight: asked.saturating_sub(self.requests.landed.get()),
            refused: self.refused.get(),
            lost: self.requests.lost.get(),
            granted,
            spent,
            returned,
            held,
            stranded: granted.saturating_sub(spent).saturating_sub(returned).saturating_sub(held),
            keys: u64::try_from(keys).unwrap_or(u64::MAX),
            full: self.full.get(),
        }
    }
}
