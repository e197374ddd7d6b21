//! Combines the decisions of all rules that apply to one request.
//!
//! 1. [`RequestCheck::find`] finds the rules. For each rule, it determines the counter, the key and the cost once.
//! 2. The check charges all rules or none. With `charging: count-first`, it counts first and decides afterwards.
//! 3. The check reports the outcome.

use std::time::Duration;

use smallvec::SmallVec;

use super::answer::{Decided, Few, Part, Summary};
use super::counter::{Counter, LocalCounter, SharedCounter};
use super::overrides;
use super::rule_check::RuleCheck;
use super::rule_set::{ActiveDomain, ActiveRule};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::edge::rules::counting::Hasher;
use crate::edge::rules::counting::{Wait, ready};
use crate::edge::rules::matching::{CounterKey, Descriptor};
use crate::edge::rules::rule::{Amount, Charging, MILLION, Unit};
use crate::edge::telemetry::{DenialLog, TopDenied};
use crate::store::op::Store;

/// The observers of denials.
#[derive(Debug, Default)]
pub(super) struct Observers {
    pub(super) top: Option<TopDenied>,
    pub(super) log: DenialLog,
}

/// The counter of a rule in one request.
#[derive(Copy, Clone, Debug)]
pub(super) enum CountedBy<'r> {
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
            (Counter::Unlimited(_), _) => Self::Nothing,
            (Counter::Blocked { period, .. }, _) => Self::Blocked(*period),
        }
    }

    /// Whether a charge can be refunded.
    pub(super) fn undoes(self) -> bool {
        match self {
            Self::Local { counter, .. } => counter.undoes,
            Self::Shared(shared) => shared.limiter.can_refund(),
            Self::Nothing | Self::Blocked(_) => false,
        }
    }

    pub(super) const fn is_shared(self) -> bool {
        matches!(self, Self::Shared(_))
    }
}

/// The only rule that applies to a descriptor, if its counter alone decides: see [`ActiveRule::plain`].
#[derive(Copy, Clone, Debug)]
pub(super) struct PlainCheck<'r> {
    pub(super) rule: u32,
    pub(super) active: &'r ActiveRule,
    pub(super) counter: &'r LocalCounter,
    key: &'r str,
    cost: u64,
}

impl<'r> PlainCheck<'r> {
    #[inline(always)]
    pub(super) fn find(
        domain: &'r ActiveDomain,
        descriptor: &Descriptor<'r>,
        hits: u64,
        when: CheckTime,
    ) -> Option<Self> {
        let (rule, active) = domain.alone(descriptor)?;
        let (counter, key) = active.plain(domain, descriptor)?;
        let cost = descriptor.cost(hits);
        if cost == 0 || counter.is_taking_over(when) {
            return None;
        }
        active.matched.set();
        Some(Self { rule, active, counter, key, cost })
    }

    /// Charges a request if it is admitted.
    #[inline]
    pub(super) fn charge(&self, when: CheckTime) -> Decision {
        self.counter.generation.store().check(self.key, when, self.cost)
    }

    /// Returns the decision that a charge would give, and charges nothing.
    #[inline]
    pub(super) fn look(&self, when: CheckTime) -> Decision {
        self.counter.generation.store().peek(self.key, when, self.cost)
    }

    /// Counts an admitted charge, and adds it to the answer.
    // Not inlined: the callers would copy the decision once more.
    #[inline(never)]
    pub(super) fn admitted(&self, place: u32, charge: &Decision, decided: &mut Few<Decided>) {
        self.active.meters.observe_allowed(charge);
        decided.push(Decided::new(self.rule, place, *charge));
    }

    /// Refunds a charge, if there is one.
    #[cold]
    pub(super) fn refund(&self, charge: &Decision, when: CheckTime) {
        if charge.charged() > 0 {
            self.counter.generation.store().refund(self.key, when, charge, charge.charged());
        }
    }
}

/// The rules that apply to a request, decided together. It holds their keys and costs, and writes their results
/// directly into the answer, because the answer is large.
#[derive(Debug)]
pub(super) struct RequestCheck<'r> {
    pub(super) rules: SmallVec<[RuleCheck<'r>; 2]>,
    decided: &'r mut Few<Decided>,
    /// The parts that the rules take: one bit for each [`Part`].
    parts: u8,
    /// Whether some rules are shared by processes.
    has_shared: bool,
    /// Whether a descriptor counts as a quota that always has room.
    has_room: bool,
}

impl<'r> RequestCheck<'r> {
    /// Creates a check without rules; `decided` is empty.
    #[inline]
    pub(super) fn new(decided: &'r mut Few<Decided>) -> Self {
        Self { rules: SmallVec::new(), decided, parts: 0, has_shared: false, has_room: false }
    }

    /// Adds the rules that apply to any of the descriptors. Works in place, because a check is too large to move.
    #[inline]
    pub(super) fn find(
        &mut self,
        domain: &'r ActiveDomain,
        descriptors: &[Descriptor<'r>],
        cost: u64,
        now_ns: u64,
        hasher: &Hasher,
    ) {
        let mut replaces = false;
        for (descriptor, place) in descriptors.iter().zip(0..) {
            let cost = descriptor.cost(cost);
            if let Some(own) = descriptor.limit {
                self.add_own(domain, descriptor, place, cost, own, hasher);
                continue;
            }
            for (index, active) in domain.find(descriptor) {
                let check = RuleCheck::new(domain, active, descriptor, cost);
                let part = active.part.unwrap_or_else(|| part_of(active, &check.key, index, now_ns, hasher));
                replaces |= !active.rule.replaces.is_empty();
                self.add(check, Decided::not_yet(index, place, part));
            }
        }
        if replaces {
            self.replace();
        }
        if domain.quota {
            self.make_quotas(descriptors.len());
        }
    }

    /// Makes all rules that can deny quotas. A descriptor to which no rule applies is a quota with room, and so is one
    /// with a replaced rule.
    #[cold]
    fn make_quotas(&mut self, descriptors: usize) {
        for (check, decided) in self.rules.iter().zip(&mut *self.decided) {
            if decided.part == Part::Enforced && check.active.rule.limit != Amount::Unlimited {
                decided.part = Part::Quota;
                self.parts |= 1 << Part::Quota as u8;
            }
        }
        let has_rule = |place: usize| self.decided.iter().any(|decided| decided.descriptor as usize == place);
        self.has_room = self.of(Part::Replaced).next().is_some() || !(0..descriptors).all(has_rule);
    }

    #[inline]
    fn add(&mut self, check: RuleCheck<'r>, decided: Decided) {
        self.parts |= 1 << decided.part as u8;
        self.has_shared |= check.counted.is_shared();
        self.rules.push(check);
        self.decided.push(decided);
    }

    /// Adds the limit that a descriptor sets.
    #[cold]
    fn add_own(
        &mut self,
        domain: &'r ActiveDomain,
        descriptor: &Descriptor<'r>,
        place: u32,
        cost: u64,
        (requests, unit): (u32, Unit),
        hasher: &Hasher,
    ) {
        let Some(active) = domain.override_of(unit, hasher) else { return };
        let mut of_unit = domain.find(descriptor).filter(|(_, rule)| rule.unit == Some(unit));
        let twin = of_unit.find_map(|(_, rule)| Some((rule.counter.local()?, rule.key(domain, descriptor))));
        let twin = twin.map(Box::new);
        let counted = CountedBy::of(active, Some(requests), domain.charging);
        let key = domain.key_of_request(descriptor);
        let check = RuleCheck { is_own: true, twin, ..RuleCheck::with(domain, active, counted, key, cost) };
        self.add(check, Decided::not_yet(overrides::index(unit), place, Part::Enforced));
    }

    /// Disables the rules that other rules replace.
    #[cold]
    fn replace(&mut self) {
        // The names, each with whether only rules that report replace it. Sorted, because one descriptor may have thousands
        // of limits.
        let mut replaced: SmallVec<[(&str, bool); 8]> = SmallVec::new();
        for (check, decided) in self.rules.iter().zip(&*self.decided) {
            let only_reports = decided.part == Part::Shadow;
            replaced.extend(check.active.rule.replaces.iter().map(|name| (&**name, only_reports)));
        }
        replaced.sort_unstable();
        for (check, decided) in self.rules.iter().zip(&mut *self.decided) {
            let rule = &check.active.rule;
            // A rule without a limit stays unchanged, even if another rule replaces it.
            if !rule.is_named || rule.limit == Amount::Unlimited {
                continue;
            }
            let first = replaced.partition_point(|(name, _)| **name < *rule.name);
            // A rule that only reports cannot disable a rule that denies.
            let by = |&(name, only_reports): &(&str, bool)| {
                *name == *rule.name && (!only_reports || decided.part == Part::Shadow)
            };
            if replaced.get(first).is_some_and(by) {
                decided.part = Part::Replaced;
            }
        }
    }

    /// Decides the request, and charges it if it is admitted.
    #[inline]
    pub(super) fn decide(&mut self, charging: Charging, when: CheckTime) -> Outcome {
        if charging == Charging::CountFirst {
            self.count(when);
            return self.outcome();
        }
        let admitted = self.all_or_nothing(when);
        if charging == Charging::CountDenials {
            self.count_denials(admitted, when);
        }
        if admitted { Outcome::Allowed } else { self.outcome() }
    }

    /// Returns the combined outcome. If a rule can never admit the request, the outcome is "never".
    pub(super) fn outcome(&self) -> Outcome {
        let outcome = self.of(Part::Enforced).map(Decided::outcome).fold(Outcome::Allowed, worse);
        if self.all_quota_rules_deny() {
            // One rule with quota left is enough.
            let is_never = self.of(Part::Quota).all(|decided| decided.outcome() == Outcome::Never);
            return worse(outcome, if is_never { Outcome::Never } else { Outcome::Denied });
        }
        outcome
    }

    /// Returns how long rules that admitted and counted a denied request would deny the same request.
    #[cold]
    fn longest_other_wait(&mut self, when: CheckTime) -> Duration {
        let admitted =
            |decided: &Decided| decided.part == Part::Enforced && decided.outcome() == Outcome::Allowed;
        let waits = self.each(|_| true).filter(|(_, decided)| admitted(decided));
        let waits = waits.filter_map(|(check, _)| check.looked(check.cost, when)?.retry_after());
        waits.max().unwrap_or_default()
    }

    fn of(&self, part: Part) -> impl Iterator<Item = &Decided> {
        self.decided.iter().filter(move |decided| decided.part == part)
    }

    /// Returns the rules with this part.
    pub(super) fn each(
        &mut self,
        part: impl Fn(Part) -> bool,
    ) -> impl Iterator<Item = (&mut RuleCheck<'r>, &mut Decided)> {
        self.rules.iter_mut().zip(&mut *self.decided).filter(move |(_, decided)| part(decided.part))
    }

    /// Whether there are rules with `quota_mode` and none of them has quota left. A rule that only reports always has
    /// quota left.
    #[inline]
    pub(super) fn all_quota_rules_deny(&self) -> bool {
        self.has(Part::Quota) && !self.has_room && self.every_quota_rule_denies()
    }

    /// Whether rules had this part when they were found.
    #[inline]
    fn has(&self, part: Part) -> bool {
        self.parts >> part as u8 & 1 == 1
    }

    fn every_quota_rule_denies(&self) -> bool {
        let mut reports =
            self.rules.iter().zip(&*self.decided).filter(|(_, decided)| decided.part == Part::Shadow);
        self.of(Part::Quota).count() > 0
            && self.of(Part::Quota).all(|decided| decided.outcome() != Outcome::Allowed)
            && !reports.any(|(check, _)| Part::of_enforced(&check.active.rule) == Part::Quota)
    }

    /// Charges all enforced rules, or none. Among rules with `quota_mode`, it charges those with quota left, and at
    /// least one must have some. Returns whether the request is admitted.
    fn all_or_nothing(&mut self, when: CheckTime) -> bool {
        // A single limit is charged directly.
        let several = self.each(Part::refuses).count() > 1;
        let admits = !several || (self.peek_at_others(when) && (!self.has_shared || self.peek_at_shared()));
        let admitted = admits && self.charge_all(when);
        if several && !admitted && self.charged() {
            self.undo(when, true);
            self.peek_again(when);
        }
        self.report_only(admitted, when);
        admitted
    }

    /// Counts first and decides afterwards.
    pub(super) fn count(&mut self, when: CheckTime) {
        self.each(|part| part != Part::Replaced).for_each(|(check, decided)| check.count(decided, when));
    }

    /// Peeks again at the rules whose charges were refunded. A rule that denied keeps its decision: it might admit the
    /// request by now, but nothing is charged for that.
    pub(super) fn peek_again(&mut self, when: CheckTime) {
        for (check, decided) in self.each(Part::refuses) {
            if decided.outcome() == Outcome::Allowed {
                check.look(decided, 0, when);
            }
        }
    }

    /// Decides the rules that only report. They are charged if the request is admitted.
    pub(super) fn report_only(&mut self, admitted: bool, when: CheckTime) {
        if !self.has(Part::Shadow) {
            return;
        }
        for (check, decided) in self.each(|part| part == Part::Shadow) {
            if admitted {
                check.charge(decided, when);
            } else {
                check.look(decided, 0, when);
            }
        }
    }

    /// Peeks at all rules that can deny. Each peek includes the rule's own cost and the costs that earlier rules would
    /// charge to the same key.
    pub(super) fn peek_together(&mut self, when: CheckTime) {
        for place in 0..self.rules.len() {
            self.look_at(place, when);
        }
    }

    /// Peeks at all rules that can deny. Returns whether none of them does. The rule that is charged first is peeked at
    /// only if another rule denies, because its charge gives the same information.
    fn peek_at_others(&mut self, when: CheckTime) -> bool {
        let is_simple = |(check, decided): (&RuleCheck<'_>, &Decided)| {
            decided.part == Part::Enforced && check.twin.is_none() && check.counted.undoes()
        };
        let first = match self.rules.iter().zip(&*self.decided).position(is_simple) {
            Some(first) if !self.has_shared && !self.has(Part::Quota) => first,
            _ => usize::MAX,
        };
        for place in (0..self.rules.len()).filter(|place| *place != first) {
            self.look_at(place, when);
        }
        let admits = self.outcome() == Outcome::Allowed;
        if !admits {
            self.look_at(first, when);
        }
        admits
    }

    #[inline]
    fn look_at(&mut self, place: usize, when: CheckTime) {
        let other_cost = self.cost_of_earlier_rules(place, |_| true);
        if let Some((check, decided)) = self.at(place)
            && decided.part.refuses()
        {
            check.look(decided, other_cost, when);
        }
    }

    /// Peeks at shared rules whose charges cannot be refunded, if there are several. Returns whether none of them
    /// denies.
    fn peek_at_shared(&mut self) -> bool {
        for (place, cost) in self.rules_to_peek_at() {
            if let Some((check, decided)) = self.at(place)
                && let CountedBy::Shared(shared) = check.counted
                && let Some(looked) = ready(shared.limiter.peek(check.key.as_str(), cost, Wait::No))
            {
                check.record_answer(decided, looked);
            }
        }
        self.may_continue()
    }

    /// Returns the rules that need a peek before they are charged, each with the cost of the peek.
    pub(super) fn rules_to_peek_at(&self) -> Few<(usize, u64)> {
        let must = |(check, decided): (&RuleCheck<'_>, &Decided)| {
            decided.part.refuses() && check.counted.is_shared() && check.cost > 0 && !check.counted.undoes()
        };
        let all = self.rules.iter().zip(&*self.decided).enumerate().filter(|(_, both)| must(*both));
        let cost = |place, cost: u64| cost.saturating_add(self.cost_of_earlier_rules(place, Part::refuses));
        let all: Few<_> = all.map(|(place, (check, _))| (place, cost(place, check.cost))).collect();
        if all.len() > 1 { all } else { Few::new() }
    }

    /// Returns the units that earlier rules with this part would charge to the same key.
    fn cost_of_earlier_rules(&self, place: usize, part: impl Fn(Part) -> bool) -> u64 {
        let Some((check, before)) = self.rules.get(..=place).and_then(<[_]>::split_last) else { return 0 };
        let same = before.iter().zip(&*self.decided).filter(|(_, decided)| part(decided.part));
        let same = same.filter(|(other, _)| {
            std::ptr::eq(other.active, check.active) && other.key.as_str() == check.key.as_str()
        });
        same.fold(0, |sum, (other, _)| sum.saturating_add(other.cost))
    }

    /// Returns whether the request may continue after a peek at shared rules. If it may, the check still has to ask
    /// those rules.
    pub(super) fn may_continue(&mut self) -> bool {
        let admits = self.outcome() == Outcome::Allowed;
        for (_, decided) in self.each(Part::refuses).filter(|(check, _)| admits && check.counted.is_shared())
        {
            (decided.decision, decided.by) = (None, None);
        }
        admits
    }

    /// Charges first the rules that can refund. Returns whether the request is admitted.
    pub(super) fn charge_all(&mut self, when: CheckTime) -> bool {
        for undoes in [true, false] {
            for (check, decided) in self.each(|part| part == Part::Enforced) {
                if check.counted.undoes() == undoes {
                    check.charge(decided, when);
                    if decided.outcome() != Outcome::Allowed {
                        return false;
                    }
                }
            }
        }
        if self.has(Part::Quota) {
            self.each(|part| part == Part::Quota).for_each(|(check, decided)| check.charge(decided, when));
        }
        !self.all_quota_rules_deny()
    }

    /// Whether any rule was charged.
    #[inline]
    pub(super) fn charged(&self) -> bool {
        self.rules.iter().any(|check| check.charged)
    }

    /// Refunds the charges as far as possible: to counters of this process, and to shared ones if `and_shared` is set.
    pub(super) fn undo(&mut self, when: CheckTime, and_shared: bool) {
        for (check, decided) in self.each(|_| true) {
            if and_shared || !check.counted.is_shared() {
                check.undo(decided, when);
            }
        }
    }

    /// Returns a rule and its decision, by index.
    pub(super) fn at(&mut self, place: usize) -> Option<(&mut RuleCheck<'r>, &mut Decided)> {
        Some((self.rules.get_mut(place)?, self.decided.get_mut(place)?))
    }

    /// Whether the counters of all charged rules are open, so that no load replaces them. Records the charges if not. A
    /// shared counter is never open.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        let mut is_open = true;
        for (check, decided) in self.rules.iter().zip(&*self.decided) {
            if check.charged && !check.is_own {
                // Each of them is asked, because each one records its charge.
                is_open &= check.is_open_for(decided);
            }
        }
        is_open
    }

    /// Whether the rules of a newer load use the same counters as these rules.
    pub(super) fn still_counts(&self, domain: Option<&ActiveDomain>) -> bool {
        let mut charged = self.rules.iter().filter(|check| check.charged && !check.is_own);
        charged.all(|check| check.active.still_counts(domain))
    }

    /// Whether a request has set the first limit of its unit in the meantime, and that limit counts together with one
    /// of these rules.
    #[inline]
    pub(super) fn missed_new_twin(&self, domain: &ActiveDomain) -> bool {
        self.rules.iter().any(|check| check.missed_new_twin(domain))
    }

    /// Reports the outcome of each rule, and returns the combined result.
    #[inline]
    pub(super) fn finish(
        &mut self,
        domain: &ActiveDomain,
        descriptors: &[Descriptor<'_>],
        (outcome, shadow): (Outcome, bool),
        when: CheckTime,
        to: &Observers,
    ) -> Summary {
        let (shadow, quota_rules_deny) = (shadow || domain.shadow, self.all_quota_rules_deny());
        let mut summary = Summary { quota_rules_deny, ..Summary::new(outcome, shadow) };
        for (check, decided) in self.each(|part| part != Part::Replaced) {
            check.report(decided, domain, descriptors, &summary, to);
        }
        if (domain.charging, outcome) == (Charging::CountFirst, Outcome::Denied) {
            summary.longest_other_wait = self.longest_other_wait(when);
        }
        summary
    }
}

impl Decided {
    /// Returns the decision on a descriptor by a rule that denies and that this process counts.
    #[inline]
    pub(super) const fn new(rule: u32, descriptor: u32, decision: Decision) -> Self {
        Self { rule, descriptor, part: Part::Enforced, soft: false, decision: Some(decision), by: None }
    }

    #[inline]
    fn not_yet(rule: u32, descriptor: u32, part: Part) -> Self {
        Self { rule, descriptor, part, soft: false, decision: None, by: None }
    }

    #[inline]
    pub(super) fn outcome(&self) -> Outcome {
        self.decision.as_ref().map_or(Outcome::Allowed, Decision::outcome)
    }
}

/// Returns the part of a rule that is enforced for a share of its keys only. A hash of the key selects the keys. If all
/// requests share one counter, a hash of the time selects the requests.
#[cold]
fn part_of(active: &ActiveRule, key: &CounterKey<'_>, index: u32, now_ns: u64, hasher: &Hasher) -> Part {
    let rule = &active.rule;
    let hash = match rule.has_one_counter() {
        true => hasher.hash_one((index, now_ns)),
        // All processes that share the rule select the same keys.
        #[cfg(feature = "redis")]
        false if rule.is_shared() => crate::edge::rules::counting::key_hash(&rule.identity, key.as_str()),
        false => hasher.hash_one((&rule.identity, key.as_str())),
    };
    // Scales the top bits of the hash to a number of millionths.
    let part = (u128::from(hash) * u128::from(MILLION)) >> u64::BITS;
    let is_enforced = part < u128::from(rule.enforced_per_million);
    if is_enforced { Part::of_enforced(rule) } else { Part::Shadow }
}

fn worse(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Never, _) | (_, Outcome::Never) => Outcome::Never,
        (Outcome::Denied, _) | (_, Outcome::Denied) => Outcome::Denied,
        _ => Outcome::Allowed,
    }
}
