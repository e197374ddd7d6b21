//! Loom models of the doorkeeper: every interleaving of two or three threads, up to a bound on preemptions. See
//! `store::compact::table::models` for what a control is.

use super::super::mix;
use super::*;
use crate::sync::{Arc, explore, thread};

const MEMORY: u32 = 4;
const GENERATION: u64 = 1 << (MEMORY + 1);
/// In the first half of a generation.
const NOW: u64 = 10 * GENERATION + 3;

/// One pair of words, for all keys.
fn doorkeeper() -> Arc<Doorkeeper> {
    Arc::new(Doorkeeper::new(2, MEMORY).unwrap())
}

/// Puts keys in beside each other, each until its time; then each is found until then.
fn all_are_found<const N: usize>(insert: fn(&Doorkeeper, u64, u64), untils: [u64; N]) {
    let doorkeeper = doorkeeper();
    // A word of long ago is renewed by whoever comes first.
    doorkeeper.insert(mix(99), NOW - 4 * GENERATION);
    let mut key = 0;
    let threads = untils.map(|until| {
        key += 1;
        let (doorkeeper, key) = (doorkeeper.clone(), key);
        thread::spawn(move || insert(&doorkeeper, mix(key), until))
    });
    for thread in threads {
        thread.join().unwrap();
    }
    let newest = untils.into_iter().max().unwrap();
    // What ended two generations ago need not be found any more.
    for (key, until) in (1..).zip(untils).filter(|(_, until)| until + GENERATION >= newest) {
        assert!(doorkeeper.contains(mix(key), until), "what was put in is found until its end: {key}");
        assert!(doorkeeper.contains(mix(key), until - (1 << MEMORY)), "and from before on: {key}");
    }
}

#[test]
fn two_keys_of_one_generation_are_both_found() {
    explore(3, || all_are_found(Doorkeeper::insert, [NOW, NOW]));
}

#[test]
fn keys_on_both_sides_of_a_turn_are_both_found() {
    explore(3, || all_are_found(Doorkeeper::insert, [NOW, NOW + GENERATION]));
}

/// Two generations apart they have the same word: the late one is added to it, or replaced.
#[test]
fn a_key_that_is_put_in_late_pushes_none_out() {
    explore(3, || all_are_found(Doorkeeper::insert, [NOW, NOW + 2 * GENERATION]));
    explore(2, || all_are_found(Doorkeeper::insert, [NOW, NOW, NOW + GENERATION]));
}

/// Who sees what was written after a key was put in finds it.
#[test]
fn what_is_put_in_is_seen_before_what_follows() {
    explore(3, || {
        let doorkeeper = doorkeeper();
        let evicted = Arc::new(AtomicU64::new(0));
        let inserter = {
            let (doorkeeper, evicted) = (doorkeeper.clone(), evicted.clone());
            thread::spawn(move || {
                doorkeeper.insert(mix(1), NOW);
                evicted.store(1, Release);
            })
        };
        if evicted.load(Acquire) == 1 {
            assert!(doorkeeper.is_used(NOW), "who sees the slot taken sees that something was put in");
            assert!(doorkeeper.contains(mix(1), NOW), "and finds it");
        }
        inserter.join().unwrap();
    });
}

/// The control: writes what the word held and the key's bits without an exchange.
#[test]
#[should_panic(expected = "what was put in is found until its end")]
fn control_storing_loses_keys() {
    fn store(doorkeeper: &Doorkeeper, hash: u64, until: u64) {
        let last = doorkeeper.generation(until);
        doorkeeper.newest.fetch_max(last + 1, AcqRel);
        let (pair, bits) = doorkeeper.place(hash);
        for generation in [last - 1, last] {
            let word = doorkeeper.word(pair, generation);
            let seen = word.load(Acquire);
            let next = if behind(seen, generation) { stamp(generation) | bits } else { seen | bits };
            word.store(next, Release);
        }
    }
    explore(3, || all_are_found(store, [NOW, NOW]));
}
