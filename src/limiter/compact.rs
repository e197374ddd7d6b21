//! Methods that only compact limiters have. A compact limiter keeps fingerprints of keys.

use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};

use super::RateLimiter;
use super::at::{At, Timed};
use crate::algorithm::CompactAlgorithm;
use crate::base::clock::Clock;
use crate::base::quota::{Quota, QuotaError};
use crate::store::{Compact, Gauges, HashedStore, PresentStore, SnapshotError, Tier};

impl<A: CompactAlgorithm, H: BuildHasher, C: Clock> RateLimiter<Compact<A, H>, C> {
    /// Returns the algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }

    /// Drops the debt of `key`. Returns whether the key owed anything at the newest time of a charge to this limiter.
    ///
    /// With [`Overflow::Spill`](crate::Overflow::Spill), a spilled debt stays in the sketch until it is paid. If the
    /// key is evicted before that, the debt may apply to it again.
    ///
    /// With [`Overflow::Inherit`](crate::Overflow::Inherit), a reset can race with the insertion of the same key. Only
    /// in this case can one key get two slots and be admitted its burst a second time.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(1));
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(limiter.reset("alice"));
    /// assert!(limiter.check("alice").is_allowed());
    /// ```
    ///
    /// # Complexity
    /// O(1) and lock-free: one read, and one exchange if the key owed anything.
    pub fn reset<Q: Hash + ?Sized>(&self, key: &Q) -> bool {
        self.store.reset(self.store.hash(key), self.store.newest())
    }

    /// Returns the debts of all keys as bytes, to keep them across a restart.
    ///
    /// The snapshot is taken as of the newest time of a charge to this limiter, whether that time was read from the
    /// clock or given. It leaves out the debts that time has paid by then. If the times of some keys lag, take the
    /// snapshot [at](RateLimiter::at) the oldest time that a check may still have, so that no debt is missing.
    ///
    /// Each key's debt in the snapshot is one that the key had at some time during the call.
    ///
    /// To restore the snapshot in another limiter, both limiters need a hasher with the same known seeds
    /// ([`Builder::hasher`](crate::Builder::hasher)). Keep the seeds secret, as you would a password.
    ///
    /// # Complexity
    /// O(memory). The snapshot takes 16 bytes for each key that owes, and 10 bytes for each counter of the sketch that
    /// holds debt.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let build = || {
    ///     let secret = ahash::RandomState::with_seeds(0x5EC2_E7A1, 2, 3, 4); // from your configuration
    ///     RateLimiter::builder(Gcra::new(Quota::per_hour(1))).hasher(secret).compact()
    /// };
    /// let before = build()?;
    /// assert!(before.check("alice").is_allowed());
    /// let bytes = before.snapshot();
    ///
    /// let after = build()?;
    /// after.restore(&bytes)?;
    /// assert!(after.check("alice").is_denied());
    /// assert!(after.restore(&bytes[1..]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Vec<u8> {
        self.store.snapshot(self.store.newest())
    }

    /// Sets the debts of all keys to those in a snapshot, less the debt that time has paid since.
    ///
    /// If this limiter's clock is behind the snapshot's clock (it was stepped back, or has another origin), the debts
    /// continue from this limiter's present time, as if no time had passed since the snapshot. Call this method before
    /// the limiter is in use: charges made during the call may be lost.
    ///
    /// To change the quota over a restart, restore a limiter with the old quota, make it
    /// [`adjustable`](RateLimiter::adjustable), and [set](RateLimiter::set_quota) the new quota.
    ///
    /// # Errors
    /// Returns an error if the bytes were cut or changed, or come from a limiter that decides differently or has
    /// another hasher or size. The error names the difference. Two limiters decide in the same way if their algorithm,
    /// quota, tiers and overdraft are the same. GCRA, the greedy token bucket and the leaky bucket as a meter count as
    /// one algorithm here. An error changes nothing.
    ///
    /// # Complexity
    /// O(memory).
    pub fn restore(&self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        self.store.restore(snapshot, self.time())
    }
}

#[cfg(feature = "std")]
impl<A: CompactAlgorithm, H: BuildHasher + Clone, C> RateLimiter<crate::store::Adjustable<Compact<A, H>>, C> {
    /// Returns the algorithm that is in force.
    pub fn algorithm(&self) -> A {
        self.store.present(|store| store.algorithm().clone())
    }
}

/// The figures and the tiers of a compact limiter, whether it is [adjustable](RateLimiter::adjustable) or not.
impl<P, A, H, C> RateLimiter<P, C>
where
    P: PresentStore<Store = Compact<A, H>>,
    A: CompactAlgorithm,
    H: BuildHasher,
    C: Clock,
{
    /// Returns a quota for single calls ([`RateLimiter::check_with`]): for tiers, and for exceptions of single keys.
    /// Make it once and keep it.
    ///
    /// The limiter rounds a tier's interval up to its ticks. The tier's rate may therefore be lower than its quota's by
    /// up to 1/256, but never higher. A debt that was charged under another quota counts less under this tier, by the
    /// same ratio.
    ///
    /// # Errors
    /// Returns an error if this limiter's words cannot hold the quota. Windows need the same period. Other quotas need
    /// an interval of at least 256 of the limiter's ticks, and a full burst that refills in no longer than the
    /// limiter's own. Quotas passed to [`Builder::tiers`](crate::Builder::tiers) always fit.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(2));
    /// let premium = limiter.tier(&Quota::per_minute(100))?;
    /// assert!(limiter.check_with("alice", 50, &premium).is_allowed());
    /// assert!(limiter.check_n("bob", 50).is_never());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn tier(&self, quota: &Quota) -> Result<Tier<A>, QuotaError> {
        self.store.present(|store| store.tier(quota))
    }

    /// Returns the number of slots, and counts of the limiter's actions for lack of free slots, such as evictions.
    /// These counts are zero if the limiter is large enough. In an [adjustable](RateLimiter::adjustable) limiter, they begin
    /// again with each change of the quota.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Capacity, Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(Gcra::new(Quota::per_hour(1))).capacity(Capacity::slots(64)).compact()?;
    /// for key in 0..1_000 {
    ///     let _ = limiter.check(&key);
    /// }
    /// assert!(limiter.gauges().evicted > 0);
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn gauges(&self) -> Gauges {
        self.store.present(Compact::gauges)
    }

    /// Returns the share of slots whose keys owe now by the clock, from 0 to 1. An estimate if the table has more than
    /// 4,096 slots. Above about 0.6, full buckets become common.
    ///
    /// # Complexity
    /// O(1): it reads at most 4,096 slots. The first call after a change of the quota is O(slots), because it looks up all
    /// keys that owe.
    pub fn fill(&self) -> f64 {
        self.store.with_all_keys(|| self.time(), |store| store.fill(self.time()))
    }

    /// Returns the number of slots whose keys owe now by the clock.
    ///
    /// This is what a compact limiter has instead of `len`: it does not know its keys, and a key that owes nothing takes no
    /// slot. For a page of figures that is read often, [`fill`](RateLimiter::fill) is an estimate of the same in O(1).
    ///
    /// # Complexity
    /// O(slots).
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Carry, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_hour(5)).adjustable();
    /// assert!((0..20).all(|key| limiter.check(&key).is_allowed()));
    /// limiter.set_quota(&Quota::per_hour(10), Carry::AsIs)?;
    /// assert_eq!(limiter.live_slots(), 20);
    /// limiter.clear();
    /// assert_eq!(limiter.live_slots(), 0);
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    #[doc(alias = "len")]
    pub fn live_slots(&self) -> usize {
        self.store.with_all_keys(|| self.time(), |store| store.live_slots(self.time()))
    }
}

/// The figures of a compact limiter whose checks have given times.
impl<P, A, H, C> At<'_, RateLimiter<P, C>>
where
    P: PresentStore<Store = Compact<A, H>>,
    A: CompactAlgorithm,
    H: BuildHasher,
{
    /// [`RateLimiter::fill`] at this time.
    #[must_use]
    pub fn fill(self) -> f64 {
        self.store().with_all_keys(|| self.time(), |store| store.fill(self.time()))
    }

    /// [`RateLimiter::live_slots`] at this time.
    #[must_use]
    pub fn live_slots(self) -> usize {
        self.store().with_all_keys(|| self.time(), |store| store.live_slots(self.time()))
    }
}
