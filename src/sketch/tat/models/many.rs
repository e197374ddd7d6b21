//! Shuttle models: eight threads use a few cells; see `sync::sample`.

use super::*;
use crate::base::sync::{eight, sample};

const SCHEDULES: usize = 1_500;

/// The hashes of four keys.
const KEYS: [u64; 4] =
    [0x1111_2222_3333_4444, 0x9111_2222_3333_4441, 0x5555_6666_7777_8888, 0xD555_0000_7777_8883];

/// Creates two lines of two cells in each half, so that only some keys share cells.
fn wide(burst: u64) -> Arc<Shared> {
    let word = Shared::new(burst).word;
    let cells = Cells::new(2 * Cells::MIN_BYTES, 2, &word, 0).unwrap();
    Arc::new(Shared { cells, word })
}

/// Four threads charge one unit to each of four keys, which have two units each.
fn four_keys(check: fn(&Shared, u64) -> bool) {
    let shared = wide(2);
    let answers = eight(&shared, move |shared, number| {
        [number % 4, (number + 1) % 4].map(|key| (key, check(shared, KEYS[key])))
    });
    let mut admitted = [0; 4];
    for (key, allowed) in answers.into_iter().flatten() {
        admitted[key] += u64::from(allowed);
    }
    for (hash, admitted) in KEYS.into_iter().zip(admitted) {
        assert!(admitted <= 2, "two units, two admissions: {admitted}");
        assert!(shared.estimate(hash) >= admitted * T, "an estimate is never below the charged units");
    }
    assert!(admitted.iter().any(|&admitted| admitted > 0), "at least one request is admitted");
}

#[test]
fn eight_threads_keep_four_keys_within_bursts() {
    sample(SCHEDULES, || four_keys(Shared::check));
}

#[test]
fn eight_checks_of_a_key_admit_its_burst() {
    sample(SCHEDULES, || {
        let shared = Shared::new(3);
        let admitted = racing(&shared, Shared::check, [7; 8]);
        assert!((1..=3).contains(&admitted), "three units, {admitted} admitted");
        assert_eq!(
            shared.estimate(7),
            3 * T,
            "all three units are charged; a denied check may have raised a value first"
        );
    });
}

/// Four threads record debts, and four threads charge. The largest debt stays.
#[test]
fn largest_of_eight_debts_stays() {
    sample(SCHEDULES, || {
        let shared = Shared::new(8);
        let answers = eight(&shared, |shared, number| {
            if number % 2 == 1 {
                return shared.check(7);
            }
            shared.cells.raise(7, number as u64 * T / 2, NOW, &|| NOW);
            false
        });
        let admitted = admitted(&answers) as u64;
        let estimate = shared.estimate(7);
        assert!(estimate >= (3 * T).max(admitted * T), "no debt and no charge is lost: {estimate}");
    });
}

#[test]
#[should_panic(expected = "two units, two admissions")]
fn control_eight_raising_all_admit_three() {
    sample(SCHEDULES, || four_keys(all));
}

#[test]
#[should_panic(expected = "two units, two admissions")]
fn control_eight_committing_first_admit_three() {
    sample(SCHEDULES, || four_keys(commit_first));
}
