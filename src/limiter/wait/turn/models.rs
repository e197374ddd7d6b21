//! A model of a head that asks the limiter while another waiter joins its line. The head's units are counted once.

use super::{Next, Turn, WaitLines};
use crate::algorithm::Gcra;
use crate::base::check_time::CheckTime;
use crate::base::clock::{ManualClock, Timestamp};
use crate::base::quota::Quota;
use crate::base::sync::explore;
use crate::base::sync::thread;
use crate::store::{Direct, Operation, Store};
use std::task::Waker;
use std::time::Duration;

// G57
#[test]
fn models_head_units_count_once_for_next_waiter() {
    explore(3, || {
        // Leaked, because a turn borrows it and moves to a thread.
        let clock: &ManualClock = Box::leak(Box::new(ManualClock::new(Timestamp::from_secs(9))));
        let store: &Direct<Gcra> = Box::leak(Box::new(Direct::new(Gcra::new(Quota::per_second(1).burst(5)))));
        let lines: &WaitLines = Box::leak(Box::new(WaitLines::new()));
        assert!(Store::<()>::apply(store, (), Operation::Check, CheckTime::read(clock), 5).is_allowed());
        let (before, _) = lines.join(&(), 0, 9_000_000_000, Waker::noop().clone());
        let mut head = Turn::new(store, clock, lines, &(), 5);
        assert!(matches!(head.advance(Waker::noop()), Next::Sleep { until_ns: u64::MAX, .. }));
        lines.leave(before, 9_000_000_000, 9_000_000_000);

        let asking = thread::spawn(move || {
            head.advance(Waker::noop());
            head
        });
        let mut second = Turn::new(store, clock, lines, &(), 1);
        second.within(Duration::from_secs(6));
        let next = second.advance(Waker::noop());
        let head = asking.join().unwrap();
        assert!(
            matches!(next, Next::Sleep { .. }),
            "the five units before it and its own unit take six seconds"
        );
        drop(second);
        drop(head);
        assert_eq!((lines.len(), lines.waiters()), (0, 0), "a line is removed with its last waiter");
    });
}
