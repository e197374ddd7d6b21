//! What does a whole check cost: clock, hash, look-up, decision?
//!
//! Direct, keyed and compact limiters with GCRA, the default clock and the default hasher; 1,000, 1 M and (with
//! `TOLLGATE_BENCH_LARGE=1`) 10 M keys; one and two threads; admitted and denied. Compact limiters have four slots per
//! key, so that almost no key is evicted.
//! Each thread draws its own keys, uniformly, from a stream made in advance. Threads start at a barrier, outside the
//! measured time. A time is the cost of a call for its thread (wall time × threads / calls). A call of `check_each`
//! checks 16 keys and allocates their decisions. The throughput counts the checks of all threads.
//! Known bias: uniform keys cause less contention than the skewed keys of real traffic. `benches/peers.rs` measures the
//! peers and the floor in one run with Tollgate.

mod support;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tollgate::{Capacity, Compact, Gcra, Keyed, Quota, RateLimiter};

use support::{XorShift, count, key, length, stopwatch};

/// Keys in a call of `check_each`; a power of two.
const BATCH: usize = 16;

/// A quota for keyed limiters. No key uses up its burst during a bench, so no check is denied. Keys have debts all the
/// time, so no key expires.
fn generous() -> Gcra {
    Gcra::new(Quota::per_minute(1).burst(10_000_000))
}

/// A quota for one word that all checks share.
fn generous_to_all() -> Gcra {
    Gcra::new(Quota::per_second(1_000_000).burst(u64::from(u32::MAX)))
}

/// A quota that admits only the first check.
fn exhausted() -> Gcra {
    Gcra::new(Quota::new(1, Duration::from_secs(3600)))
}

/// Returns the wall time of `iterations` calls on each of `threads` threads. All calls must answer `expect`.
fn timed(
    threads: usize,
    iterations: u64,
    expect: bool,
    check: impl Fn(usize, usize) -> bool + Sync,
) -> Duration {
    let barrier = Barrier::new(threads);
    let run = |thread: usize| {
        barrier.wait();
        let start = stopwatch();
        let mut hits = 0;
        for turn in 0..length(iterations) {
            hits += u64::from(check(thread, turn) == expect);
        }
        let end = stopwatch();
        assert_eq!(hits, iterations);
        (start, end)
    };
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a bench thread panicked")).collect()
    });
    let start = times.iter().map(|time| time.0).min().expect("at least one thread");
    let end = times.iter().map(|time| time.1).max().expect("at least one thread");
    end - start
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    expect: bool,
    check: impl Fn(usize, usize) -> bool + Sync,
) {
    measure_calls(group, name, expect, 1, check);
}

/// Like [`measure`], for calls that make several checks.
fn measure_calls(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    expect: bool,
    checks: u64,
    check: impl Fn(usize, usize) -> bool + Sync,
) {
    for threads in [1, 2] {
        group.throughput(Throughput::Elements(checks * count(threads)));
        let id = BenchmarkId::new(name, format!("{threads} thread{}", if threads == 1 { "" } else { "s" }));
        group.bench_function(id, |b| b.iter_custom(|iterations| timed(threads, iterations, expect, &check)));
    }
}

fn direct(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("direct");
    let limiter = RateLimiter::direct(generous_to_all());
    measure(&mut group, "allowed", true, |_, _| limiter.check().is_allowed());
    let limiter = RateLimiter::direct(exhausted());
    let _ = limiter.check();
    measure(&mut group, "denied", false, |_, _| limiter.check().is_allowed());
    group.finish();
}

/// Returns one stream of random keys per thread. The length is a power of two.
fn streams(population: u64) -> [Vec<u64>; 2] {
    let len = population.clamp(1 << 14, 1 << 22).next_power_of_two();
    [1, 2].map(|seed| {
        let mut rng = XorShift::new(seed);
        (0..len).map(|_| key(rng.below(population))).collect()
    })
}

fn keyed_of(criterion: &mut Criterion, title: &str, population: u64) {
    let mut group = criterion.benchmark_group(format!("keyed/{title}"));
    let streams = streams(population);
    for (name, algorithm, expect) in [("allowed", generous(), true), ("denied", exhausted(), false)] {
        let limiter: RateLimiter<Keyed<u64>> = RateLimiter::builder(algorithm).keyed();
        for number in 0..population {
            let _ = limiter.check(&key(number));
        }
        measure(&mut group, name, expect, |thread, turn| {
            let stream = &streams[thread];
            limiter.check(&stream[turn & (stream.len() - 1)]).is_allowed()
        });
    }
    group.finish();
}

/// Returns a compact limiter that has checked this number of keys.
fn compact_limiter(algorithm: Gcra, population: u64) -> RateLimiter<Compact> {
    let builder = RateLimiter::builder(algorithm).capacity(Capacity::slots(4 * length(population)));
    // With the fixed hasher, all runs evict the same keys.
    let limiter = builder.hasher(ahash::RandomState::with_seeds(1, 2, 3, 4)).compact();
    let limiter = limiter.expect("the quota fits in a slot's word");
    for number in 0..population {
        let _ = limiter.check(&key(number));
    }
    limiter
}

fn compact_of(criterion: &mut Criterion, title: &str, population: u64) {
    let mut group = criterion.benchmark_group(format!("compact/{title}"));
    let streams = streams(population);
    for (name, algorithm, expect) in [("allowed", generous(), true), ("denied", exhausted(), false)] {
        let limiter = compact_limiter(algorithm, population);
        measure(&mut group, name, expect, |thread, turn| {
            let stream = &streams[thread];
            limiter.check(&stream[turn & (stream.len() - 1)]).is_allowed()
        });
    }
    let limiter = compact_limiter(generous(), population);
    measure_calls(&mut group, "allowed, check_each", true, count(BATCH), |thread, turn| {
        let stream = &streams[thread];
        let first = (BATCH * turn) & (stream.len() - 1);
        let mut decisions = Vec::with_capacity(BATCH);
        limiter.check_each(stream[first..first + BATCH].iter().map(|key| (key, 1)), |decision| {
            decisions.push(decision);
        });
        decisions.iter().all(|decision| decision.is_allowed())
    });
    group.finish();
}

/// Benches both stores with each number of keys.
fn by_keys(criterion: &mut Criterion) {
    let mut sizes = vec![("1,000 keys", 1_000), ("1 M keys", 1_000_000)];
    if std::env::var_os("TOLLGATE_BENCH_LARGE").is_some() {
        sizes.push(("10 M keys", 10_000_000));
    }
    for (title, population) in sizes {
        keyed_of(criterion, title, population);
        compact_of(criterion, title, population);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    targets = direct, by_keys
}
criterion_main!(benches);
