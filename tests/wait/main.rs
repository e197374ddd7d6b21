//! Waiting: threads in real time, and tasks under tokio's paused clock.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "tokio")]
mod behaviour;
#[cfg(feature = "tokio")]
mod edges;
#[cfg(feature = "tokio")]
mod line;
#[cfg(feature = "tokio")]
mod schedule;
mod threads;
