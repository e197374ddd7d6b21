//! Random quotas, times and operations: ordinary ones, and edge cases. The draws are those of the property tests,
//! with a generator that is faster and needs no shrinking.

use super::{HOUR, SEC, START, below};
use tollgate_testing::compact::Random;
use tollgate_testing::kinds::{ALL, Kind};
use tollgate_testing::oracle::Spec;
use tollgate_testing::steps::{Cost, Op, Step};

pub const MINUTE: u64 = 60 * SEC;
const DAY: u64 = 24 * HOUR;
const CENTURY: u64 = 36_525 * DAY;

pub fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[below(random, of.len())]
}

/// Returns true once in this number of draws, on average.
pub fn one_in(random: &mut Random, so_many: u64) -> bool {
    random.below(so_many) == 0
}

/// Returns a number from `low` to `high`, both included.
pub fn between(random: &mut Random, low: u64, high: u64) -> u64 {
    low + random.below(high - low + 1)
}

/// Returns any algorithm, with options of any size.
pub fn kind(random: &mut Random) -> Kind {
    match pick(random, &ALL) {
        Kind::Aligned(_) => Kind::Aligned(origin(random)),
        Kind::Adaptive(_) => Kind::Adaptive(origin(random)),
        Kind::Sub(_) => Kind::Sub(parts(random)),
        Kind::SubStrict(_) => Kind::SubStrict(parts(random)),
        kind => kind,
    }
}

fn origin(random: &mut Random) -> u64 {
    if one_in(random, 2) { random.below(100) } else { START + random.below(DAY) }
}

fn parts(random: &mut Random) -> u32 {
    pick(random, &[1, 2, 3, 6, 7, 24, 60])
}

/// Returns quotas of every size: ordinary, unusual and extreme.
pub fn spec(random: &mut Random, kind: Kind) -> Spec {
    let limit = match random.below(10) {
        0..6 => between(random, 1, 12),
        6..9 => between(random, 1, 1_000),
        _ => pick(random, &[1 << 16, 1_000_000, 1 << 32, 1_000_000_007]),
    };
    // A log is as large as its limit, and a large log would hide all other memory.
    let limit = if kind == Kind::Log { limit.min(4_096) } else { limit };
    let period_ns = match random.below(10) {
        0..7 => pick(random, &[SEC, 10 * SEC, MINUTE, 10 * MINUTE, HOUR, DAY]),
        7 => CENTURY,
        8 => pick(random, &[1, 2, 7, 1_000, 1_024, 999_983]),
        _ => between(random, 1, 10 * SEC),
    };
    let spec = Spec::new(limit, period_ns);
    match random.below(8) {
        0..4 => spec,
        4..7 => spec.with_burst(between(random, 1, 20)),
        _ => spec.with_burst(between(random, 1, 1_000_000)),
    }
}

/// Returns quotas for threads that run for a moment. Each key is admitted hundreds of times in that time.
pub fn busy_spec(random: &mut Random, period_ns: u64) -> Spec {
    let limit = match random.below(3) {
        0 => between(random, 1, 4),
        1 => between(random, 1, 30),
        _ => between(random, 10, 200),
    };
    let period_ns = period_ns - random.below(period_ns / 4);
    let spec = Spec::new(limit, period_ns);
    if one_in(random, 3) { spec.with_burst(between(random, 1, 20)) } else { spec }
}

/// Returns zero, a time just after zero, or a present-day time.
pub fn start(random: &mut Random) -> u64 {
    match random.below(5) {
        0 => 0,
        1 => between(random, 1, 10),
        2 => random.below(10 * HOUR),
        3 => START,
        _ => START + random.below(10_000 * SEC),
    }
}

pub fn op(random: &mut Random, keys: u64, backward: bool) -> Op {
    let key = u32::try_from(random.below(keys)).expect("few keys");
    Op { key, step: step(random, backward), cost: cost(random) }
}

fn offset(random: &mut Random) -> i64 {
    pick(random, &[-1, 0, 1])
}

fn step(random: &mut Random, backward: bool) -> Step {
    match random.below(if backward { 29 } else { 26 }) {
        0..4 => Step::Stay,
        4..7 => Step::Nanos(between(random, 1, 5)),
        7..13 => Step::Intervals(between(random, 1, 5), offset(random)),
        13..17 => Step::Boundary(random.below(3), offset(random)),
        17..23 => Step::Wait(random.below(17), pick(random, &[-1, 0])),
        23..25 => Step::Nanos(random.below(3 * HOUR)),
        25 => Step::Nanos(random.below(1 << 58)),
        26 => Step::Back(between(random, 1, 2 * SEC)),
        27 => Step::BackShare(between(random, 1, 40)),
        _ => Step::Back(random.below(1 << 60)),
    }
}

fn cost(random: &mut Random) -> Cost {
    match random.below(18) {
        0 => Cost::Zero,
        1..9 => Cost::Units(between(random, 1, 3)),
        9..13 => Cost::Share(random.below(17)),
        13..16 => Cost::Remaining(random.below(2)),
        16 => Cost::Over,
        _ => Cost::Max,
    }
}
