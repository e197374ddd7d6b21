//! Loom models of units that come back, and of the switch that turns a limiter off, while the quota changes.

use super::*;
use crate::store::op::StoreBase as _;

fn give_back(store: &Shared) -> u64 {
    Store::<()>::give_back(store, &(), CheckTime::read(&NOW), 1)
}

/// Gives back in the store that it has loaded, although another one may be in force by then.
fn give_back_without_lock(store: &Shared) -> u64 {
    store.present.load().give_back(&(), CheckTime::read(&NOW), 1)
}

/// Gives back once more for each change in the meantime, as a charge is made again.
fn give_back_again(store: &Shared) -> u64 {
    loop {
        let generation = store.present.load();
        let back = generation.give_back(&(), CheckTime::read(&NOW), 1);
        if store.present.counts_charge(&generation, || false, |_| false) {
            return back;
        }
    }
}

/// A key owes two of three units. One thread gives one back, while another thread changes the quota and then looks at the key.
fn one_of_two_comes_back(give_back: fn(&Shared) -> u64) {
    let store = store_of(3);
    assert!(check(&store, 2));
    let giver = spawn(&store, give_back);
    change(&store, Quota::per_hour(3), Carry::AsIs);
    let seen = left(&store);
    assert_eq!(giver.join().unwrap(), 1, "the key owes more than one unit");
    assert_eq!(left(&store), 2, "the unit comes back once: {seen} were left at first");
}

// G150
#[test]
fn unit_given_back_during_change_comes_back_once() {
    explore(3, || one_of_two_comes_back(give_back));
}

// G150
#[test]
#[should_panic(expected = "the unit comes back once")]
fn control_give_back_in_a_replaced_store_is_lost() {
    explore(3, || one_of_two_comes_back(give_back_without_lock));
}

// G150
#[test]
#[should_panic(expected = "the unit comes back once")]
fn control_give_back_in_both_stores_comes_back_twice() {
    explore(3, || one_of_two_comes_back(give_back_again));
}

/// After a change, one thread gives back a unit of what the key owed before, while another thread makes the first check.
fn give_back_beside_first_check(give_back: fn(&Shared) -> u64) {
    let store = store_of(3);
    assert!(check(&store, 2));
    change(&store, Quota::per_hour(3), Carry::AsIs);
    let giver = spawn(&store, give_back);
    assert!(check(&store, 1));
    assert_eq!(giver.join().unwrap(), 1, "the key owes its debt from before the change");
    assert_eq!(left(&store), 1, "one unit is charged, and one comes back");
}

// G150
#[test]
fn old_debt_is_given_back_beside_first_check() {
    explore(3, || give_back_beside_first_check(give_back));
}

/// Gives back without the debts of the store before.
// G150
#[test]
#[should_panic(expected = "the key owes its debt from before the change")]
fn control_give_back_without_old_debt_returns_nothing() {
    explore(3, || {
        give_back_beside_first_check(|store| {
            Store::<()>::give_back(&store.present.load().padded.store, (), CheckTime::read(&NOW), 1)
        });
    });
}

/// One thread checks a key that owes its only unit, while another thread turns the limiter off and on again.
fn check_beside_switch(switch: fn(&Shared)) {
    let store = store_of(1);
    assert!(check(&store, 1));
    let checker =
        spawn(&store, |store| Store::<()>::apply(store, &(), Operation::Check, CheckTime::read(&NOW), 1));
    switch(&store);
    // Denied by the old quota, admitted without a limit, or charged under the new quota.
    let there = checker.join().unwrap();
    let is_charged = there.is_allowed() && !there.is_unlimited();
    assert_eq!(
        check(&store, 1),
        !is_charged,
        "a key begins with its full burst, and keeps what is charged then"
    );
}

// G153
#[test]
fn check_beside_switch_is_decided_by_one_state() {
    explore(3, || {
        check_beside_switch(|store| {
            store.turn_off();
            change(store, of_one(), Carry::AsIs);
        });
    });
}

/// Turns on from the store before the switch, as a change of the quota does.
fn switch_with_debts(store: &Shared) {
    let last = store.present.load().to_arc();
    store.turn_off();
    last.close();
    let next = last.padded.store.rebuild(&of_one()).unwrap();
    let next = last.next(next, Carry::AsIs, CheckTime::read(&NOW));
    store.present.publish(std::sync::Arc::new(next), &mut Replaced::default());
}

// G153
#[test]
#[should_panic(expected = "a key begins with its full burst")]
fn control_switch_that_carries_debts_denies() {
    explore(3, || check_beside_switch(switch_with_debts));
}

/// One thread turns the limiter off, while another thread changes the quota.
fn switch_beside_change(turn_off: fn(&Shared)) {
    let store = store_of(1);
    let other = spawn(&store, turn_off);
    change(&store, Quota::per_hour(3), Carry::AsIs);
    other.join().unwrap();
    assert_eq!(
        store.burst(),
        3,
        "the quota that was set is in force, or is the last one of a limiter that is off"
    );
}

// G153
#[test]
fn switch_loses_no_change() {
    explore(3, || switch_beside_change(Shared::turn_off));
}

// G153
#[test]
#[should_panic(expected = "the quota that was set is in force")]
fn control_switch_without_lock_loses_a_change() {
    explore(3, || {
        switch_beside_change(|store| {
            let present = store.present.load().to_arc();
            let off = Generation { padded: std::sync::Arc::clone(&present.padded), from: Before::Off };
            store.present.publish(std::sync::Arc::new(off), &mut Replaced::default());
        });
    });
}
