//! The parts that loom models, without the crates that the others need: what `redis` is where models run without the feature.
#![allow(dead_code, unreachable_pub, reason = "models use the protocols only")]

mod guard {
    mod breaker;
}
mod mode {
    #[path = "write_back/allowance.rs"]
    mod write_back;
}
