//! What limiters that keep fingerprints of keys have besides.

use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};

use super::RateLimiter;
use crate::algorithm::CompactAlgorithm;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError};
use crate::store::{Compact, Gauges, HashedStore, SnapshotError, Tier};

impl<A: CompactAlgorithm, H: BuildHasher, C: Clock> RateLimiter<Compact<A, H>, C> {
    /// Checks `cost` units for `key` at `now` under a quota of the caller's, made by [`RateLimiter::tier`]. What was
    /// charged under one quota stays charged under all.
    ///
    /// A tier that was made by a limiter of another layout is not used: the limiter's own quota decides instead. Debug
    /// builds panic.
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_with<Q: Hash + ?Sized>(
        &self,
        key: &Q,
        tier: &Tier<A>,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        self.store.charge_with(tier, self.store.hash(key), CheckTime::given(now), cost)
    }

    /// A quota for single calls ([`RateLimiter::check_with`]): tiers, and exceptions for single keys. Make it once and
    /// keep it.
    ///
    /// # Errors
    /// If this limiter's words cannot hold it: windows need the same period; other quotas an interval of at least 256 of the
    /// limiter's ticks, and a full burst that refills in no longer than the limiter's own. Quotas named to
    /// [`Builder::tiers`](crate::Builder::tiers) always fit.
    ///
    /// A tier's interval is rounded up to the limiter's ticks, so its rate may be lower by up to 1/256, never higher; a debt
    /// from other tiers weighs less against it by as much.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(2));
    /// let premium = limiter.tier(&Quota::per_minute(100))?;
    /// let now = limiter.clock().now();
    /// assert!(limiter.check_with("alice", &premium, 50, now).is_allowed());
    /// assert!(limiter.check_at("bob", 50, now).is_never());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn tier(&self, quota: &Quota) -> Result<Tier<A>, QuotaError> {
        self.store.tier(quota)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }

    /// Makes `key` owe nothing; says whether it owed anything at the newest time of a charge to this limiter.
    ///
    /// With [`Overflow::Spill`](crate::Overflow::Spill), a debt that was spilled once stays in the sketch until it is paid: if the key's slot is
    /// given to another before, the key may meet it again. With [`Overflow::Inherit`](crate::Overflow::Inherit) a reset is the one thing by which a
    /// key that is being put in at the same moment can come to have two slots, and be admitted its burst once more.
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
    /// O(1), lock-free: a look, and one exchange if it owed anything.
    pub fn reset<Q: Hash + ?Sized>(&self, key: &Q) -> bool {
        self.store.reset(self.store.hash(key), self.store.newest())
    }

    /// [`RateLimiter::reset`], with whether the key owed anything at a time that the caller says.
    pub fn reset_at<Q: Hash + ?Sized>(&self, key: &Q, now: Timestamp) -> bool {
        self.store.reset(self.store.hash(key), CheckTime::given(now))
    }

    /// What the limiter has done for want of room: all zero if it is large enough.
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
        self.store.gauges()
    }

    /// The share of slots whose keys owe now by the clock, from 0 to 1: an estimate from 4,096 slots. Above about 0.6, full buckets
    /// become common.
    ///
    /// # Complexity
    /// O(1): it looks at 4,096 slots at most.
    pub fn load(&self) -> f64 {
        self.store.load(self.time(None))
    }

    /// [`RateLimiter::load`] at a time that the caller says: for limiters whose checks are given times too.
    pub fn load_at(&self, now: Timestamp) -> f64 {
        self.store.load(CheckTime::given(now))
    }

    /// How many slots hold keys that owe now by the clock.
    ///
    /// # Complexity
    /// O(slots).
    pub fn live_slots(&self) -> usize {
        self.store.live_slots(self.time(None))
    }

    /// [`RateLimiter::live_slots`] at a time that the caller says: for limiters whose checks are given times too.
    pub fn live_slots_at(&self, now: Timestamp) -> usize {
        self.store.live_slots(CheckTime::given(now))
    }

    /// What all keys owe now, as bytes, to be kept across a restart.
    ///
    /// It is taken as of the newest time of a charge to this limiter, by the clock or given. (What is paid by the time of the restore
    /// is left out then.) Where the times of some keys lag, give [`RateLimiter::snapshot_at`] the oldest time that a check may
    /// still have, so that no debt is missing.
    ///
    /// Each key's debt is one that it had at some time during the call.
    /// To be restored elsewhere the limiter must have
    /// a hasher whose keys are known ([`Builder::hasher`](crate::Builder::hasher)); keep them secret, as you would a password.
    ///
    /// # Complexity
    /// O(memory); 16 bytes for each key that owes, and 10 for each cell of the sketch that does.
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

    /// [`RateLimiter::snapshot`] as of a time that the caller says. Debts that are paid by then are left out.
    pub fn snapshot_at(&self, now: Timestamp) -> Vec<u8> {
        self.store.snapshot(CheckTime::given(now))
    }

    /// Makes all keys owe what a snapshot says, less what has been paid since by the time that passed.
    ///
    /// A clock that is behind the snapshot's (it was stepped back, or begins elsewhere) goes on from where the snapshot was
    /// taken, as if no time had passed. To be called before the limiter is in use: charges made meanwhile may be lost.
    ///
    /// A quota that is to change over a restart: restore a limiter of the old quota, make it
    /// [`adjustable`](RateLimiter::adjustable), and [set](RateLimiter::set_quota) the new one.
    ///
    /// # Errors
    /// If the bytes are not a snapshot of a limiter that decides alike, with this hasher and size, or were cut or changed; the error
    /// says what differs. Limiters decide alike if algorithm, quota, tiers and overdraft are the same. (GCRA, the greedy token
    /// bucket and the leaky bucket as a meter are one algorithm here.) Then nothing is changed here.
    ///
    /// # Complexity
    /// O(memory).
    pub fn restore(&self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        self.store.restore(snapshot, self.time(None))
    }

    /// [`RateLimiter::restore`] at a time that the caller says: for limiters whose checks are given times too.
    ///
    /// # Errors
    /// As [`RateLimiter::restore`].
    pub fn restore_at(&self, snapshot: &[u8], now: Timestamp) -> Result<(), SnapshotError> {
        self.store.restore(snapshot, CheckTime::given(now))
    }
}
