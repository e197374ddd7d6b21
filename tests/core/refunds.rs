//! Refunds never create units: without the refunded charges, the admitted units stay within the bound.
//!
//! A *ledger* lists all charges in the order of their effects, with the units refunded from each. An oracle that
//! replays the ledger without those units shows the state in which they were never charged.
//!
//! The properties hold for random quotas, costs, times and forced charges. Refunds take any charges in any order,
//! whole or in part, each once.
//! 1. That oracle admits everything that the limiter admits, so every interval stays within the algorithm's bound,
//!    whatever the bound is. Periods from first use are the exception, because the oracle may start them at other
//!    times. For those algorithms the test counts the units of each interval.
//! 2. Arrival times equal the documented rule to the tick. A refund reduces the arrival time by the refunded units,
//!    or by the unpaid rest of the charge if that is less.
//! 3. A refund at the time of its charge, with no charge in between, restores the state before the charge.
//! 4. A refund dated before later charges may return too much, but at most the units that the time in between pays.
//! 5. A window refunds a charge as long as its window or sub-window lasts, and nothing afterwards.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::{
    Algorithm, Decision, Gcra, Limit, ManualClock, Quota, RateLimiter, StoreKind, SubWindow, Timestamp,
};
use tollgate_testing::compact::{Layout, Ticks, compact};
use tollgate_testing::kinds::{ALL, COMPACT, Kind};
use tollgate_testing::laws::all_are_within;
use tollgate_testing::ledger::{Charge, Operation, check_no_units_created, chosen, make};
use tollgate_testing::operations::{ops_with, run_cases, short_spec, start};
use tollgate_testing::oracle::Spec;
use tollgate_testing::steps::{Op, within_reach};
use tollgate_testing::subjects::{Subject, direct, keyed};

const KEYS: u32 = 2;

fn verb() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => Just(Operation::Check),
        1 => Just(Operation::Force),
        1 => Just(Operation::Take),
        3 => (any::<u64>(), 1_u64..=16).prop_map(|(index, share)| Operation::Refund(index, share)),
        1 => (1_u64..=16).prop_map(Operation::RefundLast),
    ]
}

fn verbs(keys: u32, backward: bool) -> impl Strategy<Value = Vec<(Op, Operation)>> {
    ops_with(keys, 60, backward, verb())
}

/// Checks that in no interval the charges without their refunds exceed the bound.
fn within_the_bound(kind: Kind, spec: Spec, start: u64, ops: &[(Op, Operation)], limiter: &dyn Subject) {
    let oracle = kind.oracle(spec);
    let mut ledger = Vec::<Charge>::new();
    let mut now = start;
    for &(op, verb) in ops {
        now = within_reach(op.step.apply(now, spec, &*oracle), start, kind, spec);
        if let Some((charge, units)) = chosen(&mut ledger, verb) {
            charge.refunded = true;
            charge.back = limiter.at(now).refund_n(0, &charge.decision, units);
        } else {
            let cost = op.cost.apply(now, &*kind.oracle(spec));
            // Forced charges may exceed any bound, so they become checks here.
            let verb = if matches!(verb, Operation::Force) { Operation::Check } else { verb };
            let decision = make(limiter, verb, 0, cost, now);
            if decision.is_allowed() && decision.cost() > 0 {
                ledger.push(Charge { decision, now, back: 0, refunded: false });
            }
        }
        let kept = |charge: &Charge| (charge.now, charge.decision.cost() - charge.back);
        all_are_within(&ledger.iter().map(kept).collect::<Vec<_>>(), |t| oracle.most_in(t), &ledger);
    }
}

fn nth(index: u64, length: usize) -> usize {
    usize::try_from(index % length as u64).expect("an index below a length")
}

/// The unit of an arrival time: a fraction of a nanosecond, or a tick.
#[derive(Copy, Clone, Debug)]
enum Scale {
    Fractions { num: u128, den: u128 },
    Ticks { ticks: Ticks, unit: u128 },
}

impl Scale {
    fn unit(self) -> u128 {
        match self {
            Self::Fractions { num, .. } => num,
            Self::Ticks { unit, .. } => unit,
        }
    }

    fn at(self, now: u64) -> u128 {
        match self {
            Self::Fractions { den, .. } => u128::from(now) * den,
            Self::Ticks { ticks, .. } => ticks.floor(now),
        }
    }

    /// Returns the time from `now` to a time in this unit.
    fn until(self, now: u64, time: u128) -> Duration {
        let ns = match self {
            Self::Fractions { den, .. } => time.saturating_sub(self.at(now)).div_ceil(den),
            Self::Ticks { ticks, .. } if time > ticks.floor(now) => ticks.until(now, time),
            Self::Ticks { .. } => 0,
        };
        Duration::from_nanos(u64::try_from(ns).expect("a wait of at most months"))
    }
}

/// One charge of an arrival time: its time, the duration of its units, and the refunded part of that duration.
#[derive(Copy, Clone, Debug)]
struct Span {
    decision: Decision,
    at: u128,
    took: u128,
    unit: u128,
    back: u128,
    refunded: bool,
}

/// An arrival time by the documented rule, and the charges that led to it.
#[derive(Clone, Debug, Default)]
struct Line {
    arrival: u128,
    spans: Vec<Span>,
}

impl Line {
    fn charge(&mut self, decision: Decision, at: u128, unit: u128) {
        let took = u128::from(decision.cost()) * unit;
        self.arrival = self.arrival.max(at) + took;
        self.spans.push(Span { decision, at, took, unit, back: 0, refunded: false });
    }

    /// Returns the arrival time if the refunded units had never been charged.
    fn without(&self) -> u128 {
        self.spans
            .iter()
            .filter(|span| span.back < span.took)
            .fold(0, |arrival: u128, span| arrival.max(span.at) + (span.took - span.back))
    }

    /// Refunds up to `units` of a charge, at most its unpaid rest. Returns the refunded units.
    fn refund(&mut self, place: usize, units: u64, at: u128) -> u64 {
        let span = &mut self.spans[place];
        let left = span.took.saturating_sub(at.saturating_sub(span.at));
        let back = left.min(u128::from(units) * span.unit).min(self.arrival.saturating_sub(at));
        span.refunded = true;
        span.back = back;
        if back > 0 {
            self.arrival -= back;
        }
        u64::try_from(back.div_ceil(span.unit)).expect("at most the requested units")
    }
}

/// Checks arrival times to the tick. `tiers` makes a call under another quota and returns its decision, the duration
/// of one of its units, and its burst.
fn check_arrival_times(
    scale: Scale,
    start: u64,
    ops: &[(Op, Operation)],
    spec: Spec,
    limiter: &dyn Subject,
    tiers: &dyn Fn(u32, u64, u64) -> Option<(Decision, u128, u64)>,
) {
    let mut lines = vec![Line::default(); KEYS as usize];
    let chooser = Kind::Gcra.oracle(spec);
    let (mut now, mut newest) = (start, start);
    for (number, &(op, verb)) in ops.iter().enumerate() {
        now = op
            .step
            .apply(now, spec, &*chooser)
            .clamp(start.saturating_sub(1 << 50).max(1), start + (1 << 50));
        newest = newest.max(now);
        let line = &mut lines[op.key as usize];
        if !limiter.holds(op.key) {
            *line = Line::default();
        }
        let place = match verb {
            Operation::Refund(index, _) if !line.spans.is_empty() => Some(nth(index, line.spans.len())),
            Operation::RefundLast(_) => line.spans.len().checked_sub(1),
            _ => None,
        };
        let share =
            if let Operation::Refund(_, share) | Operation::RefundLast(share) = verb { share } else { 0 };
        let before = format!("{verb:?} at {now} of {line:?}");
        match place {
            Some(place) if line.spans[place].refunded => {}
            Some(place) => {
                let decision = line.spans[place].decision;
                let units = u128::from(decision.cost()) * u128::from(share);
                let units = u64::try_from(units.div_ceil(16)).expect("a share is at most the whole");
                let expected = line.refund(place, units, scale.at(newest));
                let back = limiter.at(newest).refund_n(op.key, &decision, units);
                assert_eq!(back, expected, "{before}");
            }
            None => {
                let cost = op.cost.apply(now, &*chooser).min(spec.burst.saturating_mul(2));
                let tier = if number % 3 == 0 { tiers(op.key, cost, now) } else { None };
                let (decision, unit, burst) = match tier {
                    Some(tier) => tier,
                    None => (make(limiter, verb, op.key, cost, now), scale.unit(), spec.burst),
                };
                if decision.is_allowed() && decision.cost() > 0 {
                    line.charge(decision, scale.at(now), unit);
                    if tier.is_some() || !matches!(verb, Operation::Force) {
                        let room = scale.at(now) + u128::from(burst) * unit;
                        assert!(line.without() <= room, "units were created: {before}, {decision:?}");
                        assert!(line.arrival <= room, "{before}, {decision:?}");
                    }
                }
            }
        }
        let reset = limiter.at(newest).peek_n(op.key, 0).reset_after();
        assert_eq!(reset, scale.until(newest, line.arrival), "{before}: now {line:?}");
        let (arrival, without) = (line.arrival.max(scale.at(newest)), line.without());
        assert!(arrival >= without, "units were created: {before}: {line:?}");
    }
}

fn each<T: std::fmt::Debug>(kind: Kind, cases: impl Strategy<Value = T>, law: impl Fn(T)) {
    run_cases(kind, 96, &cases, |case| {
        law(case);
        true
    });
}

/// Starts after time zero. A state in fractions shifts time zero by one, because zero stands for a key that was never
/// seen.
fn from() -> impl Strategy<Value = u64> {
    start().prop_map(|start| start.max(1))
}

fn is_from_first_use(kind: Kind) -> bool {
    matches!(kind, Kind::Interval | Kind::FirstUse)
}

// G44
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn refunds_never_create_units() {
    for kind in ALL.into_iter().filter(|kind| !is_from_first_use(*kind)) {
        each(kind, (short_spec(kind), from(), verbs(1, true)), |(spec, start, ops)| {
            if let Some(limiter) = direct(kind, spec) {
                check_no_units_created(kind, spec, start, u64::MAX, &ops, &*limiter);
            }
        });
        each(kind, (short_spec(kind), from(), verbs(KEYS, false)), |(spec, start, ops)| {
            if let Some(limiter) = keyed(kind, spec) {
                check_no_units_created(kind, spec, start, u64::MAX, &ops, &*limiter);
            }
        });
    }
}

// G44
#[test]
fn compact_window_refunds_never_create_units() {
    for kind in [Kind::Fixed, Kind::Sliding, Kind::SlidingStrict] {
        each(kind, (short_spec(kind), from(), verbs(KEYS, true)), |(spec, start, ops)| {
            if let Some(Ok((limiter, layout))) = compact(kind, spec) {
                check_no_units_created(kind, spec, start, layout.reach() / 2, &ops, &*limiter);
            }
        });
    }
}

#[test]
fn first_use_refunds_stay_within_bound() {
    for kind in [Kind::Interval, Kind::FirstUse] {
        each(kind, (short_spec(kind), from(), verbs(1, false)), |(spec, start, ops)| {
            if let Some(limiter) = direct(kind, spec) {
                within_the_bound(kind, spec, start, &ops, &*limiter);
            }
        });
    }
}

/// Charges one key, and refunds each charge once, at random times that do not decrease.
fn check_window_refunds(
    kind: Kind,
    spec: Spec,
    (start, reach): (u64, u64),
    ops: &[(Op, Operation)],
    limiter: &dyn Subject,
) {
    let oracle = kind.oracle(spec);
    let window_ns = match kind {
        Kind::Sub(parts) | Kind::SubStrict(parts) => spec.period_ns.div_ceil(u64::from(parts)),
        _ => spec.period_ns,
    };
    let (mut now, mut ledger) = (start, Vec::<Charge>::new());
    for &(op, verb) in ops {
        now = within_reach(op.step.apply(now, spec, &*oracle), start, kind, spec).min(start + reach);
        let Some((charge, units)) = chosen(&mut ledger, verb) else {
            let decision = make(limiter, verb, 0, op.cost.apply(now, &*oracle), now);
            if decision.is_allowed() && decision.cost() > 0 {
                ledger.push(Charge { decision, now, back: 0, refunded: false });
            }
            continue;
        };
        charge.refunded = true;
        let is_present = now / window_ns == charge.now / window_ns;
        let expected = if is_present { units.min(charge.decision.cost()) } else { 0 };
        let back = limiter.at(now).refund_n(0, &charge.decision, units);
        assert_eq!(back, expected, "{kind:?} {spec:?}: at {now}, {charge:?}");
    }
}

/// Time pays a charge at the end of its window or sub-window, in every store.
// G44
#[test]
fn windows_refund_until_the_window_of_the_charge_ends() {
    use Kind::{Fixed, Sliding, SlidingStrict, Sub, SubStrict};
    for kind in [Fixed, Sliding, SlidingStrict, Sub(1), Sub(6), SubStrict(1), SubStrict(6)] {
        each(kind, (short_spec(kind), from(), verbs(1, false)), |(spec, start, ops)| {
            for limiter in [direct(kind, spec), keyed(kind, spec)].into_iter().flatten() {
                check_window_refunds(kind, spec, (start, 1 << 60), &ops, &*limiter);
            }
            if matches!(kind, Fixed | Sliding | SlidingStrict)
                && let Some(Ok((limiter, layout))) = compact(kind, spec)
            {
                check_window_refunds(kind, spec, (start, layout.reach() / 2), &ops, &*limiter);
            }
        });
    }
}

/// A sub-window refunded as long as no later charge had begun another one, so a charge in a window of a second was
/// refunded a minute later. A window of one part counts as a fixed window, but refunded more.
// G44
#[test]
fn passed_window_refunds_nothing() {
    use StoreKind::{Compact, Keyed};
    let quota = Quota::per_second(5);
    let second = |second: u64| Timestamp::from_secs(1_000 + second);
    let typed = RateLimiter::builder(SubWindow::new(quota, 1)).keyed::<u64>();
    let charge = typed.at(second(0)).check_n(&1, 3);
    assert_eq!(typed.at(second(1)).refund(&1, &charge), 0);
    assert_eq!(typed.at(second(60)).refund(&1, &charge), 0);
    let limits = ["sub-window(1) 5/s", "sub-window(4) 5/s", "sliding-window 5/s", "fixed-window 5/s"];
    for (limit, store) in limits.into_iter().flat_map(|limit| [(limit, Compact), (limit, Keyed)]) {
        let Ok(any) = RateLimiter::any(limit.parse::<Limit>().unwrap()).build::<u64>(store) else {
            assert_eq!((limit, store), ("sub-window(4) 5/s", Compact));
            continue;
        };
        let charge = any.at(second(0)).check_n(&1, 3);
        assert_eq!(any.at(second(60)).refund(&1, &charge), 0, "{limit}");
        assert_eq!(any.at(second(60)).peek(&1).remaining(), 5, "{limit}");
    }
}

// G44
#[test]
fn arrival_times_are_exact() {
    for kind in [Kind::Gcra, Kind::Greedy, Kind::Meter] {
        let none = |_: u32, _: u64, _: u64| None;
        each(kind, (short_spec(kind), from(), verbs(1, true)), |(spec, start, ops)| {
            let (num, den) = spec.interval();
            let limiter = direct(kind, spec).expect("every quota is accepted");
            check_arrival_times(Scale::Fractions { num, den }, start, &ops, spec, &*limiter, &none);
        });
        each(kind, (short_spec(kind), from(), verbs(KEYS, true)), |(spec, start, ops)| {
            if let Some(Ok((limiter, layout))) = compact(kind, spec)
                && layout.reach() > 1 << 52
                && let Layout::Ticks(ticks) = layout
            {
                let start = start.max(1 << 50);
                let unit = ticks.interval(spec);
                check_arrival_times(Scale::Ticks { ticks, unit }, start, &ops, spec, &*limiter, &none);
            }
        });
    }
}

/// Every third call uses another quota, whose interval is in the same fractions of a nanosecond.
#[test]
fn arrival_times_of_two_quotas_are_exact() {
    let specs = (short_spec(Kind::Gcra), 1_u64..=20, 1_u64..=20);
    each(Kind::Gcra, (specs, from(), verbs(1, true)), |((spec, times, burst), start, ops)| {
        let (num, den) = spec.interval();
        let own = Gcra::new(Quota::new(spec.limit, Duration::from_nanos(spec.period_ns)).burst(spec.burst));
        let slower = Quota::new(spec.limit, Duration::from_nanos(spec.period_ns * times)).burst(burst);
        let other = own.requota(&slower).expect("the quota fits the same state");
        let limiter = RateLimiter::builder(own).clock(ManualClock::new(Timestamp::ZERO)).direct();
        let tiers = |_: u32, cost: u64, now: u64| {
            let decision = limiter.at(Timestamp::from_nanos(now)).check_with(cost, &other);
            Some((decision, num * u128::from(times), burst))
        };
        check_arrival_times(Scale::Fractions { num, den }, start, &ops, spec, &limiter, &tiers);
    });
}

/// Returns figures that determine the state.
fn figures(limiter: &dyn Subject, key: u32, now: u64) -> (u64, Duration) {
    let state = limiter.at(now).peek_n(key, 0);
    (state.remaining(), state.reset_after())
}

/// Checks that a refund at once, with no charge in between, restores the state. Checks also that a settlement at once
/// equals a charge of the true cost.
fn check_refund_restores_state(
    kind: Kind,
    spec: Spec,
    start: u64,
    ops: &[(Op, Operation)],
    pair: [&dyn Subject; 2],
) {
    let [limiter, other] = pair;
    let chooser = kind.oracle(spec);
    let mut now = start;
    for &(op, verb) in ops {
        now = within_reach(op.step.apply(now, spec, &*chooser), start, kind, spec);
        let cost = op.cost.apply(now, &*chooser).min(chooser.capacity().saturating_mul(2));
        let before = figures(limiter, 0, now);
        let decision = make(limiter, verb, 0, cost, now);
        let said = format!("{kind:?} {spec:?}: {verb:?} of {cost} at {now}: {decision:?}");
        let back = limiter.at(now).refund_n(0, &decision, u64::MAX);
        let charged = if decision.is_allowed() { decision.cost() } else { 0 };
        assert_eq!(back, charged, "{said}");
        assert_eq!(figures(limiter, 0, now), before, "{said}");
        assert_eq!(
            limiter.at(now).refund_n(0, &limiter.at(now).peek_n(0, cost), cost),
            0,
            "a peek has nothing to refund: {said}"
        );
        if matches!(kind, Kind::Adaptive(_)) {
            // A key that was seen has more units than a key that first comes late in its first period.
            continue;
        }
        // This charge is settled instead, and must equal a single charge of the true cost.
        let decision = make(limiter, verb, 0, cost, now);
        let actual = cost.min(chooser.capacity()) / 2;
        if decision.is_allowed() && kind != Kind::Spacing {
            let settled = limiter.at(now).settle(0, &decision, actual);
            let _ = other.at(now).charge_unchecked(0, actual);
            assert_eq!(figures(limiter, 0, now), figures(other, 0, now), "{said}");
            assert_eq!((settled.remaining(), settled.reset_after()), figures(limiter, 0, now), "{said}");
        } else if decision.is_allowed() {
            let _ = other.at(now).charge_unchecked(0, cost);
        }
    }
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn immediate_refund_restores_state() {
    for kind in ALL.into_iter().filter(|kind| *kind != Kind::Log) {
        each(kind, (short_spec(kind), from(), verbs(1, false)), |(spec, start, ops)| {
            if let (Some(one), Some(other)) = (direct(kind, spec), direct(kind, spec)) {
                check_refund_restores_state(kind, spec, start, &ops, [&*one, &*other]);
            }
        });
    }
    for kind in COMPACT {
        each(kind, (short_spec(kind), from(), verbs(1, false)), |(spec, start, ops)| {
            if let (Some(Ok((one, layout))), Some(Ok((other, _)))) =
                (compact(kind, spec), compact(kind, spec))
            {
                let ops = ops.into_iter().take_while(|_| layout.reach() > 1 << 59).collect::<Vec<_>>();
                check_refund_restores_state(kind, spec, start, &ops, [&*one, &*other]);
            }
        });
    }
}

/// A refund dated before other charges returns too much by at most the length of the step.
// G44
#[test]
fn early_refund_overpays_at_most_the_step() {
    let cases = (short_spec(Kind::Gcra), from(), verbs(1, false), 0_u64..1 << 40);
    each(Kind::Gcra, cases, |(spec, start, ops, step)| {
        let (num, den) = spec.interval();
        let limiter = direct(Kind::Gcra, spec).expect("every quota is accepted");
        let chooser = Kind::Gcra.oracle(spec);
        let (mut line, mut now, mut more) = (Line::default(), start, 0);
        for (op, verb) in ops {
            now = op.step.apply(now, spec, &*chooser).min(start + (1 << 50));
            let place = match verb {
                Operation::Refund(index, _) if !line.spans.is_empty() => nth(index, line.spans.len()),
                _ => {
                    let cost = op.cost.apply(now, &*chooser).min(spec.burst);
                    let decision = limiter.at(now).check_n(0, cost);
                    if decision.is_allowed() && cost > 0 {
                        line.charge(decision, u128::from(now) * den, num);
                    }
                    continue;
                }
            };
            let Span { decision, refunded: false, .. } = line.spans[place] else { continue };
            // Compares the refund at the true time with the refund at the earlier time.
            let earlier = now.saturating_sub(step).max(decision.at().as_nanos());
            let mut punctual = line.clone();
            punctual.refund(place, decision.cost(), u128::from(now) * den);
            line.refund(place, decision.cost(), u128::from(earlier) * den);
            limiter.at(earlier).refund_n(0, &decision, decision.cost());
            let stepped = u128::from(now - earlier) * den;
            assert!(line.arrival + stepped >= punctual.arrival, "{step} before {now}: {line:?}");
            more += stepped;
            assert!(line.arrival.max(u128::from(now) * den) + more >= line.without(), "{line:?}");
        }
    });
}
