//! Tests the guarantees of waits. Each test covers one guarantee.

use super::{admitted, ms};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep};
use tollgate::{
    Block, Blocked, Carry, Clock, Direct, FixedWindow, Gcra, LeakyBucketQueue, MinimumSpacing, Quota,
    RateLimiter, SlidingLog, Timestamp, TokenBucket, TokioClock, waiting::Jitter, waiting::NotReady,
};

type Limiter = Arc<RateLimiter<Direct<Gcra>, TokioClock>>;

/// Returns a limiter that refills one unit every 10 ms, with a burst of `burst`.
fn gcra(burst: u64) -> Limiter {
    Arc::new(
        RateLimiter::builder(Gcra::new(Quota::per_second(100).burst(burst)))
            .clock(TokioClock::new())
            .direct(),
    )
}

async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

// G58
#[tokio::test(start_paused = true)]
async fn checks_do_not_overtake_a_reservation() {
    let limiter = gcra(2);
    assert!(limiter.check_n(2).is_allowed());
    let mut wait = limiter.until_ready_n(2);
    assert!(is_pending(&mut wait).await);
    advance(ms(15)).await;
    assert!(limiter.check().is_denied(), "the new unit belongs to the waiter");
    drop(wait);
    assert!(limiter.check().is_allowed(), "the dropped wait refunds the unit");
    assert!(limiter.check().is_denied(), "the dropped wait refunds only that unit");
    assert_eq!(limiter.waiting_lines(), 0);
}

// G54
#[tokio::test(start_paused = true)]
async fn thousand_waiters_keep_order() {
    let limiter = gcra(1);
    let start = Instant::now();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for n in 0..1_000 {
        let (limiter, ends) = (Arc::clone(&limiter), Arc::clone(&ends));
        tasks.spawn(async move {
            admitted(limiter.until_ready().await);
            ends.lock().unwrap().push((n, start.elapsed()));
        });
    }
    sleep(ms(1)).await;
    assert_eq!((limiter.waiting(), limiter.waiting_lines()), (999, 1));
    tasks.join_all().await;
    let expected: Vec<_> = (0..1_000).map(|n| (n, ms(10 * n))).collect();
    assert_eq!(*ends.lock().unwrap(), expected);
    assert_eq!((limiter.waiting(), limiter.waiting_lines()), (0, 0));
}

// G54
#[tokio::test(start_paused = true)]
async fn lines_of_keys_are_independent() {
    let build = RateLimiter::builder(Gcra::new(Quota::per_second(100).burst(1)));
    let limiter = Arc::new(build.clock(TokioClock::new()).keyed::<u64>());
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..600_u64 {
        let limiter = Arc::clone(&limiter);
        tasks.spawn(async move {
            admitted(limiter.until_ready(&(n % 200)).await);
            assert_eq!(start.elapsed(), ms(10 * (n / 200)));
        });
    }
    sleep(ms(1)).await;
    assert_eq!((limiter.waiting(), limiter.waiting_lines()), (400, 200));
    tasks.join_all().await;
    assert_eq!((limiter.waiting(), limiter.waiting_lines()), (0, 0));
}

// G57
#[tokio::test(start_paused = true)]
async fn deadline_refuses_later_turns_at_once() {
    let limiter = gcra(1);
    let start = Instant::now();
    admitted(limiter.until_ready().within(Duration::ZERO).await);
    let late = limiter.until_ready().within(ms(9)).await.unwrap_err();
    assert!(late.is_too_late() && !late.is_never());
    assert_eq!(late.retry_after(), Some(ms(10)));
    assert_eq!(late.to_string(), "not ready in time: the turn would come in 10ms or later (cost 1)");
    let never = limiter.until_ready_n(2).within(ms(100)).await.unwrap_err();
    assert!(never.is_never() && never.decision().is_never());
    assert_eq!(never.to_string(), "never ready: 2 units exceed the limit of 1 at once");
    let waits = [20, 19, 20].map(|within| limiter.until_ready().within(ms(within)));
    let [first, second, third] = waits;
    let mut first = pin!(first);
    assert!(is_pending(&mut first).await);
    // The second wait is behind the first, so its turn comes in 20 ms.
    let second = second.await.unwrap_err();
    assert_eq!((second.retry_after(), start.elapsed()), (Some(ms(20)), Duration::ZERO));
    let (first, third) = futures_util::future::join(first, third).await;
    assert!(first.is_ok() && third.is_ok(), "a turn at the deadline is in time");
    assert_eq!(start.elapsed(), ms(20));
    assert_eq!(limiter.waiting_lines(), 0);
}

// G57
#[tokio::test(start_paused = true)]
async fn unknown_turn_is_refused_at_the_deadline() {
    // One event every 40 ms. If three waiters are in line, a limiter with a minimum spacing cannot predict the turn of
    // a fourth waiter.
    let build = RateLimiter::builder(MinimumSpacing::new(ms(40))).clock(TokioClock::new());
    let limiter = build.direct();
    let start = Instant::now();
    assert!(limiter.check().is_allowed());
    let [a, b, c] = [0; 3].map(|_| async {
        admitted(limiter.until_ready().await);
        start.elapsed()
    });
    let late = async {
        assert!(limiter.until_ready().within(ms(100)).await.unwrap_err().is_too_late());
        start.elapsed()
    };
    let ends = futures_util::future::join4(a, b, c, late).await;
    assert_eq!(ends, (ms(40), ms(80), ms(120), ms(100)));
    assert_eq!(limiter.waiting_lines(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiter_due_at_deadline_beats_its_timer() {
    // Both waits conform in the next window. It begins at the deadline of the second wait, whose timer may fire before
    // the timer of the head.
    let window = FixedWindow::new(Quota::per_second(2));
    let limiter = RateLimiter::builder(window).clock(TokioClock::starting_at(Timestamp::ZERO)).direct();
    assert!(limiter.check_n(2).is_allowed());
    let start = Instant::now();
    let mut head = limiter.until_ready();
    let mut second = limiter.until_ready().within(ms(1_000));
    assert!(is_pending(&mut head).await && is_pending(&mut second).await);
    advance(ms(1_000)).await;
    assert!(is_pending(&mut second).await, "the head has not left the line yet");
    assert!(head.await.is_ok() && second.await.is_ok());
    assert_eq!(start.elapsed(), ms(1_000));
}

// G56
#[tokio::test(start_paused = true)]
async fn dropped_wait_leaves_state_unchanged() {
    // Each row: whether the waits are polled, the milliseconds until they are dropped, and the order of the drops.
    for (polled, after, order) in [
        (false, 0, [0, 1, 2]),
        (true, 0, [0, 1, 2]),
        (true, 7, [2, 1, 0]),
        (true, 7, [1, 0, 2]),
        // The turn of a waiter has come, but the waiter is not polled.
        (true, 30, [0, 1, 2]),
        (true, 35, [0, 2, 1]),
    ] {
        let [limiter, untouched] = [gcra(4), gcra(4)];
        assert!(limiter.check_n(4).is_allowed() && untouched.check_n(4).is_allowed());
        let mut waits = [3, 2, 1].map(|cost| Some(limiter.until_ready_n(cost)));
        for wait in waits.iter_mut().flatten() {
            assert!(!polled || is_pending(wait).await);
        }
        advance(ms(after)).await;
        for index in order {
            waits[index] = None;
        }
        let [left, expected] = [&limiter, &untouched].map(|limiter| limiter.peek().reset_after());
        assert_eq!(left, expected, "{polled} {after} {order:?}");
        assert_eq!(left, ms(40 - after));
        assert_eq!((limiter.waiting(), limiter.waiting_lines()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn reservation_of_several_batches_is_refunded() {
    let bucket = TokenBucket::interval(Quota::new(1, ms(10)).burst(5));
    let [limiter, untouched] = [(); 2].map(|()| {
        let limiter = RateLimiter::builder(bucket).clock(TokioClock::new()).direct();
        assert!(limiter.check_n(5).is_allowed());
        limiter
    });
    let mut head = limiter.until_ready_n(4);
    assert!(is_pending(&mut head).await);
    advance(ms(25)).await;
    drop(head);
    assert_eq!(limiter.peek().remaining(), 2);
    assert_eq!(limiter.peek().reset_after(), untouched.peek().reset_after());
}

// G56
#[tokio::test(start_paused = true)]
async fn dropped_head_wakes_next_waiter() {
    let limiter = gcra(4);
    assert!(limiter.check_n(4).is_allowed());
    let start = Instant::now();
    let mut head = limiter.until_ready_n(4);
    assert!(is_pending(&mut head).await);
    let next = tokio::spawn({
        let limiter = Arc::clone(&limiter);
        async move { limiter.until_ready().await.map(|_| start.elapsed()) }
    });
    sleep(ms(5)).await;
    drop(head);
    assert_eq!(next.await.unwrap().unwrap(), ms(10), "the next waiter takes the turn of the dropped waiter");
    // A waiter that is woken and dropped before its poll wakes the waiter behind it.
    let mut first = limiter.until_ready();
    let mut woken = limiter.until_ready();
    assert!(is_pending(&mut first).await && is_pending(&mut woken).await);
    let last = tokio::spawn({
        let limiter = Arc::clone(&limiter);
        async move { limiter.until_ready().await.map(|_| start.elapsed()) }
    });
    sleep(ms(3)).await;
    drop(first);
    drop(woken);
    assert_eq!(last.await.unwrap().unwrap(), ms(20));
    assert_eq!(limiter.waiting_lines(), 0);
}

// G150
#[tokio::test(start_paused = true)]
async fn waiter_that_leaves_the_middle_moves_others_forward() {
    let limiter = gcra(1);
    assert!(limiter.check().is_allowed());
    let start = Instant::now();
    let (mut head, mut middle, mut last) =
        (limiter.until_ready(), limiter.until_ready_n(1), limiter.until_ready());
    assert!(is_pending(&mut head).await && is_pending(&mut middle).await && is_pending(&mut last).await);
    advance(ms(5)).await;
    drop(middle);
    assert!(head.await.is_ok());
    assert_eq!(start.elapsed(), ms(10));
    assert!(last.await.is_ok());
    assert_eq!(start.elapsed(), ms(20), "the turn of the waiter that left");
}

#[tokio::test(start_paused = true)]
async fn jitter_adds_to_wait_within_deadline() {
    let limiter = gcra(1);
    let start = Instant::now();
    admitted(limiter.until_ready().jitter(Jitter::between(ms(5), ms(7))).await);
    assert_eq!(start.elapsed(), Duration::ZERO, "a wait with free capacity returns at once");
    let mut tasks = JoinSet::new();
    for n in 1..=200 {
        let limiter = Arc::clone(&limiter);
        tasks.spawn(async move {
            admitted(limiter.until_ready().jitter(Jitter::between(ms(50), ms(70))).await);
            let late = start.elapsed() - ms(10 * n);
            assert!((ms(50)..=ms(71)).contains(&late), "{late:?}");
            late
        });
    }
    let mean = tasks.join_all().await.iter().sum::<Duration>() / 200;
    assert!((ms(57)..ms(64)).contains(&mean), "the jitter is not even: {mean:?}");

    let start = Instant::now();
    assert!(limiter.check().is_allowed());
    admitted(limiter.until_ready().jitter(Jitter::between(ms(50), ms(70))).within(ms(15)).await);
    assert_eq!(start.elapsed(), ms(15));
}

#[tokio::test(start_paused = true)]
async fn wait_dropped_in_jitter_is_refunded() {
    let limiter = gcra(1);
    assert!(limiter.check().is_allowed());
    let mut wait = limiter.until_ready().jitter(Jitter::between(ms(5), ms(5)));
    assert!(is_pending(&mut wait).await);
    advance(ms(10)).await;
    assert!(is_pending(&mut wait).await);
    assert_eq!((limiter.waiting(), limiter.check().is_denied()), (0, true));
    drop(wait);
    assert!(limiter.check().is_allowed());
}

// G55
#[tokio::test(start_paused = true)]
async fn submillisecond_intervals_do_not_drift() {
    // 10,000 units per second are ten turns in each tick (1 ms) of tokio's timer.
    let build = RateLimiter::builder(Gcra::new(Quota::per_second(10_000).burst(1)));
    let limiter = Arc::new(build.clock(TokioClock::new()).direct());
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..2_000_u32 {
        let limiter = Arc::clone(&limiter);
        tasks.spawn(async move {
            admitted(limiter.until_ready().await);
            let late = start
                .elapsed()
                .checked_sub(Duration::from_micros(100) * n)
                .expect("a wait ends before its turn");
            assert!(late < ms(1), "{n}: {late:?} late");
        });
    }
    tasks.join_all().await;
}

// G55
#[tokio::test(start_paused = true)]
async fn missed_turns_are_not_caught_up() {
    let build = RateLimiter::builder(Gcra::new(Quota::per_second(1_000).burst(1)));
    let limiter = Arc::new(build.clock(TokioClock::new()).direct());
    let start = Instant::now();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let (limiter, ends) = (Arc::clone(&limiter), Arc::clone(&ends));
        tasks.spawn(async move {
            admitted(limiter.until_ready().await);
            ends.lock().unwrap().push(start.elapsed());
        });
    }
    tokio::task::yield_now().await;
    // No task is polled for half a second.
    advance(ms(500)).await;
    tasks.join_all().await;
    let ends = ends.lock().unwrap();
    // The head goes, and three more waiters: the next head asks as of 2 ms ago at the earliest, so units of 498, 499
    // and 500 ms are available.
    assert_eq!(ends.iter().filter(|&&end| end == ms(500)).count(), 4);
    assert_eq!(ends.last(), Some(&ms(595)));
}

#[tokio::test(start_paused = true)]
async fn wait_ends_by_limiter_clock_not_timer() {
    /// A clock that advances at half the speed of tokio's clock.
    struct Slow(TokioClock);
    impl Clock for Slow {
        fn now(&self) -> Timestamp {
            Timestamp::from_nanos(self.0.now().as_nanos() / 2)
        }
    }
    let clock = Slow(TokioClock::starting_at(Timestamp::ZERO));
    let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(100).burst(1))).clock(clock).direct();
    let start = Instant::now();
    for n in 0..5 {
        admitted(limiter.until_ready().await);
        assert!(start.elapsed() >= ms(20 * n), "a wait ends before its turn");
        assert!(start.elapsed() < ms(20 * n + 1) + ms(n), "{:?}", start.elapsed());
    }
}

// G58
#[tokio::test(start_paused = true)]
async fn without_reservation_only_checks_overtake() {
    let log = SlidingLog::new(Quota::new(2, ms(100)));
    let limiter = Arc::new(RateLimiter::builder(log).clock(TokioClock::new()).direct());
    let start = Instant::now();
    assert!(limiter.check().is_allowed());
    advance(ms(50)).await;
    assert!(limiter.check().is_allowed());
    let spawn = |cost| {
        let limiter = Arc::clone(&limiter);
        tokio::spawn(async move { limiter.until_ready_n(cost).await.map(|_| start.elapsed()) })
    };
    let large = spawn(2);
    tokio::task::yield_now().await;
    let small = spawn(1);
    sleep(ms(60)).await;
    // One unit has left the log. The small request is second in line, so it does not get this unit. A check gets it.
    assert_eq!(limiter.waiting(), 2);
    assert!(limiter.check().is_allowed());
    assert_eq!(large.await.unwrap().unwrap(), ms(210));
    assert_eq!(small.await.unwrap().unwrap(), ms(310));
}

#[tokio::test(start_paused = true)]
async fn queue_shapes_waiting_requests() {
    let queue = LeakyBucketQueue::new(Quota::per_second(100).burst(3));
    let limiter = Arc::new(RateLimiter::builder(queue).clock(TokioClock::new()).direct());
    let start = Instant::now();
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move {
                let end = limiter.until_ready().within(ms(40)).await.map(|_| start.elapsed());
                (n, end.map_err(|error: NotReady| (error.retry_after(), start.elapsed())))
            })
        })
        .collect();
    for task in tasks {
        let (n, end) = task.await.unwrap();
        // Five requests have a turn within 40 ms. The others are denied immediately.
        let expected = if n < 5 { Ok(ms(10 * n)) } else { Err((Some(ms(50)), Duration::ZERO)) };
        assert_eq!(end, expected, "{n}");
    }
}

#[tokio::test(start_paused = true)]
async fn zero_cost_wait_returns_at_once() {
    let limiter = gcra(1);
    assert!(limiter.check().is_allowed());
    let mut head = limiter.until_ready();
    assert!(is_pending(&mut head).await);
    assert_eq!(limiter.until_ready_n(0).await.expect("a cost of zero").cost(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiter_keeps_turn_when_quota_changes() {
    let build = RateLimiter::builder(Gcra::new(Quota::per_second(10).burst(2))).clock(TokioClock::new());
    let limiter = build.direct().adjustable();
    assert!(limiter.check_n(2).is_allowed());
    let start = Instant::now();
    let mut waits = [1, 1, 2].map(|cost| limiter.until_ready_n(cost));
    for wait in &mut waits {
        assert!(is_pending(wait).await);
    }
    limiter.set_quota(&Quota::per_second(1).burst(1), Carry::AsIs).expect("an ordinary quota");
    let [head, next, never] = waits;
    admitted(head.await);
    assert_eq!(start.elapsed(), ms(100), "the head keeps its turn");
    admitted(next.await);
    assert!(start.elapsed() >= ms(1_000), "the next turn is at the new rate: {:?}", start.elapsed());
    assert!(never.await.unwrap_err().is_never());
}

#[tokio::test(start_paused = true)]
async fn decision_reports_charge_time_and_wait() {
    let limiter = gcra(1);
    assert!(limiter.check().is_allowed());
    advance(ms(3)).await;
    let came = limiter.clock().now();
    let charge = limiter.until_ready().await.expect("a wait without a deadline");
    assert_eq!((charge.at(), charge.delay()), (came, ms(7)));
    assert_eq!(limiter.clock().now(), came + charge.delay());
}

#[tokio::test(start_paused = true)]
async fn ready_decision_stays_and_is_refundable() {
    let limiter = gcra(1);
    let mut wait = limiter.until_ready();
    let first = (&mut wait).await.expect("room");
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(pin!(&mut wait).poll(&mut cx), Poll::Ready(Ok(first)));
    drop(wait);
    assert!(limiter.check().is_denied(), "a wait that has ended is not refunded");
    assert_eq!(limiter.refund(&first), 1);
    assert!(limiter.check().is_allowed());
}

#[test]
fn waits_are_send() {
    fn sendable<T: Send + Unpin + std::fmt::Debug>(_: &T) {}
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let limiter = gcra(1);
    sendable(&limiter.until_ready());
    sendable(&limiter.wait());
    let by_key = RateLimiter::new(Quota::per_second(1));
    sendable(&by_key.until_ready("alice").within(ms(1)).jitter(Jitter::up_to(ms(1))));
    sendable(&by_key.wait_n(&[1, 2], 2));
    sendable(&TokioClock::default());
}

// G129
#[tokio::test(start_paused = true)]
async fn wait_starts_no_block_and_ends_after_one() {
    let limit = Blocked::new(Quota::per_second(100).burst(2), Block::of(ms(100)));
    let limiter = RateLimiter::builder(limit).clock(TokioClock::new()).direct();
    assert!(limiter.check_n(2).is_allowed());
    let start = Instant::now();
    assert!(limiter.until_ready().await.is_ok() && start.elapsed() == ms(10));
    assert!(limiter.peek().is_denied() && !limiter.peek().is_block());
    let denial = limiter.check();
    assert!(denial.is_block() && denial.retry_after() == Some(ms(100)));
    assert!(limiter.until_ready().within(ms(99)).await.is_err());
    assert!(limiter.until_ready().await.is_ok() && start.elapsed() == ms(110));
}
