//! The write-back mode: this process counts, and posts to the server later.
//!
//! | part | contents |
//! |---|---|
//! | `allowance` | the units of a key that may still be admitted: one word, and its protocol |
//! | `account` | the units admitted under one limit, the units posted, and the share |
//! | `entry` | a key: its word, and the ledger with its accounts |
//! | `poster` | the number by which the shared state identifies a poster |
//! | `regions` | several regions: the calls to the own server, and the exchange of totals |
//! | `offset` | the server's windows in terms of the local clock |
//! | `post_queues` | the keys that wait for a post, for each server |
//! | `basis` | the result of a check, and what it rests on |
//! | `book` | all keys, without I/O: checks, when to post, and what answers mean |
//! | `core`, `limiter` | a book with a clock and a connection to the server; the task that posts |
//!
//! The docs of [`WriteBackLimiter`] state the guarantees and their proofs.

mod account;
mod allowance;
mod basis;
mod book;
mod core;
mod entry;
mod limiter;
mod offset;
mod options;
mod post_queues;
mod poster;
mod regions;
mod stats;

#[cfg(tollgate_simulation)]
pub use self::basis::Basis;
#[cfg(tollgate_simulation)]
pub use self::book::{BookSettings, Post, WriteBackBook};
pub use self::limiter::WriteBackLimiter;
pub use self::options::WriteBackBuilder;
pub use self::regions::RegionHealth;
pub use self::stats::WriteBackStats;

/// The bound on the over-admission of all processes together, for one key, in requests of one unit: in one window, or
/// with GCRA at once.
#[cfg(any(test, tollgate_simulation))]
pub fn over_at_most(limit: u64, processes: u64) -> u64 {
    // 2 ln 2, rounded up.
    let shares = u64::try_from(u128::from(limit) * 13_863 / 10_000).unwrap_or(u64::MAX).saturating_add(1);
    if processes <= 1 { 0 } else { shares.saturating_add(processes) }
}
