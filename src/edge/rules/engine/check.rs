//! How the rules that apply to one request decide together.
//!
//! [`RequestCheck::find`] finds the rules, and resolves once for each of them what counts it, by which key and at what cost. The
//! check then charges all of them or none, or counts first and judges afterwards, and reports what came of it.

use std::time::Duration;

use smallvec::SmallVec;

use super::answer::{Decided, Few, Part, Summary};
use super::counter::{Counter, LocalCounter, SharedCounter, blocked};
use super::overrides;
use super::rule_set::{ActiveDomain, ActiveRule};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::fence_after_rmw;
use crate::edge::rules::counting::{Hasher, SharedDecision};
use crate::edge::rules::matching::{CounterKey, Descriptor};
use crate::edge::rules::rule::{Charging, Limit, MILLION, Unit};
use crate::edge::telemetry::{RefusalLog, TopDenied};
use crate::store::op::Store;

/// The observers of denials.
#[derive(Debug, Default)]
pub(super) struct Observers {
    pub(super) top: Option<TopDenied>,
    pub(super) log: RefusalLog,
}

/// What counts a rule in one request.
#[derive(Copy, Clone, Debug)]
pub(super) enum CountedBy<'r> {
    /// Nothing: there is no limit.
    Nothing,
    /// Nothing: the limit is 0.
    Blocked(Duration),
    Local {
        counter: &'r LocalCounter,
        /// How many units are to stay free there.
        headroom: u64,
    },
    Shared(&'r SharedCounter),
}

impl<'r> CountedBy<'r> {
    /// `own`: the limit that the request brings along.
    #[inline]
    pub(super) fn of(active: &'r ActiveRule, own: Option<u32>, charging: Charging) -> Self {
        match (&active.counter, own) {
            // What a limit of nothing refuses is not counted, unless requests are counted first.
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

    /// Whether a charge can be taken back.
    pub(super) fn undoes(self) -> bool {
        match self {
            Self::Local { counter, .. } => counter.undoes,
            Self::Shared(shared) => shared.limiter.undoes(),
            Self::Nothing | Self::Blocked(_) => false,
        }
    }

    pub(super) const fn is_shared(self) -> bool {
        matches!(self, Self::Shared(_))
    }
}

/// The only rule that applies to a descriptor, if its counter's answer is the rule's: see [`ActiveRule::plain`].
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

    /// Charges a request that it admits.
    #[inline]
    pub(super) fn charge(&self, when: CheckTime) -> Decision {
        self.counter.generation.store().check(self.key, when, self.cost)
    }

    /// The decision that a charge would be; charges nothing.
    #[inline]
    pub(super) fn look(&self, when: CheckTime) -> Decision {
        self.counter.generation.store().peek(self.key, when, self.cost)
    }

    /// Takes a charge back; nothing if there is none.
    #[cold]
    pub(super) fn refund(&self, charge: &Decision, when: CheckTime) {
        if charge.charged() > 0 {
            self.counter.generation.store().refund(self.key, when, charge, charge.charged());
        }
    }
}

/// A rule that applies to a request, and what it is asked.
#[derive(Debug)]
pub(super) struct RuleCheck<'r> {
    pub(super) active: &'r ActiveRule,
    pub(super) counted: CountedBy<'r>,
    pub(super) key: CounterKey<'r>,
    pub(super) cost: u64,
    /// Whether it counts a limit that the request brings along.
    is_own: bool,
    /// The other counter of the same requests: a limit that a request brings along and the file's rule of its unit count as one.
    twin: Option<Box<(&'r LocalCounter, CounterKey<'r>)>>,
    pub(super) charged: bool,
    /// The units that were in use before, if requests are counted first.
    pub(super) before: u64,
}

/// The rules that apply to a request, decided together: what each is asked, and what it says, in the place of the answer, for it is
/// large.
#[derive(Debug)]
pub(super) struct RequestCheck<'r> {
    pub(super) rules: SmallVec<[RuleCheck<'r>; 2]>,
    decided: &'r mut Few<Decided>,
    /// How they take part: a bit for each [`Part`].
    parts: u8,
    /// Whether some are shared by processes.
    has_shared: bool,
}

impl<'r> RequestCheck<'r> {
    /// None yet; `decided` is empty.
    #[inline]
    pub(super) fn new(decided: &'r mut Few<Decided>) -> Self {
        Self { rules: SmallVec::new(), decided, parts: 0, has_shared: false }
    }

    /// Adds the rules that apply to any of the descriptors. In place: a check is large, and is not to be moved.
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
    }

    #[inline]
    fn add(&mut self, check: RuleCheck<'r>, decided: Decided) {
        self.parts |= 1 << decided.part as u8;
        self.has_shared |= check.counted.is_shared();
        self.rules.push(check);
        self.decided.push(decided);
    }

    /// Adds the limit that a descriptor brings along.
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
        let twin = of_unit.find_map(|(_, rule)| Some((rule.counter.local()?, rule.key(descriptor))));
        let twin = twin.map(Box::new);
        let counted = CountedBy::of(active, Some(requests), domain.charging);
        let key = CounterKey::of_request(&domain.name, descriptor);
        let (is_own, charged, before) = (true, false, 0);
        let check = RuleCheck { active, counted, key, cost, is_own, twin, charged, before };
        self.add(check, Decided::not_yet(overrides::index(unit), place, Part::Enforced));
    }

    /// Switches rules off that others replace.
    #[cold]
    fn replace(&mut self) {
        // A rule that only reports switches none off that refuses.
        let parts: SmallVec<[Part; 8]> = self.decided.iter().map(|decided| decided.part).collect();
        for (check, decided) in self.rules.iter().zip(&mut *self.decided) {
            let rule = &check.active.rule;
            let by = |(other, part): (&RuleCheck<'_>, &Part)| {
                other.active.rule.replaces.contains(&rule.name)
                    && (*part != Part::Shadow || decided.part == Part::Shadow)
            };
            // A rule without a limit stays as it is, whatever replaces it.
            let replaceable = rule.is_named && rule.limit != Limit::Unlimited;
            if replaceable && self.rules.iter().zip(&parts).any(by) {
                decided.part = Part::Replaced;
            }
        }
    }

    /// Decides, and charges what is admitted.
    #[inline]
    pub(super) fn decide(&mut self, charging: Charging, when: CheckTime) -> Outcome {
        match charging {
            Charging::AllOrNothing if self.all_or_nothing(when) => return Outcome::Allowed,
            Charging::AllOrNothing => {}
            Charging::CountFirst => self.count(when),
        }
        self.outcome()
    }

    /// The outcome of all rules together: of those that refuse one may say never.
    pub(super) fn outcome(&self) -> Outcome {
        let outcome = self.of(Part::Enforced).map(Decided::outcome).fold(Outcome::Allowed, worse);
        if self.all_quotas_refuse() {
            // One of them is enough.
            let is_never = self.of(Part::Quota).all(|decided| decided.outcome() == Outcome::Never);
            return worse(outcome, if is_never { Outcome::Never } else { Outcome::Denied });
        }
        outcome
    }

    /// How long until all rules that admitted a refused request, and counted it all the same, would admit it again.
    #[cold]
    fn other_retry_after(&mut self, when: CheckTime) -> Duration {
        let admitted =
            |decided: &Decided| decided.part == Part::Enforced && decided.outcome() == Outcome::Allowed;
        let waits = self.each(|_| true).filter(|(_, decided)| admitted(decided));
        let waits = waits.filter_map(|(check, _)| check.looked(check.cost, when)?.retry_after());
        waits.max().unwrap_or_default()
    }

    fn of(&self, part: Part) -> impl Iterator<Item = &Decided> {
        self.decided.iter().filter(move |decided| decided.part == part)
    }

    /// The rules that take part so.
    pub(super) fn each(
        &mut self,
        part: impl Fn(Part) -> bool,
    ) -> impl Iterator<Item = (&mut RuleCheck<'r>, &mut Decided)> {
        self.rules.iter_mut().zip(&mut *self.decided).filter(move |(_, decided)| part(decided.part))
    }

    /// Whether there are rules with `quota_mode`, and none has room. One that only reports always has.
    #[inline]
    fn all_quotas_refuse(&self) -> bool {
        self.has(Part::Quota) && self.all_of_the_quotas_refuse()
    }

    /// Whether rules took part so when they were found.
    #[inline]
    fn has(&self, part: Part) -> bool {
        self.parts >> part as u8 & 1 == 1
    }

    fn all_of_the_quotas_refuse(&self) -> bool {
        let mut reports =
            self.rules.iter().zip(&*self.decided).filter(|(_, decided)| decided.part == Part::Shadow);
        self.of(Part::Quota).count() > 0
            && self.of(Part::Quota).all(|decided| decided.outcome() != Outcome::Allowed)
            && !reports.any(|(check, _)| Part::of_enforced(&check.active.rule) == Part::Quota)
    }

    /// Charges all that are enforced, and of those with `quota_mode` the ones that have room, at least one; or none. Whether the
    /// request may go.
    fn all_or_nothing(&mut self, when: CheckTime) -> bool {
        // One limit alone is charged at once.
        let several = self.each(Part::refuses).count() > 1;
        let admits = !several || (self.look_at_others(when) && (!self.has_shared || self.look_at_shared()));
        let admitted = admits && self.charge_all(when);
        if several && !admitted && self.charged() {
            self.undo(when, true);
            self.look_again(when);
        }
        self.report_only(admitted, when);
        admitted
    }

    /// Counts first, and judges afterwards.
    pub(super) fn count(&mut self, when: CheckTime) {
        self.each(|part| part != Part::Replaced).for_each(|(check, decided)| check.count(decided, when));
    }

    /// Looks again at the rules whose charges were given back. A rule that refused keeps its decision: by now it might admit, but nothing
    /// is charged for that.
    pub(super) fn look_again(&mut self, when: CheckTime) {
        for (check, decided) in self.each(Part::refuses) {
            if decided.outcome() == Outcome::Allowed {
                check.look(decided, 0, when);
            }
        }
    }

    /// Decides those that only report: they are charged if the request is admitted.
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

    /// Looks at all that can refuse, each for its own cost and what those before it would charge to the same key.
    pub(super) fn look_together(&mut self, when: CheckTime) {
        for place in 0..self.rules.len() {
            self.look_at(place, when);
        }
    }

    /// Looks at all that can refuse. Whether none of them does. The one that is charged first is looked at only if another one
    /// refuses: its charge tells as much.
    fn look_at_others(&mut self, when: CheckTime) -> bool {
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
        let besides = self.besides(place, |_| true);
        if let Some((check, decided)) = self.at(place)
            && decided.part.refuses()
        {
            check.look(decided, besides, when);
        }
    }

    /// Looks at shared ones whose charges cannot be taken back, if there are several; whether none of them refuses.
    fn look_at_shared(&mut self) -> bool {
        for (place, cost) in self.to_look_at() {
            if let Some((check, decided)) = self.at(place)
                && let CountedBy::Shared(shared) = check.counted
                && let Some(looked) = shared.limiter.look(check.key.as_str(), cost)
            {
                check.hear(decided, looked);
            }
        }
        self.go_on()
    }

    /// The rules that must be looked at before they are charged, each with the cost to look for.
    pub(super) fn to_look_at(&self) -> Few<(usize, u64)> {
        let must = |(check, decided): (&RuleCheck<'_>, &Decided)| {
            decided.part.refuses() && check.counted.is_shared() && check.cost > 0 && !check.counted.undoes()
        };
        let all = self.rules.iter().zip(&*self.decided).enumerate().filter(|(_, both)| must(*both));
        let cost = |place, cost: u64| cost.saturating_add(self.besides(place, Part::refuses));
        let all: Few<_> = all.map(|(place, (check, _))| (place, cost(place, check.cost))).collect();
        if all.len() > 1 { all } else { Few::new() }
    }

    /// What others before it, which take part so, would charge to the same key.
    fn besides(&self, place: usize, part: impl Fn(Part) -> bool) -> u64 {
        let Some((check, before)) = self.rules.get(..=place).and_then(<[_]>::split_last) else { return 0 };
        let same = before.iter().zip(&*self.decided).filter(|(_, decided)| part(decided.part));
        let same = same.filter(|(other, _)| {
            std::ptr::eq(other.active, check.active) && other.key.as_str() == check.key.as_str()
        });
        same.fold(0, |sum, (other, _)| sum.saturating_add(other.cost))
    }

    /// After a look at shared ones: whether the request may go on. Then they have yet to be asked.
    pub(super) fn go_on(&mut self) -> bool {
        let admits = self.outcome() == Outcome::Allowed;
        for (_, decided) in self.each(Part::refuses).filter(|(check, _)| admits && check.counted.is_shared())
        {
            (decided.decision, decided.by) = (None, None);
        }
        admits
    }

    /// Charges those first whose charges can be taken back. Whether the request may go.
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
        !self.all_quotas_refuse()
    }

    /// Whether anything was charged.
    #[inline]
    pub(super) fn charged(&self) -> bool {
        self.rules.iter().any(|check| check.charged)
    }

    /// Refunds the charges, as far as possible: to counters of this process, and with `and_shared` to shared ones.
    pub(super) fn undo(&mut self, when: CheckTime, and_shared: bool) {
        for (check, decided) in self.each(|_| true) {
            if and_shared || !check.counted.is_shared() {
                check.undo(decided, when);
            }
        }
    }

    /// A rule and what it says, by its place.
    pub(super) fn at(&mut self, place: usize) -> Option<(&mut RuleCheck<'r>, &mut Decided)> {
        Some((self.rules.get_mut(place)?, self.decided.get_mut(place)?))
    }

    /// Whether the rules of a newer load count for all of them where these do.
    pub(super) fn still_counts(&self, domain: Option<&ActiveDomain>) -> bool {
        let mut charged = self.rules.iter().filter(|check| check.charged && !check.is_own);
        charged.all(|check| check.active.still_counts(domain))
    }

    /// Whether a request has brought a limit along meanwhile, the first of its unit, that counts together with one of these rules.
    #[inline]
    pub(super) fn missed_twin(&self, domain: &ActiveDomain) -> bool {
        self.rules.iter().any(|check| check.missed_twin(domain))
    }

    /// Reports what came of each rule, and says what came of all.
    #[inline]
    pub(super) fn finish(
        &mut self,
        domain: &ActiveDomain,
        descriptors: &[Descriptor<'_>],
        (outcome, shadow): (Outcome, bool),
        when: CheckTime,
        to: &Observers,
    ) -> Summary {
        let (shadow, quotas_refuse) = (shadow || domain.shadow, self.all_quotas_refuse());
        let mut summary = Summary { quotas_refuse, ..Summary::new(outcome, shadow) };
        for (check, decided) in self.each(|part| part != Part::Replaced) {
            check.report(decided, domain, descriptors, &summary, to);
        }
        if (domain.charging, outcome) == (Charging::CountFirst, Outcome::Denied) {
            summary.other_retry_after = self.other_retry_after(when);
        }
        summary
    }
}

impl Decided {
    /// What a rule says of a descriptor, which refuses and is counted by this process.
    #[inline]
    pub(super) const fn new(rule: u32, descriptor: u32, decision: Decision) -> Self {
        Self { rule, descriptor, part: Part::Enforced, soft: false, decision: Some(decision), by: None }
    }

    #[inline]
    fn not_yet(rule: u32, descriptor: u32, part: Part) -> Self {
        Self { rule, descriptor, part, soft: false, decision: None, by: None }
    }

    #[inline]
    fn outcome(&self) -> Outcome {
        self.decision.as_ref().map_or(Outcome::Allowed, Decision::outcome)
    }
}

/// Takes back what a rule has charged.
pub(super) fn give_back(counted: CountedBy<'_>, key: &str, decided: &Decided, when: CheckTime) {
    let Some(charge) = &decided.decision else { return };
    match (counted, decided.by) {
        (CountedBy::Local { counter, .. }, _) => {
            counter.generation.store().refund(key, when, charge, charge.charged());
        }
        (CountedBy::Shared(shared), Some(by)) => shared.limiter.refund(key, charge, by),
        _ => {}
    }
}

/// How a rule takes part that refuses a share of its keys only. A hash of the key chooses them; if all requests share one counter,
/// a hash of the time.
#[cold]
fn part_of(active: &ActiveRule, key: &CounterKey<'_>, index: u32, now_ns: u64, hasher: &Hasher) -> Part {
    let rule = &active.rule;
    let hash = match rule.has_one_counter() {
        true => hasher.hash_one((index, now_ns)),
        // The same keys in all processes that share it.
        #[cfg(feature = "redis")]
        false if rule.is_shared() => crate::edge::rules::counting::key_hash(&rule.identity, key.as_str()),
        false => hasher.hash_one((&rule.identity, key.as_str())),
    };
    // The top of the hash as a part of a million.
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

impl<'r> RuleCheck<'r> {
    /// What a rule is asked about a descriptor.
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
            Some(Box::new((counter, CounterKey::of_request(&domain.name, descriptor))))
        });
        let (counted, key) = (CountedBy::of(active, None, domain.charging), active.key(descriptor));
        Self { active, counted, key, cost, is_own: false, twin, charged: false, before: 0 }
    }

    /// Whether a request has brought a limit along meanwhile, the first of its unit, that counts together with this rule.
    #[inline]
    fn missed_twin(&self, domain: &ActiveDomain) -> bool {
        !self.is_own && self.twin.is_none() && self.active.counts_with_override(domain)
    }

    /// Refunds its charge, as far as possible.
    fn undo(&mut self, decided: &Decided, when: CheckTime) {
        if std::mem::take(&mut self.charged) {
            give_back(self.counted, self.key.as_str(), decided, when);
        }
    }

    /// The units that the other counter of these requests holds.
    fn elsewhere(&self, when: CheckTime) -> u64 {
        let Some((counter, key)) = self.twin.as_deref() else { return 0 };
        // A charge comes before this look, on either side: of two that race, at least one sees the other.
        fence_after_rmw();
        counter.generation.peek(key.as_str(), when, 0).owed()
    }

    /// The decision on a cost, uncharged; `None` unless this process counts the rule.
    fn looked(&self, cost: u64, when: CheckTime) -> Option<Decision> {
        let CountedBy::Local { counter, headroom } = self.counted else { return None };
        let looked = counter.look(self.key.as_str(), cost, headroom, when);
        Some(if self.twin.is_some() { looked.beside(self.elsewhere(when)) } else { looked })
    }

    /// Charges it if both counters together have room. Two requests, one for each counter, that race for the last units may both
    /// be refused; both are never admitted.
    #[cold]
    fn charge_with_twin(&self, counter: &LocalCounter, headroom: u64, when: CheckTime) -> Decision {
        let key = self.key.as_str();
        let looked = counter.look(key, self.cost, headroom, when).beside(self.elsewhere(when));
        if looked.is_denied() || self.cost == 0 {
            return looked;
        }
        let charge = counter.charge(key, self.cost, headroom, when);
        let both = charge.beside(self.elsewhere(when));
        if charge.is_allowed() && both.is_denied() {
            counter.generation.store().refund(key, when, &charge, charge.charged());
        }
        both
    }

    /// Asks a rule that processes share, without waiting for longer than its mode does, unless it has answered already.
    #[cold]
    fn ask_shared(&mut self, shared: &SharedCounter, decided: &mut Decided) {
        if decided.decision.is_none() && self.cost > 0 {
            self.hear(decided, shared.limiter.check(self.key.as_str(), self.cost));
        }
    }

    /// Takes the answer of a rule that processes share.
    pub(super) fn hear(&mut self, decided: &mut Decided, (decision, by): SharedDecision) {
        self.charged = decision.charged() > 0;
        self.before =
            decision.limit().saturating_sub(decision.remaining()).saturating_sub(decision.charged());
        (decided.decision, decided.by) = (Some(decision), Some(by));
    }

    #[inline]
    fn charge(&mut self, decided: &mut Decided, when: CheckTime) {
        decided.decision = match self.counted {
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

    /// Decides without a charge. `besides`: the units that other rules of the request charge to the same key.
    fn look(&mut self, decided: &mut Decided, besides: u64, when: CheckTime) {
        let cost = if self.cost == 0 { 0 } else { self.cost.saturating_add(besides) };
        decided.decision = match self.counted {
            CountedBy::Local { .. } => self.looked(cost, when),
            // It is asked once; what it said and was charged for has been taken back.
            CountedBy::Shared(shared) => decided.decision.map(|decision| {
                if shared.limiter.undoes() { decision.given_back() } else { decision.uncharged() }
            }),
            CountedBy::Blocked(period) => Some(blocked(period, self.cost, when.ns())),
            CountedBy::Nothing => None,
        };
    }

    /// Counts it, and judges afterwards.
    fn count(&mut self, decided: &mut Decided, when: CheckTime) {
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
