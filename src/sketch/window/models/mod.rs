//! Loom models of the words of windows. They explore every interleaving of two or three threads, up to a bound on
//! preemptions. `store::compact::table::models` explains the controls.

use super::counters::Read;
use super::*;
use crate::base::sync::{Arc, admitted, beside, explore, explore_heavy};
use crate::sketch::hash::mix;

#[cfg(tollgate_shuttle)]
mod many;

const NOW: u64 = 1_000;

fn model(run: impl Fn() + Sync + Send + 'static) {
    explore(3, run);
}

/// Like [`model`], with fewer preemptions, because three long threads have too many interleavings.
fn model_of_three(run: impl Fn() + Sync + Send + 'static) {
    explore_heavy(2, run);
}

fn windows() -> Windows {
    Windows::new(1, 16, u64::MAX)
}

/// One line of counters in each half: a key has one word in each, and two counters in each word.
struct Counts {
    windows: Windows,
    counters: WindowCounters,
    limit: u64,
}

/// A key's two words, as they were read.
type Two<'a> = Read<'a, 2, 2>;

/// Charges a key, from the words that the check has read.
type Charge = fn(&Counts, u64, &Two<'_>) -> Commit;

impl Counts {
    fn new(limit: u64) -> Arc<Self> {
        let windows = windows();
        let counters = WindowCounters::new(0, limit, false, &windows).unwrap();
        Arc::new(Self { windows, counters, limit })
    }

    fn rows(&self, hash: u64) -> Rows<2, 2> {
        self.counters.rows(&self.counters.lines(hash))
    }

    fn read(&self, hash: u64) -> Two<'_> {
        self.counters.read(&self.windows, &self.rows(hash), NOW).unwrap()
    }

    /// Checks one unit of a key.
    fn check(&self, hash: u64, charge: Charge) -> bool {
        loop {
            let read = self.read(hash);
            if read.least >= self.limit {
                return false;
            }
            if charge(self, hash, &read) == Commit::Done {
                return true;
            }
        }
    }

    fn charge(&self, _hash: u64, read: &Two<'_>) -> Commit {
        self.counters.charge(&self.windows, read, (NOW, read.least + 1))
    }

    /// Returns the first key that shares these numbers of counters with X in its two words.
    fn sharing(&self, shared: [usize; 2]) -> u64 {
        let of_x: Vec<_> = self.rows(X).words().collect();
        let common = |(word, shifts): &(usize, [u32; 2])| {
            of_x.iter().filter(|of_x| of_x.0 == *word).map(|of_x| both(of_x.1, *shifts)).sum::<usize>()
        };
        (0..).map(mix).find(|&hash| self.rows(hash).words().map(|word| common(&word)).eq(shared)).unwrap()
    }
}

fn both(one: [u32; 2], other: [u32; 2]) -> usize {
    one.iter().filter(|shift| other.contains(shift)).count()
}

const X: u64 = mix(7);

/// Runs checks in parallel and returns which of them were admitted.
fn racing<const N: usize>(counts: &Arc<Counts>, charge: Charge, keys: [u64; N]) -> [bool; N] {
    beside(counts, keys.map(|hash| move |counts: &Counts| counts.check(hash, charge)))
}

/// Two checks of a key that has one or two units.
fn share_units(units: u64, charge: Charge) {
    model(move || {
        let counts = Counts::new(units);
        let admitted = admitted(&racing(&counts, charge, [X, X])) as u64;
        assert_eq!(admitted, units, "one unit, one admission");
        assert_eq!(counts.read(X).least, units, "every charge is counted");
    });
}

// G10
#[test]
fn two_checks_share_one_unit() {
    share_units(1, Counts::charge);
}

// G16
#[test]
fn two_checks_of_two_units_are_admitted() {
    share_units(2, Counts::charge);
}

/// The other key exchanges X's words and does not change X's estimate.
#[test]
fn key_sharing_one_counter_costs_no_unit() {
    model_of_three(|| {
        let counts = Counts::new(1);
        let y = counts.sharing([1, 0]);
        let [one, two, other] = racing(&counts, Counts::charge, [X, X, y]);
        assert_eq!(admitted(&[one, two]), 1, "one unit, one admission");
        assert!(other, "the other key has one unit of its own");
        assert_eq!((counts.read(X).least, counts.read(y).least), (1, 1), "both charges are counted");
    });
}

/// X's checks may find different smallest words.
#[test]
fn key_sharing_a_word_admits_no_extra_unit() {
    model_of_three(|| {
        let counts = Counts::new(1);
        let y = counts.sharing([2, 0]);
        let [one, two, other] = racing(&counts, Counts::charge, [X, X, y]);
        assert!(admitted(&[one, two]) <= 1, "one unit, one admission");
        // A check may be denied because of words that a failed charge of the other key has raised.
        assert!(other || admitted(&[one, two]) == 1, "at least one request is admitted");
        assert_eq!(counts.read(X).least, 1, "charges and raised counts stay");
    });
}

/// Raises every word of the key.
fn all(counts: &Counts, hash: u64, read: &Two<'_>) -> Commit {
    let at = (NOW, read.least + 1);
    counts.counters.raise(&counts.windows, &counts.rows(hash), at).unwrap();
    Commit::Done
}

/// The control raises every word with an atomic maximum and does not commit.
// G10
#[test]
#[should_panic(expected = "one unit, one admission")]
fn control_raising_all_admits_twice() {
    share_units(1, all);
}

/// Exchanges the smallest word, and then raises the other word.
fn commit_first(counts: &Counts, hash: u64, read: &Two<'_>) -> Commit {
    if counts.counters.exchange(read, read.least_row(), read.least + 1) {
        all(counts, hash, read)
    } else {
        Commit::Lost
    }
}

/// The control exchanges the smallest word first. Then it raises the other word, whatever its value is.
// G10
#[test]
#[should_panic(expected = "one unit, one admission")]
fn control_committing_first_admits_twice() {
    share_units(1, commit_first);
}

/// A doorkeeper of two words.
struct Doors {
    windows: Windows,
    seen: WindowedBloom,
}

impl Doors {
    fn new(last: bool) -> Arc<Self> {
        let seen = WindowedBloom::new(0, last).unwrap();
        Arc::new(Self { windows: windows(), seen })
    }

    /// Inserts X in this window, or in a later one if other threads are there. Returns the window and the answer.
    fn insert(&self, mut window: u64) -> (u64, Insert) {
        let probe = self.seen.probe(&self.windows, X);
        loop {
            let found = self.seen.find(&self.windows, &probe, window);
            match found.and_then(|known| known.insert(&self.windows, window)) {
                Ok(told) => return (window, told),
                Err(late) => window = late.window,
            }
        }
    }
}

/// Threads insert X in these windows. In each window, exactly one thread gets the answer that it was first.
fn assert_one_is_first<const N: usize>(last: bool, windows: [u64; N]) {
    let doors = Doors::new(last);
    let told = beside(&doors, windows.map(|window| move |doors: &Doors| doors.insert(window)));
    for window in told.map(|(window, _)| window) {
        let firsts = told.iter().filter(|&&told| told == (window, Insert::First));
        assert_eq!(firsts.count(), 1, "exactly one insert is the first in a window: {told:?}");
    }
    let newest = windows.into_iter().max().unwrap();
    let probe = doors.seen.probe(&doors.windows, X);
    let is_in = doors.seen.find(&doors.windows, &probe, newest).map(|known| known.is_in());
    assert_eq!(is_in, Ok(true), "X is in");
}

#[test]
fn one_of_racing_inserts_is_first() {
    model(|| assert_one_is_first(false, [NOW, NOW]));
    model(|| assert_one_is_first(true, [NOW, NOW, NOW]));
}

#[test]
fn one_insert_is_first_in_each_window() {
    for last in [false, true] {
        model_of_three(move || assert_one_is_first(last, [NOW, NOW, NOW + 1]));
        // The same word for both windows, in the variant with separate words for even and odd windows.
        model_of_three(move || assert_one_is_first(last, [NOW, NOW, NOW + 2]));
    }
}

/// Threads insert X in these windows. Each thread has its own newest window, which the others do not raise.
fn insert_without_newest_window<const N: usize>(windows: [u64; N]) {
    fn insert(doors: &Doors, window: u64) -> (u64, Insert) {
        let windows = super::models::windows();
        let probe = doors.seen.probe(&windows, X);
        (window, doors.seen.find(&windows, &probe, window).unwrap().insert(&windows, window).unwrap())
    }
    let doors = Doors::new(false);
    let told = beside(&doors, windows.map(|window| move |doors: &Doors| insert(doors, window)));
    let firsts = told.iter().filter(|&&told| told == (NOW + 2, Insert::First));
    assert_eq!(firsts.count(), 1, "exactly one insert is the first in a window: {told:?}");
}

#[test]
#[should_panic(expected = "exactly one insert is the first in a window")]
fn control_without_newest_window_two_first() {
    model(|| insert_without_newest_window([NOW, NOW + 2, NOW + 2]));
}
