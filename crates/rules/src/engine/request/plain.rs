//! Requests with one or two rules whose stores alone decide. Most requests are like this.
//!
//! They take a short form of the [route](super::route), without a list of rules. If this form cannot decide a request,
//! such as one that the second of two rules denies, the route continues with the rules that were found here.

use tollgate::internals::CheckTime;
use tollgate::internals::op::Store;
use tollgate::internals::sync::Loaded;
use tollgate::{Clock, Decision, Outcome};

use super::answer::Answer;
use super::check::Request;
use super::decided::{Decided, Few};
use super::report::Reporting;
use super::rule_check::{CountedBy, RuleCheck};
use crate::engine::state::{ActiveDomain, ActiveRule, DomainId, LocalCounter, RuleSet, Rules};
use crate::matching::{CounterKey, Descriptor, FoundRules};

/// The only rule that applies to a descriptor, if its store alone decides: see [`ActiveRule::plain`].
#[derive(Copy, Clone, Debug)]
struct PlainCheck<'r> {
    rule: u32,
    active: &'r ActiveRule,
    counter: &'r LocalCounter,
    key: &'r str,
    cost: u64,
}

impl<'r> PlainCheck<'r> {
    #[inline(always)]
    fn new(
        domain: &'r ActiveDomain,
        descriptor: &Descriptor<'r>,
        found: FoundRules,
        hits: u64,
        when: CheckTime,
    ) -> Option<Self> {
        let cost = descriptor.cost(hits);
        if cost == 0 {
            return None;
        }
        let (rule, active) = domain.alone(descriptor, found)?;
        let (counter, key) = active.plain(domain, descriptor)?;
        if counter.is_taking_over(when.ns()) {
            return None;
        }
        active.matched.set();
        Some(Self { rule, active, counter, key, cost })
    }

    /// Charges the request if it is admitted.
    #[inline]
    fn charge(&self, when: CheckTime) -> Decision {
        self.counter.generation.store().check(self.key, when, self.cost)
    }

    /// Whether no charge of one rule changes the decision of the other.
    #[inline]
    fn is_joint_with(&self, other: &Self) -> bool {
        let is_joint = |plain: &Self| plain.counter.can_refund && plain.active.rule.replaces.is_empty();
        // If both descriptors match one rule, both charges may go to the same key.
        !std::ptr::eq(self.active, other.active) && is_joint(self) && is_joint(other)
    }

    /// Charges both rules, or none. This rule is charged without a peek, because its charge gives the same information.
    #[inline(always)]
    fn charge_with(&self, other: &Self, when: CheckTime) -> Option<[Decision; 2]> {
        if other.peek(when).is_denied() {
            return None;
        }
        let charge = self.charge(when);
        if charge.is_denied() {
            return None;
        }
        let other_charge = other.charge(when);
        if other_charge.is_denied() {
            self.refund(&charge, when);
            return None;
        }
        Some([charge, other_charge])
    }

    #[cold]
    fn refund(&self, charge: &Decision, when: CheckTime) {
        self.counter.generation.store().refund(self.key, when, charge, charge.charged());
    }

    /// Returns the decision that a charge would give, and charges nothing.
    #[inline]
    fn peek(&self, when: CheckTime) -> Decision {
        self.counter.generation.store().peek(self.key, when, self.cost)
    }
}

impl<C: Clock> Rules<C> {
    /// Decides a request with one descriptor.
    #[inline(always)]
    pub(super) fn decide_one(
        &self,
        rules: Loaded<RuleSet>,
        domain: DomainId<'_>,
        descriptor: &Descriptor<'_>,
        hits: u64,
        when: CheckTime,
    ) -> Answer {
        let Some(domain) = rules.domain_of(domain) else { return self.unknown_domain(rules, domain) };
        domain.note_asked();
        let (found, descriptors) = (domain.search(descriptor), std::slice::from_ref(descriptor));
        if let Some(plain) = PlainCheck::new(domain, descriptor, found, hits, when) {
            let start = domain.timer.start();
            let decision = plain.charge(when);
            domain.timer.stop(start);
            let (outcome, shadow) = (decision.outcome(), self.options.shadow || domain.shadow);
            let mut is_final = true;
            if decision.is_allowed() {
                let is_open = || plain.counter.generation.is_open_for(&decision);
                let still_counts = |now: Option<&ActiveDomain>| plain.active.still_counts(now);
                is_final = self.counts_charge(&rules, domain, is_open, still_counts)
                    && !plain.active.counts_with_override(domain);
                if is_final {
                    plain.active.meters.observe_allowed(&decision);
                } else {
                    plain.refund(&decision, when);
                }
            } else {
                self.report_denial(&plain, &decision, domain, descriptors, shadow);
            }
            if is_final {
                let (rule, domain) = (plain.rule, Some(domain.index));
                let mut decided = Few::new();
                decided.push(Decided::new(rule, 0, decision));
                return Answer::new(rules, domain, outcome, shadow, decided);
            }
        }
        let domain = domain.index;
        let mut answer = self.undecided(rules, Some(domain));
        self.decide_any(&mut answer, Request::of(descriptors, &[found], hits), when);
        answer
    }

    /// Decides a request with two descriptors. Not inlined: requests with one descriptor would save its registers.
    #[inline(never)]
    pub(super) fn decide_two(
        &self,
        rules: Loaded<RuleSet>,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>; 2],
        hits: u64,
        when: CheckTime,
    ) -> Answer {
        let Some(domain) = rules.domain_of(domain) else { return self.unknown_domain(rules, domain) };
        domain.note_asked();
        let [one, other] = descriptors;
        let searched @ [found_one, found_other] = [domain.search(one), domain.search(other)];
        let first = PlainCheck::new(domain, one, found_one, hits, when);
        if let Some(first) = first
            && let Some(second) = PlainCheck::new(domain, other, found_other, hits, when)
            && first.is_joint_with(&second)
        {
            let start = domain.timer.start();
            let charges = first.charge_with(&second, when);
            if let Some([charge, other_charge]) = &charges {
                // If a rule denies, the route decides and times the request again, so this time does not count.
                domain.timer.stop(start);
                // Both are asked, because each one records its charge.
                let is_open = || {
                    first.counter.generation.is_open_for(charge)
                        & second.counter.generation.is_open_for(other_charge)
                };
                let still_counts = |now: Option<&ActiveDomain>| {
                    first.active.still_counts(now) && second.active.still_counts(now)
                };
                if !self.counts_charge(&rules, domain, is_open, still_counts)
                    || first.active.counts_with_override(domain)
                    || second.active.counts_with_override(domain)
                {
                    first.refund(charge, when);
                    second.refund(other_charge, when);
                } else {
                    first.active.meters.observe_allowed(charge);
                    second.active.meters.observe_allowed(other_charge);
                    let mut decided = Few::new();
                    decided.push(Decided::new(first.rule, 0, *charge));
                    decided.push(Decided::new(second.rule, 1, *other_charge));
                    let shadow = self.options.shadow || domain.shadow;
                    let domain = Some(domain.index);
                    return Answer::new(rules, domain, Outcome::Allowed, shadow, decided);
                }
            }
        }
        let domain = domain.index;
        let mut answer = self.undecided(rules, Some(domain));
        self.decide_any(&mut answer, Request::of(descriptors, &searched, hits), when);
        answer
    }

    /// Reports the denial of the only rule.
    #[cold]
    fn report_denial(
        &self,
        plain: &PlainCheck<'_>,
        denial: &Decision,
        domain: &ActiveDomain,
        descriptors: &[Descriptor<'_>],
        shadow: bool,
    ) {
        let counted = CountedBy::Local { counter: plain.counter, headroom: 0 };
        let key = CounterKey::Whole(plain.key);
        let check = RuleCheck::with(domain, plain.active, counted, key, plain.cost);
        let mut decided = Decided::new(plain.rule, 0, *denial);
        let (outcome, quota_rules_deny, observers) = (denial.outcome(), false, &self.observers);
        let reporting = Reporting { domain, descriptors, outcome, shadow, quota_rules_deny, observers };
        check.report(&mut decided, &reporting);
    }
}
