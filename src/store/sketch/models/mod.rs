//! Loom models of the decisions of a sketch: every interleaving of two or three threads, up to a bound on preemptions.
//! See `store::compact::table::models` for the meaning of a control.
//!
//! The sketch is as small as possible: two lines of counters and a doorkeeper of the same size. Each window is one
//! second.

use super::*;
use crate::algorithm::SlidingWindow;
use crate::algorithm::compact::SlidingWord;
use crate::base::clock::models::{Running, Still};
use crate::base::quota::Quota;
use crate::base::sync::{Arc, admitted, both, explore, explore_heavy, spawn};

#[cfg(tollgate_shuttle)]
mod many;

const SEC: u64 = 1_000_000_000;
/// The start of a window with an even index.
const NOW: u64 = 1_000 * SEC;
const X: u64 = 0x1234_5678_9ABC_DEF0;

fn model(run: impl Fn() + Sync + Send + 'static) {
    explore(3, run);
}

/// Like [`model`], with fewer preemptions: three threads with many steps have too many interleavings.
fn model_of_three(run: impl Fn() + Sync + Send + 'static) {
    explore_heavy(2, run);
}

fn fixed(limit: u64) -> Arc<Sketch> {
    smallest(FixedWindow::new(Quota::per_second(limit)))
}

fn sliding(limit: u64) -> Arc<Sketch<SlidingWindow>> {
    smallest(SlidingWindow::new(Quota::per_second(limit)))
}

fn smallest<A: WindowAlgorithm>(algorithm: A) -> Arc<Sketch<A>> {
    let plan = SketchPlan::new(algorithm, Capacity::memory(2 * WindowCounters::MIN_BYTES)).unwrap();
    Arc::new(Sketch::new(plan, ahash::RandomState::with_seeds(1, 2, 3, 4)).unwrap())
}

/// Checks X.
fn check_x<A: WindowAlgorithm>(sketch: &Sketch<A>, when: CheckTime, cost: u64) -> bool {
    Store::<u64>::apply(sketch, sketch.prepare_hash(X), Operation::Check, when, cost).is_allowed()
}

/// Checks X by a clock that always shows the same time.
fn check<A: WindowAlgorithm>(sketch: &Sketch<A>, now: u64, cost: u64) -> bool {
    check_x(sketch, CheckTime::read(&Still(now)), cost)
}

/// Checks X at a given time.
fn check_at<A: WindowAlgorithm>(sketch: &Sketch<A>, now: u64, cost: u64) -> bool {
    check_x(sketch, CheckTime::from_ns(now), cost)
}

type Check<A> = fn(&Sketch<A>, u64, u64) -> bool;

/// Runs checks in parallel, each with its time and cost. Returns which were admitted.
fn beside<A: WindowAlgorithm, const N: usize>(
    sketch: &Arc<Sketch<A>>,
    checks: [(Check<A>, u64, u64); N],
) -> [bool; N] {
    let checks = checks.map(|(check, now, cost)| move |sketch: &Sketch<A>| check(sketch, now, cost));
    crate::base::sync::beside(sketch, checks)
}

// G17
#[test]
fn one_of_two_large_first_checks_is_admitted() {
    model(|| {
        let sketch = fixed(3);
        let answers = beside(&sketch, [(check, NOW, 2), (check, NOW, 2)]);
        assert_eq!(admitted(&answers), 1, "2 + 2 units exceed 3");
        assert!(!check(&sketch, NOW, 2), "the charge is remembered");
    });
}

// G17
#[test]
fn racing_first_checks_of_different_costs() {
    model(|| {
        let sketch = fixed(2);
        let answers = beside(&sketch, [(check, NOW, 1), (check, NOW, 2)]);
        assert_eq!(admitted(&answers), 1, "1 + 2 units exceed 2");
        let left = u64::from(answers[0]);
        assert!(!check(&sketch, NOW, left + 1), "the charge is remembered");
    });
    model(|| {
        let sketch = fixed(3);
        let answers = beside(&sketch, [(check, NOW, 1), (check, NOW, 2)]);
        // The check of two units may raise the counters and then lose the race for the doorkeeper. Its own raise may
        // then cause its denial.
        assert!(answers[0], "there is room for the check of one unit");
        assert!(!check(&sketch, NOW, if answers[1] { 1 } else { 3 }), "the charge is remembered");
    });
}

/// The first check inserts the key into the doorkeeper. The other checks use the counters.
// G10
#[test]
fn three_checks_share_two_units() {
    model_of_three(|| {
        let sketch = fixed(2);
        let answers = beside(&sketch, [(check, NOW, 1), (check, NOW, 1), (check, NOW, 1)]);
        assert_eq!(admitted(&answers), 2, "two units, two admissions");
        assert!(!check(&sketch, NOW, 1), "the charge is remembered");
    });
}

#[test]
fn last_unit_of_known_key_is_admitted_once() {
    model(|| {
        let sketch = fixed(2);
        assert!(check(&sketch, NOW, 1));
        let answers = beside(&sketch, [(check, NOW, 1), (check, NOW, 1)]);
        assert_eq!(admitted(&answers), 1, "one unit, one admission");
    });
}

/// Checks on both sides of a turn, each with all units of a window. Counts of the new window are not lost, and counts
/// of the old window do not affect them.
fn check_around_boundary(check: Check<FixedWindow>, cost: u64, apart: u64) {
    let sketch = fixed(cost);
    let next = NOW + apart * SEC;
    let answers = beside(&sketch, [(check, next - 1, cost), (check, next, cost)]);
    // A late check is counted in the new window, and may be the only one there.
    assert!(answers[1] || answers[0], "at least one check is admitted in the new window");
    assert!(!check(&sketch, next, 1), "a charge in the new window is remembered");
    assert!(check(&sketch, next + SEC, cost), "no charge counts in the window after it");
}

// G10
#[test]
fn each_window_admits_limit_at_boundary() {
    for check in [check, check_at] as [Check<FixedWindow>; 2] {
        for cost in [1, 2] {
            model(move || check_around_boundary(check, cost, 1));
        }
    }
}

#[test]
fn three_checks_at_window_boundary() {
    model_of_three(|| {
        let sketch = fixed(1);
        let answers = beside(&sketch, [(check, NOW - 1, 1), (check, NOW, 1), (check, NOW, 1)]);
        assert!((1..=2).contains(&admitted(&answers)), "one unit per window, two windows");
        assert!(admitted(&answers[1..]) <= 1, "one unit, one admission");
        assert!(!check(&sketch, NOW, 1), "a charge in the new window is remembered");
    });
}

/// The doorkeeper knows X in the old window. One check is in the old window, and one check is in the new window.
#[test]
fn known_key_is_new_in_next_window() {
    model(|| {
        let sketch = fixed(2);
        assert!(check(&sketch, NOW - 1, 1));
        let answers = beside(&sketch, [(check, NOW - 1, 1), (check, NOW, 1)]);
        // Each check is decided in one of the windows, and there is room in both.
        assert_eq!(admitted(&answers), 2, "nothing of the old window is carried over");
        assert!(!check(&sketch, NOW, 2), "a charge in the new window is remembered");
    });
}

type Late<A> = fn(&Sketch<A>, &Running) -> bool;

/// A thread reads its clock and then stops for whole windows. `late` makes the check after the clock shows the later
/// time.
fn held_up<A: WindowAlgorithm>(sketch: Arc<Sketch<A>>, windows: u64, late: Late<A>) {
    let clock = Arc::new(Running::new(NOW));
    let then = NOW + windows * SEC;
    let other = clock.clone();
    let on_time = move |sketch: &Sketch<A>| {
        clock.set(then);
        check(sketch, then, 1)
    };
    let (on_time, late) = both(&sketch, on_time, move |sketch| late(sketch, &other));
    assert!(on_time || late, "at least one check is admitted in the later window");
    assert!(!check(&sketch, then, 1), "a charge in the later window is remembered");
}

/// Checks by the clock.
fn by_clock<A: WindowAlgorithm>(sketch: &Sketch<A>, clock: &Running) -> bool {
    check_x(sketch, CheckTime::read(clock), 1)
}

/// Checks at a time that was read earlier.
fn by_given<A: WindowAlgorithm>(sketch: &Sketch<A>, _clock: &Running) -> bool {
    check_at(sketch, NOW, 1)
}

/// Checks in a batch, which reads its time once.
fn by_batch<A: WindowAlgorithm>(sketch: &Sketch<A>, clock: &Running) -> bool {
    let mut allowed = false;
    let requests = [(sketch.prepare_hash(X), 1)].into_iter();
    Store::<u64>::check_each(sketch, requests, CheckTime::read(clock), |decision| {
        allowed = decision.is_allowed();
    });
    allowed
}

// G12
#[test]
fn preempted_check_counts_in_later_window() {
    for windows in [1, 2, 3, 1 << 20] {
        for late in [by_clock, by_given, by_batch] {
            model(move || held_up(fixed(1), windows, late));
        }
    }
}

#[test]
fn preempted_sliding_check_counts_in_later_window() {
    for windows in [2, 3] {
        for late in [by_clock, by_given, by_batch] {
            model(move || held_up(sliding(1), windows, late));
        }
    }
}

/// The control: the newest window is lowered after a word was written for it.
// G12
#[test]
#[should_panic(expected = "in the later window is remembered")]
fn control_lowered_newest_window_hides_later_counts() {
    model(|| {
        let (sketch, then) = (fixed(1), NOW + 2 * SEC);
        let on_time = spawn(&sketch, move |sketch| {
            let on_time = check(sketch, then, 1);
            sketch.tables.windows.clear();
            on_time
        });
        let late = check(&sketch, NOW, 1);
        let on_time = on_time.join().unwrap();
        assert!(on_time || late, "at least one check is admitted in the later window");
        assert!(!check(&sketch, then, 1), "a charge in the later window is remembered");
    });
}

/// One check on each side of a turn. At the start of a window the whole last window counts, so the units used before
/// leave room for only one of the two checks.
fn check_around_sliding_boundary(limit: u64, cost: u64, checks: [Check<SlidingWindow>; 2]) {
    let sketch = sliding(limit);
    for _ in cost..limit {
        assert!(check(&sketch, NOW - 2, 1));
    }
    let answers = beside(&sketch, [(checks[0], NOW - 1, cost), (checks[1], NOW, cost)]);
    // Both are denied if each saw the other.
    assert!(admitted(&answers) <= 1, "there is room for one of them");
    assert!(!check(&sketch, NOW, cost), "charges on either side are remembered");
}

// G10, G17
#[test]
fn sliding_window_boundary_admits_no_more() {
    for (limit, cost) in [(1, 1), (2, 1), (2, 2)] {
        model(move || check_around_sliding_boundary(limit, cost, [check, check]));
        model(move || check_around_sliding_boundary(limit, cost, [check_at, check_at]));
    }
}

/// Charges, and does not look at the windows again after the charge.
fn charge_without_second_look(sketch: &Sketch<SlidingWindow>, now: u64, cost: u64) -> bool {
    let Tables { windows, seen, counters } = &*sketch.tables;
    let key = sketch.prepare_hash(X);
    let rows: Rows<2, 2> = counters.rows(&key.lines);
    let mut moment = windows.moment(now);
    loop {
        let Moment { window, to_end_ns, .. } = moment;
        let attempt = || {
            let previous = sketch.tables.last::<SlidingWord, 2, 2>(&key, window)?;
            let known = seen.find(windows, &key.probe, window)?;
            let read = if known.is_in() { Some(counters.read(windows, &rows, window)?) } else { None };
            let current = read.map_or(0, |read| read.least + 1);
            let counts = WindowCounts { previous, current, to_end_ns };
            if sketch.plan.word.judge_counts(&counts, cost) != Outcome::Allowed {
                return Ok(Some(false));
            }
            let is_charged = if let Some(read) = read {
                counters.charge(windows, &read, (window, read.least + cost)) == Commit::Done
            } else {
                if cost > 1 {
                    counters.raise(windows, &rows, (window, cost - 1))?;
                }
                known.insert(windows, window)? == Insert::First
            };
            Ok(is_charged.then_some(true))
        };
        match attempt() {
            Ok(Some(is_admitted)) => return is_admitted,
            Ok(None) => {}
            Err(late) => moment = windows.catch_up(moment, late),
        }
    }
}

// G17
#[test]
#[should_panic(expected = "there is room for one of them")]
fn control_without_check_for_new_window() {
    model(|| check_around_sliding_boundary(2, 1, [charge_without_second_look, check]));
}

// G10
#[test]
#[should_panic(expected = "there is room for one of them")]
fn control_without_reread_of_last_window() {
    model(|| check_around_sliding_boundary(2, 1, [check, charge_without_second_look]));
}

/// Three windows, where the decision in each depends on the window before. The first is two windows before the last, so
/// all checks give their times.
#[test]
fn three_checks_in_three_sliding_windows() {
    model_of_three(|| {
        let sketch = sliding(1);
        let answers = beside(&sketch, [(check_at, NOW - 1, 1), (check_at, NOW, 1), (check_at, NOW + SEC, 1)]);
        assert!(!(answers[0] && answers[1]), "there is room for one of the first two");
        assert!(!(answers[1] && answers[2]), "there is room for one of the last two");
        assert!(!check_at(&sketch, NOW + SEC, 1), "the charge is remembered");
    });
}
