//! A limiter at a given time: the methods of [`RateLimiter`] that depend on the time.

use core::hash::BuildHasher;
#[cfg(feature = "std")]
use core::hash::Hash;
use core::time::Duration;

use super::RateLimiter;
use crate::algorithm::CompactAlgorithm;
#[cfg(feature = "std")]
use crate::algorithm::{Limit, WindowAlgorithm};
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp, saturating_nanos};
use crate::base::decision::Decision;
#[cfg(feature = "std")]
use crate::base::quota::{Quota, QuotaError};
#[cfg(feature = "std")]
use crate::store::{Adjustable, AnyStore, Carry, Rebuild, Saturation, Sketch};
use crate::store::{Compact, HashedStore, ManyKeys, Operation, SnapshotError, Store};

/// A limiter at a given time. Created by [`RateLimiter::at`] and by the method `at` of other limiters.
///
/// Each method decides as the limiter's method with the same name does, but at this time instead of the clock's time.
#[derive(Debug)]
pub struct At<'l, L> {
    pub(crate) limiter: &'l L,
    pub(crate) now: Timestamp,
}

impl<'l, L> At<'l, L> {
    #[inline(always)]
    pub(crate) const fn new(limiter: &'l L, now: Timestamp) -> Self {
        Self { limiter, now }
    }
}

impl<L> Clone for At<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for At<'_, L> {}

impl<S, C> RateLimiter<S, C> {
    /// Returns this limiter at the time `now`, with every method that depends on the time. The limiter's clock is not
    /// read.
    ///
    /// Some calls may give a time and others read the clock. The given times may come from clocks that differ. A `now`
    /// before an earlier call's time can only deny more, by less than the step back. There is one exception: if a keyed
    /// store has removed the key because it was idle at the latest time of any call, the key starts with its full
    /// quota.
    ///
    /// A compact store treats a `now` that is far behind in a special way. If `now` is behind the newest time by more
    /// than a quarter of the [range](crate::Compact) of the words, the store uses the time at that quarter instead. If
    /// such times continue for a second (or for the time that a burst takes to refill, if that is longer) and no other
    /// call has a newer time, the store concludes that the newest time was wrong. It then replaces the newest time by
    /// the time of these calls, and each key may get one more burst.
    ///
    /// A [striped](crate::leases::Leases) limiter may spend units for up to one lease life after it charged them.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimiter, Timestamp};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(1));
    /// let noon = Timestamp::from_secs(43_200); // the time in a log, for example
    /// assert!(limiter.at(noon).check("alice").is_allowed());
    /// assert!(limiter.at(noon + Duration::from_secs(59)).check("alice").is_denied());
    /// assert!(limiter.at(noon + Duration::from_secs(60)).check("alice").is_allowed());
    /// ```
    #[inline(always)]
    pub const fn at(&self, now: Timestamp) -> At<'_, Self> {
        At::new(self, now)
    }
}

/// A limiter and the time of a call: the time that its clock shows, or a given time.
pub(crate) trait Timed {
    /// The limiter's store.
    type Store;

    fn store(&self) -> &Self::Store;

    fn time(&self) -> CheckTime;

    #[inline(always)]
    fn apply<Q: ?Sized>(&self, key: &Q, operation: Operation, cost: u64) -> Decision
    where
        Self::Store: Store<Q>,
    {
        let key = self.store().prepare(key);
        // The processor fetches the key's memory while the limiter reads the clock.
        self.store().prefetch(key);
        let decision = self.store().apply(key, operation, self.time(), cost);
        match operation {
            Operation::Take | Operation::Force => decision.with_charged_cost(),
            _ => decision,
        }
    }

    #[inline(always)]
    fn apply_hash(&self, hash: u64, cost: u64) -> Decision
    where
        Self::Store: HashedStore,
    {
        let key = self.store().prepare_hash(hash);
        self.store().prefetch(key);
        self.store().apply(key, Operation::Check, self.time(), cost)
    }

    #[inline]
    fn peek_key<Q: ?Sized>(&self, key: &Q, cost: u64) -> Decision
    where
        Self::Store: Store<Q>,
    {
        self.store().peek(self.store().prepare(key), self.time(), cost)
    }

    #[inline]
    fn refund_key<Q: ?Sized>(&self, key: &Q, charge: &Decision, units: u64) -> u64
    where
        Self::Store: Store<Q>,
    {
        match units.min(charge.charged()) {
            0 => 0,
            units => self.store().refund(self.store().prepare(key), self.time(), charge, units),
        }
    }

    #[inline]
    fn give_back_key<Q: ?Sized>(&self, key: &Q, units: u64) -> u64
    where
        Self::Store: Store<Q>,
    {
        match units {
            0 => 0,
            units => self.store().give_back(self.store().prepare(key), self.time(), units),
        }
    }

    #[inline]
    fn settle_key<Q: ?Sized>(&self, key: &Q, charge: &Decision, actual: u64) -> Decision
    where
        Self::Store: Store<Q>,
    {
        let (key, at, charged) = (self.store().prepare(key), self.time(), charge.charged());
        if actual > charged {
            return self.store().apply(key, Operation::Force, at, actual - charged).with_charged_cost();
        }
        if actual < charged {
            self.store().refund(key, at, charge, charged - actual);
        }
        self.store().peek(key, at, 0)
    }
}

pub(super) fn reserve(max_wait: Duration) -> Operation {
    Operation::Reserve { wait_ns: saturating_nanos(max_wait) }
}

impl<S, C: Clock> Timed for RateLimiter<S, C> {
    type Store = S;

    #[inline(always)]
    fn store(&self) -> &S {
        &self.store
    }

    #[inline(always)]
    fn time(&self) -> CheckTime {
        CheckTime::read(&self.clock)
    }
}

impl<S, C> Timed for At<'_, RateLimiter<S, C>> {
    type Store = S;

    #[inline(always)]
    fn store(&self) -> &S {
        &self.limiter.store
    }

    #[inline(always)]
    fn time(&self) -> CheckTime {
        CheckTime::given(self.now)
    }
}

/// The methods of limiters with keys.
impl<S: ManyKeys, C> At<'_, RateLimiter<S, C>> {
    /// [`RateLimiter::check`] at this time.
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check<Q: ?Sized>(self, key: &Q) -> Decision
    where
        S: Store<Q>,
    {
        self.check_n(key, 1)
    }

    /// [`RateLimiter::check_n`] at this time.
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_n<Q: ?Sized>(self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Check, cost)
    }

    /// [`RateLimiter::peek`] at this time.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn peek<Q: ?Sized>(self, key: &Q) -> Decision
    where
        S: Store<Q>,
    {
        self.peek_n(key, 1)
    }

    /// [`RateLimiter::peek_n`] at this time.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn peek_n<Q: ?Sized>(self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.peek_key(key, cost)
    }

    /// [`RateLimiter::check_each`] at this time.
    #[inline]
    pub fn check_each<'k, Q>(
        self,
        requests: impl IntoIterator<Item = (&'k Q, u64)>,
        decided: impl FnMut(Decision),
    ) where
        S: Store<Q>,
        Q: ?Sized + 'k,
    {
        let store = &self.limiter.store;
        let requests = requests.into_iter().map(|(key, cost)| (store.prepare(key), cost));
        store.check_each(requests, self.time(), decided);
    }

    /// [`RateLimiter::take`] at this time.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn take<Q: ?Sized>(self, key: &Q, most: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Take, most)
    }

    /// [`RateLimiter::charge_unchecked`] at this time.
    pub fn charge_unchecked<Q: ?Sized>(self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Force, cost)
    }

    /// [`RateLimiter::check_oversized`] at this time.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_oversized<Q: ?Sized>(self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::CheckOversized, cost)
    }

    /// [`RateLimiter::refund`] at this time.
    pub fn refund<Q: ?Sized>(self, key: &Q, charge: &Decision) -> u64
    where
        S: Store<Q>,
    {
        self.refund_n(key, charge, charge.cost())
    }

    /// [`RateLimiter::refund_n`] at this time.
    pub fn refund_n<Q: ?Sized>(self, key: &Q, charge: &Decision, units: u64) -> u64
    where
        S: Store<Q>,
    {
        self.refund_key(key, charge, units)
    }

    /// [`RateLimiter::give_back`] at this time.
    pub fn give_back<Q: ?Sized>(self, key: &Q, units: u64) -> u64
    where
        S: Store<Q>,
    {
        self.give_back_key(key, units)
    }

    /// [`RateLimiter::settle`] at this time.
    pub fn settle<Q: ?Sized>(self, key: &Q, charge: &Decision, actual: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.settle_key(key, charge, actual)
    }

    /// [`RateLimiter::reserve`] at this time.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn reserve<Q: ?Sized>(self, key: &Q, cost: u64, max_wait: Duration) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, reserve(max_wait), cost)
    }
}

/// The methods of limiters that identify keys by their hashes.
impl<S: HashedStore, C> At<'_, RateLimiter<S, C>> {
    /// [`RateLimiter::check_hash`] at this time.
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_hash(self, hash: u64, cost: u64) -> Decision {
        self.apply_hash(hash, cost)
    }

    /// [`RateLimiter::check_each_hash`] at this time.
    #[inline]
    pub fn check_each_hash(
        self,
        requests: impl IntoIterator<Item = (u64, u64)>,
        decided: impl FnMut(Decision),
    ) {
        let store = &self.limiter.store;
        let requests = requests.into_iter().map(|(hash, cost)| (store.prepare_hash(hash), cost));
        store.check_each(requests, self.time(), decided);
    }
}

/// The methods of compact limiters.
impl<A: CompactAlgorithm, H: BuildHasher, C> At<'_, RateLimiter<Compact<A, H>, C>> {
    /// [`RateLimiter::reset`], which returns whether the key owed anything at this time.
    pub fn reset<Q: core::hash::Hash + ?Sized>(self, key: &Q) -> bool {
        self.limiter.store.reset(self.limiter.store.hash(key), self.time())
    }

    /// [`RateLimiter::snapshot`] as of this time. It leaves out debts that are paid by then.
    #[must_use]
    pub fn snapshot(self) -> alloc::vec::Vec<u8> {
        self.limiter.store.snapshot(self.time())
    }

    /// [`RateLimiter::restore`] at this time: for limiters whose checks have given times.
    ///
    /// # Errors
    /// The same as [`RateLimiter::restore`].
    pub fn restore(self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        self.limiter.store.restore(snapshot, self.time())
    }
}

/// The method of limiters with a sketch.
#[cfg(feature = "std")]
impl<A: WindowAlgorithm, H: BuildHasher, C> At<'_, RateLimiter<Sketch<A, H>, C>> {
    /// [`RateLimiter::saturation`] at this time: for limiters whose checks have given times.
    #[must_use]
    pub fn saturation(self) -> Saturation {
        self.limiter.store.saturation(self.time().ns())
    }
}

/// The method of limiters whose quota can change.
#[cfg(feature = "std")]
impl<S: Rebuild, C> At<'_, RateLimiter<Adjustable<S>, C>> {
    /// [`RateLimiter::set_quota`] as of this time, or as of the latest charge if that is later.
    ///
    /// # Errors
    /// The same as [`RateLimiter::set_quota`].
    pub fn set_quota(self, quota: &Quota, carry: Carry) -> Result<(), QuotaError> {
        self.limiter.store.set_quota(quota, carry, || self.time())
    }
}

/// The method of limiters whose algorithm was chosen at run time.
#[cfg(feature = "std")]
impl<K, C, H> At<'_, RateLimiter<Adjustable<AnyStore<K, H>>, C>>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    H: BuildHasher + Clone,
{
    /// [`RateLimiter::set_limit`] as of this time, or as of the latest charge if that is later.
    ///
    /// # Errors
    /// The same as [`RateLimiter::set_limit`].
    pub fn set_limit(self, limit: Limit, carry: Carry) -> Result<(), QuotaError> {
        self.limiter.change_limit(limit, carry, || self.time())
    }
}
