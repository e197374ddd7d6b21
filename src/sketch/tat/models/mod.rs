//! Loom models of cells. They explore every interleaving of two or three threads, up to a bound on preemptions.
//! `store::compact::table::models` explains the controls.

use super::*;
use crate::algorithm::compact::ticks::{Interval, UnitRate};
use crate::base::sync::{Arc, admitted, beside, spawn};

#[cfg(tollgate_shuttle)]
mod many;

/// Ticks per unit.
const T: u64 = 10;
const NOW: u64 = 1_000;

fn model(run: impl Fn() + Sync + Send + 'static) {
    crate::base::sync::explore(3, run);
}

struct Shared {
    cells: Cells,
    word: TatWord,
}

impl Shared {
    /// Creates one line of two cells in each half, so that every key uses all four cells.
    fn new(burst: u64) -> Arc<Self> {
        let rate = UnitRate { interval: Interval { num: T, den: 1 }, burst };
        let word = TatWord::with_ticks("model", rate, T, TatVariant::Meter).unwrap();
        Arc::new(Self { cells: Cells::new(1, 1, &word, 0).unwrap(), word })
    }

    fn decide(&self, ahead: u64) -> Verdict {
        self.word.judge(ahead, NOW, 1)
    }

    fn check(&self, hash: u64) -> bool {
        self.cells
            .charge(&self.word, hash, Moment { now_ns: NOW, reference: NOW }, &|| NOW, &|| true, 1)
            .unwrap()
            .is_allowed()
    }

    fn estimate(&self, hash: u64) -> u64 {
        self.cells.estimate(hash, NOW, &|| NOW)
    }
}

fn racing<const N: usize>(shared: &Arc<Shared>, check: fn(&Shared, u64) -> bool, hashes: [u64; N]) -> usize {
    admitted(&beside(shared, hashes.map(|hash| move |shared: &Shared| check(shared, hash))))
}

fn share_one_unit(check: fn(&Shared, u64) -> bool) {
    model(move || {
        let shared = Shared::new(1);
        assert_eq!(racing(&shared, check, [7, 7]), 1, "one unit, one admission");
        assert_eq!(shared.estimate(7), T, "the key owes the charge");
    });
}

// G6
#[test]
fn two_checks_share_one_unit() {
    share_one_unit(Shared::check);
}

#[test]
fn keys_sharing_cells_share_the_burst() {
    model(|| {
        let shared = Shared::new(2);
        // Keys 7 and 8 share all cells, and another key has raised one cell of key 7.
        shared.cells.raise_cell(0, T, NOW, &|| NOW);
        let admitted = racing(&shared, Shared::check, [7, 8]);
        assert!((1..=2).contains(&admitted), "two units for both, {admitted} admitted");
        assert!(shared.estimate(7) >= admitted as u64 * T, "no charge is lost");
    });
}

/// All cells of a key have wrapped. So the end of its group is the smallest of the five values, and the charge
/// exchanges it.
#[test]
fn wrapped_cells_admit_one_of_two() {
    model(|| {
        let shared = Shared::new(1);
        for place in shared.cells.places(7) {
            shared.cells.raise_cell(place, T, NOW, &|| NOW);
        }
        assert_eq!(shared.estimate(7), 0, "no key of the group owes anything");
        assert_eq!(racing(&shared, Shared::check, [7, 7]), 1, "one unit, one admission");
        assert_eq!(shared.estimate(7), T, "the key owes the charge");
    });
}

// G6
#[test]
fn debt_recorded_during_charge_is_kept() {
    model(|| {
        let shared = Shared::new(4);
        let recorder = spawn(&shared, |shared| shared.cells.raise(7, 2 * T, NOW, &|| NOW));
        let admitted = shared.check(7);
        recorder.join().unwrap();
        assert!(admitted, "there is room for one unit");
        assert!(shared.estimate(7) >= 2 * T, "the recorded debt is kept");
    });
}

/// Raises every cell of the key and its end.
fn all(shared: &Shared, hash: u64) -> bool {
    match shared.decide(shared.estimate(hash)) {
        Verdict::Deny | Verdict::Never => false,
        Verdict::Admit(after) => {
            shared.cells.raise(hash, after, NOW, &|| NOW);
            true
        }
    }
}

/// The control raises every cell with an atomic maximum and does not commit.
// G6
#[test]
#[should_panic(expected = "one unit, one admission")]
fn control_raising_all_admits_twice() {
    share_one_unit(all);
}

/// Exchanges the smallest cell, and then raises the others.
fn commit_first(shared: &Shared, hash: u64) -> bool {
    let cells = &shared.cells;
    let places = cells.places(hash);
    loop {
        let seen = places.map(|place| cells.cells[place].load(Acquire));
        let aheads = seen.map(|cell| cells.ahead(cell, NOW, &|| NOW));
        let row = (0..DEPTH).min_by_key(|&row| aheads[row]).unwrap();
        let Verdict::Admit(after) = shared.decide(aheads[row]) else {
            return false;
        };
        let next = cells.cell(after, NOW);
        if cells.cells[places[row]].compare_exchange(seen[row], next, AcqRel, Relaxed).is_ok() {
            cells.raise(hash, after, NOW, &|| NOW);
            return true;
        }
    }
}

/// The control exchanges the smallest cell first and then raises the others.
// G6
#[test]
#[should_panic(expected = "one unit, one admission")]
fn control_committing_first_admits_twice() {
    // The two threads may choose different cells.
    share_one_unit(commit_first);
}
