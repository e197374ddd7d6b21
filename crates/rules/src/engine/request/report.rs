//! Counts and reports the outcome of a rule.

use std::borrow::Cow;

use tollgate::internals::op::Migrate;
use tollgate::telemetry::{Denial, Event};
use tollgate::{Decision, Outcome};
use tollgate_config::Charging;

use super::answer::JointOutcome;
use super::decided::{Decided, SharedOrigin};
use super::rule_check::{CountedBy, RuleCheck};
use crate::descriptor::{CounterKey, Descriptor};
use crate::engine::state::{ActiveDomain, Observers, Role};

/// How the outcomes of a request's rules are reported.
pub(super) struct Reporting<'a> {
    pub(super) domain: &'a ActiveDomain,
    pub(super) descriptors: &'a [Descriptor<'a>],
    pub(super) joint: JointOutcome,
    pub(super) observers: &'a Observers,
}

impl RuleCheck<'_> {
    /// Returns how many units of the cost are in use beyond the soft limit. A rule that only reports marks no request,
    /// so it returns 0.
    #[inline]
    fn beyond_soft(&self, decided: &Decided, shadow: bool) -> u64 {
        if self.active.rule.soft == u64::MAX { 0 } else { self.beyond_soft_limit(decided, shadow) }
    }

    fn beyond_soft_limit(&self, decided: &Decided, shadow: bool) -> u64 {
        let Some(decision) = &decided.decision else { return 0 };
        let soft = self.active.rule.soft;
        if decision.is_denied() || shadow || !decided.role.can_deny() {
            return 0;
        }
        let owed = match self.counted {
            CountedBy::Local { counter, .. } => counter.generation.store().debts().owed(decision),
            // If this process decides from a part of the limit, the usage is not known.
            CountedBy::Shared(_) if decided.by.is_some_and(SharedOrigin::knows_remaining) => decision.owed(),
            _ => return 0,
        };
        owed.saturating_sub(soft).min(self.cost)
    }

    /// Marks the rule if more units are in use than its soft limit, counts its outcome, and informs the observers of a
    /// denial. A peek is not counted. If another rule denied the request, nothing was charged here, so nothing is
    /// counted, unless denied requests are charged too.
    #[inline]
    pub(super) fn report(&self, decided: &mut Decided, reporting: &Reporting<'_>) {
        let beyond_soft = self.beyond_soft(decided, reporting.joint.shadow);
        decided.soft = beyond_soft > 0;
        if self.cost == 0 {
            return;
        }
        let (cost, meters) = (self.cost, &self.active.meters);
        match &decided.decision {
            Some(decision) if decision.is_denied() => {
                self.report_denial(decided, reporting);
            }
            Some(decision) => {
                let is_charged = reporting.joint.outcome == Outcome::Allowed
                    || reporting.joint.shadow
                    || reporting.domain.charging == Charging::CountFirst;
                match decided.by {
                    _ if !is_charged => {}
                    None => meters.observe(decision, false),
                    Some(by) => self.report_shared(decision, by),
                }
                if is_charged && beyond_soft > 0 && !decided.is_without_server() {
                    meters.record(Event::SoftLimited, beyond_soft);
                }
            }
            None if self.counted.is_shared() => {}
            None => meters.record(Event::Unlimited, cost),
        }
    }

    /// Counts a request that a shared rule admitted.
    #[cold]
    fn report_shared(&self, decision: &Decision, by: SharedOrigin) {
        let meters = &self.active.meters;
        match by.event() {
            Some(event) => meters.record(event, self.cost),
            // The distance to the limit is not known.
            None if !by.knows_remaining() => meters.record(Event::Allowed, self.cost),
            None => meters.observe(decision, false),
        }
    }

    /// Blocks the key if the denial is enforced and the rule has blocks.
    fn block(&self, decided: &mut Decided) {
        if let (CountedBy::Local { counter, .. }, Some(denial)) = (self.counted, &mut decided.decision)
            && counter.has_blocks()
        {
            *denial = counter.block(self.key.as_str(), *denial);
        }
    }

    /// Counts a denial, and informs the observers. Also starts a block, because the denial is final only now.
    #[cold]
    fn report_denial(&self, decided: &mut Decided, reporting: &Reporting<'_>) {
        let (cost, meters) = (self.cost, &self.active.meters);
        let reports_only = reporting.joint.shadow
            || decided.role == Role::Shadow
            || (decided.role == Role::Quota && !reporting.joint.quota_rules_deny);
        if !reports_only {
            self.block(decided);
        }
        let Some(decision) = &decided.decision else { return };
        match decided.by.and_then(SharedOrigin::event) {
            Some(event) => meters.record(event, cost),
            None if self.effect.is_denial_counted || reporting.domain.charging == Charging::CountFirst => {
                // A cost that crosses a threshold counts in part on each side of it.
                meters.record(if reports_only { Event::ShadowDenied } else { Event::Denied }, cost);
                let in_use = self.effect.before.saturating_add(cost);
                meters.record_use(decision.limit(), in_use, cost);
                if decision.is_block() {
                    meters.record(Event::Blocked, cost);
                }
            }
            None => meters.observe(decision, reports_only),
        }
        self.inform(decided, reports_only, reporting);
    }

    /// Informs the observers of a denial.
    fn inform(&self, decided: &Decided, shadow: bool, reporting: &Reporting<'_>) {
        let &Reporting { domain, descriptors, observers, .. } = reporting;
        let key = match &self.key {
            _ if observers.top.is_none() && !observers.log.has_keys() => Cow::Borrowed(""),
            CounterKey::Whole(value) => Cow::Borrowed(*value),
            CounterKey::Address(text) => Cow::Owned(text.as_str().to_owned()),
            CounterKey::Joined(_) => {
                let descriptor = descriptors.get(decided.descriptor as usize);
                Cow::Owned(
                    descriptor.map_or_else(String::new, |descriptor| self.active.shown_key(descriptor)),
                )
            }
        };
        let rule = &*self.active.rule.name;
        if let (Some(top), false) = (&observers.top, shadow) {
            top.record(rule, &key);
        }
        let denial = Denial { domain: &domain.name, rule, retry_after: None, shadow, key: &key };
        observers.log.record_with(&denial, || decided.decision.as_ref()?.retry_after());
    }
}
