//! What the store counts about itself.

use alloc::boxed::Box;

use crossbeam_utils::CachePadded;

use crate::base::sync::{AtomicU64, Ordering};

/// What a compact store has done for want of room, since it was made.
///
/// All zero means that it has room enough: every decision was what a table without limits would have decided, but for
/// shared fingerprints. Estimates while other threads are at work.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::new(Quota::per_second(10));
/// let _ = limiter.check("alice");
/// let gauges = limiter.gauges();
/// assert_eq!((gauges.evicted, gauges.denied_for_debt), (0, 0)); // there is room
/// assert!(limiter.load() < 0.001);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Gauges {
    /// Slots, of which each holds one key.
    pub slots: usize,
    /// Keys that still owed when a newcomer took their slot: their debt was spilled, forgotten or inherited.
    pub evicted: u64,
    /// Newcomers that began with a debt: out of the sketch, or inherited. Their own or another's.
    pub indebted: u64,
    /// Newcomers that were denied for that debt, and would have been admitted without it. The debt may have been their
    /// own; and those that were admitted with another's debt may be denied for it later, which is not counted.
    pub denied_for_debt: u64,
    /// First checks that were decided again: of one key that raced with each other, or whose debt in the sketch grew
    /// meanwhile.
    pub retreats: u64,
    /// Of them, those that could not be, since a third thread had used the slot: after each the key may have been admitted
    /// its burst once more.
    pub raced: u64,
}

/// Counters of one stripe; a bucket always uses the same.
#[derive(Debug, Default)]
pub(super) struct GaugeStripe {
    pub(super) evicted: AtomicU64,
    pub(super) indebted: AtomicU64,
    pub(super) denied_for_debt: AtomicU64,
    pub(super) retreats: AtomicU64,
    pub(super) raced: AtomicU64,
    /// When the last of the idle words was paid whose slots newcomers took in these buckets, in nanoseconds.
    pub(super) replaced_ns: AtomicU64,
    /// When the last of the debts is paid that were evicted from these buckets into the sketch, in nanoseconds.
    pub(super) spilled_ns: AtomicU64,
}

/// Counters, striped so that threads that count at once seldom share a line. Plain checks count nothing.
#[derive(Debug)]
pub(super) struct GaugeCounters(Box<[CachePadded<GaugeStripe>]>);

impl GaugeCounters {
    pub(super) fn new() -> Self {
        let stripes = if cfg!(tollgate_loom) { 1 } else { 16 };
        Self((0..stripes).map(|_| CachePadded::default()).collect())
    }

    pub(super) fn stripe(&self, bucket: usize) -> &GaugeStripe {
        &self.0[bucket & (self.0.len() - 1)]
    }

    /// Takes the times over of the table that this one comes after.
    pub(super) fn take_times_of(&self, other: &Self) {
        for (own, other) in self.0.iter().zip(&other.0) {
            own.replaced_ns.fetch_max(other.replaced_ns.load(Ordering::Acquire), Ordering::AcqRel);
        }
    }

    /// For a table that holds nothing any more.
    pub(super) fn forget_times(&self) {
        // Ordering: Relaxed. The caller has cleared the slots, which is not one step either.
        for stripe in &self.0 {
            stripe.replaced_ns.store(0, Ordering::Relaxed);
            stripe.spilled_ns.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn sum(&self, slots: usize) -> Gauges {
        let sum = |counter: fn(&GaugeStripe) -> &AtomicU64| {
            // Ordering: Relaxed, here and in `count`. Plain tallies.
            self.0.iter().map(|stripe| counter(stripe).load(Ordering::Relaxed)).sum()
        };
        Gauges {
            slots,
            evicted: sum(|stripe| &stripe.evicted),
            indebted: sum(|stripe| &stripe.indebted),
            denied_for_debt: sum(|stripe| &stripe.denied_for_debt),
            retreats: sum(|stripe| &stripe.retreats),
            raced: sum(|stripe| &stripe.raced),
        }
    }
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
