//! The leaky bucket as a meter.

use super::pace::{Pace, paced};
use crate::algorithm::compact::TatWord;
use crate::base::quota::{Quota, QuotaError};

/// The leaky bucket as a meter: each unit is poured into a bucket of `burst` units that drains at `limit / period`.
///
/// A request that would overflow the bucket is denied. The decisions are the same as those of [`Gcra`](crate::Gcra).
/// The word is the time at which the bucket will be empty, and the level is the distance from now to that time.
///
/// In any interval of length `t` it admits at most `burst + t × limit / period` units.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{LeakyBucketMeter, ManualClock, Quota, RateLimiter};
///
/// // The bucket holds ten units, and drains one unit per second.
/// let clock = ManualClock::default();
/// let bucket = LeakyBucketMeter::new(Quota::per_second(1).burst(10));
/// let limiter = RateLimiter::builder(bucket).clock(clock.clone()).direct();
/// assert_eq!(limiter.check_n(8).remaining(), 2); // the level is 8
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(limiter.peek().remaining(), 3); // the level is 7
/// ```
/// # Source
/// ITU-T Recommendation I.371, continuous-state leaky bucket form; J. Turner, "New directions in
/// communications", 1986.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LeakyBucketMeter {
    pace: Pace<false>,
}

impl LeakyBucketMeter {
    /// Creates a bucket of `burst` units that drains `limit` units per period. Accepts every quota.
    #[must_use]
    pub const fn new(quota: Quota) -> Self {
        Self { pace: Pace::new(&quota) }
    }
}

paced!(LeakyBucketMeter, "leaky bucket meter", queued: false);
