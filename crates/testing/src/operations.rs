//! Random operations that favour edge cases: equal times, boundaries, waits of exact length, steps back, extreme
//! costs.

use super::compact::Random;
use super::kinds::Kind;
use super::oracle::Spec;
use super::steps::{Cost, Op, Step};
use super::{HOUR, MINUTE, SEC, START};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRng, TestRunner};
use std::cell::Cell;

/// Returns a configuration with a fixed seed, so that a run can be repeated. It runs a quarter of the cases, unless
/// `TOLLGATE_ALL_CASES` is set, as in ci/release.sh. `PROPTEST_CASES` overrides the number of cases.
pub fn config(cases: u32) -> Config {
    let quarter = std::env::var_os("TOLLGATE_ALL_CASES").map_or(4, |_| 1);
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = wanted.unwrap_or(cases.div_ceil(quarter));
    Config { cases, rng_seed: RngSeed::Fixed(0x7011_6A7E), failure_persistence: None, ..Config::default() }
}

/// Runs a law on random cases. Returns the share of them for which the law returns `true`.
pub fn run_cases<S: Strategy>(
    name: impl std::fmt::Debug,
    count: u32,
    cases: &S,
    law: impl Fn(S::Value) -> bool,
) -> f64 {
    let (tried, held) = (Cell::new(0_u32), Cell::new(0_u32));
    let result = TestRunner::new(config(count)).run(cases, |case| {
        tried.set(tried.get() + 1);
        held.set(held.get() + u32::from(law(case)));
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{name:?}: {failure}");
    }
    f64::from(held.get()) / f64::from(tried.get())
}

/// Draws a value for a program that is no property test. It never shrinks.
pub fn draw<S: Strategy>(strategy: &S, random: &mut Random) -> S::Value {
    let seed = (u128::from(random.next()) << 64 | u128::from(random.next())).to_le_bytes();
    let config = Config { failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::XorShift, &seed);
    let drawn = strategy.new_tree(&mut TestRunner::new_with_rng(config, rng));
    drawn.expect("some value passes each filter").current()
}

fn op(keys: u32, backward: bool) -> impl Strategy<Value = Op> {
    (0..keys, step(backward), cost()).prop_map(|(key, step, cost)| Op { key, step, cost })
}

pub fn ops(keys: u32, length: usize, backward: bool) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(keys, backward), 1..length)
}

/// [`ops`], each with something more, such as a verb.
pub fn ops_with<V: Strategy>(
    keys: u32,
    length: usize,
    backward: bool,
    more: V,
) -> impl Strategy<Value = Vec<(Op, V::Value)>> {
    prop::collection::vec((op(keys, backward), more), 1..length)
}

fn step(backward: bool) -> impl Strategy<Value = Step> {
    let back = u32::from(backward);
    prop_oneof![
        4 => Just(Step::Stay),
        3 => (1_u64..=5).prop_map(Step::Nanos),
        6 => (1_u64..=5, -1_i64..=1).prop_map(|(n, offset)| Step::Intervals(n, offset)),
        4 => (0_u64..=2, -1_i64..=1).prop_map(|(n, offset)| Step::Boundary(n, offset)),
        6 => (0_u64..=16, -1_i64..=0).prop_map(|(share, offset)| Step::Wait(share, offset)),
        2 => (0_u64..=3 * HOUR).prop_map(Step::Nanos),
        1 => (0_u64..=1 << 58).prop_map(Step::Nanos),
        back => (1_u64..=2_000_000_000).prop_map(Step::Back),
        back => (1_u64..=40).prop_map(Step::BackShare),
        back => (0_u64..=1 << 60).prop_map(Step::Back),
    ]
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        1 => Just(Cost::Zero),
        8 => (1_u64..=3).prop_map(Cost::Units),
        4 => (0_u64..=16).prop_map(Cost::Share),
        3 => (0_u64..=1).prop_map(Cost::Remaining),
        1 => Just(Cost::Over),
        1 => Just(Cost::Max),
    ]
}

/// Draws quotas of every size, simple and odd. Not all are exact, and an algorithm may refuse some.
pub fn spec() -> impl Strategy<Value = Spec> {
    const DAY: u64 = 24 * HOUR;
    const CENTURY: u64 = 36_525 * DAY;
    let limit = prop_oneof![
        6 => 1_u64..=12,
        3 => 1_u64..=1_000,
        1 => select(vec![1 << 16, 1_000_000, 1 << 32, 1_000_000_007]),
    ];
    let period = prop_oneof![
        6 => select(vec![SEC, 10 * SEC, MINUTE, 10 * MINUTE, HOUR, DAY]),
        1 => Just(CENTURY),
        1 => select(vec![1, 2, 7, 1_000, 1_024, 999_983]),
        1 => 1_u64..=10_000_000_000,
    ];
    let burst = prop_oneof![
        4 => Just(None),
        3 => (1_u64..=20).prop_map(Some),
        1 => (1_u64..=1_000_000).prop_map(Some),
    ];
    (limit, period, burst).prop_map(|(limit, period_ns, burst)| {
        let spec = Spec::new(limit, period_ns);
        burst.map_or(spec, |burst| spec.with_burst(burst))
    })
}

/// Draws quotas that the algorithm decides exactly. For the bucket family this excludes odd quotas.
pub fn exact_spec(kind: Kind) -> impl Strategy<Value = Spec> {
    spec().prop_filter("exact", move |spec| !kind.is_bucket_family() || spec.is_exact())
}

/// Draws exact quotas whose debts last for months, not for centuries, so no state is ever full.
pub fn short_spec(kind: Kind) -> impl Strategy<Value = Spec> {
    exact_spec(kind).prop_filter("short", |spec| {
        let (num, den) = spec.interval();
        num.max(den * u128::from(spec.period_ns)) * u128::from(spec.burst.max(spec.limit)) < 1 << 52
    })
}

/// Draws start times: zero, just after zero, and present-day times.
pub fn start() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1_u64..=10, 0_u64..=10 * HOUR, Just(START), START..=START + 10_000 * SEC,]
}
