//! How the rules that apply to one request decide together.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::answer::{Decided, Few, Part};
use super::charge::blocked;
use super::chosen::Hasher;
use super::live::{Active, Gate, InForce, Limiter};
use super::overrides::Overrides;
use super::request::{Descriptor, Key};
use super::shared::{By, Said};
use super::spec::{Charging, Limit};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::fence_after_rmw;
use crate::edge::telemetry::{Event, Refusal, RefusalLog, Shares, TopDenied};
use crate::store::op::{Migrate, Operation, Store};

/// Who is told of refusals.
#[derive(Debug, Default)]
pub(super) struct Observers {
    pub(super) top: Option<TopDenied>,
    pub(super) log: RefusalLog,
}

/// Parts of a million.
const MILLION: u32 = 1_000_000;

/// A rule that applies to a request, and what it is asked.
#[derive(Debug)]
pub(super) struct Ask<'r> {
    pub(super) active: &'r Active,
    pub(super) key: Key<'r>,
    pub(super) cost: u64,
    /// The limit that the request brings along.
    own: Option<u32>,
    /// The other counter of the same requests: a limit that a request brings along and the file's rule of its unit count as one.
    twin: Option<(&'r Limiter, Key<'r>)>,
    pub(super) charged: bool,
    /// What was in use before, if requests are counted first.
    before: u64,
}

/// The rules that apply to a request, decided together: what each is asked, and what it says, in place, for it is large.
#[derive(Debug, Default)]
pub(super) struct Asks<'r> {
    pub(super) asks: SmallVec<[Ask<'r>; 2]>,
    said: Few<Decided>,
}

impl<'r> Asks<'r> {
    /// Those that apply to any of the descriptors.
    #[inline]
    pub(super) fn find(
        &mut self,
        domain: &'r InForce,
        descriptors: &[Descriptor<'r>],
        cost: u64,
        now_ns: u64,
        hasher: &Hasher,
    ) {
        domain.note_asked();
        let mut replaces = false;
        for (descriptor, place) in descriptors.iter().zip(0..) {
            let cost = descriptor.cost(cost);
            let said =
                |rule, part| Decided { rule, descriptor: place, part, soft: false, decision: None, by: None };
            if let Some((requests, unit)) = descriptor.own_limit() {
                if let Some(active) = domain.override_of(unit, hasher) {
                    let key = Key::of_request(&domain.name, descriptor);
                    let rules = domain.find(descriptor).filter_map(|index| domain.active(index));
                    let twin = rules.filter(|rule| rule.unit == Some(unit)).find_map(|rule| {
                        let limiter = rule.limiter()?;
                        Some((limiter, Key::of_rule(descriptor, rule)))
                    });
                    let own = Some(requests);
                    self.asks.push(Ask { active, key, cost, own, twin, charged: false, before: 0 });
                    self.said.push(said(Overrides::place(unit), Part::Enforced));
                }
                continue;
            }
            for index in domain.find(descriptor) {
                let Some(active) = domain.matched(index) else { continue };
                let key = Key::of_rule(descriptor, active);
                let part = part(active, &key, index, now_ns, hasher);
                replaces |= !active.rule.replaces.is_empty();
                let twin = active.unit.and_then(|unit| {
                    let limiter = domain.override_in_use(unit)?.limiter()?;
                    Some((limiter, Key::of_request(&domain.name, descriptor)))
                });
                self.asks.push(Ask { active, key, cost, own: None, twin, charged: false, before: 0 });
                self.said.push(said(index, part));
            }
        }
        if replaces {
            self.replace();
        }
    }

    /// Switches those off that others replace.
    #[cold]
    fn replace(&mut self) {
        // A rule that only reports switches none off that refuses.
        let parts: SmallVec<[Part; 8]> = self.said.iter().map(|said| said.part).collect();
        for (ask, said) in self.asks.iter().zip(&mut self.said) {
            let rule = &ask.active.rule;
            let by = |(other, part): (&Ask<'_>, &Part)| {
                other.active.rule.replaces.contains(&rule.name)
                    && (*part != Part::Shadow || said.part == Part::Shadow)
            };
            // One without a limit says so, whoever replaces it.
            let replaceable = rule.is_named && rule.limit != Limit::Unlimited;
            if replaceable && self.asks.iter().zip(&parts).any(by) {
                said.part = Part::Replaced;
            }
        }
    }

    /// Decides, and charges what is admitted.
    #[inline]
    pub(super) fn decide(&mut self, charging: Charging, when: CheckTime) -> Outcome {
        // The usual case.
        if let ([ask], [said], Charging::AllOrNothing) = (&mut self.asks[..], &mut self.said[..], charging)
            && said.part == Part::Enforced
        {
            ask.charge(said, when);
            return said.outcome();
        }
        match charging {
            Charging::AllOrNothing => self.all_or_nothing(when),
            Charging::CountFirst => self.each(|_| true).for_each(|(ask, said)| ask.count(said, when)),
        }
        self.outcome()
    }

    /// What they say together: of those that refuse one may say never.
    pub(super) fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::Allowed;
        for said in self.of(Part::Enforced) {
            outcome = worse(outcome, said.outcome());
        }
        if self.all_quotas_refuse() {
            // One of them is enough.
            let is_never = self.of(Part::Quota).all(|said| said.outcome() == Outcome::Never);
            outcome = worse(outcome, if is_never { Outcome::Never } else { Outcome::Denied });
        }
        outcome
    }

    /// How long until all of those that admitted a request which was refused, and counted it all the same, would admit it again.
    #[cold]
    pub(super) fn wait_besides(&mut self, when: CheckTime) -> Duration {
        let admitted = |said: &Decided| said.part == Part::Enforced && said.outcome() == Outcome::Allowed;
        let waits = self.each(|_| true).filter(|(_, said)| admitted(said));
        let waits = waits.filter_map(|(ask, _)| ask.looked(ask.cost, when)?.retry_after());
        waits.max().unwrap_or_default()
    }

    fn of(&self, part: Part) -> impl Iterator<Item = &Decided> {
        self.said.iter().filter(move |said| said.part == part)
    }

    /// Those that take part so.
    pub(super) fn each(
        &mut self,
        part: impl Fn(Part) -> bool,
    ) -> impl Iterator<Item = (&mut Ask<'r>, &mut Decided)> {
        self.asks.iter_mut().zip(&mut self.said).filter(move |(_, said)| part(said.part))
    }

    /// Whether there are rules with `quota_mode`, and none has room. One that only reports always has.
    pub(super) fn all_quotas_refuse(&self) -> bool {
        let mut reports = self.asks.iter().zip(&self.said).filter(|(_, said)| said.part == Part::Shadow);
        self.of(Part::Quota).count() > 0
            && self.of(Part::Quota).all(|said| said.outcome() != Outcome::Allowed)
            && !reports.any(|(ask, _)| is_quota(ask.active))
    }

    /// Charges all that are enforced, and of those with `quota_mode` the ones that have room, at least one; or none.
    fn all_or_nothing(&mut self, when: CheckTime) {
        // One limit alone is charged at once.
        let several = self.each(refuses).count() > 1;
        if several {
            self.look_together(when);
        }
        let admits = !several || (self.outcome() == Outcome::Allowed && self.look_at_shared());
        let admitted = admits && self.charge_all(when);
        if several && !admitted && self.charged() {
            self.undo(when);
            self.look_again(when);
        }
        self.report_only(admitted, when);
    }

    /// Looks again at what was charged and given back. What refused stays what it said: by now it might admit, but nothing is charged
    /// for that.
    pub(super) fn look_again(&mut self, when: CheckTime) {
        let admits = |said: &Decided| refuses(said.part) && said.outcome() == Outcome::Allowed;
        for (ask, said) in self.each(|_| true).filter(|(_, said)| admits(said)) {
            ask.look(said, 0, when);
        }
    }

    /// Decides those that only report: they are charged if the request is admitted.
    pub(super) fn report_only(&mut self, admitted: bool, when: CheckTime) {
        for (ask, said) in self.each(|part| part == Part::Shadow) {
            if admitted {
                ask.charge(said, when);
            } else {
                ask.look(said, 0, when);
            }
        }
    }

    /// Looks at all that can refuse; at one that counts what another before it counts too, for the cost of both.
    pub(super) fn look_together(&mut self, when: CheckTime) {
        for place in 0..self.asks.len() {
            let (before, rest) = self.asks.split_at_mut(place);
            if let (Some(ask), Some(said)) = (rest.first_mut(), self.said.get_mut(place))
                && refuses(said.part)
            {
                let same = before.iter().filter(|other| other.counts_the_same(ask));
                let besides = same.fold(0_u64, |sum, other| sum.saturating_add(other.cost));
                ask.look(said, besides, when);
            }
        }
    }

    /// Looks at shared ones whose charges cannot be taken back, if there are several; whether none of them refuses.
    fn look_at_shared(&mut self) -> bool {
        for place in self.to_look_at() {
            let besides = self.besides(place);
            if let (Some(ask), Some(said)) = (self.asks.get_mut(place), self.said.get_mut(place))
                && let Some(shared) = ask.active.shared()
                && let Some(looked) = shared.limiter.look(ask.key.as_str(), ask.cost.saturating_add(besides))
            {
                ask.hear(said, looked);
            }
        }
        self.go_on()
    }

    /// Those of which it has to be known beforehand whether they admit.
    pub(super) fn to_look_at(&self) -> SmallVec<[usize; 2]> {
        let stay = |(_, (ask, said)): &(usize, (&Ask<'_>, &Decided))| {
            refuses(said.part) && ask.is_shared() && ask.cost > 0 && !ask.undoes()
        };
        let places: SmallVec<[usize; 2]> =
            self.asks.iter().zip(&self.said).enumerate().filter(stay).map(|(place, _)| place).collect();
        if places.len() > 1 { places } else { SmallVec::new() }
    }

    /// What others before it would charge to the same key.
    pub(super) fn besides(&self, place: usize) -> u64 {
        let Some((ask, before)) = self.asks.get(..=place).and_then(<[_]>::split_last) else { return 0 };
        let same = before.iter().zip(&self.said).filter(|(_, said)| refuses(said.part));
        let same = same.filter(|(other, _)| other.counts_the_same(ask));
        same.fold(0_u64, |sum, (other, _)| sum.saturating_add(other.cost))
    }

    /// After a look at shared ones: whether the request may go on. Then they have yet to be asked.
    pub(super) fn go_on(&mut self) -> bool {
        let admits = self.outcome() == Outcome::Allowed;
        for (_, said) in self.each(refuses).filter(|(ask, _)| admits && ask.is_shared()) {
            (said.decision, said.by) = (None, None);
        }
        admits
    }

    /// Those that can be taken back first. Whether the request may go.
    pub(super) fn charge_all(&mut self, when: CheckTime) -> bool {
        for undoes in [true, false] {
            for (ask, said) in self.each(|part| part == Part::Enforced) {
                if ask.undoes() == undoes {
                    ask.charge(said, when);
                    if said.outcome() != Outcome::Allowed {
                        return false;
                    }
                }
            }
        }
        self.each(|part| part == Part::Quota).for_each(|(ask, said)| ask.charge(said, when));
        !self.all_quotas_refuse()
    }

    /// Whether anything was charged.
    pub(super) fn charged(&self) -> bool {
        self.asks.iter().any(|ask| ask.charged)
    }

    /// Takes back what was charged, as far as it can be.
    pub(super) fn undo(&mut self, when: CheckTime) {
        for (ask, said) in self.each(|_| true) {
            if !std::mem::take(&mut ask.charged) {
                continue;
            }
            if let (Some(limiter), Some(charge)) = (ask.active.limiter(), &said.decision) {
                let store = limiter.generation.store();
                store.refund(ask.key.as_str(), when, charge, charge.charged());
            } else if let (Some(shared), Some(charge)) = (ask.active.shared(), &said.decision) {
                shared.limiter.refund(ask.key.as_str(), charge, said.by);
            }
        }
    }

    /// The same of what this process counts alone.
    #[cfg(feature = "redis")]
    pub(super) fn undo_here(&mut self, when: CheckTime) {
        for (ask, said) in self.each(|_| true) {
            if let (true, Some(limiter), Some(charge)) = (ask.charged, ask.active.limiter(), &said.decision) {
                ask.charged = false;
                let store = limiter.generation.store();
                store.refund(ask.key.as_str(), when, charge, charge.charged());
            }
        }
    }

    /// A rule and what it says, by its place.
    #[cfg(feature = "redis")]
    pub(super) fn at(&mut self, place: usize) -> Option<(&mut Ask<'r>, &mut Decided)> {
        Some((self.asks.get_mut(place)?, self.said.get_mut(place)?))
    }

    /// Whether the rules of a newer load count for all of them where these do.
    pub(super) fn still_count_in(&self, domain: Option<&InForce>) -> bool {
        let mut charged = self.asks.iter().filter(|ask| ask.charged && ask.own.is_none());
        charged.all(|ask| ask.active.counts_in(domain))
    }

    /// Whether a request has brought a limit along meanwhile, the first of its unit, that counts together with one of these rules.
    pub(super) fn missed_twin(&self, domain: &InForce) -> bool {
        let is_in_use = |unit| domain.override_in_use(unit).is_some();
        let mut alone = self.asks.iter().filter(|ask| ask.own.is_none() && ask.twin.is_none());
        alone.any(|ask| ask.active.unit.is_some_and(is_in_use))
    }

    /// Tells what came of each: of a request of this outcome, whether that is a dry run, and whether all quotas refuse.
    pub(super) fn report(
        &mut self,
        domain: &InForce,
        descriptors: &[Descriptor<'_>],
        came_of_it: (Outcome, bool, bool),
        to: &Observers,
    ) {
        let (_, shadow, _) = came_of_it;
        for (ask, said) in self.each(|part| part != Part::Replaced) {
            let beyond_soft = ask.beyond_soft(said, shadow);
            said.soft = beyond_soft > 0;
            if let Some(shadow) = ask.report(said, domain, came_of_it, beyond_soft) {
                ask.tell(said, domain, descriptors, shadow, to);
            }
        }
    }

    /// What is kept of them.
    pub(super) fn said(self) -> Few<Decided> {
        self.said
    }
}

impl Decided {
    fn outcome(&self) -> Outcome {
        self.decision.as_ref().map_or(Outcome::Allowed, Decision::outcome)
    }
}

/// Whether it can refuse the request.
pub(super) fn refuses(part: Part) -> bool {
    matches!(part, Part::Enforced | Part::Quota)
}

/// How a rule takes part. Of those that refuse some keys only, which are those is chosen by the key; where all requests share one,
/// by the time.
fn part(active: &Active, key: &Key<'_>, index: u32, now_ns: u64, hasher: &Hasher) -> Part {
    let rule = &active.rule;
    let reports_only = || {
        rule.enforced_per_million < MILLION && {
            let hash = match rule.has_one_counter() {
                true => hasher.hash_one((index, now_ns)),
                // The same keys in all processes that share it.
                #[cfg(feature = "redis")]
                false if rule.is_shared() => super::shared::hash(&rule.identity, key.as_str()),
                false => hasher.hash_one((&rule.identity, key.as_str())),
            };
            // The top of the hash as a part of a million.
            let part = (u128::from(hash) * u128::from(MILLION)) >> u64::BITS;
            part >= u128::from(rule.enforced_per_million)
        }
    };
    if rule.shadow || reports_only() {
        Part::Shadow
    } else if is_quota(active) {
        Part::Quota
    } else {
        Part::Enforced
    }
}

/// Whether it refuses only together with all such rules. What has no limit is no quota.
fn is_quota(active: &Active) -> bool {
    active.rule.quota_mode && active.rule.limit != Limit::Unlimited
}

fn worse(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Never, _) | (_, Outcome::Never) => Outcome::Never,
        (Outcome::Denied, _) | (_, Outcome::Denied) => Outcome::Denied,
        _ => Outcome::Allowed,
    }
}

impl Ask<'_> {
    /// How many units of its cost are in use beyond the soft limit. None of a rule that only reports: that marks nobody.
    fn beyond_soft(&self, said: &Decided, shadow: bool) -> u64 {
        let Some(decision) = &said.decision else { return 0 };
        let soft = self.active.rule.soft;
        if soft == u64::MAX || decision.is_denied() || shadow || !refuses(said.part) {
            return 0;
        }
        let owed = match &self.active.gate {
            Gate::Limited(limiter) => limiter.generation.store().owed(decision),
            // Where this process decides by a part, it is not known.
            Gate::Shared(_) if said.by.is_some_and(By::knows_remaining) => decision.owed(),
            _ => return 0,
        };
        owed.saturating_sub(soft).min(self.cost)
    }

    /// Counts what came of it; of a refusal whether that only reports. A look is nothing to count; and of a request
    /// that another rule refused nothing was charged here, so nothing is counted either, unless refused requests are charged too.
    fn report(
        &self,
        said: &Decided,
        domain: &InForce,
        (outcome, shadow, quotas_refuse): (Outcome, bool, bool),
        beyond_soft: u64,
    ) -> Option<bool> {
        let Self { active, cost, .. } = self;
        if *cost == 0 {
            return None;
        }
        let Some(decision) = &said.decision else {
            if active.shared().is_none() {
                active.meters.record(Event::Unlimited, *cost);
            }
            return None;
        };
        let counts_first = domain.charging == Charging::CountFirst;
        if let Some(event) = said.by.and_then(By::event) {
            let is_allowed = decision.is_allowed();
            if !is_allowed || outcome == Outcome::Allowed || shadow || counts_first {
                active.meters.record(event, *cost);
            }
            let refuses_none =
                shadow || said.part == Part::Shadow || (said.part == Part::Quota && !quotas_refuse);
            return (!is_allowed).then_some(refuses_none);
        }
        if decision.is_allowed() {
            if outcome == Outcome::Allowed || shadow || counts_first {
                match said.by {
                    // How near the limit it is, nobody knows.
                    Some(by) if !by.knows_remaining() => active.meters.record(Event::Allowed, *cost),
                    _ => active.meters.observe(decision, false),
                }
                if beyond_soft > 0 {
                    active.meters.record(Event::SoftLimited, beyond_soft);
                }
            }
            return None;
        }
        let shadow = shadow || said.part == Part::Shadow || (said.part == Part::Quota && !quotas_refuse);
        if counts_first {
            // Of a cost that crosses a line, a part is on either side.
            active.meters.record(if shadow { Event::ShadowDenied } else { Event::Denied }, *cost);
            active.meters.record_shares(Shares::of(
                decision.limit(),
                self.before.saturating_add(*cost),
                *cost,
            ));
        } else {
            active.meters.observe(decision, shadow);
        }
        Some(shadow)
    }

    /// Tells of a refusal.
    #[cold]
    fn tell(
        &self,
        said: &Decided,
        domain: &InForce,
        descriptors: &[Descriptor<'_>],
        shadow: bool,
        to: &Observers,
    ) {
        let key = match &self.key {
            _ if to.top.is_none() && !to.log.has_keys() => Cow::Borrowed(""),
            Key::Whole(value) => Cow::Borrowed(*value),
            Key::Joined(_) => {
                let entries = descriptors.get(said.descriptor as usize).map_or(&[][..], Descriptor::entries);
                let pairs: Vec<String> =
                    entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
                Cow::Owned(pairs.join(","))
            }
        };
        let rule = &*self.active.rule.name;
        if let (Some(top), false) = (&to.top, shadow) {
            top.record(rule, &key);
        }
        let retry_after = said.decision.and_then(|decision| decision.retry_after());
        to.log.record(&Refusal { domain: &domain.name, rule, retry_after, shadow, key: &key });
    }

    pub(super) fn undoes(&self) -> bool {
        match &self.active.gate {
            Gate::Limited(limiter) => limiter.generation.store().can_refund(),
            Gate::Shared(shared) => shared.limiter.undoes(),
            Gate::Unlimited(_) | Gate::Blocked { .. } => false,
        }
    }

    /// Where it is counted, and how many units are to stay free there; `None` of a rule that counts nothing.
    fn limiter(&self) -> Option<(&Limiter, u64)> {
        // What a limit of nothing refuses is not counted, unless requests are counted first.
        self.counter().filter(|_| self.own != Some(0))
    }

    /// The same, if requests are counted first.
    fn counter(&self) -> Option<(&Limiter, u64)> {
        let limiter = self.active.limiter()?;
        match self.own {
            None => Some((limiter, limiter.spare)),
            Some(own) => Some((limiter, self.active.quota.saturating_sub(own.into()))),
        }
    }

    /// The units that the other counter of these requests holds.
    fn elsewhere(&self, when: CheckTime) -> u64 {
        let Some((limiter, key)) = &self.twin else { return 0 };
        // A charge comes before this look, on either side: of two that race, at least one sees the other.
        fence_after_rmw();
        limiter.generation.peek(key.as_str(), when, 0).owed()
    }

    /// What charging so much would say, of a rule that counts here.
    fn looked(&self, cost: u64, when: CheckTime) -> Option<Decision> {
        let (limiter, spare) = self.limiter()?;
        Some(limiter.look(self.key.as_str(), cost, spare, when).beside(self.elsewhere(when)))
    }

    /// Charges it if both counters together have room. Two requests, one for each counter, that race for the last units may both
    /// be refused; both are never admitted.
    #[cold]
    fn charge_with_twin(&self, when: CheckTime) -> Option<Decision> {
        let looked = self.looked(self.cost, when)?;
        if looked.is_denied() || self.cost == 0 {
            return Some(looked);
        }
        let (limiter, spare) = self.limiter()?;
        let charge = limiter.charge(self.key.as_str(), self.cost, spare, when);
        let both = charge.beside(self.elsewhere(when));
        if charge.is_allowed() && both.is_denied() {
            let store = limiter.generation.store();
            store.refund(self.key.as_str(), when, &charge, charge.charged());
        }
        Some(both)
    }

    /// The answer of a rule that counts nothing.
    fn uncounted(&self, now_ns: u64) -> Option<Decision> {
        match self.active.gate {
            Gate::Unlimited(_) => None,
            Gate::Blocked { period, .. } => Some(blocked(period, self.cost, now_ns)),
            // A request that brings a limit of nothing along.
            Gate::Limited(_) => Some(blocked(self.active.window, self.cost, now_ns)),
            Gate::Shared(_) => None,
        }
    }

    /// Asks a rule that processes share, without waiting for longer than its mode does, unless it has answered already.
    #[cold]
    fn ask_shared(&mut self, said: &mut Decided) {
        let Some(shared) = self.active.shared() else { return };
        if said.decision.is_none() && self.cost > 0 {
            self.hear(said, shared.limiter.check(self.key.as_str(), self.cost));
        }
    }

    /// Takes the answer of a rule that processes share.
    pub(super) fn hear(&mut self, said: &mut Decided, (decision, by): Said) {
        self.charged = decision.charged() > 0;
        self.before =
            decision.limit().saturating_sub(decision.remaining()).saturating_sub(decision.charged());
        (said.decision, said.by) = (Some(decision), Some(by));
    }

    #[inline]
    fn charge(&mut self, said: &mut Decided, when: CheckTime) {
        said.decision = match self.limiter() {
            Some(_) if self.twin.is_some() => self.charge_with_twin(when),
            Some((limiter, spare)) => Some(limiter.charge(self.key.as_str(), self.cost, spare, when)),
            None if self.is_shared() => return self.ask_shared(said),
            None => self.uncounted(when.ns()),
        };
        self.charged = said.decision.as_ref().is_some_and(|decision| decision.charged() > 0);
    }

    /// What charging it would say, if so much is charged besides.
    fn look(&mut self, said: &mut Decided, besides: u64, when: CheckTime) {
        let cost = if self.cost == 0 { 0 } else { self.cost.saturating_add(besides) };
        said.decision = match self.looked(cost, when) {
            Some(looked) => Some(looked),
            // It is asked once; what it said and was charged for has been taken back.
            #[cfg(feature = "redis")]
            None if self.is_shared() => {
                let undoes = self.undoes();
                said.decision.map(|said| if undoes { said.given_back() } else { said.uncharged() })
            }
            #[cfg(not(feature = "redis"))]
            None if self.is_shared() => None,
            None => self.uncounted(when.ns()),
        };
    }

    /// Whether both are counted in one place.
    fn counts_the_same(&self, other: &Self) -> bool {
        match (self.active.limiter(), other.active.limiter()) {
            (Some(one), Some(two)) => {
                Arc::ptr_eq(&one.generation, &two.generation) && self.key.as_str() == other.key.as_str()
            }
            _ => match (self.active.shared(), other.active.shared()) {
                (Some(one), Some(two)) => {
                    Arc::ptr_eq(&one.limiter, &two.limiter) && self.key.as_str() == other.key.as_str()
                }
                _ => false,
            },
        }
    }

    /// Counts it, and judges afterwards.
    pub(super) fn count(&mut self, said: &mut Decided, when: CheckTime) {
        if said.part == Part::Replaced {
            return;
        }
        match self.counter() {
            Some((limiter, spare)) => {
                // Where limits of requests are counted there is room for any, so all of it is counted.
                let verb = match self.own {
                    Some(_) => Operation::Force,
                    // All but one of the spare units are for what is owed from before.
                    None => Operation::TakeKeeping { headroom: spare.saturating_sub(1) },
                };
                let elsewhere = || self.elsewhere(when);
                let counted = limiter.count(self.key.as_str(), verb, self.cost, spare, when, elsewhere);
                (said.decision, self.charged) = (Some(counted.decision), counted.charged > 0);
                self.before = counted.before;
            }
            None if self.is_shared() => self.ask_shared(said),
            None => said.decision = self.uncounted(when.ns()),
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self.active.gate, Gate::Shared(_))
    }
}
