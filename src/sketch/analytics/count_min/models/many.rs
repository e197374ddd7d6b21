//! Shuttle models: eight threads use a few counters; see `sync::sample`.

use super::*;
use crate::base::sync::sample;

const SCHEDULES: usize = 1_000;

/// Five threads add to one key, and three threads add to keys that share its counter in one row.
fn eight(add: fn(&Counts, u64) -> u64) {
    let counts = counts(2);
    let (one, other) = (neighbour(&counts, 0), neighbour(&counts, 1));
    let told = racing(&counts, add, [KEY, one, KEY, other, KEY, one, KEY, KEY]);
    let mut own = [told[0], told[2], told[4], told[6], told[7]];
    own.sort_unstable();
    assert!(own.is_sorted_by(|a, b| a < b), "each add includes the adds before it: {told:?}");
    assert!(own[4] >= 5 && counts.estimate_hash(KEY) >= own[4], "no count is lost: {told:?}");
    for (key, times) in [(one, 2), (other, 1)] {
        assert!(counts.estimate_hash(key) >= times, "an estimate is never below the count");
    }
}

#[test]
fn eight_adds_of_three_keys_add_up() {
    sample(SCHEDULES, || eight(add));
}

#[test]
#[should_panic(expected = "each add includes the adds before it")]
fn control_eight_raising_all_lose_counts() {
    sample(SCHEDULES, || eight(raise_all));
}

#[test]
#[should_panic(expected = "each add includes the adds before it")]
fn control_eight_committing_first_lose_counts() {
    sample(SCHEDULES, || eight(commit_first));
}
