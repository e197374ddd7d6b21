//! The three ways in which a limiter decides.
//!
//! | part | holds |
//! |---|---|
//! | `atomic` | the server decides every request |
//! | `lease` | units are charged in blocks, and spent in this process |
//! | `write_back` | this process decides, and tells the server later |
//! | `dispatch`, `table`, `count` | what the modes share: how questions are carried, a bounded table of keys, and counts |

mod atomic;
pub(crate) mod count;
pub(crate) mod dispatch;
pub(crate) mod lease;
pub(crate) mod table;
pub(crate) mod write_back;

pub use self::atomic::AtomicLimiter;
pub use self::lease::{BlockingLeaseLimiter, LeaseBuilder, LeaseLimiter, LeaseStats};
pub use self::write_back::{BlockingWriteBackLimiter, WriteBackBuilder, WriteBackLimiter, WriteBackStats};
