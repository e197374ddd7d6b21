//! Waiting: threads in real time, and tasks under tokio's paused clock.

#[cfg(feature = "tokio")]
mod behaviour;
#[cfg(feature = "tokio")]
mod edges;
#[cfg(feature = "tokio")]
mod line;
#[cfg(feature = "tokio")]
mod schedule;
mod threads;

use std::time::Duration;
use tollgate::{Decision, waiting::NotReady};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn admitted(result: Result<Decision, NotReady>) {
    assert!(result.is_ok_and(|decision| decision.is_allowed()));
}
