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
