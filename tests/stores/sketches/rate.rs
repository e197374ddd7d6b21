//! Rates: counts of events in windows.
//!
//! Properties, each against exact counts of every key and window:
//! - With room, while time does not step back, all results are exact.
//! - Without room, each count is at least the key's events. The clock may jump; after it has stepped back, the bound
//!   holds again from the newest time on. With given times the bound also holds when they lag.
//! - With concurrent threads, also when windows end, the n-th event of a window returns n, and no event is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::sketch::{Rate, RateBuilder, RateComponents};
use tollgate::{Clock, DefaultClock, ManualClock};
use tollgate_testing::operations::config;
use tollgate_testing::{SEC, at};

const CENTURY: u64 = 36_525 * 86_400 * SEC;
/// The counters of even and of odd windows have two halves of 64 bytes each, so all keys share their lines.
const LEAST: usize = 256;

/// A builder whose keys use the same counters in every run.
fn builder(window_ns: u64) -> RateBuilder<(), ahash::RandomState> {
    Rate::builder(Duration::from_nanos(window_ns)).hasher(ahash::RandomState::with_seeds(1, 2, 3, 4))
}

fn manual(window_ns: u64, bytes: usize, largest: u64) -> (Rate<ManualClock>, ManualClock) {
    let clock = ManualClock::default();
    let rate = builder(window_ns).memory(bytes).largest(largest).clock(clock.clone()).build();
    (rate.expect("an ordinary window"), clock)
}

/// A change of time, in windows and parts of them.
#[derive(Copy, Clone, Debug)]
enum Step {
    Stay,
    /// Sixteenths of a window.
    Within(u64),
    /// To the beginning of the window that is this number of windows later, or one nanosecond before it.
    Turn(u64, bool),
    /// Sixteenths of a window.
    Back(u64),
}

impl Step {
    fn take(self, now: u64, window: u64) -> u64 {
        match self {
            Self::Stay => now,
            Self::Within(parts) => now.saturating_add(window / 16 * parts),
            Self::Turn(windows, before) => {
                let start = (now / window).saturating_add(windows).saturating_mul(window);
                start.saturating_sub(u64::from(before)).max(now)
            }
            Self::Back(parts) => now.saturating_sub((window / 16).max(1).saturating_mul(parts)),
        }
    }
}

#[derive(Copy, Clone, Debug)]
struct Op {
    key: u64,
    events: u64,
    step: Step,
}

fn ops(keys: u64, back: u64) -> impl Strategy<Value = Vec<Op>> {
    let step = prop_oneof![
        4 => Just(Step::Stay),
        4 => (0..20_u64).prop_map(Step::Within),
        4 => (1..4_u64, any::<bool>()).prop_map(|(windows, before)| Step::Turn(windows, before)),
        1 => (1..10_000_u64, any::<bool>()).prop_map(|(windows, before)| Step::Turn(windows, before)),
        u32::from(back > 0) * 3 => (0..=back.min(40)).prop_map(Step::Back),
        u32::from(back > 0) => (0..=back).prop_map(Step::Back),
    ];
    let events = prop_oneof![6 => 1..=3_u64, 1 => Just(0_u64), 1 => 0..500_u64];
    let op = (0..keys, events, step).prop_map(|(key, events, step)| Op { key, events, step });
    prop::collection::vec(op, 1..250)
}

fn windows() -> impl Strategy<Value = u64> {
    select(vec![1, 2, 7, 1_000, 100_000, 1_000_000, SEC, 60 * SEC, 86_400 * SEC, CENTURY])
}

/// Start times at zero, and at present times in an even and an odd window.
fn start() -> impl Strategy<Value = u64> {
    select(vec![0, 5, 1_700_000_000 * SEC, 1_700_000_001 * SEC + 77])
}

/// The largest values of counters of 24 bits, of 12 bits (a key has two in a word), and of 28 bits (the most for
/// windows of a nanosecond).
fn largest() -> impl Strategy<Value = u64> {
    select(vec![(1 << 24) - 1, (1 << 12) - 1, (1 << 28) - 1])
}

/// Exact counts of keys and windows.
#[derive(Default)]
struct Exact(HashMap<(u64, u64), u64>);

impl Exact {
    fn count(&self, key: u64, window: u64) -> u64 {
        self.0.get(&(key, window)).copied().unwrap_or(0)
    }

    fn add(&mut self, key: u64, window: u64, events: u64) {
        *self.0.entry((key, window)).or_default() += events;
    }

    /// Whether the counts are at least the key's events in this window and in the one before.
    fn covered_by(&self, components: &RateComponents, key: u64, window: u64) -> bool {
        let last = window.checked_sub(1).map_or(0, |last| self.count(key, last));
        components.previous >= last && components.current >= self.count(key, window)
    }
}

fn with_room(window_ns: u64, start: u64, largest: u64, ops: &[Op]) {
    let (rate, clock) = manual(window_ns, 1 << 16, largest);
    let (mut exact, mut now) = (Exact::default(), start);
    for op in ops {
        now = op.step.take(now, window_ns);
        clock.set(at(now));
        let window = now / window_ns;
        exact.add(op.key, window, op.events);
        // Counts are exact up to the largest count.
        let count = |window| exact.count(op.key, window).min(rate.largest());
        let last = window.checked_sub(1).map_or(0, count);
        let told = format!("{op:?} at {now}, windows of {window_ns}");
        assert_eq!(rate.observe(&op.key, op.events), count(window), "{told}");
        let components = rate.components(&op.key);
        assert_eq!((components.previous, components.current), (last, count(window)), "{told}");
        assert_eq!(components.window, Duration::from_nanos(window_ns));
        let fraction = (now % window_ns) as f64 / window_ns as f64;
        assert!((components.fraction - fraction).abs() < 1e-9 && components.fraction < 1.0, "{told}");
        let rate_then = last as f64 * 1e9 / window_ns as f64;
        assert!((rate.rate(&op.key) - rate_then).abs() <= rate_then * 1e-9, "{told}");
        assert_eq!((rate.previous(&op.key), rate.current(&op.key)), (last, count(window)), "{told}");
    }
}

fn by_a_clock(window_ns: u64, start: u64, largest: u64, ops: &[Op]) {
    let (rate, clock) = manual(window_ns, LEAST, largest);
    let (mut exact, mut now, mut newest) = (Exact::default(), start, 0);
    for op in ops {
        now = op.step.take(now, window_ns);
        clock.set(at(now));
        let window = now / window_ns;
        let count = rate.observe(&op.key, op.events);
        let components = rate.components(&op.key);
        let told = format!("{op:?} at {now}, windows of {window_ns}: {count}, {components:?}");
        assert!(count >= op.events.min(rate.largest()), "{told}");
        if window < newest {
            // After a step back, counts may be replaced, or added to a later window.
            exact = Exact::default();
            continue;
        }
        newest = window;
        exact.add(op.key, window, op.events);
        let least = exact.count(op.key, window).min(rate.largest());
        let saturated = components.previous.max(components.current) == rate.largest();
        assert!(count >= least && (saturated || exact.covered_by(&components, op.key, window)), "{told}");
    }
}

fn by_given_times(window_ns: u64, start: u64, largest: u64, ops: &[Op]) {
    let (rate, _) = manual(window_ns, LEAST, largest);
    let (mut exact, mut now, mut newest) = (Exact::default(), start, 0);
    for op in ops {
        now = op.step.take(now, window_ns);
        // Late by at most two windows or one second, so that the newest time is not dropped.
        now = now.max(newest - newest.min(window_ns.saturating_mul(2).max(SEC)));
        newest = newest.max(now);
        let told = format!("{op:?} at {now}, windows of {window_ns}");
        assert!(rate.observe_at(&op.key, op.events, at(now)) >= op.events.min(rate.largest()), "{told}");
        exact.add(op.key, now / window_ns, op.events);
        // Late or not, at the newest time all events of its window and of the window before are counted.
        let components = rate.components_at(&op.key, at(newest));
        let saturated = components.previous.max(components.current) == rate.largest();
        assert!(
            saturated || exact.covered_by(&components, op.key, newest / window_ns),
            "{told}: {components:?}"
        );
    }
}

proptest! {
    #![proptest_config(config(256))]

    // G61
    #[test]
    #[ignore = "several seconds unless optimised; .ci/run runs it"]
    fn roomy_rate_is_exact(
        window in windows(), start in start(), largest in largest(), ops in ops(3, 0)
    ) {
        with_room(window, start, largest, &ops);
    }

    /// By clocks that step back a little or far, and with given times that lag.
    // G61
    #[test]
    fn full_rate_never_undercounts(
        window in windows(),
        start in start(),
        largest in largest(),
        (little, far, lagging) in (ops(40, 100), ops(40, 1 << 20), ops(40, 100_000)),
    ) {
        by_a_clock(window, start, largest, &little);
        by_a_clock(window, start, largest, &far);
        by_given_times(window, start, largest, &lagging);
    }
}

// G61
#[test]
fn windows_are_half_open_and_aligned() {
    for window in [1, 2, 7, 1_000, SEC, 3_600 * SEC, CENTURY] {
        let start = (1_700_000_000 * SEC).max(window) / window * window;
        let (rate, _) = manual(window, 1 << 12, 1_000);
        let components = |ns| {
            let components = rate.components_at("key", at(ns));
            (components.previous, components.current)
        };
        assert_eq!(rate.observe_at("key", 1, at(start)), 1);
        assert_eq!(
            rate.observe_at("key", 1, at(start + (window - 1))),
            2,
            "the last nanosecond is in the window"
        );
        assert_eq!(
            rate.observe_at("key", 3, at(start + window)),
            3,
            "the next nanosecond is in the next window"
        );
        assert_eq!(components(start + window), (2, 3));
        assert_eq!(components(start + window + (window - 1)), (2, 3));
        assert_eq!(components(start + 2 * window), (3, 0));
        assert_eq!(components(start + 3 * window), (0, 0));
    }
}

// G87
#[test]
fn extreme_times_are_counted() {
    for (window, largest) in [(1, (1 << 28) - 1), (2, 7), (SEC, (1 << 48) - 1), (u64::MAX, 1)] {
        let (rate, clock) = manual(window, LEAST, largest);
        for now in [0, 1, 2, u64::MAX, u64::MAX - 1, 0, u64::MAX / 2, 1, u64::MAX - 2, u64::MAX, 3] {
            clock.set(at(now));
            for key in 0..9 {
                assert!(rate.observe(&key, 1) >= 1);
                assert!(rate.observe_at(&key, u64::MAX, at(now)) == rate.largest());
                assert!(rate.observe_at(&key, 1, at(u64::MAX - now)) >= 1);
                assert!(rate.components(&key).sliding_rate() >= 0.0);
                assert!(rate.components_at(&key, at(u64::MAX - now)).sliding_rate() >= 0.0);
            }
        }
    }
}

#[test]
fn far_future_time_is_forgotten_after_correction() {
    let right = 1_700_000_000;
    let ahead = [2, 3, 10, 11, 1_000, 1_001, 30_000, 40_000, 100_000_000];
    for wrong in ahead.map(|ahead| (right + ahead) * SEC).into_iter().chain([u64::MAX]) {
        let (rate, clock) = manual(SEC, LEAST, 1_000);
        clock.set(at(wrong));
        for key in 0..100 {
            rate.observe(&key, 10);
        }
        for second in 0..20 {
            clock.set(at((right + second) * SEC));
            let counted = rate.observe("key", 5);
            let components = rate.components("key");
            // Events count at a wrong time that is a little ahead until it comes. A time far ahead is dropped.
            if second >= 5 {
                assert_eq!(counted, 5, "{wrong} {second}");
                assert_eq!((components.previous, components.current), (5, 5), "{wrong} {second}");
            }
        }
    }
    // A given time is dropped if it is further ahead than a thread can be late.
    let (rate, _) = manual(SEC, LEAST, 1_000);
    rate.observe_at("key", 10, at((right + 100_000_000) * SEC));
    for second in 0..20 {
        let counted = rate.observe_at("key", 5, at((right + second) * SEC));
        assert!(counted == 5 || second == 0, "{second}: {counted}");
    }
}

// G87
#[test]
fn counts_saturate_at_largest() {
    for (wanted, largest) in [(1, 1), (7, 7), (8, 15), (1_000, 1_023), ((1 << 48) - 1, (1 << 48) - 1)] {
        let (rate, _) = manual(SEC, 1 << 12, wanted);
        assert_eq!(rate.largest(), largest);
        assert_eq!(rate.observe("key", largest - 1), largest - 1);
        assert_eq!(rate.observe("key", 1), largest);
        assert_eq!(rate.observe("key", 1), largest, "the count saturates");
        assert_eq!(rate.observe("key", u64::MAX), largest);
        assert_eq!(rate.observe("other", u64::MAX), largest);
        assert_eq!(rate.current("neither"), 0);
    }
}

#[test]
fn invalid_arguments_are_refused_with_advice() {
    let refused = |builder: RateBuilder<(), ahash::RandomState>| {
        builder.clock(ManualClock::default()).build().unwrap_err().to_string()
    };
    assert!(refused(builder(0)).contains("at least 1 ns"));
    assert!(refused(builder(SEC).largest(0)).contains("at least 1"));
    assert!(refused(builder(SEC).largest(1 << 48)).contains("at most 281474976710655"));
    assert!(refused(builder(1).largest(1 << 28)).contains("at most 268435455"));
    assert!(refused(builder(SEC).memory(LEAST - 1)).contains("at least 256"));
    assert!(refused(builder(SEC).memory(usize::MAX)).contains("cannot allocate"));
    assert!(Rate::try_new(Duration::ZERO).is_err());
    assert!(Rate::try_new(Duration::MAX).is_ok());
}

#[test]
fn state_stays_within_requested_memory() {
    for bytes in [LEAST, 1_000, 65_536, 1 << 20] {
        let (rate, _) = manual(SEC, bytes, 100);
        assert!(rate.state_bytes() <= bytes && rate.state_bytes() * 2 > bytes, "{bytes}");
    }
}

#[test]
fn cleared_counts_are_gone() {
    let (rate, clock) = manual(SEC, LEAST, 100);
    rate.observe("key", 3);
    clock.advance(Duration::from_secs(1));
    rate.observe("key", 4);
    rate.clear();
    assert_eq!((rate.previous("key"), rate.current("key")), (0, 0));
    assert_eq!(rate.observe("key", 1), 1);
}

/// pingora-limits divides by its window in whole milliseconds. A window of 100 µs is zero of them, so it panics.
#[test]
fn windows_below_a_millisecond_work() {
    let (rate, clock) = manual(100_000, 1 << 12, 1_000);
    for window in 0..100_u64 {
        rate.observe("key", window + 1);
        clock.advance(Duration::from_micros(100));
        assert_eq!(rate.rate("key"), (window + 1) as f64 * 10_000.0);
    }
}

/// Two sketches of pingora-limits' default size (64 KiB) report 7 for half of all keys that were never seen, after
/// 10,000 other keys.
#[test]
fn single_event_keys_hardly_raise_unseen_key() {
    // Counters of 24 bits, and counters as large as limits of thousands and of hundreds need.
    for (largest, most) in [((1 << 24) - 1, 2), ((1 << 12) - 1, 1), ((1 << 9) - 1, 1)] {
        let (rate, _) = manual(SEC, 2 * 4 * 1_024 * 8, largest);
        for key in 0..10_000 {
            rate.observe(&key, 1);
        }
        let mut unseen: Vec<u64> = (10_000..20_000).map(|key| rate.current(&key)).collect();
        unseen.sort_unstable();
        assert!(unseen[5_000] <= most, "{} with counts up to {largest}", unseen[5_000]);
    }
}

const THREADS: u64 = if cfg!(miri) { 3 } else { 8 };

/// The n-th event of a window returns n. So no number is returned more often than there were windows, or more often
/// than the number before it. If an event is lost, two events return the same number.
// G61
#[test]
fn racing_threads_count_each_event_once() {
    for largest in [(1 << 24) - 1, (1 << 12) - 1] {
        let clock = DefaultClock::new();
        let window_ns = 1_000_000;
        let rate = builder(window_ns).memory(LEAST).largest(largest).clock(clock.clone()).build().unwrap();
        let told: Vec<AtomicU64> = (0..20_000).map(|_| AtomicU64::new(0)).collect();
        let first = clock.now();
        let each = if cfg!(miri) { 50 } else { 100_000 };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..each {
                        let count = rate.observe("key", 1).min(told.len() as u64 - 1);
                        told[usize::try_from(count).unwrap()].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let windows = clock.now().as_nanos() / window_ns - first.as_nanos() / window_ns + 1;
        let told: Vec<u64> = told.into_iter().map(AtomicU64::into_inner).collect();
        assert_eq!(told.iter().sum::<u64>(), THREADS * each);
        assert_eq!(told[0], 0, "an event returns at least 1");
        assert!(told[1] <= windows, "{} first events in {windows} windows", told[1]);
        // The last place collects all larger numbers, and all numbers above the largest count.
        let end = told.len().min(usize::try_from(rate.largest()).unwrap()) - 1;
        for count in 2..end {
            assert!(told[count] <= told[count - 1], "{count}: {} > {}", told[count], told[count - 1]);
        }
    }
}

/// Each thread has its own key, so it knows its count in each window, unless it was late by two windows.
#[test]
fn racing_threads_in_small_rate_never_undercount() {
    let clock = DefaultClock::new();
    let window_ns = 1_000_000;
    let rate = builder(window_ns).memory(LEAST).clock(clock.clone()).build().unwrap();
    let newest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (rate, clock, newest) = (&rate, &clock, &newest);
            scope.spawn(move || {
                let (mut window, mut own) = (0, 0);
                for _ in 0..if cfg!(miri) { 50 } else { 50_000 } {
                    let now = clock.now();
                    if now.as_nanos() / window_ns != window {
                        (window, own) = (now.as_nanos() / window_ns, 0);
                    }
                    newest.fetch_max(window, Ordering::SeqCst);
                    let count = rate.observe_at(&thread, 1, now);
                    let late = newest.load(Ordering::SeqCst) >= window + 2;
                    assert!(late || count > own, "{count} after {own}");
                    own += u64::from(!late);
                }
            });
        }
    });
}
