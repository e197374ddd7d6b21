//! Rules: reading them, finding them, deciding by them, and reloading them.

mod config;
mod engine;
mod matching;
mod properties;
#[cfg(feature = "watch")]
mod watch;
