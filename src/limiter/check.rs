//! Checks for one key, for every store that has keys.

use super::RateLimiter;
use super::at::Timed;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::store::{ManyKeys, Operation, Store};

/// Checks of single keys. The caller passes keys by reference.
///
/// A [`Compact`](crate::Compact) limiter or a [`Sketch`](crate::Sketch) accepts keys of any type that hashes. The type
/// may differ from call to call; two keys with equal hashes are the same key. `&str` and `String` have the same hash.
/// An integer and its text do not.
///
/// A [`Keyed`](crate::Keyed) limiter over `String` accepts `&str`. It copies a key only when it does not hold that key
/// yet.
impl<S: ManyKeys, C: Clock> RateLimiter<S, C> {
    /// Checks one unit for `key` now, and charges it if it is admitted.
    ///
    /// # Complexity
    /// Compact or sketch: O(1). A compact limiter reads the clock, hashes the key, reads one cache line, and makes one
    /// exchange if the unit is admitted. A sketch reads three lines and makes up to four exchanges. Neither allocates.
    /// Both are lock-free. A denial writes nothing, with three exceptions. A compact limiter counts each new key that it
    /// denies because of a debt that was [spilled or inherited](crate::Overflow). A [`Sketch`](crate::Sketch) may write
    /// in a race. A denial may start a [block](crate::Blocked).
    ///
    /// Keyed: O(1) expected. The limiter reads the clock, hashes the key, pins an epoch, makes three dependent loads,
    /// and makes one exchange if the unit is admitted. It is lock-free. A denial of a key that the limiter holds writes
    /// nothing that threads share. The limiter allocates only for a key that it does not hold yet, and once for each
    /// thread. At a cap it does more work; see [`WhenFull`](crate::WhenFull).
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(2));
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(limiter.check("alice").is_denied());
    /// assert!(limiter.check(&("bob", 7)).is_allowed()); // any type that hashes
    ///
    /// let limiter = RateLimiter::keyed::<String, _>(Gcra::new(Quota::per_minute(2)));
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(limiter.check("alice").is_denied());
    /// assert!(limiter.check("bob").is_allowed());
    /// ```
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check<Q: ?Sized>(&self, key: &Q) -> Decision
    where
        S: Store<Q>,
    {
        self.check_n(key, 1)
    }

    /// Checks `cost` units for `key` now, and charges all of them or none.
    ///
    /// A cost of zero charges nothing. If `cost` is more than the quota can ever admit at once,
    /// [`Decision::is_never`] returns true.
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_n<Q: ?Sized>(&self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Check, cost)
    }

    /// Returns the decision that [`RateLimiter::check`] would make now, without a charge.
    ///
    /// The decision includes the remaining units and the reset time. The limiter never inserts the key.
    ///
    /// # Complexity
    /// The same as a check. Writes nothing.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn peek<Q: ?Sized>(&self, key: &Q) -> Decision
    where
        S: Store<Q>,
    {
        self.peek_n(key, 1)
    }

    /// Returns the decision that [`RateLimiter::check_n`] would make now, without a charge. Never inserts the key.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn peek_n<Q: ?Sized>(&self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.peek_key(key, cost)
    }

    /// Checks pairs of a key and a cost in order, all at one time, and passes each decision to `decided`.
    ///
    /// The decisions equal those of single checks at that time. With many keys, a batch takes a fraction of the time of
    /// single checks: it reads the clock once, pins a keyed store once, and fetches the memory of 16 keys at once.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(10));
    /// let mut admitted = 0;
    /// limiter.check_each([("alice", 4), ("bob", 11), ("alice", 7)], |decision| {
    ///     admitted += u32::from(decision.is_allowed());
    /// });
    /// assert_eq!(admitted, 1);
    /// ```
    #[inline]
    pub fn check_each<'k, Q>(
        &self,
        requests: impl IntoIterator<Item = (&'k Q, u64)>,
        decided: impl FnMut(Decision),
    ) where
        S: Store<Q>,
        Q: ?Sized + 'k,
    {
        self.at(self.clock.now()).check_each(requests, decided);
    }
}
