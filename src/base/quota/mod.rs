//! Quotas: how many units per period, and how many at once.

mod error;
mod text;

use core::time::Duration;

pub use self::error::QuotaError;
pub(crate) use self::error::{Reason, or_panic};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A limit: `limit` units per `period`, of which `burst` may come at once.
///
/// The burst is the limit unless [`Quota::burst`] says otherwise. In any interval of length `t` a limiter with
/// this quota admits at most `burst + limit × t / period` units (algorithms with fixed or sliding windows have
/// bounds of their own, stated at their types, and ignore the burst).
///
/// A quota that exists is valid:
/// - limit, period and burst are at least 1 (unit, nanosecond, unit);
/// - the rate is at most 32 units a nanosecond;
/// - refilling the whole burst, at `period / limit` rounded up to a nanosecond for each unit, takes at most
///   2⁶³ − 1 ns (292 years).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// const API: Quota = Quota::per_second(100).burst(200); // checked when it is compiled
/// assert_eq!(API, "100/s burst 200".parse()?);
/// assert_eq!(Quota::new(10, Duration::from_secs(60)), "10/60s".parse()?);
/// assert_eq!("1000/3600s".parse::<Quota>()?.to_string(), "1000/h");
///
/// let error = "10/0s".parse::<Quota>().unwrap_err();
/// assert!(error.to_string().contains("\"10/0s\""));
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
/// A quota that cannot be met does not compile:
/// ```compile_fail
/// const NOTHING: tollgate::Quota = tollgate::Quota::per_second(0);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Quota {
    limit: u64,
    period_ns: u64,
    burst: u64,
}

impl Quota {
    /// The highest rate: this many units a nanosecond. Finer emission intervals than its inverse would round
    /// to nothing in the words that hold them.
    pub(crate) const MAX_UNITS_PER_NS: u64 = 32;

    /// The longest time a full burst may take to refill, so that a theoretical arrival time reckoned from any
    /// date of this century fits 64 bits.
    pub(crate) const MAX_REFILL_NS: u64 = i64::MAX as u64;

    const fn checked(limit: u64, period_ns: u64, burst: u64) -> Result<Self, Reason> {
        if limit == 0 {
            return Err(Reason::ZeroLimit);
        }
        if period_ns == 0 {
            return Err(Reason::ZeroPeriod);
        }
        if burst == 0 {
            return Err(Reason::ZeroBurst);
        }
        if limit as u128 > Self::MAX_UNITS_PER_NS as u128 * period_ns as u128 {
            return Err(Reason::TooFast { limit, period_ns });
        }
        // By whole nanoseconds a unit, as the coarsest word counts.
        if burst as u128 * period_ns.div_ceil(limit) as u128 > Self::MAX_REFILL_NS as u128 {
            return Err(Reason::TooLong { limit, period_ns, burst });
        }
        Ok(Self { limit, period_ns, burst })
    }
    /// `limit` units per `period`, with a burst of `limit`.
    ///
    /// # Panics
    /// If the quota is not valid (see [`Quota`]); in a constant, at compile time.
    /// [`Quota::try_new`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(limit: u64, period: Duration) -> Self {
        or_panic(Self::checked(limit, crate::base::clock::saturating_nanos(period), limit))
    }

    /// `limit` units per `period`, with a burst of `limit`.
    ///
    /// # Errors
    /// If the quota is not valid (see [`Quota`]).
    pub fn try_new(limit: u64, period: Duration) -> Result<Self, QuotaError> {
        Self::checked(limit, crate::base::clock::saturating_nanos(period), limit).map_err(QuotaError::from)
    }

    /// `limit` units each second.
    ///
    /// # Panics
    /// If `limit` is 0 or above 32 a nanosecond; in a constant, at compile time.
    #[must_use]
    #[track_caller]
    pub const fn per_second(limit: u64) -> Self {
        or_panic(Self::checked(limit, NANOS_PER_SEC, limit))
    }

    /// `limit` units each minute.
    ///
    /// # Panics
    /// As [`Quota::per_second`].
    #[must_use]
    #[track_caller]
    pub const fn per_minute(limit: u64) -> Self {
        or_panic(Self::checked(limit, 60 * NANOS_PER_SEC, limit))
    }

    /// `limit` units each hour.
    ///
    /// # Panics
    /// As [`Quota::per_second`].
    #[must_use]
    #[track_caller]
    pub const fn per_hour(limit: u64) -> Self {
        or_panic(Self::checked(limit, 3_600 * NANOS_PER_SEC, limit))
    }

    /// `limit` units each day of 24 hours.
    ///
    /// # Panics
    /// As [`Quota::per_second`].
    #[must_use]
    #[track_caller]
    pub const fn per_day(limit: u64) -> Self {
        or_panic(Self::checked(limit, 86_400 * NANOS_PER_SEC, limit))
    }

    /// The same rate, with `burst` units at once.
    ///
    /// # Panics
    /// If `burst` is 0 or takes more than 292 years to refill; in a constant, at compile time.
    /// [`Quota::try_burst`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, burst: u64) -> Self {
        or_panic(Self::checked(self.limit, self.period_ns, burst))
    }

    /// The same rate, with `burst` units at once.
    ///
    /// # Errors
    /// If `burst` is 0 or takes more than 292 years to refill.
    pub fn try_burst(self, burst: u64) -> Result<Self, QuotaError> {
        Self::checked(self.limit, self.period_ns, burst).map_err(QuotaError::from)
    }

    /// Units per period.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// Units that may come at once after a quiet time.
    #[must_use]
    pub const fn burst_size(&self) -> u64 {
        self.burst
    }

    /// The period in nanoseconds, 1 or more.
    pub(crate) const fn period_ns(&self) -> u64 {
        self.period_ns
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        let cases: [(Result<Quota, QuotaError>, &str); 6] = [
            (Quota::try_new(0, Duration::from_secs(1)), "limit"),
            (Quota::try_new(1, Duration::ZERO), "period"),
            (Quota::per_second(1).try_burst(0), "burst"),
            (Quota::try_new(33, Duration::from_nanos(1)), "32 units a nanosecond"),
            (Quota::try_new(1, Duration::MAX), "292 years"),
            (Quota::per_day(1).try_burst(u64::MAX), "292 years"),
        ];
        for (result, needle) in cases {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(needle), "{text:?} does not say {needle:?}");
        }
    }

    #[test]
    fn the_extremes_are_accepted() {
        assert_eq!(Quota::new(32, Duration::from_nanos(1)).limit(), 32);
        let century = Duration::from_secs(100 * 366 * 86_400);
        assert_eq!(Quota::new(1, century).period(), century);
        assert_eq!(Quota::per_second(1).burst(9_223_372_036).burst_size(), 9_223_372_036);
        assert!(Quota::per_second(1).try_burst(9_223_372_037).is_err());
    }
}
