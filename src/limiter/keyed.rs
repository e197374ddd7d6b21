//! Limiters with one state for each key.

use std::hash::{BuildHasher, Hash};

use super::RateLimiter;
use super::at::{At, Timed};
use crate::algorithm::Algorithm;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::store::{Adjustable, Keyed, Lookup, PresentStore};

impl<K, A: Algorithm, H, C> RateLimiter<Keyed<K, A, H>, C>
where
    K: Hash + Eq + Send + Sync + 'static,
    H: BuildHasher,
{
    /// Returns the algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }

    /// Removes `key` and its debt. Returns whether the limiter held the key.
    ///
    /// # Complexity
    /// O(1) expected, lock-free.
    pub fn reset<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> bool {
        self.store.remove(key)
    }
}

impl<K, A, H, C> RateLimiter<Adjustable<Keyed<K, A, H>>, C>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher + Clone,
{
    /// Returns the algorithm that is in force.
    pub fn algorithm(&self) -> A {
        self.store.present(|store| store.algorithm().clone())
    }
}

/// The keys of a limiter that holds them, whether it is [adjustable](RateLimiter::adjustable) or not.
///
/// A change of the quota moves no keys: each key moves at its first check afterwards. These methods see the keys that have
/// moved and those that still owe. A key that owed nothing at the change is not held until its next check.
impl<P, K, A, H, C> RateLimiter<P, C>
where
    P: PresentStore<Store = Keyed<K, A, H>>,
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
    C: Clock,
{
    /// Returns the number of held keys, including idle keys that are not removed yet. An estimate while other threads
    /// use the limiter: the store counts its keys in parts, so a key that replaces another one during the call may be
    /// counted together with it. So the number may exceed [`max_keys`](crate::Builder::max_keys), by at most one for each
    /// key that is replaced during the call, although the store never holds more keys.
    ///
    /// # Complexity
    /// O(1), except for the first call after a change of the quota. That call moves all keys that owe, in O(keys). A key
    /// for which the cap has no room at this call counts from its next check on.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Carry, Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed::<String, _>(Gcra::new(Quota::per_hour(10))).adjustable();
    /// assert!(limiter.check("alice").is_allowed() && limiter.check("bob").is_allowed());
    /// limiter.set_quota(&Quota::per_hour(20), Carry::AsIs)?;
    /// assert_eq!(limiter.len(), 2);
    /// assert!(limiter.contains("alice") && !limiter.contains("carol"));
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn len(&self) -> usize {
        self.store.with_all_keys(|| self.time(), Keyed::len)
    }

    /// Returns whether the limiter holds no key. An estimate while other threads use the limiter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the limiter holds `key`. It may hold idle keys until it removes them.
    pub fn contains<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> bool {
        self.store.has_key(key, || self.time())
    }

    /// Removes all keys that are idle now, and frees memory after a peak. Correctness never needs this call.
    ///
    /// If a removed key is later checked at a time before this call's time, the key begins with a full burst at that
    /// time. If the times of some keys lag, call it [at](RateLimiter::at) the oldest time that a check may still
    /// have.
    ///
    /// The call frees the keys and shrinks the table. The limiter frees nodes in groups of 63. It frees a group when
    /// it holds none of the group's keys; until then it reuses the nodes for new keys. The states of old quotas stay
    /// until [`RateLimiter::forget_past`].
    ///
    /// # Complexity
    /// O(keys), on this thread, under one epoch: memory that other threads free during the call is released after it.
    pub fn retain_active(&self) {
        self.store.present(|store| store.retain_active(self.now_ns()));
    }

    /// Calls `visit` with each key, in any order, and with the decision for a cost of 0 now.
    ///
    /// Visits every key that the limiter holds during the whole call. A key that is inserted or removed during the
    /// call may be visited or not. If the quota changes during the call, the decisions are those of the quota that was in
    /// force at its beginning, and a check that is charged again under the new quota may be visible in them or not.
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
        self.store.with_all_keys(|| self.time(), |store| store.for_each(self.now_ns(), visit));
    }
}

/// The keys of a limiter whose checks have given times.
impl<P, K, A, H, C> At<'_, RateLimiter<P, C>>
where
    P: PresentStore<Store = Keyed<K, A, H>>,
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
{
    /// [`RateLimiter::len`] at this time. Only the first call after a change of the quota depends on it.
    pub fn len(self) -> usize {
        self.store().with_all_keys(|| self.time(), Keyed::len)
    }

    /// [`RateLimiter::is_empty`] at this time.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// [`RateLimiter::contains`] at this time. Only a key that owes under an old quota depends on it.
    pub fn contains<Q: Lookup<K> + ?Sized>(self, key: &Q) -> bool {
        self.store().has_key(key, || self.time())
    }

    /// [`RateLimiter::retain_active`] at this time. Use the oldest time that a check may still have.
    pub fn retain_active(self) {
        self.store().present(|store| store.retain_active(self.time().ns()));
    }

    /// [`RateLimiter::for_each`] with the decisions at this time.
    pub fn for_each(self, visit: impl FnMut(&K, Decision)) {
        self.store().with_all_keys(|| self.time(), |store| store.for_each(self.time().ns(), visit));
    }
}
