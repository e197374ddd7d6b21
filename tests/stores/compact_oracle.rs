//! The compact store, with room for all keys, agrees with the oracles at every step.
//!
//! Properties, over random operations on a few keys, forward in time and with steps back of less than half the range:
//! - At whole ticks, decisions and all figures equal the oracle's, ties included. For windows this holds at any time.
//! - At any time, decisions and figures equal those of the oracle in ticks, at the tick that contains the time.
//!   So a request that the store denies is denied by the exact oracle too (the store is never late). A request that
//!   the store admits is admitted by the exact oracle within a tick (the store is early by less than a tick).
//!   An interval of length t admits no more than the bound for t plus a tick: the earliness does not add up.
//! - `retry_after` is tight at any time: a request is admitted at that time and denied one nanosecond before.
//! - A tick is at most a 256th of the interval.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use std::time::Duration;
use tollgate_testing::compact::{Layout, compact};
use tollgate_testing::kinds::Kind;
use tollgate_testing::operations::{config, ops, spec, start};
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
    let (tried, held) = (Cell::new(0_u32), Cell::new(0_u32));
    let cases = (specs, start(), ops(KEYS, 60, backward));
    let result = TestRunner::new(config(96)).run(&cases, |(spec, start, ops)| {
        tried.set(tried.get() + 1);
        if let Some(Ok((limiter, layout))) = compact(kind, spec) {
            held.set(held.get() + 1);
            law(&Case { kind, spec, start, ops, layout }, &*limiter);
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{kind:?}: {failure}");
    }
    assert!(held.get() * 2 > tried.get(), "{kind:?} refused most quotas");
}

fn nanos(wait: u128) -> Duration {
    Duration::from_nanos(u64::try_from(wait).expect("a wait of less than 584 years"))
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
        let before = format!("{cost} at {now} of key {}, {oracle:?}", op.key);

        let delay = oracle.delay(now.into());
        let wait = oracle.retry_after(now, cost).map(nanos);
        let peeked = limiter.at(now).peek_n(op.key, cost);
        let decided = limiter.at(now).check_n(op.key, cost);
        let expected = oracle.offer(now, cost);

        assert_eq!(verdict(&peeked), expected, "outcome of the peek for {before}");
        assert_eq!(verdict(&decided), expected, "outcome of {before}");
        assert_eq!(decided.cost(), cost, "{before}");
        assert_eq!(peeked.retry_after(), wait, "retry_after of the peek for {before}");
        assert_eq!(decided.retry_after(), wait, "retry_after of {before}");
        if expected == Verdict::Allowed && cost > 0 {
            assert_eq!(decided.delay(), nanos(delay), "delay of {before}");
        }
        if kind != Kind::Spacing {
            assert_eq!(decided.limit(), oracle.capacity(), "limit of {before}");
            assert_eq!(decided.remaining(), oracle.remaining(now), "remaining of {before}");
            let peeked = limiter.at(now).peek_n(op.key, 0).remaining();
            assert_eq!(peeked, oracle.remaining(now), "peek after {before}");
        }
        // A window count is rounded down, so its last part becomes zero before the window ends. Either time is right.
        let reset = nanos(oracle.reset_after(now));
        assert!(
            decided.reset_after() == reset || kind == Kind::Sliding && decided.reset_after() > reset,
            "{before}: {decided:?}, expected {reset:?}"
        );
    }
}

/// At any time, the decision and its figures equal those of the oracle in ticks.
/// The exact oracle is charged at the same time for each admitted request. Against it the store is never late, and
/// early by less than a tick.
fn is_early_by_less_than_a_tick(case: &Case, limiter: &dyn Subject) {
    let &Case { kind, spec, start, .. } = case;
    let Layout::Ticks(ticks) = case.layout else { panic!("{kind:?} has ticks") };
    assert!(ticks.spec(kind, spec).period_ns >= 256, "{kind:?} {spec:?}: {ticks:?}");
    // An interval that is not a whole number of nanoseconds is rounded up before it is converted to ticks.
    let is_exact = kind == Kind::Spacing || spec.is_exact();
    let mut exact: Vec<_> = (0..KEYS).map(|_| (kind.oracle(spec), Vec::<(u64, u64)>::new())).collect();
    let mut rounded: Vec<_> = (0..KEYS).map(|_| ticks.oracle(kind, spec)).collect();
    // The tick number may need more than 64 bits. The numbers of one case are counted from `first` and do not.
    let first = ticks.floor(case.within_reach(0));
    let mut now = start;
    for op in &case.ops {
        let rounded = &mut *rounded[op.key as usize];
        let (exact, admitted) = &mut exact[op.key as usize];
        now = case.within_reach(op.step.apply(now, spec, &**exact));
        let cost = op.cost.apply(now, &**exact);
        let before = format!("{cost} at {now} of key {}, {rounded:?}, {ticks:?}", op.key);
        let tick = ticks.floor(now);
        let at = u64::try_from(tick - first).expect("within half the range");
        let until = |wait: u128| if wait == 0 { 0 } else { ticks.until(now, tick + wait) };

        let delay = until(rounded.delay(at.into()));
        let wait = rounded.retry_after(at, cost).map(until).map(nanos);
        let decided = limiter.at(now).check_n(op.key, cost);
        let expected = rounded.offer(at, cost);
        assert_eq!(verdict(&decided), expected, "outcome of {before}");
        assert_eq!(decided.retry_after(), wait, "retry_after of {before}");
        if expected == Verdict::Allowed && cost > 0 {
            assert_eq!(decided.delay(), nanos(delay), "delay of {before}");
        }
        if kind != Kind::Spacing {
            assert_eq!(decided.remaining(), rounded.remaining(at), "remaining of {before}");
        }
        assert_eq!(decided.reset_after(), nanos(until(rounded.reset_after(at))), "{before}");

        if decided.is_never() || cost == 0 {
            continue;
        }
        let wait = exact.retry_after(now, cost).expect("a cost that can conform");
        if decided.is_denied() {
            assert!(!is_exact || wait > 0, "late: {before}, {exact:?}");
            continue;
        }
        // After a step back, the time need not be a whole number of intervals before the last charge, and a rounded
        // burst is longer. So this bound holds for exact intervals, or if time did not step back.
        let whole = is_exact || admitted.last().is_none_or(|&(newest, _)| newest <= now);
        assert!(!whole || wait <= ticks.nanos(1), "more than a tick early: {before}, {exact:?}");
        exact.charge(now.into(), cost);
        // The oracle keeps the newest time when a time steps back.
        let held = admitted.last().map_or(now, |&(newest, _)| now.max(newest));
        admitted.push((held, if kind == Kind::Spacing { 1 } else { cost }));
        let mut sum = 0;
        for &(from, cost) in admitted.iter().rev() {
            sum += u128::from(cost);
            let bound = exact.most_in(u128::from(held - from) + ticks.nanos(1));
            assert!(sum <= bound, "{sum} > {bound} from {from} to {held}: {before}");
        }
    }
}

/// The figures in a decision hold for later decisions of the same limiter. The oracle only helps to choose times.
fn check_figures_are_tight(case: &Case, limiter: &dyn Subject) {
    let &Case { kind, spec, start, .. } = case;
    let mut oracles: Vec<_> = (0..KEYS).map(|_| kind.oracle(spec)).collect();
    let mut now = start;
    for op in &case.ops {
        let oracle = &mut *oracles[op.key as usize];
        now = case.within_reach(op.step.apply(now, spec, oracle));
        let cost = op.cost.apply(now, oracle);
        oracle.offer(now, cost);
        let decision = limiter.at(now).check_n(op.key, cost);
        let peek = |cost, at| limiter.at(at).peek_n(op.key, cost);
        let after = |wait: Duration| now + u64::try_from(wait.as_nanos()).expect("centuries");
        match decision.retry_after() {
            None => assert!(decision.is_never()),
            Some(wait) if decision.is_denied() => {
                assert!(wait > Duration::ZERO, "{op:?} at {now}: denied with a wait of zero");
                assert!(peek(cost, after(wait)).is_allowed(), "{op:?} at {now}: still denied after {wait:?}");
                assert!(peek(cost, after(wait) - 1).is_denied(), "{op:?} at {now}: admitted before {wait:?}");
            }
            Some(wait) => assert_eq!(wait, Duration::ZERO),
        }
        if kind != Kind::Spacing {
            let remaining = decision.remaining();
            assert!(peek(remaining, now).is_allowed(), "{op:?} at {now}: fewer than {remaining} remain");
            assert!(peek(remaining + 1, now).is_denied(), "{op:?} at {now}: more than {remaining} remain");
            let full = peek(0, after(decision.reset_after()));
            assert_eq!(full.remaining(), full.limit(), "{op:?} at {now}: {full:?} is not the full quota");
            assert_eq!(full.reset_after(), Duration::ZERO, "{op:?} at {now}: {full:?} is not the full quota");
        }
    }
}

/// Quotas with intervals of whole ticks, or nearly whole ticks.
fn exact_spec(kind: Kind) -> impl Strategy<Value = Spec> {
    let windows = matches!(kind, Kind::Fixed | Kind::Sliding | Kind::SlidingStrict);
    spec().prop_filter("exact", move |spec| windows || kind == Kind::Spacing || spec.is_exact())
}

macro_rules! laws {
    ($($name:ident: $kind:expr,)*) => {$(
        mod $name {
            use super::*;

            // G4
            #[test]
            fn decides_as_the_oracle() {
                check($kind, false, exact_spec($kind), agrees);
            }

            // G39
            #[test]
            fn decides_as_oracle_after_time_steps_back() {
                check($kind, true, exact_spec($kind), agrees);
            }

            // G23
            #[test]
            fn figures_are_tight() {
                check($kind, false, spec(), check_figures_are_tight);
            }
        }
    )*};
}

laws! {
    gcra: Kind::Gcra,
    token_bucket: Kind::Greedy,
    leaky_bucket_meter: Kind::Meter,
    leaky_bucket_queue: Kind::Queue,
    minimum_spacing: Kind::Spacing,
    fixed_window: Kind::Fixed,
    sliding_window: Kind::Sliding,
    sliding_window_strict: Kind::SlidingStrict,
}

macro_rules! laws_of_ticks {
    ($($name:ident: $kind:expr,)*) => {$(
        mod $name {
            use super::*;

            // G5
            #[test]
            fn early_by_less_than_a_tick() {
                check($kind, false, spec(), is_early_by_less_than_a_tick);
            }

            // G5
            #[test]
            fn never_late_after_time_steps_back() {
                check($kind, true, spec(), is_early_by_less_than_a_tick);
            }
        }
    )*};
}

laws_of_ticks! {
    gcra_between_ticks: Kind::Gcra,
    token_bucket_between_ticks: Kind::Greedy,
    leaky_bucket_meter_between_ticks: Kind::Meter,
    leaky_bucket_queue_between_ticks: Kind::Queue,
    minimum_spacing_between_ticks: Kind::Spacing,
}
