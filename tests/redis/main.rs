//! Limits that machines share, by real servers where it matters.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/redis.rs"]
mod servers;

mod clients;
mod faults;
mod harness;
mod lease;
#[cfg(feature = "rules")]
mod rules;
mod script;
mod simulation;
#[cfg(all(feature = "rules", feature = "tower"))]
mod tower;
mod write_back;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// For a test that takes every processor, and expects answers in time all the same: one of these at a time.
fn busy() -> MutexGuard<'static, ()> {
    static BUSY: Mutex<()> = Mutex::new(());
    BUSY.lock().unwrap_or_else(PoisonError::into_inner)
}
