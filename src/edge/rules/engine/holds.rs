//! Units that requests hold: `hold` and `in_progress` of rules.
//!
//! ```text
//! find    release the ended holds of the request's keys; does the request take units, or settle a hold?
//! charge  as for any request, then note the charge in the book ── no room ──► the charge is refunded, and the rule denies
//! settle  later, by identity or by a request with a cost: charge what was used, and give the rest back
//! ```
//! All rules and all loads share one book. So a hold survives a load that changes its rule.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::Rules;
use super::answer::Answer;
use super::check::RequestCheck;
use super::counted_by::CountedBy;
use super::counter::{LocalCounter, ProgressCounter};
use super::decided::{Decided, Few, Part};
use super::refund::refund_in_use;
use super::route::Request;
use super::rule_check::RuleCheck;
use super::rule_set::ActiveDomain;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, saturating_nanos};
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::fence_after_rmw;
use crate::edge::rules::matching::Descriptor;
use crate::edge::rules::rule::{Amount, Rule};
use crate::store::holding::{Held, HoldBook, NotKept, enter, in_progress, no_room};
use crate::store::migrate::Generation;
use crate::store::op::{Operation, Store};
use crate::store::{AnyStore, HoldId};

/// The most holds, and requests in progress, of all keys. Each takes about 300 bytes.
const MOST_HOLDS: usize = 1 << 18;

/// The holds of all rules. A request in progress has no charge.
pub(super) type RuleBook = HoldBook<Option<HeldCharge>>;

pub(super) fn new_book() -> Arc<RuleBook> {
    Arc::new(HoldBook::new(MOST_HOLDS))
}

/// The charge of a hold, and the counter that it was made in.
#[derive(Debug)]
pub(super) struct HeldCharge {
    generation: Arc<Generation<AnyStore>>,
    charge: Decision,
}

/// What a request does with the holds of a rule.
#[derive(Debug)]
pub(super) struct HeldUnits<'r> {
    book: &'r RuleBook,
    hash: u64,
    step: HoldStep,
}

#[derive(Copy, Clone, Debug)]
enum HoldStep {
    /// It takes units.
    Take(HoldId),
    /// It settles the hold that ends first, for this cost.
    Settle(u64),
}

impl Rule {
    /// How long a request holds units of the rule at most, if it does.
    pub(super) fn hold_life(&self) -> Option<Duration> {
        match (&self.limit, &self.hold) {
            (Amount::InProgress { life, .. }, _) => Some(*life),
            (_, hold) => hold.as_ref().map(|hold| hold.life),
        }
    }
}

impl<'r> RequestCheck<'r> {
    /// Finds out what the request does with the holds of its rules. Releases those of its keys that have ended.
    #[cold]
    pub(super) fn prepare_holds(&mut self, book: &'r RuleBook, given: Option<&HoldId>, when: CheckTime) {
        let (mut seen, mut has_holds) = (HashSet::new(), false);
        for (check, _) in self.each(|part| part != Part::Replaced) {
            let Some(life) = check.active.rule.hold_life() else { continue };
            let hash = check.hash_in(book);
            check.release_ended(book, hash, when);
            // A hold has one charge. If two descriptors have the same rule and key, the second is an ordinary request.
            if seen.insert(hash) {
                let id = || given.copied().unwrap_or_else(|| book.id(ends_ns(when, life)));
                check.held = check.hold_step(book, hash, given.is_some(), id);
                has_holds |= check.held.is_some();
            }
        }
        self.has_holds = has_holds;
    }

    /// Notes the charges of rules with this part whose units the request holds. Returns whether there was room.
    #[cold]
    pub(super) fn keep_holds(&mut self, part: impl Fn(Part) -> bool, when: CheckTime) -> bool {
        self.each(part).fold(true, |kept, (check, decided)| check.keep_hold(decided, when) && kept)
    }
}

impl<'r> RuleCheck<'r> {
    fn hash_in(&self, book: &RuleBook) -> u64 {
        book.hash(&(self.active.rule.counter(), self.key.as_str()))
    }

    /// Decides what the request does with the holds of the rule, and sets its cost.
    fn hold_step(
        &mut self,
        book: &'r RuleBook,
        hash: u64,
        is_given: bool,
        id: impl FnOnce() -> HoldId,
    ) -> Option<Box<HeldUnits<'r>>> {
        let units = self.active.rule.hold.as_ref().and_then(|hold| hold.units);
        let takes_all = is_given || matches!(self.counted, CountedBy::InProgress(_));
        let step = match (units, self.cost) {
            (Some(_), cost @ 1..) if !takes_all => {
                book.standing(hash).ends_ns?;
                self.cost = 0;
                HoldStep::Settle(cost)
            }
            (Some(units), 0) => {
                self.cost = units;
                HoldStep::Take(id())
            }
            (_, 1..) if takes_all => HoldStep::Take(id()),
            _ => return None,
        };
        Some(Box::new(HeldUnits { book, hash, step }))
    }

    fn release_ended(&self, book: &RuleBook, hash: u64, when: CheckTime) {
        // The number is read before the store is asked, so that no denial is due to a hold that has ended.
        if book.may_hold(hash) {
            book.release_ended(hash, when.ns(), |held| {
                if let CountedBy::Local { counter, .. } = self.counted {
                    give_back(counter, self.key.as_str(), held, held.units, when);
                }
            });
        }
    }

    /// Returns the identity under which the rule holds units of the request.
    fn taken(&self) -> Option<(&'r RuleBook, u64, HoldId)> {
        match self.held.as_deref()? {
            &HeldUnits { book, hash, step: HoldStep::Take(id) } => Some((book, hash, id)),
            HeldUnits { step: HoldStep::Settle(_), .. } => None,
        }
    }

    fn keep_hold(&mut self, decided: &mut Decided, when: CheckTime) -> bool {
        let (Some((book, hash, id)), Some(charge)) = (self.taken(), decided.decision) else { return true };
        let (CountedBy::Local { counter, .. }, Some(hold)) = (self.counted, &self.active.rule.hold) else {
            return true;
        };
        if !self.effect.is_charged {
            return true;
        }
        let paid_ns = charge.at_ns().max(when.ns()).saturating_add(charge.reset_ns());
        let held = HeldCharge { generation: Arc::clone(&counter.generation), charge };
        let (units, most) = (self.cost, (hold.most, when.ns()));
        let denial = match book.keep((hash, id), Held { units, paid_ns, charge: Some(held) }, most) {
            Ok(_) => return true,
            Err(NotKept::BookFull) => no_room(units, charge.limit(), when.ns()),
            Err(NotKept::KeyFull(standing)) => {
                let outcome = if units > hold.most { Outcome::Never } else { Outcome::Denied };
                in_progress(outcome, units, standing, most)
            }
        };
        self.refund(decided, when);
        decided.decision = Some(denial);
        false
    }

    /// Forgets the hold of a request whose charges are refunded.
    pub(super) fn give_up_hold(&self) {
        if let Some((book, hash, id)) = self.taken() {
            book.take(hash, id);
        }
    }

    /// Begins a request at a rule of `in_progress`.
    #[cold]
    pub(super) fn enter(&mut self, counter: &ProgressCounter, decided: &mut Decided, when: CheckTime) {
        let Some((book, hash, id)) = self.taken() else {
            decided.decision = Some(self.peek_in_progress(counter, self.cost, when));
            return;
        };
        let decision = enter(book, (hash, id), self.cost, (counter.most, when.ns()));
        self.effect.is_charged = decision.is_allowed();
        decided.decision = Some(decision);
    }

    /// Decides whether there is room for a cost.
    pub(super) fn peek_in_progress(&self, counter: &ProgressCounter, cost: u64, when: CheckTime) -> Decision {
        let standing = counter.book.standing(self.hash_in(&counter.book));
        let outcome = match standing.units.saturating_add(cost.into()) {
            _ if cost == 0 => Outcome::Allowed,
            _ if cost > counter.most => Outcome::Never,
            units if units > counter.most.into() => Outcome::Denied,
            _ => Outcome::Allowed,
        };
        in_progress(outcome, cost, standing, (counter.most, when.ns()))
    }

    /// Ends the request in progress whose life would end first.
    pub(super) fn leave_first(&self, counter: &ProgressCounter) {
        counter.book.take_first(self.hash_in(&counter.book));
    }
}

/// Gives back up to `units` of a hold.
fn give_back(
    counter: &LocalCounter,
    key: &str,
    held: &Held<Option<HeldCharge>>,
    units: u64,
    when: CheckTime,
) {
    let Some(HeldCharge { generation, charge }) = held.charge.as_ref().filter(|_| units > 0) else { return };
    if Arc::ptr_eq(generation, &counter.generation) {
        generation.store().refund(key, when, charge, units);
        return;
    }
    // A load has changed the rule. After this peek, the key's units of the old counter are in the new one, too.
    counter.generation.peek(key, when, 0);
    // The old counter still knows how many units of the hold time has paid.
    let unpaid = generation.store().refund(key, when, charge, units);
    refund_in_use(counter, key, unpaid, when);
}

fn ends_ns(when: CheckTime, life: Duration) -> u64 {
    when.ns().saturating_add(saturating_nanos(life))
}

impl<C: Clock> Rules<C> {
    /// Decides a request whose cost is known later: takes `units` now, and returns the identity by which
    /// [`Rules::commit`] settles them. Returns no identity if the request is denied, or if no rule holds units of it.
    ///
    /// - A rule with `hold` charges the units, and gives them back if they are not settled within `life`, or within
    ///   the rule's own `life` if that is shorter. Its holds of a key have at most `most` units together. If the units
    ///   are 0, the rule holds its own `units`.
    /// - A rule with `in_progress` counts the request until it is settled, or until its life has ended.
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
    /// use tollgate::rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: models
    /// tollgate: {}
    /// descriptors:
    ///   - key: user
    ///     rate_limit: { unit: hour, requests_per_unit: 10000, hold: { life: 60s } }
    /// ")?;
    /// let request = [Descriptor::new(&[("user", "alice")])];
    /// let left = || rules.check_n("models", &request, 0).status(0).remaining();
    ///
    /// let (answer, id) = rules.hold("models", &request, 4_000, Duration::MAX);
    /// assert!(answer.is_allowed());
    /// assert_eq!(left(), 6_000);
    /// let id = id.expect("the rule holds the units");
    /// assert!(rules.commit("models", &request, id, 1_500)); // the answer had 1,500 tokens
    /// assert_eq!(left(), 8_500);
    /// # Ok::<(), tollgate::rules::RulesError>(())
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
        let id = answer.domain().and_then(|domain| domain.new_hold(descriptors, life, when));
        let Some(id) = id else { return (self.decide_by_name(domain, descriptors, units, when), None) };
        let request = Request { hold: Some(&id), ..Request::of(descriptors, &[], units) };
        self.decide_any(&mut answer, request, when);
        let is_held = answer.is_allowed();
        (answer, is_held.then_some(id))
    }

    /// Whether each rule that applies to these descriptors holds the units of a request: [`Rules::hold`] charges nothing
    /// that [`Rules::commit`] does not settle. It is `false` for a descriptor that sets its own limit.
    #[must_use]
    pub fn can_hold(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> bool {
        let rules = self.in_force.load();
        let Some(domain) = rules.domain(domain) else { return true };
        descriptors.iter().all(|descriptor| {
            let mut found = domain.rules_of(domain.search(descriptor)).map(|(_, active)| &active.rule);
            let counts = |rule: &Rule| !matches!(rule.limit, Amount::Unlimited | Amount::Blocked { .. });
            descriptor.limit.is_none() && found.all(|rule| rule.hold_life().is_some() || !counts(rule))
        })
    }

    /// Settles the units that a request [held](Rules::hold): charges `actual` units to each rule with `hold`, gives the
    /// rest back, and ends the request at each rule with `in_progress`. Pass the request's descriptors. Returns whether
    /// any rule still held units under this identity.
    ///
    /// If the life of the hold has ended, or it was settled before, this call charges `actual` as of now. Units that
    /// were used are never lost: they are charged even if the limit has no room for them. A descriptor's own cost has
    /// precedence over `actual`.
    ///
    /// # Complexity
    /// Same as [`Rules::hold`].
    pub fn commit(&self, domain: &str, descriptors: &[Descriptor<'_>], id: HoldId, actual: u64) -> bool {
        let when = CheckTime::read(&self.clock);
        let rules = self.in_force.load();
        let Some(domain) = rules.domain(domain) else { return false };
        let Some(book) = domain.book.as_deref() else { return false };
        let mut decided = Few::new();
        let mut found = RequestCheck::new(&mut decided);
        found.find(domain, &Request::of(descriptors, &[], 0), when.ns(), &self.hasher);
        let mut was_held = false;
        let mut seen = HashSet::new();
        for (check, decided) in found.each(|part| part != Part::Replaced) {
            let hash = check.hash_in(book);
            if check.active.rule.hold_life().is_none() || !seen.insert(hash) {
                continue;
            }
            let taken = book.take(hash, id).map(|held| (id, held));
            was_held |= taken.is_some();
            if check.active.rule.hold.is_some() {
                let descriptor = descriptors.get(decided.descriptor as usize);
                let actual = descriptor.map_or(actual, |descriptor| descriptor.cost(actual));
                self.settle(&domain.name, check, taken, actual, when);
            }
        }
        was_held
    }

    /// Whether any load had rules with `hold` or `in_progress`.
    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn has_holds(&self) -> bool {
        self.has_holds.is_set()
    }

    /// Returns the number of holds and of requests in progress, including those that have ended and were not needed
    /// since.
    pub fn holds(&self) -> usize {
        self.in_force.load().holds()
    }

    /// Settles the holds of a decided request that reports its cost. A charge that is held is not refunded by its
    /// answer.
    #[cold]
    pub(super) fn finish_holds(&self, found: &mut RequestCheck<'_>, domain: &ActiveDomain, when: CheckTime) {
        for (check, decided) in found.each(|part| part != Part::Replaced) {
            let Some(&HeldUnits { book, hash, step }) = check.held.as_deref() else { continue };
            let HoldStep::Settle(actual) = step else {
                decided.decision = decided.decision.map(Decision::uncharged);
                continue;
            };
            self.settle(&domain.name, check, book.take_first(hash), actual, when);
            if let (CountedBy::Local { counter, headroom }, Outcome::Allowed) =
                (check.counted, decided.outcome())
            {
                decided.decision = Some(counter.peek(check.key.as_str(), 0, headroom, when));
            }
        }
    }

    /// Charges `actual` units to the rule, of which `taken` holds some already.
    fn settle(
        &self,
        domain: &str,
        check: &RuleCheck<'_>,
        taken: Option<(HoldId, Held<Option<HeldCharge>>)>,
        actual: u64,
        when: CheckTime,
    ) {
        let (identity, key) = (&*check.active.rule.identity, check.key.as_str());
        let more = match &taken {
            // A hold that has ended gives all its units back, as it would without this call.
            Some((id, held)) => {
                let used = if when.ns() < id.end_ns() { actual.min(held.units) } else { 0 };
                self.with_counter(domain, identity, |counter| {
                    give_back(counter, key, held, held.units - used, when);
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
            fence_after_rmw();
            let still_counts = |now: Option<&ActiveDomain>| active.still_counts(now);
            if charge.charged() == 0
                || counter.generation.is_open_for(&charge)
                || !self.was_replaced(&rules, domain, still_counts)
            {
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
        let book = self.book.as_deref()?;
        let rules = descriptors.iter().flat_map(|descriptor| self.rules_of(self.search(descriptor)));
        let least = rules.filter_map(|(_, active)| active.rule.hold_life()).min()?;
        Some(book.id(ends_ns(when, life.min(least))))
    }
}
