//! The leaky bucket as a queue.

use core::time::Duration;

use super::pace::{Pace, paced};
use crate::algorithm::compact::TatWord;
use crate::base::clock::saturating_nanos;
use crate::base::quota::{Quota, QuotaError};

/// The leaky bucket as a queue: units leave at the rate, one each `T = period / limit`, and a request learns when it
/// may proceed.
///
/// The queue holds `burst` units, including the units that are leaving now. A request that fits is admitted, and
/// [`Decision::delay`](crate::Decision::delay) returns how long it must wait for its first unit's turn: at most `(burst
/// − cost) × T`. A request that does not fit is denied. The word is the next free departure time.
///
/// The limiter only computes the delay; the caller waits. Requests that wait for their delay depart at exactly the
/// rate, with no burst.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{LeakyBucketQueue, ManualClock, Quota, RateLimiter};
///
/// let queue = LeakyBucketQueue::new(Quota::per_second(10).burst(3));
/// let limiter = RateLimiter::builder(queue).clock(ManualClock::default()).direct();
/// assert_eq!(limiter.check().delay(), Duration::ZERO);
/// assert_eq!(limiter.check().delay(), Duration::from_millis(100));
/// assert_eq!(limiter.check().delay(), Duration::from_millis(200));
/// assert!(limiter.check().is_denied()); // the queue is full
/// ```
/// # Source
/// A. Tanenbaum, "Computer Networks", leaky bucket algorithm; nginx `limit_req` shapes with the same rule.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LeakyBucketQueue {
    pace: Pace<true>,
}

impl LeakyBucketQueue {
    /// Creates a queue of `burst` units, from which `limit` units leave per period. Accepts every quota.
    #[must_use]
    pub const fn new(quota: Quota) -> Self {
        Self { pace: Pace::new(&quota) }
    }

    /// Creates a queue in which no single unit waits longer than `wait`. The quota's burst is ignored.
    ///
    /// # Errors
    /// Returns an error if `wait` is above 292 years.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{LeakyBucketQueue, Quota};
    ///
    /// let by_time = LeakyBucketQueue::with_longest_wait(Quota::per_second(10), Duration::from_millis(250))?;
    /// assert_eq!(by_time, LeakyBucketQueue::new(Quota::per_second(10).burst(3)));
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn with_longest_wait(quota: Quota, wait: Duration) -> Result<Self, QuotaError> {
        let units = u128::from(saturating_nanos(wait)) * u128::from(quota.limit())
            / u128::from(quota.period_ns())
            + 1;
        let mut queue = Self::new(quota.try_burst(u64::try_from(units).unwrap_or(u64::MAX))?);
        // The word's interval may be rounded up, so the queue may be too long. A shorter queue may allow finer ticks,
        // which change the rounding. There are 32 sizes of ticks, so the loop runs at most 32 times.
        loop {
            let units = queue.pace.units_within(saturating_nanos(wait));
            if units >= queue.pace.burst() {
                return Ok(queue);
            }
            queue = Self::new(quota.try_burst(units)?);
        }
    }
}

paced!(LeakyBucketQueue, "leaky bucket queue", queued: true);
