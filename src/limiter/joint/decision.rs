//! The answer to a request under several limits.

use core::fmt;
use core::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::decision::{Decision, Outcome};

/// The answer to one request under several limits.
///
/// Its figures are the strictest figures of all limits. [`JointDecision::each`] returns each limit's own figures. `D`
/// holds a [`Decision`] for each limit: an array, or a `Vec`.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter, check_all};
///
/// let (minute, day) = (RateLimiter::new(Quota::per_minute(10)), RateLimiter::new(Quota::per_day(100)));
/// let decision = check_all((minute.on("alice").cost(4), day.on("alice")));
/// assert!(decision.is_allowed());
/// assert_eq!(decision.remaining(), 6); // the lowest of both limits
/// assert_eq!(decision.each()[1].remaining(), 99);
/// ```
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct JointDecision<D> {
    outcome: Outcome,
    each: D,
    /// The name of the limit that denied, if it has one.
    refused: &'static str,
}

impl<D: AsRef<[Decision]>> JointDecision<D> {
    pub(super) fn allowed(each: D) -> Self {
        Self { outcome: Outcome::Allowed, each, refused: "" }
    }

    /// Builds the answer from these decisions. `names` has a name for each limit.
    #[inline(always)]
    pub(super) fn of(names: impl Iterator<Item = &'static str> + Clone, each: D) -> Self {
        Self::with_outcome(worst(each.as_ref().iter().map(Decision::outcome)), names, each)
    }

    /// [`JointDecision::of`], with a known worst outcome.
    #[inline(always)]
    pub(super) fn with_outcome(
        outcome: Outcome,
        mut names: impl Iterator<Item = &'static str> + Clone,
        each: D,
    ) -> Self {
        let mut refused = "";
        if names.clone().any(|name| !name.is_empty())
            && let Some(index) = denied_by(each.as_ref())
        {
            refused = names.nth(index).unwrap_or_default();
        }
        Self { outcome, each, refused }
    }

    /// Returns whether the request may go, and if not, whether it ever can.
    #[inline]
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns whether the request may go. It is then charged to every limit.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed)
    }

    /// Returns whether the request must not go. No limit is then charged; see [`check_all`](crate::check_all) for lost
    /// races.
    #[inline]
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Returns whether at least one limit can never admit its cost.
    #[inline]
    #[must_use]
    pub const fn is_never(&self) -> bool {
        matches!(self.outcome, Outcome::Never)
    }

    /// Returns each limit's own decision, in the order of the limits. If another limit denied the request, these are
    /// the decisions that each limit would have made.
    #[inline]
    pub fn each(&self) -> &[Decision] {
        self.each.as_ref()
    }

    /// Returns the index of the limit that denied. If several limits denied, returns the one with the longest wait,
    /// and the first one of equal waits.
    #[must_use]
    pub fn denied_by(&self) -> Option<usize> {
        denied_by(self.each())
    }

    /// Returns the [name](crate::joint::BoundLimit::named) of the limit that denied, if it has one.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter, check_all};
    ///
    /// let (hour, day) = (RateLimiter::new(Quota::per_hour(1)), RateLimiter::new(Quota::per_day(5)));
    /// let ask = || check_all((hour.on("alice").named("hourly"), day.on("alice").named("daily")));
    /// assert_eq!(ask().denied_by_name(), None);
    /// assert_eq!(ask().denied_by_name(), Some("hourly"));
    /// ```
    #[must_use]
    pub fn denied_by_name(&self) -> Option<&'static str> {
        (!self.refused.is_empty()).then_some(self.refused)
    }

    /// Returns how long until the same request could be admitted, if no other request is admitted until then: the
    /// longest wait of all limits. Zero if the request was admitted, `None` if it never can be.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.each()
            .iter()
            .map(Decision::retry_after)
            .try_fold(Duration::ZERO, |most, wait| Some(most.max(wait?)))
    }

    /// Returns the fewest units that any limit would admit now, after this decision; `u64::MAX` if there is no limit.
    /// If the limits count different things (requests, bytes), use [`JointDecision::each`].
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.each().iter().map(Decision::remaining).min().unwrap_or(u64::MAX)
    }

    /// Returns the time of the decision, or the origin if there is no limit.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.each().first().map_or(Timestamp::ZERO, Decision::at)
    }

    /// Returns how long until the full quota of all limits is available again, if no request is admitted until then.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.each().iter().map(Decision::reset_after).max().unwrap_or_default()
    }

    /// Returns how long an admitted request must wait before it goes: the longest delay of its limits.
    #[must_use]
    pub fn delay(&self) -> Duration {
        if self.is_denied() {
            return Duration::ZERO;
        }
        self.each().iter().map(Decision::delay).max().unwrap_or_default()
    }
}

/// Returns the worst of the outcomes: `Never`, then `Denied`, then `Allowed`. `Never` comes first because no wait
/// helps.
#[inline(always)]
pub(super) fn worst(outcomes: impl Iterator<Item = Outcome>) -> Outcome {
    outcomes.fold(Outcome::Allowed, |worst, outcome| match (worst, outcome) {
        (Outcome::Never, _) | (_, Outcome::Never) => Outcome::Never,
        (Outcome::Denied, _) | (_, Outcome::Denied) => Outcome::Denied,
        _ => Outcome::Allowed,
    })
}

/// See [`JointDecision::denied_by`].
fn denied_by(each: &[Decision]) -> Option<usize> {
    let wait = |decision: &Decision| decision.retry_after().unwrap_or(Duration::MAX);
    let refusals = each.iter().enumerate().filter(|(_, decision)| decision.is_denied());
    refusals.rev().max_by_key(|(_, decision)| wait(decision)).map(|(index, _)| index)
}

impl<D: AsRef<[Decision]>> fmt::Debug for JointDecision<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointDecision")
            .field("outcome", &self.outcome)
            .field("denied_by", &self.denied_by())
            .field("each", &self.each())
            .finish()
    }
}
