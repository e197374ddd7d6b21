//! The holds of the rules of one request: which units it takes, and which holds it settles.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tollgate::holds::HoldId;
use tollgate::internals::holding::{Held, NotKept, enter, in_progress, key_full, no_room};
use tollgate::internals::op::Store;
use tollgate::internals::{CheckTime, saturating_nanos};
use tollgate::{Decision, Outcome};

use super::check::{HoldUse, RequestCheck};
use super::decided::Decided;
use super::refund::refund_in_use;
use super::rule_check::{CountedBy, LinkedState, RuleCheck};
use crate::engine::state::{
    ActiveDomain, CounterCharge, LocalCounter, ProgressCounter, Role, RuleBook, RuleSet,
};

impl<'r> RequestCheck<'r> {
    /// Finds out what the request does with the holds of its rules. Releases those of its keys that have ended.
    #[cold]
    pub(super) fn prepare_holds(
        &mut self,
        (rules, book): (&'r RuleSet, &'r RuleBook),
        hold: HoldUse<'_>,
        when: CheckTime,
    ) {
        let given = match hold {
            HoldUse::ByRule => None,
            HoldUse::As(id) => Some(id),
            HoldUse::Nothing => return,
        };
        let (mut seen, mut has_holds) = (HashSet::new(), false);
        for (check, _) in self.each(|role| role != Role::Replaced) {
            let Some(life) = check.active.rule.hold_life() else { continue };
            let hash = check.hash_in(book, check.is_in_progress());
            check.release_ended(book, hash, when);
            let is_first = seen.insert(hash);
            if check.is_in_progress() {
                // Whatever it costs, it is one request, also if several descriptors have the same rule and key.
                check.cost = if is_first { check.cost.min(1) } else { 0 };
            }
            // A hold has one charge, so a second descriptor is an ordinary request. So is one whose own limit counts together
            // with the rule.
            let end_ns = ends_ns(when, life);
            let id = || {
                given.map_or_else(
                    || HoldId::unique(end_ns),
                    |id| HoldId::new(end_ns.min(id.end_ns()), id.random()),
                )
            };
            if is_first
                && check.linked.is_none()
                && let Some(linked) = check.hold_step((rules, book), hash, given.is_some(), id)
            {
                check.linked = Some(Box::new(linked));
                has_holds = true;
            }
        }
        if has_holds {
            self.note_holds();
        }
    }

    /// Notes the charges of rules with this role whose units the request holds. Returns whether the request is still
    /// admitted: a rule without room for the hold denies it.
    #[cold]
    pub(super) fn keep_holds(&mut self, role: impl Fn(Role) -> bool, when: CheckTime) -> bool {
        let keep = |kept, (check, decided): (&mut RuleCheck<'r>, &mut Decided)| {
            (check.keep_hold(decided, when) || decided.role != Role::Enforced) && kept
        };
        self.each(role).fold(true, keep) && !self.all_quota_rules_deny()
    }
}

impl<'r> RuleCheck<'r> {
    /// Returns the hash of the request's key among the requests in progress, or among the holds.
    pub(in crate::engine) fn hash_in(&self, book: &RuleBook, in_progress: bool) -> u64 {
        self.active.hash_in(book, in_progress, self.key.as_str())
    }

    pub(in crate::engine) fn is_in_progress(&self) -> bool {
        matches!(self.counted, CountedBy::Book(_))
    }

    /// Decides what the request does with the holds of the rule, and sets its cost.
    fn hold_step(
        &mut self,
        (rules, book): (&'r RuleSet, &'r RuleBook),
        hash: u64,
        is_given: bool,
        id: impl FnOnce() -> HoldId,
    ) -> Option<LinkedState<'r>> {
        let units = self.active.rule.hold.as_ref().and_then(|hold| hold.units);
        let takes_all = is_given || (self.is_in_progress() && units.is_none());
        match (units, self.cost) {
            (Some(_), actual @ 1..) if !takes_all => {
                book.standing(hash).ends_ns?;
                self.cost = 0;
                return Some(LinkedState::Settles { book, hash, actual });
            }
            (Some(units), 0) => self.cost = units,
            (_, 1..) if takes_all => {}
            _ => return None,
        }
        Some(LinkedState::Takes { rules, book, hash, id: id(), is_given, is_kept: false })
    }

    pub(in crate::engine) fn release_ended(&self, book: &RuleBook, hash: u64, when: CheckTime) {
        // The number is read before the store is asked, so that no denial is due to a hold that has ended.
        if book.may_hold(hash) {
            book.release_ended(hash, when.ns(), |held| {
                if let CountedBy::Local { counter, .. } = self.counted {
                    refund_hold(counter, self.key.as_str(), held, held.units, when);
                }
            });
        }
    }

    /// Whether the request takes or settles units of the rule.
    pub(super) fn uses_holds(&self) -> bool {
        matches!(self.linked.as_deref(), Some(LinkedState::Takes { .. } | LinkedState::Settles { .. }))
    }

    /// Returns the identity under which the rule holds units of the request.
    fn taken(&self) -> Option<((&'r RuleSet, &'r RuleBook), u64, HoldId)> {
        let Some(&LinkedState::Takes { rules, book, hash, id, .. }) = self.linked.as_deref() else {
            return None;
        };
        Some(((rules, book), hash, id))
    }

    fn keep_hold(&mut self, decided: &mut Decided, when: CheckTime) -> bool {
        let (Some(((rules, book), hash, id)), Some(charge)) = (self.taken(), decided.decision) else {
            return true;
        };
        let CountedBy::Local { counter, .. } = self.counted else { return true };
        let (Some(hold), Some(name)) = (&self.active.rule.hold, &self.active.held_name) else { return true };
        if !self.effect.is_charged {
            return true;
        }
        let (generation, lineage) = (Arc::clone(&counter.generation), counter.lineage);
        let (key, name) = (self.key.as_str().into(), Arc::clone(name));
        let held = CounterCharge { key, name, generation, lineage, charge };
        let (units, most) = (self.cost, (hold.most, when.ns()));
        let held = Held { units, charge: Some(held) };
        let release = |_, held: &_| release_replaced(rules, held, when);
        let denial = match book.keep((hash, id), held, most, release) {
            Ok(_) => {
                self.note_kept();
                return true;
            }
            Err(NotKept::BookFull) => no_room(units, charge.limit(), when.ns()),
            Err(NotKept::KeyFull(standing)) => key_full(units, standing, most),
        };
        self.refund(decided, when);
        decided.decision = Some(denial);
        false
    }

    fn note_kept(&mut self) {
        if let Some(LinkedState::Takes { is_kept, .. }) = self.linked.as_deref_mut() {
            *is_kept = true;
        }
    }

    /// Forgets the hold of a request whose charges are refunded. Returns `false` if the hold is settled already, so that
    /// the charge is not the request's any more.
    pub(super) fn give_up_hold(&self) -> bool {
        match self.linked.as_deref() {
            Some(&LinkedState::Takes { book, hash, id, is_kept: true, .. }) => {
                book.take(hash, id, |_, _| ()).is_some()
            }
            _ => true,
        }
    }

    /// Begins a request at a rule of `in_progress`.
    #[cold]
    pub(super) fn enter(&mut self, counter: &ProgressCounter, decided: &mut Decided, when: CheckTime) {
        let Some(((rules, book), hash, id)) = self.taken() else {
            decided.decision = Some(self.peek_in_progress(counter, self.cost, when));
            return;
        };
        let release = |_, held: &_| release_replaced(rules, held, when);
        let decision = enter(book, (hash, id), self.cost, (counter.most, when.ns()), release);
        self.effect.is_charged = decision.is_allowed();
        if decision.is_allowed() {
            self.note_kept();
        }
        decided.decision = Some(decision);
    }

    /// Decides whether there is room for a cost.
    pub(super) fn peek_in_progress(&self, counter: &ProgressCounter, cost: u64, when: CheckTime) -> Decision {
        let hash = self.hash_in(&counter.book, true);
        self.release_ended(&counter.book, hash, when);
        let standing = counter.book.standing(hash);
        let most = (counter.most, when.ns());
        match standing.units.saturating_add(cost.into()) > counter.most.into() {
            true if cost > 0 => key_full(cost, standing, most),
            _ => in_progress(Outcome::Allowed, cost, standing, most),
        }
    }

    /// Returns the units that holds of the key have.
    pub(in crate::engine) fn held_units(&self, domain: &ActiveDomain) -> u64 {
        let standing = |book: &RuleBook| book.standing(self.hash_in(book, false)).units;
        let units = domain.book.as_deref().filter(|_| self.active.rule.hold.is_some()).map_or(0, standing);
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// Ends the request in progress whose life would end first.
    pub(super) fn leave_first(&self, counter: &ProgressCounter) {
        counter.book.take_first(self.hash_in(&counter.book, true));
    }
}

/// Gives back the units of a hold of any rule and key that has ended, because another hold takes over its place. The caller
/// has locked the shard of the hold, so this takes constant time.
#[cold]
pub(super) fn release_replaced(rules: &RuleSet, held: &Held<Option<CounterCharge>>, when: CheckTime) {
    let Some(CounterCharge { key, name, generation, charge, .. }) = &held.charge else { return };
    if generation.is_open_for(charge) {
        generation.store().refund(&**key, when, charge, held.units);
    } else if let Some(counter) = rules.counter(name) {
        // A load has changed the rule since.
        refund_hold(counter, key, held, held.units, when);
    }
}

/// Refunds up to `units` of a hold.
pub(super) fn refund_hold(
    counter: &LocalCounter,
    key: &str,
    held: &Held<Option<CounterCharge>>,
    units: u64,
    when: CheckTime,
) {
    let Some(CounterCharge { generation, lineage, charge, .. }) = held.charge.as_ref().filter(|_| units > 0)
    else {
        return;
    };
    if Arc::ptr_eq(generation, &counter.generation) {
        generation.store().refund(key, when, charge, units);
        return;
    }
    // Another counter than a later one of the same rule does not have the charge.
    if *lineage != counter.lineage {
        return;
    }
    // A load has changed the rule. After this peek, the key's units of the old counter are in the new one, too.
    counter.generation.peek(key, when, 0);
    // The old counter still knows how many units of the hold time has paid.
    let unpaid = generation.store().refund(key, when, charge, units);
    refund_in_use(counter, key, unpaid, 0, when);
}

pub(super) fn ends_ns(when: CheckTime, life: Duration) -> u64 {
    when.ns().saturating_add(saturating_nanos(life))
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use crate::engine::Rules;
    use tollgate::internals::migrate::Generation;
    use tollgate_config::Config;

    /// A hold searched its rule among all rules while the shard of the hold was locked. Its name leads to the same counter, also if
    /// the rule has another limit, other classes or no limit by then.
    // G117
    #[test]
    fn holds_find_their_counters_by_name() {
        let domain = |name: &str, limit: u32, c: &str, d: &str| {
            let held = |more: &str| format!("{{ unit: day, requests_per_unit: {limit}, hold: {{}}{more} }}");
            let text = format!(
                "{{ domain: {name}, tollgate: {{}}, descriptors: [ {{ key: a, rate_limit: {} }}, {{ key: b, rate_limit: {} }}, \
                 {{ key: c, {c} }}, {{ key: d, rate_limit: {d} }} ] }}",
                held(""),
                held(", store: keyed"),
            );
            Config::from_yaml(name, &text).expect("the rules are valid")
        };
        let held = "{ unit: day, requests_per_unit: 3, hold: {} }";
        let c = format!("rate_limit: {held}");
        let rules = Rules::builder().allow_removals(true);
        let rules =
            rules.load(["e", "f", "g"].map(|name| domain(name, 10, &c, held))).expect("the rules load");
        let before = rules.in_force.load();
        let c = "classes: { low: 30%, '*': 100% }, rate_limit: { unit: day, requests_per_unit: 9 }";
        let next = ["g", "e"].map(|name| domain(name, 20, c, "{ unlimited: true }"));
        rules.replace(next).expect("the rules load");
        let after = rules.in_force.load();
        let mut found = 0;
        for (domain, active) in
            before.domains.iter().flat_map(|of| of.rules.iter().map(move |rule| (of, rule)))
        {
            let name = active.held_name.as_ref().expect("all rules have holds");
            let mut all = after.counters();
            let slow = all.find(|(other, other_rule, _)| {
                **other == *domain.name && other_rule.rule.counter() == active.rule.counter()
            });
            let [slow, fast] = [slow.map(|(_, _, counter)| counter), after.counter(name)].map(|counter| {
                counter.map(|counter| std::ptr::from_ref::<Generation<_>>(&counter.generation))
            });
            assert_eq!(fast, slow, "{}", active.rule.identity);
            found += usize::from(fast.is_some());
        }
        assert_eq!(
            found, 6,
            "three in each domain that is left, because the classes have a counter of their own"
        );
    }
}
