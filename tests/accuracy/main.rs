//! How often bounded memory decides wrongly, and real traffic: whole in release, `cargo test --release --test accuracy -- --include-ignored`.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod compact;
mod sketch;
mod traces;
