//! The modes of a shared limiter.
//!
//! | part | contents |
//! |---|---|
//! | `atomic` | the server decides every request |
//! | `lease` | the server charges units in blocks, and this process spends them |
//! | `write_back` | this process decides, and posts to the server later |
//! | `holds` | units that are taken now and settled later, and requests in progress |
//! | `dispatch` | the clock, and calls to the server |
//! | `background` | for modes that decide in this process: wake-up and stop of the task |
//! | `name` | how this process stores and looks up a key |
//! | `table`, `queue`, `count` | building blocks: a bounded table of keys, a queue of keys that wait for a call, and counters |

mod at;
mod atomic;
pub(crate) mod background;
pub(crate) mod count;
pub(crate) mod dispatch;
mod holds;
pub(crate) mod lease;
pub(crate) mod name;
pub(crate) mod queue;
pub(crate) mod table;
pub(crate) mod write_back;

pub use self::at::LimiterAt;
pub use self::atomic::AtomicLimiter;
pub use self::holds::{HoldingLimiter, InProgressLimiter, SharedHold};
pub use self::lease::{LeaseBuilder, LeaseLimiter, LeaseStats};
pub use self::write_back::{RegionHealth, WriteBackBuilder, WriteBackLimiter, WriteBackStats};
