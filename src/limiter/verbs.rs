//! What else can be done about a key than to check it: for every store of keys.

use core::time::Duration;

use super::RateLimiter;
use crate::algorithm::Algorithm;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp, saturating_nanos};
use crate::base::decision::Decision;
use crate::store::{Direct, ManyKeys, Operation, Store};

/// For every store, by what it is asked.
impl<S, C: Clock> RateLimiter<S, C> {
    #[inline]
    pub(super) fn now(&self) -> CheckTime {
        CheckTime::read(&self.clock)
    }

    #[inline]
    pub(super) fn given(&self, now: Timestamp) -> CheckTime {
        CheckTime::given(now)
    }

    pub(super) fn act<Q: ?Sized>(&self, key: &Q, verb: Operation, when: CheckTime, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.store.act(key, verb, when, cost)
    }

    pub(super) fn give_back<Q: ?Sized>(&self, key: &Q, when: CheckTime, charge: &Decision, units: u64) -> u64
    where
        S: Store<Q>,
    {
        match units.min(charge.charged()) {
            0 => 0,
            units => self.store.give_back(key, when, charge, units),
        }
    }

    pub(super) fn settle_up<Q: ?Sized>(
        &self,
        key: &Q,
        when: CheckTime,
        charge: &Decision,
        actual: u64,
    ) -> Decision
    where
        S: Store<Q>,
    {
        let charged = charge.charged();
        match actual.checked_sub(charged) {
            Some(more @ 1..) => return self.act(key, Operation::Force, when, more),
            Some(0) => {}
            None => {
                self.give_back(key, when, charge, charged - actual);
            }
        }
        self.store.look(key, when, 0)
    }
}

fn reserve(max_wait: Duration) -> Operation {
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
        self.act(key, Operation::Take, self.now(), most)
    }

    /// [`RateLimiter::take_up_to`] at a time that the caller says.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn take_up_to_at<Q: ?Sized>(&self, key: &Q, most: u64, now: Timestamp) -> Decision
    where
        S: Store<Q>,
    {
        self.act(key, Operation::Take, self.given(now), most)
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
        self.act(key, Operation::Force, self.now(), cost)
    }

    /// [`RateLimiter::charge_unchecked`] at a time that the caller says.
    pub fn charge_unchecked_at<Q: ?Sized>(&self, key: &Q, cost: u64, now: Timestamp) -> Decision
    where
        S: Store<Q>,
    {
        self.act(key, Operation::Force, self.given(now), cost)
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
        self.give_back(key, self.now(), charge, units)
    }

    /// [`RateLimiter::refund_n`] at a time that the caller says.
    pub fn refund_n_at<Q: ?Sized>(&self, key: &Q, charge: &Decision, units: u64, now: Timestamp) -> u64
    where
        S: Store<Q>,
    {
        self.give_back(key, self.given(now), charge, units)
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
        self.settle_up(key, self.now(), charge, actual)
    }

    /// [`RateLimiter::settle`] at a time that the caller says.
    pub fn settle_at<Q: ?Sized>(&self, key: &Q, charge: &Decision, actual: u64, now: Timestamp) -> Decision
    where
        S: Store<Q>,
    {
        self.settle_up(key, self.given(now), charge, actual)
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
        self.act(key, reserve(max_wait), self.now(), cost)
    }

    /// [`RateLimiter::reserve`] at a time that the caller says.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn reserve_at<Q: ?Sized>(&self, key: &Q, cost: u64, max_wait: Duration, now: Timestamp) -> Decision
    where
        S: Store<Q>,
    {
        self.act(key, reserve(max_wait), self.given(now), cost)
    }
}

/// The same for limiters without keys.
macro_rules! without_keys {
    ($store:ty) => {
        /// Charges of other kinds, and taking them back.
        impl<A: Algorithm, C: Clock> RateLimiter<$store, C> {
            /// Charges as much of `most` as there is room for now: [`Decision::cost`] says how much that was. Denied if that is nothing.
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn take_up_to(&self, most: u64) -> Decision {
                self.act(&(), Operation::Take, self.now(), most)
            }

            /// [`RateLimiter::take_up_to`] at a time that the caller says.
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn take_up_to_at(&self, most: u64, now: Timestamp) -> Decision {
                self.act(&(), Operation::Take, self.given(now), most)
            }

            /// Charges `cost` units whether or not there is room: for work that is done already. What is charged beyond the burst is
            /// a debt, which time pays before anything is admitted; [`Decision::delay`] says when, and [`Decision::cost`] how
            /// much the state could hold.
            pub fn charge_unchecked(&self, cost: u64) -> Decision {
                self.act(&(), Operation::Force, self.now(), cost)
            }

            /// [`RateLimiter::charge_unchecked`] at a time that the caller says.
            pub fn charge_unchecked_at(&self, cost: u64, now: Timestamp) -> Decision {
                self.act(&(), Operation::Force, self.given(now), cost)
            }

            /// Takes a charge back, as far as it is still owed: how many units that was, the last perhaps in part. Give back each
            /// charge once.
            ///
            /// What time has paid of a charge is not given back again, and time pays each charge from when it was made (from its
            /// turn, if it was reserved), whatever was owed before it. Windows and batches give back in the window of the charge
            /// only; logs nothing; of requests that were told to wait, in queues, and of spaced events, only the last is taken
            /// back. What this bounds, and the caveats, are the same as those of
            /// [keyed limiters](RateLimiter::refund).
            ///
            /// # Examples
            /// ```
            /// use tollgate::{Gcra, Quota, RateLimiter};
            ///
            /// let limiter = RateLimiter::direct(Gcra::new(Quota::per_hour(10)));
            /// let charge = limiter.check_n(10);
            /// assert_eq!(limiter.refund(&charge), 10); // all but what the time since has paid
            /// assert!(limiter.check_n(9).is_allowed());
            /// ```
            pub fn refund(&self, charge: &Decision) -> u64 {
                self.refund_n(charge, charge.cost())
            }

            /// [`RateLimiter::refund`] at a time that the caller says.
            pub fn refund_at(&self, charge: &Decision, now: Timestamp) -> u64 {
                self.refund_n_at(charge, charge.cost(), now)
            }

            /// Takes up to `units` of a charge back; see [`RateLimiter::refund`].
            pub fn refund_n(&self, charge: &Decision, units: u64) -> u64 {
                self.give_back(&(), self.now(), charge, units)
            }

            /// [`RateLimiter::refund_n`] at a time that the caller says.
            pub fn refund_n_at(&self, charge: &Decision, units: u64, now: Timestamp) -> u64 {
                self.give_back(&(), self.given(now), charge, units)
            }

            /// Makes a charge what it turned out to be: gives back what was too much, and charges what was too little, unchecked.
            /// Answers how things stand. (A denied charge was none: all of `actual` is charged.)
            pub fn settle(&self, charge: &Decision, actual: u64) -> Decision {
                self.settle_up(&(), self.now(), charge, actual)
            }

            /// [`RateLimiter::settle`] at a time that the caller says.
            pub fn settle_at(&self, charge: &Decision, actual: u64, now: Timestamp) -> Decision {
                self.settle_up(&(), self.given(now), charge, actual)
            }

            /// Charges `cost` units that may go within `max_wait` from now: [`Decision::delay`] says when. Denied if their turn would
            /// come later. Counts of windows and logs know nothing of the future, and decide as a check.
            ///
            /// # Examples
            /// ```
            /// use std::time::Duration;
            /// use tollgate::{ManualClock, MinimumSpacing, RateLimiter};
            ///
            /// let posts = MinimumSpacing::new(Duration::from_secs(2));
            /// let limiter = RateLimiter::builder(posts).clock(ManualClock::default()).direct();
            /// for turn in 0..3 {
            ///     assert_eq!(limiter.reserve(1, Duration::from_secs(5)).delay(), Duration::from_secs(2 * turn));
            /// }
            /// assert!(limiter.reserve(1, Duration::from_secs(5)).is_denied());
            /// ```
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn reserve(&self, cost: u64, max_wait: Duration) -> Decision {
                self.act(&(), reserve(max_wait), self.now(), cost)
            }

            /// [`RateLimiter::reserve`] at a time that the caller says.
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn reserve_at(&self, cost: u64, max_wait: Duration, now: Timestamp) -> Decision {
                self.act(&(), reserve(max_wait), self.given(now), cost)
            }
        }
    };
}

without_keys!(Direct<A>);
#[cfg(feature = "std")]
without_keys!(crate::store::Adjustable<Direct<A>>);
