//! The clients: what carries calls to a server, to a Cluster, or to a model of a server in this process.
//!
//! | part | holds |
//! |---|---|
//! | `connected`, `blocking` | the client of async code, and that of threads |
//! | `connection`, `cluster` | one server's connection, and the nodes of a Cluster |
//! | `runtime` | where calls and tasks run: the caller's runtime, or a thread with one |
//! | `in_process` | a server in this process |
//! | `settings` | what users set about a limiter, whatever its mode |

mod blocking;
mod cluster;
mod connected;
mod connection;
mod in_process;
mod runtime;
mod settings;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

pub use self::blocking::BlockingClient;
pub use self::connected::Client;
pub use self::in_process::{BlockingInProcess, InProcess};
pub use self::runtime::OnThread;
pub(crate) use self::runtime::{Connected, RuntimeThread, Tasks, on_thread};
pub(crate) use self::settings::Settings;
pub use self::settings::{Breaker, BuildError, Builder, OnFailure};
