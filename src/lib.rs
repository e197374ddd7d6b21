//! Placeholder.

mod algorithm;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod clock;
mod decision;
mod limiter;
mod quota;
mod store;
mod sync;

pub use algorithm::{
    Algorithm, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, MinimumSpacing, SlidingLog,
    SlidingWindow, SubWindow, TokenBucket,
};
pub use clock::{Clock, CoarseClock, ManualClock, QuantaClock, StdClock, Timestamp};
pub use decision::{Decision, Denied, Outcome};
pub use limiter::{Builder, RateLimiter};
pub use quota::{Quota, QuotaError};
pub use store::{Direct, Keyed, Lookup, Overflow};
