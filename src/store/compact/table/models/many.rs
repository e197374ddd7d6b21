//! Shuttle models: eight threads use one bucket of two slots; see `sync::sample`.
//!
//! For three threads and more under `Spill` and `Forget`, the models state a bound. Each count of [`Gauges::raced`] may
//! admit the burst of a key once more. Under `Forget` each eviction may also give a debt back. Under `Inherit` the law
//! is strict.

use super::*;
use crate::base::sync::{eight, sample};

const SCHEDULES: usize = 1_000;
const W: u64 = key(4, 1);
const KEYS: [u64; 4] = [X, Y, Z, W];

fn each(overflow: &[Overflow], schedules: usize, run: fn(Overflow)) {
    for &overflow in overflow {
        sample(schedules, move || run(overflow));
    }
}

#[test]
fn eight_first_checks_of_a_key_take_one_slot() {
    each(&ALL, SCHEDULES, |overflow| {
        let shared = Shared::new(3, overflow);
        let admitted = admitted(&beside(&shared, [check(X, 1); 8]));
        assert_eq!(admitted, 3, "three units, three admissions");
        assert_eq!(shared.slots_of(X), 1, "a key has one slot");
        assert_eq!(
            shared.words().map(|word| word.state).into_iter().max(),
            Some(100 + 3 * T),
            "the slot holds the charge"
        );
    });
}

/// Eight first checks by clocks that show different times. Two other keys become idle at these times, one after the
/// other.
fn first_checks_by_eight_clocks(overflow: Overflow, check: fn(&Shared, u64) -> bool) {
    let shared = Shared::new(1, overflow);
    shared.set(0, Y, 95);
    shared.set(1, Z, 94);
    let answers = eight(&shared, move |shared, number| check(shared, 94 + number as u64 % 3));
    assert_eq!(admitted(&answers), 1, "one unit, one admission");
    assert_eq!(shared.slots_of(X), 1, "a key has one slot");
}

#[test]
fn eight_clocks_around_expiry_take_one_slot() {
    each(&ALL, SCHEDULES, |overflow| {
        first_checks_by_eight_clocks(overflow, |shared, now| shared.check(X, now, 1))
    });
}

#[test]
#[should_panic(expected = "one unit, one admission")]
fn control_eight_in_first_idle_slot_admit_two() {
    sample(SCHEDULES, || first_checks_by_eight_clocks(Overflow::Inherit, first_idle));
}

/// How often the burst of a key may be admitted once more.
fn extra_admissions(shared: &Shared, overflow: Overflow) -> u64 {
    let gauges = shared.table.gauges();
    match overflow {
        Overflow::Inherit => 0,
        Overflow::Spill => gauges.raced,
        // An evicted key counts as a new one.
        Overflow::Forget => gauges.raced + gauges.evicted,
    }
}

/// Each thread makes two checks. There are four keys and room for two of them, so evictions happen all the time.
fn crowd(overflow: Overflow, check: fn(&Shared, u64) -> bool) {
    const BURST: u64 = 2;
    let shared = Shared::new(BURST, overflow);
    let answers = eight(&shared, move |shared, number| {
        // Four threads check each key, in their first or second check.
        let keys = [number % 4, (number + 1 + number / 4) % 4];
        keys.map(|key| (key, check(shared, KEYS[key])))
    });
    let mut admitted = [0; 4];
    for (key, allowed) in answers.into_iter().flatten() {
        admitted[key] += u64::from(allowed);
    }
    let (gauges, again) = (shared.table.gauges(), extra_admissions(&shared, overflow));
    for (key, admitted) in KEYS.into_iter().zip(admitted) {
        assert!(admitted <= BURST * (1 + again), "a key is admitted its burst: {admitted}, {gauges:?}");
        assert!(shared.slots_of(key) as u64 <= 1 + gauges.raced, "a key has one slot");
    }
    if overflow == Overflow::Inherit {
        assert_eq!(gauges.raced, 0, "words only grow, so no retreat fails");
    }
}

#[test]
fn eight_threads_crowd_a_bucket() {
    each(&ALL, SCHEDULES, |overflow| crowd(overflow, |shared, key| shared.check(key, 100, 1)));
}

/// The control: under `Spill`, inserts a new key without a record of the key that it evicts.
#[test]
#[should_panic(expected = "a key is admitted its burst")]
fn control_unrecorded_eviction_admits_again() {
    sample(SCHEDULES, || crowd(Overflow::Spill, |shared, key| charge_plainly(shared, key, 100, 1)));
}

/// Each of six threads checks all six units of one key, while two threads evict. At most one check is admitted, plus one
/// for each retreat that failed.
fn first_checks_during_evictions(overflow: Overflow, check: fn(&Shared) -> bool) {
    let shared = Shared::new(6, overflow);
    shared.set(0, Z, 150);
    shared.set(1, W, 150);
    let answers = eight(&shared, move |shared, number| match number {
        0 | 1 => {
            let _ = shared.check([Y, key(5, 0)][number], 100, 1);
            false
        }
        _ => check(shared),
    });
    let (gauges, again) = (shared.table.gauges(), extra_admissions(&shared, overflow));
    assert!(gauges.raced < 6, "fewer than the six racing threads: {gauges:?}");
    let admitted = admitted(&answers) as u64;
    assert!(admitted <= 1 + again, "six units, one admission of six: {admitted}, {gauges:?}");
    assert!(shared.slots_of(X) as u64 <= 1 + gauges.raced, "a key has one slot");
}

#[test]
fn first_checks_during_evictions_take_one_slot() {
    each(&ALL, SCHEDULES, |overflow| {
        first_checks_during_evictions(overflow, |shared| shared.check(X, 100, 6));
    });
}

#[test]
#[should_panic(expected = "a key has one slot")]
fn control_eight_without_second_look_two_slots() {
    sample(SCHEDULES, || {
        first_checks_during_evictions(Overflow::Forget, |shared| charge_plainly(shared, X, 100, 6));
    });
}

/// Eight threads charge and refund two keys. Each charge that is not refunded is owed.
fn charges_and_refunds(overflow: Overflow, refund: fn(&Shared, u64, &Decision) -> u64) {
    const BURST: u64 = 4;
    let shared = Shared::new(BURST, overflow);
    let charged = eight(&shared, move |shared, number| {
        let key = number % 2;
        let charge = shared.decide(KEYS[key], 100, 2);
        if !charge.is_allowed() {
            return (key, 0);
        }
        (key, if number < 6 { 2 - refund(shared, KEYS[key], &charge) } else { 2 })
    });
    let mut owed = [0; 2];
    for (key, units) in charged {
        owed[key] += units;
    }
    for (&key, owed) in KEYS.iter().zip(owed) {
        assert!(owed <= BURST, "a key is admitted its burst: {owed}");
        assert_eq!(
            shared.admits(key, 100),
            BURST - owed,
            "units that were not refunded are owed, and no more"
        );
        assert_eq!(shared.slots_of(key), 1, "a key has one slot");
    }
}

#[test]
fn eight_threads_charge_and_refund() {
    each(&[Overflow::Spill, Overflow::Forget], SCHEDULES, |overflow| {
        charges_and_refunds(overflow, |shared, key, charge| shared.refund(key, 100, charge));
    });
}

/// The control: stores the lower word instead of an exchange.
#[test]
#[should_panic(expected = "units that were not refunded are owed")]
fn control_eight_refunds_by_store_lose_charges() {
    fn store(shared: &Shared, hash: u64, charge: &Decision) -> u64 {
        let place = shared.table.place(hash);
        let Some((slot, seen)) = SlotTable::<TatWord, WAYS>::locate(shared.table.bucket(0), place) else {
            return 0;
        };
        let SlotWord { fingerprint, state } = SlotWord::unpack(seen);
        let refund = Refund { charge: Some(charge), units: charge.cost(), now_ns: 100 };
        let Some(Moved { ahead, units }) = shared.word.refund(state - 100, 100, &refund) else { return 0 };
        slot.store(SlotWord::pack(fingerprint, 100 + ahead), Release);
        units
    }
    sample(SCHEDULES, || charges_and_refunds(Overflow::Spill, store));
}
