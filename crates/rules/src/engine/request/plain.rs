//! Requests whose stores alone decide: each rule that applies is [plain](ActiveRule::plain). Most requests are like this.
//!
//! The [route](super::route) takes such a request with a list of [`PlainCheck`]s, whose steps are short, and any other request
//! with a [`RequestCheck`](super::check::RequestCheck). It chooses once, when it has found the rules, and searches none of them
//! twice. The most frequent list is a single rule. It is compiled apart, from the same functions: it is charged directly, and reported as
//! an array of one, so that the compiler leaves no list and no loop.
//!
//! # Protocol
//! ```text
//! peek    at all rules but the first. Each keeps a ticket that charges it ── one denies ──► denied
//! charge  the first rule, because its charge gives the same information as a peek ── denied ──► denied
//! charge  the others by their tickets. If another request was first, the rule decides again ── denied ──► all are refunded
//! ```
//! A denied request then peeks at the rules that would admit it, because their figures are part of the answer.

use std::hash::BuildHasher;
use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;
use tollgate::internals::op::{Exchange, Pins, Store, WordTicket};
use tollgate::internals::{CheckTime, OwnTallies};
use tollgate::stores::AnyStore;
use tollgate::{Clock, Decision, Outcome};
use tollgate_config::internals::FoundRules;

use super::check::{Request, worse};
use super::decided::Decided;
use super::report::Reporting;
use super::rule_check::{CountedBy, RuleCheck};
use crate::counting::Hasher;
use crate::descriptor::{CounterKey, Descriptor, KeyTexts};
use crate::engine::state::{ActiveDomain, ActiveRule, LocalCounter, Role, RuleSet, Rules};

/// A list on the stack. Of a longer one, the memory is allocated.
type Several<T> = SmallVec<[T; 16]>;

/// The rules of the first descriptors, as far as they were searched.
pub(super) type Searched = Several<FoundRules>;

/// A rule that applies to a descriptor, if its store alone decides.
#[derive(Copy, Clone, Debug)]
pub(super) struct PlainCheck<'r> {
    active: &'r ActiveRule,
    counter: &'r LocalCounter,
    key: &'r str,
    cost: u64,
    /// What charges to the same key cost before this one.
    earlier: u64,
    /// The thread's counters of the rule's outcomes.
    own: Option<OwnTallies<'r>>,
    /// What charges the rule, once it has decided and its charge is one exchange.
    ticket: Option<WordTicket<'r>>,
}

/// Room of a request for what its checks borrow: the texts of keys, and the guards of tickets.
#[derive(Default)]
pub(super) struct Room {
    texts: KeyTexts,
    pins: Pins,
}

/// The rules of a request that are all plain.
#[derive(Debug)]
pub(super) struct PlainChecks<'r>(Several<PlainCheck<'r>>);

impl<'r> Deref for PlainChecks<'r> {
    type Target = [PlainCheck<'r>];

    #[inline(always)]
    fn deref(&self) -> &[PlainCheck<'r>] {
        &self.0
    }
}

impl DerefMut for PlainChecks<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<'r> PlainChecks<'r> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self(Several::new())
    }

    /// Searches the rules of a request, and notes what it found. Returns whether there are rules, and all of them are plain.
    /// Works in place, because the list is too large to move.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        domain: &'r ActiveDomain,
        request: &Request<'_, 'r>,
        decided: &mut Vec<Decided>,
        (known, searched): (&[FoundRules], &mut Searched),
        (room, when): (&'r Room, CheckTime),
    ) -> bool {
        decided.reserve(request.descriptors.len());
        // The numbers of the rules, one bit for each, modulo the number of bits.
        let mut numbers = 0;
        let mut known = known.iter().copied();
        for (descriptor, place) in request.descriptors.iter().zip(0..) {
            let found = known.next().unwrap_or_else(|| domain.search(descriptor));
            searched.push(found);
            let Some(cost) = plain_cost(descriptor, request.hits) else { return false };
            for (rule, active) in domain.rules_of(found) {
                let Some(check) =
                    PlainCheck::new(domain, descriptor, active, cost, (Some(&room.texts), when))
                else {
                    return false;
                };
                let number = 1_u64.rotate_left(rule);
                let earlier = if numbers & number == 0 { 0 } else { self.cost_of(active, check.key) };
                numbers |= number;
                self.0.push(PlainCheck { earlier, ..check });
                decided.push(Decided::not_yet(rule, place, Role::Enforced));
            }
        }
        !self.0.is_empty()
    }

    /// Returns the units that these checks charge to a key.
    #[inline(never)]
    fn cost_of(&self, active: &ActiveRule, key: &str) -> u64 {
        let same = self.0.iter().filter(|check| std::ptr::eq(check.active, active) && check.key == key);
        same.fold(0, |sum, check| sum.saturating_add(check.cost))
    }
}

/// Decides a request that costs nothing by one rule. Such a request charges nothing and is not counted.
#[inline(never)]
pub(super) fn query(
    domain: &ActiveDomain,
    check: PlainCheck<'_>,
    decided: &mut Decided,
    when: CheckTime,
) -> Outcome {
    let start = domain.timer.start();
    decided.decision = Some(check.peek(when));
    domain.timer.stop(start);
    decided.outcome()
}

/// Returns the cost of a descriptor. `None` if it sets its own limit, also if no rule applies to it, or if it only peeks.
#[inline(always)]
fn plain_cost(descriptor: &Descriptor<'_>, hits: u64) -> Option<u64> {
    if descriptor.limit.is_some() {
        return None;
    }
    let cost = descriptor.cost(hits);
    if cost > 0 { Some(cost) } else { None }
}

/// The hash of a key in compact stores. All counters of the rules have one hasher, and rules of one request often count by the
/// same value, so the last hash is kept.
struct KeyHash<'r, 'h> {
    hasher: &'h Hasher,
    last: Option<(&'r str, u64)>,
}

impl<'r> KeyHash<'r, '_> {
    #[inline(always)]
    fn of(&mut self, key: &'r str) -> u64 {
        match self.last {
            // The same text, without a look at it.
            Some((last, hash)) if std::ptr::eq(last, key) => hash,
            _ => self.of_other(key),
        }
    }

    #[inline(never)]
    fn of_other(&mut self, key: &'r str) -> u64 {
        let hash = BuildHasher::hash_one(self.hasher, key);
        self.last = Some((key, hash));
        hash
    }
}

/// Charges all rules if all of them admit the request, or none.
#[inline(always)]
pub(super) fn decide<'r>(
    checks: &mut [PlainCheck<'r>],
    decided: &mut [Decided],
    when: CheckTime,
    (hasher, room): (&Hasher, &'r Room),
) -> Outcome {
    if let ([check], [decided]) = (&*checks, &mut *decided) {
        return check.decide(decided, when, hasher);
    }
    let hashes = KeyHash { hasher, last: None };
    match charge_all(checks, decided, (when, room), hashes) {
        true => Outcome::Allowed,
        false => deny(checks, decided, when),
    }
}

/// Peeks at the rules that would admit the denied request. Returns its outcome.
#[cold]
#[inline(never)]
fn deny(checks: &[PlainCheck<'_>], decided: &mut [Decided], when: CheckTime) -> Outcome {
    checks.iter().zip(decided).fold(Outcome::Allowed, |outcome, (check, decided)| {
        if decided.outcome() == Outcome::Allowed {
            decided.decision = Some(check.peek(when));
        }
        worse(outcome, decided.outcome())
    })
}

/// Refunds the charges of an admitted request.
#[cold]
#[inline(never)]
pub(super) fn refund(checks: &[PlainCheck<'_>], decided: &[Decided], when: CheckTime) {
    checks.iter().zip(decided).for_each(|(check, decided)| check.refund(decided, when));
}

/// Counts the admitted request.
#[inline(always)]
pub(super) fn report_admitted(checks: &[PlainCheck<'_>], decided: &[Decided]) {
    for (check, decided) in checks.iter().zip(decided) {
        if let Some(decision) = &decided.decision {
            check.active.meters.observe_allowed(check.own, decision);
        }
    }
}

/// Reports the outcome of each rule in a denied request.
#[cold]
#[inline(never)]
pub(super) fn report_denied(checks: &[PlainCheck<'_>], decided: &mut [Decided], reporting: &Reporting<'_>) {
    for (PlainCheck { active, counter, key, cost, .. }, decided) in checks.iter().zip(decided) {
        let (counted, key) = (CountedBy::Local { counter, headroom: 0 }, CounterKey::Whole(key));
        RuleCheck::with(reporting.domain, active, counted, key, *cost).report(decided, reporting);
        active.note_states();
    }
}

/// Charges all rules, or none. Returns whether all of them admit the request.
#[inline(never)]
fn charge_all<'r>(
    checks: &mut [PlainCheck<'r>],
    decided: &mut [Decided],
    (when, room): (CheckTime, &'r Room),
    mut hashes: KeyHash<'r, '_>,
) -> bool {
    let ([first, others @ ..], [decided_first, decided_others @ ..]) = (checks, decided) else { return true };
    for (check, decided) in others.iter_mut().zip(&mut *decided_others) {
        if check.plan(decided, when, &mut hashes, &room.pins) != Outcome::Allowed {
            return false;
        }
    }
    if first.charge(decided_first, when, || hashes.of(first.key)) != Outcome::Allowed {
        return false;
    }
    let others = &*others;
    let denies = |(check, decided): (&PlainCheck<'r>, &mut Decided)| {
        // Otherwise another request was first, or there is no ticket.
        let is_charged = check.ticket.is_some_and(|ticket| ticket.exchange() == Exchange::Done);
        !is_charged && check.charge(decided, when, || hashes.of(check.key)) != Outcome::Allowed
    };
    let Some(denied) = others.iter().zip(&mut *decided_others).position(denies) else { return true };
    first.refund(decided_first, when);
    others.iter().zip(decided_others).take(denied).for_each(|(check, decided)| check.refund(decided, when));
    false
}

impl<'r> PlainCheck<'r> {
    /// Returns `None` if the rule is not plain, or its key needs room that `texts` does not have.
    #[inline(always)]
    pub(super) fn new(
        domain: &'r ActiveDomain,
        descriptor: &Descriptor<'r>,
        active: &'r ActiveRule,
        cost: u64,
        (texts, when): (Option<&'r KeyTexts>, CheckTime),
    ) -> Option<Self> {
        let (counter, key) = active.plain(domain, descriptor, texts)?;
        if counter.is_taking_over(when.ns()) {
            return None;
        }
        active.note_match();
        let own = active.meters.own();
        if let Some(own) = own {
            own.prefetch();
        }
        Some(Self { active, counter, key, cost, earlier: 0, own, ticket: None })
    }

    /// Whether the request only peeks.
    #[inline(always)]
    pub(super) const fn costs_nothing(&self) -> bool {
        self.cost == 0
    }

    #[inline(always)]
    fn store(&self) -> &'r AnyStore {
        self.counter.store.get()
    }

    /// Decides the request if this is its only rule.
    #[inline(always)]
    pub(super) fn decide(&self, decided: &mut Decided, when: CheckTime, hasher: &Hasher) -> Outcome {
        self.charge(decided, when, || BuildHasher::hash_one(hasher, self.key))
    }

    /// Charges the rule if it admits the request. `hash` returns the hash of its key.
    #[inline(always)]
    fn charge(&self, decided: &mut Decided, when: CheckTime, hash: impl FnOnce() -> u64) -> Outcome {
        self.store().check((self.key, hash), when, self.cost, &mut decided.decision)
    }

    /// Peeks at the rule, and keeps a ticket if one exchange charges it.
    #[inline(always)]
    fn plan(
        &mut self,
        decided: &mut Decided,
        when: CheckTime,
        hashes: &mut KeyHash<'r, '_>,
        pins: &'r Pins,
    ) -> Outcome {
        if self.earlier > 0 {
            return decided.decision.insert(self.peek(when)).outcome();
        }
        let (store, key) = (self.store(), self.key);
        let into = (&mut decided.decision, &mut self.ticket);
        store.ticket((key, || hashes.of(key)), when, self.cost, pins, into)
    }

    /// Returns the decision that a charge after the earlier ones would give, and charges nothing.
    #[cold]
    fn peek(&self, when: CheckTime) -> Decision {
        let cost = self.cost.saturating_add(self.earlier);
        self.store().peek(self.key, when, cost).for_cost(cost)
    }

    /// Whether no load replaces the counter of the charge.
    #[inline(always)]
    fn is_open_for(&self, decided: &Decided) -> bool {
        decided.decision.as_ref().is_some_and(|charge| self.counter.store.is_open_for(charge))
    }

    #[cold]
    fn refund(&self, decided: &Decided, when: CheckTime) {
        if let Some(charge) = &decided.decision {
            self.store().refund(self.key, when, charge, charge.charged());
        }
    }
}

impl<C: Clock> Rules<C> {
    /// Whether the charges do not count, because a load has replaced the rules in the meantime, or a request was the first to set its
    /// own limit, which counts together with one of them.
    #[inline(always)]
    pub(super) fn is_plain_outdated<'r>(
        &self,
        checks: impl AsRef<[PlainCheck<'r>]> + Copy,
        decided: &(impl AsRef<[Decided]> + ?Sized),
        (rules, domain): (&RuleSet, &ActiveDomain),
    ) -> bool {
        let are_open = || {
            let both = checks.as_ref().iter().zip(decided.as_ref());
            // Each of them is asked, because each one records its charge.
            both.fold(true, |is_open, (check, decided)| is_open & check.is_open_for(decided))
        };
        let still_counts =
            |now: Option<&ActiveDomain>| checks.as_ref().iter().all(|check| check.active.still_counts(now));
        !self.counts_charge(rules, domain, are_open, still_counts)
            || checks.as_ref().iter().any(|check| check.active.counts_with_override(domain))
    }
}
