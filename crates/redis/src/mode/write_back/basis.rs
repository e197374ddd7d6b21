//! The result of a check in this process, and what it rests on.

use tollgate::Decision;

/// The result of a check.

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct WriteBackCheck {
    /// The decision.
    pub decision: Decision,
    /// What it rests on.
    pub basis: Basis,
}

/// What a decision rests on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Basis {
    /// The decision is final.
    Held,
    /// Denied for now: an answer that is in flight or queued may allow the request.
    Asked,
    /// Admitted by this process's share, because the server is unavailable.
    Alone,
    /// Denied, because the server is unavailable.
    Failing,
    /// Denied, because the table has no room for another key.
    Full,
}
