//! A rate limit service as a process, and its clients. The tests of several packages start one, each its own program.

pub mod client;
pub mod frames;
mod process;
pub mod tls;

pub use self::client::PATIENCE;
pub use self::process::{
    Ended, FREE, Place, Program, RULES, SHARED, Server, TEN, admitted, command, eventually, limit, run,
};
