//! Limiters with one state for each key.

use std::hash::{BuildHasher, Hash};

use super::RateLimiter;
use crate::algorithm::Algorithm;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::store::{Keyed, Lookup};

/// The caller passes keys by reference. A limiter over `String` accepts `&str`, and copies a key only when it does not
/// hold that key yet.
impl<K, A, H, C> RateLimiter<Keyed<K, A, H>, C>
where
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
    C: Clock,
{
    /// Checks `cost` units for `key` now under another quota: for tiers, and for exceptions of single keys.
    ///
    /// Make `algorithm` once with [`Algorithm::requota`] from the limiter's own algorithm, and keep it. The key's
    /// state has the same meaning under both quotas: charged units stay charged.
    ///
    /// If another algorithm is passed that would read the state differently, the limiter uses its own algorithm
    /// instead.
    ///
    /// # Panics
    /// Debug builds panic if `algorithm` would read the state differently.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Algorithm, Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed::<String, _>(Gcra::new(Quota::per_minute(2)));
    /// let premium = limiter.algorithm().requota(&Quota::per_minute(100))?;
    /// assert!(limiter.check_with("alice", 50, &premium).is_allowed());
    /// assert!(limiter.check_n("bob", 50).is_never());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_with<Q: Lookup<K> + ?Sized>(&self, key: &Q, cost: u64, algorithm: &A) -> Decision {
        self.at(self.clock.now()).check_with(key, cost, algorithm)
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }

    /// Returns the bytes that the keys' states take. An estimate, as [`RateLimiter::len`] is.
    ///
    /// This includes, for each key, a node, the algorithm's separate words, and a share of the table. Each of about
    /// the first 200 keys takes a whole cache line, so that threads do not slow each other down. The 12 KiB that every
    /// keyed limiter takes before its first key are not included.
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

    /// Returns the number of held keys, including idle keys that are not removed yet. An estimate while other threads
    /// use the limiter: the store counts its keys in parts, so a key that replaces another one during the call may be
    /// counted together with it. So the number may exceed [`max_keys`](crate::Builder::max_keys), by at most one for each
    /// key that is replaced during the call, although the store never holds more keys.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether the limiter holds no key. An estimate while other threads use the limiter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the limiter holds `key`. It may hold idle keys until it removes them.
    pub fn contains<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> bool {
        self.store.contains(key)
    }

    /// Removes `key` and its debt. Returns whether the limiter held the key.
    ///
    /// # Complexity
    /// O(1) expected, lock-free.
    pub fn reset<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> bool {
        self.store.remove(key)
    }

    /// Removes all keys and their debts. Keys that other threads insert during the call may stay.
    ///
    /// # Complexity
    /// O(keys).
    pub fn clear(&self) {
        self.store.clear();
    }

    /// Removes all keys that are idle now, and frees memory after a peak. Correctness never needs this call.
    ///
    /// If a removed key is later checked at a time before this call's time, the key begins with a full burst at that
    /// time. If the times of some keys lag, call it [at](RateLimiter::at) the oldest time that a check may still
    /// have.
    ///
    /// The call frees the keys and shrinks the table. The limiter frees nodes in groups of 63. It frees a group when
    /// it holds none of the group's keys; until then it reuses the nodes for new keys.
    ///
    /// # Complexity
    /// O(keys), on this thread, under one epoch: memory that other threads free during the call is released after it.
    pub fn retain_active(&self) {
        self.store.retain_active(self.now_ns());
    }

    /// Calls `visit` with each key, in any order, and with the decision for a cost of 0 now.
    ///
    /// Visits every key that the limiter holds during the whole call. A key that is inserted or removed during the
    /// call may be visited or not.
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
    /// O(keys), under one epoch: memory that other threads free during the call is released after it. `visit` runs for
    /// each key, so keep it short.
    pub fn for_each(&self, visit: impl FnMut(&K, Decision)) {
        self.store.for_each(self.now_ns(), visit);
    }
}
