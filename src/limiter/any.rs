//! Limiters whose algorithm and store are chosen at run time.

use std::hash::{BuildHasher, Hash};

use super::RateLimiter;
use super::at::Timed;
use crate::algorithm::Limit;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, DefaultClock};
use crate::base::quota::QuotaError;
use crate::store::{Adjustable, AnyStore, Carry, Gauges, PresentStore, Saturation};

/// A limiter whose algorithm and store were chosen at run time, and whose limit can change.
///
/// Created by [`RateLimiter::any`]. It has the methods of every limiter with keys,
/// [`set_limit`](RateLimiter::set_limit), and the figures of its store: [`keys`](RateLimiter::keys),
/// [`gauges`](RateLimiter::gauges), [`saturation`](RateLimiter::saturation), [`state_bytes`](RateLimiter::state_bytes).
/// To drop the debt of a key, [reset](RateLimiter::reset) it. To drop all debts, set the same limit with
/// [`Carry::Reset`]. It has no tiers and no snapshots.
pub type AnyLimiter<K = String, C = DefaultClock, H = ahash::RandomState> =
    RateLimiter<Adjustable<AnyStore<K, H>>, C>;

impl<K, C, H> RateLimiter<Adjustable<AnyStore<K, H>>, C>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    C: Clock,
    H: BuildHasher + Clone,
{
    /// Returns the limit that is in force.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.store.present(AnyStore::limit)
    }

    /// Returns the number of held keys, if the store knows it: of a keyed store, with idle keys that are not removed yet,
    /// and of a compact store, the keys that owe now by the clock. An estimate while other threads use the limiter. After
    /// a change of the limit, keys that owe nothing count from their next check on, and so do keys for which a keyed store
    /// has no room at the first call.
    ///
    /// # Complexity
    /// O(slots) for a compact store. For a keyed store O(1), except the first call after a change of the limit: it takes
    /// over the debts of all keys, in O(keys).
    ///
    /// # Examples
    /// ```
    /// use tollgate::{AnyLimiter, Quota, RateLimiter, StoreKind};
    ///
    /// let limiter: AnyLimiter = RateLimiter::any(Quota::per_minute(5)).build(StoreKind::Keyed)?;
    /// assert!(limiter.check("alice").is_allowed());
    /// assert_eq!((limiter.keys(), limiter.gauges()), (Some(1), None));
    /// assert!(limiter.state_bytes() > 0);
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    #[must_use]
    pub fn keys(&self) -> Option<usize> {
        self.store.with_all_keys(|| self.time(), |store| store.keys(self.now_ns()))
    }

    /// Returns the bytes that the states take under the limit in force: 0 for a direct store, and as long as no charge has
    /// created the states.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.store.present(AnyStore::state_bytes)
    }

    /// Returns the number of slots of a compact store, and counts of its actions for lack of free slots, since the last
    /// change of the limit. `None` for other stores.
    #[must_use]
    pub fn gauges(&self) -> Option<Gauges> {
        self.store.present(AnyStore::gauges)
    }

    /// Returns how full a sketch is in the present window. `None` for other stores.
    #[must_use]
    pub fn saturation(&self) -> Option<Saturation> {
        self.store.present(|store| store.saturation(self.now_ns()))
    }

    /// Sets another limit, from the next request on, and [carries over](Carry) the debts of keys. The algorithm may
    /// change too. The kind and the size of the store stay the same.
    ///
    /// See [`set_quota`](RateLimiter::set_quota) for the consistency and the memory of a change. A sketch cannot list its
    /// keys. It keeps its counts, as with [`Carry::Used`], if its algorithm and window stay the same and its counters can
    /// count to the new limit, as to every lower one. Otherwise, or with [`Carry::Reset`], it starts empty.
    ///
    /// # Errors
    /// Returns an error if the store does not support the limit. Also returns an error if the limiter already keeps the
    /// states of 64 changes that are not paid yet. An error changes nothing.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{AnyLimiter, Carry, Limit, Quota, RateLimiter, SlidingLog, StoreKind};
    ///
    /// let limiter: AnyLimiter = RateLimiter::any(Quota::per_minute(100)).build(StoreKind::Compact)?;
    /// let error = limiter.set_limit(SlidingLog::new(Quota::per_minute(100)).into(), Carry::Used).unwrap_err();
    /// assert!(error.to_string().contains("use a keyed store"));
    /// assert_eq!(limiter.limit(), Limit::gcra(Quota::per_minute(100)));
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn set_limit(&self, limit: Limit, carry: Carry) -> Result<(), QuotaError> {
        self.change_limit(limit, carry, || self.time())
    }
}

impl<K, C, H> RateLimiter<Adjustable<AnyStore<K, H>>, C>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    H: BuildHasher + Clone,
{
    pub(super) fn change_limit(
        &self,
        limit: Limit,
        carry: Carry,
        when: impl Fn() -> CheckTime,
    ) -> Result<(), QuotaError> {
        self.store.replace(|store, keeps| store.with_limit(limit, keeps), carry, when)
    }
}
