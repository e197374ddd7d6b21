//! One thread against the oracles, decision by decision. With room for all keys, every store decides like its oracle.

use super::draw;
use super::gate::{self, Store};
use super::{Found, Round, ensure};
use tollgate::{Capacity, Decision, ManualClock, Timestamp};
use tollgate_testing::compact::compact_of;
use tollgate_testing::kinds::{COMPACT, Kind, LEASABLE, WINDOWS};
use tollgate_testing::laws::{self, Exact, Request};
use tollgate_testing::ledger::{self, Operation};
use tollgate_testing::oracle::{Oracle, Spec, Verdict};
use tollgate_testing::reading::Reading;
use tollgate_testing::sketch::{reach, sketch_of};
use tollgate_testing::steps::within_reach;
use tollgate_testing::subjects::{Subject, crowded, direct, keyed, verdict};

const KEYS: u32 = 3;

pub fn play(round: &mut Round<'_>) -> Found {
    while round.goes_on() {
        match round.random.below(12) {
            0..3 => exact(round)?,
            3..5 => extreme(round)?,
            5..8 => in_ticks(round)?,
            8..10 => in_a_sketch(round)?,
            10 => in_stripes(round)?,
            _ => refunded(round),
        }
    }
    Ok(())
}

/// The oracle's decision as an outcome, as a broken limiter reports it.
fn told(round: &mut Round<'_>, decided: &Decision) -> Verdict {
    match verdict(decided) {
        Verdict::Never => {
            round.checks += 1;
            Verdict::Never
        }
        other if round.told(other == Verdict::Allowed) => Verdict::Allowed,
        _ => Verdict::Denied,
    }
}

type Build = fn(Kind, Spec) -> Option<Box<dyn Subject>>;

/// Tests a direct or keyed limiter with a quota that it decides exactly. All figures match to the nanosecond, even if
/// time steps back.
fn exact(round: &mut Round<'_>) -> Found {
    let kind = draw::kind(&mut round.random);
    let spec = draw::spec(&mut round.random, kind);
    if kind.is_bucket_family() && !spec.is_exact() {
        return Ok(());
    }
    let (name, build, keys): (_, Build, _) = round.pick(&[
        ("direct", direct as _, 1),
        ("keyed", keyed as _, KEYS),
        ("crowded", crowded as _, KEYS),
    ]);
    let Some(limiter) = build(kind, spec) else { return Ok(()) };
    let start = draw::start(&mut round.random);
    let mut oracles: Vec<_> = (0..keys).map(|_| kind.oracle(spec)).collect();
    let (mut now, mut newest) = (start, start);
    for op in draw::ops(&mut round.random, keys, true) {
        let oracle = &mut oracles[op.key as usize];
        if !limiter.holds(op.key) && !matches!(kind, Kind::Adaptive(_)) {
            ensure!(
                oracle.reset_after(newest) == 0,
                "{name} {kind:?} {spec:?}: forgotten before its full quota was available, {oracle:?} at {newest}"
            );
            *oracle = kind.oracle(spec);
        }
        now = within_reach(op.step.apply(now, spec, &**oracle), start, kind, spec);
        newest = newest.max(now);
        let cost = op.cost.apply(now, &**oracle);
        let request = Request { kind, key: op.key, cost, now, at: now, layout: None };
        agrees(round, &*limiter, &mut **oracle, &request);
    }
    Ok(())
}

/// Runs one check of a limiter, and compares it with the oracle's. (The law panics on a breach, which is reported in the
/// same way.)
fn agrees(round: &mut Round<'_>, limiter: &dyn Subject, oracle: &mut dyn Oracle, request: &Request<'_>) {
    laws::agrees(limiter, oracle, request, |decided| told(round, decided));
}

/// Tests any quota at any time, up to the end of time. Exact arithmetic admits every admitted request, and each
/// interval is within the bound.
fn extreme(round: &mut Round<'_>) -> Found {
    let kind = draw::kind(&mut round.random);
    let mut spec = draw::spec(&mut round.random, kind);
    if draw::one_in(&mut round.random, 2) {
        spec.period_ns += draw::between(&mut round.random, 1, 64);
    }
    let is_keyed = draw::one_in(&mut round.random, 2);
    let (limiter, keys) = if is_keyed { (crowded(kind, spec), KEYS) } else { (direct(kind, spec), 1) };
    let Some(limiter) = limiter else { return Ok(()) };
    let start = if draw::one_in(&mut round.random, 2) {
        draw::start(&mut round.random)
    } else {
        u64::MAX - round.random.below(1_000_000_000_000)
    };
    // A word of fractions of a nanosecond distinguishes ahead from behind within half its range, nine years. A debt
    // uses a part of that.
    let reach = if kind.is_bucket_family() && spec.interval().1 > 1 { 1 << 56 } else { u64::MAX };
    let mut exact: Vec<_> = (0..keys).map(|_| Exact::new(kind, spec)).collect();
    let mut now = start;
    for op in draw::ops(&mut round.random, keys, true) {
        let exact = &mut exact[op.key as usize];
        if !limiter.holds(op.key) && !matches!(kind, Kind::Adaptive(_)) {
            *exact = Exact::new(kind, spec);
        }
        now = op.step.apply(now, spec, &*exact.oracle);
        now = now.clamp(start.saturating_sub(reach), start.saturating_add(reach));
        let cost = op.cost.apply(now, &*exact.oracle);
        let decided = limiter.at(now).check_n(op.key, cost);
        // Figures must not overflow, whatever their values are.
        let _ = (decided.remaining(), decided.retry_after(), decided.reset_after(), decided.delay());
        let before =
            format!("{kind:?} {spec:?} keyed {is_keyed}: {cost} at {now} of key {}, {exact:?}", op.key);
        ensure!(decided.is_never() == (cost > exact.oracle.capacity()), "{before}\n{decided:?}");
        if told(round, &decided) == Verdict::Allowed && cost > 0 {
            exact.admit(now, cost, 0);
        }
    }
    Ok(())
}

/// A compact limiter with room for its keys decides like the oracle in ticks, at any time.
fn in_ticks(round: &mut Round<'_>) -> Found {
    let kind = round.pick(&COMPACT);
    let spec = draw::spec(&mut round.random, kind);
    let Some(Ok((limiter, layout))) = compact_of(kind, spec, Capacity::memory(1 << 15), 0) else {
        return Ok(());
    };
    let start = draw::start(&mut round.random);
    let half = layout.reach() / 2;
    let (earliest, latest) = (start.saturating_sub(half), start.saturating_add(half).min(1 << 62));
    let reading = Reading::new(Some(layout), kind, spec, earliest);
    let chooser = kind.oracle(spec);
    let mut oracles: Vec<_> = (0..KEYS).map(|_| reading.oracle()).collect();
    let mut now = start;
    for op in draw::ops(&mut round.random, KEYS, true) {
        let oracle = &mut *oracles[op.key as usize];
        now = op.step.apply(now, spec, &*chooser).clamp(earliest, latest);
        let at = reading.at(now);
        let cost = op.cost.apply(at, oracle);
        let request = Request { kind, key: op.key, cost, now, at, layout: Some(&layout) };
        agrees(round, &*limiter, oracle, &request);
    }
    Ok(())
}

/// A sketch with room for its keys decides like the oracle, as long as tags do not repeat.
fn in_a_sketch(round: &mut Round<'_>) -> Found {
    let kind = round.pick(&WINDOWS);
    let spec = draw::spec(&mut round.random, kind);
    let spec = Spec::new(spec.limit, spec.period_ns);
    let Some(Ok(limiter)) = sketch_of(kind, spec, 64 << 10) else { return Ok(()) };
    let start = draw::start(&mut round.random);
    let half = reach(spec.period_ns) / 2;
    let (earliest, latest) = (start.saturating_sub(half), start.saturating_add(half).min(1 << 62));
    let mut oracles: Vec<_> = (0..KEYS).map(|_| kind.oracle(spec)).collect();
    let mut now = start;
    for op in draw::ops(&mut round.random, KEYS, true) {
        let oracle = &mut *oracles[op.key as usize];
        now = op.step.apply(now, spec, oracle).clamp(earliest, latest);
        let cost = op.cost.apply(now, oracle);
        let request = Request { kind, key: op.key, cost, now, at: now, layout: None };
        agrees(round, &*limiter, oracle, &request);
    }
    Ok(())
}

/// Tests stripes. At one instant, they admit exactly the units that the oracle admits. While leases expire, they
/// admit no more than the oracle in one lease life more.
fn in_stripes(round: &mut Round<'_>) -> Found {
    let kind = round.pick(&LEASABLE);
    let spec = Spec::new(
        1 + round.random.skewed(2_000),
        draw::pick(&mut round.random, &[1, 10, 60]) * 1_000_000_000,
    );
    let clock = ManualClock::new(Timestamp::ZERO);
    let Some(built) = gate::build(kind, spec, Store::Striped, std::sync::Arc::new(clock.clone()), 7) else {
        return Ok(());
    };
    let life = built.more_ns;
    let oracle = kind.oracle(spec);
    let mut now = super::START + round.random.below(spec.period_ns);
    let mut spent: Vec<(u64, u64)> = Vec::new();
    for _ in 0..30 {
        now += match round.random.below(4) {
            0 => round.random.below(1_000_000),
            1 => round.random.below(20_000_000),
            _ => round.random.below(spec.period_ns),
        };
        clock.set(Timestamp::from_nanos(now));
        let stands = draw::one_in(&mut round.random, 3);
        for _ in 0..40 {
            let cost = if stands { 1 } else { 1 + round.random.skewed(8) };
            let peeked = built.gate.peek(0, cost, now).is_allowed();
            let allowed = built.gate.ask(round.random.next(), 0, cost, now);
            ensure!(
                peeked == allowed,
                "striped {kind:?} {spec:?}: {cost} at {now}: peek {peeked}, check {allowed}"
            );
            if round.told(allowed) {
                spent.push((now, cost));
            }
        }
    }
    // A panic is a breach, too.
    laws::all_are_within(&spent, |t| oracle.most_in(t + life), ("striped", kind, spec));
    // Checks at one instant, long after all leases have expired.
    now += 1_000 * spec.period_ns;
    clock.set(Timestamp::from_nanos(now));
    let due = oracle.remaining(now);
    let asked = due + 3;
    let allowed = (0..asked).filter(|_| built.gate.ask(round.random.next(), 0, 1, now)).count() as u64;
    round.checks += asked;
    ensure!(
        allowed == due,
        "striped {kind:?} {spec:?}: after a long idle time, {allowed} units were admitted at {now} instead of {due}"
    );
    Ok(())
}

/// Tests checks, forced charges and refunds. A history without the refunded charges also admits every admitted
/// request. (The tested law panics on a breach, which is reported in the same way.)
fn refunded(round: &mut Round<'_>) {
    let kind = draw::kind(&mut round.random);
    if matches!(kind, Kind::Interval | Kind::FirstUse) {
        return;
    }
    let spec = draw::spec(&mut round.random, kind);
    let (num, den) = spec.interval();
    // Debts of centuries fill the words.
    if kind.is_bucket_family() && !spec.is_exact()
        || num.max(den * u128::from(spec.period_ns)) * u128::from(spec.burst.max(spec.limit)) >= 1 << 52
    {
        return;
    }
    let is_keyed = draw::one_in(&mut round.random, 2);
    let (limiter, keys) = if is_keyed { (keyed(kind, spec), 2) } else { (direct(kind, spec), 1) };
    let Some(limiter) = limiter else { return };
    let start = draw::start(&mut round.random).max(1);
    let ops = draw::ops(&mut round.random, keys, !is_keyed).into_iter().take(30).map(|op| {
        let verb = match round.random.below(8) {
            0..3 => Operation::Check,
            3 => Operation::Force,
            4 => Operation::Take,
            5 => Operation::RefundLast(draw::between(&mut round.random, 1, 16)),
            _ => Operation::Refund(round.random.next(), draw::between(&mut round.random, 1, 16)),
        };
        (op, verb)
    });
    let ops: Vec<_> = ops.collect();
    round.checks += ops.len() as u64;
    ledger::check_no_units_created(kind, spec, start, u64::MAX, &ops, &*limiter);
}
