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

use crate::arena::inside;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tollgate_testing::compact::Random;

const STOPS: u64 = if cfg!(debug_assertions) { 50 } else { 600 };
pub(crate) const CALLS: u64 = 300;

static HOLD: AtomicBool = AtomicBool::new(false);
static STOPPED: AtomicBool = AtomicBool::new(false);
pub(crate) static PROGRESS: AtomicU64 = AtomicU64::new(0);

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
pub(crate) fn goes_on(name: &'static str, work: &(dyn Fn(&mut Random) + Sync)) {
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
