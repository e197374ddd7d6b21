//! Limiters whose quota changes.

use super::RateLimiter;
use crate::base::clock::{Clock, Timestamp};
use crate::base::quota::{Quota, QuotaError};
use crate::store::{Adjustable, Carry, Rebuild};

impl<S: Rebuild, C> RateLimiter<S, C> {
    /// This limiter, able to take another quota while it is in use ([`RateLimiter::set_quota`]).
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Carry, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_hour(100)).adjustable();
    /// assert!(limiter.check_n("alice", 60).is_allowed());
    /// limiter.set_quota(&Quota::per_hour(200), Carry::Proportional)?;
    /// assert_eq!(limiter.peek("alice").remaining(), 80); // 40 of 100 were left
    /// assert_eq!(limiter.peek("bob").remaining(), 200);
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    #[must_use]
    pub fn adjustable(self) -> RateLimiter<Adjustable<S>, C> {
        RateLimiter { store: Adjustable::new(self.store), clock: self.clock, lines: self.lines }
    }
}

impl<S: Rebuild, C: Clock> RateLimiter<Adjustable<S>, C> {
    /// Puts another quota in force, from the next request on; what keys owe is [carried over](Carry).
    ///
    /// No check waits, and none is decided by half a change. A request that is under way may be charged under
    /// both quotas, and then find its own charge carried over. The algorithm stays of its kind: windows stay aligned, a sub-window counter has as many parts.
    ///
    /// The old states are kept until the next change or [`RateLimiter::forget_past`], so memory is doubled meanwhile. A compact
    /// limiter that had to [spill](crate::Overflow::Spill) debts, and is changed again before the most that any key owed would be
    /// paid, keeps those of each such change.
    ///
    /// # Errors
    /// If the algorithm or the store cannot hold the quota; for a compact limiter that is short of room also if 64 changes are
    /// not paid for yet. Then
    /// nothing is changed.
    ///
    /// # Complexity
    /// As making the limiter; and O(keys), or slots, if the last change is not paid for yet. A key's first check after the
    /// change looks it up in the old store too.
    pub fn set_quota(&self, quota: &Quota, carry: Carry) -> Result<(), QuotaError> {
        self.store.set_quota(quota, carry, || self.time(None))
    }

    /// [`RateLimiter::set_quota`] as of a time that the caller says.
    ///
    /// # Errors
    /// As [`RateLimiter::set_quota`].
    pub fn set_quota_at(&self, quota: &Quota, carry: Carry, now: Timestamp) -> Result<(), QuotaError> {
        self.store.set_quota(quota, carry, || self.time(Some(now)))
    }

    /// Frees what is kept of old quotas. Keys that were not asked for since the change owe nothing then.
    pub fn forget_past(&self) {
        self.store.forget_past();
    }
}
