//! The `tollgate` program. Every test runs the binary, as users and scripts do.

mod bad_input;
mod clients;
mod compact;
mod formats;
mod limits;
mod outputs;
mod rules_check;
mod rules_replay;
#[cfg(feature = "redis")]
mod rules_shared;
#[cfg(feature = "redis")]
#[path = "../common/redis.rs"]
mod servers;
mod several;
mod sketch;
#[path = "../common/skipped.rs"]
mod skipped;
mod suggest;
mod suggest_several;
mod support;
mod traces;
