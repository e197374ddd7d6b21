//! The result of one check: a small value that computes each figure only when the caller asks for it.

use core::error::Error;
use core::fmt;
use core::time::Duration;

use crate::base::clock::{Timestamp, saturating_nanos};
use crate::base::waits::{boundaries, in_queue, most_left, saturate};

/// The outcome of a check: allowed, denied for now, or never possible.
///
/// # Examples
/// ```
/// use tollgate::{Outcome, Quota, RateLimiter};
///
/// let limiter = RateLimiter::new(Quota::per_hour(10));
/// let status = |cost| match limiter.check_n("alice", cost).outcome() {
///     Outcome::Allowed => 200,
///     Outcome::Denied => 429, // retry later
///     Outcome::Never => 413,  // the request is too large
/// };
/// assert_eq!([7, 7, 11].map(status), [200, 429, 413]);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The request is admitted, and its cost was charged.
    Allowed,
    /// The request is denied now; nothing was charged. [`Decision::retry_after`] returns the time until the request
    /// could be admitted.
    Denied,
    /// The cost is above the burst (above the limit, for window algorithms), so the request can never be admitted.
    /// Nothing was charged.
    Never,
}

/// The result of one check.
///
/// A decision holds only the few integers that the check produced, so it costs nothing beyond the check. Each method
/// computes its figure when the caller calls it.
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
    /// The generation of the quota that was in force, for a limiter whose quotas change.
    generation: u32,
    cost: u64,
    limit: u64,
    /// The time at which the request was decided, in nanoseconds since the clock's origin.
    at_ns: u64,
    facts: Facts,
}

/// Two decisions are equal if their outcome, cost, limit and figures are equal: what the methods return, because each
/// store keeps the figures in units of its own. The comparison ignores the time, the quota's generation, and whether a
/// refund can take the charge back.
impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        let requests = |it: &Self| (it.outcome, it.cost, it.limit, it.is_block());
        let figures = |it: &Self| (it.remaining(), it.retry_after(), it.reset_after(), it.delay());
        requests(self) == requests(other) && figures(self) == figures(other)
    }
}

impl Eq for Decision {}

/// The charge of an admitted request that a refund can take back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Charge {
    /// The cost was charged after a check for room.
    Made,
    /// The cost was charged without a check for room.
    Forced,
    /// Nothing was charged: the call was a peek, or the request was admitted without being counted.
    None,
    /// Nothing was charged, and the key is in a block. The ticks of a compact state have no other mark.
    NoneInBlock,
}

/// The figures that an algorithm hands to [`Decision`]'s methods. All describe the state *after* the decision: with the
/// charge if the request was admitted, without the charge if not.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant describes its fields")]
pub enum Facts {
    /// `ahead`: how far the theoretical arrival time is ahead of now, in ticks of `1 / scale` ns. `queued`: each unit
    /// waits for the units before it. `mark`: the mark of the word's blocks, 0 without blocks; see
    /// [`Blocked`](crate::Blocked).
    Pace { ahead: u64, interval: u64, capacity: u64, scale: u32, queued: bool, mark: u8 },
    /// The same as `Pace`, in ticks of `den / num` ns. At the time of the decision, `remainder / den` of the current
    /// tick had passed. A full burst is `limit` intervals.
    Ticks { ahead: u64, interval: u64, remainder: u64, num: u64, den: u64, queued: bool },
    /// `used` units are in use. They return `batch` at a time: first after `to_boundary_ns`, then every `period_ns`.
    /// `raised`: the units that this decision marked as used in addition to its cost, because they would have
    /// overflowed the bucket before the request's turn.
    Batch { used: u64, raised: u64, batch: u64, to_boundary_ns: u64, period_ns: u64 },
    /// The counts of two windows. The previous count has the weight `left_ns / window_ns`; the product is rounded up if
    /// `ceil`. The current window ends in `to_end_ns`. `to_end_ns` is more than `left_ns` if the clock stepped back to
    /// a time before the window.
    Blend { previous: u64, current: u64, left_ns: u64, to_end_ns: u64, window_ns: u64, ceil: bool },
    /// Figures that are already computed. If the request was not denied, `retry_ns` is the time until one unit fits, or
    /// 0 if a unit fits now.
    Plain { remaining: u64, retry_ns: u64, reset_ns: u64, delay_ns: u64 },
}

impl Decision {
    /// Creates a decision that something else than a limiter of this crate has made, for example a database. An allowed
    /// request was charged its cost. The figures are 0 until [`with_figures`](Self::with_figures) sets them.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Decision, Outcome, Timestamp};
    ///
    /// let now = Timestamp::from_secs(1_700_000_000);
    /// let minute = Duration::from_secs(60);
    /// let denied = Decision::made_elsewhere(Outcome::Denied, 3, 100, now).with_figures(2, minute, minute);
    /// assert_eq!((denied.remaining(), denied.retry_after()), (2, Some(minute)));
    /// assert_eq!((denied.cost(), denied.charged()), (3, 0));
    /// ```
    #[must_use]
    pub const fn made_elsewhere(outcome: Outcome, cost: u64, limit: u64, at: Timestamp) -> Self {
        let facts = Facts::Plain { remaining: 0, retry_ns: 0, reset_ns: 0, delay_ns: 0 };
        Self::new(outcome, cost, limit, at.as_nanos(), facts)
    }

    /// Returns this decision with other figures: the units that are left, the wait of a denied request (for an allowed one,
    /// the time until one unit is left), and the time until all units are left.
    #[must_use]
    pub const fn with_figures(self, remaining: u64, retry_after: Duration, reset_after: Duration) -> Self {
        let (retry_ns, reset_ns) = (saturating_nanos(retry_after), saturating_nanos(reset_after));
        Self { facts: Facts::Plain { remaining, retry_ns, reset_ns, delay_ns: 0 }, ..self }
    }

    /// Creates a decision that charged its cost, if it admitted.
    #[doc(hidden)]
    pub const fn new(outcome: Outcome, cost: u64, limit: u64, at_ns: u64, facts: Facts) -> Self {
        Self { outcome, charge: Charge::Made, generation: 0, cost, limit, at_ns, facts }
    }

    /// Returns this decision, marked with the generation of the limiter's quota.
    pub(crate) const fn of_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns this decision for a request of another cost.
    #[doc(hidden)]
    pub const fn for_cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Returns this decision of a call whose cost is what it charged. A denial charged nothing.
    pub(crate) const fn with_charged_cost(self) -> Self {
        if self.is_denied() { self.for_cost(0) } else { self }
    }

    /// Returns the cost of a denied request, or the one unit that a denied [`take`](crate::RateLimiter::take) waits for.
    const fn wanted(&self) -> u64 {
        if self.cost == 0 { 1 } else { self.cost }
    }

    /// Returns this decision, marked as charged without a check for room.
    #[doc(hidden)]
    pub const fn forced(self) -> Self {
        Self { charge: Charge::Forced, ..self }
    }

    /// Returns this decision, marked as not charged.
    #[doc(hidden)]
    pub const fn uncharged(self) -> Self {
        Self { charge: Charge::None, ..self }
    }

    /// Returns this decision, marked as not charged, for a key in a block.
    pub(crate) const fn in_block(self) -> Self {
        Self { charge: Charge::NoneInBlock, ..self }
    }

    /// Returns this decision with the mark of the word's blocks.
    pub(crate) const fn with_mark(mut self, of_word: u8) -> Self {
        if let Facts::Pace { mark, .. } = &mut self.facts {
            *mark = of_word;
        }
        self
    }

    /// Returns the mark of the word's blocks.
    pub(crate) const fn mark(&self) -> u8 {
        match self.facts {
            Facts::Pace { mark, .. } => mark,
            _ => matches!(self.charge, Charge::NoneInBlock) as u8,
        }
    }

    /// Returns the nanoseconds until the key's block ends, or 0 if it is in none. At the end of a block, one unit is
    /// free.
    pub(crate) const fn block_ns(&self) -> u64 {
        match self.facts {
            // Of an even mark, the block has ended.
            Facts::Pace { ahead, interval, capacity, scale, mark, .. } if mark % 2 == 1 => {
                ahead.saturating_sub(capacity.saturating_sub(interval)).div_ceil(scale as u64)
            }
            Facts::Ticks { ahead, interval, .. } if matches!(self.charge, Charge::NoneInBlock) => {
                self.ticks_ns(ahead.saturating_sub(interval.saturating_mul(self.limit.saturating_sub(1))))
            }
            _ => 0,
        }
    }

    /// Returns whether the turns of later requests depend on this request's turn.
    pub(crate) fn has_turn(&self) -> bool {
        self.is_queued() || (matches!(self.charge, Charge::Made) && self.delay() > Duration::ZERO)
    }

    const fn is_queued(&self) -> bool {
        matches!(self.facts, Facts::Pace { queued: true, .. } | Facts::Ticks { queued: true, .. })
    }

    pub(crate) const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the time of the decision, in nanoseconds since the clock's origin.
    #[doc(hidden)]
    pub const fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// Returns this outcome with the figures of a decision that charged nothing.
    pub(crate) const fn with_figures_of(self, uncharged: Self) -> Self {
        self.with_facts_of(uncharged).uncharged()
    }

    /// Returns this decision with the figures of another one.
    pub(crate) const fn with_facts_of(self, other: Self) -> Self {
        Self { facts: other.facts, ..self }
    }

    /// Returns whether the request is allowed, denied for now, or never possible.
    #[inline]
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns `true` if the request is admitted; its cost was charged.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed)
    }

    /// Returns `true` if the request is not admitted: denied for now, or never possible. Nothing was charged.
    #[inline]
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Returns `true` if the cost is more than the limiter can ever admit at once.
    #[inline]
    #[must_use]
    pub const fn is_never(&self) -> bool {
        matches!(self.outcome, Outcome::Never)
    }

    /// Returns `true` if the request is denied because an earlier denial, or this one, blocked its key: see
    /// [`Blocked`](crate::Blocked). [`Decision::retry_after`] then returns the time until the block has ended and the
    /// cost fits. For one unit, that is the end of the block.
    ///
    /// It is `false` for an admitted request, and for every limiter without blocks.
    #[must_use]
    pub const fn is_block(&self) -> bool {
        matches!(self.outcome, Outcome::Denied) && self.block_ns() > 0
    }

    /// Returns the units that the request was decided for: what the caller asked for. For
    /// [`take`](crate::RateLimiter::take) and [`charge_unchecked`](crate::RateLimiter::charge_unchecked), it is what they
    /// charged, which is 0 after a denial.
    #[inline]
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the units that were charged: 0 for a denied request, a peek, and a request that was admitted without being
    /// counted.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(3));
    /// let taken: u64 = (0..10).map(|_| limiter.take("alice", 2).charged()).sum();
    /// assert_eq!(taken, 3);
    /// let denied = limiter.check_n("alice", 2);
    /// assert_eq!((denied.cost(), denied.charged()), (2, 0));
    /// ```
    #[must_use]
    pub const fn charged(&self) -> u64 {
        match (self.outcome, self.charge) {
            (Outcome::Allowed, Charge::Made | Charge::Forced) => self.cost,
            _ => 0,
        }
    }

    /// Returns the most units that the limiter can ever admit at once: the burst, or the limit for window algorithms.
    #[inline]
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the time at which the request was decided: the clock reading, or the time that the caller gave.
    #[inline]
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.at_ns)
    }

    /// Returns the units that the limiter would admit now, after this decision.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> u64 {
        match self.facts {
            Facts::Pace { ahead, interval, capacity, .. } => capacity.saturating_sub(ahead) / interval,
            Facts::Ticks { ahead, interval, .. } => {
                self.limit.saturating_mul(interval).saturating_sub(ahead) / interval
            }
            Facts::Batch { used, .. } => self.limit.saturating_sub(used),
            Facts::Blend { previous, current, left_ns, window_ns, ceil, .. } => {
                let weighted = weighted(previous, (left_ns, window_ns), ceil);
                self.limit.saturating_sub(current).saturating_sub(weighted)
            }
            Facts::Plain { remaining, .. } => remaining,
        }
    }

    /// Returns the key's debt after this decision, in units rounded up. The debt can exceed the burst.
    #[doc(hidden)]
    pub fn owed(&self) -> u64 {
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

    /// Returns whether debts beyond the burst are paid at the rate. Windows drop them at their ends.
    pub(crate) const fn keeps_debts(&self) -> bool {
        !matches!(
            self.facts,
            Facts::Batch { batch: u64::MAX, .. } | Facts::Blend { .. } | Facts::Plain { .. }
        )
    }

    /// Returns the time from which the debt counts. It is later than the decision's time if the window that decided
    /// begins later.
    pub(crate) fn owed_as_of_ns(&self) -> u64 {
        let (to_end_ns, window_ns) = match self.facts {
            Facts::Batch { to_boundary_ns, period_ns, .. } => (to_boundary_ns, period_ns),
            Facts::Blend { to_end_ns, window_ns, .. } => (to_end_ns, window_ns),
            _ => (0, 0),
        };
        self.at_ns.saturating_add(to_end_ns.saturating_sub(window_ns))
    }

    /// Returns this decision of a fixed window as a caller sees it whose time is earlier by `ns`: for a late caller, the
    /// window that decided ends later.
    pub(crate) const fn seen_earlier(mut self, ns: u64) -> Self {
        if let Facts::Batch { to_boundary_ns, .. } = &mut self.facts {
            *to_boundary_ns = to_boundary_ns.saturating_add(ns);
            self.at_ns = self.at_ns.saturating_sub(ns);
        }
        self
    }

    /// Returns the time until the same request could be admitted, if the limiter admits nothing in the meantime.
    ///
    /// The result is `None` if the request can never be admitted, and zero, not `None`, if it was allowed. So the waits of
    /// several limits can be compared, and [`is_allowed`](Decision::is_allowed) alone tells whether to go on. The time is exact to
    /// the nanosecond: the request is admitted at that time, and would be denied one nanosecond earlier.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_hour(2));
    /// assert_eq!(limiter.check_n("alice", 2).retry_after(), Some(Duration::ZERO)); // allowed
    /// assert!(limiter.check("alice").retry_after() > Some(Duration::from_secs(1_790)));
    /// assert_eq!(limiter.check_n("alice", 3).retry_after(), None); // never
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Allowed => Some(Duration::ZERO),
            Outcome::Never => None,
            Outcome::Denied => Some(Duration::from_nanos(self.retry_ns())),
        }
    }

    /// Returns the nanoseconds until the same request would be admitted. `u64::MAX` if it never is.
    #[cold]
    #[doc(hidden)]
    pub fn retry_ns(&self) -> u64 {
        match self.facts {
            Facts::Pace { ahead, interval, capacity, scale, queued, .. } => {
                // Denied, so cost <= burst and the difference is at most the capacity.
                let wanted = interval.saturating_mul(self.wanted());
                let full = ahead.saturating_sub(capacity.saturating_sub(wanted));
                in_queue(full, ahead, queued).div_ceil(u64::from(scale))
            }
            Facts::Ticks { ahead, interval, queued, .. } => {
                // Denied, so the cost is at most the limit, or it does not matter: minimum spacing admits any cost.
                let free = self.limit.saturating_sub(self.wanted().min(self.limit));
                self.ticks_ns(in_queue(ahead.saturating_sub(free.saturating_mul(interval)), ahead, queued))
            }
            Facts::Batch { used, batch, to_boundary_ns, period_ns, .. } => {
                // A cost above the limit waits until nothing is owed.
                let wanted = u128::from(self.wanted().min(self.limit));
                let missing = (u128::from(used) + wanted).saturating_sub(u128::from(self.limit));
                boundaries(missing, batch, to_boundary_ns, period_ns)
            }
            Facts::Blend { previous, current, to_end_ns, window_ns, ceil, .. } => {
                let room = |used: u64| self.limit.saturating_sub(used).checked_sub(self.wanted());
                // In the current window, the request fits once the previous window's weight is small enough. In the
                // next window, the current count becomes the previous one. In the window after that, both counts are
                // gone.
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

    /// Returns the time until the key's full quota is available again, if the limiter admits nothing in the meantime.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_nanos(self.reset_ns())
    }

    /// [`Decision::reset_after`] in nanoseconds.
    #[inline]
    #[doc(hidden)]
    pub fn reset_ns(&self) -> u64 {
        match self.facts {
            // A division takes longer than the branch. A new key in a full keyed store compares six of these times.
            Facts::Pace { ahead, scale: 1, .. } => ahead,
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
        }
    }

    /// Returns how long an admitted request must wait before it proceeds. The delay is above zero only for the leaky
    /// bucket as a queue, and for a request that was admitted ahead of its time: by
    /// [`reserve`](crate::RateLimiter::reserve), or by a charge beyond the free units. It is zero for every other
    /// request, and for a request that was not admitted. A cost of 0 waits only in a queue.
    #[must_use]
    pub fn delay(&self) -> Duration {
        // The figures of a server have the delay that its queue decided.
        let may_wait = self.cost > 0 || self.is_queued() || matches!(self.facts, Facts::Plain { .. });
        if self.is_denied() || !may_wait {
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

    /// Returns the nanoseconds from the decision's time to the start of the tick that is `ticks` after the current
    /// tick.
    const fn ticks_ns(&self, ticks: u64) -> u64 {
        match self.facts {
            Facts::Ticks { remainder, num, den, .. } => {
                let passed = ticks as u128 * den as u128;
                saturate(passed.saturating_sub(remainder as u128).div_ceil(num as u128))
            }
            _ => 0,
        }
    }

    /// Converts the decision to a `Result`, for use with `?`.
    ///
    /// # Errors
    /// [`Denied`] holds the decision, if the request was not allowed.
    pub const fn into_result(self) -> Result<Self, Denied> {
        if self.is_allowed() { Ok(self) } else { Err(Denied(self)) }
    }
}

impl Decision {
    /// Returns the decision that charged `units` to a key whose request was denied.
    #[doc(hidden)]
    pub const fn as_charge_of(self, units: u64) -> Self {
        Self { outcome: Outcome::Allowed, charge: Charge::Made, cost: units, ..self }
    }

    /// Returns this decision after a refund of its charge: the refunded units are available again.
    #[doc(hidden)]
    pub fn refunded(self) -> Self {
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

    /// Returns this decision for a limit that is `spare` units below the store's limit.
    ///
    /// If the request is denied, `self` must be the store's decision for the cost plus `spare` units. `next` returns
    /// the store's decision for one unit plus `spare` units. It is called only if no unit fits under the lower limit,
    /// because the store's own figures contain only the time at which one unit fits.
    #[doc(hidden)]
    pub fn for_lower_limit(
        self,
        outcome: Outcome,
        cost: u64,
        spare: u64,
        next: impl FnOnce() -> Self,
    ) -> Self {
        let limit = self.limit.saturating_sub(spare);
        let facts = match self.facts {
            Facts::Pace { ahead, interval, capacity, scale, queued, mark } => {
                let capacity = capacity.saturating_sub(interval.saturating_mul(spare));
                Facts::Pace { ahead, interval, capacity, scale, queued, mark }
            }
            Facts::Plain { remaining: u64::MAX, .. } if self.limit == u64::MAX => return self.for_cost(cost),
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

    /// Returns this decision of a fixed window as if its counter also held the `others` units of another counter.
    #[doc(hidden)]
    pub fn with_other_units(self, others: u64) -> Self {
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
}

/// Returns the weighted count of a previous window, which is at most `previous`, since `left_ns` is at most the window. Not inlined,
/// because other figures would save the registers that a division of 128 bits needs.
#[inline(never)]
fn weighted(previous: u64, (left_ns, window_ns): (u64, u64), ceil: bool) -> u64 {
    let (product, window) = (u128::from(previous) * u128::from(left_ns), u128::from(window_ns));
    saturate(if ceil { product.div_ceil(window) } else { product / window })
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

/// The error form of a decision that did not allow the request; see [`Decision::into_result`].
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
/// assert_eq!(denied.to_string(), "rate limited: 101 units exceed the limit of 100 at once");
/// ```
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Denied(Decision);

impl Denied {
    /// Creates the error from a decision that denies.
    #[allow(dead_code, reason = "only `std` parts use it")]
    pub(crate) const fn of(decision: Decision) -> Self {
        Self(decision)
    }

    /// Returns the decision.
    pub const fn decision(&self) -> Decision {
        self.0
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cost, limit) = (self.0.wanted(), self.0.limit);
        match self.0.retry_after() {
            Some(wait) => write!(f, "rate limited: retry in {wait:?} (cost {cost}, limit {limit})"),
            None => write!(f, "rate limited: {cost} units exceed the limit of {limit} at once"),
        }
    }
}

crate::base::debug_shows_message!(Denied);

impl Error for Denied {}
