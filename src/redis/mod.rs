//! One limit for many machines, by Redis or Valkey.
//!
//! | part | holds |
//! |---|---|
//! | `limit`, `key`, `name` | what is limited, where its state is kept, and what this process knows a key by |
//! | `call` | what is asked of the shared state, and what it answers; all else is built on these few words |
//! | `plan`, `figures` | a limit as the integers that all reckon with; what a reply means for a request |
//! | `model`, `in_process` | what the script does, in Rust, and a server of it in this process |
//! | `script` | what answers on a server, and what is sent to it |
//! | `client`, `blocking`, `connection`, `cluster`, `slot` | connections; where a Cluster keeps a key |
//! | `atomic` | the mode in which the server decides every request |
//! | `settings`, `error`, `answer` | what users set, what can fail, what they are told |
//! | `guard`, `breaker`, `slot`, `local`, `health` | what is done while the server does not answer, and what of it is counted |
//! | `lease` | a mode: units are charged in blocks, and spent here |
//! | `table` | a bounded table of keys in this process, for the modes that hold units here |
//! | `write_back` | the mode that decides here and tells the server later |
//! | `simulation` | the modes that decide here, in virtual time |

#[cfg(all(test, not(tollgate_loom)))]
mod against_server;
mod answer;
mod atomic;
mod blocking;
mod breaker;
mod call;
mod client;
mod cluster;
mod connection;
mod error;
mod figures;
mod guard;
mod health;
mod in_process;
mod key;
mod lease;
mod limit;
mod local;
mod model;
mod name;
mod plan;
mod script;
mod settings;
#[doc(hidden)]
pub mod simulation;
mod slot;
mod table;
mod write_back;

pub use self::answer::{Answer, DecidedBy};
pub use self::atomic::AtomicLimiter;
pub use self::blocking::BlockingClient;
pub use self::breaker::BreakerState;
pub use self::client::Client;
pub use self::error::{Error, ErrorKind};
pub use self::health::Health;
pub use self::in_process::{BlockingInProcess, InProcess};
pub use self::key::Key;
pub use self::lease::{BlockingLeaseLimiter, LeaseBuildError, LeaseBuilder, LeaseLimiter, LeaseStats};
pub use self::limit::{Limit, LimitKind};
pub use self::name::Number;
pub use self::settings::{Breaker, Builder, OnFailure};
pub use self::write_back::{
    BlockingWriteBackLimiter, WriteBackBuildError, WriteBackBuilder, WriteBackLimiter, WriteBackStats,
};
