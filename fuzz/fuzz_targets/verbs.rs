//! Runs checks, forced charges and refunds in any order, of any size and at any time. Without the refunded charges,
//! the limiter admits no request that its oracle would deny. The target also compares the turns of waiters with the
//! oracle's turns.

#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::{Corpus, fuzz_target};
use std::time::Duration;
use tollgate_testing::compact::compact;
use tollgate_testing::fuzzing::Case;
use tollgate_testing::kinds::Kind;
use tollgate_testing::ledger::{Operation, check_no_units_created};
use tollgate_testing::oracle::Verdict;
use tollgate_testing::steps::{Op, within_reach};
use tollgate_testing::subjects::direct;

fn verb(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Operation> {
    Ok(match bytes.int_in_range(0..=7)? {
        0..=2 => Operation::Check,
        3 => Operation::Force,
        4 => Operation::Take,
        5 => Operation::RefundLast(bytes.int_in_range(1..=16)?),
        _ => Operation::Refund(bytes.arbitrary::<u8>()?.into(), bytes.int_in_range(1..=16)?),
    })
}

/// Debts last for months and not for centuries here, so no word is full.
fn is_short(Case { spec, .. }: &Case) -> bool {
    let (num, den) = spec.interval();
    num.max(den * u128::from(spec.period_ns)) * u128::from(spec.burst.max(spec.limit)) < 1 << 52
}

/// Requests turns within any wait, one after another. Each must come when the oracle expects it.
fn reserve(Case { kind, spec, start, ops }: &Case, waits: &[u64]) {
    let Some(limiter) = direct(*kind, *spec) else { return };
    let (mut oracle, mut now) = (kind.oracle(*spec), *start);
    for (op, wait) in ops.iter().zip(waits) {
        // A step back of years would fill a word of fractions.
        now = within_reach(op.step.apply(now, *spec, &*oracle), *start, *kind, *spec).max(now);
        let cost = op.cost.apply(now, &*oracle);
        let turn = match oracle.peek(now, cost) {
            Verdict::Never => None,
            Verdict::Denied if *kind == Kind::Queue => None,
            Verdict::Allowed if *kind == Kind::Queue => Some(oracle.delay(now.into())),
            _ => oracle.retry_after(now, cost),
        };
        let decision = limiter.at(now).reserve(0, cost, Duration::from_nanos(*wait));
        let expected = turn.filter(|turn| *turn <= u128::from(*wait) || cost == 0);
        assert_eq!(decision.is_allowed(), expected.is_some(), "{cost} at {now} within {wait}: {oracle:?}");
        if let (Some(turn), true) = (expected, cost > 0) {
            assert_eq!(decision.delay().as_nanos(), turn, "{cost} at {now} within {wait}: {oracle:?}");
            oracle.reserve(now.into(), cost);
        }
    }
}

fn play(bytes: &mut Unstructured<'_>, case: &Case) -> arbitrary::Result<Corpus> {
    let Case { kind, spec, start, ops } = case;
    if !is_short(case) {
        return Ok(Corpus::Reject);
    }
    if kind.is_bucket_family() && bytes.ratio(1, 3)? {
        let waits: Vec<u64> =
            ops.iter().map(|_| bytes.int_in_range(0..=1 << 44)).collect::<Result<_, _>>()?;
        reserve(case, &waits);
        return Ok(Corpus::Keep);
    }
    // If periods start at the first use, a history without the refunded charges may have other periods.
    if matches!(kind, Kind::Interval | Kind::FirstUse) {
        return Ok(Corpus::Reject);
    }
    let ops: Vec<(Op, Operation)> = ops.iter().map(|op| Ok((*op, verb(bytes)?))).collect::<Result<_, _>>()?;
    // Does not start at time zero, because a word in fractions moves that time by one.
    let start = (*start).max(1);
    if let Some(limiter) = direct(*kind, *spec) {
        check_no_units_created(*kind, *spec, start, start - 1, &ops, &*limiter);
    }
    if matches!(kind, Kind::Fixed | Kind::Sliding | Kind::SlidingStrict)
        && let Some(Ok((limiter, layout))) = compact(*kind, *spec)
    {
        check_no_units_created(*kind, *spec, start, layout.reach() / 2, &ops, &*limiter);
    }
    Ok(Corpus::Keep)
}

// G38, G44, G87
fuzz_target!(|bytes: &[u8]| -> Corpus {
    // The operations use the available bytes of the first half.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    match Case::read(&mut Unstructured::new(first), 1, true) {
        Ok(case) => play(&mut Unstructured::new(second), &case).unwrap_or(Corpus::Reject),
        Err(_) => Corpus::Reject,
    }
});
