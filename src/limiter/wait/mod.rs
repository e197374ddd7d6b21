//! Waiting for one's turn: first come, first served for each key, whether a task waits or a thread.
//!
//! | file | holds |
//! |---|---|
//! | `lines` | who waits for which key, in what order |
//! | `turn` | one wait as a state machine that neither sleeps nor knows who runs it |
//! | `blocking`, `until_ready` | a thread and a task that run it |
//!
//! The protocol is told in `turn`; why no wake-up is lost, in `lines`.

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
