//! Lock-free calls: a thread that is stopped anywhere in a call does not block the calls of other threads.
//!
//! 1. One thread, the worker, calls a limiter in a loop.
//! 2. A signal stops the worker at an arbitrary place.
//! 3. While the worker is stopped, another thread makes hundreds of calls of the same kind, on the same keys.
//! 4. The worker continues, and the steps repeat.
//!
//! If a call took a lock or waited for another thread, the second thread would sooner or later wait forever. A
//! watcher thread detects this and ends the process. A control test uses a lock, and asserts that the worker is
//! sometimes stopped while it holds the lock.
//!
//! Allocations come from the arena, which takes no lock.

use super::alone;
use super::arena::inside;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tollgate::sketch::{Bloom, CountMin, InFlight, Rate, SampledTopKeys};
use tollgate::{
    Capacity, FixedWindow, Gcra, Overflow, Quota, RateLimiter, SlidingLog, SlidingWindow, SubWindow,
    TokenBucket, WhenFull, check_all, joint::AllOf,
};
use tollgate_testing::compact::Random;

const STOPS: u64 = if cfg!(debug_assertions) { 50 } else { 600 };
const CALLS: u64 = 300;

static HOLD: AtomicBool = AtomicBool::new(false);
static STOPPED: AtomicBool = AtomicBool::new(false);
static PROGRESS: AtomicU64 = AtomicU64::new(0);

/// The signal handler: waits while `HOLD` is set. It only calls functions that a signal handler may call.
extern "C" fn stop(_signal: libc::c_int) {
    STOPPED.store(true, Ordering::SeqCst);
    while HOLD.load(Ordering::SeqCst) {
        // SAFETY: `usleep` takes no pointers.
        unsafe { libc::usleep(20) };
    }
    STOPPED.store(false, Ordering::SeqCst);
}

/// Ends the process after a minute without progress, since a thread then waits for the stopped one.
fn watch(name: &'static str, over: &AtomicBool) {
    let (mut seen, mut for_ms) = (PROGRESS.load(Ordering::Relaxed), 0);
    while !over.load(Ordering::Relaxed) {
        thread::park_timeout(Duration::from_millis(50));
        let now = PROGRESS.load(Ordering::Relaxed);
        for_ms = if now == seen { for_ms + 50 } else { 0 };
        seen = now;
        if for_ms > 60_000 {
            eprintln!("{name}: a thread that was stopped in a call blocks the calls of another thread");
            std::process::abort();
        }
    }
}

/// Runs `work` in a loop on a worker thread, stops that thread many times, and runs `work` here during each stop.
fn goes_on(name: &'static str, work: &(dyn Fn(&mut Random) + Sync)) {
    // SAFETY: the handler has the right signature, and only calls functions that a signal handler may call.
    let before =
        unsafe { libc::signal(libc::SIGUSR1, stop as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    assert!(before != libc::SIG_ERR);
    let (thread, over, unwatched) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(name, &unwatched));
        let worker = scope.spawn(|| {
            inside(|| {
                let mut random = Random(1);
                work(&mut random);
                // SAFETY: `pthread_self` takes no arguments and always succeeds.
                let this = unsafe { libc::pthread_self() };
                thread
                    .store(usize::try_from(this).expect("a thread handle fits in a usize"), Ordering::SeqCst);
                while !over.load(Ordering::Relaxed) {
                    work(&mut random);
                }
            });
        });
        while thread.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        let that =
            libc::pthread_t::try_from(thread.load(Ordering::SeqCst)).expect("the number is a thread handle");
        let mut random = Random(2);
        inside(|| {
            for _ in 0..STOPS {
                HOLD.store(true, Ordering::SeqCst);
                // SAFETY: the thread runs until `over` is set, so its handle is valid. The signal has a handler.
                assert_eq!(unsafe { libc::pthread_kill(that, libc::SIGUSR1) }, 0);
                while !STOPPED.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                for _ in 0..CALLS {
                    work(&mut random);
                    PROGRESS.fetch_add(1, Ordering::Relaxed);
                }
                HOLD.store(false, Ordering::SeqCst);
                while STOPPED.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                // A random delay lets the next signal stop the worker at another place.
                for _ in 0..random.below(2_000) {
                    std::hint::spin_loop();
                }
            }
        });
        over.store(true, Ordering::Relaxed);
        worker.join().expect("the worker does not panic");
        unwatched.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
    });
}

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

// G25
#[cfg(feature = "rules")]
#[test]
fn rules_are_lock_free() {
    use tollgate::rules::{Descriptor, Rules};

    let _alone = alone();
    let text = "
domain: d
tollgate: {}
descriptors:
  - key: compact
    rate_limit: { unit: second, requests_per_unit: 900, algorithm: gcra }
  - key: keyed
    rate_limit: { unit: second, requests_per_unit: 900, algorithm: sliding-log }
  - key: all
    value: x
    rate_limit: { unit: second, requests_per_unit: 900 }
";
    let rules = inside(|| Rules::from_yaml(text).unwrap());
    let keys = ["compact", "keyed", "all"];
    goes_on("rules", &|random| {
        let values = ["x", "y", "z"];
        let pick = |random: &mut Random| usize::try_from(random.below(3)).expect("the number is below 3");
        let (first, second) =
            ([(keys[pick(random)], values[pick(random)])], [(keys[pick(random)], values[pick(random)])]);
        let answer = rules.check("d", &[Descriptor::new(&first), Descriptor::new(&second)]);
        PROGRESS.fetch_add(u64::from(answer.is_allowed()), Ordering::Relaxed);
    });
}
