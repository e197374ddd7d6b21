//! Blocks of one length in a compact store, compared with the model of blocks, and by name.
//!
//! 1. At whole ticks, each decision equals the model's, whatever the order of checks, peeks, takes and refunds is.
//! 2. At any time, a block ends at the time that its denials state, and not one nanosecond earlier.
//! 3. A full bucket drops the block that ends first. It never blocks a key that was not denied.
//! 4. A block survives a snapshot, and does not become longer by it.

use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;
use tollgate::{
    Block, Blocked, Capacity, Carry, Clock, Compact, Decision, Gcra, Limit, ManualClock, Overflow, Quota,
    RateLimiter, StoreKind, Timestamp,
};
use tollgate_testing::blocks::{BlockOp, BlockSpec, play_at};
use tollgate_testing::operations::{config, ops_with, run_cases, start};
use tollgate_testing::oracle::Spec;
use tollgate_testing::{HOUR, MINUTE, SEC};

const MINUTES: fn(u64) -> Duration = |minutes| Duration::from_secs(60 * minutes);
const FIVE: Quota = Quota::per_minute(5);
type Limiter = RateLimiter<Compact<Blocked>, ManualClock>;

fn end(denial: &Decision) -> Duration {
    assert!(denial.is_denied() && denial.is_block(), "{denial:?}");
    denial.retry_after().expect("a block ends")
}

fn limiter(clock: &ManualClock) -> Limiter {
    let build = RateLimiter::builder(Blocked::new(FIVE, Block::of(MINUTES(10)))).clock(clock.clone());
    build.capacity(Capacity::slots(1_000)).compact().unwrap()
}

fn specs() -> impl Strategy<Value = BlockSpec> {
    let limit = prop::sample::select(vec![1_u64, 2, 3, 4, 5, 7, 10, 60, 100]);
    let period = prop::sample::select(vec![SEC, MINUTE, HOUR]);
    let block = prop_oneof![
        (1_u64..=1_000).prop_map(|ms| ms * SEC / 1_000),
        (1_u64..=90).prop_map(|seconds| seconds * SEC),
        Just(10 * MINUTE),
        Just(HOUR),
    ];
    (limit, period, 1_u64..=20, block).prop_map(|(limit, period_ns, burst, block_ns)| BlockSpec {
        spec: Spec::new(limit, period_ns).with_burst(burst),
        first_ns: block_ns,
        most_ns: block_ns,
    })
}

fn verbs() -> impl Strategy<Value = BlockOp> {
    prop_oneof![
        12 => Just(BlockOp::Check),
        3 => Just(BlockOp::Peek),
        2 => Just(BlockOp::Take),
        1 => (0_u64..=3).prop_map(BlockOp::Refund),
    ]
}

/// Forced charges and reservations are limited by the range, and have a test of their own.
// G131
#[test]
fn compact_decisions_equal_those_of_the_model() {
    let specs = specs().prop_filter("exact", BlockSpec::is_exact);
    let cases = (specs, start(), ops_with(1, 60, false, verbs()));
    let held = run_cases("blocks", 512, &cases, |(spec, start, ops)| {
        let Some(Ok(limiter)) = spec.compact() else { return false };
        let Some(layout) = spec.layout(&limiter.snapshot()) else { return false };
        let reach = layout.reach() / 4;
        let exact = |now: u64| {
            layout.whole(now.clamp(start.saturating_sub(reach), start.saturating_add(reach).min(1 << 62)))
        };
        play_at(spec, start, &ops, &limiter, exact);
        true
    });
    assert!(held > 0.5, "{held} of the cases");
}

proptest! {
    #![proptest_config(config(256))]

    // G131
    #[test]
    fn block_ends_when_its_denials_say(
        spec in specs(),
        start in start(),
        times in prop::collection::vec((0_u64..=16, 0_u64..=2), 1..20),
    ) {
        let Some(Ok(limiter)) = spec.compact() else { return Ok(()) };
        let now = start.min(1 << 61);
        let at = |ns: u64| limiter.at(Timestamp::from_nanos(ns));
        prop_assert!(at(now).check_n(&1, spec.spec.burst).is_allowed());
        let first = at(now).check(&1);
        let until = now + u64::try_from(end(&first).as_nanos()).unwrap();
        let tick = spec.spec.period_ns / spec.spec.limit / 256 + 1;
        let wait = (now + spec.first_ns).max(now + spec.spec.period_ns / spec.spec.limit);
        prop_assert!(until.abs_diff(wait) <= tick + 1, "{} for {wait}", until);
        for (sixteenths, before) in times {
            let then = (now + (until - now) / 16 * sixteenths).min(until - 1).saturating_sub(before).max(now);
            let denial = at(then).check(&1);
            prop_assert_eq!(end(&denial), Duration::from_nanos(until - then));
        }
        prop_assert!(at(until).peek(&1).is_allowed(), "one unit is free at the end");
        prop_assert!(at(until).check(&1).is_allowed());
    }
}

// G131
#[test]
fn nothing_is_charged_during_a_block() {
    let limiter = limiter(&ManualClock::default());
    let charge = limiter.check_n("a", 5);
    assert_eq!(end(&limiter.check("a")), MINUTES(10));
    assert_eq!(limiter.refund("a", &charge), 0, "a refund does not shorten a block");
    assert!(limiter.reserve("a", 1, MINUTES(10)).is_denied(), "there is no overdraft");
    assert_eq!(limiter.charge_unchecked("a", 9).charged(), 0);
    assert_eq!(end(&limiter.check("a")), MINUTES(10));
    assert!(limiter.reset("a") && limiter.check_n("a", 5).is_allowed(), "a reset lifts the block");
}

/// A word with blocks, or with larger tiers, has room for more than a burst. Without an overdraft, no key may owe more.
#[test]
fn nothing_is_owed_beyond_the_burst_without_an_overdraft() {
    let blocks = limiter(&ManualClock::default());
    let build = RateLimiter::builder(Gcra::new(FIVE)).clock(ManualClock::default());
    let tiers = build.tiers([Quota::per_minute(500)]).compact().unwrap();
    for charge in [
        [blocks.check_n("a", 4), blocks.reserve("a", 2, MINUTES(9)), blocks.charge_unchecked("a", 3)],
        [tiers.check_n("a", 4), tiers.reserve("a", 2, MINUTES(9)), tiers.charge_unchecked("a", 3)],
    ] {
        assert_eq!(charge.map(|decision| decision.charged()), [4, 0, 1], "the burst is 5");
    }
}

// G131
#[test]
fn full_bucket_drops_the_block_that_ends_first() {
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let build = RateLimiter::builder(Blocked::new(FIVE, Block::of(MINUTES(10)))).clock(clock.clone());
    let limiter = build.capacity(Capacity::slots(16)).compact().unwrap();
    let mut ends = HashMap::new();
    for key in 0..200 {
        // A key that was never denied is never blocked, however full the bucket is.
        assert!(limiter.check_n(&key, 5).is_allowed());
        ends.insert(key, clock.now() + end(&limiter.check(&key)));
        clock.advance(Duration::from_secs(1));
    }
    let blocked: Vec<i32> = (0..200).filter(|key| limiter.peek(key).is_block()).collect();
    assert_eq!(blocked, (184..200).collect::<Vec<_>>(), "the blocks that end last");
    for key in blocked {
        assert_eq!(clock.now() + end(&limiter.check(&key)), ends[&key], "and they end at their times");
    }
    assert!(limiter.gauges().evicted >= 184, "the store counts what it drops");
}

#[test]
fn what_does_not_fit_is_refused() {
    let build = |quota, block| RateLimiter::builder(Blocked::new(quota, block));
    let refused = |quota: Quota, block: Block| build(quota, block).compact().unwrap_err().to_string();
    let ten = Block::of(MINUTES(10));
    let day = MINUTES(24 * 60);
    for (error, needle) in [
        (refused(FIVE, ten.at_most(day)), "blocks of one length"),
        (refused(FIVE, Block::of(20 * day)), "at most 1572804s"),
        (refused(Quota::per_second(1_000), ten), "at most 130072ms"),
        (refused(Quota::per_second(1).burst(1 << 17), ten), "the burst"),
        (
            build(FIVE, ten).overflow(Overflow::Spill).compact().unwrap_err().to_string(),
            "use Overflow::Forget",
        ),
        (
            build(FIVE, ten).overflow(Overflow::Inherit).compact().unwrap_err().to_string(),
            "use Overflow::Forget",
        ),
        (build(FIVE, ten).overdraft(1).compact().unwrap_err().to_string(), "the overdraft can be at most 0"),
        (
            build(FIVE, ten).tiers([Quota::per_minute(6)]).compact().unwrap_err().to_string(),
            "a block would end at another time",
        ),
    ] {
        assert!(error.contains(needle), "{error}");
    }
    assert!(build(FIVE, Block::of(18 * day)).compact().is_ok());
    assert!(build(FIVE, ten).overflow(Overflow::Forget).tiers([FIVE]).compact().is_ok());
    assert!(
        build("1/100d".parse().unwrap(), Block::of(day))
            .compact()
            .is_ok_and(|limiter| limiter.check("a").is_allowed())
    );
}

// G131
#[test]
fn block_survives_a_snapshot() {
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
    let make = |block: Duration| {
        let build = RateLimiter::builder(Blocked::new(FIVE, Block::of(block))).clock(clock.clone());
        build.hasher(hasher.clone()).capacity(Capacity::slots(100)).compact().unwrap()
    };
    let (one, other) = (make(MINUTES(10)), make(MINUTES(10)));
    assert!(one.check_n("a", 5).is_allowed());
    assert_eq!(end(&one.check("a")), MINUTES(10));
    let snapshot = one.snapshot();
    clock.advance(MINUTES(4));
    other.restore(&snapshot).unwrap();
    assert_eq!(end(&other.check("a")), MINUTES(6));
    let error = make(MINUTES(11)).restore(&snapshot).unwrap_err().to_string();
    assert!(error.contains("tick"), "{error}");
}

/// A change of the quota keeps what a key owes beyond its block.
// G130
#[test]
fn debt_beyond_a_block_survives_a_change_of_the_quota() {
    let make = |limit: &str| limit.parse::<Limit>().unwrap();
    let early = [StoreKind::Compact, StoreKind::Keyed].map(|kind| {
        let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
        let limiter =
            RateLimiter::any(make("1/h block 1min")).clock(clock.clone()).build::<String>(kind).unwrap();
        assert!(limiter.check("a").is_allowed());
        let before = end(&limiter.check("a"));
        assert!(before >= MINUTES(59), "{before:?}: a block is never shorter than the wait without it");
        limiter.set_limit(make("1/h block 2min"), Carry::Used).unwrap();
        clock.advance(MINUTES(3));
        limiter.check("a").is_allowed()
    });
    assert_eq!(early, [false; 2], "two units of 1/h in three minutes");
}
