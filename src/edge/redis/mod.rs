//! One limit for many machines, by Redis or Valkey. [The guide](crate::guide::redis) says which mode to choose, what is in Redis, and what is
//! lost with it.
//!
//! ```
//! use tollgate::Quota;
//! use tollgate::redis::{InProcess, Limit, OnFailure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = InProcess::default(); // or Client::open("redis://127.0.0.1:6379/")?
//! let per_client = Limit::gcra(Quota::per_second(100).burst(200));
//!
//! // The server decides every request.
//! let dear = client.limiter("payments", Limit::fixed_window(Quota::per_day(10_000))).atomic()?;
//! assert!(dear.check("acme").await.is_allowed());
//!
//! // Units are fetched in blocks and spent here: never more than the limit, mostly without a round trip.
//! let usual = client.limiter("api", per_client).on_failure(OnFailure::Local { processes: 4 }).leases().build()?;
//! assert!(usual.check_async("203.0.113.7").await.is_allowed());
//! let _at_once = usual.check("203.0.113.7"); // never waits: refused until units are there
//!
//! // Decided here and told to the server each second: more than the limit, by a stated bound.
//! let busy = client.limiter("search", per_client).write_back().build()?;
//! assert!(busy.check("203.0.113.7").is_allowed());
//! # usual.close().await;
//! # busy.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # How it is made
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
//! | `guard`, `breaker`, `local`, `health` | what is done while the server does not answer, and what of it is counted |
//! | `carry` | how the modes that decide in this process have their questions carried |
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
mod carry;
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
pub use self::lease::{BlockingLeaseLimiter, LeaseBuilder, LeaseLimiter, LeaseStats};
pub use self::limit::{Limit, LimitKind};
pub use self::name::Number;
pub use self::settings::{Breaker, BuildError, Builder, OnFailure};
pub use self::write_back::{BlockingWriteBackLimiter, WriteBackBuilder, WriteBackLimiter, WriteBackStats};
