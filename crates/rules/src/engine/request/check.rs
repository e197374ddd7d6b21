//! All rules that apply to one request: what they decide together.
//!
//! [`RequestCheck::find`] finds the rules. For each rule, it determines the counter, the key and the cost once. The other
//! methods are the steps of the [route](super::route).

use std::time::Duration;

use smallvec::SmallVec;
use tollgate::Outcome;
use tollgate::holds::HoldId;
use tollgate::internals::CheckTime;
use tollgate::internals::op::Store as _;
use tollgate_config::internals::{FoundRules, MILLION};
use tollgate_config::{Amount, Charging};

use super::decided::{Decided, ShortList};
use super::report::Reporting;
use crate::engine::state::{ActiveDomain, ActiveRule, Role, RuleSet, overrides};

use super::rule_check::{CountedBy, LinkedState, RuleCheck};
use crate::counting::{Hasher, MayWait};
use crate::descriptor::{CounterKey, Descriptor};

/// The rules that apply to a request, decided together. It holds their keys and costs, and writes their results
/// directly into the answer, because the answer is large.
#[derive(Debug)]
pub(in crate::engine) struct RequestCheck<'r> {
    pub(in crate::engine) rules: ShortList<RuleCheck<'r>>,
    decided: &'r mut Vec<Decided>,
    /// The roles that the rules have: one bit for each [`Role`].
    roles: u8,
    /// Whether some rules are shared by processes.
    pub(super) has_shared: bool,
    /// Whether some rules cannot refund a charge.
    has_final: bool,
    /// Whether one rule applies to several descriptors, so that two charges may go to one key.
    has_repeated: bool,
    /// The numbers of the rules, one bit for each, modulo the number of bits.
    numbers: u64,
    /// Whether some rules replace others, or count values.
    has_rare: bool,
    /// Whether a descriptor counts as a quota that always has units left.
    has_free_quota: bool,
}

/// What a request asks.
#[derive(Copy, Clone, Debug)]
pub(in crate::engine) struct Request<'d, 'r> {
    pub(in crate::engine) descriptors: &'d [Descriptor<'r>],
    /// The rules of the first descriptors, as far as they were searched.
    pub(in crate::engine) searched: &'d [FoundRules],
    pub(in crate::engine) hits: u64,
    pub(in crate::engine) hold: HoldUse<'d>,
}

impl<'d, 'r> Request<'d, 'r> {
    /// A request that costs `hits`, unless its descriptors set a cost.
    #[inline(always)]
    pub(in crate::engine) const fn of(descriptors: &'d [Descriptor<'r>], hits: u64) -> Self {
        Self { descriptors, searched: &[], hits, hold: HoldUse::ByRule }
    }
}

/// How a request uses the holds of its rules.
#[derive(Copy, Clone, Debug)]
pub(in crate::engine) enum HoldUse<'d> {
    /// As the rules say.
    ByRule,
    /// It holds its cost, under this identity.
    As(&'d HoldId),
    /// Not at all.
    Nothing,
}

/// A peek at a shared rule before it is charged.
#[derive(Copy, Clone, Debug)]
pub(super) struct Peek {
    /// The index of the rule.
    pub(super) place: usize,
    pub(super) cost: u64,
}

/// A bit after those of the roles: some rules count values.
const VALUES: u8 = 1 << 7;
/// Another bit: some rules hold units of the request, or settle them.
const HOLDS: u8 = 1 << 6;

impl<'r> RequestCheck<'r> {
    /// Creates a check without rules; `decided` is empty.
    #[inline]
    pub(in crate::engine) fn new(decided: &'r mut Vec<Decided>) -> Self {
        Self {
            rules: ShortList::new(),
            decided,
            roles: 0,
            has_shared: false,
            has_final: false,
            has_repeated: false,
            numbers: 0,
            has_rare: false,
            has_free_quota: false,
        }
    }

    /// Adds the rules that apply to any of the descriptors. Works in place, because a check is too large to move.
    #[inline]
    pub(in crate::engine) fn find(
        &mut self,
        (rules, domain): (&'r RuleSet, &'r ActiveDomain),
        request: &Request<'_, 'r>,
        now_ns: u64,
        hasher: &Hasher,
    ) {
        let descriptors = request.descriptors;
        // Before any rule is charged, so that each rule finds the limit that counts together with it.
        for unit in descriptors.iter().filter_map(|descriptor| Some(descriptor.limit?.1)) {
            let _ = domain.override_of(unit, hasher);
        }
        self.rules.reserve(descriptors.len());
        self.decided.reserve(descriptors.len());
        let mut searched = request.searched.iter().copied();
        for (descriptor, place) in descriptors.iter().zip(0..) {
            let cost = descriptor.cost(request.hits);
            let found = searched.next().unwrap_or_else(|| domain.search(descriptor));
            if descriptor.limit.is_some() {
                self.add_own(domain, descriptor, found, place, cost, hasher);
                continue;
            }
            for (index, active) in domain.rules_of(found) {
                active.note_match();
                // Apart from its check, so that the check is built where it stays.
                let key = active.key(domain, descriptor);
                let role = active.role.unwrap_or_else(|| role_of(active, &key, index, now_ns, hasher));
                self.has_rare |= active.is_rare;
                let check = RuleCheck::new(domain, active, key, descriptor, cost);
                self.add(check, Decided::not_yet(index, place, role));
            }
        }
        if self.has_rare {
            self.replace();
            self.count_values(domain, descriptors, CheckTime::from_ns(now_ns));
            if let Some(book) = domain.book.as_deref() {
                self.prepare_holds((rules, book), request.hold, CheckTime::from_ns(now_ns));
            }
        }
        if domain.quota {
            self.make_quotas(descriptors.len());
        }
    }

    /// Whether no rule applies.
    #[inline]
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether some rules hold units of the request, or settle them.
    #[inline]
    pub(super) fn has_holds(&self) -> bool {
        self.roles & HOLDS != 0
    }

    pub(super) fn note_holds(&mut self) {
        self.roles |= HOLDS;
    }

    /// Makes all rules that can deny quotas. A descriptor to which no rule applies is a quota with units left, and so is
    /// one with a replaced rule.
    #[cold]
    fn make_quotas(&mut self, descriptors: usize) {
        for (check, decided) in self.rules.iter().zip(&mut *self.decided) {
            if decided.role == Role::Enforced && check.active.rule.limit != Amount::Unlimited {
                decided.role = Role::Quota;
                self.roles |= 1 << Role::Quota as u8;
            }
        }
        let has_rule = |place: usize| self.decided.iter().any(|decided| decided.descriptor as usize == place);
        self.has_free_quota = self.of(Role::Replaced).next().is_some() || !(0..descriptors).all(has_rule);
    }

    #[inline(always)]
    fn add(&mut self, check: RuleCheck<'r>, decided: Decided) {
        self.roles |= 1 << decided.role as u8;
        self.has_shared |= check.counted.is_shared();
        self.has_final |= !check.counted.can_refund();
        let number = 1_u64.rotate_left(decided.rule);
        let is_same = |other: &RuleCheck<'_>| std::ptr::eq(other.active, check.active);
        self.has_repeated |= self.numbers & number != 0 && self.rules.iter().any(is_same);
        self.numbers |= number;
        self.rules.push(check);
        self.decided.push(decided);
    }

    /// Adds the limit that a descriptor sets.
    #[cold]
    fn add_own(
        &mut self,
        domain: &'r ActiveDomain,
        descriptor: &Descriptor<'r>,
        found: FoundRules,
        place: u32,
        cost: u64,
        hasher: &Hasher,
    ) {
        let Some((requests, unit)) = descriptor.limit else { return };
        let Some(active) = domain.override_of(unit, hasher) else { return };
        let mut of_unit = domain.rules_of(found).filter(|(_, rule)| rule.unit == Some(unit));
        let linked = of_unit.find_map(|(_, rule)| {
            Some(Box::new(LinkedState::Counter {
                counter: rule.counter.local()?,
                key: rule.key(domain, descriptor),
            }))
        });
        let counted = CountedBy::of(active, Some(requests), domain.charging);
        let key = domain.key_of_request(descriptor);
        let check = RuleCheck { is_own: true, linked, ..RuleCheck::with(domain, active, counted, key, cost) };
        self.add(check, Decided::not_yet(overrides::index(unit), place, Role::Enforced));
    }

    /// Turns the checks of rules that count values into checks of the request's values.
    #[cold]
    fn count_values(&mut self, domain: &ActiveDomain, descriptors: &[Descriptor<'r>], when: CheckTime) {
        for (place, decided) in self.decided.iter().enumerate() {
            if let Some((check, before)) = self.rules.get_mut(..=place).and_then(<[_]>::split_last_mut)
                && let Some(seen) = &check.active.values
                && let Some(descriptor) = descriptors.get(decided.descriptor as usize)
            {
                self.roles |= VALUES;
                // Of two quotas for one value, the one without a cost would have units left.
                let is_quota = domain.quota || decided.role == Role::Quota;
                check.count_values(seen, descriptor, if is_quota { &[] } else { before }, when);
            }
        }
    }

    /// Disables the rules that other rules replace.
    #[cold]
    fn replace(&mut self) {
        // The names, each with whether only rules that report replace it. Sorted, because one descriptor may have thousands
        // of limits.
        let mut replaced: SmallVec<[(&str, bool); 8]> = SmallVec::new();
        for (check, decided) in self.rules.iter().zip(&*self.decided) {
            let only_reports = decided.role == Role::Shadow;
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
                *name == *rule.name && (!only_reports || decided.role == Role::Shadow)
            };
            if replaced.get(first).is_some_and(by) {
                decided.role = Role::Replaced;
            }
        }
    }

    /// Returns the combined outcome. If a rule can never admit the request, the outcome is "never".
    #[inline]
    pub(in crate::engine) fn outcome(&self) -> Outcome {
        let outcome = self.of(Role::Enforced).map(Decided::outcome).fold(Outcome::Allowed, worse);
        if self.all_quota_rules_deny() {
            // One rule with quota left is enough.
            let is_never = self.of(Role::Quota).all(|decided| decided.outcome() == Outcome::Never);
            return worse(outcome, if is_never { Outcome::Never } else { Outcome::Denied });
        }
        outcome
    }

    #[cold]
    #[inline(never)]
    fn longest_other_wait(&mut self, when: CheckTime) -> Duration {
        let admitted =
            |decided: &Decided| decided.role == Role::Enforced && decided.outcome() == Outcome::Allowed;
        let waits = self.each(|_| true).filter(|(_, decided)| admitted(decided));
        let waits = waits.filter_map(|(check, _)| check.peeked(check.cost, when)?.retry_after());
        waits.max().unwrap_or_default()
    }

    fn of(&self, role: Role) -> impl Iterator<Item = &Decided> {
        self.decided.iter().filter(move |decided| decided.role == role)
    }

    /// Returns the rules with this role.
    pub(in crate::engine) fn each(
        &mut self,
        role: impl Fn(Role) -> bool,
    ) -> impl Iterator<Item = (&mut RuleCheck<'r>, &mut Decided)> {
        self.rules.iter_mut().zip(&mut *self.decided).filter(move |(_, decided)| role(decided.role))
    }

    /// Whether there are rules with `quota_mode` and none of them has quota left. A rule that only reports always has
    /// quota left.
    #[inline]
    pub(in crate::engine) fn all_quota_rules_deny(&self) -> bool {
        self.has(Role::Quota) && !self.has_free_quota && self.every_quota_rule_denies()
    }

    /// Whether rules had this role when they were found.
    #[inline]
    fn has(&self, role: Role) -> bool {
        self.roles >> role as u8 & 1 == 1
    }

    #[cold]
    fn every_quota_rule_denies(&self) -> bool {
        let mut reports =
            self.rules.iter().zip(&*self.decided).filter(|(_, decided)| decided.role == Role::Shadow);
        self.of(Role::Quota).count() > 0
            && self.of(Role::Quota).all(|decided| decided.outcome() != Outcome::Allowed)
            && !reports.any(|(check, _)| Role::of_enforced(&check.active.rule) == Role::Quota)
    }

    /// Whether the rules count requests first, also requests that they deny.
    #[cfg(feature = "tokio")]
    pub(super) fn counts_first(&self) -> bool {
        self.rules.first().is_some_and(|check| check.charging == Charging::CountFirst)
    }

    /// Whether several rules can deny the request. A single limit is charged directly.
    #[inline]
    pub(super) fn has_several(&mut self) -> bool {
        self.rules.len() > 1 && self.each(Role::can_deny).count() > 1
    }

    /// Decides the request, and charges it if it is admitted. Asks the servers of shared rules that have not answered yet, and
    /// waits no longer than their mode does.
    #[inline]
    pub(in crate::engine) fn decide(&mut self, charging: Charging, when: CheckTime) -> Outcome {
        if charging == Charging::CountFirst {
            self.count(when);
            return self.outcome();
        }
        let admitted = self.all_or_nothing(when);
        self.settle(charging, admitted, when)
    }

    /// Charges all enforced rules, or none. Among rules with `quota_mode`, it charges those with quota left, and at
    /// least one must have some. Returns whether the request is admitted.
    #[inline]
    fn all_or_nothing(&mut self, when: CheckTime) -> bool {
        if !self.has_several() {
            return self.charge_all(when);
        }
        if !self.peek_at_others(when) || (self.has_shared && !self.peek_at_servers()) {
            return false;
        }
        let admitted = self.charge_all(when);
        if !admitted && self.is_charged() {
            self.refund(when);
            self.peek_again(when);
        }
        admitted
    }

    /// Decides the rules that only report. With [`Charging::CountDenials`], charges a denied request to the rules that deny
    /// it. Returns the outcome.
    #[inline]
    pub(super) fn settle(&mut self, charging: Charging, admitted: bool, when: CheckTime) -> Outcome {
        self.report_only(admitted, when);
        if charging == Charging::CountDenials {
            self.count_denials(admitted, when);
        }
        if admitted { Outcome::Allowed } else { self.outcome() }
    }

    /// Counts first and decides afterwards.
    #[inline(never)]
    pub(in crate::engine) fn count(&mut self, when: CheckTime) {
        self.each(|role| role != Role::Replaced).for_each(|(check, decided)| check.count(decided, when));
    }

    /// Peeks again at the rules whose charges were refunded. A rule that denied keeps its decision: it might admit the
    /// request by now, but nothing is charged for that.
    #[cold]
    pub(super) fn peek_again(&mut self, when: CheckTime) {
        for (check, decided) in self.each(Role::can_deny) {
            if decided.outcome() == Outcome::Allowed {
                check.peek(decided, 0, when);
            }
        }
    }

    /// Decides the rules that only report. They are charged if the request is admitted.
    #[inline]
    pub(super) fn report_only(&mut self, admitted: bool, when: CheckTime) {
        if !self.has(Role::Shadow) {
            return;
        }
        for (check, decided) in self.each(|role| role == Role::Shadow) {
            if admitted {
                check.charge(decided, when);
            } else {
                check.peek(decided, 0, when);
            }
        }
        if admitted && self.has_holds() {
            self.keep_holds(|role| role == Role::Shadow, when);
        }
    }

    /// Peeks at all rules that can deny. Returns whether none of them does. The rule that is charged first is peeked at
    /// only if another rule denies, because its charge gives the same information.
    #[inline]
    pub(super) fn peek_at_others(&mut self, when: CheckTime) -> bool {
        let is_simple = |(check, decided): (&RuleCheck<'_>, &Decided)| {
            decided.role == Role::Enforced && check.linked.is_none() && check.counted.can_refund()
        };
        let first = match self.rules.iter().zip(&*self.decided).position(is_simple) {
            Some(first) if !self.has_shared && !self.has(Role::Quota) => first,
            _ => usize::MAX,
        };
        for place in (0..self.rules.len()).filter(|place| *place != first) {
            self.peek_at(place, when);
        }
        let admits = self.outcome() == Outcome::Allowed;
        if !admits {
            self.peek_at(first, when);
        }
        admits
    }

    /// Peeks at a rule that can deny. The peek includes the rule's own cost and the costs that earlier rules would charge
    /// to the same key.
    pub(in crate::engine) fn peek_at(&mut self, place: usize, when: CheckTime) {
        let other_cost = if self.has_repeated { self.cost_of_earlier_rules(place, |_| true) } else { 0 };
        if let Some((check, decided)) = self.at(place)
            && decided.role.can_deny()
        {
            check.peek(decided, other_cost, when);
        }
    }

    /// Decides all rules without a charge. `charging` decides how the domain counts.
    pub(in crate::engine) fn peek_all(&mut self, charging: Charging, when: CheckTime) {
        if charging == Charging::CountFirst {
            return self.peek_counts(when);
        }
        (0..self.rules.len()).for_each(|place| self.peek_at(place, when));
        self.report_only(false, when);
    }

    /// Decides all rules as [`RequestCheck::count`] does, without a charge.
    fn peek_counts(&mut self, when: CheckTime) {
        let counts = |role| role != Role::Replaced;
        for place in 0..self.rules.len() {
            let earlier = self.cost_of_earlier_rules(place, counts);
            if let Some((check, decided)) = self.at(place)
                && counts(decided.role)
            {
                check.peek_count(decided, earlier, when);
            }
        }
    }

    /// Returns the peeks at shared rules whose charges cannot be refunded, if there are several.
    pub(super) fn peeks(&self) -> ShortList<Peek> {
        let must = |(check, decided): (&RuleCheck<'_>, &Decided)| {
            decided.role.can_deny()
                && check.counted.is_shared()
                && check.cost > 0
                && !check.counted.can_refund()
        };
        let all = self.rules.iter().zip(&*self.decided).enumerate().filter(|(_, both)| must(*both));
        let cost = |place, cost: u64| cost.saturating_add(self.cost_of_earlier_rules(place, Role::can_deny));
        let all = all.map(|(place, (check, _))| Peek { place, cost: cost(place, check.cost) });
        let all: ShortList<_> = all.collect();
        if all.len() > 1 { all } else { ShortList::new() }
    }

    /// Peeks at the shared rules that [`RequestCheck::peeks`] returns. Returns whether the request may continue.
    #[cold]
    fn peek_at_servers(&mut self) -> bool {
        for Peek { place, cost } in self.peeks() {
            if let Some((check, decided)) = self.at(place)
                && let CountedBy::Shared(shared) = check.counted
                && let Some(Some(peeked)) = shared.limiter.peek(check.key.as_str(), cost, MayWait::No).now()
            {
                check.record_peek(decided, peeked);
            }
        }
        self.may_continue()
    }

    /// Charges the denied request to the shared rules that deny it.
    #[cold]
    pub(super) fn count_shared_denials(&mut self) {
        for (check, shared) in self.shared_denials() {
            let _ = shared.limiter.count_denied(check.key.as_str(), check.cost, MayWait::No);
            check.effect.is_denial_counted = true;
        }
    }

    /// Returns the units that earlier rules with this role would charge to the same key.
    fn cost_of_earlier_rules(&self, place: usize, role: impl Fn(Role) -> bool) -> u64 {
        let Some((check, before)) = self.rules.get(..=place).and_then(<[_]>::split_last) else { return 0 };
        let same = before.iter().zip(&*self.decided).filter(|(_, decided)| role(decided.role));
        let same = same.filter(|(other, _)| {
            std::ptr::eq(other.active, check.active) && other.key.as_str() == check.key.as_str()
        });
        same.fold(0, |sum, (other, _)| sum.saturating_add(other.cost))
    }

    /// Returns whether the request may continue after a peek at shared rules. If it may, the check still has to ask
    /// those rules.
    pub(super) fn may_continue(&mut self) -> bool {
        let admits = self.outcome() == Outcome::Allowed;
        for (_, decided) in self.each(Role::can_deny).filter(|(check, _)| admits && check.counted.is_shared())
        {
            (decided.decision, decided.by) = (None, None);
        }
        admits
    }

    /// Charges first the rules that can refund, and notes the holds. Returns whether the request is admitted.
    #[inline]
    pub(in crate::engine) fn charge_all(&mut self, when: CheckTime) -> bool {
        if !self.charge_enforced(true, when) || (self.has_final && !self.charge_enforced(false, when)) {
            return false;
        }
        if self.has(Role::Quota) {
            self.each(|role| role == Role::Quota).for_each(|(check, decided)| check.charge(decided, when));
        }
        !self.all_quota_rules_deny() && (!self.has_holds() || self.keep_holds(Role::can_deny, when))
    }

    #[inline]
    fn charge_enforced(&mut self, can_refund: bool, when: CheckTime) -> bool {
        for (check, decided) in self.each(|role| role == Role::Enforced) {
            if check.counted.can_refund() == can_refund {
                check.charge(decided, when);
                if decided.outcome() != Outcome::Allowed {
                    return false;
                }
            }
        }
        true
    }

    /// Whether any rule was charged.
    #[inline]
    pub(super) fn is_charged(&self) -> bool {
        self.rules.iter().any(|check| check.effect.is_charged)
    }

    /// Refunds all charges.
    #[cold]
    pub(super) fn refund(&mut self, when: CheckTime) {
        self.each(|_| true).for_each(|(check, decided)| check.refund(decided, when));
    }

    /// Refunds the charges to counters of this process.
    #[cfg(feature = "tokio")]
    pub(super) fn refund_here(&mut self, when: CheckTime) {
        for (check, decided) in self.each(|_| true).filter(|(check, _)| !check.counted.is_shared()) {
            check.refund(decided, when);
        }
    }

    /// Returns a rule and its decision, by index.
    pub(in crate::engine) fn at(&mut self, place: usize) -> Option<(&mut RuleCheck<'r>, &mut Decided)> {
        Some((self.rules.get_mut(place)?, self.decided.get_mut(place)?))
    }

    /// Whether the counters of all charged rules are open, so that no load replaces them. Records the charges if not. A
    /// shared counter is never open.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        let mut is_open = true;
        for (check, decided) in self.rules.iter().zip(&*self.decided) {
            if check.effect.is_charged && !check.is_own {
                // Each of them is asked, because each one records its charge.
                is_open &= check.is_open_for(decided);
            }
        }
        is_open
    }

    /// Whether the rules of a newer load use the same counters as these rules.
    pub(super) fn still_counts(&self, domain: Option<&ActiveDomain>) -> bool {
        let mut charged = self.rules.iter().filter(|check| check.effect.is_charged && !check.is_own);
        charged.all(|check| check.active.still_counts(domain))
    }

    /// Whether a request has set the first limit of its unit in the meantime, and that limit counts together with one
    /// of these rules.
    #[inline]
    pub(super) fn missed_new_override(&self, domain: &ActiveDomain) -> bool {
        self.rules.iter().any(|check| check.missed_new_override(domain))
    }

    /// Inserts the values that an admitted request has charged. Their units are not refunded with the request, because the
    /// values stay known.
    #[cold]
    pub(super) fn note_values(&mut self, when: CheckTime) {
        for (check, decided) in self.each(|_| true) {
            let Some(&LinkedState::Value { seen, pair }) = check.linked.as_deref() else { continue };
            let (CountedBy::Local { counter, .. }, Some(charge)) = (check.counted, &mut decided.decision)
            else {
                continue;
            };
            if !std::mem::take(&mut check.effect.is_charged) {
                continue;
            }
            if seen.insert(pair, charge) {
                counter.generation.store().refund(check.key.as_str(), when, charge, charge.charged());
            }
            *charge = charge.uncharged();
        }
    }

    /// Notes the values of the request, and reports the outcome of each rule. Returns how long rules that admitted and
    /// counted a denied request would deny the same request.
    #[inline]
    pub(super) fn finish(&mut self, reporting: &Reporting<'_>, when: CheckTime) -> Duration {
        if self.roles & VALUES != 0 {
            self.note_values(when);
        }
        for (check, decided) in self.each(|role| role != Role::Replaced) {
            check.report(decided, reporting);
        }
        match (reporting.domain.charging, reporting.joint.outcome) {
            (Charging::CountFirst, Outcome::Denied) => self.longest_other_wait(when),
            _ => Duration::ZERO,
        }
    }
}

/// Returns the role of a rule that is enforced for a share of its keys only. A hash of the key selects the keys. If all
/// requests share one counter, a hash of the time selects the requests.
#[cold]
fn role_of(active: &ActiveRule, key: &CounterKey<'_>, index: u32, now_ns: u64, hasher: &Hasher) -> Role {
    let rule = &active.rule;
    let hash = match rule.has_one_counter() {
        true => hasher.hash_one((index, now_ns)),
        // All processes that share the rule select the same keys.
        false if rule.is_shared() => crate::counting::key_hash(&rule.identity, key.as_str()),
        false => hasher.hash_one((&rule.identity, key.as_str())),
    };
    // Scales the top bits of the hash to a number of millionths.
    let share = (u128::from(hash) * u128::from(MILLION)) >> u64::BITS;
    let is_enforced = share < u128::from(rule.enforced_per_million);
    if is_enforced { Role::of_enforced(rule) } else { Role::Shadow }
}

pub(super) fn worse(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Never, _) | (_, Outcome::Never) => Outcome::Never,
        (Outcome::Denied, _) | (_, Outcome::Denied) => Outcome::Denied,
        _ => Outcome::Allowed,
    }
}
