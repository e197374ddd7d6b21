//! The answer of a shared limiter.

use std::time::Duration;

use crate::base::decision::Decision;
use crate::edge::telemetry::Event;

/// A decision, and what made it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "the limiter does not stop the request; act on the answer"]
pub struct Answer {
    decision: Decision,
    by: DecidedBy,
    /// For leased units, the time at which they would have expired. Otherwise 0.
    until_ns: u64,
}

/// What decided a request.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The server decided this request.
    Server,
    /// This process decided with units that it holds: leased units, or its allowance until the next post.
    Held,
    /// No limit was checked. The server was unavailable, and [`OnFailure::Open`](crate::edge::redis::OnFailure::Open)
    /// admits every request.
    Open,
    /// No limit was checked. The server was unavailable, and
    /// [`OnFailure::Closed`](crate::edge::redis::OnFailure::Closed) denies every request.
    Closed,
    /// This process decided with its share of the limits. The server was unavailable, and the setting is
    /// [`OnFailure::Local`](crate::edge::redis::OnFailure::Local).
    Local,
}

impl DecidedBy {
    /// Returns whether the server was unavailable.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Open | Self::Closed | Self::Local)
    }

    /// Returns the event that [`Meters`](crate::edge::telemetry::Meters) record if the server was unavailable.
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

impl Answer {
    pub(crate) const fn new(decision: Decision, by: DecidedBy) -> Self {
        Self { decision, by, until_ns: 0 }
    }

    /// An answer whose units are leased until `until_ns`.
    pub(crate) const fn leased(decision: Decision, by: DecidedBy, until_ns: u64) -> Self {
        Self { decision, by, until_ns }
    }

    /// The time until which the units are leased, or 0 if they are not leased.
    pub(crate) const fn leased_until_ns(&self) -> u64 {
        self.until_ns
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

impl From<Answer> for Decision {
    fn from(answer: Answer) -> Self {
        answer.decision
    }
}
