//! Random numbers, algorithms, quotas, times and operations. Quotas, times and operations are those of the property tests.

use super::{HOUR, START, below};
use tollgate_testing::compact::Random;
use tollgate_testing::kinds::{ALL, Kind};
use tollgate_testing::operations::{self, draw};
use tollgate_testing::oracle::Spec;
use tollgate_testing::steps::Op;

const DAY: u64 = 24 * HOUR;

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
    let spec = draw(&operations::spec(), random);
    // A log is as large as its limit, and a large log would hide all other memory.
    if kind == Kind::Log { Spec::new(spec.limit.min(4_096), spec.period_ns) } else { spec }
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
    draw(&operations::start(), random)
}

/// Returns fewer than 120 operations.
pub fn ops(random: &mut Random, keys: u32, backward: bool) -> Vec<Op> {
    draw(&operations::ops(keys, 120, backward), random)
}
