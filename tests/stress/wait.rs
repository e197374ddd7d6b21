//! Many tasks and threads wait for few keys at the same time and give up at any moment. No waiter is forgotten, no line
//! is left, and no more is admitted than the elapsed time allows.
//!
//! The tests use real time, so the timing depends on the machine. The test marked `#[ignore]` is larger, for runs under
//! a sanitizer.

use super::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{Algorithm, Clock, Gcra, Keyed, Quota, RateLimiter, SlidingLog, StdClock, waiting::Jitter};

const KEYS: u64 = 3;
const BURST: u64 = 4;
const PER_SECOND: u64 = 4_000;
/// How much earlier the next waiters may be admitted because a wake-up was late.
const LATE: Duration = Duration::from_millis(2);

type Limiter<A> = RateLimiter<Keyed<u64, A>, StdClock>;

/// Waits `times` times and gives up half of the time. Counts the admitted units of each key.
async fn waiter<A: Algorithm>(limiter: &Limiter<A>, admitted: &[AtomicU64], seed: u64, times: u64) {
    let mut random = Random(seed);
    for _ in 0..times {
        let (key, cost) = (random.below(KEYS), 1 + random.below(BURST));
        let wait = limiter.until_ready_n(&key, cost);
        let patience = Duration::from_micros(random.below(4_000));
        let result = match random.below(6) {
            0 => tokio::time::timeout(patience, wait).await.ok(),
            1 => {
                // Poll once or twice, then drop the wait.
                tokio::select! {
                    biased;
                    result = wait => Some(result),
                    () = tokio::task::yield_now() => None,
                }
            }
            2 => Some(wait.within(patience).await),
            3 => Some(wait.jitter(Jitter::up_to(Duration::from_micros(500))).await),
            _ => Some(wait.await),
        };
        if let Some(Ok(charge)) = result {
            assert!(limiter.clock().now() >= charge.at() + charge.delay(), "a wait ends before its turn");
            let index = usize::try_from(key).expect("small");
            admitted[index].fetch_add(cost, Ordering::Relaxed);
        }
    }
}

fn run<A: Algorithm>(algorithm: A, most_in: impl Fn(Duration) -> u64, tasks: u64, times: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let limiter = Arc::new(RateLimiter::builder(algorithm).clock(StdClock::new()).keyed::<u64>());
    let admitted: Arc<[AtomicU64]> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let start = limiter.clock().now();
    let running: Vec<_> = (0..tasks)
        .map(|seed| {
            let (limiter, admitted) = (Arc::clone(&limiter), Arc::clone(&admitted));
            runtime.spawn(async move { waiter(&limiter, &admitted, seed, times).await })
        })
        .collect();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (limiter, admitted) = (&limiter, &admitted);
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..times {
                    let key = random.below(KEYS);
                    let patience = Duration::from_micros(random.below(40_000));
                    if limiter.wait(&key).within(patience).block().is_ok() {
                        admitted[usize::try_from(key).expect("small")].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    // Abort some tasks, at any point of their wait.
    let aborted = running.len() / 8;
    for task in &running[..aborted] {
        task.abort();
    }
    runtime.block_on(async {
        for (index, task) in running.into_iter().enumerate() {
            let result = task.await;
            assert!(result.is_ok() || index < aborted, "{result:?}");
        }
    });
    let most = most_in(limiter.clock().now().duration_since(start) + LATE);
    for (key, units) in admitted.iter().enumerate() {
        let units = units.load(Ordering::Relaxed);
        assert!(units <= most, "{units} units of key {key}, at most {most}");
    }
    assert_eq!((limiter.waiting(), limiter.waiting_lines()), (0, 0), "waiters or lines are left");
}

fn all(tasks: u64, times: u64) {
    let interval_ns = u128::from(1_000_000_000 / PER_SECOND);
    let units = |time: Duration| u64::try_from(time.as_nanos() / interval_ns).expect("small");
    let quota = Quota::per_second(PER_SECOND).burst(BURST);
    run(Gcra::new(quota), |time| BURST + units(time), tasks, times);
    let window = Duration::from_millis(2);
    let log = SlidingLog::new(Quota::new(2 * BURST, window));
    let windows = |time: Duration| u64::try_from(time.as_nanos() / window.as_nanos()).expect("small");
    run(log, |time| 2 * BURST * (1 + windows(time)), tasks, times);
}

// G55, G56
#[test]
fn no_waiter_is_forgotten() {
    all(24, 20);
}

// G13
#[test]
#[ignore = "larger; for sanitizers"]
fn heavy_no_waiter_is_forgotten() {
    all(64, 150);
}
