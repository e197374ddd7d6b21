//! Loom models of the requests in flight. They explore every interleaving of two or three threads, up to a bound on
//! preemptions. `store::compact::table::models` explains the controls.

use super::*;
use crate::base::sync::{Arc, explore as model, spawn};

const X: u64 = 7;

/// Creates one line in each half, so that all keys share all counters.
fn rows() -> Arc<Rows> {
    Arc::new(Rows::new(Rows::MIN_BYTES).unwrap())
}

type Try = fn(&Rows, &KeyCounters) -> bool;

/// Tries to enter with a limit of one. Returns whether the request was admitted.
fn ours(rows: &Rows, place: &KeyCounters) -> bool {
    rows.try_enter(place, 1, 1).is_ok()
}

fn admitted<const N: usize>(rows: &Arc<Rows>, try_enter: Try) -> usize {
    let others = [(); N].map(|()| spawn(rows, move |rows| try_enter(rows, &rows.place(X))));
    let own = usize::from(try_enter(rows, &rows.place(X)));
    own + others.map(|thread| usize::from(thread.join().unwrap())).into_iter().sum::<usize>()
}

fn two_with_limit_one(rows: &Arc<Rows>, try_enter: Try) -> usize {
    let admitted = admitted::<1>(rows, try_enter);
    assert!(admitted <= 1, "limit 1, {admitted} admitted");
    admitted
}

// G62
#[test]
fn two_entries_never_exceed_limit_one() {
    model(3, || {
        let rows = rows();
        let admitted = two_with_limit_one(&rows, ours);
        assert_eq!(rows.read(&rows.place(X)), admitted as u64, "a denied request leaves no count");
    });
}

/// Requests above the limit do not subtract again, because that has too many interleavings.
#[test]
fn three_entries_never_exceed_limit_two() {
    fn stay(rows: &Rows, place: &KeyCounters) -> bool {
        rows.enter(place, 1) <= 2
    }
    model(2, || {
        let admitted = admitted::<2>(&rows(), stay);
        assert!(admitted <= 2, "limit 2, {admitted} admitted");
    });
}

// G62
#[test]
fn released_request_frees_its_place() {
    model(3, || {
        let rows = rows();
        let place = rows.place(X);
        assert_eq!(rows.enter(&place, 1), 1);
        let leaving = spawn(&rows, |rows| rows.subtract_units(&rows.place(X), 1));
        let admitted = u64::from(ours(&rows, &place));
        leaving.join().unwrap();
        assert_eq!(rows.read(&place), admitted, "the first request has left");
        assert!(ours(&rows, &place) != (admitted == 1), "limit 1: exactly one more is admitted");
    });
}

#[test]
fn count_is_at_least_requests_in_flight() {
    model(3, || {
        let rows = rows();
        let place = rows.place(X);
        rows.enter(&place, 1);
        let passing = spawn(&rows, |rows| {
            let place = rows.place(X);
            let count = rows.enter(&place, 2);
            rows.subtract_units(&place, 2);
            count
        });
        let seen = rows.read(&place);
        let count = passing.join().unwrap();
        assert!((1..=3).contains(&seen), "at least the request that stays, at most all requests: {seen}");
        assert_eq!(count, 3, "an entry counts itself and all others");
        assert_eq!(rows.read(&place), 1, "a request that left leaves no count");
    });
}

/// The control decides from the values that the additions return.
// G62
#[test]
#[should_panic(expected = "limit 1, 2 admitted")]
fn control_decision_from_additions_admits_two() {
    fn by_additions(rows: &Rows, place: &KeyCounters) -> bool {
        let before = place.0.map(|index| rows.counters[index].fetch_add(1, AcqRel));
        before.into_iter().min() == Some(0)
    }
    model(3, || {
        two_with_limit_one(&rows(), by_additions);
    });
}

/// The control uses Relaxed additions, so each thread may miss the other's addition.
// G62
#[test]
#[should_panic(expected = "limit 1, 2 admitted")]
fn control_relaxed_additions_admit_two() {
    fn relaxed(rows: &Rows, place: &KeyCounters) -> bool {
        for &index in &place.0 {
            rows.counters[index].fetch_add(1, Relaxed);
        }
        rows.read(place) <= 1
    }
    model(3, || {
        two_with_limit_one(&rows(), relaxed);
    });
}
