//! Threads share the compact store. With room it is as exact as the keyed store, also when keys come for the first
//! time. Without room, each interval of each key stays within its bound plus what the `raced` gauge allows.

use super::*;
use tollgate::{Capacity, Compact, CompactAlgorithm, Gcra, Overflow, Quota};
use tollgate_testing::compact::{Layout, POLICIES, Seeded, build, policies};
use tollgate_testing::kinds::COMPACT;
use tollgate_testing::reading::Reading;

const ROOMY: Capacity = Capacity::memory(1 << 18);

type Limiter<A, C = ManualClock> = RateLimiter<Compact<A, Seeded>, C>;

fn layout<A: CompactAlgorithm, C: Clock>(limiter: &Limiter<A, C>) -> Layout {
    Layout::read(&limiter.snapshot())
}

/// The threads walk the keys of each round until every key is denied. A new key comes on all threads at the same time.
fn with_room<A: CompactAlgorithm>(algorithm: A, overflow: Overflow, kind: Kind, spec: Spec, size: Size) {
    let clock = ManualClock::new(Timestamp::ZERO);
    let limiter = build(algorithm, overflow, ROOMY, clock.clone());
    let check = |order: &[u64], batch, admit: &dyn Fn(u64)| offer(&limiter, order, batch, admit);
    let (times, admitted) = walked(&clock, spec, size, check, |_, _| ());
    let reading = Reading::new(Some(layout(&limiter)), kind, spec, times[0]);
    for key in 0..size.keys {
        let mut oracle = reading.oracle();
        for round in (0..size.rounds).filter(|round| present(*round, key)) {
            let expected = oracle.take_all(reading.at(times[index(round)]));
            let ours = admitted(round, key);
            assert_eq!(ours, expected, "key {key}, round {round}, {oracle:?}, {overflow:?}");
        }
    }
    assert_eq!((limiter.gauges().evicted, limiter.gauges().raced), (0, 0), "{kind:?} {overflow:?}");
}

/// All threads check keys in a table of one or two buckets, which cannot hold half of them. Time jumps between rounds.
fn without_room<A: CompactAlgorithm>(algorithm: A, overflow: Overflow, kind: Kind, spec: Spec, size: Size) {
    let times = times(spec, size.rounds);
    let clock = ManualClock::new(Timestamp::ZERO);
    let limiter = build(algorithm, overflow, Capacity::memory(600), clock.clone());
    let (tick_ns, keys) = (layout(&limiter).tick_ns(), 3 * limiter.gauges().slots as u64);
    let cell = |round: u64, key: u64| index(round * keys + key);
    let admitted: Vec<_> = (0..size.rounds * keys).map(|_| AtomicU64::new(0)).collect();
    in_rounds(
        size.rounds,
        |round| clock.set(Timestamp::from_nanos(times[index(round)])),
        |thread, round| {
            let mut random = Random(thread * 1_000 + round);
            // All threads begin with the same few keys, so that they race to insert them.
            let mut order: Vec<u64> = (0..4).map(|key| (key * 11 + round) % keys).collect();
            order.extend((0..2 * keys).map(|_| hot_and_cold(&mut random, keys)));
            for chunk in order.chunks(20) {
                offer(&limiter, chunk, random.below(3) == 0, |key| {
                    admitted[cell(round, key)].fetch_add(1, Ordering::Relaxed);
                });
            }
        },
    );
    let gauges = limiter.gauges();
    assert!(gauges.evicted + gauges.denied_for_debt > 0, "{kind:?} {overflow:?}: {gauges:?}");
    let spared = match overflow {
        Overflow::Inherit => 0,
        Overflow::Forget => gauges.evicted + gauges.raced,
        _ => gauges.raced,
    };
    let most = if kind == Kind::Fixed { spec.limit } else { spec.burst };
    let exact = kind.oracle(spec);
    // For each key, the most by which an interval exceeds its bound.
    let above = (0..keys).map(|key| {
        (0..size.rounds).fold(0, |worst, from| {
            let mut sum = 0;
            (from..size.rounds).fold(worst, |worst, to| {
                sum += u128::from(admitted[cell(to, key)].load(Ordering::Relaxed));
                let apart = u128::from(times[index(to)] - times[index(from)]) + tick_ns;
                worst.max(sum.saturating_sub(exact.most_in(apart)))
            })
        })
    });
    let above: u128 = above.sum();
    assert!(
        above <= u128::from(spared) * u128::from(most),
        "{above}: {kind:?} {overflow:?} {spec:?} {gauges:?}"
    );
}

/// The clock runs while threads check. The whole run stays within the bound.
fn while_time_runs<A: CompactAlgorithm>(
    algorithm: A,
    overflow: Overflow,
    kind: Kind,
    spec: Spec,
    size: Size,
) {
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let limiter = build(algorithm, overflow, ROOMY, clock.clone());
    let check = |random: &mut Random, key, now| {
        let decision = match random.below(3) {
            0 => limiter.check(&key),
            1 => limiter.check_hash(limiter.hash(&key), 1),
            _ => limiter.at(now).check(&key),
        };
        u64::from(decision.is_allowed())
    };
    let most = Duration::from_nanos(spec.period_ns / 16);
    let (admitted, elapsed) = in_running_time(&clock, size, most, check);
    within(&admitted, kind.oracle(spec).most_in(elapsed + layout(&limiter).tick_ns()), &limiter);
}

/// Checks by a real clock with periods of microseconds, so that keys become idle between one check and the next.
fn by_a_real_clock<A: CompactAlgorithm, C: Clock + Sync>(
    algorithm: A,
    clock: C,
    overflow: Overflow,
    bound: impl Fn(u128) -> u128,
    size: Size,
) {
    let limiter = build(algorithm, overflow, ROOMY, clock);
    let (admitted, elapsed) = in_real_time(size, size.keys, |random| {
        let key = hot_and_cold(random, size.keys);
        limiter.check(&key).is_allowed().then_some((key, 1))
    });
    within(&admitted, bound(elapsed + layout(&limiter).tick_ns()), &"a real clock");
}

/// Half of the threads charge keys while the others take snapshots, reset keys and read the gauges.
///
/// A snapshot holds no debt that its key never had, and misses none. The remaining quota of each restored key lies
/// between the values peeked before and after the snapshot.
fn read_while_charged(overflow: Overflow, rounds: u64) {
    const KEYS: u64 = 24;
    const BURST: u64 = 50;
    let quota = Quota::per_hour(BURST);
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let make = || build(Gcra::new(quota), overflow, ROOMY, clock.clone());
    let limiter = make();
    let faults = AtomicU64::new(0);
    let check = |sound: bool| {
        faults.fetch_add(u64::from(!sound), Ordering::Relaxed);
    };
    in_rounds(
        rounds,
        |_| limiter.clear(),
        |thread, round| {
            let mut random = Random(thread * 1_000 + round);
            if thread.is_multiple_of(2) {
                for _ in 0..200 {
                    let _ = limiter.check(&random.below(KEYS));
                }
                return;
            }
            let before: Vec<u64> = (0..KEYS).map(|key| limiter.peek(&key).remaining()).collect();
            let snapshot = limiter.snapshot();
            let after: Vec<u64> = (0..KEYS).map(|key| limiter.peek(&key).remaining()).collect();
            let restored = make();
            check(restored.restore(&snapshot).is_ok());
            for key in 0..KEYS {
                let remaining = restored.peek(&key).remaining();
                check((after[index(key)]..=before[index(key)]).contains(&remaining));
            }
            check(limiter.live_slots() <= index(KEYS + THREADS) && limiter.fill() < 0.1);
            // A key that no other thread charges.
            let own = KEYS + thread;
            check(limiter.check_n(&own, BURST).is_allowed());
            check(limiter.reset(&own) && limiter.check(&own).is_allowed());
            check(limiter.reset(&own));
        },
    );
    assert_eq!(faults.load(Ordering::Relaxed), 0, "{overflow:?} {limiter:?}");
}

fn all(law: impl Fn(Kind, Overflow, Spec)) {
    for kind in COMPACT {
        for &overflow in policies(kind) {
            for spec in SPECS {
                law(kind, overflow, spec);
            }
        }
    }
}

fn all_with_room(size: Size) {
    all(|kind, overflow, spec| {
        with_compact!(kind, spec, algorithm => with_room(algorithm, overflow, kind, spec, size)).unwrap();
    });
}

fn all_without_room(size: Size) {
    all(|kind, overflow, spec| {
        // No bound is documented for a sliding window that has lost its counts.
        if !matches!(kind, Kind::Sliding | Kind::SlidingStrict) {
            with_compact!(kind, spec, algorithm => without_room(algorithm, overflow, kind, spec, size))
                .unwrap();
        }
    });
}

fn all_while_time_runs(size: Size) {
    all(|kind, overflow, spec| {
        with_compact!(kind, spec, algorithm => while_time_runs(algorithm, overflow, kind, spec, size))
            .unwrap();
    });
}

fn all_by_real_clocks(size: Size) {
    let spec = Spec::new(3, 30_000).with_burst(2);
    for kind in [Kind::Gcra, Kind::Queue, Kind::Spacing] {
        for overflow in POLICIES {
            let bound = |elapsed| kind.oracle(spec).most_in(elapsed);
            with_compact!(kind, spec, algorithm => {
                by_a_real_clock(algorithm, DefaultClock::new(), overflow, bound, size);
                by_a_real_clock(algorithm, StdClock::new(), overflow, bound, size);
            })
            .unwrap();
        }
    }
}

const MANY: Size = Size { rounds: 80, ..HEAVY };
const FEW: Size = Size { rounds: if cfg!(miri) { 2 } else { 24 }, ..QUICK };

// G4, G16
#[test]
fn roomy_table_admits_exactly_as_one_thread() {
    all_with_room(FEW);
}

// G7, G9
#[test]
fn full_table_admits_at_most_bound_and_raced() {
    all_without_room(FEW);
}

#[test]
fn bound_holds_while_clock_runs() {
    all_while_time_runs(FEW);
}

#[test]
#[cfg_attr(miri, ignore = "reads real clocks")]
fn bound_holds_with_real_clocks() {
    all_by_real_clocks(Size { real_time: Duration::from_millis(60), ..QUICK });
}

// G37
#[test]
fn concurrent_snapshots_and_resets_are_sound() {
    POLICIES.into_iter().for_each(|overflow| read_while_charged(overflow, if cfg!(miri) { 2 } else { 60 }));
}

// G13
#[test]
#[ignore = "minutes long; for sanitizers"]
fn heavy() {
    all_with_room(MANY);
    all_without_room(MANY);
    all_while_time_runs(MANY);
    all_by_real_clocks(MANY);
    POLICIES.into_iter().for_each(|overflow| read_while_charged(overflow, 200));
}
