//! Loom models of the keyed store. Shards begin with two words, and the hasher determines the place of each key.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use super::*;
use crate::algorithm::FirstFill;
use crate::base::quota::Quota;
use crate::base::reclaim::take_retired;
use crate::base::sync::{Arc, both, explore_long};
use crate::store::op::Store as _;

#[cfg(tollgate_shuttle)]
mod many;

/// The last four bits of a key begin its hash. The first of them is the shard, and the next chooses between two lines.
#[derive(Clone, Default)]
struct LowBits(u64);

impl BuildHasher for LowBits {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for LowBits {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are u64")
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key.rotate_right(4);
    }
}

type Store = Keyed<u64, Gcra, LowBits>;

/// A store with one unit per 10 ns and this burst.
fn store(burst: u64) -> Arc<Store> {
    store_with_cap(burst, None)
}

fn store_with_cap(burst: u64, cap: Option<(usize, WhenFull)>) -> Arc<Store> {
    take_retired();
    let quota = Quota::new(1, Duration::from_nanos(10)).burst(burst);
    Arc::new(Keyed::new(Gcra::new(quota), LowBits::default(), KeyedLayout { cap, ..KeyedLayout::default() }))
}

fn check(store: &Store, key: u64, now_ns: u64) -> bool {
    store.check_by(store.algorithm(), store.prepare(&key), now_ns, 1).is_allowed()
}

fn held(store: &Store, key: u64, now_ns: u64) -> Decision {
    store.peek(store.prepare(&key), CheckTime::from_ns(now_ns), 0)
}

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    explore_long(preemptions, 10_000, run);
}

// G3
#[test]
fn racing_first_sights_create_one_node() {
    model(3, || {
        let store = store(1);
        let (a, b) = both(&store, |s| check(s, 1, 100), |s| check(s, 1, 100));
        assert!(a ^ b, "two first sights of a key with a burst of one: one is admitted");
        assert_eq!(store.len(), 1, "one node is created");
        assert_eq!(held(&store, 1, 100).reset_after(), Duration::from_nanos(10), "the node holds the charge");
    });
}

/// As above, in a shard that has an index. Each lookup ends at an empty slot, and the insert fills it without a search.
#[test]
fn racing_first_sights_fill_one_slot() {
    model(3, || {
        let store = store(1);
        assert!(check(&store, 0, 100) && store.remove(&0));
        let (a, b) = both(&store, |s| check(s, 1, 100), |s| check(s, 1, 100));
        assert!(a ^ b, "two first sights of a key with a burst of one: one is admitted");
        assert_eq!(store.len(), 1, "one node is created");
    });
}

/// The control: publishes a node by a store instead of an exchange.
// G3
#[test]
#[should_panic(expected = "one is admitted")]
fn control_storing_a_word_makes_two_nodes() {
    model(3, || {
        let store = store(1);
        // The shard already has an index.
        assert!(check(&store, 0, 100) && store.remove(&0));
        let insert = |store: &Store| {
            let guard = reclaim::pin();
            let hash = store.prepare(&1).1;
            match store.table.find(hash, &guard, |held| *held == 1) {
                Ok(held) => {
                    held.node.state.charge(&store.algorithm, 100, 1).is_ok_and(|first| first.is_allowed())
                }
                Err(place) => {
                    let state = KeyState::fresh(0);
                    let _ = state.charge(&store.algorithm, 100, 1);
                    place.store(store.table.place(KeyNode { state, key: 1 }, &guard));
                    true
                }
            }
        };
        let (a, b) = both(&store, insert, insert);
        assert!(a ^ b, "two first sights of a key with a burst of one: one is admitted");
    });
}

type Filling = Keyed<u64, FirstFill, LowBits>;

/// Two denied checks, at different times, of a new key that begins without units. The shard already has an index.
fn new_key_begins_once(check: fn(&Filling, u64) -> Decision) {
    take_retired();
    let algorithm = FirstFill::new(Gcra::new(Quota::new(1, Duration::from_nanos(10)).burst(2)), 0);
    let store: Arc<Filling> = Arc::new(Keyed::new(algorithm, LowBits::default(), KeyedLayout::default()));
    let first = store.check_by(store.algorithm(), store.prepare(&0), 100, 1);
    assert!(first.is_denied() && store.remove(&0));
    let (a, b) = both(&store, move |s| check(s, 100), move |s| check(s, 103));
    let [a, b] = [a, b].map(|denial| denial.at_ns() + denial.retry_ns());
    assert_eq!(a, b, "a new key begins once, so both denials name one time");
    assert_eq!(store.len(), 1, "one node is created");
    assert!(store.check_by(store.algorithm(), store.prepare(&1), a, 1).is_allowed());
}

// G156
#[test]
fn racing_first_sights_begin_a_key_once() {
    model(3, || new_key_begins_once(|s, now_ns| s.check_by(s.algorithm(), s.prepare(&1), now_ns, 1)));
}

/// The control: publishes a node by a store instead of an exchange.
// G156
#[test]
#[should_panic(expected = "a new key begins once")]
fn control_storing_a_word_begins_a_key_twice() {
    model(3, || {
        new_key_begins_once(|store, now_ns| {
            let (guard, hash) = (reclaim::pin(), store.prepare(&1).1);
            match store.table.find(hash, &guard, |held| *held == 1) {
                Ok(held) => held.node.state.charge(&store.algorithm, now_ns, 1).unwrap(),
                Err(place) => {
                    let state = KeyState::fresh(0);
                    let denial = state.charge(&store.algorithm, now_ns, 1).unwrap();
                    place.store(store.table.place(KeyNode { state, key: 1 }, &guard));
                    denial
                }
            }
        });
    });
}

/// One thread checks an idle key, while another thread sweeps.
fn charge_during_sweep(sweep: fn(&Store)) {
    model(3, move || {
        let store = store(1);
        assert!(check(&store, 1, 100));
        let (a, ()) = both(&store, |s| check(s, 1, 110), sweep);
        assert!(a, "the key was idle");
        let held = held(&store, 1, 110).reset_after();
        assert_eq!(held, Duration::from_nanos(10), "lookups find the node with the charge");
        assert_eq!(store.len(), 1);
    });
}

// G3
#[test]
fn charge_survives_removal_of_idle_node() {
    charge_during_sweep(|store| store.retain_active(110));
}

/// Removes the keys that it has seen idle, even if they were charged in the meantime.
fn kill_without_recheck(store: &Store) {
    store.remove_if(|node| {
        let idle = node.state.peek(&store.algorithm, 110, 0).is_ok_and(|held| held.reset_after().is_zero());
        idle && node.state.kill() == Kill::Done
    });
}

/// The control: checks whether a node is idle, and kills it in a separate step.
// G3
#[test]
#[should_panic(expected = "lookups find the node with the charge")]
fn control_separate_idle_check_loses_charge() {
    charge_during_sweep(kill_without_recheck);
}

#[test]
fn key_is_inserted_after_its_dead_node() {
    model(2, || {
        let store = store(1);
        assert!(check(&store, 1, 100));
        // One thread removes the key, and both insert it again.
        let (a, b) = both(
            &store,
            |s| {
                s.retain_active(110);
                check(s, 1, 110)
            },
            |s| check(s, 1, 110),
        );
        assert!(a ^ b, "one unit at 110, whichever node holds it");
        assert_eq!(store.len(), 1);
    });
}

#[test]
fn insert_racing_a_removal_is_kept() {
    model(2, || {
        let store = store(1);
        assert!(check(&store, 0, 100));
        take_retired();
        // A second word in the line of key 0 makes the index grow.
        let (a, b) = both(&store, |s| check(s, 1, 100), |s| s.remove(&0));
        assert!(a && b);
        assert!(store.contains(&1), "the new node is found although its neighbour was removed");
        assert!(!store.contains(&0));
        assert_eq!(store.len(), 1);
    });
}

// G34
#[test]
fn racing_removals_remove_once() {
    model(2, || {
        let store = store(1);
        assert!(check(&store, 0, 100));
        take_retired();
        let (a, b) = both(&store, |s| s.remove(&0), |s| s.remove(&0));
        assert!(a ^ b, "exactly one of two removals succeeds");
        assert_eq!(store.len(), 0);
        assert_eq!(take_retired(), 1, "the removed node is retired once");
    });
}

// G3
#[test]
fn growth_hides_no_key() {
    model(2, || {
        let store = store(1);
        // The second key doubles the index, and the fourth key doubles it again.
        assert!(check(&store, 1, 100));
        let (a, b) = both(&store, |s| check(s, 3, 100) && check(s, 2, 100), |s| check(s, 1, 100));
        assert!(a, "new keys are admitted");
        assert!(!b, "a known key is found while its index grows");
        for key in [1, 2, 3] {
            assert!(store.contains(&key), "{key}");
        }
        assert_eq!(store.len(), 3);
    });
}

/// Two threads insert keys into an index of two words, and may count them as one word. Then a third key is inserted.
fn third_key_after_two_that_raced(insert: fn(&Store, u64) -> bool) {
    model(2, move || {
        let store = store(1);
        let (a, b) = both(&store, |s| check(s, 0, 100), |s| check(s, 1, 100));
        assert!(a && b);
        assert!(insert(&store, 2), "a third key finds room");
        for key in [0, 1, 2] {
            assert!(store.contains(&key), "{key}");
        }
    });
}

// G3
#[test]
fn full_index_grows_although_a_word_was_not_counted() {
    third_key_after_two_that_raced(|store, key| check(store, key, 100));
}

/// The control: inserts only into an index that is not full.
// G3
#[test]
#[should_panic(expected = "a third key finds room")]
fn control_count_of_words_may_miss_one() {
    third_key_after_two_that_raced(|store, key| {
        let (guard, hash) = (reclaim::pin(), store.prepare(&key).1);
        let is_full =
            store.table.find(hash, &guard, |held| *held == key).is_err_and(|place| place.is_in_full_index());
        !is_full && check(store, key, 100)
    });
}

/// An insert that races with a rebuild of its index.
fn insert_racing_rebuild(rebuild: fn(&Store, u64, &Pinned)) {
    model(3, move || {
        let store = store(1);
        assert!(check(&store, 0, 100));
        let hash = store.prepare(&0).1;
        let (a, ()) = both(&store, |s| check(s, 1, 100), move |s| rebuild(s, hash, &reclaim::pin()));
        assert!(a, "a new key is admitted");
        assert!(store.contains(&0), "a key that was there is found");
        assert!(store.contains(&1), "so is a key that was inserted while its index was copied");
    });
}

// G3
#[test]
fn insert_racing_growth_is_kept() {
    insert_racing_rebuild(|store, hash, guard| store.table.rebuild_now(hash, guard));
}

// G3
#[test]
#[should_panic(expected = "inserted while its index was copied")]
fn control_unfrozen_copy_loses_insert() {
    insert_racing_rebuild(|store, hash, guard| store.table.rebuild_unfrozen(hash, guard));
}

/// An insert that races with a rebuild of its index, which has a tombstone.
fn insert_beside_tombstone(insert: fn(&Store, u64)) {
    model(3, move || {
        let store = store(1);
        assert!(check(&store, 0, 100) && store.remove(&0));
        let hash = store.prepare(&0).1;
        both(&store, move |s| insert(s, 1), move |s| s.table.rebuild_now(hash, &reclaim::pin()));
        assert!(store.contains(&1), "a key that was inserted while its index was copied is found");
    });
}

// G3
#[test]
fn insert_beside_tombstone_racing_growth_is_kept() {
    insert_beside_tombstone(|store, key| assert!(check(store, key, 100), "a new key is admitted"));
}

/// The control: fills a tombstone, which no thread freezes.
// G3
#[test]
#[should_panic(expected = "inserted while its index was copied")]
fn control_filled_tombstone_is_lost() {
    insert_beside_tombstone(|store, key| {
        let (guard, hash) = (reclaim::pin(), store.prepare(&key).1);
        let mut node = store.table.place(KeyNode { state: KeyState::fresh(0), key }, &guard);
        if !store.table.fill_tombstone(hash, &mut node, &guard) {
            assert!(check(store, key, 100));
        }
    });
}

/// How a model removes a node that it has killed.
type Unlink = for<'g> fn(&'g Store, Occupied<'g, u64, ()>, &'g Pinned);

/// A removal that races with two rebuilds, each by one thread.
fn removal_racing_rebuild(unlink: Unlink, rebuild: fn(&Store, u64, &Pinned)) {
    model(3, move || {
        let store = store(1);
        assert!(check(&store, 0, 100));
        let hash = store.prepare(&0).1;
        let remove = move |store: &Store| {
            let guard = reclaim::pin();
            let held = store.occupied(&0, hash, &guard).expect("no other thread removes it");
            assert!(held.node.state.kill() == Kill::Done);
            unlink(store, held, &guard);
        };
        both(&store, remove, move |s| rebuild(s, hash, &reclaim::pin()));
        assert_eq!(store.len(), 0);
        assert_eq!(store.table.filled(&reclaim::pin()), 0, "a removed node's word is in no index");
    });
}

#[test]
fn removal_racing_growth_leaves_no_word() {
    removal_racing_rebuild(
        |store, held, guard| store.table.unlink(held, guard),
        |store, hash, guard| store.table.rebuild_now(hash, guard),
    );
}

/// The control: copies an index that is not marked as growing.
#[test]
#[should_panic(expected = "a removed node's word is in no index")]
fn control_unmarked_copy_keeps_a_word() {
    removal_racing_rebuild(
        |store, held, guard| store.table.unlink(held, guard),
        |store, hash, guard| store.table.rebuild_unmarked(hash, guard),
    );
}

/// A visit of all keys and a sweep know the slot of a word, and search for it only if the index grows.
#[test]
fn removal_in_a_known_slot_racing_growth_leaves_no_word() {
    model(3, || {
        let store = store(1);
        assert!(check(&store, 0, 100));
        let hash = store.prepare(&0).1;
        let rebuild = move |store: &Store| store.table.rebuild_now(hash, &reclaim::pin());
        both(&store, |store| store.retain_active(110), rebuild);
        assert_eq!(store.len(), 0, "the key was idle");
        assert_eq!(store.table.filled(&reclaim::pin()), 0, "a removed node's word is in no index");
    });
}

#[test]
#[should_panic(expected = "a removed node's word is in no index")]
fn control_single_unlink_leaves_a_word() {
    removal_racing_rebuild(
        |store, held, _| store.table.unlink_once(&held),
        |store, hash, guard| store.table.rebuild_now(hash, guard),
    );
}

/// One thread looks at a node while another thread returns it and uses its memory for another key.
fn reuse_racing_a_reader(remove: fn(&Store)) {
    model(2, move || {
        let store = store(2);
        assert!(check(&store, 0, 100));
        let replace = move |store: &Store| {
            remove(store);
            check(store, 1, 100)
        };
        let (a, b) = both(&store, |s| check(s, 0, 100), replace);
        assert!(a && b);
        let owed = held(&store, 1, 100).reset_after();
        assert_eq!(owed, Duration::from_nanos(10), "a node has the charges of its own key only");
    });
}

#[test]
fn node_memory_is_reused_after_readers_unpin() {
    reuse_racing_a_reader(|store| assert!(store.remove(&0)));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_immediate_reuse_charges_other_key() {
    reuse_racing_a_reader(|store| {
        let guard = reclaim::pin();
        let held = store.occupied(&0, store.prepare(&0).1, &guard).expect("no other thread removes it");
        assert!(held.node.state.kill() == Kill::Done);
        store.table.free_at_once(&held, &guard);
    });
}

/// Two new keys race for room for one key. Each searches for an idle key to remove before it is denied, so there are
/// many states to visit.
fn race_for_one_place(preemptions: usize) {
    model(preemptions, || {
        let store = store_with_cap(1, Some((1, WhenFull::Deny)));
        let (a, b) = both(&store, |s| check(s, 1, 100), |s| check(s, 2, 100));
        assert!(!(a && b), "room for one of two keys");
        assert!(store.len() <= 1);
    });
}

// G35
#[test]
fn racing_new_keys_respect_the_cap() {
    race_for_one_place(1);
}

#[test]
#[ignore = "takes five minutes, because it allows one more preemption"]
fn racing_new_keys_respect_the_cap_long() {
    race_for_one_place(2);
}

/// A key replaces another one, in the part of the table that is counted last, while another thread reads the number of
/// keys. The reader may count both keys, although the store never holds more than one.
fn number_of_keys_during_replacement(most: usize) {
    model(2, move || {
        let store = store_with_cap(1, Some((1, WhenFull::Forget)));
        assert!(check(&store, 0, 0));
        let (_, seen) = both(&store, |store| check(store, 8, 0), Store::len);
        assert!(seen <= most, "one more key at most for each replacement: {seen}");
        assert_eq!(store.len(), 1, "the number is exact without other threads");
    });
}

// G35
#[test]
fn number_of_keys_has_one_more_for_each_replacement() {
    number_of_keys_during_replacement(2);
}

// G35
#[test]
#[should_panic(expected = "one more key at most")]
fn control_number_of_keys_may_exceed_the_cap() {
    number_of_keys_during_replacement(1);
}

/// Two threads check one new key in a full store, which holds one other key that owes.
fn new_key_at_the_cap_is_charged_once(check_again: fn(&Store, u64) -> bool) {
    model(2, move || {
        let store = store_with_cap(1, Some((1, WhenFull::Forget)));
        assert!(check(&store, 0, 0));
        let (a, b) = both(&store, |store| check(store, 8, 0), move |store| check_again(store, 8));
        assert!(!(a && b), "a key with a burst of one is admitted once");
        assert!(store.len() <= 1);
    });
}

// G35
#[test]
fn new_key_does_not_replace_itself() {
    new_key_at_the_cap_is_charged_once(|store, key| check(store, key, 0));
}

/// The control: replaces whichever key the search has found.
// G35
#[test]
#[should_panic(expected = "a key with a burst of one is admitted once")]
fn control_new_key_replaces_itself() {
    new_key_at_the_cap_is_charged_once(|store, key| {
        let (guard, hash) = (reclaim::pin(), store.prepare(&key).1);
        let Err(slot) = store.table.get(hash, &guard, |held| *held == key) else {
            return check(store, key, 0);
        };
        let action = Action::Apply(Operation::Check);
        let ask = Request { algorithm: &store.algorithm, action, now_ns: 0, cost: 1 };
        let absent = Absent { key: &key, hash, slot, guard: &guard };
        let Err(Some(victim)) = store.make_room(hash, 0, &guard) else {
            return check(store, key, 0);
        };
        if victim.node.state.kill() == Kill::NotDone {
            return check(store, key, 0);
        }
        let room = Room { cap: store.cap.as_ref(), replaced: Some(store.table.replace(victim, &guard)) };
        store.insert(&ask, &absent, &ask.fresh(), room).is_allowed()
    });
}
