//! Loom models of the words of the filter. They explore every interleaving of two or three threads, up to a bound on
//! preemptions. `store::compact::table::models` explains the controls.

use super::*;
use crate::base::sync::Ordering::Release;
use crate::base::sync::{Arc, beside, spawn};

const KEY: u64 = 7;

fn model(run: impl Fn() + Sync + Send + 'static) {
    crate::base::sync::explore(3, run);
}

type Filter = Bloom<()>;

/// Creates a filter with one word for all keys.
fn filter() -> Arc<Filter> {
    Arc::new(Bloom::for_memory(WORD, 8).unwrap().with_hasher(()))
}

/// Inserts each of these keys in a separate thread. Returns for each thread whether its key was already there.
fn racing<const N: usize>(
    filter: &Arc<Filter>,
    insert: fn(&Filter, u64) -> bool,
    keys: [u64; N],
) -> [bool; N] {
    beside(filter, keys.map(|key| move |filter: &Filter| insert(filter, key)))
}

fn insert(filter: &Filter, key: u64) -> bool {
    filter.insert_hash(key)
}

/// Returns a key that shares some bits with [`KEY`] and has some other bits.
fn neighbour(filter: &Filter) -> u64 {
    let (_, own) = filter.place(KEY);
    let meets = |key: &u64| {
        let (_, other) = filter.place(*key);
        own & other != 0 && other & !own != 0 && own & !other != 0
    };
    (KEY + 1..).find(meets).unwrap()
}

fn assert_one_is_first(told: [bool; 2]) {
    assert!(told[0] ^ told[1], "exactly one insert finds the key new");
}

// G60
#[test]
fn one_of_two_racing_inserts_finds_key_new() {
    model(|| {
        let filter = filter();
        assert_one_is_first(racing(&filter, insert, [KEY, KEY]));
        assert!(filter.contains_hash(KEY), "the key is in the filter");
    });
}

#[test]
fn neighbour_in_word_keeps_its_bits() {
    model(|| {
        let filter = filter();
        let neighbour = neighbour(&filter);
        let [one, other, next_door] = racing(&filter, insert, [KEY, KEY, neighbour]);
        assert_one_is_first([one, other]);
        assert!(!next_door, "no other key sets all bits of the neighbour");
        assert!(filter.contains_hash(KEY) && filter.contains_hash(neighbour), "no bit is lost");
    });
}

#[test]
fn insert_after_clear_is_kept() {
    model(|| {
        let filter = filter();
        filter.insert_hash(KEY);
        let other = neighbour(&filter);
        let racing = spawn(&filter, move |filter| filter.insert_hash(other));
        filter.clear();
        filter.insert_hash(KEY);
        racing.join().unwrap();
        assert!(filter.contains_hash(KEY), "a key inserted after a clear is in the filter");
    });
}

/// The control returns its answer from the word that it loaded before the insert.
// G60
#[test]
#[should_panic(expected = "exactly one insert finds the key new")]
fn control_answer_from_load_has_two_first() {
    fn by_the_load(filter: &Filter, key: u64) -> bool {
        let there = filter.contains_hash(key);
        filter.insert_hash(key);
        there
    }
    model(|| assert_one_is_first(racing(&filter(), by_the_load, [KEY, KEY])));
}

/// The control stores the loaded word with the new bits added, instead of an atomic OR.
// G60
#[test]
#[should_panic(expected = "no bit is lost")]
fn control_storing_loses_bits() {
    fn storing(filter: &Filter, key: u64) -> bool {
        let (word, bits) = filter.place(key);
        let seen = word.load(Acquire);
        word.store(seen | bits, Release);
        seen & bits == bits
    }
    model(|| {
        let filter = filter();
        let neighbour = neighbour(&filter);
        racing(&filter, storing, [KEY, neighbour]);
        assert!(filter.contains_hash(KEY) && filter.contains_hash(neighbour), "no bit is lost");
    });
}
