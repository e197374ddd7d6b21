//! The compact store, with room for all keys, agrees with the oracles at every step.
//!
//! Properties, over random operations on a few keys, forward in time and with steps back of less than half the range:
//! - At whole ticks, decisions and all figures equal the oracle's, ties included. For windows this holds at any time.
//! - At any time, decisions and figures equal those of the oracle in ticks, at the tick that contains the time.
//!   So a request that the store denies is denied by the exact oracle too (the store is never late). A request that
//!   the store admits is admitted by the exact oracle within a tick (the store is early by less than a tick).
//!   An interval of length t admits no more than the bound for t plus a tick: the earliness does not add up.
//! - `retry_after` is tight at any time: a request is admitted at that time and denied one nanosecond before.
//! - A tick is at most a 256th of the interval, or at most the interval if the burst is above 2²⁵ units or the rate above
//!   2³¹ a second.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_testing::compact::{Layout, compact};
use tollgate_testing::kinds::{COMPACT, Kind};
use tollgate_testing::laws::{self, Exact, Request};
use tollgate_testing::operations::{ops, run_cases, spec, start};
use tollgate_testing::oracle::{Spec, Verdict};
use tollgate_testing::steps::Op;
use tollgate_testing::subjects::{Subject, verdict};

const KEYS: u32 = 3;

struct Case {
    kind: Kind,
    spec: Spec,
    start: u64,
    ops: Vec<Op>,
    layout: Layout,
}

impl Case {
    /// Moves `now` to within half the range of the case's other times.
    fn within_reach(&self, now: u64) -> u64 {
        let reach = self.layout.reach() / 2;
        now.clamp(self.start.saturating_sub(reach), self.start.saturating_add(reach).min(1 << 62))
    }
}

/// Runs `law` on random cases of one algorithm and asserts that the builder accepts at least half of their quotas.
fn check(kind: Kind, backward: bool, specs: impl Strategy<Value = Spec>, law: impl Fn(&Case, &dyn Subject)) {
    let cases = (specs, start(), ops(KEYS, 60, backward));
    let held = run_cases(kind, 96, &cases, |(spec, start, ops)| {
        let Some(Ok((limiter, layout))) = compact(kind, spec) else { return false };
        law(&Case { kind, spec, start, ops, layout }, &*limiter);
        true
    });
    assert!(held > 0.5, "{kind:?} refused most quotas");
}

/// At whole ticks, the decision and all its figures equal the oracle's.
fn agrees(case: &Case, limiter: &dyn Subject) {
    let &Case { kind, spec, start, .. } = case;
    let mut oracles: Vec<_> = (0..KEYS).map(|_| kind.oracle(spec)).collect();
    let mut now = case.layout.whole(start);
    for op in &case.ops {
        let oracle = &mut *oracles[op.key as usize];
        now = case.layout.whole(case.within_reach(op.step.apply(now, spec, oracle)));
        let cost = op.cost.apply(now, oracle);
        let request = Request { kind, key: op.key, cost, now, at: now, layout: None };
        laws::agrees(limiter, oracle, &request, verdict);
    }
}

/// At any time, the decision and its figures equal those of the oracle in ticks.
/// The exact oracle is charged at the same time for each admitted request. Against it the store is never late, and
/// early by less than a tick.
fn is_early_by_less_than_a_tick(case: &Case, limiter: &dyn Subject) {
    let &Case { kind, spec, start, .. } = case;
    let Layout::Ticks(ticks) = case.layout else { panic!("{kind:?} has ticks") };
    let (per_unit, units) = (ticks.spec(kind, spec).period_ns, u128::from(spec.limit) * 1_000_000_000);
    let is_fast = units > u128::from(spec.period_ns) << 31;
    let is_large = kind != Kind::Spacing && (spec.burst > 1 << 25 || is_fast);
    assert!(per_unit >= 256 || (is_large && per_unit >= 1), "{kind:?} {spec:?}: {ticks:?}");
    // An interval that is not a whole number of nanoseconds is rounded up before it is converted to ticks.
    let is_exact = kind == Kind::Spacing || spec.is_exact();
    let mut exact: Vec<_> = (0..KEYS).map(|_| Exact::new(kind, spec)).collect();
    let mut rounded: Vec<_> = (0..KEYS).map(|_| ticks.oracle(kind, spec)).collect();
    // The tick number may need more than 64 bits. The numbers of one case are counted from `first` and do not.
    let first = ticks.floor(case.within_reach(0));
    let mut now = start;
    for op in &case.ops {
        let (exact, rounded) = (&mut exact[op.key as usize], &mut *rounded[op.key as usize]);
        now = case.within_reach(op.step.apply(now, spec, &*exact.oracle));
        let cost = op.cost.apply(now, &*exact.oracle);
        let before = format!("{cost} at {now} of key {}, {rounded:?}, {ticks:?}, {exact:?}", op.key);
        let at = u64::try_from(ticks.floor(now) - first).expect("within half the range");
        let request = Request { kind, key: op.key, cost, now, at, layout: Some(&case.layout) };
        let mut decision = Verdict::Never;
        laws::agrees(limiter, rounded, &request, |decided| {
            decision = verdict(decided);
            decision
        });
        if decision == Verdict::Never || cost == 0 {
            continue;
        }
        let wait = exact.oracle.retry_after(now, cost).expect("a cost that can conform");
        if decision == Verdict::Denied {
            assert!(!is_exact || wait > 0, "late: {before}");
            continue;
        }
        // After a step back, the time need not be a whole number of intervals before the last charge, and a rounded
        // burst is longer. So this bound holds for exact intervals, or if time did not step back.
        let whole = is_exact || exact.newest().is_none_or(|newest| newest <= now);
        assert!(!whole || wait <= ticks.nanos(1), "more than a tick early: {before}");
        exact.admit(now, cost, ticks.nanos(1));
    }
}

fn figures_are_tight(case: &Case, limiter: &dyn Subject) {
    let &Case { kind, spec, start, .. } = case;
    laws::figures_are_tight(kind, spec, start, &case.ops, limiter, |now| case.within_reach(now));
}

/// Quotas with intervals of whole ticks, or nearly whole ticks.
fn exact_spec(kind: Kind) -> impl Strategy<Value = Spec> {
    let windows = matches!(kind, Kind::Fixed | Kind::Sliding | Kind::SlidingStrict);
    spec().prop_filter("exact", move |spec| windows || kind == Kind::Spacing || spec.is_exact())
}

/// Quotas of bytes: bursts of up to 2³³ units, and rates of up to 2³⁹ a second.
fn bytes() -> impl Strategy<Value = Spec> {
    const SEC: u64 = 1_000_000_000;
    let limit = select(vec![33_554_433, 50_000_000, 333_333_333, SEC, 1_250_000_000, 1 << 32, 1 << 39]);
    let period = select(vec![SEC, SEC, 60 * SEC, 3_600 * SEC]);
    let burst = prop_oneof![
        Just(None),
        (1_u64..=65_536).prop_map(Some),
        select(vec![(1 << 25) - 1, 1 << 25, (1 << 25) + 1, SEC, 1 << 33]).prop_map(Some),
    ];
    (limit, period, burst).prop_map(|(limit, period_ns, burst): (u64, u64, Option<u64>)| {
        Spec::new(limit, period_ns).with_burst(burst.unwrap_or(limit).min(1 << 33))
    })
}

/// The algorithms whose states are times in ticks.
const TICKS: [Kind; 5] = [Kind::Gcra, Kind::Greedy, Kind::Meter, Kind::Queue, Kind::Spacing];

// G4
#[test]
fn compact_decides_as_the_oracle() {
    COMPACT.into_iter().for_each(|kind| check(kind, false, exact_spec(kind), agrees));
}

// G39
#[test]
fn compact_decides_as_oracle_after_time_steps_back() {
    COMPACT.into_iter().for_each(|kind| check(kind, true, exact_spec(kind), agrees));
}

// G23
#[test]
fn compact_figures_are_tight() {
    COMPACT.into_iter().for_each(|kind| check(kind, false, spec(), figures_are_tight));
    TICKS[..4].iter().for_each(|kind| check(*kind, false, bytes(), figures_are_tight));
}

// G5
#[test]
fn early_by_less_than_a_tick() {
    TICKS.into_iter().for_each(|kind| check(kind, false, spec(), is_early_by_less_than_a_tick));
    TICKS[..4].iter().for_each(|kind| check(*kind, false, bytes(), is_early_by_less_than_a_tick));
}

// G5
#[test]
fn never_late_after_time_steps_back() {
    TICKS.into_iter().for_each(|kind| check(kind, true, spec(), is_early_by_less_than_a_tick));
    TICKS[..4].iter().for_each(|kind| check(*kind, true, bytes(), is_early_by_less_than_a_tick));
}
