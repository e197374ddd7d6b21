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

fn limiter(of: &Runtime) -> WriteBackLimiter<ManualClock> {
    let clock = ManualClock::default();
    let server = InProcess::new(clock.clone());
    let limit = Limit::fixed_window(Quota::per_hour(100));
    let limiter = of.block_on(async { server.limiter("api", limit).write_back().clock(clock).build() });
    limiter.expect("a limiter")
}

#[test]
fn limiter_closes_after_its_runtime_is_gone() {
    let first = runtime();
    let limiter = limiter(&first);
    assert!(limiter.check("a").is_allowed());
    drop(first);
    let closed = in_time(limiter.clone().close());
    assert_eq!(closed, Some(0), "close posts the admitted unit");
    assert_eq!(limiter.stats().posts, 1);
    let again = in_time(limiter.close());
    assert_eq!(again, Some(0));
}

#[test]
fn limiter_closes_while_its_runtime_is_idle() {
    let first = runtime();
    let limiter = limiter(&first);
    assert!(limiter.check("a").is_allowed());
    let closed = in_time(limiter.close());
    assert_eq!(closed, Some(0));
    drop(first);
}

#[test]
fn posts_dropped_with_their_runtime_are_resent() {
    let first = runtime();
    let limiter = limiter(&first);
    assert!(limiter.check("a").is_allowed());
    // The task runs once: its posts are spawned, but not carried.
    first.block_on(tokio::task::yield_now());
    drop(first);
    let left = in_time(limiter.flush());
    assert_eq!(left, Some(0));
    assert!(limiter.stats().posts >= 1);
}
