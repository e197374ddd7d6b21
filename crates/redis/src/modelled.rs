//! The parts of `redis` that loom models. When models run without the `redis` feature, this module takes the place of
//! `redis`, so that its dependencies are not needed.
#![allow(dead_code, unreachable_pub, reason = "models use the protocols only")]

mod guard {
    mod breaker;
}
mod mode {
    #[path = "write_back/allowance.rs"]
    mod write_back;
}
