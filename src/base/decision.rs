//! What a limiter answers: one small value whose figures are worked out only when they are asked for.

use core::error::Error;
use core::fmt;
use core::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::quota::Quota;

/// Whether a request may go.
///
/// # Examples
/// ```
/// use tollgate::{Outcome, Quota, RateLimiter};
///
/// let limiter = RateLimiter::new(Quota::per_hour(10));
/// let status = |cost| match limiter.check_n("alice", cost).outcome() {
///     Outcome::Allowed => 200,
///     Outcome::Denied => 429, // come back
///     Outcome::Never => 413,  // ask for less
/// };
/// assert_eq!([7, 7, 11].map(status), [200, 429, 413]);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It conforms, and was charged.
    Allowed,
    /// It does not conform now; nothing was charged. [`Decision::retry_after`] says when it could.
    Denied,
    /// Its cost is above the burst (the limit, for window algorithms): it can never conform. Nothing was charged.
    Never,
}

/// The answer to one check.
///
/// Holds the few integers that the decision was made of, so making one costs nothing beyond the check; each
/// method computes its figure when called.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
///
/// let clock = ManualClock::default();
/// let limiter = RateLimiter::builder(Gcra::new(Quota::per_minute(6))).clock(clock).direct();
/// let decision = limiter.check_n(5);
/// assert!(decision.is_allowed());
/// assert_eq!(decision.remaining(), 1);
/// assert_eq!(decision.reset_after(), Duration::from_secs(50));
///
/// let decision = limiter.check_n(2);
/// assert!(decision.is_denied());
/// assert_eq!(decision.retry_after(), Some(Duration::from_secs(10)));
/// assert!(limiter.check_n(7).is_never());
/// ```
#[derive(Copy, Clone)]
pub struct Decision {
    outcome: Outcome,
    charge: Charge,
    /// Which of the quotas of a limiter was in force, if they change.
    generation: u32,
    cost: u64,
    limit: u64,
    /// The time as of which it was decided.
    at_ns: u64,
    facts: Facts,
}

/// Equal are decisions that say the same, at whatever time, and whether or not there is a charge to take back.
impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        let said = |decision: &Self| {
            let &Self { outcome, charge: _, generation: _, cost, limit, at_ns: _, facts } = decision;
            (outcome, cost, limit, facts, decision.delay())
        };
        said(self) == said(other)
    }
}

impl Eq for Decision {}

/// What there is to take back of a decision that allowed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Charge {
    /// Its cost.
    Made,
    /// Its cost, which was not asked whether there is room.
    Forced,
    /// Nothing: it was a look, or admitted uncounted.
    None,
}

/// What the algorithms leave behind for [`Decision`]'s methods. All are the state *after* the decision: with the
/// charge if it was allowed, without if not.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Facts {
    /// Theoretical arrival time: how far it stands ahead of now, in ticks of `1 / scale` ns.
    /// `queued`: units wait for those before them.
    Pace { ahead: u64, interval: u64, capacity: u64, scale: u32, queued: bool },
    /// The same in ticks of `den / num` ns, of which `remainder / den` had passed at the time of the decision. A full
    /// burst is `limit` intervals.
    Ticks { ahead: u64, interval: u64, remainder: u64, num: u64, den: u64, queued: bool },
    /// Units used up, given back `batch` at a time: first in `to_boundary_ns`, then every `period_ns`.
    /// `raised`: those that this decision used up besides its cost, which would have run over before its turn.
    Batch { used: u64, raised: u64, batch: u64, to_boundary_ns: u64, period_ns: u64 },
    /// Two windows. The previous one weighs `left_ns` of `window_ns`, rounded up if `ceil`; the current one ends
    /// in `to_end_ns`, which is more than `left_ns` if time stepped back before it.
    Blend { previous: u64, current: u64, left_ns: u64, to_end_ns: u64, window_ns: u64, ceil: bool },
    /// Worked out already. `retry_ns` of one that was not denied: the time until a unit fits, if none does.
    Plain { remaining: u64, retry_ns: u64, reset_ns: u64, delay_ns: u64 },
}

/// So many units in so many nanoseconds, which may be rounded up: by less than this.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct SustainedRate {
    pub(crate) units: u64,
    pub(crate) ns: u128,
    pub(crate) rounded_ns: u128,
}

impl SustainedRate {
    /// Whether it is that of a quota, but for the rounding.
    fn is_of(&self, quota: &Quota) -> bool {
        let limit = u128::from(quota.limit());
        let asked = u128::from(quota.period_ns()).checked_mul(self.units.into());
        let (most, least) =
            (limit.checked_mul(self.ns), limit.checked_mul(self.ns.saturating_sub(self.rounded_ns)));
        match (asked, least, most) {
            (Some(asked), Some(least), Some(most)) => (least..=most).contains(&asked),
            // Beyond what there are quotas for.
            _ => true,
        }
    }
}

impl Decision {
    pub(crate) const fn new(outcome: Outcome, cost: u64, limit: u64, at_ns: u64, facts: Facts) -> Self {
        Self { outcome, charge: Charge::Made, generation: 0, cost, limit, at_ns, facts }
    }

    /// The same, under one of the quotas of a limiter that changes them.
    pub(crate) const fn of_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// The same for a request of another cost.
    pub(crate) const fn for_cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// The same of a request that was not asked whether there is room.
    pub(crate) const fn forced(self) -> Self {
        Self { charge: Charge::Forced, ..self }
    }

    /// The same, if nothing was charged for it.
    pub(crate) const fn uncharged(self) -> Self {
        Self { charge: Charge::None, ..self }
    }

    /// The same after its charge was taken back: as much more is left.
    pub(crate) fn given_back(self) -> Self {
        let units = self.charged();
        let mut facts = self.facts;
        match &mut facts {
            Facts::Pace { ahead, interval, .. } | Facts::Ticks { ahead, interval, .. } => {
                *ahead = ahead.saturating_sub(units.saturating_mul(*interval));
            }
            Facts::Batch { used, .. } => *used = used.saturating_sub(units),
            Facts::Blend { current, .. } => *current = current.saturating_sub(units),
            Facts::Plain { remaining, .. } => *remaining = remaining.saturating_add(units).min(self.limit),
        }
        Self { facts, ..self }.uncharged()
    }

    /// The units that were charged.
    pub(crate) const fn charged(&self) -> u64 {
        match (self.outcome, self.charge) {
            (Outcome::Allowed, Charge::Made | Charge::Forced) => self.cost,
            _ => 0,
        }
    }

    /// Whether others were told when to go by when this one does.
    pub(crate) fn has_turn(&self) -> bool {
        matches!(self.facts, Facts::Pace { queued: true, .. } | Facts::Ticks { queued: true, .. })
            || (matches!(self.charge, Charge::Made) && self.delay() > Duration::ZERO)
    }

    pub(crate) const fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(crate) const fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// The same of a limit that is `spare` units less than its store's. Of a request that is denied it is a decision about its cost
    /// and those units. `next` looks for one unit and those: the store has said when there is room for one.
    pub(crate) fn judged(self, outcome: Outcome, cost: u64, spare: u64, next: impl FnOnce() -> Self) -> Self {
        let limit = self.limit.saturating_sub(spare);
        let facts = match self.facts {
            Facts::Pace { ahead, interval, capacity, scale, queued } => {
                let capacity = capacity.saturating_sub(interval.saturating_mul(spare));
                Facts::Pace { ahead, interval, capacity, scale, queued }
            }
            Facts::Plain { remaining, mut retry_ns, reset_ns, delay_ns } => {
                if outcome != Outcome::Denied && spare > 0 && remaining <= spare {
                    retry_ns = next().retry_ns();
                }
                Facts::Plain { remaining: remaining.saturating_sub(spare), retry_ns, reset_ns, delay_ns }
            }
            others @ (Facts::Ticks { .. } | Facts::Batch { .. } | Facts::Blend { .. }) => others,
        };
        Self { outcome, cost, limit, facts, ..self }
    }

    /// The same of a fixed window if so many units more are in use in another counter: as if one counted both.
    pub(crate) fn beside(self, others: u64) -> Self {
        let Facts::Batch { used, raised, batch, to_boundary_ns, period_ns } = self.facts else { return self };
        if others == 0 {
            return self;
        }
        let facts =
            Facts::Batch { used: used.saturating_add(others), raised, batch, to_boundary_ns, period_ns };
        let both = Self { facts, ..self };
        let wanted = if self.charged() > 0 { 0 } else { self.cost };
        let is_over = self.cost > 0 && both.owed().saturating_add(wanted) > self.limit;
        match self.outcome {
            Outcome::Allowed if is_over => Self { outcome: Outcome::Denied, ..both },
            _ => both,
        }
    }

    /// This outcome, with the figures of a decision that charged nothing.
    pub(crate) const fn with_figures_of(self, uncharged: Self) -> Self {
        Self { facts: uncharged.facts, ..self }.uncharged()
    }

    /// Whether the request may go, and if not whether it ever can.
    #[inline]
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request may go; its cost has been charged.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed)
    }

    /// Whether the request must not go: now, or ever. Nothing was charged.
    #[inline]
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Whether the cost is more than the limiter can ever admit at once.
    #[inline]
    #[must_use]
    pub const fn is_never(&self) -> bool {
        matches!(self.outcome, Outcome::Never)
    }

    /// The units that were asked for.
    #[inline]
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The most that can ever be admitted at once: the burst, or for window algorithms the limit.
    #[inline]
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The time as of which the request was decided: the clock's reading, or the time that the caller said.
    #[inline]
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.at_ns)
    }

    /// The units that would be admitted now, after this decision.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        match self.facts {
            Facts::Pace { ahead, interval, capacity, .. } => capacity.saturating_sub(ahead) / interval,
            Facts::Ticks { ahead, interval, .. } => {
                self.limit.saturating_mul(interval).saturating_sub(ahead) / interval
            }
            Facts::Batch { used, .. } => self.limit.saturating_sub(used),
            Facts::Blend { previous, current, left_ns, window_ns, ceil, .. } => {
                let product = u128::from(previous) * u128::from(left_ns);
                let window = u128::from(window_ns);
                let weighted = if ceil { product.div_ceil(window) } else { product / window };
                // The weighted count is at most `previous`, since `left_ns` is at most the window.
                self.limit.saturating_sub(current).saturating_sub(saturate(weighted))
            }
            Facts::Plain { remaining, .. } => remaining,
        }
    }

    /// The units that are owed after this decision, a part of one as a whole: what was charged and is not paid yet, debts beyond
    /// the burst included.
    pub(crate) fn owed(&self) -> u64 {
        match self.facts {
            Facts::Pace { ahead, interval, .. } | Facts::Ticks { ahead, interval, .. } => {
                ahead.div_ceil(interval)
            }
            Facts::Batch { used, .. } => used,
            Facts::Blend { previous, current, left_ns, window_ns, .. } => {
                let weighted = (u128::from(previous) * u128::from(left_ns)).div_ceil(u128::from(window_ns));
                current.saturating_add(saturate(weighted))
            }
            Facts::Plain { .. } => self.limit.saturating_sub(self.remaining()),
        }
    }

    /// The time as of which what is owed is owed: later than the decision's, if it was decided by a window that begins later.
    pub(crate) fn owed_as_of_ns(&self) -> u64 {
        let (to_end_ns, window_ns) = match self.facts {
            Facts::Batch { to_boundary_ns, period_ns, .. } => (to_boundary_ns, period_ns),
            Facts::Blend { to_end_ns, window_ns, .. } => (to_end_ns, window_ns),
            _ => (0, 0),
        };
        self.at_ns.saturating_add(to_end_ns.saturating_sub(window_ns))
    }

    /// How long until the same request could be admitted, if nothing else is until then.
    ///
    /// Zero if it was allowed, and `None` if it can never be admitted. Exact to the nanosecond: the request is
    /// admitted at that time and would be denied one nanosecond earlier.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Allowed => Some(Duration::ZERO),
            Outcome::Never => None,
            Outcome::Denied => Some(Duration::from_nanos(self.retry_ns())),
        }
    }

    #[cold]
    fn retry_ns(&self) -> u64 {
        match self.facts {
            Facts::Pace { ahead, interval, capacity, scale, queued } => {
                // Denied, so cost <= burst and this is at most the capacity.
                let wanted = interval.saturating_mul(self.cost);
                let full = ahead.saturating_sub(capacity.saturating_sub(wanted));
                in_queue(full, ahead, queued).div_ceil(u64::from(scale))
            }
            Facts::Ticks { ahead, interval, queued, .. } => {
                // Denied, so the cost fits the limit, or does not matter where there is only one.
                let free = self.limit.saturating_sub(self.cost.min(self.limit));
                self.ticks_ns(in_queue(ahead.saturating_sub(free.saturating_mul(interval)), ahead, queued))
            }
            Facts::Batch { used, batch, to_boundary_ns, period_ns, .. } => {
                let missing =
                    (u128::from(used) + u128::from(self.cost)).saturating_sub(u128::from(self.limit));
                boundaries(missing, batch, to_boundary_ns, period_ns)
            }
            Facts::Blend { previous, current, to_end_ns, window_ns, ceil, .. } => {
                let room = |used: u64| self.limit.saturating_sub(used).checked_sub(self.cost);
                // In this window, once the previous one weighs little enough; else in the next, where the
                // current one is the previous; else in the one after that, where nothing is left.
                if let Some(left) = room(current).and_then(|room| most_left(previous, room, window_ns, ceil))
                {
                    return to_end_ns.saturating_sub(left);
                }
                let left = room(0).and_then(|room| most_left(current, room, window_ns, ceil)).unwrap_or(0);
                to_end_ns.saturating_add(window_ns - left.min(window_ns))
            }
            Facts::Plain { retry_ns, .. } => retry_ns,
        }
    }

    /// A refusal of everything, for ever.
    pub(crate) const fn nothing(at_ns: u64) -> Self {
        let facts = Facts::Plain { remaining: 0, retry_ns: 0, reset_ns: 0, delay_ns: 0 };
        Self::new(Outcome::Never, 1, 0, at_ns, facts)
    }

    /// How long until one unit fits, if none does after this decision. Later, if the algorithm has only said when a greater cost
    /// fits.
    pub(crate) fn until_one_ns(&self) -> u64 {
        self.for_cost(1).retry_ns()
    }

    /// How long this window lasts, if units come back at its end, all or a batch of them at once.
    pub(crate) const fn window_left_ns(&self) -> Option<u64> {
        match self.facts {
            Facts::Batch { to_boundary_ns, .. } => Some(to_boundary_ns),
            _ => None,
        }
    }

    /// The sustained rate by which it was decided, if the algorithm says it, and it is not that of the quota.
    pub(crate) fn rate_unlike(&self, quota: &Quota) -> Option<SustainedRate> {
        let rate = match self.facts {
            Facts::Pace { interval, scale, .. } => {
                SustainedRate { units: scale.into(), ns: interval.into(), rounded_ns: 1 }
            }
            Facts::Ticks { interval, num, den, .. } => {
                SustainedRate { units: num, ns: u128::from(interval) * u128::from(den), rounded_ns: 0 }
            }
            // No more than fits comes back.
            Facts::Batch { batch, period_ns, .. } => {
                SustainedRate { units: batch.min(self.limit), ns: period_ns.into(), rounded_ns: 0 }
            }
            Facts::Blend { window_ns, .. } => {
                SustainedRate { units: self.limit, ns: window_ns.into(), rounded_ns: 0 }
            }
            // A log's, or sub-windows', of a lower limit: not a burst, nor one event at a time. The period is not known.
            Facts::Plain { .. } if self.limit > 1 && self.limit < quota.limit().min(quota.burst_size()) => {
                SustainedRate { units: self.limit, ns: quota.period_ns().into(), rounded_ns: 0 }
            }
            Facts::Plain { .. } => return None,
        };
        (rate.units > 0 && !rate.is_of(quota)).then_some(rate)
    }

    /// How long until the key is as good as new, if nothing is admitted until then.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_nanos(match self.facts {
            Facts::Pace { ahead, scale, .. } => ahead.div_ceil(u64::from(scale)),
            Facts::Ticks { ahead, .. } => self.ticks_ns(ahead),
            Facts::Batch { used, batch, to_boundary_ns, period_ns, .. } => {
                boundaries(u128::from(used), batch, to_boundary_ns, period_ns)
            }
            Facts::Blend { previous, current, to_end_ns, window_ns, .. } => {
                if current > 0 {
                    to_end_ns.saturating_add(window_ns)
                } else if previous > 0 {
                    to_end_ns
                } else {
                    0
                }
            }
            Facts::Plain { reset_ns, .. } => reset_ns,
        })
    }

    /// How long an admitted request has to wait before it goes: for the leaky bucket as a queue, and for a request
    /// that was let in ahead of its time ([`reserve`](crate::RateLimiter::reserve), or charged beyond what there was).
    /// Zero for every other, and for a request that was not admitted.
    #[must_use]
    pub fn delay(&self) -> Duration {
        if self.is_denied() {
            return Duration::ZERO;
        }
        Duration::from_nanos(match self.facts {
            Facts::Pace { ahead, interval, scale, queued: true, .. } => {
                let before = ahead.saturating_sub(interval.saturating_mul(self.charged()));
                before.div_ceil(u64::from(scale))
            }
            Facts::Pace { ahead, capacity, scale, .. } => {
                ahead.saturating_sub(capacity).div_ceil(u64::from(scale))
            }
            Facts::Ticks { ahead, interval, queued: true, .. } => {
                self.ticks_ns(ahead.saturating_sub(interval.saturating_mul(self.charged())))
            }
            Facts::Ticks { ahead, interval, .. } => {
                match ahead.checked_sub(interval.saturating_mul(self.limit)) {
                    None | Some(0) => 0,
                    Some(over) => self.ticks_ns(over),
                }
            }
            Facts::Batch { used, batch, to_boundary_ns, period_ns, .. } => {
                boundaries(u128::from(used.saturating_sub(self.limit)), batch, to_boundary_ns, period_ns)
            }
            Facts::Blend { .. } => 0,
            Facts::Plain { delay_ns, .. } => delay_ns,
        })
    }

    /// From the decision's time to the beginning of the tick that is `ticks` after the one it lies in, in nanoseconds.
    fn ticks_ns(&self, ticks: u64) -> u64 {
        match self.facts {
            Facts::Ticks { remainder, num, den, .. } => {
                let passed = u128::from(ticks) * u128::from(den);
                saturate(passed.saturating_sub(u128::from(remainder)).div_ceil(u128::from(num)))
            }
            _ => 0,
        }
    }

    /// The decision as a `Result`, for `?`.
    ///
    /// # Errors
    /// [`Denied`] holds the decision, if it was not allowed.
    pub const fn into_result(self) -> Result<Self, Denied> {
        if self.is_allowed() { Ok(self) } else { Err(Denied(self)) }
    }
}

const fn saturate(value: u128) -> u64 {
    if value > u64::MAX as u128 {
        u64::MAX
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "compared with the maximum just above")]
        let value = value as u64;
        value
    }
}

/// When there is room; if there is already, in a queue where the wait was too long, when there is no wait.
const fn in_queue(full: u64, ahead: u64, queued: bool) -> u64 {
    if queued && full == 0 { ahead } else { full }
}

/// The time until batches of `batch` units have given back `missing` of them.
fn boundaries(missing: u128, batch: u64, first_ns: u64, period_ns: u64) -> u64 {
    match missing.div_ceil(u128::from(batch)) {
        0 => 0,
        count => {
            saturate(u128::from(first_ns).saturating_add((count - 1).saturating_mul(u128::from(period_ns))))
        }
    }
}

/// The most time that may be left in a window for the weighted count of the one before it to be `room` or less;
/// `None` if the window must be over.
fn most_left(previous: u64, room: u64, window_ns: u64, ceil: bool) -> Option<u64> {
    if previous == 0 {
        return Some(window_ns);
    }
    // Rounded down: floor(p·left/W) <= room  <=>  p·left < (room + 1)·W.  Rounded up: p·left <= room·W.
    let (room, window) = (u128::from(room), u128::from(window_ns));
    let left = if ceil {
        room * window / u128::from(previous)
    } else {
        ((room + 1) * window).div_ceil(u128::from(previous)) - 1
    };
    // With none left the window is over, and this count no longer the previous one.
    (left > 0).then(|| saturate(left).min(window_ns))
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("outcome", &self.outcome)
            .field("cost", &self.cost)
            .field("limit", &self.limit)
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset_after", &self.reset_after())
            .finish()
    }
}

/// The error form of a decision that was not allowed; see [`Decision::into_result`].
///
/// # Examples
/// ```
/// use tollgate::{Decision, Denied, Quota, RateLimiter};
///
/// fn upload(limiter: &RateLimiter, user: &str, megabytes: u64) -> Result<Decision, Denied> {
///     limiter.check_n(user, megabytes).into_result()
/// }
///
/// let limiter = RateLimiter::new(Quota::per_hour(100));
/// assert!(upload(&limiter, "alice", 60).is_ok());
/// let denied = upload(&limiter, "alice", 101).unwrap_err();
/// assert!(denied.decision().is_never());
/// assert_eq!(denied.to_string(), "rate limited: 101 units can never go, at most 100 at once");
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Denied(Decision);

impl Denied {
    /// The decision itself.
    pub const fn decision(&self) -> Decision {
        self.0
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { cost, limit, .. } = self.0;
        match self.0.retry_after() {
            Some(wait) => write!(f, "rate limited: {cost} of at most {limit} units can go in {wait:?}"),
            None => write!(f, "rate limited: {cost} units can never go, at most {limit} at once"),
        }
    }
}

impl Error for Denied {}
