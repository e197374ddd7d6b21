//! The answer to a request under several limits.

use core::fmt;
use core::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::decision::{Decision, Outcome};

/// The answer to one request under several limits.
///
/// Its figures are the strictest of all limits'; [`JointDecision::each`] has every limit's own. `D` holds a [`Decision`] for each
/// limit: an array, or a `Vec`.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter, check_all};
///
/// let (minute, day) = (RateLimiter::new(Quota::per_minute(10)), RateLimiter::new(Quota::per_day(100)));
/// let decision = check_all((minute.on("alice").cost(4), day.on("alice")));
/// assert!(decision.is_allowed());
/// assert_eq!(decision.remaining(), 6); // the least
/// assert_eq!(decision.each()[1].remaining(), 99);
/// ```
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct JointDecision<D> {
    outcome: Outcome,
    each: D,
    /// The name of the limit that refused, if it has one.
    refused: &'static str,
}

impl<D: AsRef<[Decision]>> JointDecision<D> {
    pub(super) fn allowed(each: D) -> Self {
        Self { outcome: Outcome::Allowed, each, refused: "" }
    }

    /// The answer of these decisions. `names` has a name for each limit.
    #[inline(always)]
    pub(super) fn of(names: impl Iterator<Item = &'static str> + Clone, each: D) -> Self {
        Self::with_outcome(worst(each.as_ref().iter().map(Decision::outcome)), names, each)
    }

    /// [`JointDecision::of`], where the worst of the outcomes is known.
    #[inline(always)]
    pub(super) fn with_outcome(
        outcome: Outcome,
        mut names: impl Iterator<Item = &'static str> + Clone,
        each: D,
    ) -> Self {
        let mut refused = "";
        if names.clone().any(|name| !name.is_empty())
            && let Some(index) = refused_by(each.as_ref())
        {
            refused = names.nth(index).unwrap_or_default();
        }
        Self { outcome, each, refused }
    }

    /// Whether the request may go, and if not whether it ever can.
    #[inline]
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request may go; it has been charged to every limit.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed)
    }

    /// Whether the request must not go. It was charged to none (but see [`check_all`](crate::check_all) on lost races).
    #[inline]
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Whether some limit can never admit its cost.
    #[inline]
    #[must_use]
    pub const fn is_never(&self) -> bool {
        matches!(self.outcome, Outcome::Never)
    }

    /// Each limit's own answer, in the order that they were named: what it decided, or would have, of a request that another
    /// limit refused.
    #[inline]
    pub fn each(&self) -> &[Decision] {
        self.each.as_ref()
    }

    /// The limit that refused, by its place: of several the one that refuses for longest, the first of equals.
    #[must_use]
    pub fn refused_by(&self) -> Option<usize> {
        refused_by(self.each())
    }

    /// The [name](crate::BoundLimit::named) of the limit that refused, if it was given one.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter, check_all};
    ///
    /// let (hour, day) = (RateLimiter::new(Quota::per_hour(1)), RateLimiter::new(Quota::per_day(5)));
    /// let ask = || check_all((hour.on("alice").named("hourly"), day.on("alice").named("daily")));
    /// assert_eq!(ask().refused_by_name(), None);
    /// assert_eq!(ask().refused_by_name(), Some("hourly"));
    /// ```
    #[must_use]
    pub fn refused_by_name(&self) -> Option<&'static str> {
        (!self.refused.is_empty()).then_some(self.refused)
    }

    /// How long until the same request could be admitted, if nothing else is until then: the longest of all limits' waits.
    /// Zero if it was allowed, `None` if it can never be.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.each()
            .iter()
            .map(Decision::retry_after)
            .try_fold(Duration::ZERO, |most, wait| Some(most.max(wait?)))
    }

    /// The fewest units that any limit would admit now, after this decision; `u64::MAX` if there is no limit. Where limits count
    /// different things (requests, bytes), see [`JointDecision::each`].
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.each().iter().map(Decision::remaining).min().unwrap_or(u64::MAX)
    }

    /// The time as of which the request was decided; the origin, if there is no limit.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.each().first().map_or(Timestamp::ZERO, Decision::at)
    }

    /// How long until all limits are as good as new, if nothing is admitted until then.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.each().iter().map(Decision::reset_after).max().unwrap_or_default()
    }

    /// How long an admitted request has to wait before it goes: as long as the slowest of its limits says.
    #[must_use]
    pub fn delay(&self) -> Duration {
        if self.is_denied() {
            return Duration::ZERO;
        }
        self.each().iter().map(Decision::delay).max().unwrap_or_default()
    }
}

/// `Never` if any limit can never admit its cost: with the others a wait may help.
#[inline(always)]
pub(super) fn worst(outcomes: impl Iterator<Item = Outcome>) -> Outcome {
    outcomes.fold(Outcome::Allowed, |worst, outcome| match (worst, outcome) {
        (Outcome::Never, _) | (_, Outcome::Never) => Outcome::Never,
        (Outcome::Denied, _) | (_, Outcome::Denied) => Outcome::Denied,
        _ => Outcome::Allowed,
    })
}

/// See [`JointDecision::refused_by`].
fn refused_by(each: &[Decision]) -> Option<usize> {
    let wait = |decision: &Decision| decision.retry_after().unwrap_or(Duration::MAX);
    let refusals = each.iter().enumerate().filter(|(_, decision)| decision.is_denied());
    refusals.rev().max_by_key(|(_, decision)| wait(decision)).map(|(index, _)| index)
}

impl<D: AsRef<[Decision]>> fmt::Debug for JointDecision<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointDecision")
            .field("outcome", &self.outcome)
            .field("refused_by", &self.refused_by())
            .field("each", &self.each())
            .finish()
    }
}
