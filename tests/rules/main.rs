//! Rules: reading, matching, deciding and reloading.

mod config;
mod engine;
mod matching;
mod properties;
#[cfg(feature = "watch")]
mod source;
#[cfg(feature = "watch")]
mod watch;
