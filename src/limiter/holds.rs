//! Units that are taken now and settled later.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::RateLimiter;
use super::at::{At, Timed};
use crate::algorithm::Algorithm;
use crate::base::clock::{Clock, saturating_nanos};
use crate::base::decision::{Decision, Denied};
use crate::base::quota::{QuotaError, Reason};
use crate::store::op::StoreBase;
use crate::store::{Direct, HoldId, Holding, ManyKeys, Operation, Store};

impl<S: StoreBase, C> RateLimiter<S, C> {
    /// Makes a limiter whose units can be [held](RateLimiter::hold): taken now, and settled later. At most `most` holds
    /// can exist at the same time.
    ///
    /// # Errors
    /// Returns an error if the limiter cannot refund: a log, a sketch, a queue, or a compact store with
    /// [`Overflow::Inherit`](crate::Overflow::Inherit).
    ///
    /// # Memory
    /// A hold takes about 400 bytes until it is settled. If its holder never settles it, it takes them until its life
    /// has ended: each new hold releases two of those that have ended, of whichever keys.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// // 10,000 tokens per minute and key. The cost of an answer is known at its end.
    /// let tokens = RateLimiter::new(Quota::per_minute(10_000)).with_holds(1_000)?;
    /// let hold = tokens.hold("alice", 4_000, Duration::from_secs(60)).expect("10,000 are left");
    /// assert_eq!(tokens.peek("alice").remaining(), 6_000);
    /// let after = hold.commit(1_500); // the answer had 1,500 tokens
    /// assert_eq!(after.remaining(), 8_500);
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn with_holds(self, most: usize) -> Result<RateLimiter<Holding<S>, C>, QuotaError> {
        if !self.store.can_refund() {
            return Err(Reason::CannotHold.into());
        }
        Ok(RateLimiter { store: Holding::new(self.store, most), clock: self.clock, lines: self.lines })
    }
}

impl<S, C> RateLimiter<Holding<S>, C> {
    /// Returns the number of holds that are not settled yet, including those that have ended and were not needed
    /// since.
    pub fn holds(&self) -> usize {
        self.store.holds()
    }
}

// The functions behind the methods of limiters, with keys and without, at the time of the clock or at a given time.

fn hold<S: Store<Q>, Q: Hash + ?Sized>(
    limiter: &impl Timed<Store = Holding<S>>,
    key: &Q,
    units: u64,
    life: Duration,
) -> Result<(HoldId, Decision), Denied> {
    let at = limiter.time();
    let end_ns = at.ns().saturating_add(saturating_nanos(life));
    limiter.store().hold(key, at, units, end_ns).map_err(Denied::of)
}

fn commit<S: Store<Q>, Q: Hash + ?Sized>(
    limiter: &impl Timed<Store = Holding<S>>,
    key: &Q,
    id: HoldId,
    actual: u64,
) -> Decision {
    match limiter.store().take(key, id, limiter.time()) {
        Some(charge) => limiter.settle_key(key, &charge, actual),
        None => limiter.apply(key, Operation::Force, actual),
    }
}

fn release<S: Store<Q>, Q: Hash + ?Sized>(
    limiter: &impl Timed<Store = Holding<S>>,
    key: &Q,
    id: HoldId,
) -> u64 {
    limiter.store().release(key, id, limiter.time())
}

/// Units that are taken now and settled later. See [`RateLimiter::with_holds`].
impl<S: ManyKeys, C: Clock> RateLimiter<Holding<S>, C> {
    /// Takes `units` for work whose cost is known later, or denies the work.
    ///
    /// The units are charged now, so other requests of the key do not get them. Later, one of these events settles the
    /// hold:
    /// - [`Hold::commit`] charges the actual cost, and releases the rest. More than was held is charged as well, and can
    ///   leave a debt.
    /// - A hold that is dropped releases all its units.
    /// - [`RateLimiter::commit`] and [`RateLimiter::release`] do the same by the hold's [identity](Hold::id).
    /// - A hold whose `life` has ended releases its units by itself: the next decision about the key that would be
    ///   denied looks for such holds. It releases up to 64 of them. Each new hold, of any key, releases two as well.
    ///
    /// To release means to [refund](RateLimiter::refund): the units that time has paid are not returned twice.
    ///
    /// Other verbs of the limiter, such as [`RateLimiter::check`], count the units of all holds.
    ///
    /// # Errors
    /// Returns the denial if the key cannot spend the units now, and also if the limiter has its largest number of
    /// holds that have not ended. In that case the limiter says to retry in a second, and the key is not charged.
    ///
    /// # Consistency
    /// Each hold is settled once, whatever races. A thread that settles a hold may wait for another thread that uses a
    /// hold of the same key, for less than a microsecond. Checks wait only if they would be denied.
    ///
    /// # Complexity
    /// A check, and O(log holds) under a mutex that few keys share. Allocates.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
    ///
    /// let clock = ManualClock::default();
    /// let build = RateLimiter::builder(Gcra::new(Quota::per_hour(100))).clock(clock.clone());
    /// let limiter = build.keyed::<String>().with_holds(1_000)?;
    ///
    /// let hold = limiter.hold("alice", 80, Duration::from_secs(60)).expect("100 are left");
    /// assert!(limiter.check_n("alice", 30).is_denied());
    /// drop(hold); // the work failed
    /// assert!(limiter.check_n("alice", 30).is_allowed());
    ///
    /// let lost = limiter.hold("alice", 70, Duration::from_secs(60)).expect("70 are left");
    /// std::mem::forget(lost); // it is never settled
    /// assert!(limiter.check_n("alice", 30).is_denied());
    /// clock.advance(Duration::from_secs(60));
    /// assert!(limiter.check_n("alice", 30).is_allowed());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn hold<'a, Q: Hash + ?Sized>(
        &'a self,
        key: &'a Q,
        units: u64,
        life: Duration,
    ) -> Result<Hold<'a, S, C, Q>, Denied>
    where
        S: Store<Q>,
    {
        let (id, decision) = hold(self, key, units, life)?;
        Ok(Hold { limiter: self, key, id, decision })
    }

    /// Settles the hold with this identity: charges `actual` units, and releases the rest of the hold. Returns the
    /// state of the key afterwards.
    ///
    /// If the hold was settled, or its life has ended, this call charges `actual` as of now, as
    /// [`RateLimiter::charge_unchecked`] does. Units that were used are never lost.
    pub fn commit<Q: Hash + ?Sized>(&self, key: &Q, id: HoldId, actual: u64) -> Decision
    where
        S: Store<Q>,
    {
        commit(self, key, id, actual)
    }

    /// Releases the hold with this identity. Returns the number of refunded units, which is zero if the hold is not
    /// there any more.
    pub fn release<Q: Hash + ?Sized>(&self, key: &Q, id: HoldId) -> u64
    where
        S: Store<Q>,
    {
        release(self, key, id)
    }
}

impl<S: ManyKeys, C> At<'_, RateLimiter<Holding<S>, C>> {
    /// [`RateLimiter::hold`] at this time. Returns the identity, because a [`Hold`] reads the clock when it is dropped.
    ///
    /// # Errors
    /// The same as for [`RateLimiter::hold`].
    pub fn hold<Q: Hash + ?Sized>(self, key: &Q, units: u64, life: Duration) -> Result<HoldId, Denied>
    where
        S: Store<Q>,
    {
        hold(&self, key, units, life).map(|(id, _)| id)
    }

    /// [`RateLimiter::commit`] at this time.
    pub fn commit<Q: Hash + ?Sized>(self, key: &Q, id: HoldId, actual: u64) -> Decision
    where
        S: Store<Q>,
    {
        commit(&self, key, id, actual)
    }

    /// [`RateLimiter::release`] at this time.
    pub fn release<Q: Hash + ?Sized>(self, key: &Q, id: HoldId) -> u64
    where
        S: Store<Q>,
    {
        release(&self, key, id)
    }
}

/// The same for a limiter without keys.
impl<A: Algorithm, C: Clock> RateLimiter<Holding<Direct<A>>, C> {
    /// Takes `units` for work whose cost is known later: see [`RateLimiter::hold`] of limiters with keys.
    ///
    /// # Errors
    /// Returns the denial if the limiter cannot admit the units now, or has its largest number of holds.
    pub fn hold(&self, units: u64, life: Duration) -> Result<Hold<'_, Direct<A>, C, ()>, Denied> {
        let (id, decision) = hold(self, &(), units, life)?;
        Ok(Hold { limiter: self, key: &(), id, decision })
    }

    /// Settles the hold with this identity: see [`RateLimiter::commit`] of limiters with keys.
    pub fn commit(&self, id: HoldId, actual: u64) -> Decision {
        commit(self, &(), id, actual)
    }

    /// Releases the hold with this identity. Returns the number of refunded units.
    pub fn release(&self, id: HoldId) -> u64 {
        release(self, &(), id)
    }
}

impl<A: Algorithm, C> At<'_, RateLimiter<Holding<Direct<A>>, C>> {
    /// [`RateLimiter::hold`] at this time. Returns the identity, because a [`Hold`] reads the clock when it is dropped.
    ///
    /// # Errors
    /// The same as for [`RateLimiter::hold`].
    pub fn hold(self, units: u64, life: Duration) -> Result<HoldId, Denied> {
        hold(&self, &(), units, life).map(|(id, _)| id)
    }

    /// [`RateLimiter::commit`] at this time.
    pub fn commit(self, id: HoldId, actual: u64) -> Decision {
        commit(&self, &(), id, actual)
    }

    /// [`RateLimiter::release`] at this time.
    pub fn release(self, id: HoldId) -> u64 {
        release(&self, &(), id)
    }
}

/// Units that are taken from a [limiter](RateLimiter::hold). Dropping it releases them.
#[must_use = "a hold that is dropped is released"]
pub struct Hold<'a, S: Store<Q>, C: Clock, Q: Hash + ?Sized> {
    limiter: &'a RateLimiter<Holding<S>, C>,
    key: &'a Q,
    id: HoldId,
    decision: Decision,
}

impl<S: Store<Q>, C: Clock, Q: Hash + ?Sized> Hold<'_, S, C, Q> {
    /// Returns the identity, by which another thread or program can settle the hold.
    #[must_use]
    pub fn id(&self) -> HoldId {
        self.id
    }

    /// Returns the decision that took the units. Its cost is the number of units.
    #[must_use]
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Leaves the hold to a caller that knows its identity. Otherwise it ends with its life.
    pub fn detach(self) -> HoldId {
        let id = self.id;
        std::mem::forget(self);
        id
    }

    /// Charges `actual` units, and releases the rest of the hold. Returns the state of the key afterwards.
    ///
    /// If `actual` is more than was held, the difference is charged even if the key cannot spend it, and leaves a debt.
    /// If the life of the hold has ended, this call releases the hold, and charges `actual` as of now.
    pub fn commit(self, actual: u64) -> Decision {
        let (limiter, key) = (self.limiter, self.key);
        commit(limiter, key, self.detach(), actual)
    }
}

impl<S: Store<Q>, C: Clock, Q: Hash + ?Sized> Drop for Hold<'_, S, C, Q> {
    fn drop(&mut self) {
        release(self.limiter, self.key, self.id);
    }
}

impl<S: Store<Q>, C: Clock, Q: Hash + ?Sized> fmt::Debug for Hold<'_, S, C, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("id", &self.id).field("units", &self.decision.cost()).finish()
    }
}
