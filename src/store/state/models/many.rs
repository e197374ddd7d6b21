//! Shuttle models: eight threads use the state of one key; see `sync::sample`.

use super::*;
use crate::base::sync::{admitted, beside, sample};

const SCHEDULES: usize = 800;

/// Eight charges of one unit, each at its own time. Returns how many were admitted.
fn eight<A: Algorithm>(
    shared: &Arc<Shared<A>>,
    times: [u64; 8],
    charge: fn(&Shared<A>, u64) -> bool,
) -> usize {
    admitted(&beside(shared, times.map(|now_ns| move |shared: &Shared<A>| charge(shared, now_ns))))
}

fn check<A: Algorithm>(shared: &Shared<A>, now_ns: u64) -> bool {
    shared.check_at(now_ns, 1)
}

#[test]
fn eight_racing_checks_admit_burst() {
    sample(SCHEDULES, || {
        let shared = Shared::new(Gcra::new(quota(1, 10).burst(3)), 100);
        assert_eq!(eight(&shared, [100; 8], check), 3, "three units, three admissions");
        assert_eq!(shared.head(), 130, "every admission moved the TAT by T, and nothing else did");
    });
}

/// Charges at times around a boundary. They are so close to it that two weighted counts are also exact. At most the
/// limit is admitted.
fn check_eight_around_boundary<A: Algorithm>(algorithm: A) {
    let shared = Shared::new(algorithm, 0);
    assert!(shared.check_at(50, 1));
    let admitted = 1 + eight(&shared, [80, 90, 90, 100, 100, 100, 110, 110], check);
    assert!(admitted <= 3, "three units in any period, and no count is lost: {admitted}");
}

#[test]
fn eight_around_boundary_admit_limit() {
    sample(SCHEDULES, || check_eight_around_boundary(SlidingWindow::new(quota(3, 100)).strict()));
    sample(SCHEDULES, || check_eight_around_boundary(SubWindow::new(quota(3, 100), 2).strict()));
    sample(SCHEDULES, || check_eight_around_boundary(SlidingLog::new(quota(3, 100))));
}

fn laps(charge: fn(&Shared<FixedWindow>, u64) -> bool) {
    let shared = Shared::new(FixedWindow::from_first_use(quota(1, 10)), 0);
    assert!(shared.check_at(100, 1));
    let admitted = eight(&shared, [110, 111, 112, 113, 114, 115, 116, 117], charge);
    assert!(admitted <= 1, "one window of one unit admits one: {admitted}");
}

#[test]
fn eight_checks_share_next_lap_unit() {
    sample(SCHEDULES, || laps(check));
}

#[test]
#[should_panic(expected = "one window of one unit admits one")]
fn control_eight_anchoring_late_admit_two() {
    sample(SCHEDULES, || laps(commit_first));
}

#[test]
fn one_of_eight_kills_or_charges_idle_state() {
    sample(SCHEDULES, || {
        let shared = Shared::new(Gcra::new(quota(1, 10)), 0);
        assert!(shared.check_at(100, 1));
        let done = eight(&shared, [0, 1, 2, 3, 4, 5, 6, 7], |shared, number| {
            if number % 2 == 0 {
                shared.state.kill_if_idle(&shared.algorithm, 110) == Kill::Done
            } else {
                shared.state.charge(&shared.algorithm, 110, 1).is_ok_and(|decision| decision.is_allowed())
            }
        });
        assert_eq!(done, 1, "an idle state is reclaimed or charged, never both");
    });
}

#[test]
fn eight_charges_and_refunds_add_up() {
    sample(SCHEDULES, || {
        let shared = Shared::new(Gcra::new(quota(1, 10).burst(4)), 100);
        let kept = eight(&shared, [0, 1, 2, 3, 4, 5, 6, 7], |shared, number| {
            let charge = shared.charge_at(100, 1);
            charge.is_allowed() && !(number % 2 == 0 && shared.refund_at(100, &charge) == 1)
        });
        assert!(kept <= 4, "four units, at most four charges that were not refunded");
        assert_eq!(shared.head(), 100 + 10 * kept as u64, "units that were not refunded are owed");
    });
}
