//! GCRA, the generic cell rate algorithm.

use super::pace::{Pace, paced};
use crate::algorithm::compact::TatWord;
use crate::base::quota::{Quota, QuotaError};

/// The generic cell rate algorithm, GCRA(T, τ), in its virtual scheduling form. This is the default algorithm.
///
/// Its state is one number, the theoretical arrival time (TAT) of the next unit. With the emission interval `T = period
/// / limit` and the burst tolerance `τ = (burst − 1) × T`, a unit conforms if the TAT is at most `τ` ahead of now. The
/// TAT then moves to `max(TAT, now) + T`. Admissions are therefore smooth: after the burst, one unit per `T`.
///
/// In any interval of length `t`, the algorithm admits at most `burst + t / T` units.
///
/// Times are exact if `T` is a whole number of nanoseconds, or a fraction with a denominator of at most 32. Otherwise
/// `T` is rounded up by less than 1/32 ns (1 ns if the burst takes over two years to refill). If `T` is not a whole
/// number of nanoseconds, the limiter decides correctly only at times within 9 years of the key's last use.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
///
/// let clock = ManualClock::default();
/// let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(2))).clock(clock.clone()).direct();
/// assert!(limiter.check().is_allowed());
/// assert!(limiter.check().is_allowed());
/// assert!(limiter.check().is_denied());
/// clock.advance(Duration::from_millis(500));
/// assert!(limiter.check().is_allowed());
/// ```
/// # Source
/// ITU-T Recommendation I.371.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Gcra {
    pace: Pace<false>,
}

impl Gcra {
    /// Creates the algorithm with this quota. Accepts every quota.
    #[must_use]
    pub const fn new(quota: Quota) -> Self {
        Self { pace: Pace::new(&quota) }
    }
}

impl From<Quota> for Gcra {
    fn from(quota: Quota) -> Self {
        Self::new(quota)
    }
}

paced!(Gcra, "GCRA", queued: false);
