//! Leases: the server charges this process for units in blocks, and this process spends them.
//!
//! | part | contents |
//! |---|---|
//! | `key_lease` | the held units of one key, when to ask for more, and for how many |
//! | `book` | all keys, without a clock, a connection or a task |
//! | `core` | a book with a clock and a connection to the server, and what answers mean |
//! | `limiter` | the limiter: a task fetches units |
//! | `options`, `stats` | settings and counters |

mod book;
mod core;
mod key_lease;
mod limiter;
mod options;
mod stats;

#[cfg(tollgate_simulation)]
pub use self::book::{BlockRequest, Granted, LeaseBook, LeaseCheck, LeaseSettings, Receipt, Waiting};
pub use self::limiter::LeaseLimiter;
pub use self::options::LeaseBuilder;
pub use self::stats::LeaseStats;
