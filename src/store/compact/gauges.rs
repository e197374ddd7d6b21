//! Counts what the store does because of a lack of room.

use alloc::boxed::Box;

use crossbeam_utils::CachePadded;

use crate::base::sync::{AtomicU64, Ordering};

/// Counts of what a compact store has done because of a lack of room, since its creation.
///
/// If all counts are zero, the store has enough room: every decision was the same as in a table of unlimited size,
/// except where keys share fingerprints. The counts are estimates while other threads use the store.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::new(Quota::per_second(10));
/// let _ = limiter.check("alice");
/// let gauges = limiter.gauges();
/// assert_eq!((gauges.evicted, gauges.denied_for_debt), (0, 0)); // there is room
/// assert!(limiter.fill() < 0.001);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Gauges {
    /// The number of slots. Each slot holds one key.
    pub slots: usize,
    /// Keys that were evicted: they still owed when a new key took their slot. Their debt was spilled, forgotten or
    /// inherited.
    pub evicted: u64,
    /// New keys that began with a debt, from the sketch or by inheritance. The debt may be their own or that of another
    /// key.
    pub indebted: u64,
    /// New keys that were denied because of such a debt, and would have been admitted without it.
    ///
    /// The debt may have been their own. A key that was admitted with the debt of another key may be denied for it
    /// later; this is not counted.
    pub denied_for_debt: u64,
    /// Retreats: first checks that the store undid and decided again.
    ///
    /// Either several first checks of one key raced, or the key's debt in the sketch grew in the meantime.
    pub retreats: u64,
    /// Retreats that failed because a third thread had charged the slot. For each of them, the key may have been
    /// admitted its burst a second time. They are included in `retreats`.
    pub raced: u64,
}

/// The counters of one stripe. A bucket always uses the same stripe.
#[derive(Debug, Default)]
pub(super) struct GaugeStripe {
    pub(super) evicted: AtomicU64,
    pub(super) indebted: AtomicU64,
    pub(super) denied_for_debt: AtomicU64,
    pub(super) retreats: AtomicU64,
    pub(super) raced: AtomicU64,
    /// The latest time, in nanoseconds, at which an idle word was paid whose slot a new key has taken since. It covers
    /// all buckets of this stripe.
    pub(super) replaced_ns: AtomicU64,
    /// The latest time, in nanoseconds, at which a debt is paid that was evicted into the sketch. It covers all buckets
    /// of this stripe.
    pub(super) spilled_ns: AtomicU64,
}

/// Counters in stripes, so that threads that count at the same time rarely share a cache line. Plain checks count
/// nothing.
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

    /// Takes over the times of the table that this table replaces.
    pub(super) fn take_times_of(&self, other: &Self) {
        for (own, other) in self.0.iter().zip(&other.0) {
            own.replaced_ns.fetch_max(other.replaced_ns.load(Ordering::Acquire), Ordering::AcqRel);
        }
    }

    /// Resets the times of a table that holds nothing any more.
    pub(super) fn forget_times(&self) {
        // Ordering: Relaxed. The caller has cleared the slots one by one, so no order between them is promised.
        for stripe in &self.0 {
            stripe.replaced_ns.store(0, Ordering::Relaxed);
            stripe.spilled_ns.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn sum(&self, slots: usize) -> Gauges {
        let sum = |counter: fn(&GaugeStripe) -> &AtomicU64| {
            // Ordering: Relaxed, here and in `count`. These are plain tallies.
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

/// Adds one to a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
