//! Limiters with one state for each key.

use std::hash::{BuildHasher, Hash};

use super::RateLimiter;
use crate::algorithm::Algorithm;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::store::{Keyed, Lookup, Store};

/// Keys are borrowed: a limiter over `String` is asked with `&str`, and copies a key only at first sight.
impl<K, A, H, C> RateLimiter<Keyed<K, A, H>, C>
where
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
    C: Clock,
{
    /// Checks `cost` units for `key` at `now` under a quota of the caller's: tiers, and exceptions for single keys.
    ///
    /// `algorithm` is made by [`Algorithm::requota`] from the limiter's own, once, and kept. The key's state means the
    /// same under both: what was charged stays charged.
    ///
    /// An algorithm that did not come from this limiter's own, so that it would read the state otherwise, is not used:
    /// the limiter's own decides instead. Debug builds panic.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Algorithm, Clock, Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed::<String, _>(Gcra::new(Quota::per_minute(2)));
    /// let premium = limiter.algorithm().requota(&Quota::per_minute(100))?;
    /// let now = limiter.clock().now();
    /// assert!(limiter.check_with("alice", &premium, 50, now).is_allowed());
    /// assert!(limiter.check_at("bob", 50, now).is_never());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_with<Q: Lookup<K> + ?Sized>(
        &self,
        key: &Q,
        algorithm: &A,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let algorithm = super::readable(self.store.algorithm(), algorithm);
        let key = self.store.prepare(key);
        self.store.prefetch(key);
        self.store.check_with(algorithm, key, now.as_nanos(), cost)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }

    /// The bytes that the states of the keys take: for each key a node, the algorithm's words elsewhere, and its part of the table. The first
    /// 200 keys or so take a cache line each, so that threads do not slow each other down. An estimate, as [`RateLimiter::len`] is. The 12 KiB
    /// that every keyed limiter takes before its first key are not counted.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(5))).keyed::<u32>();
    /// assert_eq!(limiter.state_bytes(), 0);
    /// let _ = limiter.check(&7);
    /// assert!((64..1_000).contains(&limiter.state_bytes()));
    /// ```
    pub fn state_bytes(&self) -> usize {
        self.store.state_bytes()
    }

    /// How many keys are held, idle ones that were not removed yet included. An estimate while other threads are at
    /// work.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether no key is held. An estimate while other threads are at work.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `key` is held; idle keys may be, until they are removed.
    pub fn contains<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> bool {
        self.store.contains(key)
    }

    /// Forgets `key` and what it owes; says whether it was held.
    ///
    /// # Complexity
    /// O(1) expected, lock-free.
    pub fn remove<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> bool {
        self.store.remove(key)
    }

    /// Forgets all keys, and what they owe. Keys that other threads insert meanwhile may stay.
    ///
    /// # Complexity
    /// O(keys).
    pub fn clear(&self) {
        self.store.clear();
    }

    /// Forgets all keys that are idle now. Never needed for correctness; frees memory after a peak.
    ///
    /// A key that is checked at a time before this one later begins with a full burst at that time. So if the times of some keys
    /// lag, give [`RateLimiter::retain_active_at`] the oldest time that a check may still have.
    ///
    /// Frees the keys, and shrinks the table that finds them. Memory of keys is freed in groups of 63: a group is freed once none of its
    /// keys is held, and until then used for new ones.
    ///
    /// # Complexity
    /// O(keys), on this thread, under one epoch: what other threads free meanwhile is freed after it.
    pub fn retain_active(&self) {
        self.store.retain_active(self.now_ns());
    }

    /// [`RateLimiter::retain_active`] at a time that the caller says: for limiters whose checks are given times too. Say the oldest
    /// time that a key may still be checked at.
    pub fn retain_active_at(&self, now: Timestamp) {
        self.store.retain_active(now.as_nanos());
    }

    /// Calls `visit` with each key, in no order, and with what a cost of 0 would be answered now.
    ///
    /// Sees every key that is held throughout; keys that come or go meanwhile may be seen or not.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed::<String, _>(Gcra::new(Quota::per_hour(10)));
    /// limiter.check("alice").into_result()?;
    /// limiter.for_each(|key, decision| {
    ///     assert_eq!(key, "alice");
    ///     assert_eq!(decision.remaining(), 9);
    /// });
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    ///
    /// # Complexity
    /// O(keys), under one epoch: what other threads free meanwhile is freed after it. `visit` runs for each, so keep it short.
    pub fn for_each(&self, visit: impl FnMut(&K, Decision)) {
        self.store.for_each(self.now_ns(), visit);
    }

    /// [`RateLimiter::for_each`] with the answers at a time that the caller says.
    pub fn for_each_at(&self, now: Timestamp, visit: impl FnMut(&K, Decision)) {
        self.store.for_each(now.as_nanos(), visit);
    }
}
