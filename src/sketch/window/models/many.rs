//! Shuttle models: eight threads use the words of a window; see `sync::sample`.

use super::*;
use crate::base::sync::sample;

const SCHEDULES: usize = 1_000;

/// Eight threads check two keys: X, and a key that shares one counter with X.
fn two_keys(charge: Charge) {
    let counts = Counts::new(3);
    let y = counts.sharing([1, 0]);
    let answers = racing(&counts, charge, [X, y, X, y, X, X, y, X]);
    let of = |keys: &[usize]| keys.iter().map(|&thread| u64::from(answers[thread])).sum::<u64>();
    for (key, admitted) in [(X, of(&[0, 2, 4, 5, 7])), (y, of(&[1, 3, 6]))] {
        assert!(admitted <= 3, "three units, three admissions: {admitted}");
        assert!(counts.read(key).least >= admitted, "a count is never below the charges");
    }
    assert!(admitted(&answers) > 0, "at least one request is admitted");
}

#[test]
fn eight_checks_of_two_keys_admit_limits() {
    sample(SCHEDULES, || two_keys(Counts::charge));
}

#[test]
#[should_panic(expected = "three units, three admissions")]
fn control_eight_raising_all_admit_four() {
    sample(SCHEDULES, || two_keys(all));
}

#[test]
#[should_panic(expected = "three units, three admissions")]
fn control_eight_committing_first_admit_four() {
    sample(SCHEDULES, || two_keys(commit_first));
}

#[test]
fn one_of_eight_inserts_is_first_per_window() {
    for last in [false, true] {
        sample(SCHEDULES, move || assert_one_is_first(last, [NOW; 8]));
        sample(SCHEDULES, move || {
            assert_one_is_first(last, [0, 0, 0, 1, 1, 1, 2, 3].map(|later| NOW + later))
        });
        // The windows are two apart, so they use the same word.
        sample(SCHEDULES, move || {
            assert_one_is_first(last, [0, 0, 0, 2, 2, 2, 4, 4].map(|later| NOW + later))
        });
    }
}

#[test]
#[should_panic(expected = "exactly one insert is the first in a window")]
fn control_eight_without_newest_window_two_first() {
    sample(SCHEDULES, || insert_without_newest_window([0, 0, 0, 2, 2, 2, 2, 2].map(|later| NOW + later)));
}
