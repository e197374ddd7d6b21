//! What does a check cost that spends from a lease, compared with a check that only this process decides?
//!
//! There are 1,000 keys (24-byte strings, numbers and addresses), one and two threads, and the default clock. *Keyed*
//! limiters keep their keys in this process. *Leases* hold units that were charged at a server. Here the server is in
//! this process too, and leases are fetched before the measurement starts. A lease lives for an hour and holds more
//! units than a run spends, so no measured check asks the server. Both limiters draw the same keys, uniformly.
//! Known bias: in production, another task fetches a new block now and then. How often depends on the traffic;
//! `crates/soak/tests/soak/leases.rs` counts these fetches.

mod support;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main};
use tollgate::{Gcra, Keyed, Quota, RateLimiter};
use tollgate_redis::{Blocking, InProcess, Key, LeaseLimiter, Limit};

use support::{XorShift, count, length, stopwatch, text};

const KEYS: usize = 1_000;

fn timed(threads: usize, iterations: u64, check: impl Fn(usize) -> bool + Sync) -> Duration {
    let barrier = Barrier::new(threads);
    let run = |thread: usize| {
        let mut random = XorShift::new(count(thread));
        barrier.wait();
        let start = stopwatch();
        let mut allowed = 0;
        for _ in 0..iterations {
            allowed += u64::from(check(length(random.below(count(KEYS)))));
        }
        let end = stopwatch();
        assert!(allowed > iterations / 10 * 9, "{allowed} of {iterations}");
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

fn measure(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, check: impl Fn(usize) -> bool + Sync) {
    for threads in [1, 2] {
        let id = BenchmarkId::new(name, format!("{threads} thread{}", if threads == 1 { "" } else { "s" }));
        group.bench_function(id, |b| b.iter_custom(|iterations| timed(threads, iterations, &check)));
    }
}

fn generous() -> Quota {
    Quota::per_second(1_000_000).burst(4_000_000_000)
}

/// Returns a limiter whose leases hold more units than a run spends.
fn filled<K: Key>(keys: &[K], stripes: Option<usize>) -> Blocking<LeaseLimiter> {
    let server = InProcess::default().blocking();
    let mut leases = server
        .limiter("bench", Limit::gcra(generous()))
        .leases()
        .life(Duration::from_secs(3600))
        .max_block(1 << 30);
    if let Some(stripes) = stripes {
        leases = leases.stripes(stripes);
    }
    let limiter = leases.build().expect("the quota is valid");
    for key in keys {
        let answer = limiter.block_on(|l| l.check_n_async(key, 3_000_000_000));
        assert!(answer.is_allowed(), "{answer:?}");
        assert_eq!(limiter.refund(key, &answer), 3_000_000_000);
    }
    limiter
}

fn keys_of<K: Key + std::hash::Hash + Eq + Clone + Send + Sync + 'static>(
    criterion: &mut Criterion,
    title: &str,
    keys: &[K],
) {
    let mut group = criterion.benchmark_group(format!("lease/{title}"));
    let alone: RateLimiter<Keyed<K>> = RateLimiter::builder(Gcra::new(generous())).keyed();
    measure(&mut group, "keyed", |index| alone.check(&keys[index]).is_allowed());
    let leases = filled(keys, None);
    measure(&mut group, "leases", |index| leases.check(&keys[index]).is_allowed());
    group.finish();
}

fn keyed(criterion: &mut Criterion) {
    keys_of(criterion, "text", &(0..count(KEYS)).map(text).collect::<Vec<String>>());
    keys_of(criterion, "number", &(0..count(KEYS)).map(support::key).collect::<Vec<u64>>());
    let address = |number: usize| {
        let bits = u32::try_from(number).expect("a small number") + 0x0a00_0000;
        IpAddr::from(Ipv4Addr::from(bits))
    };
    keys_of(criterion, "address", &(0..KEYS).map(address).collect::<Vec<IpAddr>>());
}

fn hot(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lease/one key");
    let alone = RateLimiter::direct(Gcra::new(generous()));
    measure(&mut group, "direct", |_| alone.check().is_allowed());
    let one = filled(&[()], None);
    measure(&mut group, "leases", |_| one.check(&()).is_allowed());
    let striped = filled(&[()], Some(2));
    measure(&mut group, "leases, striped", |_| striped.check(&()).is_allowed());
    group.finish();
}

criterion_group!(benches, keyed, hot);
criterion_main!(benches);
