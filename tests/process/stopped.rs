//! The calls of each limiter are lock-free; see `common/stopped.rs`.

use super::alone;
use super::arena::inside;
use crate::stopping::{CALLS, PROGRESS, goes_on};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tollgate::sketch::{Bloom, CountMin, InFlight, Rate, SampledTopKeys};
use tollgate::{
    Capacity, FixedWindow, Gcra, Overflow, Quota, RateLimiter, SlidingLog, SlidingWindow, SubWindow,
    TokenBucket, WhenFull, check_all, joint::AllOf,
};

/// Control: the signal sometimes stops the worker while it holds a lock, so the tests detect a wait for a lock.
// G25
#[test]
fn control_stopped_thread_holds_a_lock() {
    let _alone = alone();
    let (limiter, held) = (Mutex::new(0_u64), AtomicU64::new(0));
    goes_on("control", &|random| match limiter.try_lock() {
        Ok(mut count) => *count += random.below(3),
        Err(_) => {
            held.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(
        held.load(Ordering::Relaxed) >= CALLS,
        "the worker was never stopped with its lock held, so the other tests of this file prove nothing"
    );
}

// G25
#[test]
fn single_state_limiters_are_lock_free() {
    let _alone = alone();
    let quota = Quota::new(5, Duration::from_millis(1)).burst(50);
    let direct = inside(|| RateLimiter::direct(Gcra::new(quota)));
    let log = inside(|| RateLimiter::direct(SlidingLog::new(quota)));
    let parts = inside(|| RateLimiter::direct(SubWindow::new(quota, 10)));
    let lap = inside(|| RateLimiter::direct(TokenBucket::interval(quota)));
    // With one stripe, both threads use the same stripe.
    let striped = inside(|| RateLimiter::builder(Gcra::new(quota)).stripes(1).striped());
    let adjustable = inside(|| RateLimiter::direct(FixedWindow::new(quota)).adjustable());
    goes_on("direct", &|random| {
        let charge = direct.check_n(random.below(4));
        if random.below(2) == 0 {
            direct.refund(&charge);
        }
        let _ = (log.check(), parts.check_n(2), lap.check(), adjustable.check());
    });
    goes_on("striped", &|random| {
        let _ = (striped.check_n(random.below(9)), striped.peek());
    });
}

// G25
#[test]
fn keyed_limiters_are_lock_free() {
    let _alone = alone();
    let quota = Quota::per_second(50).burst(3);
    let growing = inside(|| RateLimiter::keyed::<u64, _>(Gcra::new(quota)));
    let full = inside(|| {
        let builder = RateLimiter::builder(Gcra::new(quota)).max_keys(40, WhenFull::Forget);
        builder.keyed::<u64>()
    });
    let new = AtomicU64::new(1 << 20);
    goes_on("keyed", &|random| {
        let key = random.below(64);
        match random.below(100) {
            0 => drop(growing.reset(&key)),
            1 => {
                // New keys make the table double now and then.
                let _ = growing.check(&new.fetch_add(1, Ordering::Relaxed));
            }
            2 if random.below(50) == 0 => growing.retain_active(),
            _ => {
                let _ = growing.check(&key);
            }
        }
    });
    goes_on("keyed with a cap", &|random| {
        let _ = full.check(&random.below(200));
    });
}

// G25
#[test]
fn fixed_size_stores_are_lock_free() {
    let _alone = alone();
    let quota = Quota::per_second(50).burst(3);
    for overflow in [Overflow::Spill, Overflow::Forget, Overflow::Inherit] {
        // The table is so small that nearly every new key evicts another key.
        let limiter = inside(|| {
            let builder =
                RateLimiter::builder(Gcra::new(quota)).overflow(overflow).capacity(Capacity::slots(32));
            builder.compact().unwrap()
        });
        goes_on("compact", &|random| {
            let key = random.below(100);
            match random.below(300) {
                0 => drop(limiter.reset(&key)),
                1 => drop(limiter.snapshot()),
                2..60 => {
                    let charge = limiter.check_n(&key, 2);
                    limiter.refund(&key, &charge);
                }
                _ => drop(limiter.check(&key)),
            }
        });
    }
    let quota = Quota::new(3, Duration::from_micros(50));
    let sketch = inside(|| {
        RateLimiter::builder(FixedWindow::new(quota)).capacity(Capacity::memory(512)).sketch().unwrap()
    });
    let sliding = inside(|| {
        RateLimiter::builder(SlidingWindow::new(quota)).capacity(Capacity::memory(1024)).sketch().unwrap()
    });
    goes_on("sketch", &|random| {
        let key = random.below(100);
        let _ = (sketch.check(&key), sliding.check_n(&key, 2));
    });
}

// G25
#[test]
fn joint_checks_and_sketches_are_lock_free() {
    let _alone = alone();
    let quota = Quota::per_second(5_000).burst(3);
    let keyed = inside(|| RateLimiter::keyed::<u64, _>(Gcra::new(quota)));
    let compact =
        inside(|| RateLimiter::builder(Gcra::new(quota)).capacity(Capacity::slots(64)).compact().unwrap());
    goes_on("several limits", &|random| {
        let (one, other) = (random.below(4), random.below(4));
        let charge = if random.below(2) == 0 {
            check_all((keyed.on(&one), compact.on(&other))).is_allowed()
        } else {
            let limits = || (compact.on(&other), keyed.on(&one));
            let charge = check_all(limits());
            AllOf::new(limits()).refund(&charge);
            charge.is_allowed()
        };
        PROGRESS.fetch_add(u64::from(charge), Ordering::Relaxed);
    });

    let rate = inside(|| Rate::try_new(Duration::from_micros(50)).unwrap());
    let (bloom, counts) = inside(|| (Bloom::for_items(100, 0.1).unwrap(), CountMin::try_new(16, 4).unwrap()));
    let in_flight = inside(|| Arc::new(InFlight::with_memory(256).unwrap()));
    let top = inside(|| SampledTopKeys::try_new(16, 1).unwrap());
    goes_on("sketches", &|random| {
        let key = random.below(50);
        let _ = (
            rate.observe(&key, 1),
            bloom.insert(&key),
            counts.add(&key, 1),
            in_flight.try_enter(&key, 1, 1).is_ok(),
        );
        // `record` never waits: without a free stripe it drops the record, and counts the drop.
        top.record(key);
    });
}
