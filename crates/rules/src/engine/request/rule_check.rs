//! One rule in one request: the counter that decides it, and what it charges, counts and refunds.

use std::time::Duration;

use tollgate::holds::HoldId;
use tollgate::internals::CheckTime;
use tollgate::internals::op::Store;
use tollgate::internals::sync::fence_after_rmw;
use tollgate::{Decision, SharedDecision};
use tollgate_config::Charging;

use super::decided::{Decided, SharedOrigin};
use crate::counting::MayWait;
use crate::descriptor::{CounterKey, Descriptor};
use crate::engine::state::{
    ActiveDomain, ActiveRule, Counter, Effect, LocalCounter, ProgressCounter, RuleBook, RuleSet, SeenValues,
    SharedCounter, blocked,
};

/// A rule that applies to a request, with its key and cost.
#[derive(Debug)]
pub(in crate::engine) struct RuleCheck<'r> {
    pub(in crate::engine) active: &'r ActiveRule,
    pub(in crate::engine) counted: CountedBy<'r>,
    pub(in crate::engine) key: CounterKey<'r>,
    pub(in crate::engine) cost: u64,
    pub(super) charging: Charging,
    /// Whether the rule counts a limit that the request sets.
    pub(super) is_own: bool,
    /// What decides together with the counter, if anything does.
    pub(super) linked: Option<Box<LinkedState<'r>>>,
    pub(super) effect: Effect,
}

/// What decides together with the counter of a rule.
#[derive(Debug)]
pub(super) enum LinkedState<'r> {
    /// Another counter of the same requests, with their key there: a limit that a request sets and the file's rule of the
    /// same unit count as one.
    Counter { counter: &'r LocalCounter, key: CounterKey<'r> },
    /// The values that were admitted, and the hash of the request's key and value: the rule counts different values.
    Value { seen: &'r SeenValues, pair: u64 },
    /// The request holds units of the rule, under this identity.
    Takes {
        rules: &'r RuleSet,
        book: &'r RuleBook,
        hash: u64,
        id: HoldId,
        /// Whether the request has the identity, and settles the hold by it.
        is_given: bool,
        /// Whether the book has the hold.
        is_kept: bool,
    },
    /// The request settles the hold of its key that ends first, for the cost `actual`.
    Settles { book: &'r RuleBook, hash: u64, actual: u64 },
}

/// The counter of a rule in one request.
#[derive(Copy, Clone, Debug)]
pub(in crate::engine) enum CountedBy<'r> {
    /// No counter: there is no limit.
    Nothing,
    /// No counter: the limit is 0.
    Blocked(Duration),
    Local {
        counter: &'r LocalCounter,
        /// The number of units that must stay free in the store.
        headroom: u64,
    },
    Shared(&'r SharedCounter),
    /// The book of the holds.
    Book(&'r ProgressCounter),
}

impl<'r> CountedBy<'r> {
    /// `own` is the limit that the request sets.
    #[inline]
    pub(super) fn of(active: &'r ActiveRule, own: Option<u32>, charging: Charging) -> Self {
        match (&active.counter, own) {
            // A limit of 0 denies without counting, unless requests are counted first.
            (Counter::Local(_), Some(0)) if charging == Charging::AllOrNothing => {
                Self::Blocked(active.window)
            }
            (Counter::Local(counter), own) => {
                let headroom =
                    own.map_or(counter.headroom, |own| active.quota.saturating_sub(u64::from(own)));
                Self::Local { counter, headroom }
            }
            (Counter::Shared(shared), _) => Self::Shared(shared),
            (Counter::InProgress(counter), _) => Self::Book(counter),
            (Counter::Unlimited(_), _) => Self::Nothing,
            (Counter::Blocked { period, .. }, _) => Self::Blocked(*period),
        }
    }

    /// Whether a charge can be refunded.
    #[inline]
    pub(super) fn can_refund(self) -> bool {
        match self {
            Self::Local { counter, .. } => counter.can_refund,
            Self::Shared(shared) => shared.limiter.can_refund(),
            Self::Book(_) => true,
            Self::Nothing | Self::Blocked(_) => false,
        }
    }

    #[inline]
    pub(in crate::engine) const fn is_shared(self) -> bool {
        matches!(self, Self::Shared(_))
    }
}

impl<'r> RuleCheck<'r> {
    /// Prepares the check of a rule for a descriptor that has this key.
    #[inline(always)]
    pub(super) fn new(
        domain: &'r ActiveDomain,
        active: &'r ActiveRule,
        key: CounterKey<'r>,
        descriptor: &Descriptor<'r>,
        cost: u64,
    ) -> Self {
        let linked = active.unit.and_then(|unit| {
            let counter = domain.override_in_use(unit)?.counter.local()?;
            Some(Box::new(LinkedState::Counter { counter, key: domain.key_of_request(descriptor) }))
        });
        let counted = CountedBy::of(active, None, domain.charging);
        Self { linked, ..Self::with(domain, active, counted, key, cost) }
    }

    #[inline(always)]
    pub(super) fn with(
        domain: &ActiveDomain,
        active: &'r ActiveRule,
        counted: CountedBy<'r>,
        key: CounterKey<'r>,
        cost: u64,
    ) -> Self {
        let (charging, effect) = (domain.charging, Effect::default());
        Self { active, counted, key, cost, charging, is_own: false, linked: None, effect }
    }

    /// Whether a request has set the first limit of its unit in the meantime, and that limit counts together with this
    /// rule.
    #[inline]
    pub(super) fn missed_new_override(&self, domain: &ActiveDomain) -> bool {
        let has_override = matches!(self.linked.as_deref(), Some(LinkedState::Counter { .. }));
        !self.is_own && !has_override && self.active.counts_with_override(domain)
    }

    /// Whether the counter that the rule charged is open: see [`Generation::is_open_for`]. A shared counter never is.
    ///
    /// [`Generation::is_open_for`]: tollgate::internals::migrate::Generation::is_open_for
    #[inline]
    pub(super) fn is_open_for(&self, decided: &Decided) -> bool {
        let CountedBy::Local { counter, .. } = &self.counted else { return false };
        decided.decision.as_ref().is_some_and(|charge| counter.generation.is_open_for(charge))
    }

    /// Refunds the rule's charge as far as possible.
    pub(super) fn refund(&mut self, decided: &Decided, when: CheckTime) {
        if std::mem::take(&mut self.effect.is_charged) {
            if !self.give_up_hold() {
                return;
            }
            let taken = std::mem::take(&mut self.effect.taken);
            refund(self.counted, self.key.as_str(), decided, taken, when);
        }
    }

    /// Returns the units in the other counter of these requests.
    pub(super) fn elsewhere(&self, when: CheckTime) -> u64 {
        let Some(LinkedState::Counter { counter, key }) = self.linked.as_deref() else { return 0 };
        // Both sides charge before they read the other counter. If two requests race, at least one sees the other's
        // charge.
        fence_after_rmw();
        counter.generation.peek(key.as_str(), when, 0).owed()
    }

    /// Returns the decision on a cost without a charge. `None` unless this process counts the rule.
    pub(in crate::engine) fn peeked(&self, cost: u64, when: CheckTime) -> Option<Decision> {
        let CountedBy::Local { counter, headroom } = self.counted else { return None };
        let peeked = counter.peek(self.key.as_str(), cost, headroom, when);
        Some(if self.linked.is_some() { peeked.with_other_units(self.elsewhere(when)) } else { peeked })
    }

    /// Charges the rule if both counters together have enough quota. If two requests, one for each counter, race for
    /// the last units, both may be denied. Both are never admitted.
    #[cold]
    fn charge_linked(&self, counter: &LocalCounter, headroom: u64, when: CheckTime) -> Decision {
        if let Some(&LinkedState::Value { seen, pair }) = self.linked.as_deref() {
            return self.charge_value((seen, pair), (counter, headroom), when);
        }
        let key = self.key.as_str();
        if self.uses_holds() {
            return counter.charge(key, self.cost, headroom, when);
        }
        let peeked = counter.peek(key, self.cost, headroom, when).with_other_units(self.elsewhere(when));
        if peeked.is_denied() || self.cost == 0 {
            return peeked;
        }
        let charge = counter.charge(key, self.cost, headroom, when);
        let both = charge.with_other_units(self.elsewhere(when));
        if charge.is_allowed() && both.is_denied() {
            counter.generation.store().refund(key, when, &charge, charge.charged());
        }
        both
    }

    /// Turns this into the check of a value: a known value costs nothing, and another one costs one unit, whatever the
    /// request costs. A value for which a check before this one takes a unit costs nothing either.
    pub(super) fn count_values(
        &mut self,
        seen: &'r SeenValues,
        descriptor: &Descriptor<'r>,
        before: &[Self],
        when: CheckTime,
    ) {
        let value = self.active.value_of(descriptor);
        let value = value.as_ref().map(|(key, value)| (*key, value.as_str()));
        let pair = seen.pair(self.key.as_str(), value);
        let takes = |other: &Self| {
            let Some(&LinkedState::Value { seen: its, pair: same }) = other.linked.as_deref() else {
                return false;
            };
            other.cost > 0 && same == pair && std::ptr::eq(its, seen)
        };
        if self.cost > 0 {
            self.cost = u64::from(!before.iter().any(takes) && !seen.holds(pair, when));
        }
        self.linked = Some(Box::new(LinkedState::Value { seen, pair }));
    }

    /// Whether the rule counts values.
    pub(super) fn counts_values(&self) -> bool {
        matches!(self.linked.as_deref(), Some(LinkedState::Value { .. }))
    }

    /// Charges a value.
    pub(super) fn charge_value(
        &self,
        (seen, pair): (&SeenValues, u64),
        (counter, headroom): (&LocalCounter, u64),
        when: CheckTime,
    ) -> Decision {
        let key = self.key.as_str();
        let decision = counter.charge(key, self.cost, headroom, when);
        // Another request may have used the last unit for the same value.
        if decision.is_denied() && seen.holds(pair, when) {
            return counter.peek(key, 0, headroom, when);
        }
        decision
    }

    /// Asks a shared rule, unless it has already answered. Waits no longer than the rule's mode does.
    #[cold]
    fn ask_shared(&mut self, shared: &SharedCounter, decided: &mut Decided) {
        if decided.decision.is_none() && (self.cost > 0 || self.peeks_at_use()) {
            let reports_only = shared.reports_only(decided.role);
            let answer = shared.limiter.check_now(self.key.as_str(), self.cost, reports_only);
            self.record_answer(decided, answer);
        }
    }

    /// Stores the answer of a shared rule.
    pub(in crate::engine) fn record_answer(&mut self, decided: &mut Decided, answer: SharedDecision) {
        let decision = answer.decision();
        self.effect.is_charged = decision.charged() > 0;
        self.effect.before =
            decision.limit().saturating_sub(decision.remaining()).saturating_sub(decision.charged());
        (decided.decision, decided.by) = (Some(decision), Some(SharedOrigin::of(&answer)));
    }

    /// Stores what a shared rule would answer to a charge.
    pub(in crate::engine) fn record_peek(&mut self, decided: &mut Decided, peeked: SharedDecision) {
        self.record_answer(decided, SharedDecision::new(peeked.decision().uncharged(), peeked.by()));
    }

    /// Charges the rule if it admits the request.
    #[inline]
    pub(super) fn charge(&mut self, decided: &mut Decided, when: CheckTime) {
        decided.decision = match self.counted {
            CountedBy::Local { .. } if self.peeks_at_use() => return self.count(decided, when),
            CountedBy::Local { counter, headroom } if self.linked.is_some() => {
                Some(self.charge_linked(counter, headroom, when))
            }
            CountedBy::Local { counter, headroom } => {
                Some(counter.charge(self.key.as_str(), self.cost, headroom, when))
            }
            _ => return self.decide_without_store(decided, self.cost, true, when),
        };
        self.effect.is_charged = decided.decision.as_ref().is_some_and(|decision| decision.charged() > 0);
    }

    /// Decides without a charge. `other_cost` is the number of units that other rules of the request charge to the same
    /// key.
    #[inline]
    pub(super) fn peek(&mut self, decided: &mut Decided, other_cost: u64, when: CheckTime) {
        let cost = if self.cost == 0 { 0 } else { self.cost.saturating_add(other_cost) };
        match self.counted {
            CountedBy::Local { .. } if self.peeks_at_use() => self.count(decided, when),
            CountedBy::Local { .. } => decided.decision = self.peeked(cost, when),
            _ => self.decide_without_store(decided, cost, false, when),
        }
    }

    /// Counts the request and decides afterwards.
    pub(super) fn count(&mut self, decided: &mut Decided, when: CheckTime) {
        match self.counted {
            CountedBy::Local { counter, headroom } => {
                let elsewhere = || self.elsewhere(when);
                let (decision, effect) =
                    counter.count(self.key.as_str(), self.is_own, self.cost, headroom, when, elsewhere);
                decided.decision = Some(decision);
                // A denied request that was counted first is not refunded.
                self.effect = Effect { taken: 0, ..effect };
            }
            _ => self.decide_without_store(decided, self.cost, true, when),
        }
    }

    /// Decides as [`RuleCheck::count`] does, after `earlier` units that the request counts for the same key. Charges
    /// nothing.
    pub(super) fn peek_count(&mut self, decided: &mut Decided, earlier: u64, when: CheckTime) {
        let CountedBy::Local { counter, headroom } = self.counted else {
            return self.decide_without_store(decided, self.cost, false, when);
        };
        let (key, elsewhere) = (self.key.as_str(), self.elsewhere(when));
        decided.decision = Some(counter.peek_count(key, self.cost, earlier, headroom, when, elsewhere));
    }

    /// Decides a rule that no store of this process counts. `cost` is that of a peek.
    #[cold]
    fn decide_without_store(&mut self, decided: &mut Decided, cost: u64, charges: bool, when: CheckTime) {
        decided.decision = match self.counted {
            CountedBy::Shared(shared) if charges => return self.ask_shared(shared, decided),
            // A shared rule is asked once. Its charge has been refunded.
            CountedBy::Shared(shared) => decided.decision.map(|decision| {
                if shared.limiter.can_refund() { decision.refunded() } else { decision.uncharged() }
            }),
            CountedBy::Book(counter) if charges => return self.enter(counter, decided, when),
            CountedBy::Book(counter) => Some(self.peek_in_progress(counter, cost, when)),
            CountedBy::Blocked(period) => Some(blocked(period, self.cost, when.ns())),
            CountedBy::Local { .. } | CountedBy::Nothing => None,
        };
    }
}

/// Refunds what a rule has charged, or the units that were `taken` although the rule denied the request.
pub(super) fn refund(counted: CountedBy<'_>, key: &str, decided: &Decided, taken: u64, when: CheckTime) {
    match (counted, &decided.decision) {
        (CountedBy::Local { counter, .. }, Some(charge)) => {
            let charge = if taken > 0 { charge.as_charge_of(taken) } else { *charge };
            counter.generation.store().refund(key, when, &charge, charge.charged());
        }
        (CountedBy::Shared(shared), _) => {
            if let Some(charge) = decided.shared() {
                let _ = shared.limiter.refund(key, charge, MayWait::No);
            }
        }
        _ => {}
    }
}
