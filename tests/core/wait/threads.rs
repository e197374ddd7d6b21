//! Threads that wait. The tests use real time, so they do not check how late a wait ends.

use super::{admitted, ms};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;
use tollgate::{
    Clock, Decision, FixedWindow, Gcra, ManualClock, Quota, RateLimiter, StdClock, Timestamp, WhenFull,
    waiting::Jitter, waiting::NotReady,
};

// G54
#[test]
fn threads_go_in_order_and_never_early() {
    let build = RateLimiter::builder(Gcra::new(Quota::per_second(200).burst(1)));
    let limiter = build.clock(StdClock::new()).keyed::<String>();
    let first = limiter.wait("alice").block().expect("room");
    let order = Mutex::new(Vec::new());
    // A debt keeps the threads in line until the last has joined, unless the machine is slow.
    assert_eq!(limiter.charge_unchecked("alice", 20).cost(), 20);
    let joined = || limiter.waiting() + order.lock().unwrap().len();
    thread::scope(|scope| {
        for n in 0..8_u32 {
            while joined() < usize::try_from(n).expect("small") {
                thread::yield_now();
            }
            let (limiter, order) = (&limiter, &order);
            scope.spawn(move || {
                let charge = limiter.wait("alice").block().expect("a wait without a deadline");
                let turn = charge.at() + charge.delay();
                assert!(limiter.clock().now() >= turn, "{n} was early");
                // 1 + 20 units are charged before the first of these.
                assert!(turn >= first.at() + ms(5) * (21 + n), "{n} was early");
                order.lock().unwrap().push((turn, n));
            });
        }
    });
    let mut order = order.into_inner().unwrap();
    order.sort_unstable();
    assert!(order.iter().map(|&(_, n)| n).eq(0..8), "{order:?}");
    assert_eq!((limiter.waiting(), limiter.waiting_lines()), (0, 0));
}

#[test]
fn late_thread_is_refused_at_once() {
    let limiter = RateLimiter::new(Quota::per_hour(1));
    let charge: Decision = limiter.wait("alice").within(Duration::ZERO).block().expect("room");
    assert_eq!(charge.cost(), 1);
    let late: NotReady = limiter.wait("alice").within(ms(3_599_000)).block().unwrap_err();
    assert!(late.is_too_late() && late.decision().is_denied());
    assert!(limiter.wait_n("alice", 2).block().unwrap_err().is_never());
    assert_eq!(limiter.wait_n("alice", 0).block().expect("a cost of zero").cost(), 0);
    let window = RateLimiter::builder(FixedWindow::new(Quota::per_hour(1)));
    let window = window.clock(ManualClock::new(Timestamp::from_secs(1))).direct();
    admitted(window.wait().block());
    assert_eq!(window.wait().within(ms(60)).block().unwrap_err().retry_after(), Some(ms(3_599_000)));
    assert_eq!((limiter.waiting(), limiter.waiting_lines(), window.waiting_lines()), (0, 0, 0));
}

#[test]
fn deadline_wakes_thread_behind_head() {
    // The clock does not advance, so the head keeps sleeping. The threads behind it wait until the clock passes their
    // deadline.
    let clock = ManualClock::default();
    let spacing = tollgate::MinimumSpacing::new(ms(2));
    let limiter = RateLimiter::builder(spacing).clock(clock.clone()).direct();
    assert!(limiter.check().is_allowed());
    thread::scope(|scope| {
        let [head, second] = [1, 2].map(|already| {
            let wait = scope.spawn(|| limiter.wait().jitter(Jitter::up_to(ms(1))).block());
            while limiter.waiting() < already {
                thread::yield_now();
            }
            wait
        });
        let late = scope.spawn(|| limiter.wait().within(ms(5)).block());
        while limiter.waiting() < 3 {
            thread::yield_now();
        }
        clock.advance(ms(100));
        // The head and the second waiter are very late. The third waiter has no time left, at any place in line.
        assert!(late.join().unwrap().unwrap_err().is_too_late());
        clock.advance(ms(100));
        assert!(head.join().unwrap().is_ok() && second.join().unwrap().is_ok());
    });
    assert_eq!(limiter.waiting_lines(), 0);
}

#[test]
fn many_threads_wait_for_few_keys() {
    const THREADS: u32 = 6;
    const EACH: u32 = 10;
    let build = RateLimiter::builder(Gcra::new(Quota::per_second(2_000).burst(1)));
    let limiter = build.clock(StdClock::new()).keyed::<u64>();
    let start = limiter.clock().now();
    let barrier = Barrier::new(usize::try_from(THREADS).expect("small"));
    thread::scope(|scope| {
        for n in 0..THREADS {
            let (limiter, barrier) = (&limiter, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for _ in 0..EACH {
                    admitted(limiter.wait(&u64::from(n % 2)).block());
                }
            });
        }
    });
    // For each key, all units except the first wait for one interval.
    assert!(limiter.clock().now() >= start + Duration::from_micros(500) * (THREADS / 2 * EACH - 1));
    assert_eq!((limiter.waiting(), limiter.waiting_lines()), (0, 0));
}

/// A real clock that counts its readings, and may stop for a while.
#[derive(Clone, Default)]
struct Counting {
    real: StdClock,
    /// `(until, then)`: before `until`, readings are one nanosecond before `then`.
    stands: Option<(Timestamp, Timestamp)>,
    reads: Arc<AtomicU64>,
}

impl Clock for Counting {
    fn now(&self) -> Timestamp {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let now = self.real.now();
        match self.stands {
            Some((until, then)) if now < until => Timestamp::from_nanos(then.as_nanos() - 1),
            _ => now,
        }
    }
}

#[test]
fn thread_does_not_spin_just_before_its_turn() {
    let real = StdClock::new();
    let start = real.now();
    let clock =
        Counting { real: real.clone(), stands: Some((start + ms(200), start)), reads: Arc::default() };
    let build = RateLimiter::builder(Gcra::new(Quota::per_second(1_000).burst(1)));
    let limiter = build.clock(clock.clone()).direct();
    let before = Timestamp::from_nanos(start.as_nanos() - 1_000_000);
    assert!(limiter.at(before).check().is_allowed());
    admitted(limiter.wait().block());
    // A sleep may be longer than a millisecond. After the first few, no sleep is shorter.
    let slept = real.now().duration_since(start).as_millis();
    let reads = u128::from(clock.reads.load(Ordering::Relaxed));
    assert!(reads < slept + 40, "{reads} readings in {slept} ms");
}

/// A key that the store clones. Cloning key 1 blocks until the gate opens.
#[derive(PartialEq, Eq, Hash)]
struct Slow(u64);

static GATE: Mutex<()> = Mutex::new(());
static IS_KEPT: AtomicU64 = AtomicU64::new(0);

impl Clone for Slow {
    fn clone(&self) -> Self {
        if self.0 == 1 {
            IS_KEPT.store(1, Ordering::Release);
            drop(GATE.lock());
        }
        Self(self.0)
    }
}

/// The only place belongs to a key that is still being inserted. No time is known at which it will be idle.
#[test]
fn thread_does_not_spin_on_full_store() {
    let clock = Counting::default();
    let build = RateLimiter::builder(Gcra::new(Quota::per_hour(5))).clock(clock.clone());
    let limiter = build.max_keys(1, WhenFull::Deny).keyed::<Slow>();
    let gate = GATE.lock();
    thread::scope(|scope| {
        scope.spawn(|| assert!(limiter.check(&Slow(1)).is_allowed()));
        while IS_KEPT.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        let (start, before) = (clock.real.now(), clock.reads.load(Ordering::Relaxed));
        assert!(limiter.wait(&Slow(2)).within(ms(200)).block().is_err());
        let slept = clock.real.now().duration_since(start).as_millis();
        let reads = u128::from(clock.reads.load(Ordering::Relaxed) - before);
        drop(gate);
        assert!(slept >= 200 && reads < 4 * slept + 100, "{reads} readings in {slept} ms");
    });
}
