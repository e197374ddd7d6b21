//! Quotas: the number of units per period, and the burst.

mod error;
mod period;
mod text;

use core::time::Duration;

pub use self::error::QuotaError;
pub(crate) use self::error::{Reason, TextForm, or_panic};
pub(crate) use self::period::PeriodText;
pub(crate) use self::text::parse_number;
pub use self::text::parse_period;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A quota: `limit` units per `period`, and at most `burst` units at once.
///
/// The burst equals the limit unless [`Quota::burst`] sets another one. In any interval of length `t` a limiter with
/// this quota admits at most `burst + limit × t / period` units. Fixed-window and sliding-window algorithms ignore the
/// burst; their types state their own bounds.
///
/// Every `Quota` value is valid:
/// - limit, period and burst are at least 1 (unit, nanosecond, unit);
/// - the rate is at most 32 units per nanosecond;
/// - the whole burst refills in at most 2⁶³ − 1 ns (292 years), if each unit takes `period / limit` rounded up to a
///   nanosecond.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// const API: Quota = Quota::per_second(100).burst(200); // checked at compile time
/// assert_eq!(API, "100/s burst 200".parse()?);
/// assert_eq!(Quota::new(10, Duration::from_secs(60)), "10/60s".parse()?);
/// assert_eq!("1000/3600s".parse::<Quota>()?.to_string(), "1000/h");
///
/// let error = "10/0s".parse::<Quota>().unwrap_err();
/// assert!(error.to_string().contains("\"10/0s\""));
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
/// An invalid quota does not compile:
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
    /// The highest rate, in units per nanosecond. The words count time in ticks of at least 1/32 ns, so the emission
    /// interval of a higher rate would be less than one tick.
    pub(crate) const MAX_UNITS_PER_NS: u64 = 32;

    /// The longest time that a full burst may take to refill. With this bound a theoretical arrival time fits 64 bits
    /// for every date of this century.
    #[doc(hidden)]
    pub const MAX_REFILL_NS: u64 = i64::MAX as u64;

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
        // The time per unit is rounded up to whole nanoseconds, because the coarsest words count nanoseconds.
        if burst as u128 * period_ns.div_ceil(limit) as u128 > Self::MAX_REFILL_NS as u128 {
            return Err(Reason::TooLong { limit, period_ns, burst });
        }
        Ok(Self { limit, period_ns, burst })
    }

    /// Creates a quota from the numbers of an algorithm that was made from a quota. If no quota has these numbers, for
    /// example because a spacing is zero or longer than 292 years, the nearest possible period is taken.
    pub(crate) const fn stored(limit: u64, period_ns: u64, burst: u64) -> Self {
        match Self::checked(limit, period_ns, burst) {
            Ok(quota) => quota,
            Err(Reason::TooFast { .. } | Reason::ZeroPeriod) => Self { limit: 1, period_ns: 1, burst },
            Err(_) => Self { limit: 1, period_ns: Self::MAX_REFILL_NS, burst: 1 },
        }
    }

    /// Creates a quota of `limit` units per `period`, with a burst of `limit`.
    ///
    /// # Panics
    /// Panics if the quota is not valid (see [`Quota`]); in a constant, at compile time. [`Quota::try_new`] returns the
    /// error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(limit: u64, period: Duration) -> Self {
        or_panic(Self::checked(limit, crate::base::clock::saturating_nanos(period), limit))
    }

    /// Creates a quota of `limit` units per `period`, with a burst of `limit`.
    ///
    /// # Errors
    /// Returns an error if the quota is not valid (see [`Quota`]).
    pub fn try_new(limit: u64, period: Duration) -> Result<Self, QuotaError> {
        Self::checked(limit, crate::base::clock::saturating_nanos(period), limit).map_err(QuotaError::from)
    }

    /// Creates a quota of `limit` units per second.
    ///
    /// # Panics
    /// Panics if `limit` is 0 or above 32 units per nanosecond; in a constant, at compile time.
    #[must_use]
    #[track_caller]
    pub const fn per_second(limit: u64) -> Self {
        or_panic(Self::checked(limit, NANOS_PER_SEC, limit))
    }

    /// Creates a quota of `limit` units per minute.
    ///
    /// # Panics
    /// The same as for [`Quota::per_second`].
    #[must_use]
    #[track_caller]
    pub const fn per_minute(limit: u64) -> Self {
        or_panic(Self::checked(limit, 60 * NANOS_PER_SEC, limit))
    }

    /// Creates a quota of `limit` units per hour.
    ///
    /// # Panics
    /// The same as for [`Quota::per_second`].
    #[must_use]
    #[track_caller]
    pub const fn per_hour(limit: u64) -> Self {
        or_panic(Self::checked(limit, 3_600 * NANOS_PER_SEC, limit))
    }

    /// Creates a quota of `limit` units per day of 24 hours.
    ///
    /// # Panics
    /// The same as for [`Quota::per_second`].
    #[must_use]
    #[track_caller]
    pub const fn per_day(limit: u64) -> Self {
        or_panic(Self::checked(limit, 86_400 * NANOS_PER_SEC, limit))
    }

    /// Creates a quota from a rate in units per second, which may have a fraction, and a burst.
    ///
    /// The period is the shortest of 1 s, 10 s, … 10⁹ s in which the rate gives a whole number of units: 2.5 becomes `25/10s`. If there is
    /// none, the quota has the whole units of 10⁹ s, or of 1 s if the rate is 10⁹ or more. A rate below 1 becomes one unit in `1 / rate`, rounded up to a nanosecond: 0.001
    /// becomes `1/1000s`. So the quota's rate differs from the given one by less than 1.1 × 10⁻⁹ of it, and it exceeds it by at most
    /// the precision of an `f64`, which is 2 × 10⁻¹⁶.
    ///
    /// A window algorithm counts in the quota's period. For it, give the period yourself, with [`Quota::try_new`].
    ///
    /// # Errors
    /// Returns an error if the rate is not a number, negative, zero or infinite, or if the quota is not valid (see
    /// [`Quota`]): the rate must be at most 32 units per nanosecond, and the burst must refill in 292 years. The error says
    /// what to use instead.
    ///
    /// # Examples
    /// ```
    /// use tollgate::Quota;
    ///
    /// assert_eq!(Quota::from_rate(2.5, 10)?, "25/10s burst 10".parse()?);
    /// assert_eq!(Quota::from_rate(0.001, 1)?, "1/1000s burst 1".parse()?);
    /// assert_eq!(Quota::from_rate(100.0, 100)?, Quota::per_second(100));
    /// assert!(Quota::from_rate(f64::NAN, 1).is_err() && Quota::from_rate(0.0, 1).is_err());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts saturate, and the rate is positive"
    )]
    #[expect(clippy::cast_precision_loss, reason = "powers of ten up to 10⁹ are exact")]
    pub fn from_rate(units_per_second: f64, burst: u64) -> Result<Self, QuotaError> {
        const LONGEST_S: u64 = 1_000_000_000;
        let got = match units_per_second {
            rate if rate.is_nan() => "not a number",
            rate if rate < 0.0 => "negative",
            0.0 => "zero",
            f64::INFINITY => "infinite",
            rate if rate < 1.0 => {
                let interval_ns = NANOS_PER_SEC as f64 / rate;
                let whole_ns = interval_ns as u64;
                let period_ns = whole_ns.saturating_add(u64::from((whole_ns as f64) < interval_ns));
                return Self::checked(1, period_ns, burst).map_err(QuotaError::from);
            }
            rate => {
                let units_in = |seconds: u64| rate * seconds as f64;
                let is_whole = |seconds: &u64| units_in(*seconds) as u64 as f64 == units_in(*seconds);
                // The whole units of a second are precise enough for such a rate, and those of more seconds may not fit.
                let longest = if rate < 1e9 { LONGEST_S } else { 1 };
                let periods = (0..9).map(|power| 10_u64.pow(power)).filter(|seconds| *seconds < longest);
                let seconds = { periods }.find(is_whole).unwrap_or(longest);
                let limit = units_in(seconds) as u64;
                return Self::checked(limit, seconds * NANOS_PER_SEC, burst).map_err(QuotaError::from);
            }
        };
        Err(Reason::Rate { got }.into())
    }

    /// Sets the burst: the most units that a key can spend at once. The rate stays the same.
    ///
    /// # Panics
    /// Panics if `burst` is 0 or takes more than 292 years to refill; in a constant, at compile time.
    /// [`Quota::try_burst`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, burst: u64) -> Self {
        or_panic(Self::checked(self.limit, self.period_ns, burst))
    }

    /// Sets the burst: the most units that a key can spend at once. The rate stays the same.
    ///
    /// # Errors
    /// Returns an error if `burst` is 0 or takes more than 292 years to refill.
    pub fn try_burst(self, burst: u64) -> Result<Self, QuotaError> {
        Self::checked(self.limit, self.period_ns, burst).map_err(QuotaError::from)
    }

    /// Returns the units per period.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// Returns the burst: the most units that a key can spend at once.
    #[must_use]
    pub const fn burst_size(&self) -> u64 {
        self.burst
    }

    /// Returns the quota with its limit as its burst, if that is valid.
    pub(crate) const fn without_burst(self) -> Result<Self, Reason> {
        Self::checked(self.limit, self.period_ns, self.limit)
    }

    /// Returns the period in nanoseconds, at least 1.
    #[doc(hidden)]
    pub const fn period_ns(&self) -> u64 {
        self.period_ns
    }
}
