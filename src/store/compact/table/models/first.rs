//! Models of keys whose words move from the first buckets to all of them.

use super::*;

type Grow = fn(&Buckets<WAYS>);

/// Puts all buckets in use, and copies the words without freezing them.
fn copy(buckets: &Buckets<WAYS>) {
    buckets.words.grow();
    for (slot, hash) in buckets.first_slots() {
        let seen = slot.load(Acquire);
        if seen != EMPTY {
            buckets.move_word(SlotAddress::new(hash.load(Acquire)), SlotWord::unpack(seen).state);
        }
    }
    buckets.moved.store(1, Release);
}

/// The same, but notes that the words are moved before they are.
fn note_first(buckets: &Buckets<WAYS>) {
    buckets.words.grow();
    buckets.moved.store(1, Release);
}

/// One unit is left. A thread checks x, while another one grows the table and checks x. `is_known`: x was charged before.
fn last_unit(is_known: bool, overflow: Overflow, grow: Grow) {
    let shared = Shared::with_first(1, 1 + u64::from(is_known), overflow);
    if is_known {
        assert!(shared.check(X, 100, 1));
    }
    let (one, other) = both(&shared, check(X, 1), move |shared: &Shared| {
        grow(&shared.table.buckets);
        shared.check(X, 100, 1)
    });
    assert_eq!(admitted(&[one, other]), 1, "the last unit is admitted once");
    assert!(!shared.check(X, 100, 1), "no unit is left");
    assert!(!shared.table.buckets.are_first() && shared.slots_of(X) == 1, "a key has one slot");
}

// G4
#[test]
fn growth_loses_no_charge() {
    for overflow in ALL {
        model(move || last_unit(true, overflow, Buckets::grow));
    }
}

// G4
#[test]
fn growth_during_first_check_loses_no_charge() {
    for overflow in ALL {
        model(move || last_unit(false, overflow, Buckets::grow));
    }
}

// G4
#[test]
#[should_panic(expected = "the last unit is admitted once")]
fn control_growth_without_freezing_loses_charge() {
    model(|| last_unit(true, Overflow::Spill, copy));
}

// G4
#[test]
#[should_panic(expected = "the last unit is admitted once")]
fn control_growth_that_moves_nothing_loses_charge() {
    model(|| last_unit(true, Overflow::Spill, note_first));
}

/// Two threads move the word of x, and then charge it.
// G4
#[test]
fn two_threads_move_a_word_once() {
    model(|| {
        let shared = Shared::with_first(1, 2, Overflow::Spill);
        assert!(shared.check(X, 100, 1));
        let grow = |shared: &Shared| {
            shared.table.buckets.grow();
            shared.check(X, 100, 1)
        };
        let answers = beside(&shared, [grow; 2]);
        assert_eq!(admitted(&answers), 1, "the last unit is admitted once");
        assert_eq!(shared.slots_of(X), 1, "a key has one slot");
    });
}

/// Two first checks of x, while a third key fills the first bucket.
// G4
#[test]
fn racing_first_checks_claim_one_slot() {
    model(|| {
        let shared = Shared::with_first(1, 1, Overflow::Spill);
        assert!(shared.check(Y, 100, 1));
        let answers = beside(&shared, [check(X, 1); 2]);
        assert_eq!(admitted(&answers), 1, "one unit, one admission");
        assert!(shared.table.buckets.are_first() && shared.check(Z, 100, 1));
        assert!(!shared.check(X, 100, 1) && !shared.check(Y, 100, 1), "the debts have moved");
    });
}
