//! Counters of the lease mode.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use tollgate::internals::sync::{AtomicU64, Ordering, thread_number};

use crate::mode::count::Count;

/// What happened to the units granted to a lease limiter, since it was built.
///
/// `granted = spent + returned + held + stranded`. The values are estimates while other threads use the limiter.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Calls for units that were sent to the server.
    pub asked: u64,
    /// Calls of `asked` that are still in flight.
    pub in_flight: u64,
    /// Calls of `asked` for which the server granted nothing.
    pub refused: u64,
    /// Calls of `asked` that got no answer. If the server charged units for them, no other count includes these units.
    pub lost: u64,
    /// Units that the server granted.
    pub granted: u64,
    /// Units that checks spent.
    pub spent: u64,
    /// Units that the server took back when the limiter was closed. If the server took units back but the answer was
    /// lost, they count as `stranded`.
    pub returned: u64,
    /// Units that checks can still spend.
    pub held: u64,
    /// Units that expired before a check spent them, or that arrived too late.
    pub stranded: u64,
    /// Keys held in this process.
    pub keys: u64,
    /// Checks of keys for which the table had no room.
    pub full: u64,
}

/// The counters of checks. The first `OWN` threads of the process have one counter each, and count without an atomic
/// addition. All other threads share `SHARED` counters.
const OWN: usize = 32;
const SHARED: usize = 16;

/// The outcomes of calls. Each call holds this value and counts its own outcome, because a call can outlive its limiter.
#[derive(Debug, Default)]
pub(super) struct RequestTally {
    pub(super) landed: Count,
    pub(super) lost: Count,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    own: Box<[CachePadded<AtomicU64>; OWN]>,
    shared: Box<[CachePadded<AtomicU64>; SHARED]>,
    /// Units that were spent and then put back.
    pub(super) unspent: Count,
    pub(super) asked: Count,
    pub(super) requests: Arc<RequestTally>,
    pub(super) refused: Count,
    pub(super) granted: Count,
    pub(super) returned: Count,
    pub(super) full: Count,
}

// Ordering: Relaxed throughout. The counters publish no other memory.
impl Counters {
    #[inline(always)]
    pub(super) fn spent(&self, units: u64) {
        let thread = thread_number();
        if thread < OWN {
            // No other thread has this number, now or later. So no other thread writes between the load and the store.
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

    /// Returns the sum of all counters.
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
