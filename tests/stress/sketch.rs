//! Threads share the sketch store. With room it is as exact as the keyed store, also when windows end. Without room, no
//! window of any key admits more than the limit.

use super::*;
use tollgate::{FixedWindow, Quota, Sketch, SlidingWindow, WindowAlgorithm};
use tollgate_testing::compact::Seeded;
use tollgate_testing::kinds::WINDOWS;
use tollgate_testing::sketch::{LEAST, build};

const ROOMY: usize = 1 << 18;

type Limiter<A, C = ManualClock> = RateLimiter<Sketch<A, Seeded>, C>;

fn limiter<A: WindowAlgorithm, C: Clock>(algorithm: A, bytes: usize, clock: C) -> Limiter<A, C> {
    build(algorithm, bytes, clock).expect("an ordinary quota")
}

/// The threads walk the keys of each round until every key is denied. With room, each key is admitted exactly as much as
/// by one thread; without room, no more.
fn in_still_rounds<A: WindowAlgorithm>(algorithm: A, bytes: usize, kind: Kind, spec: Spec, size: Size) {
    let clock = ManualClock::new(Timestamp::ZERO);
    let limiter = limiter(algorithm, bytes, clock.clone());
    let check = |order: &[u64], batch, admit: &dyn Fn(u64)| offer(&limiter, order, batch, admit);
    let (times, admitted) = walked(&clock, spec, size, check, |_, _| ());
    let mut wrongly_denied = 0;
    for key in 0..size.keys {
        let mut oracle = kind.oracle(spec);
        for round in (0..size.rounds).filter(|round| present(*round, key)) {
            let ours = admitted(round, key);
            if bytes == ROOMY {
                let expected = oracle.take_all(times[index(round)]);
                assert_eq!(ours, expected, "key {key}, round {round}, {oracle:?}");
                continue;
            }
            for unit in 0..ours {
                let now = u128::from(times[index(round)]);
                assert!(oracle.admits(now, 1), "key {key}, round {round}, unit {unit}, {oracle:?}");
                oracle.charge(now, 1);
            }
            wrongly_denied += u64::from(oracle.admits(times[index(round)].into(), 1));
        }
    }
    assert!(bytes == ROOMY || cfg!(miri) || wrongly_denied > 0, "{kind:?} {spec:?}: the sketch is not full");
}

/// The length of the windows: one millisecond.
const SHORT: u64 = 1_000_000;

/// The admitted units of a run in which the clock advances between checks, so that windows end while threads check.
///
/// Each thread notes the window before and after its check. An admission was counted in one of the two windows, or in
/// one between them.
struct Admissions {
    /// By key and window: the units of checks that began and ended in one window.
    sure: Vec<AtomicU64>,
    /// By key: all units.
    all: Vec<AtomicU64>,
    first: u64,
    windows: u64,
}

impl Admissions {
    fn new(keys: u64, first: u64, windows: u64) -> Self {
        let counts = |len: u64| (0..len).map(|_| AtomicU64::new(0)).collect();
        Self { sure: counts(keys * windows), all: counts(keys), first, windows }
    }

    fn add(&self, key: u64, before: u64, after: u64, cost: u64) {
        self.all[index(key)].fetch_add(cost, Ordering::Relaxed);
        if before == after && before - self.first < self.windows {
            self.sure[index(key * self.windows + before - self.first)].fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// Asserts that no window admits more than the limit, and that n windows together admit at most n times the limit.
    fn judge(&self, limit: u64, last: u64) {
        for (cell, sure) in self.sure.iter().enumerate() {
            let sure = sure.load(Ordering::Relaxed);
            assert!(sure <= limit, "{sure} of {limit} in one window, cell {cell}");
        }
        let bound = (last - self.first + 1) * limit;
        for (key, all) in self.all.iter().enumerate() {
            let all = all.load(Ordering::Relaxed);
            assert!(all <= bound, "{all} of {bound} in all windows, key {key}");
        }
    }
}

/// One check, by one of the four methods that differ in how they get the time.
fn one_way<A: WindowAlgorithm, C: Clock>(
    limiter: &Limiter<A, C>,
    way: u64,
    key: u64,
    cost: u64,
    now: Timestamp,
) -> bool {
    match way {
        0 => limiter.check_n(&key, cost).is_allowed(),
        1 => limiter.check_hash(limiter.hash(&key), cost).is_allowed(),
        2 => {
            let mut allowed = false;
            limiter.check_each([(&key, cost)], |decision| allowed = decision.is_allowed());
            allowed
        }
        _ => limiter.at(now).check_n(&key, cost).is_allowed(),
    }
}

fn while_windows_turn<A: WindowAlgorithm>(algorithm: A, limit: u64, bytes: usize, size: Size) {
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let limiter = limiter(algorithm, bytes, clock.clone());
    let window = || clock.now().as_nanos() / SHORT;
    let admitted = Admissions::new(4, START / SHORT, size.rounds * 400);
    let check = |random: &mut Random, key, now: Timestamp| {
        if random.below(256) == 0 {
            clock.advance(Duration::from_nanos(random.below(4 * SHORT)));
        }
        let cost = 1 + random.below(limit.min(2));
        if one_way(&limiter, random.below(4), key, cost, now) {
            admitted.add(key, now.as_nanos() / SHORT, window(), cost);
        }
        0
    };
    in_running_time(&clock, Size { keys: 4, ..size }, Duration::from_nanos(SHORT / 2), check);
    admitted.judge(limit, window());
}

/// Like `while_windows_turn`, by a real clock. A window ends every millisecond.
fn by_a_real_clock<A: WindowAlgorithm, C: Clock + Sync>(
    algorithm: A,
    clock: C,
    limit: u64,
    bytes: usize,
    size: Size,
) {
    let limiter = limiter(algorithm, bytes, &clock);
    let window = || clock.now().as_nanos() / SHORT;
    let first = window();
    let admitted = Admissions::new(4, first, u64::try_from(size.real_time.as_millis()).expect("short") + 100);
    in_real_time(size, 1, |random| {
        let (key, cost) = (random.below(4), 1 + random.below(limit.min(2)));
        let (before, now) = (window(), clock.now());
        if one_way(&limiter, random.below(4), key, cost, now) {
            admitted.add(key, before, window(), cost);
        }
        None
    });
    admitted.judge(limit, window());
}

/// Threads check on both sides of the end of a sliding window, one window end for each round.
///
/// Half of the threads check with a given time in the last nanosecond of a window, and half in the first nanosecond of
/// the next. Together they are admitted at most the limit. (They are admitted at least one unit, unless each half sees
/// the other's charges. The test does not check this.)
fn around_a_window_end(limit: u64, bytes: usize, rounds: u64) {
    let quota = Quota::try_new(limit, Duration::from_nanos(SHORT)).expect("a quota");
    let limiter = limiter(SlidingWindow::new(quota), bytes, ManualClock::new(Timestamp::from_nanos(START)));
    let admitted: Vec<_> = (0..rounds).map(|_| AtomicU64::new(0)).collect();
    in_rounds(
        rounds,
        |_| (),
        |thread, round| {
            // The rounds are three windows apart, so each begins without usage.
            let turn = START + (3 * round + 1) * SHORT;
            let now = Timestamp::from_nanos(turn - thread % 2);
            for _ in 0..=limit {
                let allowed = u64::from(limiter.at(now).check("key").is_allowed());
                admitted[index(round)].fetch_add(allowed, Ordering::Relaxed);
            }
        },
    );
    for (round, admitted) in admitted.iter().enumerate() {
        let admitted = admitted.load(Ordering::Relaxed);
        assert!(admitted <= limit, "{admitted} of {limit} in round {round}");
    }
}

/// Half of the threads charge keys while the others clear the limiter and read its saturation.
fn cleared_while_charged(rounds: u64) {
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let limiter = limiter(FixedWindow::new(Quota::per_hour(50)), 4_096, clock);
    let faults = AtomicU64::new(0);
    in_rounds(
        rounds,
        |_| limiter.clear(),
        |thread, round| {
            let mut random = Random(thread * 1_000 + round);
            for _ in 0..100 {
                if thread.is_multiple_of(2) {
                    let _ = limiter.check_n(&random.below(24), 1 + random.below(3));
                } else {
                    let saturation = limiter.saturation();
                    let sound = (0.0..=1.0).contains(&saturation.false_positive) && saturation.denied < 0.5;
                    faults.fetch_add(u64::from(!sound), Ordering::Relaxed);
                    if random.below(20) == 0 {
                        limiter.clear();
                    }
                }
            }
        },
    );
    assert_eq!(faults.load(Ordering::Relaxed), 0, "{limiter:?}");
    limiter.clear();
    assert!(limiter.check_n(&1, 50).is_allowed());
}

const TIGHT: usize = LEAST;

fn all_in_still_rounds(size: Size) {
    for kind in WINDOWS {
        for spec in SPECS.map(|spec| Spec::new(spec.limit, spec.period_ns)) {
            for (bytes, keys) in [(ROOMY, size.keys), (TIGHT, 10 * size.keys)] {
                let size = Size { keys, ..size };
                with_windows!(kind, spec, algorithm => in_still_rounds(algorithm, bytes, kind, spec, size))
                    .unwrap();
            }
        }
    }
}

fn each_short(law: impl Fn(Kind, Spec, usize)) {
    for kind in WINDOWS {
        for limit in [1, 2, 5] {
            for bytes in [TIGHT, ROOMY] {
                law(kind, Spec::new(limit, SHORT), bytes);
            }
        }
    }
}

fn all_while_windows_turn(size: Size) {
    each_short(|kind, spec, bytes| {
        with_windows!(kind, spec, algorithm => while_windows_turn(algorithm, spec.limit, bytes, size))
            .unwrap();
    });
}

fn all_by_real_clocks(size: Size) {
    each_short(|kind, spec, bytes| {
        with_windows!(kind, spec, algorithm => {
            by_a_real_clock(algorithm, DefaultClock::new(), spec.limit, bytes, size);
            by_a_real_clock(algorithm, StdClock::new(), spec.limit, bytes, size);
        })
        .unwrap();
    });
}

fn all_around_a_window_end(rounds: u64) {
    for limit in [1, 2, 7] {
        for bytes in [TIGHT, ROOMY] {
            around_a_window_end(limit, bytes, rounds);
        }
    }
}

const MANY: Size = Size { rounds: 80, keys: 30, ..HEAVY };
const FEW: Size =
    Size { rounds: if cfg!(miri) { 2 } else { 16 }, keys: if cfg!(miri) { 2 } else { 20 }, ..QUICK };

// G17
#[test]
fn sketch_threads_admit_no_more_than_one_thread() {
    all_in_still_rounds(FEW);
}

// G10
#[test]
fn running_windows_admit_at_most_limit() {
    all_while_windows_turn(FEW);
}

#[test]
#[cfg_attr(miri, ignore = "reads real clocks")]
fn real_clock_windows_admit_at_most_limit() {
    all_by_real_clocks(Size { real_time: Duration::from_millis(25), ..QUICK });
}

// G10
#[test]
fn sliding_window_end_admits_one_limit() {
    all_around_a_window_end(if cfg!(miri) { 3 } else { 400 });
}

#[test]
fn concurrent_clearing_is_sound() {
    cleared_while_charged(if cfg!(miri) { 2 } else { 60 });
}

// G13
#[test]
#[ignore = "minutes long; for sanitizers"]
fn heavy() {
    all_in_still_rounds(MANY);
    all_while_windows_turn(MANY);
    all_by_real_clocks(Size { real_time: Duration::from_millis(150), ..MANY });
    all_around_a_window_end(4_000);
}
