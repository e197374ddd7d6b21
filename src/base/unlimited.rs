//! The decision of a limit that admits everything.

use crate::base::decision::{Decision, Facts, Outcome};

impl Decision {
    /// Returns the admission of a limit that admits everything. Its cost is 0 until [`for_cost`](Self::for_cost) sets it.
    pub(crate) const fn unlimited(at_ns: u64) -> Self {
        let facts = Facts::Plain { remaining: u64::MAX, retry_ns: 0, reset_ns: 0, delay_ns: 0 };
        Self::new(Outcome::Allowed, 0, u64::MAX, at_ns, facts)
    }

    /// Returns `true` if no limit decided the request: its limiter is [off](crate::RateLimiter::turn_off), or it stands for
    /// a limit that is absent in [`check_all`](crate::check_all).
    ///
    /// The request is admitted. [`limit`](Self::limit) and [`remaining`](Self::remaining) are `u64::MAX`, all waits are
    /// zero, and [`charged`](Self::charged) is the cost, although no key owes it. `tollgate-http` writes no header fields
    /// for such a decision.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.limit() == u64::MAX && matches!(self.facts(), Facts::Plain { remaining: u64::MAX, .. })
    }
}
