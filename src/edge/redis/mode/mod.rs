//! The three ways in which a limiter decides.
//!
//! | part | holds |
//! |---|---|
//! | `atomic` | the server decides every request |
//! | `lease` | units are charged in blocks, and spent in this process |
//! | `write_back` | this process decides, and tells the server later |
//! | `dispatch` | of modes that decide in this process: the clock, the way to the server, what wakes and stops the task |
//! | `forms` | what their limiters have in public alike |
//! | `table`, `queue`, `count` | what they are made of: a bounded table of keys, those that wait for an exchange, and counts |

mod atomic;
pub(crate) mod count;
pub(crate) mod dispatch;
pub(crate) mod forms;
pub(crate) mod lease;
pub(crate) mod queue;
pub(crate) mod table;
pub(crate) mod write_back;

pub use self::atomic::AtomicLimiter;
pub use self::lease::{BlockingLeaseLimiter, LeaseBuilder, LeaseLimiter, LeaseStats};
pub use self::write_back::{BlockingWriteBackLimiter, WriteBackBuilder, WriteBackLimiter, WriteBackStats};
