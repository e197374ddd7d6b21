//! The parts that loom models, without the crates that the others need: what `redis` is where models run without the feature.
#![allow(dead_code, unreachable_pub, reason = "models use the protocols only")]

mod breaker;
#[path = "write_back/word.rs"]
mod write_back;
