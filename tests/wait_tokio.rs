//! Waiting under tokio's paused clock.

#[macro_use]
mod common;
#[path = "wait/behaviour.rs"]
mod behaviour;
#[path = "wait/edges.rs"]
mod edges;
#[path = "wait/line.rs"]
mod line;
#[path = "wait/schedule.rs"]
mod schedule;
