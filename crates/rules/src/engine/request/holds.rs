//! Units that requests hold: `hold` and `in_progress` of rules.
//!
//! ```text
//! find    release the ended holds of the request's keys; does the request take units, or settle a hold?
//! charge  as for any request, then note the charge in the book ── no room ──► the charge is refunded, and the rule denies
//! settle  later, by identity or by a request with a cost: charge what was used, and give the rest back
//! ```
//! All rules and all loads share one book. So a hold survives a load that changes its rule.

use std::collections::HashSet;
use std::time::Duration;

use tollgate::holds::HoldId;
use tollgate::internals::CheckTime;
use tollgate::internals::holding::Held;
use tollgate::internals::op::{Operation, Store};
use tollgate::{Clock, Decision, Outcome};
use tollgate_config::{Amount, Rule};

use super::answer::Answer;
use super::check::{HoldUse, Request, RequestCheck};
use super::decided::{DecidedList, ShortList};
use super::hold_check::{ends_ns, refund_hold};
use super::rule_check::{CountedBy, LinkedState, RuleCheck};
use crate::descriptor::Descriptor;
use crate::engine::state::{ActiveDomain, ActiveRule, Counter, CounterCharge, LocalCounter, Role, Rules};

/// Whether a rule is the first with its key in a request, and its hold.
type Settled = (bool, Option<(HoldId, Held<Option<CounterCharge>>)>);

impl<C: Clock> Rules<C> {
    /// Decides a request whose cost is known later: takes `units` now, and returns the identity by which
    /// [`Rules::commit`] settles them. Returns no identity if the request is denied, also in a dry run, or if none of its
    /// rules has `hold` or `in_progress`.
    ///
    /// - A rule with `hold` charges the units, and gives them back if they are not settled within `life`, or within the
    ///   rule's own `life` if that is shorter. Its holds of a key have at most `most` units together. If the units
    ///   are 0, the rule holds its own `units`.
    /// - A rule with `in_progress` counts one request, whatever its cost, until it is settled or its life has ended. If
    ///   the units are 0, it only decides whether there is room, unless its `hold` has `units`.
    /// - Every other rule charges the units, as [`Rules::check_n`] does, and keeps them.
    ///
    /// A descriptor's own cost has precedence over `units`.
    ///
    /// # Reloads
    /// A hold survives a load that keeps the identity of its rule. If the load changes the rule's numbers, a hold gives
    /// back at most the units that time had not paid under the old numbers, and at most the units in use.
    ///
    /// # Complexity
    /// That of [`Rules::check`], and O(log holds) for each rule that holds units, under a mutex that few keys share.
    /// The rules have room for 262,144 holds and requests in progress; they deny more. Allocates.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate_rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: models
    /// tollgate: {}
    /// descriptors:
    ///   - key: user
    ///     rate_limit: { unit: hour, requests_per_unit: 10000, hold: { life: 60s } }
    /// ")?;
    /// let request = [Descriptor::new(&[("user", "alice")])];
    /// let left = || rules.check_n("models", &request, 0).remaining(0);
    ///
    /// let (answer, id) = rules.hold("models", &request, 4_000, Duration::MAX);
    /// assert!(answer.is_allowed());
    /// assert_eq!(left(), 6_000);
    /// let id = id.expect("the rule holds the units");
    /// assert!(rules.commit("models", &request, id, 1_500)); // the answer had 1,500 tokens
    /// assert_eq!(left(), 8_500);
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn hold(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        units: u64,
        life: Duration,
    ) -> (Answer, Option<HoldId>) {
        let when = CheckTime::read(&self.clock);
        let mut answer = self.find_domain(domain);
        let Some(domain) = answer.domain() else { return (answer, None) };
        let Some(id) = domain.new_hold(descriptors, life, when) else {
            self.decide_request(&mut answer, &Request::of(descriptors, units), when);
            return (answer, None);
        };
        let request = Request { hold: HoldUse::As(&id), ..Request::of(descriptors, units) };
        self.decide_request(&mut answer, &request, when);
        let is_held = answer.joint.outcome == Outcome::Allowed;
        (answer, is_held.then_some(id))
    }

    /// Returns the state of the rules for these descriptors, and charges and holds nothing.
    #[must_use]
    pub fn peek(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        let when = CheckTime::read(&self.clock);
        let mut answer = self.find_domain(domain);
        let queries: ShortList<_> = descriptors.iter().map(|descriptor| descriptor.hits(0)).collect();
        let request = Request { hold: HoldUse::Nothing, ..Request::of(&queries, 0) };
        self.decide_request(&mut answer, &request, when);
        answer
    }

    /// Whether each rule that applies to these descriptors holds the units of a request: [`Rules::hold`] charges nothing
    /// that [`Rules::commit`] does not settle. It is `false` for a descriptor that sets its own limit.
    #[must_use]
    pub fn can_hold(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> bool {
        let rules = self.in_force.load();
        let Some(domain) = rules.domain(domain) else { return true };
        descriptors.iter().all(|descriptor| {
            let mut found = domain.rules_of(domain.search(descriptor)).map(|(_, active)| &*active.rule);
            let counts = |rule: &Rule| !matches!(rule.limit, Amount::Unlimited | Amount::Blocked { .. });
            descriptor.limit.is_none() && found.all(|rule| rule.hold_life().is_some() || !counts(rule))
        })
    }

    /// Settles the units that a request [held](Rules::hold): charges `actual` units to each rule with `hold`, gives the
    /// rest back, and ends the request at each rule with `in_progress`. Pass the request's descriptors. Returns whether
    /// any rule still held units under this identity.
    ///
    /// If the life of the hold has ended, or it was settled before, this call charges `actual` as of now. Units that
    /// were used are never lost: they are charged even if the limit has no room for them. `actual` has precedence over the
    /// costs of the descriptors. Call this only for a request that was admitted.
    ///
    /// # Complexity
    /// Same as [`Rules::hold`].
    pub fn commit(&self, domain: &str, descriptors: &[Descriptor<'_>], id: HoldId, actual: u64) -> bool {
        self.commit_each(domain, descriptors, id, |_| actual)
    }

    /// Does what [`Rules::commit`] does, with an actual cost for each descriptor of the request.
    pub fn commit_each(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        id: HoldId,
        actual: impl Fn(&Descriptor<'_>) -> u64,
    ) -> bool {
        let when = CheckTime::read(&self.clock);
        let rules = self.in_force.load();
        let (Some(domain), Some(book)) = (rules.domain(domain), rules.book.as_deref()) else { return false };
        let mut decided = DecidedList::new();
        let mut found = RequestCheck::new(&mut decided);
        let request = Request { hold: HoldUse::Nothing, ..Request::of(descriptors, 0) };
        found.find((&rules, domain), &request, when.ns(), &self.hasher);
        let (mut seen, mut was_held) = (HashSet::new(), false);
        // A load may have changed what the rule holds, so both are asked. A rule may have had another role when the hold began.
        let mut settled: ShortList<Settled> = ShortList::new();
        for (check, _) in found.each(|_| true) {
            let hash = check.hash_in(book, false);
            let is_first = seen.insert(hash);
            // All later decisions find the units of a hold that has ended.
            let settle = |id: HoldId, held: Held<Option<CounterCharge>>| {
                if when.ns() < id.end_ns() {
                    return (id, held);
                }
                self.with_counter(&domain.name, &check.active.rule.identity, |counter| {
                    refund_hold(counter, check.key.as_str(), &held, held.units, when);
                });
                (id, Held { charge: None, ..held })
            };
            let taken = if is_first { book.take(hash, id, settle) } else { None };
            let end = |id, _| id;
            let in_progress = if is_first { book.take(check.hash_in(book, true), id, end) } else { None };
            let lives = |id: HoldId| when.ns() < id.end_ns();
            was_held |= taken.as_ref().is_some_and(|(id, _)| lives(*id));
            was_held |= in_progress.is_some_and(lives);
            settled.push((is_first, taken));
        }
        for ((check, decided), (is_first, taken)) in found.each(|_| true).zip(settled) {
            let charges = match decided.role {
                _ if taken.is_some() => true,
                Role::Replaced => false,
                // Quota rules without room were not charged.
                Role::Quota => !was_held && check.active.rule.hold.is_some(),
                Role::Enforced | Role::Shadow => check.active.rule.hold.is_some(),
            };
            if let (true, Some(descriptor)) =
                (is_first && charges, descriptors.get(decided.descriptor as usize))
            {
                self.settle(&domain.name, check, taken, actual(descriptor), when);
            }
        }
        was_held
    }

    /// Whether any load had rules with `hold` or `in_progress`. Without them, [`Rules::check`] decides as [`Rules::hold`]
    /// does.
    #[inline]
    pub fn has_holds(&self) -> bool {
        self.has_holds.is_set()
    }

    /// Returns the number of holds and of requests in progress, including those that have ended and were not needed
    /// since.
    pub fn holds(&self) -> usize {
        self.in_force.load().holds()
    }

    /// Settles the holds of a decided request that reports its cost. Only its identity refunds a request that has one.
    #[cold]
    pub(super) fn finish_holds(
        &self,
        found: &mut RequestCheck<'_>,
        domain: &ActiveDomain,
        outcome: &mut Outcome,
        when: CheckTime,
    ) {
        let mut was_late = false;
        for (check, decided) in found.each(|role| role != Role::Replaced) {
            match check.linked.as_deref() {
                Some(LinkedState::Takes { .. }) if !check.effect.is_charged => {}
                Some(LinkedState::Takes { is_given: true, .. }) => {
                    decided.decision = decided.decision.map(Decision::uncharged);
                }
                Some(LinkedState::Takes { .. }) => {
                    decided.decision = decided.decision.map(|decision| decision.as_charge_of(check.cost));
                    // The report counts, not the query.
                    if check.active.rule.hold.is_some() {
                        check.cost = 0;
                    }
                }
                Some(&LinkedState::Settles { book, hash, actual }) => {
                    let Some(taken) = book.take_first(hash) else {
                        // Another report was first, so this one is an ordinary request.
                        check.cost = actual;
                        check.charge_late(decided, when);
                        was_late = true;
                        continue;
                    };
                    self.settle(&domain.name, check, Some(taken), actual, when);
                    if let (CountedBy::Local { counter, headroom }, Outcome::Allowed) =
                        (check.counted, decided.outcome())
                    {
                        let state = counter.peek(check.key.as_str(), 0, headroom, when);
                        (decided.decision, check.cost) = (Some(state.for_cost(actual)), actual);
                    }
                }
                _ => {}
            }
        }
        if was_late {
            *outcome = found.outcome();
        }
    }

    /// Ends what a request without an identity holds of a rule: the hold of its key that ends first, since all are alike.
    /// Returns `false` if the request's charge is an ordinary one.
    pub(super) fn give_up_first(
        &self,
        active: &ActiveRule,
        key: &str,
        domain: &ActiveDomain,
        when: CheckTime,
    ) -> bool {
        let in_progress = matches!(active.counter, Counter::InProgress(_));
        let holds = in_progress || active.rule.hold.as_ref().is_some_and(|hold| hold.units.is_some());
        let Some(book) = domain.book.as_deref().filter(|_| holds) else { return false };
        let taken = book.take_first(active.hash_in(book, in_progress, key));
        let was_held = taken.is_some();
        if let (Some((_, held)), Some(counter)) = (taken, active.counter.local()) {
            refund_hold(counter, key, &held, held.units, when);
        }
        was_held || in_progress
    }

    /// Charges `actual` units to the rule, of which `taken` holds some already.
    fn settle(
        &self,
        domain: &str,
        check: &RuleCheck<'_>,
        taken: Option<(HoldId, Held<Option<CounterCharge>>)>,
        actual: u64,
        when: CheckTime,
    ) {
        let (identity, key) = (&*check.active.rule.identity, check.key.as_str());
        let more = match &taken {
            // A hold that has ended gives all its units back, as it would without this call.
            Some((id, held)) => {
                let used = if when.ns() < id.end_ns() { actual.min(held.units) } else { 0 };
                self.with_counter(domain, identity, |counter| {
                    refund_hold(counter, key, held, held.units - used, when);
                });
                actual - used
            }
            None => actual,
        };
        if more > 0 {
            self.charge_in_any_case(domain, identity, key, more, when);
        }
    }

    fn with_counter(&self, domain: &str, identity: &str, with: impl FnOnce(&LocalCounter)) {
        let rules = self.in_force.load();
        let active = rules.domain(domain).and_then(|domain| domain.by_identity(identity));
        if let Some(counter) = active.and_then(|active| active.counter.local()) {
            with(counter);
        }
    }

    /// Charges units although the limit may have no room for them. If a load replaces the rule's counter meanwhile,
    /// charges the new one.
    fn charge_in_any_case(&self, domain: &str, identity: &str, key: &str, units: u64, when: CheckTime) {
        loop {
            let rules = self.in_force.load();
            let Some(domain) = rules.domain(domain) else { return };
            let Some(active) = domain.by_identity(identity) else { return };
            let Some(counter) = active.counter.local() else { return };
            let charge = counter.generation.apply(key, Operation::Force, when, units);
            let is_open = || counter.generation.is_open_for(&charge);
            let still_counts = |now: Option<&ActiveDomain>| active.still_counts(now);
            if charge.charged() == 0 || self.counts_charge(&rules, domain, is_open, still_counts) {
                return;
            }
            counter.generation.store().refund(key, when, &charge, charge.charged());
        }
    }
}

impl ActiveDomain {
    /// Returns the identity of a new hold of these descriptors, if any of their rules holds units.
    pub(super) fn new_hold(
        &self,
        descriptors: &[Descriptor<'_>],
        life: Duration,
        when: CheckTime,
    ) -> Option<HoldId> {
        self.book.as_ref()?;
        let rules = descriptors.iter().flat_map(|descriptor| self.rules_of(self.search(descriptor)));
        let longest = rules.filter_map(|(_, active)| active.rule.hold_life()).max()?;
        Some(HoldId::unique(ends_ns(when, life.min(longest))))
    }
}
