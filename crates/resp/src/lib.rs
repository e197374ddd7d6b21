//! Rate limits for Redis clients: an endpoint of the service of [`tollgate_serve`], with which programs in every language have a limiter.
//!
//! A client sends a limit with each request, as in `CL.THROTTLE alice 4 100 60`, or asks for the rules of the service.
//! [The guide](https://docs.rs/crate/tollgate/latest/source/docs/redis_clients.md) lists the commands.
//!
//! The program `tollgate` has the endpoint: `tollgate serve --resp 6379`. A program of your own adds it by its flags, [`ServeResp`]:
//!
//! ```no_run
//! use tollgate_report::{line, output};
//! use tollgate_resp::ServeResp;
//! use tollgate_serve::Program;
//!
//! fn main() -> std::process::ExitCode {
//!     output::end(tollgate_serve::run(&line::read::<Program<ServeResp>>().command))
//! }
//! ```
//!
//! # Modules
//!
//! | file | does |
//! |---|---|
//! | `listen` | the start, and a connection from its first byte to its last |
//! | `read` | bytes to commands |
//! | `answer` | a command to its answer: limits of the client, and rules of the file |
//! | `peer` | what is known about a client |
//! | `transaction` | `MULTI`: commands that are queued |
//! | `connect` | the commands about the connection itself, which client libraries send |
//! | `commands` | the list of commands |
//! | `flags`, `counts` | the flags, and what is counted |
//! | `quotas`, `saved` | the limits that clients send, and the file that keeps their usage |
//! | `users` | users, and the commands that they may send |
//! | `write` | answers to bytes, in both versions of the protocol |
//!
//! # Work and memory of a client
//! The answers to all commands of one read are sent with one write, and nothing more is read until the client has taken them. So a
//! connection holds at most one command that is not complete, `FULL` bytes of answers, one answer more, and the queue of a
//! transaction. That is at most 80 KiB, and what is longer comes out of memory that all connections share. After `TURN`
//! commands, other connections have their turn.

#![allow(
    clippy::len_without_is_empty,
    missing_debug_implementations,
    missing_docs,
    unreachable_pub,
    reason = "`pub` is for the other modules, and for tests and fuzz targets by `internals`"
)]

mod answer;
mod commands;
mod connect;
mod counts;
mod flags;
#[doc(hidden)]
pub mod internals;
mod listen;
mod peer;
mod quotas;
mod read;
mod saved;
mod transaction;
mod users;
mod write;

pub use self::flags::ServeResp;
