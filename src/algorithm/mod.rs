//! The algorithms: pure functions on words, one file each.
//!
//! | file | word (head; tail) | engine |
//! |---|---|---|
//! | `gcra`, `leaky_bucket_meter`, `leaky_bucket_queue`, `token_bucket` (greedy) | TAT | `pace` |
//! | `blocked` | TAT and level | `pace` |
//! | `token_bucket` (interval, aligned), `fixed_window` | window and units used; two anchors | `batch` |
//! | `calendar_window` | period and units used | its own |
//! | `sliding_window`, `sub_window` | window and count; counts of the windows before | `counts` |
//! | `sliding_log` | units ever admitted; their times | its own |
//! | `minimum_spacing` | last admission | its own |
//! | `first_fill` | those of another algorithm, for which a new key begins with a part of the burst | that of the other algorithm |
//!
//! `step` is the interface to the stores; read it first. `limit` chooses an algorithm at run time. `compact` has forms of some of these algorithms for the
//! compact store, whose states have 40 bits.

mod batch;
mod blocked;
mod calendar_window;
pub(crate) mod compact;
mod counts;
mod first_fill;
mod fixed_window;
mod gcra;
mod leaky_bucket_meter;
mod leaky_bucket_queue;
mod limit;
mod minimum_spacing;
pub(crate) mod pace;
mod sliding_log;
mod sliding_window;
mod split;
pub(crate) mod step;
mod sub_window;
mod token_bucket;

#[allow(unused_imports, reason = "only some features need it")]
pub(crate) use self::batch::Returns;
pub use self::blocked::{Block, Blocked};
#[allow(unused_imports, reason = "the feature calendar computes tables")]
pub(crate) use self::calendar_window::CalendarTable;
pub use self::calendar_window::{Calendar, CalendarWindow};
pub use self::compact::{CompactAlgorithm, WindowAlgorithm};
pub use self::first_fill::FirstFill;
pub use self::fixed_window::FixedWindow;
pub use self::gcra::Gcra;
pub use self::leaky_bucket_meter::LeakyBucketMeter;
pub use self::leaky_bucket_queue::LeakyBucketQueue;
pub use self::limit::{Limit, LimitKind};
pub use self::minimum_spacing::MinimumSpacing;
pub use self::sliding_log::SlidingLog;
pub use self::sliding_window::SlidingWindow;
pub use self::step::Algorithm;
pub use self::sub_window::SubWindow;
pub use self::token_bucket::TokenBucket;
