//! Shuttle models: six threads check while two threads change the quota; see `sync::sample`.

use super::*;
use crate::base::sync::{eight, sample};

const SCHEDULES: usize = 1_000;

/// There is one unit under every quota. Counts the admitted checks, and one more check at the end.
fn six_checks(check: fn(&Shared) -> bool) {
    let store = store_of(1);
    let answers = eight(&store, move |store, number| {
        if number < 2 {
            change(store, of_one(), Carry::AsIs);
            return 0;
        }
        u32::from(check(store))
    });
    let admitted: u32 = answers.into_iter().sum();
    let admitted = admitted + u32::from(check(&store));
    // No check is admitted if each one is denied because of the charge that it made before the quota changed.
    assert!(admitted <= 1, "one unit is admitted, under whichever quota: {admitted}");
}

#[test]
fn six_checks_during_two_changes_share_one_unit() {
    sample(SCHEDULES, || six_checks(|store| super::check(store, 1)));
}

#[test]
#[should_panic(expected = "one unit is admitted")]
fn control_six_without_second_look_admit_two() {
    sample(SCHEDULES, || six_checks(check_carelessly));
}
