//! The latest charge of a generation, and whether a change is replacing the generation.
//!
//! A change of the quota has a time, but charges may be later: the clock was read before the change was published, the
//! caller gave an older time, or callers' clocks differ. So the next generation needs the latest charge of this one.
//!
//! 1. Each charge compares its time with `open_until_ns`, after a fence. An earlier charge needs nothing else. This is
//!    also how the charging thread learns that no change is being made.
//! 2. A later charge records its time, and raises `open_until_ns`. This happens about once per [`SLACK_NS`].
//! 3. A change first *closes* the generation: it sets `open_until_ns` to [`CLOSED`]. Then it reads its time. From then
//!    on, each charge records its exact time, and looks whether the next generation is already published.
//!
//! Thus a charge of a clock that all threads share is either made before the change's time, or recorded. A charge whose
//! time is after the change's time for another reason is known to within [`SLACK_NS`].

use crate::base::sync::{AtomicU64, Ordering, full_fence};

/// How far charges of an open generation may be after the recorded time. A smaller slack makes threads write the shared
/// word more often: at this value, about 15,000 times a second.
pub(super) const SLACK_NS: u64 = 1 << 16;

/// The value of `open_until_ns` as soon as a change replaces the generation.
const CLOSED: u64 = 0;

#[derive(Debug)]
pub(super) struct LatestCharge {
    /// Charges before this time need no record.
    open_until_ns: AtomicU64,
    latest_ns: AtomicU64,
}

impl LatestCharge {
    pub(super) fn new() -> Self {
        Self { open_until_ns: AtomicU64::new(1), latest_ns: AtomicU64::new(0) }
    }

    /// Whether a charge at `at_ns` counts in any case, because no change has closed the generation. If not, the charge
    /// is recorded, and it counts only if the generation is still the published one. The caller must issue a fence
    /// between the charge and this call, and must look at the published generation after this call.
    #[inline(always)]
    pub(super) fn is_open_for(&self, at_ns: u64) -> bool {
        // Ordering: Relaxed, after the fence. If this load does not see the closing, a thread that has seen the next
        // generation and has issued its own fence sees the charge: see the module docs of `migrate`.
        at_ns < self.open_until_ns.load(Ordering::Relaxed) || self.record(at_ns)
    }

    #[cold]
    fn record(&self, at_ns: u64) -> bool {
        self.cover(at_ns);
        let until_ns = at_ns.saturating_add(SLACK_NS + 1);
        let raise = |open_until_ns: u64| (open_until_ns != CLOSED).then(|| open_until_ns.max(until_ns));
        // Ordering: AcqRel: after the record. The exchange that closes the generation sees all records before it.
        if self.open_until_ns.fetch_update(Ordering::AcqRel, Ordering::Relaxed, raise).is_ok() {
            return true;
        }
        // Between the record and the caller's look at the published generation.
        full_fence();
        false
    }

    /// Records the time of a charge, or of a debt that was carried over.
    pub(super) fn cover(&self, at_ns: u64) {
        // Ordering: AcqRel; pairs with `ns`.
        self.latest_ns.fetch_max(at_ns, Ordering::AcqRel);
    }

    /// Makes each further charge record its exact time. The caller reads the time of the change afterwards.
    pub(super) fn close(&self) {
        // Ordering: AcqRel; pairs with `record`. The fence is before the caller's reading of its clock, so a thread
        // that still finds the generation open has read its clock before.
        self.open_until_ns.swap(CLOSED, Ordering::AcqRel);
        full_fence();
    }

    /// Makes charges before this time need no record, as a larger slack would.
    #[cfg(all(test, tollgate_loom))]
    pub(super) fn open_until(&self, ns: u64) {
        self.open_until_ns.store(ns, Ordering::Release);
    }

    /// The latest time of any charge. A thread that has seen the next generation must issue a fence first.
    pub(super) fn ns(&self) -> u64 {
        // Ordering: Acquire; pairs with `cover`.
        self.latest_ns.load(Ordering::Acquire)
    }
}
