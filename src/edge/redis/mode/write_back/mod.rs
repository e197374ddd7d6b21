//! Counting here, and telling the server later.
//!
//! | part | holds |
//! |---|---|
//! | `allowance` | what may still be let through of a key: one word, and its protocol |
//! | `account` | what was let through by one limit, what was posted of it, and the share |
//! | `entry` | a key: its word, and the ledger with its accounts |
//! | `poster` | by what number the shared state knows who posts |
//! | `offset` | where the server's windows are by the local clock |
//! | `book` | all keys, without I/O: checks, what is to be posted when, what is made of answers |
//! | `core`, `limiter` | a book with a clock and the way to the server; the task that posts |
//! | `blocking` | the same for threads: the task runs on the thread of the client |
//!
//! What is guaranteed, and why, is said at [`WriteBackLimiter`].

mod account;
mod allowance;
mod blocking;
mod book;
mod core;
mod entry;
mod limiter;
mod offset;
mod options;
mod poster;
mod stats;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

pub use self::blocking::BlockingWriteBackLimiter;
#[cfg(feature = "simulation")]
pub(crate) use self::book::{BookSettings, Post, WriteBackBook};
pub use self::limiter::WriteBackLimiter;
pub use self::options::WriteBackBuilder;
pub use self::stats::WriteBackStats;

/// What all processes together admit of a key in one window, or GCRA at once, beyond its limit, at most, in requests of one unit.
#[cfg(any(test, feature = "simulation"))]
pub(crate) fn over_at_most(limit: u64, processes: u64) -> u64 {
    // 2 ln 2, rounded up.
    let shares = u64::try_from(u128::from(limit) * 13_863 / 10_000).unwrap_or(u64::MAX).saturating_add(1);
    if processes <= 1 { 0 } else { shares.saturating_add(processes) }
}
