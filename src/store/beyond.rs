//! Debts beyond the burst, from before a limiter is adjustable.

use crate::base::decision::Decision;
use crate::base::sync::{AtomicU64, Ordering};
use crate::store::op::{Debts, Operation};

/// The latest time at which a charge left a key with a debt beyond the burst of the store's own quota.
///
/// A state that is further ahead of a time than a burst has one of two causes: such a debt, or a charge that is later
/// than that time. The state alone does not say which one, and a change of the quota treats them differently.
#[derive(Debug)]
pub(crate) struct BeyondBurst {
    /// 0 if there was no such charge.
    latest_ns: AtomicU64,
}

impl BeyondBurst {
    pub(crate) fn none() -> Self {
        Self { latest_ns: AtomicU64::new(0) }
    }

    /// Returns the decision of an operation, and records its time if its key now owes more than the burst.
    pub(crate) fn after(&self, operation: Operation, decision: Decision, debts: &impl Debts) -> Decision {
        if operation.goes_beyond() {
            self.note(&decision, debts.burst());
        }
        decision
    }

    /// Returns the decision of a check by a quota of the caller, and records its time as [`BeyondBurst::after`] does.
    #[inline]
    pub(crate) fn after_quota(&self, decision: Decision, debts: &impl Debts) -> Decision {
        let burst = debts.burst();
        if decision.limit() > burst {
            self.note(&decision, burst);
        }
        decision
    }

    /// Records the time of a charge, if its key now owes more than the burst.
    pub(crate) fn note(&self, decision: &Decision, burst: u64) {
        if decision.is_allowed() {
            self.note_debt(decision.owed(), burst, decision.at_ns());
        }
    }

    /// Records the time of a debt, if it is more than the burst.
    pub(crate) fn note_debt(&self, owed: u64, burst: u64, at_ns: u64) {
        if owed > burst {
            // Ordering: AcqRel; pairs with `latest_ns`.
            self.latest_ns.fetch_max(at_ns.max(1), Ordering::AcqRel);
        }
    }

    /// The latest time, or `None` if there was no such charge.
    pub(crate) fn latest_ns(&self) -> Option<u64> {
        // Ordering: Acquire; pairs with `note_debt`.
        Some(self.latest_ns.load(Ordering::Acquire)).filter(|latest_ns| *latest_ns > 0)
    }
}
