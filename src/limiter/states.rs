//! Checks under another quota, and all states of a limiter at once, for every store that has them.

use super::at::Timed;
use super::{At, RateLimiter};
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::store::{CheckWith, ManyKeys, PresentStore, States, Store as _};

impl<S: ManyKeys, C: Clock> RateLimiter<S, C> {
    /// Checks `cost` units for `key` now under another quota: for tiers, and for exceptions of single keys. Charged units
    /// stay charged under all quotas.
    ///
    /// Make the quota once, and keep it. For a keyed limiter it is an algorithm, made with
    /// [`Algorithm::requota`](crate::Algorithm::requota) from the limiter's own; for a compact limiter it is a tier, made
    /// with [`RateLimiter::tier`].
    ///
    /// If the limiter cannot read its states by this quota, it uses its own quota instead. That is so for an algorithm with
    /// another period of its windows, and for a tier of a limiter with another layout.
    ///
    /// In an [adjustable](RateLimiter::adjustable) limiter, a tier or an algorithm keeps its quota when the limiter's own
    /// quota changes. The limiter converts it at each check if the change has altered the layout; a new one avoids
    /// that. Once the limiter cannot hold that quota any more, its own quota decides. That is so for an algorithm with
    /// [blocks](crate::Blocked) after a change of the quota, and for a window after a change of its period.
    ///
    /// # Panics
    /// Debug builds panic if the limiter cannot read its states by this quota and is not adjustable.
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
    pub fn check_with<Q: ?Sized>(&self, key: &Q, cost: u64, quota: &S::Quota) -> Decision
    where
        S: CheckWith<Q>,
    {
        check_with(self, key, cost, quota)
    }
}

impl<S: ManyKeys, C> At<'_, RateLimiter<S, C>> {
    /// [`RateLimiter::check_with`] at this time.
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_with<Q: ?Sized>(self, key: &Q, cost: u64, quota: &S::Quota) -> Decision
    where
        S: CheckWith<Q>,
    {
        check_with(&self, key, cost, quota)
    }
}

/// Checks under another quota than the limiter's own.
#[inline(always)]
pub(super) fn check_with<Q: ?Sized, T: Timed>(
    timed: &T,
    key: &Q,
    cost: u64,
    quota: &<T::Store as CheckWith<Q>>::Quota,
) -> Decision
where
    T::Store: CheckWith<Q>,
{
    let store = timed.store();
    let key = store.prepare(key);
    store.prefetch(key);
    store.check_with(key, quota, timed.time(), cost)
}

impl<P: PresentStore<Store: States>, C> RateLimiter<P, C> {
    /// Drops the debts of all keys, and the states of old quotas. A keyed limiter removes its keys. Charges that other
    /// threads make during the call may be dropped or kept.
    ///
    /// # Complexity
    /// O(keys) for a keyed limiter, and O(memory) for others.
    pub fn clear(&self) {
        self.store.change(States::clear);
    }

    /// Returns the bytes that the keys' states take. In an [adjustable](RateLimiter::adjustable) limiter, these are the
    /// states under the present quota.
    ///
    /// A compact limiter and a sketch count the table and the sketch. The size is fixed when the limiter is created. Pages
    /// that no key has touched yet are not resident.
    ///
    /// A keyed limiter counts, for each key, a node, the algorithm's separate words, and a share of the table: an estimate,
    /// as [`RateLimiter::len`] is. Each of about the first 200 keys takes a whole cache line, so that threads do not slow
    /// each other down. The 12 KiB that every keyed limiter takes before its first key are not included.
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
        self.store.present(States::state_bytes)
    }
}
