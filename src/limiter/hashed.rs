//! Limiters whose stores know keys by their hashes.

use alloc::vec::Vec;
use core::hash::Hash;

use super::RateLimiter;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::store::{HashedStore, Operation};

/// Keys are of any type that hashes, and may differ from call to call; equal hashes are equal keys. `&str` and
/// `String` hash alike, an integer and its text do not.
impl<S: HashedStore, C: Clock> RateLimiter<S, C> {
    /// Checks one unit for `key` now, and charges it if it is allowed.
    ///
    /// # Complexity
    /// O(1): a clock reading, a hash, one cache line, and one exchange if it is allowed; in a sketch three lines, and up to four
    /// exchanges. Never allocates. Lock-free; a denial writes nothing, but for a count when a newcomer is denied for a debt that
    /// was [spilled or inherited](crate::Overflow), and in races of a [`Sketch`](crate::Sketch).
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(2));
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(limiter.check("alice").is_denied());
    /// assert!(limiter.check(&("bob", 7)).is_allowed()); // any type that hashes
    /// ```
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check<Q: Hash + ?Sized>(&self, key: &Q) -> Decision {
        self.check_hash(self.store.hash(key), 1)
    }

    /// Checks `cost` units for `key` now, and charges all of them or none.
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_n<Q: Hash + ?Sized>(&self, key: &Q, cost: u64) -> Decision {
        self.check_hash(self.store.hash(key), cost)
    }

    /// Checks `cost` units for `key` at a time that the caller says.
    ///
    /// Times may be given and read in turn, and may come from clocks that differ. A `now` behind an earlier call's can only deny
    /// more, by less than the step back. A `now` that is behind the newest by more than a quarter of the
    /// [range](crate::Compact) of the words is decided as of that quarter. If such times go on for a second (or the time
    /// of a burst, if that is longer) and no other call brings a newer one, the newest time was wrong: it falls to them, and
    /// each key may have one burst more.
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_at<Q: Hash + ?Sized>(&self, key: &Q, cost: u64, now: Timestamp) -> Decision {
        self.check_hash_at(self.store.hash(key), cost, now)
    }

    /// The hash of a key, as this limiter finds it by; for [`RateLimiter::check_hash`].
    #[inline]
    #[must_use]
    pub fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.store.hash(key)
    }

    /// Checks `cost` units now for the key with this hash.
    ///
    /// The hash is all that is known of the key: it must come from [`RateLimiter::hash`], or from a keyed hasher of
    /// 64-bit quality, for *every* call on this limiter.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(1));
    /// let hash = limiter.hash("alice"); // once for a connection
    /// assert!(limiter.check_hash(hash, 1).is_allowed());
    /// assert!(limiter.check("alice").is_denied());
    /// ```
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_hash(&self, hash: u64, cost: u64) -> Decision {
        self.check_prepared(self.store.prepare_hash(hash), cost, None)
    }

    /// Checks `cost` units for the key with this hash at a time that the caller says; see [`RateLimiter::check_hash`].
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_hash_at(&self, hash: u64, cost: u64, now: Timestamp) -> Decision {
        self.check_prepared(self.store.prepare_hash(hash), cost, Some(now))
    }

    /// Whether [`RateLimiter::check`] would be allowed now, and how things stand (what remains, when it resets), without
    /// charging.
    ///
    /// # Complexity
    /// As a check, and writes nothing.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn peek<Q: Hash + ?Sized>(&self, key: &Q) -> Decision {
        self.peek_n(key, 1)
    }

    /// Whether [`RateLimiter::check_n`] would be allowed now, and how things stand, without charging.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn peek_n<Q: Hash + ?Sized>(&self, key: &Q, cost: u64) -> Decision {
        self.store.peek(self.prepared(key), self.time(None), cost)
    }

    /// Whether [`RateLimiter::check_at`] would be allowed, and how things stand, without charging.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn peek_at<Q: Hash + ?Sized>(&self, key: &Q, cost: u64, now: Timestamp) -> Decision {
        self.store.peek(self.prepared(key), self.time(Some(now)), cost)
    }

    /// Checks one unit for each key in order, at one time, and appends the decisions.
    ///
    /// The same decisions as so many single checks at that time, at a fraction of the cost where keys are many: one
    /// clock reading, and the memory of 16 keys is fetched at once.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(1));
    /// let mut decisions = Vec::new();
    /// limiter.check_many(["alice", "bob", "alice"], &mut decisions);
    /// let allowed: Vec<bool> = decisions.iter().map(|decision| decision.is_allowed()).collect();
    /// assert_eq!(allowed, [true, true, false]);
    /// ```
    #[inline]
    pub fn check_many<'k, Q>(&self, keys: impl IntoIterator<Item = &'k Q>, decisions: &mut Vec<Decision>)
    where
        Q: Hash + ?Sized + 'k,
    {
        self.check_each(keys.into_iter().map(|key| (key, 1)), |decision| decisions.push(decision));
    }

    /// [`RateLimiter::check_many`] at a time that the caller says.
    pub fn check_many_at<'k, Q>(
        &self,
        keys: impl IntoIterator<Item = &'k Q>,
        decisions: &mut Vec<Decision>,
        now: Timestamp,
    ) where
        Q: Hash + ?Sized + 'k,
    {
        let requests = keys.into_iter().map(|key| (self.prepared(key), 1));
        self.store.check_each(requests, self.time(Some(now)), |decision| decisions.push(decision));
    }

    /// Checks pairs of a key and a cost in order, at one time, and hands each decision to `decided`.
    ///
    /// [`RateLimiter::check_many`] with costs, and without storing decisions of which only a bit is wanted.
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
        Q: Hash + ?Sized + 'k,
    {
        let requests = requests.into_iter().map(|(key, cost)| (self.prepared(key), cost));
        self.store.check_each(requests, self.time(None), decided);
    }

    /// [`RateLimiter::check_each`] for keys that are hashed already; see [`RateLimiter::check_hash`].
    #[inline]
    pub fn check_each_hash(
        &self,
        requests: impl IntoIterator<Item = (u64, u64)>,
        decided: impl FnMut(Decision),
    ) {
        let requests = requests.into_iter().map(|(hash, cost)| (self.store.prepare_hash(hash), cost));
        self.store.check_each(requests, self.time(None), decided);
    }

    /// Makes all keys owe nothing. Charges that other threads make meanwhile may be forgotten or not.
    ///
    /// # Complexity
    /// O(memory).
    pub fn clear(&self) {
        self.store.clear();
    }

    /// The bytes that keys' states take: table and sketch. Fixed when the limiter is made; pages that no
    /// key has touched yet are not resident.
    pub fn state_bytes(&self) -> usize {
        self.store.state_bytes()
    }

    #[inline(always)]
    fn prepared<Q: Hash + ?Sized>(&self, key: &Q) -> S::Prepared<'static> {
        self.store.prepare_hash(self.store.hash(key))
    }

    #[inline(always)]
    fn check_prepared(&self, key: S::Prepared<'static>, cost: u64, given: Option<Timestamp>) -> Decision {
        // The memory comes while the clock is read.
        self.store.prefetch(key);
        self.store.apply(key, Operation::Check, self.time(given), cost)
    }
}
