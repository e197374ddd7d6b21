//! Lease limiters, through their public API.
//!
//! `crates/soak/tests/soak/leases.rs` tests delays, losses and clocks in virtual time. These tests cover the
//! answers of calls, closed and dropped limiters, server outages, and limiters in threads and tasks on a real server.

use std::task::{Context, Waker};
use std::time::Duration;

use tollgate::{ManualClock, Quota, Timestamp};
use tollgate_redis::{
    Blocking, BuildError, Client, DecidedBy, ErrorKind, InProcess, LeaseLimiter, Limit, OnFailure,
};
use tollgate_testing::redis::{NO_END, Proxy, Server};

use crate::{absent, client, in_tasks, in_threads, one_thread, runtime, strict};

fn hour(limit: u64) -> Limit {
    Limit::fixed_window(Quota::per_hour(limit))
}

fn start() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(1_700_000_000))
}

/// Yields until the limiter's task has nothing left to do.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn limiter(server: &InProcess, clock: &ManualClock, limit: Limit) -> LeaseLimiter<ManualClock> {
    server.limiter("api", limit).leases().clock(clock.clone()).build().unwrap()
}

/// A limiter with a server of its own.
fn alone(limit: Limit) -> (ManualClock, LeaseLimiter<ManualClock>) {
    let clock = start();
    let limiter = limiter(&InProcess::new(clock.clone()), &clock, limit);
    (clock, limiter)
}

#[test]
fn limiters_with_a_task_need_a_tokio_runtime() {
    let builder = || InProcess::default().limiter("api", hour(10));
    let errors = [builder().leases().build().unwrap_err(), builder().write_back().build().unwrap_err()];
    for error in errors {
        assert!(matches!(error, BuildError::NoRuntime));
        assert!(error.to_string().contains("tokio runtime"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn check_is_denied_until_lease_arrives() {
    let (_, limiter) = alone(hour(100));
    let first = limiter.check("a");
    assert!(first.is_denied() && first.retry_after().unwrap() <= Duration::from_millis(2));
    settle().await;
    let second = limiter.check("a");
    assert!(second.is_allowed());
    assert_eq!(second.by(), DecidedBy::Held);
    assert_eq!(limiter.stats().spent, 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_check_then_spends_held_units() {
    let (clock, limiter) = alone(Limit::gcra(Quota::per_second(10_000)));
    let answer = limiter.check_async("a").await;
    assert!(answer.is_allowed());
    assert_eq!(answer.by(), DecidedBy::Server);
    for _ in 0..2_000 {
        clock.advance(Duration::from_millis(1));
        assert!(limiter.check_async("a").await.is_allowed());
        tokio::task::yield_now().await;
    }
    let stats = limiter.stats();
    assert_eq!(stats.spent, 2_001);
    assert!(stats.asked < 60, "{stats:?}");
    assert!(stats.stranded < 20, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn concurrent_waiters_share_server_calls() {
    let (_, limiter) = alone(hour(100_000));
    let checks = in_tasks(500, |_| {
        let limiter = limiter.clone();
        async move { limiter.check_async("a").await.is_allowed() }
    });
    assert_eq!(checks.await, [true; 500]);
    let stats = limiter.stats();
    assert_eq!(stats.spent, 500);
    assert!(stats.asked <= 10, "{stats:?}");
}

/// A check is dropped before the reply arrives, or after it and before the check is polled again.
#[tokio::test(start_paused = true)]
async fn cancelled_check_loses_no_units() {
    for after_reply in [false, true] {
        let (_, limiter) = alone(hour(1_000));
        let mut check = Box::pin(limiter.check_n_async("a", 100));
        assert!(check.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        if after_reply {
            settle().await;
        }
        drop(check);
        settle().await;
        let stats = limiter.stats();
        let seen = (stats.granted, stats.held, stats.spent, stats.in_flight);
        assert_eq!(seen, (100, 100, 0, 0), "after the reply: {after_reply}");
        assert!(limiter.check_n("a", 100).is_allowed());
    }
}

/// Returns what decided a waiting check, and how long the check took by tokio's paused clock.
async fn waits(limiter: &LeaseLimiter<ManualClock>) -> (DecidedBy, Duration) {
    let began = tokio::time::Instant::now();
    let by = limiter.check_async("a").await.by();
    (by, began.elapsed())
}

/// The runtime of a limiter ends, also while a call to the server is under way.
#[test]
fn check_does_not_wait_for_ended_runtime() {
    for calls in [0, 1] {
        let gone = one_thread();
        let (clock, limiter) = gone.block_on(async {
            let (clock, limiter) = alone(hour(100));
            for _ in 0..calls {
                let mut check = Box::pin(limiter.check_async("a"));
                assert!(check.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            (clock, limiter)
        });
        assert_eq!(limiter.stats().in_flight, calls);
        drop(gone);
        let stats = limiter.stats();
        assert_eq!((stats.in_flight, stats.lost), (0, calls), "{stats:?}");
        // The lost call is a failure of the server, so the failure policy decides.
        assert_eq!(limiter.check("a").is_denied(), calls == 0, "{calls} calls");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            for _ in 0..3 {
                let (by, took) = waits(&limiter).await;
                assert!(by.is_failure() && took.is_zero(), "{by:?} after {took:?}");
                assert_eq!(limiter.stats().in_flight, 0);
                clock.advance(Duration::from_secs(10));
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn clone_of_closed_limiter_calls_server() {
    let (_, limiter) = alone(hour(100));
    limiter.clone().close().await;
    settle().await;
    assert!(limiter.check("a").is_denied());
    settle().await;
    assert_eq!(waits(&limiter).await, (DecidedBy::Server, Duration::ZERO));
}

#[test]
fn clone_of_closed_blocking_limiter_calls_server() {
    let clock = start();
    let server = InProcess::new(clock.clone()).blocking();
    let limiter = server.limiter("api", hour(100)).leases().clock(clock).build().unwrap();
    limiter.clone().block_on(|l| l.clone().close());
    assert!(limiter.check("a").is_denied());
    assert_eq!(limiter.block_on(|l| l.check_async("a")).by(), DecidedBy::Server);
}

#[tokio::test(start_paused = true)]
async fn waiter_rechecks_after_each_reply() {
    let (clock, limiter) = alone(Limit::gcra(Quota::per_second(10_000)));
    let mut context = Context::from_waker(Waker::noop());
    let mut checks: Vec<_> = (0..64).map(|_| Box::pin(limiter.check_async("a"))).collect();
    let mut rounds = 0;
    while !checks.is_empty() {
        checks.retain_mut(|check| check.as_mut().poll(&mut context).is_pending());
        let held = limiter.stats().held;
        assert!(checks.is_empty() || held == 0, "{} checks wait, though {held} units are held", checks.len());
        clock.advance(Duration::from_millis(1));
        settle().await;
        rounds += 1;
        assert!(rounds < 10, "{:?}", limiter.stats());
    }
}

/// A waiting check finishes although checks that do not wait keep asking for the same key.
#[tokio::test(start_paused = true)]
async fn waiter_is_not_starved() {
    let (clock, limiter) = alone(Limit::gcra(Quota::per_second(10_000)));
    let mut context = Context::from_waker(Waker::noop());
    let mut one = Box::pin(limiter.check_async("a"));
    let mut two = Box::pin(limiter.check_async("a"));
    assert!(one.as_mut().poll(&mut context).is_pending() && two.as_mut().poll(&mut context).is_pending());
    for _ in 0..10 {
        settle().await;
        clock.advance(Duration::from_millis(1));
        let _ = limiter.check_n("a", 5_000);
        if two.as_mut().poll(&mut context).is_ready() {
            return;
        }
    }
    panic!("a check still waits: {:?}", limiter.stats());
}

#[tokio::test(start_paused = true)]
async fn oversized_cost_asks_server_exactly_or_never() {
    let clock = start();
    let builder = InProcess::new(clock.clone()).limiter("api", hour(1_000_000)).leases();
    let builder = builder.life(Duration::from_millis(1)).max_block(u64::MAX);
    let limiter = builder.clock(clock.clone()).build().unwrap();
    for _ in 0..50 {
        let denied = limiter.check_n("a", 1_024);
        assert!(denied.is_denied() && !denied.decision().is_never());
        settle().await;
        clock.advance(Duration::from_micros(100));
    }
    assert_eq!(limiter.stats().asked, 0);
    let exact = limiter.check_n_async("a", 20_000).await;
    assert!(exact.is_allowed());
    assert_eq!((exact.by(), exact.decision().remaining()), (DecidedBy::Server, 980_000));
    assert_eq!(limiter.stats().held, 0);
    // A process can hold at most 1,023 units of a key.
    assert!(limiter.check_n("a", 1_023).is_denied());
    settle().await;
    assert!(limiter.check_n("a", 1_023).is_allowed());
    assert!(limiter.check_n_async("a", 1_000_001).await.decision().is_never());
}

#[tokio::test(start_paused = true)]
async fn exhausted_key_is_denied_locally_until_refill() {
    let (clock, limiter) = alone(Limit::gcra(Quota::per_second(1).burst(3)));
    for _ in 0..3 {
        assert!(limiter.check_async("a").await.is_allowed());
    }
    let asked = limiter.stats().asked;
    let denied = limiter.check_async("a").await;
    assert!(denied.is_denied());
    for _ in 0..1_000 {
        assert!(limiter.check_async("a").await.is_denied() && limiter.check("a").is_denied());
    }
    assert!(limiter.stats().asked <= asked + 1, "denied checks do not call the server");
    let wait = denied.retry_after().unwrap();
    assert!((Duration::from_secs(1)..Duration::from_millis(1_126)).contains(&wait), "{wait:?}");
    clock.advance(wait);
    assert!(limiter.check_async("a").await.is_allowed(), "the check is admitted after the reported wait");
    assert!(limiter.check_n_async("a", 4).await.decision().is_never());
}

#[tokio::test(start_paused = true)]
async fn returned_units_keep_their_expiry() {
    let (clock, limiter) = alone(hour(1));
    let answer = limiter.check_async("a").await;
    assert!(answer.is_allowed());
    assert!(limiter.check("a").is_denied());
    assert_eq!(limiter.refund("a", &answer), 1);
    let again = limiter.check("a");
    assert!(again.is_allowed());
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiter.refund("a", &again), 0, "the unit has expired");
    let denied = limiter.check("a");
    assert!(denied.is_denied());
    assert_eq!(limiter.refund("a", &denied), 0);
}

#[tokio::test(start_paused = true)]
async fn close_returns_held_units() {
    let clock = start();
    let server = InProcess::new(clock.clone());
    let limit = hour(1_000);
    let one = limiter(&server, &clock, limit);
    for _ in 0..300 {
        assert!(one.check_async("a").await.is_allowed());
        clock.advance(Duration::from_millis(1));
        settle().await;
    }
    let held = one.stats().held;
    assert!(held > 0, "the limiter holds units that it can return");
    let copy = one.clone();
    one.close().await;
    assert_eq!(copy.stats().returned, held);
    let exact = server.limiter("api", limit).atomic().unwrap();
    assert_eq!(exact.peek("a").await.decision().remaining(), 700);
}

#[tokio::test(start_paused = true)]
async fn lease_task_ends_with_last_clone() {
    let (_, limiter) = alone(hour(10));
    let copy = limiter.clone();
    settle().await;
    let metrics = tokio::runtime::Handle::current().metrics();
    assert_eq!(metrics.num_alive_tasks(), 1);
    drop(limiter);
    settle().await;
    assert_eq!(metrics.num_alive_tasks(), 1);
    drop(copy);
    settle().await;
    assert_eq!(metrics.num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn keys_beyond_capacity_are_decided_by_server() {
    let clock = start();
    let server = InProcess::new(clock.clone());
    let limiter = server.limiter("api", hour(2)).max_keys(10).leases().clock(clock.clone()).build().unwrap();
    for key in 0..50_u64 {
        for allowed in [true, true, false] {
            assert_eq!(limiter.check_async(&key).await.is_allowed(), allowed, "key {key}");
        }
    }
    let stats = limiter.stats();
    assert_eq!((stats.keys, stats.full), (10, 120), "{stats:?}");
    assert!(limiter.check(&99_u64).is_denied(), "a check that does not wait is denied");
    // The limiter forgets keys that were unused for a while, and so makes room.
    clock.advance(Duration::from_secs(3_600));
    let _ = limiter.check(&1_u64);
    settle().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    settle().await;
    assert!(limiter.stats().keys < 10, "{:?}", limiter.stats());
}

#[tokio::test(start_paused = true)]
async fn held_lease_is_spent_before_failure_policy() {
    let builder = absent().limiter("api", hour(8)).on_failure(OnFailure::Local { processes: 2 });
    let limiter = builder.leases().clock(start()).build().unwrap();
    let first = limiter.check_async("a").await;
    assert_eq!((first.by(), first.is_allowed()), (DecidedBy::Local, true));
    let mut allowed = 1;
    for _ in 0..20 {
        let answer = limiter.check("a");
        assert_eq!(answer.by(), DecidedBy::Local);
        allowed += u64::from(answer.is_allowed());
    }
    assert_eq!(allowed, 4, "this process gets half of the limit");
    assert!(limiter.stats().lost > 0);
}

/// Eight blocking limiters, which stand for eight processes, use one key until no unit is left.
// G78
#[test]
fn eight_lease_limiters_share_one_window() {
    let Some(server) = Server::start() else { return };
    let limit = 5_000;
    let limiters: [Blocking<LeaseLimiter>; 8] = std::array::from_fn(|_| {
        let limit = Limit::fixed_window(Quota::new(limit, NO_END));
        let builder = strict(client(&server).blocking().limiter("api", limit), &[]);
        builder.leases().stripes(2).build().unwrap()
    });
    let admitted: u64 = in_threads(8, |number| {
        let limiter = &limiters[number];
        let (mut admitted, mut refused) = (0, 0);
        // Other limiters may hold the last units for a moment, so each thread stops only after many denials.
        while refused < 20_000 {
            let answer = limiter.block_on(|l| l.check_async("one"));
            assert!(!answer.by().is_failure(), "{answer:?} {:?}", limiter.health());
            admitted += u64::from(answer.is_allowed());
            refused += u64::from(answer.is_denied());
        }
        admitted
    })
    .into_iter()
    .sum();
    let stats = limiters.iter().map(|limiter| limiter.stats());
    let left: u64 = stats.map(|stats| stats.held + stats.stranded).sum();
    assert!(admitted <= limit, "{admitted}");
    assert_eq!(admitted + left, limit, "each unit is admitted, held or stranded");
    assert!(left <= limit / 50, "{left} are stranded");
}

#[test]
fn held_units_are_spent_during_outage() {
    let Some(mut server) = Server::start() else { return };
    let clock = start();
    let builder = client(&server).blocking().limiter("api", Limit::gcra(Quota::per_second(1_000)));
    let limiter = strict(builder, &[]).leases().clock(clock.clone()).build().unwrap();
    // The clock moves only here, so that no unit expires and blocks grow.
    let mut spent = 0;
    while limiter.stats().held < 20 {
        assert!(limiter.block_on(|l| l.check_async("a")).is_allowed());
        clock.advance(Duration::from_millis(1));
        spent += 1;
        assert!(spent < 900, "{:?}", limiter.stats());
    }
    server.kill();
    let held = limiter.stats().held;
    let check = || limiter.block_on(|l| l.check_async("a"));
    let allowed = (0..held + 4).filter(|_| check().is_allowed()).count() as u64;
    assert!(allowed >= held, "{allowed} of {held} held units were spent");
    assert_eq!(check().by(), DecidedBy::Closed);
}

/// Threads that never pause starve the limiter's own task, so that it sees answers after the callers' time-out of 40 ms. This
/// does not count as a server failure. An answer may take a quarter of a life, here longer than any system lets a task wait.
// G84
#[test]
#[expect(clippy::disallowed_methods, reason = "real servers take real time")]
fn busy_keys_leave_the_breaker_closed() {
    const KEYS: u64 = 20_000;
    let _busy = crate::busy();
    let Some(server) = Server::start() else { return };
    let runtime = runtime();
    let limiter = runtime.block_on(async {
        let limiter = client(&server).limiter("api", Limit::gcra(Quota::per_second(1_000_000)));
        limiter.leases().life(Duration::from_secs(600)).build().unwrap()
    });
    let began = std::time::Instant::now();
    let all = in_threads(2, |thread| {
        let first = thread as u64 * KEYS / 2;
        let (mut checks, mut local, mut allowed) = (0_u64, 0_u64, 0_u64);
        while began.elapsed() < Duration::from_secs(3) {
            for key in 0..1_000 {
                let answer = limiter.check(&((first + checks + key) % KEYS));
                local += u64::from(answer.by() == DecidedBy::Local);
                allowed += u64::from(answer.is_allowed());
            }
            checks += 1_000;
        }
        (checks, local, allowed)
    });
    let health = limiter.health();
    for (checks, local, allowed) in all {
        assert!(local * 100 < checks, "{local} of {checks} by the policy: {health:?}");
        assert!(allowed > 0);
    }
    assert_eq!(health.opened, 0, "{health:?}");
}

/// A reply after the time-out, but within a quarter of the units' life, still brings its units. Only callers that
/// waited get the policy's decision.
// G84
#[tokio::test]
async fn late_answer_is_no_failure() {
    let Some(server) = Server::start() else { return };
    let proxy = Proxy::start(server.port());
    let limit = Limit::gcra(Quota::per_second(1_000));
    let leases = Client::open(&proxy.url()).unwrap().limiter("api", limit).leases();
    // A quarter of this life is longer than a busy machine delays a reply.
    let limiter = leases.life(Duration::from_secs(600)).build().unwrap();
    while limiter.check_async("first").await.by() != DecidedBy::Server {}
    proxy.delay(Duration::from_millis(60));
    let late = limiter.check_async("a").await;
    assert_eq!(late.by(), DecidedBy::Local, "the policy decides after two time-outs");
    assert!(limiter.check("b").is_denied(), "the process holds no units yet");
    let held = |key| limiter.peek(key, 1).is_allowed();
    crate::until("the process holds the units that a late reply granted", async || {
        let _ = limiter.check("b");
        held("a") || held("b")
    })
    .await;
    let health = limiter.health();
    assert_eq!((health.errors(ErrorKind::Timeout), health.opened), (0, 0), "{health:?}");
}
