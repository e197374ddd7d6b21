//! Loom models of counters. They explore every interleaving of two or three threads, up to a bound on preemptions.
//! `store::compact::table::models` explains the controls.

use super::*;
use crate::base::sync::Ordering::Release;
use crate::base::sync::{Arc, AtomicU16, beside, spawn};

#[cfg(tollgate_shuttle)]
mod many;

const DEPTH: usize = 2;
const KEY: u64 = 7;

fn model(run: impl Fn() + Sync + Send + 'static) {
    crate::base::sync::explore(3, run);
}

type Counts = CountMin<()>;

fn counts(width: usize) -> Arc<Counts> {
    Arc::new(CountMin::try_new(width, DEPTH).unwrap().with_hasher(()))
}

/// Counts 1 for each of these keys, each in a separate thread, and returns the new estimates.
fn racing<const N: usize>(counts: &Arc<Counts>, add: fn(&Counts, u64) -> u64, keys: [u64; N]) -> [u64; N] {
    beside(counts, keys.map(|key| move |counts: &Counts| add(counts, key)))
}

fn add(counts: &Counts, key: u64) -> u64 {
    counts.add_hash(key, 1)
}

/// Returns a key that shares the counter of [`KEY`] in this row and in no other row.
fn neighbour(counts: &Counts, shared: usize) -> u64 {
    let own = counts.places::<DEPTH>(KEY);
    let meets = |key: &u64| {
        let other = counts.places::<DEPTH>(*key);
        (0..DEPTH).all(|row| (own[row] == other[row]) == (row == shared))
    };
    (KEY + 1..).find(meets).unwrap()
}

fn no_count_is_lost(told: [u64; 2], estimate: u64) {
    let [one, other] = told;
    assert!(one != other && one.max(other) >= 2, "the later add includes the earlier one: {told:?}");
    assert!(estimate >= one.max(other), "no count is lost: {told:?}, {estimate}");
}

fn add_twice(add: fn(&Counts, u64) -> u64) {
    model(move || {
        let counts = counts(1);
        let told = racing(&counts, add, [KEY, KEY]);
        no_count_is_lost(told, counts.estimate_hash(KEY));
        assert_eq!(counts.estimate_hash(KEY), 2, "the estimate is exact, because no other key counts there");
    });
}

// G59
#[test]
fn racing_adds_of_a_key_add_up() {
    add_twice(add);
}

#[test]
fn adds_committing_in_different_rows_add_up() {
    model(|| {
        let counts = counts(2);
        // Another key has raised one of the key's counters, so two adds may commit in different counters.
        counts.add_hash(neighbour(&counts, 0), 1);
        let told = racing(&counts, add, [KEY, KEY]);
        no_count_is_lost(told, counts.estimate_hash(KEY));
    });
}

// G59
#[test]
fn racing_adds_of_different_sizes_add_up() {
    model(|| {
        let counts = counts(1);
        let three = spawn(&counts, |counts| counts.add_hash(KEY, 3));
        let (one, three) = (counts.add_hash(KEY, 1), three.join().unwrap());
        assert!(one.max(three) >= 4, "the later add includes the earlier one: {one}, {three}");
        assert!(counts.estimate_hash(KEY) >= 4, "no count is lost");
    });
}

fn neighbour_racing_in_row(row: usize) {
    model(move || {
        let counts = counts(2);
        let neighbour = neighbour(&counts, row);
        let [one, other, next_door] = racing(&counts, add, [KEY, KEY, neighbour]);
        no_count_is_lost([one, other], counts.estimate_hash(KEY));
        assert!(next_door >= 1 && counts.estimate_hash(neighbour) >= 1, "no count of the neighbour is lost");
    });
}

#[test]
fn neighbour_in_first_row_loses_no_count() {
    neighbour_racing_in_row(0);
}

#[test]
fn neighbour_in_second_row_loses_no_count() {
    neighbour_racing_in_row(1);
}

#[test]
fn estimate_includes_earlier_adds() {
    model(|| {
        let counts = counts(1);
        let counted = Arc::new(AtomicU16::new(0));
        let counter = spawn(&counts, {
            let counted = counted.clone();
            move |counts| {
                counts.add_hash(KEY, 1);
                counted.store(1, Release);
                counts.add_hash(KEY, 1);
            }
        });
        let before = counted.load(Acquire);
        assert!(
            counts.estimate_hash(KEY) >= before.into(),
            "an estimate includes the adds that returned before it began"
        );
        counter.join().unwrap();
    });
}

#[test]
fn add_after_clear_is_counted() {
    model(|| {
        let counts = counts(1);
        counts.add_hash(KEY, 1);
        let racing = spawn(&counts, |counts| add(counts, KEY));
        counts.clear();
        counts.add_hash(KEY, 1);
        assert!(counts.add_hash(KEY, 1) >= 2, "an add that begins after a clear is counted in full");
        racing.join().unwrap();
        assert!(counts.estimate_hash(KEY) >= 2, "the racing add does not remove it");
    });
}

/// Raises every counter of the key to the new estimate.
fn raise_all(counts: &Counts, key: u64) -> u64 {
    let next = counts.estimate_rows::<DEPTH>(key) + 1;
    for place in counts.places::<DEPTH>(key) {
        counts.counters[place].fetch_max(next, AcqRel);
    }
    next.into()
}

/// The control raises every counter with an atomic maximum and does not commit.
// G59
#[test]
#[should_panic(expected = "the later add includes the earlier one")]
fn control_raising_all_loses_a_count() {
    add_twice(raise_all);
}

/// Exchanges the smallest counter, and then raises the others.
fn commit_first(counts: &Counts, key: u64) -> u64 {
    let places = counts.places::<DEPTH>(key);
    loop {
        let seen = counts.read(places);
        let count = least(&seen);
        let row = rows_where(&seen, |other| other == count).trailing_zeros() as usize;
        let counter = &counts.counters[places[row]];
        if counter.compare_exchange(count, count + 1, AcqRel, Acquire).is_ok() {
            for place in places {
                counts.raise(place, 0, count + 1);
            }
            return u64::from(count) + 1;
        }
    }
}

/// The control exchanges the smallest counter first and then raises the others.
// G59
#[test]
#[should_panic(expected = "the later add includes the earlier one")]
fn control_committing_first_loses_a_count() {
    add_twice(commit_first);
}
