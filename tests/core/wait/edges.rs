//! Deadlines at the exact moment of a turn, and events that must not block a line.

use super::ms;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::advance;
use tollgate::{
    Clock, FixedWindow, Gcra, LeakyBucketQueue, ManualClock, Quota, RateLimiter, Timestamp, TokenBucket,
    TokioClock,
};

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Polls once, so that a test can choose the order of polls.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn waiter_due_at_deadline_goes_after_head_left() {
    // All three conform in the next window, which begins at their deadline. After the first is admitted, the second's
    // turn is unknown until the second is polled.
    let window = FixedWindow::new(Quota::per_second(3));
    let limiter = RateLimiter::builder(window).clock(TokioClock::starting_at(Timestamp::ZERO)).direct();
    assert!(limiter.check_n(3).is_allowed());
    let mut first = limiter.until_ready();
    let [mut second, mut third] = [(); 2].map(|()| limiter.until_ready().within(ms(1_000)));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending() && poll(&mut third).is_pending());
    advance(ms(1_000)).await;
    assert!(matches!(poll(&mut first), Poll::Ready(Ok(_))));
    assert!(poll(&mut third).is_pending(), "the line is moving");
    assert!(matches!(poll(&mut second), Poll::Ready(Ok(_))));
    assert!(matches!(poll(&mut third), Poll::Ready(Ok(_))));
}

// G57
#[tokio::test(start_paused = true)]
async fn waiters_at_deadline_wait_while_line_moves() {
    let clock = ManualClock::new(Timestamp::ZERO);
    let limiter = RateLimiter::builder(FixedWindow::new(Quota::per_second(4))).clock(clock.clone()).direct();
    assert!(limiter.check_n(4).is_allowed());
    let mut waits = [(); 4].map(|()| limiter.until_ready().within(ms(1_000)));
    assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
    clock.set(Timestamp::from_secs(1));
    let [first, second, _, fourth] = &mut waits;
    clock.advance(us(700));
    assert!(matches!(poll(first), Poll::Ready(Ok(_))));
    clock.advance(us(700));
    assert!(poll(fourth).is_pending(), "the line moved 0.7 ms ago");
    assert!(matches!(poll(second), Poll::Ready(Ok(_))));
    // A line that does not move delays the end of a wait by at most a millisecond.
    clock.advance(us(999));
    assert!(poll(fourth).is_pending());
    clock.advance(us(1));
    assert!(matches!(poll(fourth), Poll::Ready(Err(_))));
    drop(waits);
    assert_eq!(limiter.waiting_lines(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiter_is_scheduled_behind_unpolled_head() {
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    for woken in [true, false] {
        let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(1_000).burst(1)));
        let limiter = limiter.clock(clock.clone()).direct();
        assert!(limiter.check().is_allowed());
        let [mut first, mut second] = [(); 2].map(|()| limiter.until_ready());
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        clock.advance(ms(1));
        assert!(!woken || poll(&mut first).is_ready());
        clock.advance(us(1_900));
        // The second's turn is 2 ms after the check, so the third's is 3 ms after it: a tenth of a millisecond from now.
        let mut third = limiter.until_ready().within(us(500));
        assert!(poll(&mut third).is_pending(), "{woken}");
        assert!(woken || poll(&mut first).is_ready());
        assert!(poll(&mut second).is_ready());
        clock.advance(us(100));
        assert!(matches!(poll(&mut third), Poll::Ready(Ok(_))), "{woken}");
    }
}

/// Whether keys or clocks panic now. Only one test uses these.
static KEYS_PANIC: AtomicBool = AtomicBool::new(false);
static CLOCKS_PANIC: AtomicBool = AtomicBool::new(false);

#[derive(Clone, PartialEq, Eq)]
struct Trap;

impl Hash for Trap {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(!KEYS_PANIC.load(Ordering::Relaxed), "the key panics");
        1.hash(state);
    }
}

struct Broken(TokioClock);

impl Clock for Broken {
    fn now(&self) -> Timestamp {
        assert!(!CLOCKS_PANIC.load(Ordering::Relaxed), "the clock panics");
        self.0.now()
    }
}

// G56
#[tokio::test(start_paused = true)]
async fn dropped_head_leaves_its_line_on_panic() {
    for panics in [&KEYS_PANIC, &CLOCKS_PANIC] {
        let build = RateLimiter::builder(Gcra::new(Quota::per_second(10).burst(1)));
        let limiter = build.clock(Broken(TokioClock::new())).keyed::<Trap>();
        assert!(limiter.check(&Trap).is_allowed());
        let [mut head, mut next] = [(); 2].map(|()| limiter.until_ready(&Trap));
        assert!(poll(&mut head).is_pending() && poll(&mut next).is_pending());
        panics.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(head))).is_err());
        panics.store(false, Ordering::Relaxed);
        assert_eq!(limiter.waiting(), 1);
        let next = tokio::time::timeout(ms(1_000), next).await;
        assert!(next.is_ok_and(|next| next.is_ok()), "the next waiter waits forever");
        assert_eq!(limiter.waiting_lines(), 0);
    }
}

/// Waits for a cost of zero while the head of the line has a reservation.
macro_rules! zero_cost_behind_a_reservation {
    ($algorithm:expr) => {{
        let limiter = RateLimiter::builder($algorithm).clock(TokioClock::new()).direct();
        while limiter.check().is_allowed() {}
        let mut head = limiter.until_ready();
        assert!(poll(&mut head).is_pending());
        let seen = limiter.peek();
        let Poll::Ready(Ok(nothing)) = poll(&mut limiter.until_ready_n(0)) else {
            panic!("a wait with a cost of zero is pending: {}", stringify!($algorithm));
        };
        assert_eq!((nothing.cost(), nothing.delay()), (0, Duration::ZERO), "{}", stringify!($algorithm));
        assert_eq!((nothing.remaining(), nothing.limit()), (seen.remaining(), seen.limit()));
        assert_eq!(nothing.reset_after(), seen.reset_after());
        assert_eq!(limiter.refund(&nothing), 0);
        assert_eq!(limiter.peek(), seen);
    }};
}

#[tokio::test(start_paused = true)]
async fn zero_cost_is_answered_without_reservation_delay() {
    let quota = Quota::per_second(1).burst(2);
    zero_cost_behind_a_reservation!(Gcra::new(quota));
    zero_cost_behind_a_reservation!(TokenBucket::new(quota));
    zero_cost_behind_a_reservation!(TokenBucket::interval(quota));
    zero_cost_behind_a_reservation!(LeakyBucketQueue::new(quota));
    zero_cost_behind_a_reservation!(FixedWindow::new(Quota::per_second(2)));
}
