//! Shuttle models: eight threads use one key of a sketch while its windows change; see `sync::sample`.

use super::*;
use crate::base::sync::sample;

const SCHEDULES: usize = 1_000;
/// Four times on each side of a turn.
const TURN: [u64; 8] = [NOW - 1, NOW, NOW - 1, NOW, NOW - 1, NOW, NOW - 1, NOW];

#[test]
fn eight_sketch_checks_admit_limit() {
    sample(SCHEDULES, || {
        let sketch = fixed(3);
        let answers = beside(&sketch, [(check, NOW, 1); 8]);
        assert!((1..=3).contains(&admitted(&answers)), "three units, {} admitted", admitted(&answers));
        assert!(!check(&sketch, NOW, 4 - admitted(&answers) as u64), "the charge is remembered");
    });
}

/// Four threads on each side of a turn.
#[test]
fn eight_checks_at_boundary_admit_limit_per_window() {
    for check in [check, check_at] as [Check<FixedWindow>; 2] {
        sample(SCHEDULES, move || {
            let sketch = fixed(2);
            let answers = beside(&sketch, TURN.map(|now| (check, now, 1)));
            let new = admitted(&[answers[1], answers[3], answers[5], answers[7]]);
            assert!(new <= 2, "two units, two admissions in the new window");
            // A late check is counted in the new window.
            assert!(admitted(&answers) <= 4, "two windows of two units");
            assert!(!check(&sketch, NOW, 3 - new as u64), "a charge in the new window is remembered");
        });
    }
}

/// At the start of a window, the whole last window counts.
#[test]
fn eight_checks_at_sliding_boundary_share_limit() {
    sample(SCHEDULES, || {
        let sketch = sliding(2);
        let answers = beside(&sketch, TURN.map(|now| (check as Check<SlidingWindow>, now, 1)));
        let admitted = admitted(&answers);
        assert!(admitted <= 2, "there is room for two of them: {admitted}");
        assert!(!check(&sketch, NOW, 3 - admitted as u64), "charges on either side are remembered");
    });
}

#[test]
#[should_panic(expected = "there is room for two of them")]
fn control_eight_without_second_look_miss_charge() {
    sample(SCHEDULES, || {
        let sketch = sliding(2);
        let answers =
            beside(&sketch, TURN.map(|now| (charge_without_second_look as Check<SlidingWindow>, now, 1)));
        assert!(admitted(&answers) <= 2, "there is room for two of them");
    });
}
