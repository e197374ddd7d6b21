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
            self.note(&decision, debts);
        }
        decision
    }

    /// Records the time of a charge, if its key now owes more than the burst of the store's own quota. The decision may be
    /// by another quota: if that one is slower, a few of its units are a long debt under the store's own.
    #[inline]
    pub(crate) fn note(&self, decision: &Decision, debts: &impl Debts) {
        if decision.is_allowed() {
            self.note_debt(debts.owed(decision), debts.burst(), decision.at_ns());
        }
    }

    /// Records the time of a debt, if it is more than the burst.
    #[inline]
    pub(crate) fn note_debt(&self, owed: u64, burst: u64, at_ns: u64) {
        // Ordering: Relaxed. The word only grows, so a later time that this thread sees stays recorded.
        if owed > burst && self.latest_ns.load(Ordering::Relaxed) < at_ns.max(1) {
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
