//! One limit's part in an answer, and its two figures: what is available, and within what time.

use std::time::Duration;

use super::line::MAX_INTEGER;
use crate::base::clock::Timestamp;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::Quota;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// What a quota counts (draft 11, `qu`).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Unit {
    /// `requests`, the default, which is not written.
    #[default]
    Requests,
    /// `content-bytes`.
    ContentBytes,
    /// `concurrent-requests`.
    ConcurrentRequests,
}

impl Unit {
    /// Its name in the draft.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::ContentBytes => "content-bytes",
            Self::ConcurrentRequests => "concurrent-requests",
        }
    }
}

/// What a client may still use, and for how long that is meant to last: `r` and `t` of draft 11.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Available {
    /// Units that may pass now.
    pub units: u64,
    /// The effective window, in whole seconds, rounded up: no more than `units` within it. At least 1.
    pub seconds: u64,
}

/// One limit, and what it decided about a request.
///
/// Copied freely; holds no memory of its own. The *quota* is what could pass from full: the burst, or for window algorithms the
/// limit. The *window* is the time in which so much comes back at the sustained rate; for window algorithms that is the period.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::http::{Available, Policy};
/// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
///
/// let quota = Quota::per_minute(100).burst(10);
/// let limiter = RateLimiter::builder(Gcra::new(quota)).clock(ManualClock::default()).direct();
/// let policy = Policy::new("per-ip", &quota, limiter.check());
/// assert_eq!((policy.quota(), policy.window()), (10, Duration::from_secs(6)));
/// assert_eq!(policy.available(), Available { units: 9, seconds: 6 }); // 5.4 s at one each 0.6 s
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Policy<'a> {
    name: &'a str,
    /// Units of the sustained rate in a period.
    limit: u64,
    period_ns: u128,
    decision: Decision,
    enforced: bool,
    pub(super) unit: Unit,
    pub(super) partition: Option<&'a [u8]>,
}

impl<'a> Policy<'a> {
    /// The limit `name` of the quota by which `decision` was made.
    ///
    /// If the limiter's quota [changes](crate::Adjustable), this may be an old one: a decision knows by what rate it was made, and
    /// that is what is told. The exceptions are [`SlidingLog`](crate::SlidingLog) and [`SubWindow`](crate::SubWindow), of whose
    /// decisions it is taken that the period is as the quota says, and [leases](crate::Leases); for these give the quota that
    /// is in force.
    #[must_use]
    pub fn new(name: &'a str, quota: &Quota, decision: Decision) -> Self {
        let (limit, period_ns) = match decision.rate_unlike(quota) {
            Some(rate) => (rate.units, rate.ns.max(1)),
            None => (quota.limit(), quota.period_ns().into()),
        };
        Self { name, limit, period_ns, decision, enforced: true, unit: Unit::Requests, partition: None }
    }

    /// A limit that lets nothing through: a quota of 0 in each `period`.
    ///
    /// Its decision is [`Outcome::Never`], so a refusal says nothing about when to come back.
    #[must_use]
    pub fn blocked(name: &'a str, period: Duration, now: Timestamp) -> Self {
        Self::blocked_by(name, period, Decision::nothing(now.as_nanos()))
    }

    /// The same, with what it decided: a look, which costs nothing, is not refused.
    pub(crate) fn blocked_by(name: &'a str, period: Duration, decision: Decision) -> Self {
        let period_ns = period.as_nanos().max(1);
        Self { name, limit: 1, period_ns, decision, enforced: true, unit: Unit::Requests, partition: None }
    }

    /// Whether it is enforced. One that is not (a dry run) appears nowhere: clients are not told of it. Default: it is.
    #[must_use]
    pub const fn enforced(self, enforced: bool) -> Self {
        Self { enforced, ..self }
    }

    /// What the quota counts. Default: requests. Written in draft 11.
    #[must_use]
    pub const fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// What the client is known by under this policy, if it shall be told (draft 11, `pk`). Default: it is not. Hash what is
    /// personal.
    #[must_use]
    pub const fn partition(self, key: &'a [u8]) -> Self {
        Self { partition: Some(key), ..self }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// What could pass from full: the burst; for window algorithms the limit.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.decision.limit()
    }

    /// The time in which the whole quota comes back at the sustained rate; for window algorithms the period. Rounded up to a
    /// nanosecond.
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::from_nanos(saturate(self.sustained_ns(self.quota().max(1))))
    }

    /// What was decided.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether it is enforced.
    #[must_use]
    pub const fn is_enforced(&self) -> bool {
        self.enforced
    }

    /// Whether it is enforced, and refused the request.
    #[must_use]
    pub const fn is_violated(&self) -> bool {
        self.enforced && self.decision.is_denied()
    }

    /// What may pass now, and the time that it is meant to last.
    ///
    /// - If something may: the time of so many units at the sustained rate. In fixed windows and buckets that are refilled in
    ///   batches: the time to the end of the window.
    /// - If nothing may: the time until one unit fits.
    /// - If a cost above 1 was refused though something remains: no more than the sustained rate gives until the cost fits, and
    ///   that time; so that the window ends no later than `Retry-After`.
    ///
    /// Both are at most 999 999 999 999 999, the largest integer of a structured field.
    #[must_use]
    pub fn available(&self) -> Available {
        let (units, ns) = self.available_ns();
        Available { units: units.min(MAX_INTEGER), seconds: seconds(ns).clamp(1, MAX_INTEGER) }
    }

    /// The same, with the time in nanoseconds.
    fn available_ns(&self) -> (u64, u128) {
        let units = self.decision.remaining().min(self.quota());
        if units == 0 {
            let one_ns = match self.quota() {
                0 => self.sustained_ns(1),
                _ => self.decision.until_one_ns().into(),
            };
            return (0, one_ns);
        }
        let ns = self.decision.window_left_ns().map_or_else(|| self.sustained_ns(units), u128::from);
        match (self.decision.outcome(), self.decision.retry_after()) {
            (Outcome::Denied, Some(retry)) if retry.as_nanos() < ns => {
                let until = retry.as_nanos() * u128::from(self.limit) / self.period_ns;
                (units.min(saturate(until)), retry.as_nanos())
            }
            _ => (units, ns),
        }
    }

    /// When the effective window ends, by the limiter's clock.
    pub(super) fn ends(&self) -> Timestamp {
        let at_ns = u128::from(self.decision.at().as_nanos());
        Timestamp::from_nanos(saturate(at_ns + self.available_ns().1.max(1)))
    }

    /// The time of so many units at the sustained rate, rounded up.
    fn sustained_ns(&self, units: u64) -> u128 {
        u128::from(units).saturating_mul(self.period_ns).div_ceil(u128::from(self.limit))
    }

    /// The window in whole seconds, rounded up.
    pub(super) fn window_seconds(&self) -> u64 {
        seconds(self.sustained_ns(self.quota().max(1)))
    }
}

/// Whole seconds, rounded up.
fn seconds(ns: u128) -> u64 {
    saturate(ns.div_ceil(NANOS_PER_SEC))
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
