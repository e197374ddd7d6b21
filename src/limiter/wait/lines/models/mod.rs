//! Models of lines. Each waiter that becomes the head sees this, or is woken.

use super::{LinePosition, LineStanding, WaitLines};
use crate::base::sync::{Arc, AtomicUsize, Ordering, explore, spawn};
use std::task::{Wake, Waker};

#[cfg(tollgate_shuttle)]
mod many;

#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns a waker and its counter of calls.
fn waker() -> (Waker, std::sync::Arc<Calls>) {
    let calls = std::sync::Arc::new(Calls::default());
    (Waker::from(std::sync::Arc::clone(&calls)), calls)
}

fn called(calls: &Calls) -> bool {
    calls.0.load(Ordering::Relaxed) > 0
}

fn is_head(lines: &WaitLines, place: LinePosition) -> bool {
    matches!(lines.standing(place, Waker::noop()), LineStanding::Head { .. })
}

/// A waiter joins and looks, while the head leaves.
fn join_while_the_head_leaves(standing: Look) {
    explore(3, move || {
        let lines = Arc::new(WaitLines::new());
        let (head, before) = lines.join("key", 1, 0, Waker::noop().clone());
        assert!(before.is_none());
        let leaver = spawn(&lines, move |lines| lines.leave(head, 5, 5));
        let (waker, calls) = waker();
        let (place, _) = lines.join("key", 1, 0, Waker::noop().clone());
        let standing = standing(&lines, place, &waker);
        leaver.join().unwrap();
        assert!(is_head(&lines, place), "the only waiter left is the head");
        assert!(
            matches!(standing, LineStanding::Head { .. }) || called(&calls),
            "a waiter that saw a head is woken when it becomes the head"
        );
        lines.leave(place, 6, 6);
        assert_eq!((lines.len(), lines.waiters()), (0, 0), "a line is removed with its last waiter");
    });
}

type Look = fn(&WaitLines, LinePosition, &Waker) -> LineStanding;

/// The fault: looks in one critical section, and leaves its waker in another one.
fn separately(lines: &WaitLines, place: LinePosition, waker: &Waker) -> LineStanding {
    let standing = lines.standing(place, Waker::noop());
    if let LineStanding::Behind { .. } = standing {
        lines.standing(place, waker);
    }
    standing
}

// G56
#[test]
fn models_joining_waiter_is_head_or_woken() {
    join_while_the_head_leaves(WaitLines::standing);
}

// G56
#[test]
fn models_third_waiter_is_woken_by_a_leaver() {
    explore(3, || {
        let lines = Arc::new(WaitLines::new());
        let [first, second] = [0, 1].map(|_| lines.join("key", 1, 0, Waker::noop().clone()).0);
        let (waker, calls) = waker();
        let (third, _) = lines.join("key", 1, 0, waker);
        let leaver = spawn(&lines, move |lines| lines.leave(first, 5, 5));
        // The second waiter gives up, whether it was woken or not.
        lines.leave(second, 4, 4);
        leaver.join().unwrap();
        assert!(is_head(&lines, third), "the only waiter left is the head");
        assert!(called(&calls), "the last waiter to leave before it wakes it");
        lines.leave(third, 6, 6);
        assert_eq!((lines.len(), lines.waiters()), (0, 0), "a line is removed with its last waiter");
    });
}

// G56
#[test]
#[should_panic(expected = "is woken when it becomes the head")]
fn models_control_separate_look_loses_wake_up() {
    join_while_the_head_leaves(separately);
}
