//! The error of a wait.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::base::decision::Decision;

/// The error of a wait that did not end in an admission. Nothing was charged.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::new(Quota::per_hour(10).burst(1));
/// limiter.wait("alice").block()?;
/// let error = limiter.wait("alice").within(Duration::from_secs(1)).block().unwrap_err();
/// assert!(error.is_too_late()); // at once: the next turn is in six minutes
/// assert!(error.retry_after() > Some(Duration::from_secs(359)));
/// let error = limiter.wait_n("alice", 2).block().unwrap_err();
/// assert!(error.is_never());
/// # Ok::<(), tollgate::waiting::NotReady>(())
/// ```
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct NotReady {
    decision: Decision,
    turn_ns: u64,
}

impl NotReady {
    /// Creates the error of a wait whose turn would come `turn_ns` after the decision's time.
    pub(super) const fn new(decision: Decision, turn_ns: u64) -> Self {
        Self { decision, turn_ns }
    }

    /// Returns whether the cost is more than the limiter can ever admit at once.
    #[must_use]
    pub const fn is_never(&self) -> bool {
        self.decision.is_never()
    }

    /// Returns whether the turn would have come after the deadline.
    #[must_use]
    pub const fn is_too_late(&self) -> bool {
        !self.is_never()
    }

    /// Returns the last decision before the wait failed. It is not a denial if capacity was free but other waiters
    /// were in line for it.
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns how long after [`NotReady::decision`]'s time the turn would have come, or `None` if never.
    ///
    /// The true turn may be later: the figure leaves out waiters in line if the algorithm cannot predict their turns.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        (!self.is_never()).then_some(Duration::from_nanos(self.turn_ns))
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cost, limit) = (self.decision.cost(), self.decision.limit());
        match self.retry_after() {
            Some(turn) => {
                write!(f, "not ready in time: the turn would come in {turn:?} or later (cost {cost})")
            }
            None => write!(f, "never ready: {cost} units exceed the limit of {limit} at once"),
        }
    }
}

crate::base::debug_shows_message!(NotReady);

impl Error for NotReady {}
