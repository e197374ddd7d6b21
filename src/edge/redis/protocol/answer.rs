//! What a shared limiter answers.

use std::time::Duration;

use crate::base::decision::Decision;
use crate::edge::telemetry::Event;

/// A decision, and who made it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "an answer that nobody reads limits nothing"]
pub struct Answer {
    decision: Decision,
    by: DecidedBy,
    /// Of units of a lease: when they would have expired. Else 0.
    until_ns: u64,
}

/// Who decided.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The server, for this request.
    Server,
    /// This process, by units that it holds: leased before, or its part until it posts what it let through.
    Held,
    /// Nobody: the server could not be asked, and [`OnFailure::Open`](crate::edge::redis::OnFailure::Open) lets everything through.
    Open,
    /// Nobody: the server could not be asked, and [`OnFailure::Closed`](crate::edge::redis::OnFailure::Closed) lets nothing through.
    Closed,
    /// This process, by its share: the server could not be asked, and so says [`OnFailure::Local`](crate::edge::redis::OnFailure::Local).
    Local,
}

impl DecidedBy {
    /// Whether the server could not be asked.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Open | Self::Closed | Self::Local)
    }

    /// What [`Meters`](crate::edge::telemetry::Meters) record of it, if the server could not be asked; else it is for the decision to say.
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

    /// Of units that were leased until a time.
    pub(crate) const fn leased(decision: Decision, by: DecidedBy, until_ns: u64) -> Self {
        Self { decision, by, until_ns }
    }

    /// Until when the units were leased; 0 if they were not.
    pub(crate) const fn leased_until_ns(&self) -> u64 {
        self.until_ns
    }

    /// The decision. If nobody decided ([`DecidedBy::Open`], [`DecidedBy::Closed`]), what remains is not known, and said to be nothing.
    #[must_use]
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Who made it.
    #[must_use]
    pub const fn by(&self) -> DecidedBy {
        self.by
    }

    /// As [`Decision::is_allowed`].
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// As [`Decision::is_denied`].
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        self.decision.is_denied()
    }

    /// As [`Decision::retry_after`].
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
