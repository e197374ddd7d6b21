//! One limit in a response, and its two numbers: the available units, and the time that they are meant for.

use std::time::Duration;

use tollgate::internals::{Facts, decision, facts, one_unit_ns};
use tollgate::{Decision, Outcome, Quota, Timestamp};
#[cfg(feature = "rules")]
use tollgate_rules::{Amount, Applied};

use crate::line::MAX_INTEGER;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// The unit that a quota counts (draft 11, `qu`).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Unit {
    /// `requests`: the default, which is not written to the field.
    #[default]
    Requests,
    /// `content-bytes`.
    ContentBytes,
    /// `concurrent-requests`.
    ConcurrentRequests,
}

impl Unit {
    /// Returns the name of the unit in the draft.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::ContentBytes => "content-bytes",
            Self::ConcurrentRequests => "concurrent-requests",
        }
    }
}

/// The units that a client may still use, and the time that they are meant for: `r` and `t` of draft 11.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Available {
    /// The units that are available now.
    pub units: u64,
    /// The effective window in whole seconds, rounded up, at least 1. The client may use no more than `units` within
    /// it.
    pub seconds: u64,
}

/// One limit, and its decision about a request.
///
/// A policy is cheap to copy and owns no memory. Its *quota* is the number of units that a fresh key may use at once:
/// the burst, or the limit of window algorithms. Its *window* is the time in which that many units refill at the
/// sustained rate. For window algorithms, it is the period.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
/// use tollgate_http::{Available, Policy};
///
/// let quota = Quota::per_minute(100).burst(10);
/// let limiter = RateLimiter::builder(Gcra::new(quota)).clock(ManualClock::default()).direct();
/// let policy = Policy::new("per-ip", &quota, limiter.check());
/// assert_eq!((policy.quota(), policy.window()), (10, Duration::from_secs(6)));
/// assert_eq!(policy.available(), Available { units: 9, seconds: 6 }); // 9 units at one unit per 0.6 s: 5.4 s, rounded up
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Policy<'a> {
    name: &'a str,
    /// The units per period at the sustained rate.
    limit: u64,
    period_ns: u128,
    decision: Decision,
    enforced: bool,
    pub(crate) unit: Unit,
    pub(crate) partition: Option<&'a [u8]>,
}

/// A rate of `units` per `ns` nanoseconds. `ns` may be rounded up, by less than `rounded_ns`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct SustainedRate {
    units: u64,
    ns: u128,
    rounded_ns: u128,
}

impl SustainedRate {
    /// Returns the rate that was in force, if the algorithm reports a rate and it differs from the quota's rate.
    fn if_different(decision: &Decision, quota: &Quota) -> Option<Self> {
        let limit = decision.limit();
        let (units, ns, rounded_ns) = match *facts(decision) {
            Facts::Pace { interval, scale, .. } => (scale.into(), interval.into(), 1),
            Facts::Ticks { interval, num, den, .. } => (num, u128::from(interval) * u128::from(den), 0),
            // A boundary returns at most the limit.
            Facts::Batch { batch, period_ns, .. } => (batch.min(limit), period_ns.into(), 0),
            Facts::Blend { window_ns, .. } => (limit, window_ns.into(), 0),
            // The sliding log, or sub-windows, with a lower limit. The condition excludes a lower burst, and minimum
            // spacing, which admits one event at a time. The decision does not hold the period, so this uses the
            // quota's period.
            Facts::Plain { .. } if limit > 1 && limit < quota.limit().min(quota.burst_size()) => {
                (limit, quota.period().as_nanos(), 0)
            }
            Facts::Plain { .. } => return None,
        };
        let rate = Self { units, ns, rounded_ns };
        (rate.units > 0 && !rate.is_of(quota)).then_some(rate)
    }

    /// Returns whether the rate is the quota's rate, apart from rounding.
    fn is_of(&self, quota: &Quota) -> bool {
        let limit = u128::from(quota.limit());
        let asked = quota.period().as_nanos().checked_mul(self.units.into());
        let (most, least) =
            (limit.checked_mul(self.ns), limit.checked_mul(self.ns.saturating_sub(self.rounded_ns)));
        match (asked, least, most) {
            (Some(asked), Some(least), Some(most)) => (least..=most).contains(&asked),
            // The products overflow only for rates that no quota can have.
            _ => true,
        }
    }
}

impl<'a> Policy<'a> {
    /// Creates the policy `name` of a limit with this quota, which made `decision`.
    ///
    /// If the limiter's quota [changes](tollgate::Adjustable), `quota` may be out of date: a decision knows its own rate,
    /// and clients see that rate. There are two exceptions. For [`SlidingLog`](tollgate::SlidingLog) and
    /// [`SubWindow`](tollgate::SubWindow), the policy assumes the period of `quota`. [Leases](tollgate::leases::Leases) are the other
    /// exception. For these three, pass the quota that is in force.
    #[must_use]
    pub fn new(name: &'a str, quota: &Quota, decision: Decision) -> Self {
        let (limit, period_ns) = match SustainedRate::if_different(&decision, quota) {
            Some(rate) => (rate.units, rate.ns.max(1)),
            None => (quota.limit(), quota.period().as_nanos()),
        };
        Self { name, limit, period_ns, decision, enforced: true, unit: Unit::Requests, partition: None }
    }

    /// Creates the policy of a limit that admits nothing: a quota of 0 in each `period`.
    ///
    /// Its decision is [`Outcome::Never`], so a denial has no retry time.
    #[must_use]
    pub fn blocked(name: &'a str, period: Duration, now: Timestamp) -> Self {
        let facts = Facts::Plain { remaining: 0, retry_ns: 0, reset_ns: 0, delay_ns: 0 };
        Self::blocked_by(name, period, decision(Outcome::Never, 1, 0, now.as_nanos(), facts))
    }

    /// Creates the policy `name` of a rule that applies to a request. Returns `None` if clients must not see the rule, or
    /// if its state is not known; see [`Applied::decision_shown`]. Also returns `None` for a rule without a limit, and for
    /// one that limits requests in progress. Feature `rules`.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Descriptor, Rules};
    /// use tollgate_http::Policy;
    ///
    /// let rules = Rules::from_yaml("{ domain: edge, descriptors: [ { key: a, rate_limit: { unit: hour, requests_per_unit: 9 } } ] }")?;
    /// let answer = rules.check("edge", &[Descriptor::new(&[("a", "x")])]);
    /// let policies: Vec<_> = answer.limits().filter_map(|limit| Policy::of_rule("hourly", &limit)).collect();
    /// assert_eq!(policies.len(), 1);
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    #[cfg(feature = "rules")]
    #[must_use]
    pub fn of_rule(name: &'a str, limit: &Applied<'_>) -> Option<Self> {
        let decision = *limit.decision_shown()?;
        let policy = match &limit.rule().limit {
            // The rule or the request sets a limit of 0.
            _ if limit.quota() == 0 && decision.is_allowed() => {
                Self::blocked_by(name, limit.window(), decision)
            }
            _ if limit.quota() == 0 => Self::blocked(name, limit.window(), decision.at()),
            // A limit that the request sets overrides its rule's limit.
            Amount::Limited { limit: of_rule, .. } => match Quota::try_new(limit.quota(), limit.window()) {
                Ok(own) if limit.is_of_request() => Self::new(name, &own, decision),
                _ => Self::new(name, &of_rule.quota(), decision),
            },
            _ => return None,
        };
        Some(policy.enforced(limit.is_enforced()))
    }

    /// Same as [`Policy::blocked`], with a given decision. A peek costs nothing and is not denied.
    fn blocked_by(name: &'a str, period: Duration, decision: Decision) -> Self {
        let period_ns = period.as_nanos().max(1);
        Self { name, limit: 1, period_ns, decision, enforced: true, unit: Unit::Requests, partition: None }
    }

    /// Sets whether the policy is enforced. Clients never see a policy that is not enforced (a dry run). Default: true.
    #[must_use]
    pub const fn enforced(self, enforced: bool) -> Self {
        Self { enforced, ..self }
    }

    /// Sets the unit that the quota counts. Draft 11 writes it. Default: requests.
    #[must_use]
    pub const fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// Sets the partition key, which tells the client under which key the policy counts it (draft 11, `pk`). Default:
    /// none. Hash personal data.
    #[must_use]
    pub const fn partition(self, key: &'a [u8]) -> Self {
        Self { partition: Some(key), ..self }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the number of units that a fresh key may use at once: the burst, or the limit of window algorithms.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.decision.limit()
    }

    /// Returns the time in which the whole quota refills at the sustained rate, or the period of window algorithms.
    /// Rounded up to a nanosecond.
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::from_nanos(saturate(self.sustained_ns(self.quota().max(1))))
    }

    /// Returns the decision.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether the policy is enforced. That of a limiter that is off is not: [`Decision::is_unlimited`].
    #[must_use]
    pub const fn is_enforced(&self) -> bool {
        self.enforced && !self.decision.is_unlimited()
    }

    /// Whether the policy is enforced and denied the request.
    #[must_use]
    pub const fn is_violated(&self) -> bool {
        self.enforced && self.decision.is_denied()
    }

    /// Returns the available units, and the time that they are meant for.
    ///
    /// - If units are available, the time is what these units take at the sustained rate. In fixed windows and in
    ///   buckets that refill in batches, it is the time to the end of the window.
    /// - If no unit is available, the time is the wait until one unit fits.
    /// - If a cost above 1 was denied while units remain, the time is the wait until the cost fits. The units are at
    ///   most what the sustained rate refills in that time. The window therefore ends no later than `Retry-After`.
    ///
    /// Both numbers are at most 999 999 999 999 999, the largest integer of a structured field.
    #[must_use]
    pub fn available(&self) -> Available {
        let (units, ns) = self.available_ns();
        Available { units: units.min(MAX_INTEGER), seconds: seconds(ns).clamp(1, MAX_INTEGER) }
    }

    /// Returns the available units, and the time that they are meant for in nanoseconds.
    fn available_ns(&self) -> (u64, u128) {
        let units = self.decision.remaining().min(self.quota());
        if units == 0 {
            let one_ns = match self.quota() {
                0 => self.sustained_ns(1),
                // Later than that if the algorithm has computed the time only for a greater cost.
                _ => one_unit_ns(&self.decision).into(),
            };
            return (0, one_ns);
        }
        let ns = match *facts(&self.decision) {
            Facts::Batch { to_boundary_ns, .. } => to_boundary_ns.into(),
            _ => self.sustained_ns(units),
        };
        match (self.decision.outcome(), self.decision.retry_after()) {
            (Outcome::Denied, Some(retry)) if retry.as_nanos() < ns => {
                let until = retry.as_nanos() * u128::from(self.limit) / self.period_ns;
                (units.min(saturate(until)), retry.as_nanos())
            }
            _ => (units, ns),
        }
    }

    /// Returns the end of the effective window by the limiter's clock.
    pub(crate) fn ends(&self) -> Timestamp {
        let at_ns = u128::from(self.decision.at().as_nanos());
        Timestamp::from_nanos(saturate(at_ns + self.available_ns().1.max(1)))
    }

    /// Returns the time that these units take at the sustained rate, rounded up.
    fn sustained_ns(&self, units: u64) -> u128 {
        u128::from(units).saturating_mul(self.period_ns).div_ceil(u128::from(self.limit))
    }

    /// Returns the window in whole seconds, rounded up.
    pub(crate) fn window_seconds(&self) -> u64 {
        seconds(self.sustained_ns(self.quota().max(1)))
    }
}

/// Returns whole seconds, rounded up.
fn seconds(ns: u128) -> u64 {
    saturate(ns.div_ceil(NANOS_PER_SEC))
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
