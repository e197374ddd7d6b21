//! Shuttle models: eight threads use a table whose shards begin with two words; see `sync::sample`.

use super::*;
use crate::base::sync::{admitted, eight, sample};

const SCHEDULES: usize = 800;
/// The store holds these keys from the beginning, and they are idle when the threads start. The other keys are new.
const HELD: [u64; 3] = [0, 2, 5];
const KEYS: [u64; 5] = [0, 2, 5, 1, 3];

/// Five threads check five keys while other threads sweep idle keys and remove two keys. Every charge is found again.
fn five_keys(sweep: fn(&Store)) {
    let store = store(1);
    for key in HELD {
        assert!(check(&store, key, 100));
    }
    let all = eight(&store, move |store, number| {
        let mut admitted = [0; 5];
        match number {
            5 => sweep(store),
            6 | 7 => admitted[0] -= i64::from(store.remove(&KEYS[0])),
            _ => {
                for index in [number, (number + 1) % 5] {
                    admitted[index] += i64::from(check(store, KEYS[index], 110));
                }
            }
        }
        admitted
    });
    let mut owed = [0; 5];
    for admitted in all {
        owed = std::array::from_fn(|key| owed[key] + admitted[key]);
    }
    for (key, owed) in KEYS.into_iter().zip(owed) {
        // Each key is checked twice. Two threads may remove the first key, and no other key.
        let held = !held(&store, key, 110).reset_after().is_zero();
        if key == KEYS[0] {
            assert!(owed <= 1, "one unit, and one more for each removal: {owed}");
            assert!(owed <= 0 || held, "lookups find the node with the charge");
        } else {
            assert_eq!(owed, 1, "one unit, one admission: lookups find the node with the charge");
            assert!(held, "lookups find the node with the charge");
        }
    }
    let there = KEYS.iter().filter(|key| store.contains(*key)).count();
    assert_eq!(store.len(), there, "the length is the number of keys that are there");
}

#[test]
fn eight_threads_insert_charge_sweep_and_remove() {
    sample(SCHEDULES, || five_keys(|store| store.retain_active(110)));
}

#[test]
#[should_panic(expected = "one unit")]
fn control_eight_with_careless_sweep_lose_charges() {
    sample(SCHEDULES, || five_keys(kill_without_recheck));
}

/// Every key is new, and the index of its shard doubles several times during the run.
#[test]
fn eight_inserts_and_growth_lose_no_key() {
    sample(SCHEDULES, || {
        let store = store(1);
        let told = eight(&store, |store, number| {
            [number, (number + 1) % 8].map(|key| check(store, key as u64, 100))
        });
        assert_eq!(
            admitted(told.as_flattened()),
            8,
            "each of eight keys is admitted by one of its two first sights"
        );
        assert_eq!(store.len(), 8, "a key has one node");
        assert!((0..8_u64).all(|key| store.contains(&key)), "lookups find every key");
    });
}

#[test]
fn eight_new_keys_respect_the_cap() {
    for when_full in [WhenFull::Deny, WhenFull::Forget] {
        sample(SCHEDULES, move || {
            let store = store_with_cap(1, Some((3, when_full)));
            let admitted = admitted(&eight(&store, |store, number| check(store, number as u64, 100)));
            assert!(store.len() <= 3, "room for three keys: {}", store.len());
            if when_full == WhenFull::Deny {
                assert!(admitted <= 3, "room for three of eight keys: {admitted}");
            }
        });
    }
}
