//! What does each algorithm's step cost?
//!
//! One thread calls one direct limiter with given times (`at(now)`), so there is no clock, no hash and no look-up. The
//! measured time covers the arithmetic, the load and, for an admitted check, one uncontended compare-and-swap. The row
//! `floor` is that swap alone.
//! Admitted: one unit every two milliseconds with a quota of 1,000 per second, so windows end and buckets refill as in
//! practice. Denied: the limit is used up, and time does not advance.
//! Known bias: a loop over one word keeps the word in the first-level cache, and the processor predicts all branches.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use tollgate::{
    Algorithm, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, MinimumSpacing, Quota, RateLimiter,
    SlidingLog, SlidingWindow, SubWindow, Timestamp, TokenBucket,
};

const QUOTA: Quota = Quota::per_second(1_000);
/// Twice the emission interval: never denied by any algorithm.
const STEP_NS: u64 = 2_000_000;
/// A time after the epoch that is on no window's boundary.
const START_NS: u64 = 1_700_000_000_123_456_789;

fn allowed(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, algorithm: impl Algorithm) {
    let limiter = RateLimiter::direct(algorithm);
    let mut now = START_NS;
    for _ in 0..10_000 {
        now += STEP_NS;
        assert!(limiter.at(Timestamp::from_nanos(now)).check().is_allowed(), "{name}");
    }
    group.bench_function(name, |b| {
        b.iter(|| {
            now += STEP_NS;
            limiter.at(Timestamp::from_nanos(now)).check_n(black_box(1)).is_allowed()
        });
    });
}

fn denied(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, algorithm: impl Algorithm) {
    let limiter = RateLimiter::direct(algorithm);
    let now = Timestamp::from_nanos(START_NS);
    for _ in 0..=QUOTA.limit() {
        let _ = limiter.at(now).check();
    }
    assert!(limiter.at(now).check().is_denied(), "{name}");
    group.bench_function(name, |b| b.iter(|| limiter.at(now).check_n(black_box(1)).is_allowed()));
}

/// Calls one of the two functions above on every algorithm and mode.
macro_rules! every_algorithm {
    ($measure:ident, $group:expr) => {
        $measure($group, "gcra", Gcra::new(QUOTA));
        $measure($group, "token bucket", TokenBucket::new(QUOTA));
        $measure($group, "token bucket, interval", TokenBucket::interval(QUOTA));
        $measure($group, "token bucket, aligned", TokenBucket::aligned(QUOTA, Timestamp::ZERO));
        $measure($group, "leaky bucket, meter", LeakyBucketMeter::new(QUOTA));
        $measure($group, "leaky bucket, queue", LeakyBucketQueue::new(QUOTA));
        $measure($group, "fixed window", FixedWindow::new(QUOTA));
        $measure($group, "fixed window, first use", FixedWindow::from_first_use(QUOTA));
        $measure($group, "sliding window", SlidingWindow::new(QUOTA));
        $measure($group, "sliding window, strict", SlidingWindow::new(QUOTA).strict());
        $measure($group, "sub-window, 60 parts", SubWindow::new(QUOTA, 60));
        $measure($group, "sub-window, 60 parts, strict", SubWindow::new(QUOTA, 60).strict());
        $measure($group, "sliding log", SlidingLog::new(QUOTA));
        $measure($group, "minimum spacing", MinimumSpacing::new(Duration::from_millis(1)));
    };
}

fn algorithms(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("algorithm/allowed");
    let word = AtomicU64::new(0);
    group.bench_function("floor", |b| {
        b.iter(|| {
            let seen = word.load(Ordering::Relaxed);
            word.compare_exchange(seen, black_box(seen + 1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
    });
    every_algorithm!(allowed, &mut group);
    group.finish();

    let mut group = criterion.benchmark_group("algorithm/denied");
    group.bench_function("floor", |b| b.iter(|| word.load(Ordering::Relaxed) == black_box(0)));
    every_algorithm!(denied, &mut group);
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(1));
    targets = algorithms
}
criterion_main!(benches);
