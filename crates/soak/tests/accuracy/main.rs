//! Measures how often limiters of bounded memory decide wrongly, and replays real traffic. For the complete tests run
//! `cargo test --release --test accuracy -- --include-ignored`.

mod compact;
mod sketch;
mod traces;
