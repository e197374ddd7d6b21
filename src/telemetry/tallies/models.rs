//! Loom models of threads that count: one with a stripe of its own, and two that share one.

use super::*;
use crate::base::sync::{Arc, beside, explore};

/// The threads that share a stripe, and one that does not.
const THREADS: [usize; 3] = [OWN, OWN + STRIPES, 0];

type Add = fn(&AtomicU64, usize, u64);

/// Each thread counts two events of one rule. Returns the sum.
fn count(add: Add) -> u64 {
    let tallies = Arc::new(RuleTallies::<1>::new(1));
    THREADS.iter().for_each(|&thread| tallies.make_for(thread));
    let run = |thread: usize| {
        move |tallies: &RuleTallies<1>| {
            let counter = tallies.counter(thread, 0, 0).unwrap();
            add(counter, thread, 1);
            add(counter, thread, 1);
        }
    };
    beside(&tallies, THREADS.map(run));
    tallies.sum(0, 0)
}

#[test]
fn events_of_all_threads_are_counted() {
    explore(2, || assert_eq!(count(add), 6, "each event counts"));
}

#[test]
#[should_panic(expected = "each event counts")]
fn control_storing_in_shared_stripe_loses_event() {
    explore(2, || assert_eq!(count(|counter, _, count| add(counter, 0, count)), 6, "each event counts"));
}
