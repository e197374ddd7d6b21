//! Requests with one or two rules whose stores alone decide. Most requests are like this.
//!
//! They take the [route](super::route) without a list of rules. If one rule denies, or counts together with anything else,
//! the route continues with the rules that were found here.

use super::Rules;
use super::answer::Answer;
use super::counted_by::CountedBy;
use super::counter::LocalCounter;
use super::decided::{Decided, Few, Summary};
use super::route::Request;
use super::rule_check::RuleCheck;
use super::rule_set::{ActiveDomain, ActiveRule, DomainId, RuleSet};
use crate::base::check_time::CheckTime;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::base::sync::{Loaded, fence_after_rmw};
use crate::edge::rules::matching::{CounterKey, Descriptor, FoundRules};
use crate::store::op::Store;

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
        let (rule, active) = domain.alone(descriptor, found)?;
        let (counter, key) = active.plain(domain, descriptor)?;
        let cost = descriptor.cost(hits);
        if cost == 0 || counter.is_taking_over(when.ns()) {
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
        let Some(domain) = rules.domain_of(domain) else { return self.unknown_domain(rules) };
        domain.note_asked();
        let (found, descriptors) = (domain.search(descriptor), std::slice::from_ref(descriptor));
        if let Some(plain) = PlainCheck::new(domain, descriptor, found, hits, when) {
            let start = domain.timer.start();
            let decision = plain.charge(when);
            domain.timer.stop(start);
            let summary = Summary::new(decision.outcome(), self.options.shadow || domain.shadow);
            let mut is_final = true;
            if decision.is_allowed() {
                fence_after_rmw();
                let still_counts = |now: Option<&ActiveDomain>| plain.active.still_counts(now);
                if plain.active.counts_with_override(domain)
                    || (!plain.counter.generation.is_open_for(&decision)
                        && self.was_replaced(&rules, domain, still_counts))
                {
                    plain.counter.generation.store().refund(plain.key, when, &decision, decision.charged());
                    is_final = false;
                } else {
                    plain.active.meters.observe_allowed(&decision);
                }
            } else {
                self.report_denial(&plain, &decision, domain, descriptors, &summary);
            }
            if is_final {
                let (rule, domain) = (plain.rule, Some(domain.index));
                let mut decided = Few::new();
                decided.push(Decided::new(rule, 0, decision));
                return Answer { rules, domain, summary, decided };
            }
        }
        let domain = domain.index;
        let mut answer = self.undecided(rules, Some(domain));
        self.decide_any(&mut answer, Request { descriptors, searched: &[found], hits }, when);
        answer
    }

    /// Decides a request with several descriptors, each with a plain rule.
    #[inline(always)]
    pub(super) fn decide_few<const N: usize>(
        &self,
        rules: Loaded<RuleSet>,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>; N],
        hits: u64,
        when: CheckTime,
    ) -> Answer {
        let Some(domain) = rules.domain_of(domain) else { return self.unknown_domain(rules) };
        domain.note_asked();
        let (mut found, mut plain) = ([FoundRules::default(); N], [None; N]);
        for ((plain, found), descriptor) in plain.iter_mut().zip(&mut found).zip(descriptors) {
            *found = domain.search(descriptor);
            *plain = PlainCheck::new(domain, descriptor, *found, hits, when);
        }
        let mut decided = Few::new();
        if may_be_charged_together(&plain) {
            let start = domain.timer.start();
            let is_charged = charge(&plain, &mut decided, when);
            domain.timer.stop(start);
            if is_charged && self.is_settled(&plain, &decided, &rules, domain, when) {
                let charges = charges(&plain, &decided);
                charges.for_each(|(plain, charge)| plain.active.meters.observe_allowed(charge));
                let summary = Summary::allowed(self.options.shadow || domain.shadow);
                let domain = Some(domain.index);
                return Answer { rules, domain, summary, decided };
            }
        }
        let domain = domain.index;
        let mut answer = self.undecided(rules, Some(domain));
        self.decide_any(&mut answer, Request { descriptors, searched: &found, hits }, when);
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
        summary: &Summary,
    ) {
        let counted = CountedBy::Local { counter: plain.counter, headroom: 0 };
        let key = CounterKey::Whole(plain.key);
        let check = RuleCheck::with(domain, plain.active, counted, key, plain.cost);
        let mut decided = Decided::new(plain.rule, 0, *denial);
        check.report(&mut decided, domain, descriptors, summary, &self.observers);
    }

    /// Whether the charged counters still count. Refunds the charges if not.
    #[inline(always)]
    fn is_settled(
        &self,
        plain: &[Option<PlainCheck<'_>>],
        decided: &[Decided],
        rules: &Loaded<RuleSet>,
        domain: &ActiveDomain,
        when: CheckTime,
    ) -> bool {
        fence_after_rmw();
        let (mut is_open, mut has_twin) = (true, false);
        for (plain, charge) in charges(plain, decided) {
            // Each of them is asked, because each one records its charge.
            is_open &= plain.counter.generation.is_open_for(charge);
            has_twin |= plain.active.counts_with_override(domain);
        }
        let still_counts =
            |now: Option<&ActiveDomain>| plain.iter().flatten().all(|plain| plain.active.still_counts(now));
        let is_settled = !has_twin && (is_open || !self.was_replaced(rules, domain, still_counts));
        if !is_settled {
            refund(plain, decided, when);
        }
        is_settled
    }
}

/// Whether all descriptors have plain rules, and no charge of one changes the decision of another.
#[inline(always)]
fn may_be_charged_together(plain: &[Option<PlainCheck<'_>>]) -> bool {
    match plain {
        [Some(one), Some(other)] => {
            // If both descriptors match one rule, both charges may go to the same key.
            let is_joint =
                |plain: &PlainCheck<'_>| plain.counter.can_refund && plain.active.rule.replaces.is_empty();
            !std::ptr::eq(one.active, other.active) && is_joint(one) && is_joint(other)
        }
        _ => false,
    }
}

/// Charges all rules, or none, and returns whether they are charged. The first is charged without a peek, because its charge gives the same information.
#[inline(always)]
fn charge(plain: &[Option<PlainCheck<'_>>], decided: &mut Few<Decided>, when: CheckTime) -> bool {
    if plain.iter().flatten().skip(1).any(|plain| plain.peek(when).is_denied()) {
        return false;
    }
    for (place, one) in (0..).zip(plain.iter().flatten()) {
        let charge = one.charge(when);
        let is_denied = charge.is_denied();
        decided.push(Decided::new(one.rule, place, charge));
        if is_denied {
            refund(plain, decided, when);
            return false;
        }
    }
    true
}

/// Returns the rules that were charged, with their charges.
#[inline(always)]
fn charges<'a, 'r>(
    plain: &'a [Option<PlainCheck<'r>>],
    decided: &'a [Decided],
) -> impl Iterator<Item = (&'a PlainCheck<'r>, &'a Decision)> {
    plain.iter().zip(decided).filter_map(|(plain, decided)| plain.as_ref().zip(decided.decision.as_ref()))
}

/// Refunds all charges.
#[cold]
fn refund(plain: &[Option<PlainCheck<'_>>], decided: &[Decided], when: CheckTime) {
    for (plain, charge) in charges(plain, decided).filter(|(_, charge)| charge.charged() > 0) {
        plain.counter.generation.store().refund(plain.key, when, charge, charge.charged());
    }
}
