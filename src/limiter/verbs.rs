//! What else can be done about a key than to check it: for every store of keys.

use core::time::Duration;

use super::RateLimiter;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp, saturating_nanos};
use crate::base::decision::Decision;
use crate::store::{ManyKeys, Operation, Store};

/// The door of every store: for a key, at the clock's time or at one that is given.
impl<S, C: Clock> RateLimiter<S, C> {
    #[inline(always)]
    pub(super) fn time(&self, given: Option<Timestamp>) -> CheckTime {
        match given {
            Some(now) => CheckTime::given(now),
            None => CheckTime::read(&self.clock),
        }
    }

    #[inline(always)]
    pub(crate) fn apply<Q: ?Sized>(
        &self,
        key: &Q,
        operation: Operation,
        cost: u64,
        given: Option<Timestamp>,
    ) -> Decision
    where
        S: Store<Q>,
    {
        let key = self.store.prepare(key);
        // The memory comes while the clock is read.
        self.store.prefetch(key);
        self.store.apply(key, operation, self.time(given), cost)
    }

    pub(crate) fn refund_key<Q: ?Sized>(
        &self,
        key: &Q,
        charge: &Decision,
        units: u64,
        given: Option<Timestamp>,
    ) -> u64
    where
        S: Store<Q>,
    {
        match units.min(charge.charged()) {
            0 => 0,
            units => self.store.refund(self.store.prepare(key), self.time(given), charge, units),
        }
    }

    pub(super) fn settle_key<Q: ?Sized>(
        &self,
        key: &Q,
        charge: &Decision,
        actual: u64,
        given: Option<Timestamp>,
    ) -> Decision
    where
        S: Store<Q>,
    {
        let (key, at, charged) = (self.store.prepare(key), self.time(given), charge.charged());
        if actual > charged {
            return self.store.apply(key, Operation::Force, at, actual - charged);
        }
        if actual < charged {
            self.store.refund(key, at, charge, charged - actual);
        }
        self.store.peek(key, at, 0)
    }
}

pub(super) fn reserve(max_wait: Duration) -> Operation {
    Operation::Reserve { wait_ns: saturating_nanos(max_wait) }
}

/// Charges of other kinds, and taking them back. Keys are borrowed, as for a check.
impl<S: ManyKeys, C: Clock> RateLimiter<S, C> {
    /// Charges as much of `most` as there is room for now: [`Decision::cost`] says how much that was.
    ///
    /// Denied if there is room for nothing; then [`Decision::retry_after`] says when there is for one unit.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(10));
    /// assert_eq!(limiter.take_up_to("alice", 7).cost(), 7);
    /// assert_eq!(limiter.take_up_to("alice", 7).cost(), 3); // send three of the seven
    /// assert!(limiter.take_up_to("alice", 7).is_denied());
    /// ```
    ///
    /// # Complexity
    /// O(1), lock-free, as a check: if another thread was first, it takes what that one has left.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn take_up_to<Q: ?Sized>(&self, key: &Q, most: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Take, most, None)
    }

    /// [`RateLimiter::take_up_to`] at a time that the caller says.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn take_up_to_at<Q: ?Sized>(&self, key: &Q, most: u64, now: Timestamp) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Take, most, Some(now))
    }

    /// Charges `cost` units whether or not there is room: for work that is done already. What is charged beyond the burst
    /// is a debt, and the key is denied until time has paid it.
    ///
    /// [`Decision::cost`] says how much was charged: less, if the state could not hold it. A direct or keyed state of time (GCRA,
    /// buckets, spacing) holds debts of 4 to 292 years; counts of windows and batches some multiple of the limit, within the window
    /// that they are made in; the sliding log, the sketch, and a compact store without an
    /// [`overdraft`](crate::Builder::overdraft) hold what is left to the limit, or little more. [`Decision::delay`] says when the
    /// debt is paid, but of counts of sliding windows, which know nothing of the future. (A keyed store that is full and denies
    /// newcomers denies this too.)
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
    ///
    /// let clock = ManualClock::default();
    /// let limiter = RateLimiter::builder(Gcra::new(Quota::per_minute(60))).clock(clock.clone()).keyed::<String>();
    /// assert_eq!(limiter.charge_unchecked("alice", 100).delay(), Duration::from_secs(40)); // of 60
    /// clock.advance(Duration::from_secs(40));
    /// assert!(limiter.check("alice").is_denied());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.check("alice").is_allowed());
    /// ```
    ///
    /// # Complexity
    /// O(1), lock-free, as a check that is allowed.
    pub fn charge_unchecked<Q: ?Sized>(&self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Force, cost, None)
    }

    /// [`RateLimiter::charge_unchecked`] at a time that the caller says.
    pub fn charge_unchecked_at<Q: ?Sized>(&self, key: &Q, cost: u64, now: Timestamp) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Force, cost, Some(now))
    }

    /// Takes a charge back, as far as it is still owed: how many units that was, the last perhaps in part. For work that was
    /// not done.
    ///
    /// What time has paid of a charge is not given back again, so that with the refunded charges left out, what is admitted stays
    /// within the algorithm's bound. Time pays a charge from when it was made, or from its turn, if it was
    /// [reserved](RateLimiter::reserve): a charge of n units is given back until n units' time has passed, and then less than
    /// all of it from the n-th part on. (That of those before it may have been taken back meanwhile, so their time is not
    /// counted for this one.) Windows and batches are paid at their ends, and give back in the window, sub-window or period of
    /// the charge only. Of requests that were told to wait ([`Decision::delay`]) only the last is taken back; of those in
    /// queues and of spaced events too. Logs, sketches, and compact stores with
    /// [`Overflow::Inherit`](crate::Overflow::Inherit) give nothing back; nor does a compact store to a key that was evicted since.
    ///
    /// Give back each charge once, and not after its key was removed or reset. Where reserved turns are outstanding, they keep
    /// their time, and as many units as are refunded may go that much sooner after them. A time behind those of other
    /// charges since gives back what was paid between, too.
    ///
    /// # Consistency
    /// Checks between the charge and the refund see the charge.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_hour(10));
    /// let charge = limiter.check_n("alice", 10);
    /// assert!(limiter.check("alice").is_denied());
    /// limiter.refund("alice", &charge); // the backend was down
    /// assert!(limiter.check_n("alice", 9).is_allowed());
    /// ```
    ///
    /// # Complexity
    /// O(1), lock-free: a look, and one exchange if there is something to give back.
    pub fn refund<Q: ?Sized>(&self, key: &Q, charge: &Decision) -> u64
    where
        S: Store<Q>,
    {
        self.refund_n(key, charge, charge.cost())
    }

    /// [`RateLimiter::refund`] at a time that the caller says.
    pub fn refund_at<Q: ?Sized>(&self, key: &Q, charge: &Decision, now: Timestamp) -> u64
    where
        S: Store<Q>,
    {
        self.refund_n_at(key, charge, charge.cost(), now)
    }

    /// Takes up to `units` of a charge back; see [`RateLimiter::refund`].
    pub fn refund_n<Q: ?Sized>(&self, key: &Q, charge: &Decision, units: u64) -> u64
    where
        S: Store<Q>,
    {
        self.refund_key(key, charge, units, None)
    }

    /// [`RateLimiter::refund_n`] at a time that the caller says.
    pub fn refund_n_at<Q: ?Sized>(&self, key: &Q, charge: &Decision, units: u64, now: Timestamp) -> u64
    where
        S: Store<Q>,
    {
        self.refund_key(key, charge, units, Some(now))
    }

    /// Makes a charge what it turned out to be: for costs that are known only afterwards, such as bytes sent or a language
    /// model's tokens. Charge an estimate before, and settle once.
    ///
    /// What was too much is given back as by [`RateLimiter::refund`]; what was too little is charged now, as by
    /// [`RateLimiter::charge_unchecked`]. By GCRA and greedy buckets, a charge that is settled while it is not paid, and that found
    /// nothing owed, is as if it had been `actual` from the start. Answers how things stand. (A denied charge was none, nor is
    /// a look: all of `actual` is charged.)
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let tokens = RateLimiter::new(Quota::per_hour(1_000));
    /// let charge = tokens.check_n("alice", 400); // at most so many
    /// assert!(charge.is_allowed());
    /// let now = tokens.settle("alice", &charge, 150);
    /// assert_eq!(now.remaining(), 850);
    /// ```
    ///
    /// # Complexity
    /// As [`RateLimiter::refund`] or [`RateLimiter::charge_unchecked`], and a look.
    pub fn settle<Q: ?Sized>(&self, key: &Q, charge: &Decision, actual: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.settle_key(key, charge, actual, None)
    }

    /// [`RateLimiter::settle`] at a time that the caller says.
    pub fn settle_at<Q: ?Sized>(&self, key: &Q, charge: &Decision, actual: u64, now: Timestamp) -> Decision
    where
        S: Store<Q>,
    {
        self.settle_key(key, charge, actual, Some(now))
    }

    /// Charges `cost` units that may go within `max_wait` from now: [`Decision::delay`] says when. Denied if their turn would
    /// come later ([`Decision::retry_after`] says when a check would admit them, or, in a queue with room, when they would not
    /// wait), and never above the burst.
    ///
    /// Turns are given first come, first served, and checks are denied until those who wait have gone. Whoever does not go
    /// after all gives the turn back by [`RateLimiter::refund`]; that frees it only if no other turn was given since.
    ///
    /// For algorithms that know of the future: GCRA, token buckets, leaky buckets (a queue's turn is within its queue, as ever)
    /// and minimum spacing. Counts of windows, logs and sketches decide as a check. A compact store reserves within its
    /// [`overdraft`](crate::Builder::overdraft) only.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
    ///
    /// let build = RateLimiter::builder(Gcra::new(Quota::per_second(10).burst(1)));
    /// let limiter = build.clock(ManualClock::default()).keyed::<String>();
    /// let wait = Duration::from_millis(150);
    /// assert_eq!(limiter.reserve("alice", 1, wait).delay(), Duration::ZERO);
    /// assert_eq!(limiter.reserve("alice", 1, wait).delay(), Duration::from_millis(100));
    /// assert!(limiter.reserve("alice", 1, wait).is_denied()); // its turn would come in 200 ms
    /// ```
    ///
    /// # Complexity
    /// O(1), lock-free, as a check.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn reserve<Q: ?Sized>(&self, key: &Q, cost: u64, max_wait: Duration) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, reserve(max_wait), cost, None)
    }

    /// [`RateLimiter::reserve`] at a time that the caller says.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn reserve_at<Q: ?Sized>(&self, key: &Q, cost: u64, max_wait: Duration, now: Timestamp) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, reserve(max_wait), cost, Some(now))
    }
}
