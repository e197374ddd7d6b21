//! Compares every algorithm, direct and keyed, with its oracle.
//!
//! The properties hold for random quotas, costs and times. The times include equal times, window boundaries, steps
//! back and jumps of years.
//! 1. The outcome, the remaining units, the waits and the delay equal the oracle's, to the nanosecond.
//! 2. `retry_after` is tight: the same cost is admitted after this wait, and denied one nanosecond earlier.
//! 3. `remaining` is tight: a cost of that many units is admitted, and a cost of one unit more is denied.
//! 4. After `reset_after` the full capacity is available again.
//! 5. A peek returns what the following check returns, and changes nothing.
//! 6. A batch returns the same decisions as single calls.
//! 7. A keyed limiter forgets a key only when the key owes nothing at a time that the limiter has seen. The key then
//!    starts without a debt.
//! 8. The limiter admits nothing that exact arithmetic would deny, and no interval of time admits more than the bound.
//!    This holds for any quota, even if its emission interval is not a simple fraction, and near the largest
//!    timestamp. Rounding makes an emission interval longer by at most 1/32 ns.

use proptest::prelude::*;
use tollgate::{ManualClock, RateLimiter, Timestamp};
use tollgate_testing::kinds::{ALL, Kind};
use tollgate_testing::laws::{self, Exact, Request};
use tollgate_testing::operations::{config, exact_spec, ops, run_cases, spec, start};
use tollgate_testing::oracle::{Oracle, Spec};
use tollgate_testing::steps::{Op, within_reach};
use tollgate_testing::subjects::{Subject, crowded, direct, verdict};
use tollgate_testing::{MINUTE, SEC};

const KEYS: u32 = 3;

type Case = (Spec, u64, Vec<Op>);

/// Runs `law` on random cases of one algorithm. Fails if the algorithm refused half of the quotas or more.
fn check(
    kind: Kind,
    specs: impl Strategy<Value = Spec>,
    ops: impl Strategy<Value = Vec<Op>>,
    law: impl Fn(Kind, &Case, &dyn Subject),
    limiter: fn(Kind, Spec) -> Option<Box<dyn Subject>>,
) {
    let held = run_cases(kind, 96, &(specs, start(), ops), |case| {
        limiter(kind, case.0).inspect(|limiter| law(kind, &case, &**limiter)).is_some()
    });
    assert!(held > 0.5, "{kind:?} refused half of the quotas or more");
}

/// Resets the oracle of a key that the limiter has forgotten. The key must owe nothing at `newest`, the latest time
/// so far.
fn forget(oracle: &mut Box<dyn Oracle>, kind: Kind, spec: Spec, newest: u64) {
    if matches!(kind, Kind::Adaptive(_)) {
        // The limiter never forgets a key of an adaptive bucket, so this key was never used.
        return;
    }
    assert_eq!(
        oracle.reset_after(newest),
        0,
        "the key was forgotten while it had a debt: {oracle:?} at {newest}"
    );
    *oracle = kind.oracle(spec);
}

/// Checks that each decision, with all its figures, equals the oracle's.
fn agrees(kind: Kind, (spec, start, ops): &Case, limiter: &dyn Subject) {
    let mut oracles: Vec<_> = (0..KEYS).map(|_| kind.oracle(*spec)).collect();
    let (mut now, mut newest) = (*start, *start);
    for op in ops {
        let oracle = &mut oracles[op.key as usize];
        if !limiter.holds(op.key) {
            forget(oracle, kind, *spec, newest);
        }
        let oracle = &mut **oracle;
        now = within_reach(op.step.apply(now, *spec, oracle), *start, kind, *spec);
        newest = newest.max(now);
        let cost = op.cost.apply(now, oracle);
        let request = Request { kind, key: op.key, cost, now, at: now, layout: None };
        laws::agrees(limiter, oracle, &request, verdict);
    }
}

fn figures_are_tight(kind: Kind, (spec, start, ops): &Case, limiter: &dyn Subject) {
    let within = |now| within_reach(now, *start, kind, *spec);
    laws::figures_are_tight(kind, *spec, *start, ops, limiter, within);
}

/// Checks that exact arithmetic admits everything that the limiter admits, and that no interval admits more than the
/// bound.
///
/// The oracle never sees time step back: its time is never before the newest admission. The oracle is charged only with
/// the costs that the limiter admitted.
fn never_exceeds(kind: Kind, (spec, start, ops): &Case, limiter: &dyn Subject) {
    let mut exact: Vec<_> = (0..KEYS).map(|_| Exact::new(kind, *spec)).collect();
    let (mut now, mut newest) = (*start, *start);
    // A state in fractions of a nanosecond wraps. It orders two times correctly only if they differ by less than half
    // its range, which is at least nine years.
    let reach = if kind.is_bucket_family() && spec.interval().1 > 1 { 1 << 57 } else { u64::MAX };
    for op in ops {
        let exact = &mut exact[op.key as usize];
        if !limiter.holds(op.key) && !matches!(kind, Kind::Adaptive(_)) {
            forget(&mut exact.oracle, kind, *spec, newest);
            *exact = Exact::new(kind, *spec);
        }
        now = op.step.apply(now, *spec, &*exact.oracle);
        now = now.clamp(start.saturating_sub(reach), start.saturating_add(reach));
        newest = newest.max(now);
        let cost = op.cost.apply(now, &*exact.oracle);
        let decision = limiter.at(now).check_n(op.key, cost);
        // The figures must not overflow. Their values are not checked here.
        let _ = (decision.remaining(), decision.retry_after(), decision.reset_after(), decision.delay());
        assert_eq!(decision.is_never(), cost > exact.oracle.capacity(), "{op:?} at {now}");
        if decision.is_allowed() && cost > 0 {
            exact.admit(now, cost, 0);
        }
    }
}

fn never_exceeds_at_end_of_time(kind: Kind, (spec, start, ops): &Case, limiter: &dyn Subject) {
    let late = u64::MAX - start % 1_000_000_000_000;
    never_exceeds(kind, &(*spec, late, ops.clone()), limiter);
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let odd = |(spec, more): (Spec, u64)| Spec { period_ns: spec.period_ns.saturating_add(more), ..spec };
    prop_oneof![spec(), (spec(), 1_u64..=64).prop_map(odd)]
}

fn one_key(ops: impl Strategy<Value = Vec<Op>>) -> impl Strategy<Value = Vec<Op>> {
    ops.prop_map(|mut ops| {
        ops.iter_mut().for_each(|op| op.key = 0);
        ops
    })
}

/// All algorithms, some of them with more options.
fn kinds() -> impl Iterator<Item = Kind> {
    ALL.into_iter().chain([Kind::Aligned(1_700_000_000 * SEC + 17), Kind::Sub(7)])
}

// G1, G15, G22, G24, G39
#[test]
fn direct_decides_as_the_oracle() {
    kinds().for_each(|kind| check(kind, exact_spec(kind), one_key(ops(1, 60, true)), agrees, direct));
}

// G15
#[test]
fn keyed_decides_as_the_oracle() {
    kinds().for_each(|kind| check(kind, exact_spec(kind), ops(KEYS, 60, true), agrees, crowded));
}

// G22, G23
#[test]
fn direct_figures_are_tight() {
    let ops = || one_key(ops(1, 40, true));
    kinds().for_each(|kind| check(kind, exact_spec(kind), ops(), figures_are_tight, direct));
}

// G1
#[test]
fn direct_never_exceeds_exact_arithmetic() {
    kinds().for_each(|kind| check(kind, any_spec(), one_key(ops(1, 60, true)), never_exceeds, direct));
}

// G1
#[test]
fn keyed_never_exceeds_exact_arithmetic() {
    kinds().for_each(|kind| check(kind, any_spec(), ops(KEYS, 60, true), never_exceeds, crowded));
}

// G38
#[test]
fn never_exceeds_exact_arithmetic_at_end_of_time() {
    for kind in kinds() {
        check(kind, spec(), one_key(ops(1, 60, true)), never_exceeds_at_end_of_time, direct);
        check(kind, spec(), ops(KEYS, 60, true), never_exceeds_at_end_of_time, crowded);
    }
}

// G15
#[test]
fn rounding_error_is_within_bound() {
    let odd =
        [(1_000_003, SEC), (999_999_937, SEC), (44_101, MINUTE), (37, 1_000), (5_000_000_029, 2 * SEC + 1)];
    for (limit, period_ns) in odd {
        let spec = Spec::new(limit, period_ns).with_burst(3);
        assert!(!spec.is_exact());
        for kind in [Kind::Gcra, Kind::Greedy, Kind::Meter, Kind::Queue] {
            let limiter = direct(kind, spec).expect("a valid quota");
            let mut now = 1_700_000_000 * SEC;
            let begin = now;
            for admitted in 0_u128..5_000 {
                let decision = limiter.at(now).peek(0);
                now += u64::try_from(decision.retry_after().unwrap().as_nanos()).unwrap();
                // Each unit after the burst needs a wait of at most period / limit + 1/32 ns. The sum is rounded up
                // once, to a whole nanosecond.
                let waited = u128::from(now - begin);
                let (num, den) = spec.interval();
                let due = admitted.saturating_sub(2) * (32 * num + den) / (32 * den) + 1;
                assert!(waited <= due, "{kind:?} {spec:?}: unit {admitted} after {waited} ns, due by {due}");
                assert!(limiter.at(now).check(0).is_allowed());
            }
        }
    }
}

proptest! {
    #![proptest_config(config(96))]

    // G29
    #[test]
    fn batches_equal_single_calls(
        spec in spec(),
        calls in prop::collection::vec((0_u64..20, 0_u64..=12), 0..60),
        now in start(),
    ) {
        for kind in ALL {
            let clock = ManualClock::new(Timestamp::from_nanos(now));
            with_algorithm!(kind, spec, algorithm => {
                let build = || RateLimiter::builder(algorithm).clock(clock.clone());
                let (single, batched, mut decisions) = (build().direct(), build().direct(), Vec::new());
                let expected: Vec<_> = calls.iter().map(|&(_, cost)| single.check_n(cost)).collect();
                batched.check_each(calls.iter().map(|&(_, cost)| cost), |decision| decisions.push(decision));
                assert_eq!(decisions, expected, "direct, {kind:?}");

                let (single, batched) = (build().keyed::<u64>(), build().keyed::<u64>());
                let expected: Vec<_> = calls.iter().map(|(key, cost)| single.check_n(key, *cost)).collect();
                decisions.clear();
                let requests = calls.iter().map(|(key, cost)| (key, *cost));
                batched.check_each(requests, |decision| decisions.push(decision));
                assert_eq!(decisions, expected, "keyed, {kind:?}");
            });
        }
    }
}

// G38, G87
#[test]
fn extreme_quotas_costs_times_do_not_panic() {
    let extremes = [0, 1, 2, 31, 32, 33, 1 << 31, 1 << 32, (1 << 62) + 1, 1 << 63, u64::MAX - 1, u64::MAX];
    for kind in ALL {
        let mut accepted = 0;
        for limit in extremes {
            for period_ns in extremes {
                for burst in extremes {
                    let Some(limiter) = direct(kind, Spec { limit, period_ns, burst }) else { continue };
                    accepted += 1;
                    for now in [0, u64::MAX, 1, 1 << 63, u64::MAX - 1, 1_700_000_000 * SEC] {
                        for cost in [0, 1, burst, burst.wrapping_add(1), limit, u64::MAX] {
                            for decision in
                                [limiter.at(now).peek_n(0, cost), limiter.at(now).check_n(0, cost)]
                            {
                                let _ =
                                    (decision.remaining(), decision.retry_after(), decision.reset_after());
                                let _ = (decision.delay(), decision.limit(), format!("{decision:?}"));
                            }
                        }
                    }
                }
            }
        }
        assert!(accepted > 0, "{kind:?} accepts no extreme quota");
    }
}
