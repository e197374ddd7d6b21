//! Leases: this process is charged for units in blocks, and spends them by itself.
//!
//! | part | holds |
//! |---|---|
//! | `holding` | what is held of one key, when to ask for more, and for how much |
//! | `book` | all keys, without a clock, a connection or a task |
//! | `core` | a book with a clock, and what answers mean |
//! | `limiter` | for async code: a task fetches |
//! | `blocking` | for threads: a thread fetches |
//! | `options`, `stats` | what is set, what is counted |

mod blocking;
mod book;
mod core;
mod holding;
mod limiter;
mod options;
#[cfg(all(test, not(tollgate_loom)))]
mod simulated;
mod stats;

pub use self::blocking::BlockingLeaseLimiter;
pub(crate) use self::book::{Book, Checked, Due, Granted, Habits, Landed, Waiting};
pub(crate) use self::holding::Holding;
pub use self::limiter::LeaseLimiter;
pub use self::options::LeaseBuilder;
pub use self::stats::LeaseStats;
