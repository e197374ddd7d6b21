//! Shuttle models: six threads check while two threads change the quota; see `sync::sample`.

use super::*;
use crate::base::sync::sample;

const SCHEDULES: usize = 1_000;

/// There is one unit under every quota. Counts the admitted checks, and one more check at the end.
fn eight(check: fn(&Shared) -> bool) {
    let store = Arc::new(Shared::new(Direct::new(Gcra::new(of_one()))));
    let threads: [_; 8] = std::array::from_fn(|number| {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            if number < 2 {
                change(&store, of_one(), Carry::AsIs);
                0
            } else {
                u32::from(check(&store))
            }
        })
    });
    let admitted: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let admitted = admitted + u32::from(check(&store));
    // No check is admitted if each one is denied because of the charge that it made before the quota changed.
    assert!(admitted <= 1, "one unit is admitted, under whichever quota: {admitted}");
}

#[test]
fn six_checks_during_two_changes_share_one_unit() {
    sample(SCHEDULES, || eight(|store| super::check(store, 1)));
}

#[test]
#[should_panic(expected = "one unit is admitted")]
fn control_six_without_second_look_admit_two() {
    sample(SCHEDULES, || eight(check_carelessly));
}
