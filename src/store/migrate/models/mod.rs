//! Loom models of a quota that changes during checks.

use super::*;
use crate::algorithm::Gcra;
use crate::base::check_time::CheckTime;
use crate::base::clock::models::Still;
use crate::base::sync::{Arc, explore, spawn};
use crate::store::direct::Direct;
use crate::store::present::PresentStore as _;

mod late;
#[cfg(tollgate_shuttle)]
mod many;
mod verbs;

const NOW: Still = Still(100_000_000_000);

type Shared = Adjustable<Direct<Gcra>>;

fn of_one() -> Quota {
    Quota::per_hour(1)
}

fn check(store: &Shared, cost: u64) -> bool {
    Store::<()>::apply(store, &(), Operation::Check, CheckTime::read(&NOW), cost).is_allowed()
}

/// A check that does not look for a change of the quota after its charge.
fn check_carelessly(store: &Shared) -> bool {
    let when = CheckTime::read(&NOW);
    let generation = store.present.load();
    let _ = generation.take_over(&(), when);
    Store::<()>::apply(&generation.padded.store, (), Operation::Check, when, 1).is_allowed()
}

/// A check that decides again after a change of the quota, but does not refund its first charge.
fn check_without_refund(store: &Shared) -> bool {
    loop {
        let generation = store.present.load();
        let decision = generation.apply(&(), Operation::Check, CheckTime::read(&NOW), 1);
        if decision.is_denied() || store.present.counts_charge(&generation, || false, |_| false) {
            return decision.is_allowed();
        }
    }
}

fn store_of(units: u64) -> Arc<Shared> {
    Arc::new(Shared::new(Direct::new(Gcra::new(Quota::per_hour(units)))))
}

fn left(store: &Shared) -> u64 {
    Store::<()>::peek(store, &(), CheckTime::read(&NOW), 0).remaining()
}

fn change(store: &Shared, quota: Quota, carry: Carry) {
    store.set_quota(&quota, carry, || CheckTime::read(&NOW)).unwrap();
}

/// One thread checks, while another thread changes the quota and then also checks.
fn admitted_by_two(check: fn(&Shared) -> bool) {
    let store = store_of(1);
    let checker = spawn(&store, check);
    change(&store, of_one(), Carry::AsIs);
    let here = check(&store);
    let admitted = u32::from(here) + u32::from(checker.join().unwrap());
    assert!(admitted <= 1, "one unit is admitted, under the old quota or the new: {admitted}");
}

// G49
#[test]
fn quota_change_loses_no_charge() {
    explore(3, || admitted_by_two(|store| check(store, 1)));
}

// G49
#[test]
#[should_panic(expected = "one unit is admitted")]
fn control_without_reread_loses_charge() {
    explore(3, || admitted_by_two(check_carelessly));
}

#[test]
fn two_checks_during_a_change_share_one_unit() {
    explore(2, || {
        let store = store_of(1);
        let [a, b] = [(); 2].map(|()| spawn(&store, |store| check(store, 1)));
        change(&store, of_one(), Carry::AsIs);
        let admitted = u32::from(a.join().unwrap()) + u32::from(b.join().unwrap());
        assert!(admitted <= 1, "one unit is admitted, to one of two: {admitted}");
    });
}

// G49
#[test]
fn check_is_decided_by_one_quota() {
    explore(3, || {
        let store = store_of(1);
        let checker = spawn(&store, |store| check(store, 3));
        change(&store, Quota::per_hour(3), Carry::Reset);
        let admitted = checker.join().unwrap();
        assert_eq!(
            left(&store),
            if admitted { 0 } else { 3 },
            "three units are admitted only under the new quota"
        );
    });
}

/// One thread checks one of two units, while another thread changes the quota.
fn charge_during_change(check: fn(&Shared) -> bool) {
    let store = store_of(2);
    let checker = spawn(&store, check);
    change(&store, Quota::per_hour(2), Carry::AsIs);
    assert!(checker.join().unwrap());
    assert_eq!(left(&store), 1, "one unit is charged for one admitted unit");
}

// G49
#[test]
fn check_during_change_is_charged_once() {
    explore(3, || charge_during_change(|store| check(store, 1)));
}

// G49
#[test]
#[should_panic(expected = "one unit is charged")]
fn control_without_refund_charges_twice() {
    explore(3, || charge_during_change(check_without_refund));
}

/// One thread checks, while another thread changes the quota and reads a figure, which takes all debts over.
fn figure_during_change(check: fn(&Shared) -> bool) {
    let store = store_of(1);
    let checker = spawn(&store, check);
    change(&store, of_one(), Carry::AsIs);
    store.with_all_keys(|| CheckTime::read(&NOW), |_| ());
    let here = check(&store);
    let admitted = u32::from(here) + u32::from(checker.join().unwrap());
    assert!(admitted <= 1, "one unit is admitted, also beside a figure: {admitted}");
}

/// A figure that says first that it has taken the debts over, and then does so.
fn figure_marking_first(store: &Shared) -> bool {
    let present = store.present.load();
    if let Some(past) = present.past()
        && past.is_listed.swap(1, Ordering::AcqRel) == 0
    {
        let _ = present.take_over_all(past, CheckTime::read(&NOW));
    }
    Inherit::<()>::holds(&present.padded.store, &())
}

/// After a change, two threads read a figure at the same time, and one of them takes the debts over.
fn figures_at_once(figure: fn(&Shared) -> bool) {
    let store = store_of(1);
    assert!(check(&store, 1));
    change(&store, of_one(), Carry::AsIs);
    let other = spawn(&store, figure);
    let here = figure(&store);
    assert!(here && other.join().unwrap(), "each figure has all keys that owe");
}

// G49
#[test]
fn figures_at_once_have_all_keys() {
    explore(3, || {
        figures_at_once(|store| {
            store.with_all_keys(|| CheckTime::read(&NOW), |store| Inherit::<()>::holds(store, &()))
        });
    });
}

// G49
#[test]
#[should_panic(expected = "each figure has all keys that owe")]
fn control_figure_that_marks_first_misses_keys() {
    explore(3, || figures_at_once(figure_marking_first));
}

// G49
#[test]
fn figure_that_takes_debts_over_loses_no_charge() {
    explore(3, || figure_during_change(|store| check(store, 1)));
}

// G49
#[test]
#[should_panic(expected = "one unit is admitted")]
fn control_figure_without_reread_loses_charge() {
    explore(3, || figure_during_change(check_carelessly));
}

/// A look for a key that owes only in the old store, while the first check after the change takes its debt over.
fn key_is_found_during_first_check(has_key: fn(&Shared) -> bool) {
    let store = store_of(1);
    assert!(check(&store, 1));
    change(&store, of_one(), Carry::AsIs);
    let checker = spawn(&store, |store| check(store, 1));
    assert!(has_key(&store), "the key owes, in one store or the other");
    assert!(!checker.join().unwrap());
}

/// A look at the new store, and then at the old one, unless the new store has the key by then.
fn has_key_by_one_look_at_each(store: &Shared) -> bool {
    let (present, when) = (store.present.load(), CheckTime::read(&NOW));
    let holds = || Inherit::<()>::holds(&present.padded.store, &());
    let past = present.past().filter(|past| present.asks(past, when.ns()));
    holds() || past.is_some_and(|past| !holds() && Inherit::<()>::knew(&past.last.padded.store, &()))
}

// G49
#[test]
fn key_is_held_while_its_debt_is_taken_over() {
    explore(3, || key_is_found_during_first_check(|store| store.has_key(&(), || CheckTime::read(&NOW))));
}

// G49
#[test]
#[should_panic(expected = "the key owes")]
fn control_with_one_look_at_each_store_misses_key() {
    explore(3, || key_is_found_during_first_check(has_key_by_one_look_at_each));
}

fn check_with(store: &Shared, algorithm: &Gcra) -> bool {
    CheckWith::<()>::check_with(store, &(), algorithm, CheckTime::read(&NOW), 1).is_allowed()
}

// G49
#[test]
fn check_under_another_quota_is_charged_once() {
    explore(3, || charge_during_change(|store| check_with(store, &Gcra::new(Quota::per_hour(2)))));
}
