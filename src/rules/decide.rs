//! How the rules that apply to one request decide together.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::answer::{Decided, Few, Part};
use super::chosen::Hasher;
use super::live::{Active, Gate, InForce, Limiter};
use super::overrides::Overrides;
use super::request::{Descriptor, Key};
use super::shared::{By, Said};
use super::spec::Charging;
use crate::clock::{Clock, saturating_nanos};
use crate::decision::{Decision, Facts, Outcome};
use crate::store::verb::{Carries, Store, Verb, When};
use crate::telemetry::{Event, Refusal, RefusalLog, Shares, TopDenied};

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
        let mut replaces = false;
        for (descriptor, place) in descriptors.iter().zip(0..) {
            let cost = descriptor.cost(cost);
            let said =
                |rule, part| Decided { rule, descriptor: place, part, soft: false, decision: None, by: None };
            if let Some((requests, unit)) = descriptor.own_limit() {
                if let Some(active) = domain.override_of(unit, hasher) {
                    let key = Key::of(&domain.name, descriptor, active);
                    self.asks.push(Ask { active, key, cost, own: Some(requests), charged: false, before: 0 });
                    self.said.push(said(Overrides::place(unit), Part::Enforced));
                }
                continue;
            }
            for index in domain.find(descriptor) {
                let Some(active) = domain.active(index) else { continue };
                let key = Key::of(&domain.name, descriptor, active);
                let part = part(active, &key, index, now_ns, hasher);
                replaces |= !active.rule.replaces.is_empty();
                self.asks.push(Ask { active, key, cost, own: None, charged: false, before: 0 });
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
            if rule.is_named && self.asks.iter().zip(&parts).any(by) {
                said.part = Part::Replaced;
            }
        }
    }

    /// Decides, and charges what is admitted.
    #[inline]
    pub(super) fn decide<C: Clock>(&mut self, charging: Charging, when: When<'_, C>) -> Outcome {
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
    pub(super) fn wait_besides<C: Clock>(&mut self, when: When<'_, C>) -> Duration {
        let admitted = |said: &Decided| said.part == Part::Enforced && said.outcome() == Outcome::Allowed;
        let waits = self.each(|_| true).filter(|(_, said)| admitted(said)).filter_map(|(ask, _)| {
            let (limiter, spare) = ask.limiter()?;
            limiter.look(ask.key.as_str(), ask.cost, spare, when).retry_after()
        });
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

    /// Whether there are rules with `quota_mode`, and none has room.
    pub(super) fn all_quotas_refuse(&self) -> bool {
        self.of(Part::Quota).count() > 0
            && self.of(Part::Quota).all(|said| said.outcome() != Outcome::Allowed)
    }

    /// Charges all that are enforced, and of those with `quota_mode` the ones that have room, at least one; or none.
    fn all_or_nothing<C: Clock>(&mut self, when: When<'_, C>) {
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
    pub(super) fn look_again<C: Clock>(&mut self, when: When<'_, C>) {
        let admits = |said: &Decided| refuses(said.part) && said.outcome() == Outcome::Allowed;
        for (ask, said) in self.each(|_| true).filter(|(_, said)| admits(said)) {
            ask.look(said, 0, when);
        }
    }

    /// Decides those that only report: they are charged if the request is admitted.
    pub(super) fn report_only<C: Clock>(&mut self, admitted: bool, when: When<'_, C>) {
        for (ask, said) in self.each(|part| part == Part::Shadow) {
            if admitted {
                ask.charge(said, when);
            } else {
                ask.look(said, 0, when);
            }
        }
    }

    /// Looks at all that can refuse; at one that counts what another before it counts too, for the cost of both.
    pub(super) fn look_together<C: Clock>(&mut self, when: When<'_, C>) {
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
    pub(super) fn charge_all<C: Clock>(&mut self, when: When<'_, C>) -> bool {
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
    pub(super) fn undo<C: Clock>(&mut self, when: When<'_, C>) {
        for (ask, said) in self.each(|_| true) {
            if !std::mem::take(&mut ask.charged) {
                continue;
            }
            if let (Some(limiter), Some(charge)) = (ask.active.limiter(), &said.decision) {
                let store = limiter.generation.store();
                store.give_back(ask.key.as_str(), when, charge, charge.charged());
            } else if let (Some(shared), Some(charge)) = (ask.active.shared(), &said.decision) {
                shared.limiter.refund(ask.key.as_str(), charge, said.by);
            }
        }
    }

    /// The same of what this process counts alone.
    #[cfg(feature = "redis")]
    pub(super) fn undo_here<C: Clock>(&mut self, when: When<'_, C>) {
        for (ask, said) in self.each(|_| true) {
            if let (true, Some(limiter), Some(charge)) = (ask.charged, ask.active.limiter(), &said.decision) {
                ask.charged = false;
                let store = limiter.generation.store();
                store.give_back(ask.key.as_str(), when, charge, charge.charged());
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
            let hash = match rule.counted_by {
                0 => hasher.hash_one((index, now_ns)),
                // The same keys in all processes that share it.
                #[cfg(feature = "redis")]
                _ if rule.is_shared() => super::shared::hash(&rule.identity, key.as_str()),
                _ => hasher.hash_one((&rule.identity, key.as_str())),
            };
            // The top of the hash as a part of a million.
            let part = (u128::from(hash) * u128::from(MILLION)) >> u64::BITS;
            part >= u128::from(rule.enforced_per_million)
        }
    };
    if rule.shadow || reports_only() {
        Part::Shadow
    } else if rule.quota_mode {
        Part::Quota
    } else {
        Part::Enforced
    }
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
            Gate::Limited(limiter) => limiter.generation.store().undoes(),
            Gate::Shared(shared) => shared.limiter.undoes(),
            Gate::Unlimited(_) | Gate::Blocked { .. } => false,
        }
    }

    /// Where it is counted, and how many units are to stay free there; `None` of a rule that counts nothing.
    fn limiter(&self) -> Option<(&Limiter, u64)> {
        let limiter = self.active.limiter()?;
        match self.own {
            None => Some((limiter, limiter.spare)),
            Some(0) => None,
            Some(own) => Some((limiter, self.active.quota.saturating_sub(own.into()))),
        }
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
    fn charge<C: Clock>(&mut self, said: &mut Decided, when: When<'_, C>) {
        said.decision = match self.limiter() {
            Some((limiter, spare)) => Some(limiter.charge(self.key.as_str(), self.cost, spare, when)),
            None if self.is_shared() => return self.ask_shared(said),
            None => self.uncounted(when.now_ns),
        };
        self.charged = said.decision.as_ref().is_some_and(|decision| decision.charged() > 0);
    }

    /// What charging it would say, if so much is charged besides.
    fn look<C: Clock>(&mut self, said: &mut Decided, besides: u64, when: When<'_, C>) {
        let cost = if self.cost == 0 { 0 } else { self.cost.saturating_add(besides) };
        said.decision = match self.limiter() {
            Some((limiter, spare)) => Some(limiter.look(self.key.as_str(), cost, spare, when)),
            // It is asked once; what it said and was charged for has been taken back.
            #[cfg(feature = "redis")]
            None if self.is_shared() => {
                let undoes = self.undoes();
                said.decision.map(|said| if undoes { said.given_back() } else { said.uncharged() })
            }
            #[cfg(not(feature = "redis"))]
            None if self.is_shared() => None,
            None => self.uncounted(when.now_ns),
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
    pub(super) fn count<C: Clock>(&mut self, said: &mut Decided, when: When<'_, C>) {
        if said.part == Part::Replaced {
            return;
        }
        match self.limiter() {
            Some((limiter, spare)) => {
                // Where limits of requests are counted there is room for any, so all of it is counted.
                let verb = match self.own {
                    Some(_) => Verb::Force,
                    // All but one of the spare units are for what is owed from before.
                    None => Verb::TakeWithin { spare: spare.saturating_sub(1) },
                };
                let counted = limiter.count(self.key.as_str(), verb, self.cost, spare, when);
                (said.decision, self.charged) = (Some(counted.decision), counted.charged > 0);
                self.before = counted.before;
            }
            None if self.is_shared() => self.ask_shared(said),
            None => said.decision = self.uncounted(when.now_ns),
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self.active.gate, Gate::Shared(_))
    }
}

/// The answer of a limit of nothing.
fn blocked(period: Duration, cost: u64, now_ns: u64) -> Decision {
    let outcome = if cost == 0 { Outcome::Allowed } else { Outcome::Never };
    let reset_ns = match saturating_nanos(period) {
        0 => 0,
        period_ns => period_ns - now_ns % period_ns,
    };
    let facts = Facts::Plain { remaining: 0, retry_ns: reset_ns, reset_ns, delay_ns: 0 };
    Decision::new(outcome, cost, 0, now_ns, facts).uncharged()
}

impl Limiter {
    /// Charges a request, if that leaves the spare units free.
    fn charge<C: Clock>(&self, key: &str, cost: u64, spare: u64, when: When<'_, C>) -> Decision {
        let generation = &self.generation;
        if cost == 0 {
            return self.look(key, 0, spare, when);
        }
        if spare == 0 {
            return generation.act(key, Verb::Check, when, cost);
        }
        let decision = generation.act(key, Verb::Within { spare }, when, cost);
        decision.judged(decision.outcome(), cost, spare, || self.next(key, spare, when))
    }

    /// What that would be.
    fn look<C: Clock>(&self, key: &str, cost: u64, spare: u64, when: When<'_, C>) -> Decision {
        let generation = &self.generation;
        // A look for nothing is always allowed.
        let more = if cost == 0 { 0 } else { spare };
        let decision = generation.look(key, when, cost.saturating_add(more));
        decision.judged(decision.outcome(), cost, spare, || self.next(key, spare, when))
    }

    /// Whether there is room for one unit, and when.
    fn next<C: Clock>(&self, key: &str, spare: u64, when: When<'_, C>) -> Decision {
        self.generation.look(key, when, spare.saturating_add(1))
    }

    /// Counts a request first and judges it afterwards, in a store that has room for one unit more than may be in use: whether
    /// that is taken says that the limit is exceeded, by however much.
    fn count<C: Clock>(&self, key: &str, verb: Verb, cost: u64, spare: u64, when: When<'_, C>) -> Counted {
        let generation = &self.generation;
        let taken = match cost {
            0 => generation.look(key, when, 0),
            _ => generation.act(key, verb, when, cost),
        };
        let charged = taken.charged();
        let is_over = taken.remaining() < spare || (cost > 0 && charged < cost);
        let outcome = match is_over {
            false => Outcome::Allowed,
            true if cost > taken.limit().saturating_sub(spare) => Outcome::Never,
            true => Outcome::Denied,
        };
        let judged = match outcome {
            // When there is room for the request and the spare units.
            Outcome::Denied => generation.look(key, when, cost.saturating_add(spare)),
            _ => taken,
        };
        let in_use = taken.limit().saturating_sub(taken.remaining());
        let before = in_use.saturating_sub(charged);
        let decision = judged.judged(outcome, cost, spare, || self.next(key, spare, when));
        Counted { decision, charged, before }
    }
}

/// What came of counting a request first.
struct Counted {
    decision: Decision,
    charged: u64,
    /// What was in use before.
    before: u64,
}
