//! Units that are taken now and settled later, and limits on requests in progress.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::RateLimiter;
use super::at::{At, Timed};
use crate::algorithm::Algorithm;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, QuantaClock, Timestamp, saturating_nanos};
use crate::base::decision::{Decision, Denied, Facts, Outcome};
use crate::base::quota::{QuotaError, Reason};
use crate::store::holding::{Held, HoldBook, KeyStanding, NotKept, no_room};
use crate::store::op::Refunds;
use crate::store::{Direct, HoldId, Holding, ManyKeys, Operation, Store};

impl<S: Refunds, C> RateLimiter<S, C> {
    /// Makes a limiter whose units can be [held](RateLimiter::hold): taken now, and settled later. At most `most` holds
    /// can exist at the same time.
    ///
    /// # Errors
    /// Returns an error if the limiter cannot refund: a log, a sketch, a queue, or a compact store with
    /// [`Overflow::Inherit`](crate::Overflow::Inherit).
    ///
    /// # Memory
    /// A hold takes about 300 bytes until it is settled. If its holder never settles it, it takes them until its life
    /// has ended and time has paid its charge.
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

/// The verbs of a hold, at the time of the clock or at a given time.
trait HoldVerbs<S>: Timed<Store = Holding<S>> {
    fn hold_key<Q: Hash + ?Sized>(
        &self,
        key: &Q,
        units: u64,
        life: Duration,
    ) -> Result<(HoldId, Decision), Denied>
    where
        S: Store<Q>,
    {
        let at = self.time();
        let end_ns = at.ns().saturating_add(saturating_nanos(life));
        self.store().hold(key, at, units, end_ns).map_err(Denied::of)
    }

    fn commit_key<Q: Hash + ?Sized>(&self, key: &Q, id: HoldId, actual: u64) -> Decision
    where
        S: Store<Q>,
    {
        match self.store().take(key, id) {
            Some(charge) if self.time().ns() < id.end_ns() => return self.settle_key(key, &charge, actual),
            Some(charge) => self.refund_key(key, &charge, charge.cost()),
            None => 0,
        };
        self.apply(key, Operation::Force, actual)
    }

    fn release_key<Q: Hash + ?Sized>(&self, key: &Q, id: HoldId) -> u64
    where
        S: Store<Q>,
    {
        self.store().take(key, id).map_or(0, |charge| self.refund_key(key, &charge, charge.cost()))
    }
}

impl<S, T: Timed<Store = Holding<S>>> HoldVerbs<S> for T {}

/// Units that are taken now and settled later. See [`RateLimiter::with_holds`].
impl<S: ManyKeys, C: Clock> RateLimiter<Holding<S>, C> {
    /// Takes `units` for work whose cost is known later, or denies the work.
    ///
    /// The units are charged now, so other requests of the key do not get them. Later, one of these events settles the
    /// hold:
    /// - [`Hold::commit`] charges what was used, and releases the rest. More than was held is charged as well, and can
    ///   leave a debt.
    /// - A hold that is dropped releases all its units.
    /// - [`RateLimiter::commit`] and [`RateLimiter::release`] do the same by the hold's [identity](Hold::id).
    /// - A hold whose `life` has ended releases its units by itself: the next decision about the key that would be
    ///   denied looks for such holds. It releases up to 64 of them.
    ///
    /// To release means to [refund](RateLimiter::refund): the units that time has paid are not returned twice.
    ///
    /// Other verbs of the limiter, such as [`RateLimiter::check`], count the units of all holds.
    ///
    /// # Errors
    /// Returns the denial if the key cannot spend the units now, and also if the limiter has its largest number of
    /// holds. In that case the limiter says to retry in a second, and the key is not charged.
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
    /// std::mem::forget(lost); // nobody settles it
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
    ) -> Result<Hold<'a, Self, Q>, Denied>
    where
        S: Store<Q>,
    {
        let (id, decision) = self.hold_key(key, units, life)?;
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
        self.commit_key(key, id, actual)
    }

    /// Releases the hold with this identity. Returns the number of refunded units, which is zero if the hold is not
    /// there any more.
    pub fn release<Q: Hash + ?Sized>(&self, key: &Q, id: HoldId) -> u64
    where
        S: Store<Q>,
    {
        self.release_key(key, id)
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
        self.hold_key(key, units, life).map(|(id, _)| id)
    }

    /// [`RateLimiter::commit`] at this time.
    pub fn commit<Q: Hash + ?Sized>(self, key: &Q, id: HoldId, actual: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.commit_key(key, id, actual)
    }

    /// [`RateLimiter::release`] at this time.
    pub fn release<Q: Hash + ?Sized>(self, key: &Q, id: HoldId) -> u64
    where
        S: Store<Q>,
    {
        self.release_key(key, id)
    }
}

/// The same for a limiter without keys.
impl<A: Algorithm, C: Clock> RateLimiter<Holding<Direct<A>>, C> {
    /// Takes `units` for work whose cost is known later: see [`RateLimiter::hold`] of limiters with keys.
    ///
    /// # Errors
    /// Returns the denial if the limiter cannot admit the units now, or has its largest number of holds.
    pub fn hold(&self, units: u64, life: Duration) -> Result<Hold<'_, Self, ()>, Denied> {
        let (id, decision) = self.hold_key(&(), units, life)?;
        Ok(Hold { limiter: self, key: &(), id, decision })
    }

    /// Settles the hold with this identity: see [`RateLimiter::commit`] of limiters with keys.
    pub fn commit(&self, id: HoldId, actual: u64) -> Decision {
        self.commit_key(&(), id, actual)
    }

    /// Releases the hold with this identity. Returns the number of refunded units.
    pub fn release(&self, id: HoldId) -> u64 {
        self.release_key(&(), id)
    }
}

impl<A: Algorithm, C> At<'_, RateLimiter<Holding<Direct<A>>, C>> {
    /// [`RateLimiter::hold`] at this time. Returns the identity, because a [`Hold`] reads the clock when it is dropped.
    ///
    /// # Errors
    /// The same as for [`RateLimiter::hold`].
    pub fn hold(self, units: u64, life: Duration) -> Result<HoldId, Denied> {
        self.hold_key(&(), units, life).map(|(id, _)| id)
    }

    /// [`RateLimiter::commit`] at this time.
    pub fn commit(self, id: HoldId, actual: u64) -> Decision {
        self.commit_key(&(), id, actual)
    }

    /// [`RateLimiter::release`] at this time.
    pub fn release(self, id: HoldId) -> u64 {
        self.release_key(&(), id)
    }
}

/// A limiter with holds. Public in a private module: sealed.
pub trait Holds<Q: ?Sized> {
    /// Releases a hold.
    #[doc(hidden)]
    fn let_go(&self, key: &Q, id: HoldId);
}

impl<S: Store<Q>, C: Clock, Q: Hash + ?Sized> Holds<Q> for RateLimiter<Holding<S>, C> {
    fn let_go(&self, key: &Q, id: HoldId) {
        self.release_key(key, id);
    }
}

impl<C: Clock, Q: Hash + ?Sized> Holds<Q> for InProgress<C> {
    fn let_go(&self, key: &Q, id: HoldId) {
        self.release(key, id);
    }
}

/// Units that are taken from a [limiter](RateLimiter::hold), or requests [in progress](InProgress::hold). Dropping it
/// releases them.
#[must_use = "a hold that is dropped is released"]
pub struct Hold<'a, L: Holds<Q>, Q: ?Sized> {
    limiter: &'a L,
    key: &'a Q,
    id: HoldId,
    decision: Decision,
}

impl<L: Holds<Q>, Q: ?Sized> Hold<'_, L, Q> {
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

    /// Leaves the hold to whoever knows its identity. It ends with its life if nobody settles it.
    pub fn detach(self) -> HoldId {
        let id = self.id;
        std::mem::forget(self);
        id
    }
}

impl<S: Store<Q>, C: Clock, Q: Hash + ?Sized> Hold<'_, RateLimiter<Holding<S>, C>, Q> {
    /// Charges `actual` units, and releases the rest of the hold. Returns the state of the key afterwards.
    ///
    /// If `actual` is more than was held, the difference is charged even if the key cannot spend it, and leaves a debt.
    /// If the life of the hold has ended, this call releases the hold, and charges `actual` as of now.
    pub fn commit(self, actual: u64) -> Decision {
        let (limiter, key) = (self.limiter, self.key);
        limiter.commit_key(key, self.detach(), actual)
    }
}

impl<L: Holds<Q>, Q: ?Sized> Drop for Hold<'_, L, Q> {
    fn drop(&mut self) {
        self.limiter.let_go(self.key, self.id);
    }
}

impl<L: Holds<Q>, Q: ?Sized> fmt::Debug for Hold<'_, L, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("id", &self.id).field("units", &self.decision.cost()).finish()
    }
}

/// A limit on the requests of each key that are in progress at the same time.
///
/// A request is in progress until its [`Hold`] is dropped, or until its life has ended. So a request whose holder was
/// lost does not count for ever. Use it for slow work, such as exports and answers of language models: a rate does not
/// limit how many of them run at the same time.
///
/// The limit is exact, and the memory grows with the number of requests in progress, up to a bound.
/// [`sketch::InFlight`](crate::sketch::InFlight) needs constant memory instead, for any number of keys; its counts can
/// be too high, and its requests have no life.
///
/// # Consistency
/// At most `limit` units of a key are in progress at any time, whatever races. A call may wait for another thread that
/// uses the same key, for less than a microsecond.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::holds::InProgress;
///
/// let exports = InProgress::new(2, 10_000);
/// let life = Duration::from_secs(600);
/// let first = exports.hold("alice", 1, life).expect("none is in progress");
/// let second = exports.hold("alice", 1, life).expect("one is in progress");
/// assert!(exports.hold("alice", 1, life).is_err());
/// assert!(exports.hold("bob", 1, life).is_ok());
/// drop(first);
/// assert!(exports.hold("alice", 1, life).is_ok());
/// # drop(second);
/// ```
pub struct InProgress<C = QuantaClock> {
    clock: C,
    limit: u64,
    book: HoldBook<()>,
}

impl InProgress {
    /// Creates a limit of `limit` units in progress for each key, and of `most` holds in total.
    #[must_use]
    pub fn new(limit: u64, most: usize) -> Self {
        Self::with_clock(limit, most, QuantaClock::default())
    }
}

impl<C> InProgress<C> {
    /// Creates a limit with another clock.
    #[must_use]
    pub fn with_clock(limit: u64, most: usize, clock: C) -> Self {
        Self { clock, limit, book: HoldBook::new(most) }
    }

    /// Returns this limit at the time `now`: no clock is read.
    pub const fn at(&self, now: Timestamp) -> At<'_, Self> {
        At::new(self, now)
    }

    /// Returns the units of a key that are in progress, including those whose life has ended and that were not needed
    /// since.
    pub fn current<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        // The units of a key are at most the limit.
        u64::try_from(self.book.standing(self.book.hash(key)).units).unwrap_or(u64::MAX)
    }

    /// Returns the number of holds of all keys.
    pub fn holds(&self) -> usize {
        self.book.len()
    }

    /// Ends the hold with this identity. Returns whether it was there.
    pub fn release<Q: Hash + ?Sized>(&self, key: &Q, id: HoldId) -> bool {
        self.book.take(self.book.hash(key), id).is_some()
    }

    fn keep<Q: Hash + ?Sized>(
        &self,
        key: &Q,
        units: u64,
        end_ns: u64,
        at: CheckTime,
    ) -> Result<(HoldId, Decision), Denied> {
        let (hash, now_ns) = (self.book.hash(key), at.ns());
        let keep = || {
            let hold = Held { units, paid_ns: end_ns, charge: () };
            self.book.keep(hash, end_ns, hold, (self.limit, now_ns))
        };
        let mut kept = keep();
        while let Err(NotKept::KeyFull(_)) = kept
            && self.book.release_ended(hash, now_ns, |_| {})
        {
            kept = keep();
        }
        let decide = |outcome, standing: KeyStanding| {
            let used = u64::try_from(standing.units).unwrap_or(u64::MAX);
            let after = |end_ns: u64| end_ns.saturating_sub(now_ns);
            let (first, last) = standing.ends_ns.map_or((0, 0), |(first, last)| (after(first), after(last)));
            let remaining = self.limit.saturating_sub(used);
            let facts = Facts::Plain { remaining, retry_ns: first, reset_ns: last, delay_ns: 0 };
            Decision::new(outcome, units, self.limit, now_ns, facts).uncharged()
        };
        match kept {
            Ok((id, standing)) => Ok((id, decide(Outcome::Allowed, standing))),
            Err(NotKept::KeyFull(standing)) => {
                let never = units > self.limit;
                Err(decide(if never { Outcome::Never } else { Outcome::Denied }, standing))
            }
            Err(NotKept::BookFull) => Err(no_room(units, self.limit, now_ns)),
        }
        .map_err(Denied::of)
    }
}

impl<C> At<'_, InProgress<C>> {
    /// [`InProgress::hold`] at this time. Returns the identity of the hold.
    ///
    /// # Errors
    /// The same as for [`InProgress::hold`].
    pub fn hold<Q: Hash + ?Sized>(self, key: &Q, units: u64, life: Duration) -> Result<HoldId, Denied> {
        let at = CheckTime::given(self.now);
        let end_ns = at.ns().saturating_add(saturating_nanos(life));
        self.limiter.keep(key, units, end_ns, at).map(|(id, _)| id)
    }
}

impl<C: Clock> InProgress<C> {
    /// Begins a request of `units`, or denies it. It ends when the hold is dropped, or after `life`.
    ///
    /// # Errors
    /// Returns the denial if the key would have more units in progress than its limit, or if there are too many holds
    /// in total. [`Decision::retry_after`] returns the time until the first life ends; a request can end earlier.
    ///
    /// # Complexity
    /// O(log holds) under a mutex that few keys share. If the key is full, also O(log holds) for each of its holds
    /// whose life has ended. Allocates.
    pub fn hold<'a, Q: Hash + ?Sized>(
        &'a self,
        key: &'a Q,
        units: u64,
        life: Duration,
    ) -> Result<Hold<'a, Self, Q>, Denied> {
        let at = CheckTime::read(&self.clock);
        let end_ns = at.ns().saturating_add(saturating_nanos(life));
        let (id, decision) = self.keep(key, units, end_ns, at)?;
        Ok(Hold { limiter: self, key, id, decision })
    }
}

impl<C> fmt::Debug for InProgress<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("InProgress");
        shown.field("limit", &self.limit).field("holds", &self.holds()).finish_non_exhaustive()
    }
}
