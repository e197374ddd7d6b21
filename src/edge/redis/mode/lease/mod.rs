//! Leases: this process is charged for units in blocks, and spends them by itself.
//!
//! | part | holds |
//! |---|---|
//! | `holding` | what is held of one key, when to ask for more, and for how much |
//! | `book` | all keys, without a clock, a connection or a task |
//! | `core` | a book with a clock and the way to the server, and what answers mean |
//! | `limiter` | for async code: a task fetches |
//! | `blocking` | the same for threads: the task runs on the thread of the client |
//! | `options`, `stats` | what is set, what is counted |

mod blocking;
mod book;
mod core;
mod holding;
mod limiter;
mod options;
mod stats;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

pub use self::blocking::BlockingLeaseLimiter;
#[cfg(feature = "simulation")]
pub(crate) use self::book::{BlockRequest, Granted, LeaseBook, LeaseCheck, LeaseSettings, Receipt, Waiting};
#[cfg(feature = "simulation")]
pub(crate) use self::holding::Holding;
pub use self::limiter::LeaseLimiter;
pub use self::options::LeaseBuilder;
pub use self::stats::LeaseStats;
