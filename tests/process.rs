//! What a limiter does to the process that it is in, and what it does not:
//!
//! - a denial and a look write nothing, nor does any other call that says so;
//! - a thread that is stopped anywhere in a call keeps no other from its own: what is called lock-free is;
//! - no thread is started.
//!
//! All three are properties of memory, signals and threads rather than of answers, so they are seen through the operating system.
#![cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]

#[path = "process/arena.rs"]
mod arena;
#[macro_use]
mod common;
#[path = "process/denials.rs"]
mod denials;
#[path = "process/stopped.rs"]
mod stopped;
#[path = "process/threads.rs"]
mod threads;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Arena, signals and threads are the whole process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
