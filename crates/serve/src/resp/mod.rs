//! `--resp`: the endpoint for Redis clients, with which programs in every language have a limiter.
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
//! | `quotas`, `saved` | the limits that clients send, and the file that keeps their usage |
//! | `users` | users, and the commands that they may send |
//! | `write` | answers to bytes, in both versions of the protocol |
//!
//! # Work and memory of a client
//! The answers to all commands of one read are sent with one write, and nothing more is read until the client has taken them. So a
//! connection holds at most one command that is not complete, [`FULL`](answer::FULL) bytes of answers, one answer more, and the queue of a
//! [transaction]. That is at most 80 KiB, and what is longer comes out of memory that all connections share. After [`TURN`](answer::TURN)
//! commands, other connections have their turn.

pub mod answer;
mod commands;
mod connect;
pub mod flags;
mod listen;
mod peer;
pub mod quotas;
mod read;
mod saved;
pub mod transaction;
pub mod users;
mod write;

pub use self::listen::endpoints;
pub use self::read::Limits;
