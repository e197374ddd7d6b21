//! What leases count about themselves.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::base::sync::{AtomicU64, Ordering, thread_number};

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
#[derive(Debug)]
pub(super) struct RequestTally {
    landed: AtomicU64,
    lost: AtomicU64,
}

// Ordering: Relaxed. Tallies, which publish nothing.
impl RequestTally {
    pub(super) fn landed(&self) {
        self.landed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Counters {
    spent: Box<[CachePadded<AtomicU64>; OWN + SHARED]>,
    unspent: AtomicU64,
    asked: AtomicU64,
    pub(super) flights: Arc<RequestTally>,
    refused: AtomicU64,
    granted: AtomicU64,
    returned: AtomicU64,
    full: AtomicU64,
}

// Ordering: Relaxed throughout. Tallies, which publish nothing.
impl Counters {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            spent: Box::new(std::array::from_fn(|_| CachePadded::new(zero()))),
            unspent: zero(),
            asked: zero(),
            flights: Arc::new(RequestTally { landed: zero(), lost: zero() }),
            refused: zero(),
            granted: zero(),
            returned: zero(),
            full: zero(),
        }
    }

    #[inline(always)]
    pub(super) fn spent(&self, units: u64) {
        let thread = thread_number();
        if thread < OWN {
            // No other thread has this number, now or later, so nobody writes between the two.
            let spent = &self.spent[thread];
            spent.store(spent.load(Ordering::Relaxed).wrapping_add(units), Ordering::Relaxed);
        } else {
            self.spent_shared(thread, units);
        }
    }

    #[inline(never)]
    fn spent_shared(&self, thread: usize, units: u64) {
        self.spent[OWN + thread % SHARED].fetch_add(units, Ordering::Relaxed);
    }

    /// What was spent is there again.
    pub(super) fn unspent(&self, units: u64) {
        self.unspent.fetch_add(units, Ordering::Relaxed);
    }

    pub(super) fn asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn granted(&self, units: u64) {
        self.granted.fetch_add(units, Ordering::Relaxed);
    }

    pub(super) fn returned(&self, units: u64) {
        self.returned.fetch_add(units, Ordering::Relaxed);
    }

    pub(super) fn full(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
    }

    /// All of them.
    pub(super) fn sum(&self, held: u64, keys: usize) -> LeaseStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let spent = self.spent.iter().map(|stripe| read(stripe)).fold(0, u64::wrapping_add);
        let spent = spent.wrapping_sub(read(&self.unspent));
        let (granted, returned) = (read(&self.granted), read(&self.returned));
        LeaseStats {
            asked: read(&self.asked),
            in_flight: read(&self.asked).saturating_sub(read(&self.flights.landed)),
            refused: read(&self.refused),
            lost: read(&self.flights.lost),
            granted,
            spent,
            returned,
            held,
            stranded: granted.saturating_sub(spent).saturating_sub(returned).saturating_sub(held),
            keys: u64::try_from(keys).unwrap_or(u64::MAX),
            full: read(&self.full),
        }
    }
}
