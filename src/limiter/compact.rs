//! Limiters that keep fingerprints of keys.

use std::hash::{BuildHasher, Hash};

use super::RateLimiter;
use crate::algorithm::CompactAlgorithm;
use crate::clock::{Clock, Timestamp};
use crate::decision::Decision;
use crate::quota::{Quota, QuotaError};
use crate::store::{Compact, Gauges, SnapshotError, Tier};

/// Keys are of any type that hashes, and may differ from call to call; equal hashes are equal keys. `&str` and
/// `String` hash alike, an integer and its text do not.
impl<A, H, C> RateLimiter<Compact<A, H>, C>
where
    A: CompactAlgorithm,
    H: BuildHasher,
    C: Clock,
{
    /// Checks one unit for `key` now, and charges it if it is allowed.
    ///
    /// # Complexity
    /// O(1): a clock reading, a hash, one cache line, and one exchange if it is allowed. Never allocates. Lock-free; a denial
    /// writes nothing, but for a count when a newcomer is denied for a debt that was [spilled or
    /// inherited](crate::Overflow).
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
    pub fn check<Q: Hash + ?Sized>(&self, key: &Q) -> Decision {
        self.check_n(key, 1)
    }

    /// Checks `cost` units for `key` now, and charges all of them or none.
    #[inline]
    pub fn check_n<Q: Hash + ?Sized>(&self, key: &Q, cost: u64) -> Decision {
        self.store.charge(self.store.hash(key), &self.clock, cost)
    }

    /// Checks `cost` units for `key` at a time that the caller says.
    ///
    /// A `now` behind an earlier call's can only deny more, by less than the step back, as long as it is less than half the
    /// [range](crate::Compact) of the words. (The limiter's own *clock* stepping back by more than a full burst takes to
    /// refill makes keys start anew instead: nobody is locked out by a clock that was wrong.)
    #[inline]
    pub fn check_at<Q: Hash + ?Sized>(&self, key: &Q, cost: u64, now: Timestamp) -> Decision {
        self.store.charge_at(self.store.hash(key), &self.clock, now.as_nanos(), cost)
    }

    /// Checks `cost` units for `key` at `now` under a quota of the caller's, made by [`RateLimiter::tier`]. What was
    /// charged under one quota stays charged under all.
    ///
    /// A tier that was made by a limiter of another layout is not used: the limiter's own quota decides instead. Debug
    /// builds panic.
    #[inline]
    pub fn check_with<Q: Hash + ?Sized>(
        &self,
        key: &Q,
        tier: &Tier<A>,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        self.store.charge_with(tier, self.store.hash(key), &self.clock, now.as_nanos(), cost)
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
    pub fn check_hash(&self, hash: u64, cost: u64) -> Decision {
        self.store.charge(hash, &self.clock, cost)
    }

    /// Checks `cost` units for the key with this hash at a time that the caller says; see [`RateLimiter::check_hash`].
    #[inline]
    pub fn check_hash_at(&self, hash: u64, cost: u64, now: Timestamp) -> Decision {
        self.store.charge_at(hash, &self.clock, now.as_nanos(), cost)
    }

    /// Whether [`RateLimiter::check`] would be allowed now, and how things stand (what remains, when it resets), without
    /// charging.
    pub fn peek<Q: Hash + ?Sized>(&self, key: &Q) -> Decision {
        self.peek_n(key, 1)
    }

    /// Whether [`RateLimiter::check_n`] would be allowed now, and how things stand, without charging.
    pub fn peek_n<Q: Hash + ?Sized>(&self, key: &Q, cost: u64) -> Decision {
        self.store.peek(self.store.hash(key), &self.clock, cost)
    }

    /// Whether [`RateLimiter::check_at`] would be allowed, and how things stand, without charging.
    pub fn peek_at<Q: Hash + ?Sized>(&self, key: &Q, cost: u64, now: Timestamp) -> Decision {
        self.store.peek_at(self.store.hash(key), &self.clock, now.as_nanos(), cost)
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
        let requests = requests.into_iter().map(|(key, cost)| (self.store.hash(key), cost));
        self.store.charge_each(requests, &self.clock, decided);
    }

    /// [`RateLimiter::check_each`] for keys that are hashed already; see [`RateLimiter::check_hash`].
    #[inline]
    pub fn check_each_hash(
        &self,
        requests: impl IntoIterator<Item = (u64, u64)>,
        decided: impl FnMut(Decision),
    ) {
        self.store.charge_each(requests.into_iter(), &self.clock, decided);
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

    /// Makes `key` owe nothing; says whether it owed anything.
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
    pub fn reset<Q: Hash + ?Sized>(&self, key: &Q) -> bool {
        self.store.reset(self.store.hash(key), &self.clock)
    }

    /// Makes all keys owe nothing. Charges that other threads make meanwhile may be forgotten or not.
    ///
    /// # Complexity
    /// O(memory).
    pub fn clear(&self) {
        self.store.clear();
    }

    /// The bytes that keys' states take: table, sketch and doorkeeper. Fixed when the limiter is made; pages that no
    /// key has touched yet are not resident.
    pub fn state_bytes(&self) -> usize {
        self.store.state_bytes()
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

    /// The share of slots whose keys owe now, from 0 to 1: an estimate from 4,096 slots. Above about 0.6, full buckets
    /// become common.
    pub fn load(&self) -> f64 {
        self.store.load(self.now_ns())
    }

    /// How many slots hold keys that owe now.
    ///
    /// # Complexity
    /// O(slots).
    pub fn live_slots(&self) -> usize {
        self.store.live_slots(self.now_ns())
    }

    /// What all keys owe now, as bytes, to be kept across a restart.
    ///
    /// Each key's debt is one that it had at some time during the call. The doorkeeper of [`Overflow::Spill`](crate::Overflow::Spill) is not part of
    /// it: after a restore all newcomers ask the sketch for a while, so some may be denied early that would not have been.
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
        self.store.snapshot(&self.clock)
    }

    /// Makes all keys owe what a snapshot says, less what has been paid since by the time that passed.
    ///
    /// A clock that is behind the snapshot's (it was stepped back, or begins elsewhere) goes on from where the snapshot was
    /// taken, as if no time had passed. To be called before the limiter is in use: charges made meanwhile may be lost.
    ///
    /// # Errors
    /// If the bytes are not a snapshot of a limiter whose states mean the same (by algorithm, quota and tiers), with this hasher
    /// and size, or were cut or changed. Then nothing is changed here.
    pub fn restore(&self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        self.store.restore(snapshot, self.now_ns())
    }
}
