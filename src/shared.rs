//! The decision of a limit that machines share, and what made it.

use std::time::Duration;

use crate::base::decision::Decision;
use crate::telemetry::Event;

/// A decision of a limit that machines share, and what made it.
///
/// # Examples
/// ```
/// use tollgate::{DecidedBy, Quota, RateLimiter, SharedDecision};
///
/// let limiter = RateLimiter::new(Quota::per_hour(10));
/// let decided = SharedDecision::new(limiter.check("alice"), DecidedBy::Server);
/// assert!(decided.is_allowed() && !decided.by().is_failure());
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "the limiter does not stop the request; act on the answer"]
pub struct SharedDecision {
    decision: Decision,
    by: DecidedBy,
    mark: u64,
}

/// What decided a request.
///
/// # Examples
/// ```
/// use tollgate::DecidedBy;
///
/// assert!(DecidedBy::Open.is_failure()); // the server did not answer, and the policy admits
/// assert!(!DecidedBy::Held.is_failure());
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The server decided this request.
    Server,
    /// This process decided with units that it holds: leased units, or its allowance until the next post.
    Held,
    /// No limit was checked. The server was unavailable, and the policy for that, `open`, admits every request.
    Open,
    /// No limit was checked. The server was unavailable, and the policy for that, `closed`, denies every request.
    Closed,
    /// This process decided with its share of the limits. The server was unavailable, and the policy for that is `local`.
    Local,
}

impl DecidedBy {
    /// Returns whether the server was unavailable.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Open | Self::Closed | Self::Local)
    }

    /// Returns the event that [`Meters`](crate::telemetry::Meters) record if the server was unavailable.
    /// Otherwise returns `None`, and the event depends on the decision.
    #[must_use]
    pub const fn event(self) -> Option<Event> {
        match self {
            Self::Open => Some(Event::ErrorOpen),
            Self::Closed => Some(Event::ErrorClosed),
            Self::Local => Some(Event::ErrorLocal),
            Self::Server | Self::Held => None,
        }
    }
}

impl SharedDecision {
    /// Creates a decision with the mark 0.
    pub const fn new(decision: Decision, by: DecidedBy) -> Self {
        Self { decision, by, mark: 0 }
    }

    /// Returns this decision with a mark: a number of the store, which a refund of the decision gives back to it.
    pub const fn with_mark(self, mark: u64) -> Self {
        Self { mark, ..self }
    }

    /// Returns the mark. In the mode `lease`, it is the time at which the units expire.
    #[must_use]
    pub const fn mark(&self) -> u64 {
        self.mark
    }

    /// Returns the decision. For [`DecidedBy::Open`] and [`DecidedBy::Closed`] the remaining units are unknown, and the
    /// decision reports 0.
    #[must_use]
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns what made the decision.
    #[must_use]
    pub const fn by(&self) -> DecidedBy {
        self.by
    }

    /// Returns [`Decision::is_allowed`].
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// Returns [`Decision::is_denied`].
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        self.decision.is_denied()
    }

    /// Returns [`Decision::retry_after`].
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision.retry_after()
    }
}

impl From<SharedDecision> for Decision {
    fn from(shared: SharedDecision) -> Self {
        shared.decision
    }
}
