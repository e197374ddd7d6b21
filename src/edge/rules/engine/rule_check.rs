//! One rule in one request: what it charges, counts and refunds.

use super::answer::Decided;
use super::check::CountedBy;
use super::counter::{LocalCounter, SharedCounter, blocked};
use super::rule_set::{ActiveDomain, ActiveRule};
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::sync::fence_after_rmw;
use crate::edge::rules::counting::{SharedDecision, Wait, ready};
use crate::edge::rules::matching::{CounterKey, Descriptor};
use crate::edge::rules::rule::Charging;
use crate::store::op::Store;

/// A rule that applies to a request, with its key and cost.
#[derive(Debug)]
pub(super) struct RuleCheck<'r> {
    pub(super) active: &'r ActiveRule,
    pub(super) counted: CountedBy<'r>,
    pub(super) key: CounterKey<'r>,
    pub(super) cost: u64,
    /// Whether the rule counts a limit that the request sets.
    pub(super) is_own: bool,
    /// The other counter of the same requests. A limit that a request sets and the file's rule of the same unit count
    /// as one.
    pub(super) twin: Option<Box<(&'r LocalCounter, CounterKey<'r>)>>,
    pub(super) charged: bool,
    pub(super) charging: Charging,
    /// The units that were charged although the rule denies the request.
    pub(super) taken: u64,
    pub(super) is_denial_counted: bool,
    /// The units in use before this request, if denied requests are counted.
    pub(super) before: u64,
}

impl<'r> RuleCheck<'r> {
    /// Prepares the check of a rule for a descriptor.
    #[inline(always)]
    pub(super) fn new(
        domain: &'r ActiveDomain,
        active: &'r ActiveRule,
        descriptor: &Descriptor<'r>,
        cost: u64,
    ) -> Self {
        active.matched.set();
        let twin = active.unit.and_then(|unit| {
            let counter = domain.override_in_use(unit)?.counter.local()?;
            Some(Box::new((counter, domain.key_of_request(descriptor))))
        });
        let (counted, key) = (CountedBy::of(active, None, domain.charging), active.key(domain, descriptor));
        Self { twin, ..Self::with(domain, active, counted, key, cost) }
    }

    #[inline(always)]
    pub(super) fn with(
        domain: &ActiveDomain,
        active: &'r ActiveRule,
        counted: CountedBy<'r>,
        key: CounterKey<'r>,
        cost: u64,
    ) -> Self {
        let (charging, is_own, twin) = (domain.charging, false, None);
        let (charged, taken, is_denial_counted, before) = (false, 0, false, 0);
        Self { active, counted, key, cost, is_own, twin, charged, charging, taken, is_denial_counted, before }
    }

    /// Whether a request has set the first limit of its unit in the meantime, and that limit counts together with this
    /// rule.
    #[inline]
    pub(super) fn missed_new_twin(&self, domain: &ActiveDomain) -> bool {
        !self.is_own && self.twin.is_none() && self.active.counts_with_override(domain)
    }

    /// Whether the counter that the rule charged is open: see [`Generation::is_open_for`]. A shared counter never is.
    ///
    /// [`Generation::is_open_for`]: crate::store::migrate::Generation::is_open_for
    #[inline]
    pub(super) fn is_open_for(&self, decided: &Decided) -> bool {
        let CountedBy::Local { counter, .. } = &self.counted else { return false };
        decided.decision.as_ref().is_some_and(|charge| counter.generation.is_open_for(charge))
    }

    /// Refunds the rule's charge as far as possible.
    pub(super) fn undo(&mut self, decided: &Decided, when: CheckTime) {
        if std::mem::take(&mut self.charged) {
            let taken = std::mem::take(&mut self.taken);
            give_back(self.counted, self.key.as_str(), decided, taken, when);
        }
    }

    /// Returns the units in the other counter of these requests.
    pub(super) fn elsewhere(&self, when: CheckTime) -> u64 {
        let Some((counter, key)) = self.twin.as_deref() else { return 0 };
        // Both sides charge before they read the other counter. If two requests race, at least one sees the other's
        // charge.
        fence_after_rmw();
        counter.generation.peek(key.as_str(), when, 0).owed()
    }

    /// Returns the decision on a cost without a charge. `None` unless this process counts the rule.
    pub(super) fn looked(&self, cost: u64, when: CheckTime) -> Option<Decision> {
        let CountedBy::Local { counter, headroom } = self.counted else { return None };
        let looked = counter.look(self.key.as_str(), cost, headroom, when);
        Some(if self.twin.is_some() { looked.with_other_units(self.elsewhere(when)) } else { looked })
    }

    /// Charges the rule if both counters together have enough quota. If two requests, one for each counter, race for
    /// the last units, both may be denied. Both are never admitted.
    #[cold]
    pub(super) fn charge_with_twin(
        &self,
        counter: &LocalCounter,
        headroom: u64,
        when: CheckTime,
    ) -> Decision {
        let key = self.key.as_str();
        let looked = counter.look(key, self.cost, headroom, when).with_other_units(self.elsewhere(when));
        if looked.is_denied() || self.cost == 0 {
            return looked;
        }
        let charge = counter.charge(key, self.cost, headroom, when);
        let both = charge.with_other_units(self.elsewhere(when));
        if charge.is_allowed() && both.is_denied() {
            counter.generation.store().refund(key, when, &charge, charge.charged());
        }
        both
    }

    /// Asks a shared rule, unless it has already answered. Waits no longer than the rule's mode does.
    #[cold]
    pub(super) fn ask_shared(&mut self, shared: &SharedCounter, decided: &mut Decided) {
        if decided.decision.is_none() && self.cost > 0 {
            self.record_answer(decided, ready(shared.limiter.check(self.key.as_str(), self.cost, Wait::No)));
        } else if decided.decision.is_none()
            && self.looks_at_use()
            && let Some(answer) = ready(shared.limiter.peek_use(self.key.as_str(), Wait::No))
        {
            self.record_answer(decided, answer);
        }
    }

    /// Stores the answer of a shared rule.
    pub(super) fn record_answer(&mut self, decided: &mut Decided, answer: SharedDecision) {
        let SharedDecision { decision, by } = answer;
        self.charged = decision.charged() > 0;
        self.before =
            decision.limit().saturating_sub(decision.remaining()).saturating_sub(decision.charged());
        (decided.decision, decided.by) = (Some(decision), Some(by));
    }

    #[inline]
    pub(super) fn charge(&mut self, decided: &mut Decided, when: CheckTime) {
        decided.decision = match self.counted {
            CountedBy::Local { .. } if self.looks_at_use() => return self.count(decided, when),
            CountedBy::Local { counter, headroom } if self.twin.is_some() => {
                Some(self.charge_with_twin(counter, headroom, when))
            }
            CountedBy::Local { counter, headroom } => {
                Some(counter.charge(self.key.as_str(), self.cost, headroom, when))
            }
            CountedBy::Shared(shared) => return self.ask_shared(shared, decided),
            CountedBy::Blocked(period) => Some(blocked(period, self.cost, when.ns())),
            CountedBy::Nothing => None,
        };
        self.charged = decided.decision.as_ref().is_some_and(|decision| decision.charged() > 0);
    }

    /// Decides without a charge. `other_cost` is the number of units that other rules of the request charge to the same
    /// key.
    pub(super) fn look(&mut self, decided: &mut Decided, other_cost: u64, when: CheckTime) {
        let cost = if self.cost == 0 { 0 } else { self.cost.saturating_add(other_cost) };
        decided.decision = match self.counted {
            CountedBy::Local { .. } if self.looks_at_use() => return self.count(decided, when),
            CountedBy::Local { .. } => self.looked(cost, when),
            // A shared rule is asked once. Its charge has been refunded.
            CountedBy::Shared(shared) => decided.decision.map(|decision| {
                if shared.limiter.can_refund() { decision.given_back() } else { decision.uncharged() }
            }),
            CountedBy::Blocked(period) => Some(blocked(period, self.cost, when.ns())),
            CountedBy::Nothing => None,
        };
    }

    /// Counts the request and decides afterwards.
    pub(super) fn count(&mut self, decided: &mut Decided, when: CheckTime) {
        match self.counted {
            CountedBy::Local { counter, headroom } => {
                let elsewhere = || self.elsewhere(when);
                let counted =
                    counter.count(self.key.as_str(), self.is_own, self.cost, headroom, when, elsewhere);
                (decided.decision, self.charged) = (Some(counted.decision), counted.charged > 0);
                self.before = counted.before;
            }
            CountedBy::Shared(shared) => self.ask_shared(shared, decided),
            CountedBy::Blocked(period) => decided.decision = Some(blocked(period, self.cost, when.ns())),
            CountedBy::Nothing => decided.decision = None,
        }
    }
}

/// Refunds what a rule has charged, or the units that were `taken` although the rule denied the request.
pub(super) fn give_back(counted: CountedBy<'_>, key: &str, decided: &Decided, taken: u64, when: CheckTime) {
    let Some(charge) = &decided.decision else { return };
    match (counted, decided.by) {
        (CountedBy::Local { counter, .. }, _) => {
            let charge = if taken > 0 { charge.as_charge_of(taken) } else { *charge };
            counter.generation.store().refund(key, when, &charge, charge.charged());
        }
        (CountedBy::Shared(shared), Some(by)) => {
            ready(shared.limiter.refund(key, SharedDecision { decision: *charge, by }, Wait::No));
        }
        _ => {}
    }
}
