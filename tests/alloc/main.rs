//! What allocates, and how much: every test counts its own thread's allocations.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/counting.rs"]
mod counting;

mod limiters;
#[cfg(feature = "rules")]
mod rules;
#[cfg(feature = "tower")]
mod tower;
