//! The route of one request: find its rules, charge them, settle, report.
//!
//! ```text
//! find    the rules of all descriptors: RequestCheck::find
//! charge  peek at this process's limits, if several can deny ── one denies ──► denied; no server is asked
//!           └─ ask the shared limits ── one denies ──► the others are refunded
//!               └─ charge this process's limits ── one denies because another request came first ──► all are refunded
//!                   └─ charge the limits that only report
//! settle  a load has replaced a charged counter ──► refund, and find the rules again
//! report  the outcome of each rule: RequestCheck::finish. Rules that deny the request block its keys: RuleCheck::block
//! ```
//! With `charging: count-denials`, a denied request is then charged to the limits that deny it: see
//! [`count_denials`](super::count_denials). With `charging: count-first`, the request is counted at all limits and decided
//! afterwards.
//!
//! Only the [`Caller`] knows whether it waits for the servers of shared rules. If it does not, no step waits, so the future
//! is ready at its first poll.

use std::pin::pin;

use tollgate::internals::CheckTime;
use tollgate::internals::sync::Loaded;
use tollgate::{Clock, Outcome, Timestamp};

use super::answer::Answer;
use super::check::{Peek, Request, RequestCheck};
use super::decided::Few;
use super::report::Reporting;
use super::rule_check::{CountedBy, RuleCheck};
use crate::counting::{MayWait, ready};
use crate::engine::state::{ActiveDomain, DomainId, Part, RuleSet, Rules, RulesAt, WithoutRule};
use crate::matching::Descriptor;
use crate::rule::Charging;
use crate::telemetry::request_without_rule;

/// Who sends a request to the rules, and how it asks those that processes share. A caller that does not wait is the time of
/// its request.
pub(in crate::engine) trait Caller {
    /// Whether it waits for servers.
    const WAITS: bool;

    /// The time of the next step.
    fn now(&self) -> CheckTime;

    /// Peeks at the rules that [`RequestCheck::peeks`] returns, and records the answers.
    async fn peek(&mut self, check: &mut RequestCheck<'_>);

    /// Charges the rules that `is_asked` selects by their parts, and records the answers.
    async fn charge(&mut self, check: &mut RequestCheck<'_>, is_asked: fn(&RuleCheck<'_>, Part) -> bool);

    /// Refunds all charges.
    async fn refund(&mut self, check: &mut RequestCheck<'_>);

    /// Charges the denied request to the rules that deny it.
    async fn count_denials(&mut self, check: &mut RequestCheck<'_>);

    /// Keeps all charges: the decision is final.
    fn keep(&mut self) {}

    /// Refunds all charges that were not kept: the caller no longer waits.
    fn abandon(&mut self, _: &mut RequestCheck<'_>) {}
}

/// Asks shared rules one after the other. Only rules of a client for threads wait, and they block the thread.
impl Caller for CheckTime {
    const WAITS: bool = false;

    #[inline]
    fn now(&self) -> CheckTime {
        *self
    }

    async fn peek(&mut self, check: &mut RequestCheck<'_>) {
        for Peek { place, cost } in check.peeks() {
            if let Some((check, decided)) = check.at(place)
                && let CountedBy::Shared(shared) = check.counted
                && let Some(Some(peeked)) = shared.limiter.peek(check.key.as_str(), cost, MayWait::No).now()
            {
                check.record_peek(decided, peeked);
            }
        }
    }

    /// Each rule is asked when it is charged, so that none is asked after one that denies.
    async fn charge(&mut self, _: &mut RequestCheck<'_>, _: fn(&RuleCheck<'_>, Part) -> bool) {}

    async fn refund(&mut self, check: &mut RequestCheck<'_>) {
        check.each(|_| true).for_each(|(check, decided)| check.refund(decided, *self));
    }

    async fn count_denials(&mut self, check: &mut RequestCheck<'_>) {
        for (check, shared) in check.shared_denials() {
            let _ = shared.limiter.count_denied(check.key.as_str(), check.cost, MayWait::No);
            check.effect.is_denial_counted = true;
        }
    }
}

/// A request while its rules are charged.
pub(in crate::engine) struct Route<'a, 'r, W: Caller> {
    pub(in crate::engine) check: RequestCheck<'r>,
    pub(in crate::engine) caller: &'a mut W,
}

impl<W: Caller> Drop for Route<'_, '_, W> {
    #[inline]
    fn drop(&mut self) {
        self.caller.abandon(&mut self.check);
    }
}

impl<W: Caller> Route<'_, '_, W> {
    /// Decides the request, and charges it if it is admitted.
    #[inline]
    pub(in crate::engine) async fn decide(&mut self, charging: Charging) -> Outcome {
        if charging == Charging::CountFirst {
            if self.check.has_shared {
                self.caller.charge(&mut self.check, |_, part| part != Part::Replaced).await;
            }
            self.check.count(self.caller.now());
            return self.check.outcome();
        }
        let admitted = self.all_or_nothing().await;
        if charging == Charging::CountDenials {
            self.check.count_denials(admitted, self.caller.now());
        }
        if admitted { Outcome::Allowed } else { self.check.outcome() }
    }

    /// Charges all enforced rules, or none. Among rules with `quota_mode`, it charges those with quota left, and at
    /// least one must have some. Returns whether the request is admitted.
    #[inline]
    async fn all_or_nothing(&mut self) -> bool {
        let several = self.check.has_several();
        let admitted = (!several || self.peek().await) && self.charge().await;
        if several && !admitted && self.check.is_charged() {
            self.refund().await;
            self.check.peek_again(self.caller.now());
        }
        if admitted && self.check.has_shared {
            self.caller.charge(&mut self.check, |_, part| part == Part::Shadow).await;
        }
        self.check.report_only(admitted, self.caller.now());
        admitted
    }

    /// Peeks at the rules that can deny, as far as a peek is useful. Returns whether none of them denies.
    #[inline]
    async fn peek(&mut self) -> bool {
        let admits = self.check.peek_at_others(self.caller.now());
        if admits && self.check.has_shared {
            self.caller.peek(&mut self.check).await;
            return self.check.may_continue();
        }
        admits
    }

    /// Charges the rules that can deny, until one does. Returns whether none of them denies.
    #[inline]
    async fn charge(&mut self) -> bool {
        if self.check.has_shared {
            self.caller
                .charge(&mut self.check, |check, part| part.refuses() && check.counted.can_refund())
                .await;
            if self.check.outcome() == Outcome::Allowed {
                self.caller.charge(&mut self.check, |_, part| part.refuses()).await;
            }
            if self.check.outcome() != Outcome::Allowed {
                return false;
            }
        }
        self.check.charge_all(self.caller.now())
            && (!self.check.has_holds() || self.check.keep_holds(Part::refuses, self.caller.now()))
    }

    async fn refund(&mut self) {
        self.check.refund_here(self.caller.now());
        if self.check.has_shared {
            self.caller.refund(&mut self.check).await;
        }
    }
}

impl<C: Clock> Rules<C> {
    /// Decides a request with these descriptors. Charges all rules that apply, or none.
    ///
    /// A request is admitted if its domain has no rules, or if no rule applies to its descriptors. Call
    /// [`Rules::require_domain`] once to make sure that the domain exists and that no reload removes it.
    ///
    /// # Shared rules
    /// With an async client, this method never waits. **A rule with `store: redis, mode: atomic` is then not asked**:
    /// it decides by its `on_failure`, as if the server did not answer, and its metrics count it so. Rules in the other
    /// modes decide from the units that this process holds. Use `check_async` for `atomic` rules; with a blocking
    /// client, this method waits for them. See [the guide](https://docs.rs/crate/tollgate/latest/source/docs/rules.md).
    ///
    /// # Complexity
    /// One search for each descriptor by its entries, and one check of a store for each rule that applies. The search
    /// takes constant time, except for wildcards that begin with `*`. Never allocates for up to two rules that count by
    /// one value each. Takes no lock.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.decide_by_name(domain, descriptors, 1, CheckTime::read(&self.clock))
    }

    /// Does what [`Rules::check`] does for a request that costs `hits`, unless its descriptors set a cost. A cost of 0
    /// only peeks. (A server of Envoy's protocol must pass 1 if a request's `hits_addend` is 0, but 0 if a descriptor's
    /// `hits_addend` is 0.)
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check_n(&self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.decide_by_name(domain, descriptors, hits, CheckTime::read(&self.clock))
    }

    /// Returns these rules at a time that the caller gives, to check requests and to replace rules.
    #[inline(always)]
    pub const fn at(&self, now: Timestamp) -> RulesAt<'_, C> {
        RulesAt { rules: self, now }
    }

    #[inline(always)]
    fn decide_by_name(
        &self,
        name: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        when: CheckTime,
    ) -> Answer {
        self.decide(self.in_force.load(), DomainId::Name(name), descriptors, hits, when)
    }
}

impl<C: Clock> RulesAt<'_, C> {
    /// [`Rules::check`] at this time.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check(self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.check_n(domain, descriptors, 1)
    }

    /// [`Rules::check_n`] at this time.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check_n(self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.rules.decide_by_name(domain, descriptors, hits, CheckTime::given(self.now))
    }
}

impl<C: Clock> Rules<C> {
    /// Returns the answer of an admitted request to which no rule applies.
    #[inline]
    pub(in crate::engine) fn undecided(&self, rules: Loaded<RuleSet>, domain: Option<u32>) -> Answer {
        Answer::new(rules, domain, Outcome::Allowed, self.options.shadow, Few::new())
    }

    /// Returns the answer before any rule has decided, with the rules in force.
    pub(super) fn find_domain(&self, name: &str) -> Answer {
        let rules = self.in_force.load();
        match rules.domain(name).map(|domain| domain.index) {
            None => self.unknown_domain(rules, DomainId::Name(name)),
            domain => self.undecided(rules, domain),
        }
    }

    /// Decides a request without waiting.
    #[inline(always)]
    pub(super) fn decide(
        &self,
        rules: Loaded<RuleSet>,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        when: CheckTime,
    ) -> Answer {
        if let Ok(both) = descriptors.try_into() {
            return self.decide_two(rules, domain, both, hits, when);
        }
        match descriptors {
            [one] => self.decide_one(rules, domain, one, hits, when),
            _ => {
                let Some(index) = rules.domain_of(domain).map(|domain| domain.index) else {
                    return self.unknown_domain(rules, domain);
                };
                let mut answer = self.undecided(rules, Some(index));
                self.decide_any(&mut answer, Request::of(descriptors, &[], hits), when);
                answer
            }
        }
    }

    /// Returns the answer to a request with a domain that has no rules.
    #[cold]
    pub(super) fn unknown_domain(&self, rules: Loaded<RuleSet>, domain: DomainId<'_>) -> Answer {
        self.reloads.unknown_domain();
        let outcome = self.decide_without_rule(&rules, domain, &[]);
        let mut answer = self.undecided(rules, None);
        answer.outcome = outcome;
        answer
    }

    /// Decides a request with rules of any kind and number.
    #[inline(never)]
    pub(super) fn decide_any(&self, answer: &mut Answer, request: Request<'_, '_>, when: CheckTime) {
        // Pinned here, because `ready` would move it, and it is large.
        ready(pin!(self.route(answer, request, &mut { when })));
    }

    /// Takes a request along the route, to the answer.
    pub(super) async fn route<W: Caller>(
        &self,
        answer: &mut Answer,
        mut request: Request<'_, '_>,
        caller: &mut W,
    ) {
        loop {
            let Answer { rules, domain, outcome, shadow, quota_rules_deny, longest_other_wait, decided } =
                &mut *answer;
            let Some(domain) = domain.and_then(|index| rules.domain_at(index)) else { return };
            domain.note_asked();
            let mut route = Route { check: RequestCheck::new(decided), caller: &mut *caller };
            route.check.find((&**rules, domain), &request, route.caller.now().ns(), &self.hasher);
            if route.check.is_empty() {
                let index = DomainId::Index(domain.index);
                *outcome = self.decide_without_rule(rules, index, request.descriptors);
                *shadow |= domain.shadow;
                route.caller.keep();
                return;
            }
            let is_timed = !W::WAITS || !route.check.has_shared;
            let start = if is_timed { domain.timer.start() } else { None };
            *outcome = route.decide(domain.charging).await;
            domain.timer.stop(start);
            if !self.is_outdated(&route.check, rules, domain) {
                route.caller.keep();
                if domain.charging == Charging::CountDenials && route.check.has_shared {
                    route.caller.count_denials(&mut route.check).await;
                }
                *shadow |= domain.shadow;
                let when = route.caller.now();
                if route.check.has_holds() {
                    self.finish_holds(&mut route.check, domain, outcome, when);
                }
                *quota_rules_deny = route.check.all_quota_rules_deny();
                let reporting = Reporting {
                    domain,
                    descriptors: request.descriptors,
                    outcome: *outcome,
                    shadow: *shadow,
                    quota_rules_deny: *quota_rules_deny,
                    observers: &self.observers,
                };
                *longest_other_wait = route.check.finish(&reporting, when);
                return;
            }
            route.refund().await;
            let next = self.find_domain(&domain.name);
            drop(route);
            *answer = next;
            request.searched = &[];
        }
    }

    /// Whether a check charged a counter that no longer counts. Either a load replaced the rules in the meantime, or a
    /// request was the first to set its own limit, which counts together with the charged rule.
    #[inline]
    fn is_outdated(&self, check: &RequestCheck<'_>, rules: &Loaded<RuleSet>, domain: &ActiveDomain) -> bool {
        let still_counts = |now: Option<&ActiveDomain>| check.still_counts(now);
        check.is_charged()
            && (!self.counts_charge(rules, domain, || check.is_open(), still_counts)
                || check.missed_new_twin(domain))
    }

    /// Whether a charge to rules of a domain counts: see [`Published::counts_charge`]. `still_counts` tells it for the rules of
    /// the domain that are in force now.
    ///
    /// [`Published::counts_charge`]: tollgate::internals::migrate::Published::counts_charge
    #[inline(always)]
    pub(super) fn counts_charge(
        &self,
        rules: &RuleSet,
        domain: &ActiveDomain,
        is_open: impl FnOnce() -> bool,
        still_counts: impl FnOnce(Option<&ActiveDomain>) -> bool,
    ) -> bool {
        self.in_force.counts_charge(rules, is_open, |now| still_counts(now.domain(&domain.name)))
    }

    /// Decides a request to which no rule applies, and logs it.
    #[inline]
    pub(super) fn decide_without_rule(
        &self,
        rules: &RuleSet,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>],
    ) -> Outcome {
        match self.options.without_rule {
            WithoutRule::Admit => Outcome::Allowed,
            WithoutRule::Log | WithoutRule::Deny => self.decide_and_note(rules, domain, descriptors),
        }
    }

    #[cold]
    fn decide_and_note(
        &self,
        rules: &RuleSet,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>],
    ) -> Outcome {
        if !is_exempt(rules, domain, descriptors) {
            note(rules, domain, descriptors, self.options.without_rule == WithoutRule::Deny);
        }
        self.outcome_without_rule(rules, domain, descriptors)
    }

    /// Returns the outcome of a request to which no rule applies.
    #[cold]
    pub(in crate::engine) fn outcome_without_rule(
        &self,
        rules: &RuleSet,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>],
    ) -> Outcome {
        let denies = self.options.without_rule == WithoutRule::Deny;
        if denies && !is_exempt(rules, domain, descriptors) { Outcome::Never } else { Outcome::Allowed }
    }
}

/// The most descriptors of a request, and entries of each, that the log names.
const LOGGED: usize = 8;

/// Whether a descriptor without a limit exempts a request.
#[cold]
fn is_exempt(rules: &RuleSet, domain: DomainId<'_>, descriptors: &[Descriptor<'_>]) -> bool {
    let Some(domain) = rules.domain_of(domain) else { return false };
    descriptors.iter().any(|descriptor| domain.tree().exempts(descriptor.entries()))
}

/// Logs the first request of a domain to which no rule applies.
fn note(rules: &RuleSet, domain: DomainId<'_>, descriptors: &[Descriptor<'_>], is_denied: bool) {
    let active = rules.domain_of(domain);
    let noted = active.map_or(&rules.unknown_noted, |domain| &domain.without_rule_noted);
    if noted.set() {
        return;
    }
    let name = match (active, domain) {
        (Some(domain), _) => &domain.name,
        (None, DomainId::Name(name)) => name,
        (None, DomainId::Index(_)) => "",
    };
    let keys = |descriptor: &Descriptor<'_>| {
        let keys = descriptor.entries().iter().take(LOGGED).map(|(key, _)| *key);
        keys.collect::<Vec<_>>().join(".")
    };
    let keys = descriptors.iter().take(LOGGED).map(keys).collect::<Vec<_>>().join(", ");
    request_without_rule(name, &keys, is_denied);
}
