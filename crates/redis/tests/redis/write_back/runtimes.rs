//! Limiters whose runtime is gone or idle.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tollgate::{ManualClock, Quota};
use tollgate_redis::{InProcess, Limit, WriteBackLimiter};

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime")
}

fn in_time<R>(future: impl Future<Output = R>) -> Option<R> {
    runtime().block_on(async { timeout(Duration::from_secs(3_600), future).await.ok() })
}

/// A limiter that has admitted a unit, and its runtime.
fn used() -> (Runtime, WriteBackLimiter<ManualClock>) {
    let (runtime, clock) = (runtime(), ManualClock::default());
    let builder = InProcess::new(clock.clone()).limiter("api", Limit::fixed_window(Quota::per_hour(100)));
    let limiter = runtime.block_on(async { builder.write_back().clock(clock).build().unwrap() });
    assert!(limiter.check("a").is_allowed());
    (runtime, limiter)
}

#[test]
fn limiter_closes_after_its_runtime_is_gone() {
    let (first, limiter) = used();
    drop(first);
    assert_eq!(in_time(limiter.clone().close()), Some(0), "close posts the admitted unit");
    assert_eq!(limiter.stats().posts, 1);
    assert_eq!(in_time(limiter.close()), Some(0));
}

#[test]
fn limiter_closes_while_its_runtime_is_idle() {
    let (_idle, limiter) = used();
    assert_eq!(in_time(limiter.close()), Some(0));
}

#[test]
fn posts_dropped_with_their_runtime_are_resent() {
    let (first, limiter) = used();
    // The task runs once: its posts are spawned, but not carried.
    first.block_on(tokio::task::yield_now());
    drop(first);
    assert_eq!(in_time(limiter.flush()), Some(0));
    assert!(limiter.stats().posts >= 1);
}
