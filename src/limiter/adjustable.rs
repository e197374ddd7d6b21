//! Limiters whose quota can change.

use super::RateLimiter;
use super::at::{At, Timed};
use crate::base::clock::Clock;
use crate::base::quota::{Quota, QuotaError};
use crate::store::op::{Inherit, Migrate};
use crate::store::{Adjustable, Carry, ManyKeys, Rebuild};

impl<S: Rebuild, C> RateLimiter<S, C> {
    /// Makes this limiter adjustable: its quota can change while it is in use ([`RateLimiter::set_quota`]).
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
    /// Sets another quota, from the next request on, and [carries over](Carry) the debts of keys.
    ///
    /// No check waits, and no check sees half a change. A request in progress may be charged under both quotas, and
    /// its own charge may then be carried over. The kind of algorithm stays the same: windows stay aligned, and a
    /// sub-window counter keeps its number of parts.
    ///
    /// The limiter reads its clock for the change, and publishes the change afterwards. If a request is charged in
    /// between, the debts are carried over as of the latest charge.
    ///
    /// A request may have read its time before the change, and be decided after it. If its time is at most one second
    /// before the change, it is decided as of the change.
    ///
    /// # Memory
    /// The limiter keeps the old states until the next change or [`RateLimiter::forget_past`], so its memory doubles
    /// for that time. A change is *paid* once time has paid the largest debt that it can have carried over. If the
    /// quota changes again before that, the limiter first moves all debts into its present states. Two kinds of
    /// limiters cannot do this: a compact limiter with [spilled](crate::Overflow::Spill) or
    /// [inherited](crate::Overflow::Inherit) debts, and a keyed limiter whose cap leaves no room for a key. They keep
    /// the states of each change that is not paid yet.
    ///
    /// # Errors
    /// Returns an error if the algorithm or the store cannot hold the quota. Also returns an error if the limiter
    /// already keeps the states of 64 changes that are not paid yet. With [`Carry::Reset`] no state is kept, so this
    /// second error cannot occur. An error changes nothing.
    ///
    /// # Complexity
    /// The cost of creating a new limiter, and O(keys) or O(slots) if the last change is not paid yet. The first check
    /// of a key after the change also looks for the key in the old store.
    pub fn set_quota(&self, quota: &Quota, carry: Carry) -> Result<(), QuotaError> {
        self.store.set_quota(quota, carry, || self.time())
    }

    /// Turns the limiter off: from the next request on, it admits everything, and no key owes anything. Only
    /// [`set_quota`](RateLimiter::set_quota), or [`set_limit`](RateLimiter::set_limit), turns it on again. Then every key
    /// begins with the full burst, whatever the [`Carry`].
    ///
    /// A limiter is never off for another reason: an error of a change leaves the quota in force, and no quota means *off*.
    /// To deny everything instead, do not ask the limiter.
    ///
    /// Of a limiter that is off, each decision [is unlimited](crate::Decision::is_unlimited). A refund returns 0. The limiter
    /// keeps the states of its last quota until it is turned on, and `len`, `contains` and the figures are those of these
    /// states. A check that meets the change is decided either way. Threads and tasks that wait keep the turns that they have
    /// reserved.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Carry, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_hour(2)).adjustable();
    /// assert!(limiter.check_n("alice", 2).is_allowed() && limiter.check("alice").is_denied());
    /// limiter.turn_off();
    /// let decision = limiter.check_n("alice", 1_000_000);
    /// assert!(decision.is_allowed() && decision.is_unlimited() && limiter.is_off());
    ///
    /// limiter.set_quota(&Quota::per_hour(2), Carry::AsIs)?; // on again, with a full burst
    /// assert_eq!(limiter.check("alice").remaining(), 1);
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    ///
    /// # Complexity
    /// O(1). A check of a limiter that is off reads the clock and no state.
    pub fn turn_off(&self) {
        self.store.turn_off();
    }

    /// Returns whether the limiter is [off](RateLimiter::turn_off).
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.store.is_off()
    }

    /// Frees the state of old quotas. Keys without a check since the change then owe nothing.
    pub fn forget_past(&self) {
        self.store.forget_past();
    }
}

impl<S: Migrate + ManyKeys, C: Clock> RateLimiter<Adjustable<S>, C> {
    /// Drops the debt of `key`, also under old quotas. Returns whether the key owed anything now by the clock. A sketch
    /// cannot drop debts, and returns `false`.
    ///
    /// Debts that a compact limiter has [spilled](crate::Overflow::Spill) stay, as without quota changes.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Carry, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(1)).adjustable();
    /// assert!(limiter.check("alice").is_allowed());
    /// limiter.set_quota(&Quota::per_hour(1), Carry::AsIs)?;
    /// assert!(limiter.reset("alice") && !limiter.reset("alice"));
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn reset<Q: ?Sized>(&self, key: &Q) -> bool
    where
        S: Inherit<Q>,
    {
        self.store.forget(key, self.time())
    }
}

impl<S: Migrate + ManyKeys, C> At<'_, RateLimiter<Adjustable<S>, C>> {
    /// [`RateLimiter::reset`], which returns whether the key owed anything at this time.
    pub fn reset<Q: ?Sized>(self, key: &Q) -> bool
    where
        S: Inherit<Q>,
    {
        self.limiter.store.forget(key, self.time())
    }
}
