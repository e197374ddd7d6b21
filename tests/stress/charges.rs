//! Many threads check, charge unchecked and refund, at one instant in each round. Afterwards the state is the same as if
//! only the units without a refund had been charged. Reservations made at once have different turns.

use super::*;
use std::collections::BTreeSet;
use std::sync::Mutex;
use tollgate::Capacity;
use tollgate_testing::compact::{Held, Layout, compact_of};
use tollgate_testing::kinds::COMPACT;
use tollgate_testing::reading::Reading;
use tollgate_testing::subjects::{Subject, direct, keyed};

const KEYS: u32 = 3;
const SPEC: Spec = Spec { limit: 1_000, period_ns: 1_000 * SEC, burst: 1_000 };

/// Threads charge and refund units. Afterwards each key has the state of its oracle.
fn charge_and_refund(limiter: &dyn Subject, kind: Kind, layout: Option<Layout>, keys: u32, rounds: u64) {
    let times = times(SPEC, rounds);
    let reading = Reading::new(layout, kind, SPEC, times[0]);
    let stays: Vec<_> = (0..rounds * u64::from(keys)).map(|_| AtomicU64::new(0)).collect();
    let cell = |round: u64, key: u32| index(round * u64::from(keys) + u64::from(key));
    in_rounds(
        rounds,
        |_| (),
        |thread, round| {
            let (mut random, now) = (Random(thread * 1_000 + round), times[index(round)]);
            let mut held = Vec::new();
            for _ in 0..200 {
                let key = u32::try_from(random.below(u64::from(keys))).expect("few");
                let cost = 1 + random.below(5);
                let decision = match random.below(4) {
                    0 => limiter.at(now).charge_unchecked(key, cost),
                    1 => limiter.at(now).take(key, cost),
                    _ => limiter.at(now).check_n(key, cost),
                };
                if decision.is_allowed() {
                    stays[cell(round, key)].fetch_add(decision.cost(), Ordering::Relaxed);
                    held.push((key, decision));
                }
                // Refund charges in any order. Some charges stay, and some are refunded in part.
                if held.len() > 3 {
                    let (key, charge) = held.swap_remove(index(random.below(4)));
                    let units = 1 + random.below(5);
                    let back = limiter.at(now).refund_n(key, &charge, units);
                    stays[cell(round, key)].fetch_sub(back, Ordering::Relaxed);
                }
            }
        },
    );
    for key in 0..keys {
        let mut oracle = reading.oracle();
        for round in 0..rounds {
            let units = stays[cell(round, key)].load(Ordering::Relaxed);
            let charged = oracle.force(reading.at(times[index(round)]).into(), units);
            assert_eq!(charged, units);
        }
        let now = times[index(rounds - 1)];
        let (state, at) = (limiter.at(now).peek_n(key, 0), reading.at(now));
        let reset = reading.wait(now, oracle.reset_after(at));
        assert_eq!(state.remaining(), oracle.remaining(at), "{kind:?} {oracle:?}");
        assert!(state.reset_after().as_nanos() == reset || kind == Kind::Sliding, "{kind:?} {oracle:?}");
    }
}

/// Whether charges of this kind at one instant add up to a sum.
fn charges_add_up(kind: Kind) -> bool {
    // Spaced events are not units, and logs refund nothing. A key that comes late to an adaptive bucket has less than
    // a key that was seen before.
    !matches!(kind, Kind::Spacing | Kind::Log | Kind::Adaptive(_))
}

fn all_charge_and_refund(rounds: u64) {
    for kind in ALL.into_iter().filter(|kind| charges_add_up(*kind)) {
        charge_and_refund(&*direct(kind, SPEC).unwrap(), kind, None, 1, rounds);
        charge_and_refund(&*keyed(kind, SPEC).unwrap(), kind, None, KEYS, rounds);
    }
    for kind in COMPACT.into_iter().filter(|kind| charges_add_up(*kind)) {
        let (limiter, layout) = with_overdraft(kind, SPEC, 50_000);
        charge_and_refund(&*limiter, kind, Some(layout), KEYS, rounds);
    }
}

fn with_overdraft(kind: Kind, spec: Spec, units: u64) -> Held {
    compact_of(kind, spec, Capacity::memory(1 << 16), units).unwrap().expect("an ordinary quota")
}

/// All threads reserve turns. Some refund theirs at once, which frees a turn only if it is the last.
fn turns_are_distinct(limiter: &dyn Subject, turn: Duration, kind: Kind) {
    let now = 1_700_000_000 * SEC;
    let given = Mutex::new(BTreeSet::new());
    let longest = Duration::from_secs(3_600);
    in_rounds(
        1,
        |_| (),
        |thread, _| {
            for number in 0..50 {
                let decision = limiter.at(now).reserve(0, 1, longest);
                // A request without a delay may be refunded at any time. Then a later turn may equal an earlier one;
                // `refund` documents this.
                let may = number % 5 == thread % 5 && decision.delay() > Duration::ZERO;
                let back = may && limiter.at(now).refund_n(0, &decision, 1) == 1;
                if decision.is_allowed() && !back {
                    let new = given.lock().unwrap().insert(decision.delay());
                    assert!(new, "{kind:?}: {decision:?} has the same turn as another");
                }
            }
        },
    );
    let given = given.into_inner().unwrap();
    let expected: BTreeSet<_> =
        (0..u32::try_from(given.len()).unwrap()).map(|number| turn * number).collect();
    assert_eq!(given, expected, "{kind:?}: the turns have gaps");
}

fn all_turns_are_distinct() {
    let spec = Spec::new(1, SEC);
    for kind in [Kind::Gcra, Kind::Greedy, Kind::Interval, Kind::Spacing] {
        turns_are_distinct(&*direct(kind, spec).unwrap(), Duration::from_secs(1), kind);
    }
    let queue = keyed(Kind::Queue, spec.with_burst(10_000)).unwrap();
    turns_are_distinct(&*queue, Duration::from_secs(1), Kind::Queue);
    for kind in [Kind::Gcra, Kind::Spacing] {
        turns_are_distinct(&*with_overdraft(kind, spec, 1_000).0, Duration::from_secs(1), kind);
    }
}

// G44
#[test]
fn refunds_leave_other_charges() {
    all_charge_and_refund(if cfg!(miri) { 2 } else { 12 });
}

// G46
#[test]
fn racing_reservations_get_distinct_turns() {
    for _ in 0..if cfg!(miri) { 1 } else { 20 } {
        all_turns_are_distinct();
    }
}

// G13
#[test]
#[ignore = "minutes long; for sanitizers"]
fn heavy_refunds() {
    all_charge_and_refund(80);
}
