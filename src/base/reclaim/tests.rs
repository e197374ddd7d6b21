//! Tests of reclamation in one process. The models have the races.

use std::cell::Cell;
use std::sync::mpsc::channel;

use super::domain::{BATCH, Domain, FREED, MANY, SHARED};
use super::*;
use crate::base::sync::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// Counts the items that were freed.
unsafe fn count(freed: *mut AtomicUsize, by: usize, _: &Pinned) {
    // SAFETY: the tests leak the counter.
    unsafe { &*freed }.fetch_add(by, Relaxed);
}

fn counter() -> &'static AtomicUsize {
    Box::leak(Box::new(AtomicUsize::new(0)))
}

fn retire(guard: &Pinned, freed: &'static AtomicUsize, bytes: usize) {
    // SAFETY: `count` may be called at any time.
    unsafe { guard.retire(std::ptr::from_ref(freed).cast_mut(), 1, bytes, count) };
}

/// Retires other items until `done`. Other tests of this program pin too, and may hold items back for a while.
fn retire_until(done: impl Fn() -> bool) {
    let others = counter();
    for _ in 0..10_000_000 {
        if done() {
            return;
        }
        retire(&pin(), others, usize::MAX);
    }
    panic!("not freed");
}

// G34
#[test]
fn item_waits_for_every_guard_taken_before() {
    let (freed, others) = (counter(), counter());
    let (taken, tell) = channel();
    let (end, ended) = channel::<()>();
    let reader = std::thread::spawn(move || {
        let guard = (pin(), pin());
        taken.send(()).unwrap();
        ended.recv().unwrap();
        // Guards are dropped in any order.
        drop(guard.0);
        taken.send(()).unwrap();
        ended.recv().unwrap();
    });
    tell.recv().unwrap();
    retire(&pin(), freed, usize::MAX);
    for is_first in [true, false] {
        for _ in 0..10_000 {
            retire(&pin(), others, usize::MAX);
        }
        assert_eq!(freed.load(Relaxed), 0, "a thread is pinned that may use the item");
        end.send(()).unwrap();
        if is_first {
            tell.recv().unwrap();
        }
    }
    reader.join().unwrap();
    retire_until(|| freed.load(Relaxed) == 1);
}

// G34
#[test]
fn one_call_frees_a_bounded_number_of_items() {
    let freed = counter();
    let guard = pin();
    for _ in 0..100 * BATCH {
        retire(&guard, freed, 1);
    }
    drop(guard);
    let mut most = 0;
    retire_until(|| freed.load(Relaxed) == 100 * BATCH);
    for _ in 0..100 {
        let before = freed.load(Relaxed);
        retire(&pin(), freed, usize::MAX);
        most = most.max(freed.load(Relaxed) - before);
    }
    assert!(most <= FREED * BATCH, "{most} items in one call");
}

/// A domain of the test's own, in which threads begin, retire one item, and end.
fn domain_with(threads: usize, freed: &'static AtomicUsize) -> &'static Domain {
    let domain: &Domain = Box::leak(Box::new(Domain::new()));
    domain.choose(|| false);
    for _ in 0..threads {
        let record = domain.register();
        let _ = domain.pin(record);
        let retired = Retired::new(std::ptr::from_ref(freed).cast_mut(), 1, count);
        assert!(!domain.retire(record, retired, 1), "the batch is not full");
        let _ = domain.unpin(record);
        domain.leave(record);
    }
    domain
}

fn collect(domain: &Domain) {
    let record = domain.register();
    let _ = domain.pin(record);
    let guard = pin();
    // SAFETY: the domain passes only items that no thread can use.
    domain.collect(record, |item| unsafe { item.free(&guard) });
    let _ = domain.unpin(record);
    domain.leave(record);
}

// G34
#[test]
fn one_call_frees_many_small_batches() {
    let freed = counter();
    let domain = domain_with(10 * BATCH, freed);
    for expected in [0, FREED * BATCH, 2 * FREED * BATCH, 10 * BATCH] {
        collect(domain);
        assert_eq!(freed.load(Relaxed), expected);
    }
}

/// The `Drop` of a value may panic, so values are taken one at a time.
// G34
#[test]
fn values_that_are_left_behind_are_taken_one_at_a_time() {
    let (freed, domain) = (counter(), domain_with(0, counter()));
    let pointer = std::ptr::from_ref(freed).cast_mut();
    let (record, present) = (domain.register(), AtomicPtr::new(pointer));
    let (_, place) = domain.hold(record, &present).unwrap();
    (0..3).for_each(|_| domain.leave_behind(Retired::new(pointer, 1, count)));
    assert!(domain.take_left().is_none(), "the thread holds the value");
    hold::let_go(place);
    assert_eq!(std::iter::from_fn(|| domain.take_left()).count(), 3);
    domain.leave(record);
}

/// The `Drop` of a value or of a key may drop the owners of other values.
// G34
#[test]
fn freeing_does_not_begin_inside_freeing() {
    let domain = domain_with(0, counter());
    let record = domain.register();
    let freeing = record.begin_to_free();
    assert!(freeing.is_some());
    // A refusal does not end what the thread does.
    for _ in 0..2 {
        assert!(record.begin_to_free().is_none(), "the thread frees already");
    }
    drop(freeing);
    assert!(record.end());
    assert!(record.begin_to_free().is_none(), "the thread is ending");
}

/// A copied process has records of threads that it does not have. They may be pinned, but the one thread may be, too.
// G34
#[test]
fn copied_process_waits_only_for_its_own_thread() {
    let freed = counter();
    let domain = domain_with(SHARED, freed);
    let (own, other) = (domain.register(), domain.register());
    let _ = (domain.pin(own), domain.pin(other));
    let collect_twice = || (0..2).for_each(|_| collect(domain));
    collect_twice();
    domain.forget_other_threads(Some(own));
    collect_twice();
    assert_eq!(freed.load(Relaxed), 0, "the thread that copied the process still uses the items");
    let _ = domain.unpin(own);
    collect_twice();
    assert_eq!(freed.load(Relaxed), SHARED, "the other thread does not exist in the copy");
}

/// The `Drop` of a key that is being freed copies the process, while another thread takes a group apart.
#[test]
fn process_that_is_copied_by_a_drop_frees_afterwards() {
    let freed = counter();
    let domain = domain_with(SHARED, freed);
    let own = domain.register();
    own.is_collecting.set(true);
    domain.busy.store(1, Relaxed);
    domain.forget_other_threads(Some(own));
    own.is_collecting.set(false);
    (0..2).for_each(|_| collect(domain));
    assert_eq!(freed.load(Relaxed), SHARED, "no thread of the copy holds the group");
}

#[test]
fn several_batches_share_a_barrier() {
    for (batches, expected) in [(SHARED - 1, 0), (SHARED, SHARED)] {
        let freed = counter();
        let domain = domain_with(batches, freed);
        (0..3).for_each(|_| collect(domain));
        assert_eq!(freed.load(Relaxed), expected);
    }
}

/// The `Drop` of this thread-local value runs after the record of the thread was given back, or before.
struct Late(&'static AtomicUsize);

impl Drop for Late {
    fn drop(&mut self) {
        for _ in 0..3 * BATCH / 2 {
            retire(&pin(), self.0, 1);
        }
    }
}

// G34
#[test]
fn thread_that_ends_hands_its_items_over() {
    thread_local!(static LATE: Cell<Option<Late>> = const { Cell::new(None) });
    for registers_first in [false, true] {
        let freed = counter();
        let work = move || {
            if registers_first {
                drop(pin());
            }
            LATE.set(Some(Late(freed)));
            retire(&pin(), freed, 1);
        };
        std::thread::spawn(work).join().unwrap();
        retire_until(|| freed.load(Relaxed) == 1 + 3 * BATCH / 2);
    }
}

// G34
#[test]
fn ended_threads_leave_a_bounded_number_of_items() {
    let freed = counter();
    for _ in 0..500 {
        std::thread::spawn(move || retire(&pin(), freed, 1)).join().unwrap();
    }
    // No thread retires any more. Threads that only pin free what exceeds the bound.
    for _ in 0..100_000_000_u64 {
        if freed.load(Relaxed) >= 500 - (MANY + 1) {
            return;
        }
        drop(pin());
    }
    panic!("{} of 500 items are freed", freed.load(Relaxed));
}
