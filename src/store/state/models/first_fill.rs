//! Models of the first checks of a key that begins with a part of its burst.

use super::*;
use crate::algorithm::FirstFill;

/// Two checks of a new key that begins with `units` of a burst of two, at different times.
fn first_checks_of_a_key(
    units: u64,
    check: fn(&Shared<FirstFill>, u64) -> Decision,
) -> (Arc<Shared<FirstFill>>, [Decision; 2]) {
    let shared = Shared::new(FirstFill::new(Gcra::new(quota(1, 10).burst(2)), units), 0);
    let (a, b) = both(&shared, move |s| check(s, 100), move |s| check(s, 103));
    (shared, [a, b])
}

/// A new key without units: both checks are denied.
fn new_key_begins_once(check: fn(&Shared<FirstFill>, u64) -> Decision) {
    let (shared, denials) = first_checks_of_a_key(0, check);
    let [a, b] = denials.map(|denial| denial.at_ns() + denial.retry_ns());
    assert_eq!(a, b, "a new key begins once, so both denials name one time");
    assert!(!shared.check_at(a - 1, 1) && shared.check_at(a, 1), "the time is exact");
}

/// A new key with one unit: one of both checks is admitted.
fn first_unit_is_admitted_once(check: fn(&Shared<FirstFill>, u64) -> Decision) {
    let (_, checks) = first_checks_of_a_key(1, check);
    assert!(checks[0].is_allowed() ^ checks[1].is_allowed(), "a new key has one unit");
}

// G156
#[test]
fn racing_first_checks_begin_a_key_once() {
    model(|| new_key_begins_once(|s, now_ns| s.charge_at(now_ns, 1)));
    model(|| first_unit_is_admitted_once(|s, now_ns| s.charge_at(now_ns, 1)));
}

/// A check that stores the head of a new key without an exchange.
fn begin_by_store(shared: &Shared<FirstFill>, now_ns: u64) -> Decision {
    let (algorithm, head) = (&shared.algorithm, shared.head());
    store_next(shared, algorithm.begin(head, algorithm.step(head, |_| 0, now_ns, 1)))
}

// G156
#[test]
#[should_panic(expected = "a new key begins once")]
fn control_beginning_by_store_begins_twice() {
    model(|| new_key_begins_once(begin_by_store));
}

// G156
#[test]
#[should_panic(expected = "a new key has one unit")]
fn control_beginning_by_store_admits_twice() {
    model(|| first_unit_is_admitted_once(begin_by_store));
}
