//! A model of two waits that begin at once: what the first asks for is counted once by the second.

use super::{Lines, Next, Turn};
use crate::clock::{ManualClock, Timestamp};
use crate::store::{Direct, Store, Verb, When};
use crate::sync::explore;
use crate::{Gcra, Quota};
use loom::sync::Arc;
use loom::thread;
use std::task::Waker;
use std::time::Duration;

#[test]
fn models_who_comes_while_the_head_asks_is_not_refused_for_its_units_twice() {
    explore(2, || {
        let clock = ManualClock::new(Timestamp::from_secs(9));
        let store = Direct::new(Gcra::new(Quota::per_second(1).burst(5)));
        let full = store.act(&(), Verb::Check, When::read(&clock), 5);
        assert!(full.is_allowed());
        let lines = Lines::new();
        // The table is made: loom knows nothing of std's lock that it is made under.
        let (place, _) = lines.join(&(), 0, 0, Waker::noop().clone());
        lines.leave(place, 0, 0);
        let shared = Arc::new((store, clock, lines));
        let head = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let (store, clock, lines) = &*shared;
                let mut turn = Turn::new(store, clock, lines, &(), 5);
                assert!(matches!(turn.advance(Waker::noop()), Next::Sleep { .. }));
                // Not given up: nobody else's turn changes.
                std::mem::forget(turn);
            }
        });
        let (store, clock, lines) = &*shared;
        let mut second = Turn::new(store, clock, lines, &(), 1);
        second.within(Duration::from_secs(6));
        let next = second.advance(Waker::noop());
        head.join().unwrap();
        assert!(matches!(next, Next::Sleep { .. }), "five before it and itself are six seconds");
    });
}
