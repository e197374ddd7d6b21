//! Loom models of the keyed store: a table that begins with one bucket, and a hasher that gives keys away.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::sync::thread;

use super::*;
use crate::base::quota::Quota;
use crate::base::sync::epoch::take_retired;
use crate::base::sync::explore_long;
use crate::store::op::Store as _;

#[cfg(tollgate_shuttle)]
mod many;

/// A key's hash is the key.
#[derive(Clone, Default)]
struct Identity(u64);

impl BuildHasher for Identity {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are u64")
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

type Store = Keyed<u64, Gcra, Identity>;

/// One unit each 10 ns, `burst` at once.
fn store(burst: u64) -> Arc<Store> {
    take_retired();
    let quota = Quota::new(1, Duration::from_nanos(10)).burst(burst);
    Arc::new(Keyed::new(Gcra::new(quota), Identity::default(), KeyedLayout::default()))
}

fn check(store: &Store, key: u64, now_ns: u64) -> bool {
    store.check_with(store.algorithm(), store.prepare(&key), now_ns, 1).is_allowed()
}

fn held(store: &Store, key: u64, now_ns: u64) -> Decision {
    store.peek(store.prepare(&key), CheckTime::from_ns(now_ns), 0)
}

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    explore_long(preemptions, 10_000, run);
}

fn both<R: Send + 'static>(
    store: &Arc<Store>,
    first: impl FnOnce(&Store) -> R + Send + 'static,
    second: impl FnOnce(&Store) -> R + Send + 'static,
) -> (R, R) {
    let (one, two) = (store.clone(), store.clone());
    let one = thread::spawn(move || first(&one));
    let two = thread::spawn(move || second(&two));
    (one.join().unwrap(), two.join().unwrap())
}

#[test]
fn racing_first_sights_make_one_key() {
    model(3, || {
        let store = store(1);
        let (a, b) = both(&store, |s| check(s, 1, 100), |s| check(s, 1, 100));
        assert!(a ^ b, "two first sights of a key with a burst of one: one is admitted");
        assert_eq!(store.len(), 1, "and one node is made");
        assert_eq!(held(&store, 1, 100).reset_after(), Duration::from_nanos(10), "which holds the charge");
    });
}

#[test]
fn a_charge_survives_the_reclaiming_of_its_idle_node() {
    model(3, || {
        let store = store(1);
        assert!(check(&store, 1, 100));
        let sweep = |s: &Store| {
            s.retain_active(110);
            true
        };
        let (a, _) = both(&store, |s| check(s, 1, 110), sweep);
        assert!(a, "the key was idle");
        assert_eq!(
            held(&store, 1, 110).reset_after(),
            Duration::from_nanos(10),
            "the charge is on a node that look-ups find"
        );
        assert_eq!(store.len(), 1);
        assert!(take_retired() <= 1, "at most the idle node is retired");
    });
}

/// Removes the keys that it saw idle, charged since or not.
fn kill_whatever_was_charged(store: &Store) {
    store.remove_if(|node| {
        let idle = node.state.peek(&store.algorithm, 110, 0).is_ok_and(|held| held.reset_after().is_zero());
        idle && node.state.kill() == Kill::Done
    });
}

/// The control: looks whether a node is idle, and kills it in another step.
#[test]
#[should_panic(expected = "the charge is on a node that look-ups find")]
fn control_killing_what_was_idle_loses_a_charge() {
    model(3, || {
        let store = store(1);
        assert!(check(&store, 1, 100));
        let sweep = |s: &Store| {
            kill_whatever_was_charged(s);
            true
        };
        both(&store, |s| check(s, 1, 110), sweep);
        let held = held(&store, 1, 110).reset_after();
        assert_eq!(held, Duration::from_nanos(10), "the charge is on a node that look-ups find");
    });
}

#[test]
fn a_key_is_inserted_behind_a_dead_node_of_its_own() {
    model(2, || {
        let store = store(1);
        assert!(check(&store, 1, 100));
        // One removes, and both insert anew.
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
fn an_insert_behind_a_node_that_is_removed_is_not_lost() {
    model(2, || {
        let store = store(1);
        // In the list, 0 comes before 2.
        assert!(check(&store, 0, 100));
        let (a, b) = both(&store, |s| check(s, 2, 100), |s| s.remove(&0));
        assert!(a && b);
        assert!(store.contains(&2), "the new node is reachable though its predecessor went away");
        assert!(!store.contains(&0));
        assert_eq!(store.len(), 1);
        assert_eq!(take_retired(), 1, "the removed node is retired once");
    });
}

#[test]
fn two_removals_remove_once() {
    model(2, || {
        let store = store(1);
        assert!(check(&store, 0, 100));
        assert!(check(&store, 2, 100));
        let (a, b) = both(&store, |s| s.remove(&2), |s| s.remove(&2));
        assert!(a ^ b, "one of two removals removes");
        assert_eq!(store.len(), 1);
        assert_eq!(take_retired(), 1);
    });
}

#[test]
fn growth_hides_no_key() {
    model(2, || {
        let store = store(1);
        // One bucket: the second key doubles the table, the third asks for the new bucket.
        assert!(check(&store, 1, 100));
        let (a, b) = both(&store, |s| check(s, 3, 100) && check(s, 2, 100), |s| check(s, 1, 100));
        assert!(a, "new keys are admitted");
        assert!(!b, "a key that is there is found in a table that grows");
        for key in [1, 2, 3] {
            assert!(store.contains(&key), "{key}");
        }
        assert_eq!(store.len(), 3);
    });
}

#[test]
fn a_bucket_is_put_in_by_one_thread_and_missed_by_none() {
    model(2, || {
        let store = store(1);
        assert!(check(&store, 0, 100));
        assert!(check(&store, 2, 100));
        // The table has two buckets or more now, and nobody has asked for bucket 1.
        let (a, b) = both(&store, |s| check(s, 1, 100), |s| check(s, 1, 100));
        assert!(a ^ b, "two first sights through a bucket that is being put in: one is admitted");
        assert_eq!(store.len(), 3);
        assert!(store.contains(&1));
    });
}

/// Two newcomers for one place. Each looks for an idle key to forget before it is denied, so there is much to visit.
fn one_place_for_two(preemptions: usize) {
    model(preemptions, || {
        take_retired();
        let quota = Quota::new(1, Duration::from_nanos(10));
        let layout = KeyedLayout { capacity: 0, cap: Some((1, WhenFull::Deny)) };
        let store: Arc<Store> = Arc::new(Keyed::new(Gcra::new(quota), Identity::default(), layout));
        let (a, b) = both(&store, |s| check(s, 1, 100), |s| check(s, 2, 100));
        assert!(!(a && b), "one place for two keys");
        assert!(store.len() <= 1);
    });
}

#[test]
fn a_full_store_holds_no_more_than_its_cap() {
    one_place_for_two(1);
}

#[test]
#[ignore = "takes five minutes: one preemption more"]
fn a_full_store_holds_no_more_than_its_cap_at_length() {
    one_place_for_two(2);
}
