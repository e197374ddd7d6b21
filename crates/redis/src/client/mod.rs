//! The clients. A client carries calls to one server, to a Cluster, or to a server model in this process.
//!
//! | part | contents |
//! |---|---|
//! | `connected` | the client |
//! | `connection`, `cluster` | the connection to one server, and the nodes of a Cluster |
//! | `sentinel` | the master that Sentinels name |
//! | `options`, `credentials` | how connections are made and renewed; users and passwords in a file |
//! | `batched` | the calls on one connection |
//! | `sharded`, `rendezvous` | several servers: the set, and the server that holds a key |
//! | `runtime` | where calls and tasks run: the caller's runtime, or a thread with a runtime for callers that block |
//! | `in_process` | a server in this process |
//! | `plain` | plain commands to one server, and messages of a channel |
//! | `settings` | the settings that limiters of all modes share |

mod batched;
mod cluster;
mod connected;
mod connection;
mod credentials;
mod in_process;

mod options;
#[cfg(feature = "rules")]
mod plain;
mod rendezvous;
mod runtime;
mod sentinel;
mod settings;
mod sharded;

pub use self::connected::Client;
pub use self::credentials::CredentialsFile;
pub use self::in_process::InProcess;
#[cfg(feature = "rules")]
pub(crate) use self::plain::PlainClient;
pub use self::runtime::Blocking;
pub(crate) use self::runtime::Connected;
pub(crate) use self::runtime::{OnDrop, RuntimeThread, Tasks};
pub(crate) use self::settings::Settings;
pub use self::settings::{Breaker, BuildError, InProgressOptions, LimiterBuilder, OnFailure};
pub use self::sharded::{KeyPlaces, Shard, ShardError, Shards};
