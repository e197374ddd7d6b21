//! Tests the effects of a limiter on its process:
//!
//! - A denial, a peek, and any other call that promises it write nothing.
//! - Lock-free calls are lock-free: a thread that is stopped anywhere in a call does not block other threads.
//! - No limiter starts a thread.
//! - A constructor that panics reports its caller.
//! - A process has at most a thousand calendars, because their tables stay.
//! - A process that was copied by `fork` frees removed keys and replaced values, whatever the threads did that the copy does not have.
//! - Memory is resident only as far as limiters are used, and removed keys are freed.
//!
//! These are properties of memory, signals, threads and hooks, so the tests observe them through the operating system.

#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
#[path = "../common/arena.rs"]
mod arena;
#[macro_use]
extern crate tollgate_testing;

#[cfg(feature = "calendar")]
mod calendars;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod copied;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod denials;
mod keyed_garbage;
mod panic_locations;
mod reclamation;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod resident;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod stopped;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
#[path = "../common/stopped.rs"]
mod stopping;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod threads;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs one test at a time, since all tests share the process's arena, signals, threads and panic hook.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
