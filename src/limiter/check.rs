//! Checks for a key: of every store of keys.

use alloc::vec::Vec;

use super::RateLimiter;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::store::{ManyKeys, Operation, Store};

/// Checks of single keys. Keys are borrowed.
///
/// A [`Compact`](crate::Compact) limiter or a [`Sketch`](crate::Sketch) takes keys of any type that hashes, which may differ from
/// call to call; equal hashes are equal keys. `&str` and `String` hash alike, an integer and its text do not. A
/// [`Keyed`](crate::Keyed) limiter over `String` is asked with `&str`, and copies a key only at first sight.
impl<S: ManyKeys, C: Clock> RateLimiter<S, C> {
    /// Checks one unit for `key` now, and charges it if it is allowed.
    ///
    /// # Complexity
    /// Compact or sketch: O(1): a clock reading, a hash, one cache line, and one exchange if it is allowed; in a sketch three
    /// lines, and up to four exchanges. Never allocates. Lock-free; a denial writes nothing, but for a count when a newcomer is
    /// denied for a debt that was [spilled or inherited](crate::Overflow), and in races of a [`Sketch`](crate::Sketch).
    ///
    /// Keyed: O(1) expected: a clock reading, a hash, an epoch pin, three dependent loads, and one exchange if it is
    /// allowed. Lock-free; a denial writes nothing that threads share, but that the first look into a bucket of the table prepares
    /// that, also after the table has grown. Allocates at the first sight of a key only, and once for each thread. Beyond a cap it
    /// costs more, see [`WhenFull`](crate::WhenFull).
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
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check<Q: ?Sized>(&self, key: &Q) -> Decision
    where
        S: Store<Q>,
    {
        self.check_n(key, 1)
    }

    /// Checks `cost` units for `key` now, and charges all of them or none.
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_n<Q: ?Sized>(&self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Check, cost, None)
    }

    /// Checks `cost` units for `key` at a time that the caller says.
    ///
    /// Times may be given and read in turn, and may come from clocks that differ. A `now` behind an earlier call's can only deny
    /// more, by less than the step back; in a keyed store unless the key was forgotten as idle meanwhile, as of the latest time
    /// that any call brought.
    ///
    /// In a compact store, a `now` that is behind the newest by more than a quarter of the
    /// [range](crate::Compact) of the words is decided as of that quarter. If such times go on for a second (or the time
    /// of a burst, if that is longer) and no other call brings a newer one, the newest time was wrong: it falls to them, and
    /// each key may have one burst more.
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_at<Q: ?Sized>(&self, key: &Q, cost: u64, now: Timestamp) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Check, cost, Some(now))
    }

    /// Whether [`RateLimiter::check`] would be allowed now, and how things stand (what remains, when it resets), without
    /// charging. Never makes a key.
    ///
    /// # Complexity
    /// As a check, and writes nothing.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn peek<Q: ?Sized>(&self, key: &Q) -> Decision
    where
        S: Store<Q>,
    {
        self.peek_n(key, 1)
    }

    /// Whether [`RateLimiter::check_n`] would be allowed now, and how things stand, without charging. Never makes a key.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn peek_n<Q: ?Sized>(&self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.peek_at(key, cost, self.clock.now())
    }

    /// Whether [`RateLimiter::check_at`] would be allowed, and how things stand, without charging. Never makes a key.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn peek_at<Q: ?Sized>(&self, key: &Q, cost: u64, now: Timestamp) -> Decision
    where
        S: Store<Q>,
    {
        self.store.peek(self.store.prepare(key), CheckTime::given(now), cost)
    }

    /// Checks one unit for each key in order, at one time, and appends the decisions.
    ///
    /// The same decisions as so many single checks at that time, at a fraction of the cost where keys are many: one
    /// clock reading, for a keyed store one pin, and the memory of 16 keys is fetched at once.
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
        S: Store<Q>,
        Q: ?Sized + 'k,
    {
        self.check_many_at(keys, decisions, self.clock.now());
    }

    /// [`RateLimiter::check_many`] at a time that the caller says.
    #[inline]
    pub fn check_many_at<'k, Q>(
        &self,
        keys: impl IntoIterator<Item = &'k Q>,
        decisions: &mut Vec<Decision>,
        now: Timestamp,
    ) where
        S: Store<Q>,
        Q: ?Sized + 'k,
    {
        let requests = keys.into_iter().map(|key| (self.store.prepare(key), 1));
        self.store.check_each(requests, CheckTime::given(now), |decision| decisions.push(decision));
    }
}
