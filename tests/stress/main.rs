//! Many threads at the same time admit exactly as much as one thread, and never more.
//!
//! In most tests the clock does not advance during a round, while all threads check, but jumps between rounds. So the
//! oracle of each key computes exactly what is admitted in each round. In the jumps keys expire, and they are removed
//! while other keys are inserted. With real clocks and tiny periods, only the bound for the measured time is known.
//!
//! The tests marked `#[ignore]` are larger, for runs under a sanitizer: `cargo test --test stress --
//! --include-ignored`.

#[macro_use]
extern crate tollgate_testing;

mod charges;
mod check_all;
mod compact;
mod lease;
mod reclamation;
mod sketch;
#[cfg(feature = "tokio")]
mod wait;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tollgate::{
    Algorithm, Clock, DefaultClock, ManualClock, RateLimiter, StdClock, Timestamp, stores::HashedStore,
};
use tollgate_testing::compact::Random;
use tollgate_testing::kinds::{ALL, Kind};
use tollgate_testing::oracle::{Oracle, Spec};
use tollgate_testing::{SEC, START};

const THREADS: u64 = if cfg!(miri) { 3 } else { 8 };

/// The size of a test: rounds, keys, and the time of tests with a real clock.
#[derive(Copy, Clone)]
struct Size {
    rounds: u64,
    keys: u64,
    real_time: Duration,
}

const QUICK: Size = if cfg!(miri) {
    Size { rounds: 3, keys: 5, real_time: Duration::from_millis(1) }
} else {
    Size { rounds: 60, keys: 40, real_time: Duration::from_millis(120) }
};

const HEAVY: Size = Size { rounds: 250, keys: 60, real_time: Duration::from_millis(400) };

const SPECS: [Spec; 3] = [
    Spec { limit: 10, period_ns: SEC, burst: 10 },
    Spec { limit: 3, period_ns: 7 * SEC, burst: 5 },
    Spec { limit: 1, period_ns: SEC, burst: 1 },
];

/// Returns one of `keys` keys. Some are hot; the others are mostly idle, so they expire and return.
fn hot_and_cold(random: &mut Random, keys: u64) -> u64 {
    random.below(keys).min(random.below(keys))
}

fn index(n: u64) -> usize {
    usize::try_from(n).expect("small")
}

/// Checks one unit for each key, one by one or in one batch, and calls `admitted` for each admitted key.
fn offer<S: HashedStore>(
    limiter: &RateLimiter<S, ManualClock>,
    keys: &[u64],
    batch: bool,
    mut admitted: impl FnMut(u64),
) {
    if batch {
        let mut keys = keys.iter();
        limiter.check_each(keys.clone().map(|key| (key, 1)), |decision| {
            let key = keys.next().expect("a decision for each key");
            if decision.is_allowed() {
                admitted(*key);
            }
        });
    } else {
        keys.iter().filter(|key| limiter.check(*key).is_allowed()).for_each(|key| admitted(*key));
    }
}

/// The times of the rounds: a few equal, most a fraction of the period apart, some far apart.
fn times(spec: Spec, rounds: u64) -> Vec<u64> {
    let mut random = Random(spec.limit + rounds);
    let mut now = START;
    (0..rounds)
        .map(|_| {
            now += match random.below(10) {
                0 => 0,
                1..=6 => random.below(spec.period_ns),
                7 => spec.period_ns,
                _ => spec.period_ns * random.below(6),
            };
            now
        })
        .collect()
}

/// Runs `work(thread, round)` on all threads, which are in the same round at any time. `turn` runs alone in between.
/// Neither may panic, because the other threads would wait forever. So the tests check the results afterwards.
fn in_rounds(rounds: u64, turn: impl Fn(u64) + Sync, work: impl Fn(u64, u64) + Sync) {
    let barrier = Barrier::new(usize::try_from(THREADS).expect("few threads"));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, turn, work) = (&barrier, &turn, &work);
            scope.spawn(move || {
                for round in 0..rounds {
                    if barrier.wait().is_leader() {
                        turn(round);
                    }
                    barrier.wait();
                    work(thread, round);
                }
            });
        }
    });
}

/// All threads check single units of one stream until all are denied.
fn one_stream<A: Algorithm>(algorithm: A, mut oracle: Box<dyn Oracle>, spec: Spec, size: Size) {
    let clock = ManualClock::new(Timestamp::ZERO);
    let limiter = RateLimiter::builder(algorithm).clock(clock.clone()).direct();
    until_denied(|| limiter.check().is_allowed(), &clock, &mut *oracle, spec, size, &limiter);
}

/// In each round all threads call `check` until all are denied. Exactly as many units are admitted as by the oracle.
fn until_denied(
    check: impl Fn() -> bool + Sync,
    clock: &ManualClock,
    oracle: &mut dyn Oracle,
    spec: Spec,
    size: Size,
    what: &dyn std::fmt::Debug,
) {
    let times = times(spec, size.rounds);
    let admitted: Vec<_> = times.iter().map(|_| AtomicU64::new(0)).collect();
    in_rounds(
        size.rounds,
        |round| clock.set(Timestamp::from_nanos(times[index(round)])),
        |_, round| {
            for _ in 0..spec.burst.max(spec.limit) + 1 {
                admitted[index(round)].fetch_add(u64::from(check()), Ordering::Relaxed);
            }
        },
    );
    for (round, now) in times.iter().enumerate() {
        let expected = oracle.take_all(*now);
        assert_eq!(admitted[round].load(Ordering::Relaxed), expected, "round {round}, {what:?}");
    }
}

/// Whether a round uses a key.
fn present(round: u64, key: u64) -> bool {
    (key * 7 + round * round) % 5 < 2
}

/// The keys that a round uses, in the thread's own order.
fn walk(keys: u64, round: u64, thread: u64, random: &mut Random) -> impl Iterator<Item = u64> {
    let (first, stride) = (random.below(keys), if thread.is_multiple_of(2) { 1 } else { keys - 1 });
    (0..keys).map(move |step| (first + step * stride) % keys).filter(move |key| present(round, *key))
}

/// Each round uses some of the keys. The threads walk them in their own orders, once more than the limit. `check` checks
/// the keys of a walk, perhaps in one batch, and calls back for each admitted key. `rest` runs after the thread's walks.
///
/// Returns the times of the rounds, and what each key was admitted in each round.
fn walked(
    clock: &ManualClock,
    spec: Spec,
    size: Size,
    check: impl Fn(&[u64], bool, &dyn Fn(u64)) + Sync,
    rest: impl Fn(u64, u64) + Sync,
) -> (Vec<u64>, impl Fn(u64, u64) -> u64) {
    let times = times(spec, size.rounds);
    let cell = move |round: u64, key: u64| index(round * size.keys + key);
    let admitted: Vec<_> = (0..size.rounds * size.keys).map(|_| AtomicU64::new(0)).collect();
    in_rounds(
        size.rounds,
        |round| clock.set(Timestamp::from_nanos(times[index(round)])),
        |thread, round| {
            let mut random = Random(thread * 1_000 + round);
            for turn in 0..spec.burst.max(spec.limit) + 1 {
                let order: Vec<u64> = walk(size.keys, round, thread, &mut random).collect();
                check(&order, (thread + turn).is_multiple_of(3), &|key| {
                    admitted[cell(round, key)].fetch_add(1, Ordering::Relaxed);
                });
            }
            rest(thread, round);
        },
    );
    (times, move |round, key| admitted[cell(round, key)].load(Ordering::Relaxed))
}

/// The threads walk the keys of each round until every key is denied.
fn many_keys<A: Algorithm>(algorithm: A, oracle: impl Fn() -> Box<dyn Oracle>, spec: Spec, size: Size) {
    let clock = ManualClock::new(Timestamp::ZERO);
    let limiter = RateLimiter::builder(algorithm).clock(clock.clone()).keyed::<u64>();
    let check = |order: &[u64], _: bool, admit: &dyn Fn(u64)| {
        order.iter().filter(|key| limiter.check(*key).is_allowed()).for_each(|key| admit(*key));
    };
    let rest = |thread: u64, round: u64| {
        if thread == 0 && round % 16 == 7 {
            limiter.retain_active();
        }
    };
    let (times, admitted) = walked(&clock, spec, size, check, rest);
    for key in 0..size.keys {
        let mut oracle = oracle();
        for round in (0..size.rounds).filter(|round| present(*round, key)) {
            let expected = oracle.take_all(times[index(round)]);
            let ours = admitted(round, key);
            assert_eq!(ours, expected, "key {key}, round {round}, {oracle:?}");
        }
    }
}

/// At the start of each round all keys are idle. Half of the threads charge them while the others remove idle keys.
/// No charge may be lost in a state that is being removed.
fn charged_while_removed<A: Algorithm>(algorithm: A, spec: Spec, rounds: u64) {
    const KEYS: u64 = 3;
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let limiter = RateLimiter::builder(algorithm).clock(clock.clone()).keyed::<u64>();
    let admitted: Vec<_> = (0..rounds).map(|_| AtomicU64::new(0)).collect();
    in_rounds(
        rounds,
        |_| clock.advance(Duration::from_nanos(spec.period_ns * 4)),
        |thread, round| {
            if thread.is_multiple_of(2) {
                for key in (0..KEYS).flat_map(|key| std::iter::repeat_n(key, index(spec.burst) + 1)) {
                    let allowed = u64::from(limiter.check(&key).is_allowed());
                    admitted[index(round)].fetch_add(allowed, Ordering::Relaxed);
                }
            } else {
                for _ in 0..4 {
                    limiter.retain_active();
                }
            }
        },
    );
    for (round, admitted) in admitted.iter().enumerate() {
        assert_eq!(admitted.load(Ordering::Relaxed), KEYS * spec.burst, "round {round}, {limiter:?}");
    }
}

/// Threads charge keys while they advance the clock now and then, by up to a time, so that some use a time from before
/// others' times. `charge` gets the key and the time, and returns the charged units.
///
/// Returns the units that each key was charged, and the time that passed.
fn in_running_time(
    clock: &ManualClock,
    size: Size,
    most: Duration,
    charge: impl Fn(&mut Random, u64, Timestamp) -> u64 + Sync,
) -> (Vec<AtomicU64>, u128) {
    let start = clock.now();
    let admitted: Vec<_> = (0..size.keys).map(|_| AtomicU64::new(0)).collect();
    in_rounds(
        1,
        |_| (),
        |thread, _| {
            let mut random = Random(thread);
            for _ in 0..size.rounds * 50 {
                let key = random.below(size.keys);
                let now = clock.now();
                if random.below(8) == 0 {
                    let most_ns = u64::try_from(most.as_nanos()).expect("a short time");
                    clock.advance(Duration::from_nanos(random.below(most_ns)));
                }
                admitted[index(key)].fetch_add(charge(&mut random, key, now), Ordering::Relaxed);
            }
        },
    );
    (admitted, clock.now().duration_since(start).as_nanos())
}

/// The clock runs while threads check. The whole run stays within the bound.
fn while_time_runs<A: Algorithm>(algorithm: A, oracle: &dyn Oracle, spec: Spec, size: Size) {
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let limiter = RateLimiter::builder(algorithm).clock(clock.clone()).keyed::<u64>();
    let check = |_: &mut Random, key, now| u64::from(limiter.at(now).check(&key).is_allowed());
    let (admitted, elapsed) = in_running_time(&clock, size, Duration::from_nanos(spec.period_ns / 16), check);
    within(&admitted, oracle.most_in(elapsed), &limiter);
}

/// All threads charge keys for a while of real time. `charge` returns the key and the units that it has charged.
///
/// Returns the units that each key was admitted, and an upper bound on the nanoseconds that passed.
#[expect(clippy::disallowed_methods, reason = "the clocks under test are measured by another")]
fn in_real_time(
    size: Size,
    keys: u64,
    charge: impl Fn(&mut Random) -> Option<(u64, u64)> + Sync,
) -> (Vec<AtomicU64>, u128) {
    let admitted: Vec<_> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    let start = Instant::now();
    in_rounds(
        1,
        |_| (),
        |thread, _| {
            let mut random = Random(thread);
            while start.elapsed() < size.real_time {
                for _ in 0..64 {
                    if let Some((key, units)) = charge(&mut random) {
                        admitted[index(key)].fetch_add(units, Ordering::Relaxed);
                    }
                }
            }
        },
    );
    // Two clocks may drift apart, by far less than a thousandth and a tenth of a millisecond.
    (admitted, start.elapsed().as_nanos() * 1_001 / 1_000 + 100_000)
}

/// Checks by a real clock with periods of microseconds, so that keys expire between one check and the next.
fn by_a_real_clock<A: Algorithm, C: Clock + Sync + std::fmt::Debug>(
    algorithm: A,
    clock: C,
    oracle: &dyn Oracle,
    size: Size,
) {
    let limiter = RateLimiter::builder(algorithm).clock(clock).keyed::<u64>();
    let (admitted, elapsed) = in_real_time(size, size.keys, |random| {
        let key = hot_and_cold(random, size.keys);
        limiter.check(&key).is_allowed().then_some((key, 1))
    });
    within(&admitted, oracle.most_in(elapsed), &"a real clock");
}

fn within(admitted: &[AtomicU64], bound: u128, what: &dyn std::fmt::Debug) {
    for (key, admitted) in admitted.iter().enumerate() {
        let admitted = admitted.load(Ordering::Relaxed);
        assert!(u128::from(admitted) <= bound, "key {key}: {admitted} > {bound}: {what:?}");
    }
}

fn each(law: impl Fn(Kind, Spec)) {
    for kind in ALL {
        for spec in SPECS {
            law(kind, spec);
        }
    }
}

fn all_one_stream(size: Size) {
    each(|kind, spec| {
        with_algorithm!(kind, spec, algorithm => one_stream(algorithm, kind.oracle(spec), spec, size))
            .unwrap();
    });
}

fn all_many_keys(size: Size) {
    each(|kind, spec| {
        with_algorithm!(kind, spec, algorithm => many_keys(algorithm, || kind.oracle(spec), spec, size))
            .unwrap();
    });
}

fn all_while_time_runs(size: Size) {
    each(|kind, spec| {
        let oracle = kind.oracle(spec);
        with_algorithm!(kind, spec, algorithm => while_time_runs(algorithm, &*oracle, spec, size)).unwrap();
    });
}

fn all_charged_while_removed(rounds: u64) {
    // The burst equals the limit, so an idle window admits the same number of units.
    let spec = Spec::new(4, SEC);
    for kind in [Kind::Gcra, Kind::Interval, Kind::FirstUse, Kind::SubStrict(6), Kind::Log] {
        with_algorithm!(kind, spec, algorithm => charged_while_removed(algorithm, spec, rounds)).unwrap();
    }
}

fn all_by_real_clocks(size: Size) {
    let spec = Spec::new(3, 30_000).with_burst(2);
    for kind in ALL {
        let oracle = kind.oracle(spec);
        with_algorithm!(kind, spec, algorithm => {
            by_a_real_clock(algorithm, DefaultClock::new(), &*oracle, size);
            by_a_real_clock(algorithm, StdClock::new(), &*oracle, size);
        })
        .unwrap();
    }
}

// G2, G16
#[test]
fn one_stream_admits_exactly_as_one_thread() {
    all_one_stream(QUICK);
}

// G3, G16
#[test]
fn many_keys_admit_exactly_as_one_thread() {
    all_many_keys(QUICK);
}

// G3
#[test]
fn removing_idle_keys_loses_no_charge() {
    all_charged_while_removed(if cfg!(miri) { 3 } else { 500 });
}

// G3
#[test]
fn bound_holds_while_clock_runs() {
    all_while_time_runs(QUICK);
}

#[test]
#[cfg_attr(miri, ignore = "reads real clocks")]
fn bound_holds_with_real_clocks() {
    all_by_real_clocks(QUICK);
}

// G13
#[test]
#[ignore = "minutes long; for sanitizers"]
fn heavy() {
    all_one_stream(HEAVY);
    all_many_keys(HEAVY);
    all_charged_while_removed(10_000);
    all_while_time_runs(HEAVY);
    all_by_real_clocks(HEAVY);
}
