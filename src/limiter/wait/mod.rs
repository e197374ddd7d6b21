//! Waits for a turn: first come, first served for each key, for tasks and threads together.
//!
//! | file | holds |
//! |---|---|
//! | `lines` | the waiters of each key, in order |
//! | `turn` | one wait as a state machine; it does not sleep and does not depend on a runtime |
//! | `blocking`, `until_ready` | a thread and a task that drive the state machine |
//!
//! The docs of `turn` describe the protocol. The docs of `lines` explain why no wake-up is lost.

mod blocking;
mod jitter;
mod lines;
mod not_ready;
#[cfg(feature = "tokio")]
mod tokio_clock;
mod turn;
#[cfg(feature = "tokio")]
mod until_ready;

pub use self::blocking::Wait;
pub use self::jitter::Jitter;
pub(crate) use self::lines::WaitLines;
pub use self::not_ready::NotReady;
#[cfg(feature = "tokio")]
pub use self::tokio_clock::TokioClock;
#[cfg(feature = "tokio")]
pub use self::until_ready::UntilReady;
