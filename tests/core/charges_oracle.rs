//! Compares `charge_unchecked`, `take`, `reserve`, `give_back` and
//! `check_oversized` with the oracles, on direct, keyed and compact limiters.
//!
//! The properties hold for random quotas, costs and times. For direct limiters the times also step back.
//! 1. `charge_unchecked` never denies. It charges its whole cost if the state can hold it. If not, it charges as many
//!    units as the state can hold, and at least the remaining units. Later denials and their waits equal those of an
//!    oracle in debt.
//! 2. `take` equals a check if the check is admitted. Otherwise it charges exactly the remaining units, and is
//!    denied if and only if none remain.
//! 3. `reserve` is admitted if and only if its turn comes within the wait. Its delay ends when the oracle admits the
//!    cost, and it charges immediately. A denied reservation changes nothing. Window counts and logs decide a
//!    reservation as a check.
//! 4. `give_back` takes back the last units that the oracle owes, and never more than it owes.
//! 5. `check_oversized` admits a cost above the burst if and only if the whole burst is free and the state can hold the
//!    debt. It then equals `charge_unchecked`. Otherwise its wait is that of a whole burst.
//! 6. After each operation all figures equal the oracle's.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::{Capacity, Decision, ManualClock, RateLimiter, Timestamp};
use tollgate_testing::compact::{COMPACT, Layout, Seeded};
use tollgate_testing::kinds::{ALL, Kind};
use tollgate_testing::operations::{exact_spec, ops, run_cases, short_spec, start};
use tollgate_testing::oracle::{Oracle, Spec, Verdict};
use tollgate_testing::steps::{Op, within_reach};
use tollgate_testing::subjects::{Subject, direct, keyed, verdict};

const KEYS: u32 = 3;

#[derive(Copy, Clone, Debug)]
enum Operation {
    Check,
    Force,
    Take,
    /// Reserves with a wait that is just shorter than the turn's, equal to it, or longer; or with no wait or an
    /// unlimited one.
    Reserve(Wait),
    GiveBack,
    Oversized,
}

#[derive(Copy, Clone, Debug)]
enum Wait {
    None,
    Short,
    Exact,
    Long(u64),
    Any,
}

fn verb() -> impl Strategy<Value = Operation> {
    let wait = prop_oneof![
        1 => Just(Wait::None),
        3 => Just(Wait::Short),
        3 => Just(Wait::Exact),
        1 => (1_u64..=1 << 40).prop_map(Wait::Long),
        1 => Just(Wait::Any),
    ];
    prop_oneof![3 => Just(Operation::Check), 2 => Just(Operation::Force), 2 => Just(Operation::Take), 4 => wait.prop_map(Operation::Reserve), 2 => Just(Operation::GiveBack), 3 => Just(Operation::Oversized)]
}

fn verbs(keys: u32, backward: bool) -> impl Strategy<Value = Vec<(Op, Operation)>> {
    ops(keys, 50, backward).prop_flat_map(|ops| {
        let length = ops.len();
        (Just(ops), prop::collection::vec(verb(), length))
            .prop_map(|(ops, verbs)| ops.into_iter().zip(verbs).collect())
    })
}

/// What the states of a store can hold, and how the store reads times.
struct Reading {
    kind: Kind,
    spec: Spec,
    layout: Option<Layout>,
    first: u128,
}

impl Reading {
    fn oracle(&self) -> Box<dyn Oracle> {
        match &self.layout {
            Some(Layout::Ticks(ticks)) => ticks.oracle(self.kind, self.spec),
            _ => self.kind.oracle(self.spec),
        }
    }

    /// Converts a time to the oracle's unit.
    fn at(&self, now: u64) -> u64 {
        match &self.layout {
            Some(Layout::Ticks(ticks)) => {
                u64::try_from(ticks.floor(now) - self.first).expect("a time within half the range")
            }
            _ => now,
        }
    }

    /// Converts a wait from the oracle's unit to nanoseconds.
    fn wait(&self, now: u64, wait: u128) -> u64 {
        let wait = match &self.layout {
            Some(Layout::Ticks(ticks)) if wait > 0 => ticks.until(now, ticks.floor(now) + wait),
            _ => wait,
        };
        u64::try_from(wait).unwrap_or(u64::MAX)
    }

    /// Returns the largest debt of a compact state in ticks, and the ticks of one unit. Returns `None` for states
    /// that do not count ticks.
    fn horizon(&self) -> Option<(u128, u128)> {
        match &self.layout {
            Some(Layout::Ticks(ticks)) => {
                Some((ticks.horizon, ticks.spec(self.kind, self.spec).period_ns.into()))
            }
            _ => None,
        }
    }

    /// Returns whether a 64-bit state may be near its largest debt.
    ///
    /// For the bucket family this is four years of fractions of a nanosecond, reached after a step back of years. For
    /// buckets refilled in batches it is the largest count that fits in the word beside the period's index, or beside
    /// steps.
    fn is_full(&self, oracle: &dyn Oracle, at: u64, cost: u64) -> bool {
        let Spec { period_ns, burst, .. } = self.spec;
        match self.kind {
            Kind::Interval => burst > 1 << 15,
            Kind::Aligned(_) | Kind::Adaptive(_) => burst.saturating_mul(200) > period_ns,
            kind if kind.is_bucket_family() => {
                let (num, den) = self.spec.interval();
                den > 1 && (owed(oracle, at) + 1) * den + u128::from(cost) * num > 1 << 62
            }
            _ => false,
        }
    }

    /// Returns how many units of `cost` a state with this debt can hold. Returns `None` where the limit is not
    /// specified.
    fn holds(&self, oracle: &dyn Oracle, at: u64, cost: u64) -> Option<u64> {
        let (horizon, unit) = self.horizon()?;
        let room = horizon.saturating_sub(owed(oracle, at)) / unit;
        Some(match self.kind {
            Kind::Spacing if room == 0 => 0,
            Kind::Spacing => cost,
            _ => cost.min(u64::try_from(room).expect("a horizon is short")),
        })
    }
}

/// Returns the debt in the oracle's unit of time. (It does not work for spacing, whose capacity has no limit.)
fn owed(oracle: &dyn Oracle, at: u64) -> u128 {
    oracle.retry_after(at, oracle.capacity()).expect("the capacity is admitted in the end")
}

/// Returns whether the algorithm can tell when a charge made now will conform.
fn predicts_conforming_time(kind: Kind) -> bool {
    kind.is_bucket_family()
        || matches!(kind, Kind::Interval | Kind::Aligned(_) | Kind::Adaptive(_) | Kind::Spacing)
}

/// Returns the delay that `charge_unchecked` must report: the time until the debt is paid.
fn debt_delay(kind: Kind, before: &dyn Oracle, after: &dyn Oracle, at: u64) -> u128 {
    match kind {
        Kind::Queue => before.delay(at.into()),
        Kind::Spacing => before.retry_after(at, 1).expect("an event is admitted in the end"),
        Kind::Sliding | Kind::SlidingStrict | Kind::Sub(_) | Kind::SubStrict(_) | Kind::Log => 0,
        // A cost of zero is admitted as soon as no more than the burst is owed.
        _ => {
            let paid = |wait: u128| after.admits(u128::from(at) + wait, 0);
            let mut end = 1;
            while !paid(end) {
                end *= 2;
            }
            let mut begin = 0;
            while begin < end {
                let middle = begin + (end - begin) / 2;
                if paid(middle) {
                    end = middle;
                } else {
                    begin = middle + 1;
                }
            }
            begin
        }
    }
}

/// Checks that each decision, and all figures after it, equal the oracle's.
fn agrees(reading: &Reading, start: u64, ops: &[(Op, Operation)], limiter: &dyn Subject) {
    let &Reading { kind, spec, .. } = reading;
    let mut oracles: Vec<_> = (0..KEYS).map(|_| reading.oracle()).collect();
    let chooser = kind.oracle(spec);
    let mut now = start;
    for &(op, verb) in ops {
        let reach = reading.layout.as_ref().map_or(u64::MAX, Layout::reach) / 2;
        now = within_reach(op.step.apply(now, spec, &*chooser), start, kind, spec);
        now = now.clamp(start.saturating_sub(reach), start.saturating_add(reach).min(1 << 62));
        let at = reading.at(now);
        let oracle = &mut oracles[op.key as usize];
        if !limiter.holds(op.key) && !matches!(kind, Kind::Adaptive(_)) {
            *oracle = reading.oracle();
        }
        let cost = op.cost.apply(at, &**oracle);
        // Much larger debts are tested with the extreme quotas.
        let cost = cost.min(oracle.capacity().saturating_mul(3));
        let before = format!("{verb:?} of {cost} at {now} for key {}, {oracle:?}", op.key);
        let decided = match verb {
            Operation::Check => check(limiter, op.key, cost, now, at, &mut **oracle, &before),
            Operation::Force => force(reading, limiter, op.key, cost, now, oracle, &before),
            Operation::Take => take(reading, limiter, op.key, cost, now, &mut **oracle, &before),
            Operation::Oversized => oversized(reading, limiter, op.key, cost, now, oracle, &before),
            Operation::GiveBack => {
                let all = oracle.copy().give_back(at.into(), u64::MAX);
                // If nothing is owed, the next charge begins new periods. If the clock steps back before it, they begin
                // later than in the oracle.
                let keeps = u64::from(matches!(kind, Kind::Interval | Kind::FirstUse));
                let units = cost.min(all.saturating_sub(keeps));
                let back = limiter.at(now).give_back(op.key, units);
                assert_eq!(back, oracle.give_back(at.into(), units), "{before}");
                limiter.at(now).peek_n(op.key, 0)
            }
            Operation::Reserve(wait) => {
                reserve(reading, limiter, (op.key, cost, wait), now, &mut **oracle, &before)
            }
        };
        let peeked = limiter.at(now).peek_n(op.key, 0);
        if kind != Kind::Spacing {
            assert_eq!(decided.remaining(), oracle.remaining(at), "remaining after {before}");
            assert_eq!(peeked.remaining(), oracle.remaining(at), "peek after {before}");
        }
        let reset = Duration::from_nanos(reading.wait(now, owed(&**oracle, at)));
        let near = kind == Kind::Sliding && peeked.reset_after() > reset;
        assert!(
            peeked.reset_after() == reset || near,
            "{peeked:?} should reset after {reset:?}, after {before}"
        );
    }
}

fn check(
    limiter: &dyn Subject,
    key: u32,
    cost: u64,
    now: u64,
    at: u64,
    oracle: &mut dyn Oracle,
    before: &str,
) -> Decision {
    let decided = limiter.at(now).check_n(key, cost);
    assert_eq!(verdict(&decided), oracle.offer(at, cost), "{before}");
    decided
}

fn force(
    reading: &Reading,
    limiter: &dyn Subject,
    key: u32,
    cost: u64,
    now: u64,
    oracle: &mut Box<dyn Oracle>,
    before: &str,
) -> Decision {
    let (kind, at) = (reading.kind, reading.at(now));
    let remaining = oracle.remaining(at);
    let asked = oracle.copy();
    let decided = limiter.at(now).charge_unchecked(key, cost);
    assert!(decided.is_allowed(), "{before}");
    let charged = oracle.force(at.into(), decided.cost());
    assert_eq!(decided.cost(), charged, "{before}");
    if let Some(holds) = reading.holds(&*asked, at, cost) {
        assert_eq!(charged, holds, "{before}");
    } else if kind == Kind::Log {
        assert_eq!(charged, cost.min(remaining), "{before}");
    } else if charged < cost {
        assert!(charged >= cost.min(remaining), "{before}");
        assert_eq!(
            limiter.at(now).charge_unchecked(key, 1).cost(),
            0,
            "the state had room for more units: {before}"
        );
    }
    if charged > 0 {
        let delay = reading.wait(now, debt_delay(kind, &*asked, &**oracle, at));
        assert_eq!(decided.delay(), Duration::from_nanos(delay), "delay of {before}");
    }
    decided
}

fn oversized(
    reading: &Reading,
    limiter: &dyn Subject,
    key: u32,
    cost: u64,
    now: u64,
    oracle: &mut Box<dyn Oracle>,
    before: &str,
) -> Decision {
    let (kind, at, full) = (reading.kind, reading.at(now), oracle.capacity());
    let decided = limiter.at(now).check_oversized(key, cost);
    let is_large = cost > full && predicts_conforming_time(kind);
    // A state that never fits the debt: known for ticks, and otherwise only near the largest debt.
    let unfit = match reading.horizon() {
        Some((horizon, unit)) => u128::from(cost) * unit > horizon,
        None => reading.is_full(&*reading.oracle(), at, cost) && decided.is_never(),
    };
    if !is_large || unfit {
        assert_eq!(verdict(&decided), oracle.offer(at, cost), "{before}");
    } else if oracle.admits(at.into(), full) {
        let asked = oracle.copy();
        assert_eq!((decided.is_allowed(), decided.charged()), (true, cost), "{before}: {decided:?}");
        oracle.force(at.into(), cost);
        let delay = reading.wait(now, debt_delay(kind, &*asked, &**oracle, at));
        assert_eq!(decided.delay(), Duration::from_nanos(delay), "delay of {before}");
    } else {
        assert_eq!(verdict(&decided), Verdict::Denied, "{before}: {decided:?}");
        let retry = oracle.retry_after(at, full).map(|wait| reading.wait(now, wait));
        assert_eq!(decided.retry_after(), retry.map(Duration::from_nanos), "{before}");
        assert_eq!((decided.cost(), decided.charged()), (cost, 0), "{before}");
    }
    decided
}

fn take(
    reading: &Reading,
    limiter: &dyn Subject,
    key: u32,
    most: u64,
    now: u64,
    oracle: &mut dyn Oracle,
    before: &str,
) -> Decision {
    let at = reading.at(now);
    let all = oracle.peek(at, most);
    let units = if all == Verdict::Allowed { most } else { oracle.remaining(at) };
    let decided = limiter.at(now).take(key, most);
    if units == 0 && most > 0 {
        assert!(decided.is_denied() && !decided.is_never(), "{before}: {decided:?}");
        let wait = oracle.retry_after(at, 1).map(|wait| reading.wait(now, wait));
        assert_eq!(decided.retry_after(), wait.map(Duration::from_nanos), "{before}");
    } else {
        assert_eq!((decided.is_allowed(), decided.cost()), (true, units), "{before}");
        assert_eq!(oracle.offer(at, units), Verdict::Allowed);
    }
    decided
}

fn reserve(
    reading: &Reading,
    limiter: &dyn Subject,
    (key, cost, wait): (u32, u64, Wait),
    now: u64,
    oracle: &mut dyn Oracle,
    before: &str,
) -> Decision {
    let (kind, at) = (reading.kind, reading.at(now));
    let all = oracle.peek(at, cost);
    // The earliest turn. In a full queue there is none.
    let turn = match all {
        Verdict::Never => None,
        _ if cost == 0 => Some(0),
        Verdict::Denied if kind == Kind::Queue || !predicts_conforming_time(kind) => None,
        Verdict::Allowed if kind == Kind::Queue => Some(oracle.delay(at.into())),
        Verdict::Allowed => Some(0),
        Verdict::Denied => oracle.retry_after(at, cost),
    };
    let turn = turn.map(|wait| reading.wait(now, wait));
    let wait_ns = match wait {
        Wait::None => 0,
        Wait::Short => turn.unwrap_or(7).saturating_sub(1),
        Wait::Exact => turn.unwrap_or(7),
        Wait::Long(more) => turn.unwrap_or(7).saturating_add(more),
        Wait::Any => u64::MAX,
    };
    let decided = limiter.at(now).reserve(key, cost, Duration::from_nanos(wait_ns));
    let holds = match reading.holds(oracle, at, cost) {
        Some(holds) => holds == cost,
        // Near the largest debt, both results are correct.
        None => !reading.is_full(oracle, at, cost) || decided.is_allowed(),
    };
    match turn {
        Some(turn) if turn <= wait_ns && holds => {
            assert!(decided.is_allowed(), "{before} within {wait_ns}: {decided:?}");
            if cost > 0 {
                assert_eq!(decided.delay(), Duration::from_nanos(turn), "delay of {before} within {wait_ns}");
                oracle.reserve(at.into(), cost);
            }
        }
        _ => {
            assert!(decided.is_denied(), "{before} within {wait_ns}: {decided:?}");
            assert_eq!(decided.is_never(), all == Verdict::Never, "{before}");
            let retry = match all {
                Verdict::Never => None,
                Verdict::Allowed => turn,
                Verdict::Denied => oracle.retry_after(at, cost).map(|wait| reading.wait(now, wait)),
            };
            assert_eq!(decided.retry_after(), retry.map(Duration::from_nanos), "{before} within {wait_ns}");
        }
    }
    decided
}

fn run(kind: Kind, backward: bool, keys: u32, limiter: fn(Kind, Spec) -> Option<Box<dyn Subject>>) {
    let cases = (short_spec(kind), start(), verbs(keys, backward));
    run_cases(kind, 64, &cases, |(spec, start, ops)| {
        if let Some(limiter) = limiter(kind, spec) {
            agrees(&Reading { kind, spec, layout: None, first: 0 }, start, &ops, &*limiter);
        }
        true
    });
}

/// Runs a compact limiter that has room for all keys, with and without an overdraft.
fn run_compact(kind: Kind) {
    let overdraft = prop_oneof![1 => Just(0), 2 => 1_u64..=40, 1 => 1_u64..=3_000];
    let cases = (exact_spec(kind), start(), verbs(KEYS, false), overdraft);
    // Skips debts of centuries, which saturate the figures.
    let cases = cases.prop_filter("short", |(spec, _, _, overdraft)| {
        let units = if kind == Kind::Spacing { 1 } else { spec.limit };
        u128::from(spec.burst + overdraft) * u128::from(spec.period_ns) / u128::from(units) < 1 << 60
    });
    let held = run_cases(kind, 96, &cases, |(spec, start, ops, overdraft)| {
        let built: Option<Result<(Box<dyn Subject>, Layout), _>> = with_compact!(kind, spec, algorithm => {
            let builder = RateLimiter::builder(algorithm).clock(ManualClock::new(Timestamp::ZERO)).hasher(Seeded(7));
            builder.capacity(Capacity::memory(1 << 16)).overdraft(overdraft).compact().map(|limiter| {
                let layout = Layout::read(&limiter.snapshot());
                (Box::new(limiter) as Box<dyn Subject>, layout)
            })
        });
        let Some(Ok((limiter, layout))) = built else { return false };
        let first = match &layout {
            Layout::Ticks(ticks) => ticks.floor(start.saturating_sub(layout.reach() / 2)),
            Layout::Windows { .. } => 0,
        };
        agrees(&Reading { kind, spec, layout: Some(layout), first }, start, &ops, &*limiter);
        true
    });
    assert!(held > 0.5, "{kind:?} refused half of the quotas or more");
}

// G45
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn direct_decides_as_the_oracle() {
    ALL.into_iter().for_each(|kind| run(kind, true, 1, direct));
}

// G46
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn keyed_decides_as_the_oracle() {
    ALL.into_iter().for_each(|kind| run(kind, false, KEYS, keyed));
}

// G45
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn compact_decides_as_the_oracle() {
    COMPACT.into_iter().for_each(run_compact);
}
