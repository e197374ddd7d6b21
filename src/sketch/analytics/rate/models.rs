//! Loom models of counting. They explore every interleaving of two or three threads, up to a bound on preemptions.
//! `store::compact::table::models` explains the controls.
//!
//! A window is one nanosecond long. Each half has one line, so all keys share their words.

use super::counts::{LastTwoWindows, Observed, RateCounters};
use crate::base::check_time::CheckTime;
use crate::base::clock::models::Running;
use crate::base::sync::{Arc, explore as model, spawn};
use crate::sketch::window::{Commit, WindowCounters, Windows};

const X: u64 = 7;
/// A window with an even index.
const W: u64 = 1_000;
/// With counters of this size, a word holds two counters and a key has two words. With counters of 24 bits, a key has
/// four words.
const TOGETHER: u64 = (1 << 7) - 1;
const APART: u64 = (1 << 24) - 1;

struct Shared {
    counts: RateCounters,
    clock: Running,
}

impl Shared {
    fn new(largest: u64) -> Arc<Self> {
        let counts = RateCounters::new(1, largest, 2 * WindowCounters::MIN_BYTES).unwrap();
        Arc::new(Self { counts, clock: Running::new(W) })
    }

    fn observe(&self, events: u64) -> Observed {
        self.counts.observe(X, || CheckTime::read(&self.clock), events)
    }

    /// Counts events at a time that the caller passes.
    fn observe_at(&self, now: u64, events: u64) -> Observed {
        self.counts.observe(X, || CheckTime::from_ns(now), events)
    }

    fn read(&self) -> LastTwoWindows {
        self.counts.read(X, CheckTime::read(&self.clock))
    }

    fn read_at(&self, now: u64) -> (u64, u64) {
        let LastTwoWindows { previous, current, .. } = self.counts.read(X, CheckTime::from_ns(now));
        (previous, current)
    }
}

/// The newest window, and counters whose words hold two of them.
fn parts() -> (Windows, WindowCounters) {
    let windows = Windows::new(1, 16, u64::MAX);
    let counters = WindowCounters::new(0, TOGETHER, false, &windows).unwrap();
    (windows, counters)
}

/// Returns the counts that the observers of a window got, in ascending order.
fn told(window: u64, all: &[Observed]) -> Vec<u64> {
    let mut counts: Vec<u64> =
        all.iter().filter(|counted| counted.window == window).map(|counted| counted.count).collect();
    counts.sort_unstable();
    counts
}

fn race_two_events(largest: u64, preemptions: usize) {
    model(preemptions, move || {
        let shared = Shared::new(largest);
        let other = spawn(&shared, |shared| shared.observe(1));
        let all = [shared.observe(1), other.join().unwrap()];
        assert_eq!(told(W, &all), [1, 2], "each event gets a count of its own");
        assert_eq!(shared.read().current, 2, "no event is lost");
    });
}

#[test]
fn racing_events_get_different_counts_in_two_words() {
    race_two_events(TOGETHER, 5);
}

#[test]
fn racing_events_get_different_counts_in_four_words() {
    race_two_events(APART, 4);
}

// G61
#[test]
fn three_racing_events_get_different_counts() {
    model(3, || {
        let shared = Shared::new(TOGETHER);
        let others = [(); 2].map(|()| spawn(&shared, |shared| shared.observe(1)));
        let [one, two] = others.map(|thread| thread.join().unwrap());
        assert_eq!(told(W, &[shared.observe(1), one, two]), [1, 2, 3], "each event gets a count of its own");
    });
}

// G61
#[test]
fn boundary_events_count_in_own_window() {
    model(3, || {
        let shared = Shared::new(TOGETHER);
        let late = spawn(&shared, |shared| shared.observe(1));
        shared.clock.set(W + 1);
        let all = [shared.observe(2), late.join().unwrap()];
        let (last, present) = (told(W, &all), told(W + 1, &all));
        assert_eq!(last.len() + present.len(), 2, "each event is counted in one of the two windows");
        let LastTwoWindows { previous, current, .. } = shared.read();
        assert_eq!(
            previous,
            last.iter().sum::<u64>(),
            "the previous window has the events that were counted in it"
        );
        assert_eq!(
            current,
            present.last().copied().unwrap(),
            "the current window has the events that were counted in it"
        );
        assert_eq!(previous + current, 3, "no event is lost, and none is carried over");
    });
}

/// A thread is preempted for two windows. The words that it writes then belong to the window two later.
fn preempt_for_two_windows(largest: u64, before: u64, preemptions: usize) {
    model(preemptions, move || {
        let shared = Shared::new(largest);
        shared.observe(before);
        let late = spawn(&shared, |shared| shared.observe(1));
        shared.clock.set(W + 2);
        let all = [shared.observe(4), late.join().unwrap()];
        let present = told(W + 2, &all);
        match told(W, &all)[..] {
            [] => assert!(
                present == [4, 5] || present == [1, 5],
                "both events are counted in the later window: {present:?}"
            ),
            [old] => {
                assert_eq!(
                    old,
                    before + 1,
                    "the late event is counted in its own window, with the events before it"
                );
                assert_eq!(present, [4], "the late event is not counted in the later window");
            }
            _ => unreachable!(),
        }
        let LastTwoWindows { previous, current, .. } = shared.read();
        assert_eq!(
            (previous, Some(&current)),
            (0, present.last()),
            "the counts of the later window are kept"
        );
    });
}

#[test]
fn preempted_event_carries_no_count_in_two_words() {
    preempt_for_two_windows(TOGETHER, 3, 5);
}

#[test]
fn preempted_event_carries_no_count_in_four_words() {
    preempt_for_two_windows(APART, 0, 4);
}

#[test]
fn given_times_count_in_own_or_latest_window() {
    model(3, || {
        let shared = Shared::new(TOGETHER);
        let late = spawn(&shared, |shared| shared.observe_at(W, 1));
        let all = [shared.observe_at(W + 2, 4), late.join().unwrap()];
        let present = told(W + 2, &all);
        assert_eq!(present.len() + told(W, &all).len(), 2, "each event is counted in one of the two windows");
        assert_eq!(
            shared.read_at(W + 2),
            (0, *present.last().unwrap()),
            "no event is lost, and none is carried over"
        );
    });
}

#[test]
fn read_never_mixes_windows() {
    model(3, || {
        let shared = Shared::new(TOGETHER);
        shared.observe(3);
        shared.clock.set(W + 1);
        let reader = spawn(&shared, Shared::read);
        shared.clock.set(W + 2);
        shared.observe(1);
        let LastTwoWindows { previous, current, .. } = reader.join().unwrap();
        assert!(
            [(3, 0), (0, 0), (0, 1)].contains(&(previous, current)),
            "the counts of one of the two windows: {previous}, {current}"
        );
    });
}

/// The control raises all words with an atomic maximum and does not commit.
// G61
#[test]
#[should_panic(expected = "each event gets a count of its own")]
fn control_raising_all_words_repeats_a_count() {
    fn observe(windows: &Windows, counters: &WindowCounters) -> u64 {
        let rows = counters.rows::<2, 2>(&counters.lines(X));
        let count = counters.read(windows, &rows, W).unwrap().least + 1;
        counters.raise(windows, &rows, (W, count)).unwrap();
        count
    }
    model(3, || {
        let shared = Arc::new(parts());
        let other = spawn(&shared, |(windows, counters)| observe(windows, counters));
        let mut told = [observe(&shared.0, &shared.1), other.join().unwrap()];
        told.sort_unstable();
        assert_eq!(told, [1, 2], "each event gets a count of its own");
    });
}

/// In the control, one thread does not know the newest window. So it takes each word of a later window for an old
/// word whose tag value has repeated.
// G61
#[test]
#[should_panic(expected = "the counts of the later window are kept")]
fn control_without_newest_window_loses_later_counts() {
    fn observe(windows: &Windows, counters: &WindowCounters, window: u64) {
        let rows = counters.rows::<2, 2>(&counters.lines(X));
        loop {
            let read = counters.read(windows, &rows, window).unwrap();
            let at = (window, read.least + 1);
            if counters.charge(windows, &read, at) == Commit::Done {
                return;
            }
        }
    }
    model(3, || {
        let shared = Arc::new(parts());
        // The thread's own copy of the newest window, which no other thread raises.
        let own = Windows::new(1, 16, u64::MAX);
        let late = spawn(&shared, move |(_, counters)| observe(&own, counters, W));
        let (windows, counters) = &*shared;
        observe(windows, counters, W + 2);
        late.join().unwrap();
        let rows = counters.rows::<2, 2>(&counters.lines(X));
        let count = counters.read(windows, &rows, W + 2).map(|read| read.least);
        assert_eq!(count, Ok(1), "the counts of the later window are kept");
    });
}
