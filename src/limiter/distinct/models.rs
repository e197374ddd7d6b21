//! Models of limits on different values. Law: a value of a key is counted once in a window, and only if it is admitted.

use super::{Decision, Distinct, KnownPairs, Pair};
use crate::algorithm::FixedWindow;
use crate::base::check_time::CheckTime;
use crate::base::clock::models::Still;
use crate::base::quota::Quota;
use crate::base::sync::{Arc, both, explore};
use crate::limiter::RateLimiter;
use crate::sketch::window::{Windows, tag_bits};
use crate::store::{Capacity, HashedStore as _, Operation, Store};

const NOW_NS: u64 = 100_000_000_000;
const AT: CheckTime = CheckTime::from_ns(NOW_NS);

type Values = Distinct<Still>;

fn values(limit: u64) -> Values {
    let window = FixedWindow::new(Quota::per_hour(limit));
    let build = RateLimiter::builder(window).clock(Still(NOW_NS)).seeds([1, 2, 3, 4]);
    Distinct::new(build.capacity(Capacity::memory(272)).compact().unwrap(), 1).unwrap()
}

/// The key and the value; the filter has two words.
fn pair(values: &Values, value: u64) -> Pair {
    Pair { both: value.wrapping_mul(0x9E37_79B9_7F4A_7C15), ..values.pair(&1, &value) }
}

type Check = fn(&Values, Pair) -> Decision;

fn check(values: &Values, pair: Pair) -> Decision {
    values.check_at(pair, AT)
}

/// The fault: keeps the charge if another thread has inserted the value.
fn check_without_refund(values: &Values, pair: Pair) -> Decision {
    let store = &values.limiter.store;
    let KnownPairs { windows, filter } = &values.known;
    let window = windows.moment(NOW_NS).window;
    let charge = Store::<u64>::apply(store, store.prepare_hash(pair.key), Operation::Check, AT, 1);
    let found = filter.find(windows, &filter.probe(windows, pair.both), window);
    let _ = found.map(|found| found.insert(windows, window));
    charge
}

/// Two requests with the same new value.
fn same_new_value(check: Check) {
    explore(2, move || {
        let values = Arc::new(values(2));
        let new = pair(&values, 7);
        let (one, other) = both(&values, move |values| check(values, new), move |values| check(values, new));
        assert!(one.is_allowed() && other.is_allowed(), "a value that has room is admitted");
        let left = values.limiter.peek(&1).remaining();
        assert_eq!(left, 1, "a value is counted once");
        assert!(check(&values, pair(&values, 8)).is_allowed(), "another value has room");
    });
}

/// The steps of a rule, which may have others between them.
fn check_in_steps(values: &Values, pair: Pair) -> Decision {
    check_in_steps_at(values, pair, AT)
}

fn check_in_steps_at(values: &Values, pair: Pair, at: CheckTime) -> Decision {
    let store = &values.limiter.store;
    let charge = |cost| Store::<u64>::apply(store, store.prepare_hash(pair.key), Operation::Check, at, cost);
    let decision = charge(u64::from(!values.known.holds(pair.both, at)));
    if decision.is_denied() && values.known.holds(pair.both, at) {
        return charge(0);
    }
    if decision.charged() > 0 && values.known.insert(pair.both, &decision) == Ok(true) {
        Store::<u64>::refund(store, store.prepare_hash(pair.key), at, &decision, 1);
    }
    decision
}

/// The fault: charges the unit at the caller's time, and inserts the pair into the window of the filter.
fn check_in_two_windows(values: &Values, pair: Pair, at: CheckTime) -> Decision {
    let store = &values.limiter.store;
    let KnownPairs { windows, filter } = &values.known;
    let charge = |cost| Store::<u64>::apply(store, store.prepare_hash(pair.key), Operation::Check, at, cost);
    let (window, is_known) = values.known.find(pair.both, at);
    let decision = charge(u64::from(!is_known));
    if decision.charged() > 0 {
        let found = filter.find(windows, &filter.probe(windows, pair.both), window);
        let _ = found.map(|found| found.insert(windows, window));
    }
    decision
}

type CheckAt = fn(&Values, Pair, CheckTime) -> Decision;

/// A late value of a key, beside another value in the next window: of the same key, or of another key whose pair is in
/// the same word. Then the key tries two values in the next window, and has one unit there.
fn turn_of_a_window(check: CheckAt, other_key: u64) {
    const NEXT: CheckTime = CheckTime::from_ns(3_600_000_000_000);
    const LATE: CheckTime = CheckTime::from_ns(3_599_999_999_999);
    explore(2, move || {
        let values = Arc::new(values(1));
        let (first, second) = (pair(&values, 7), pair(&values, 8));
        // The bits of another pair, in the same word as those of the first one.
        let other = Pair { key: values.limiter.store.hash(&other_key), both: first.both ^ 1 };
        let late = move |values: &Values| check(values, first, LATE).is_allowed();
        both(&values, late, move |values| check(values, other, NEXT).is_allowed());
        let counted = usize::from(other_key == 1 && check(&values, other, NEXT).is_allowed());
        let admitted = [second, first].into_iter().filter(|pair| check(&values, *pair, NEXT).is_allowed());
        assert!(admitted.count() + counted <= 1, "a window has room for one value");
    });
}

// G119
#[test]
fn late_value_is_counted_in_one_window() {
    for other_key in [1, 2] {
        turn_of_a_window(Values::check_at, other_key);
    }
}

// G119
#[test]
fn late_value_of_a_rule_is_counted_in_one_window() {
    for other_key in [1, 2] {
        turn_of_a_window(check_in_steps_at, other_key);
    }
}

// G119
#[test]
#[should_panic(expected = "a window has room for one value")]
fn control_with_two_windows_admits_too_much() {
    turn_of_a_window(check_in_two_windows, 2);
}

/// The fault: follows the words of the filter to any time.
fn check_following(values: &Values, pair: Pair, at: CheckTime) -> Decision {
    let (window, _) = values.known.find(pair.both, at);
    let (when, _) = values.known.windows.caught_up(window, at);
    values.check_at(pair, when)
}

/// A value at a wrong time, beside a value of another key in the same word of the filter. Then this key tries two values in
/// the next window, and has one unit there.
fn wrong_time(check: CheckAt, trusting: bool) {
    const WRONG: CheckTime = CheckTime::from_ns(NOW_NS + 86_400_000_000_000);
    const NEXT: CheckTime = CheckTime::from_ns(3_600_000_000_000);
    explore(2, move || {
        let mut values = values(1);
        if !trusting {
            values.known.windows = Windows::new(3_600_000_000_000, tag_bits(3_600_000_000_000), u64::MAX);
        }
        let values = Arc::new(values);
        let (first, second) = (pair(&values, 7), pair(&values, 8));
        // The bits of another pair, in the same word as those of the first one.
        let wrong = Pair { key: values.limiter.store.hash(&2), both: first.both ^ 1 };
        let right = move |values: &Values| check(values, first, AT).is_allowed();
        both(&values, move |values| check(values, wrong, WRONG).is_allowed(), right);
        assert!(check(&values, second, NEXT).is_allowed(), "the key has room in the next window");
        assert!(check(&values, first, NEXT).is_denied(), "a window has room for one value");
    });
}

// G40
#[test]
fn wrong_time_binds_no_other_key() {
    wrong_time(Values::check_at, true);
}

// G40
#[test]
#[should_panic(expected = "the key has room in the next window")]
fn control_following_wrong_time_binds_other_key() {
    wrong_time(check_following, false);
}

// G119
#[test]
fn racing_value_is_counted_once() {
    same_new_value(check);
}

// G119
#[test]
fn racing_value_of_a_rule_is_counted_once() {
    same_new_value(check_in_steps);
}

// G119
#[test]
#[should_panic(expected = "a value is counted once")]
fn control_without_refund_counts_twice() {
    same_new_value(check_without_refund);
}

// G119
#[test]
fn two_values_take_one_unit() {
    explore(2, || {
        let values = Arc::new(values(1));
        let pairs = [7, 8].map(|value| pair(&values, value));
        let (one, other) =
            both(&values, move |values| check(values, pairs[0]), move |values| check(values, pairs[1]));
        assert!(one.is_allowed() ^ other.is_allowed(), "one of two values gets the unit");
        let admitted = if one.is_allowed() { pairs[0] } else { pairs[1] };
        let denied = if one.is_allowed() { pairs[1] } else { pairs[0] };
        assert!(check(&values, admitted).is_allowed(), "an admitted value stays known");
        assert!(check(&values, denied).is_denied(), "a denied value is not known");
    });
}
