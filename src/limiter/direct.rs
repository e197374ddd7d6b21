//! Limiters without keys.

use std::time::Duration;

use super::RateLimiter;
use super::verbs::reserve;
use crate::algorithm::Algorithm;
use crate::clock::{Clock, Timestamp};
use crate::decision::Decision;
use crate::store::{Direct, Verb};

impl<A: Algorithm, C: Clock> RateLimiter<Direct<A>, C> {
    /// Checks one unit now, and charges it if it is allowed.
    ///
    /// # Complexity
    /// O(1): a clock reading, a load, and one exchange if it is allowed. Lock-free; a denial writes nothing.
    #[inline]
    pub fn check(&self) -> Decision {
        self.check_n(1)
    }

    /// Checks `cost` units now, and charges all of them or none.
    #[inline]
    pub fn check_n(&self, cost: u64) -> Decision {
        self.check_at(cost, self.clock.now())
    }

    /// Checks `cost` units at a time that the caller says.
    ///
    /// A `now` behind an earlier call's can only deny more, by less than the step back.
    #[inline]
    pub fn check_at(&self, cost: u64, now: Timestamp) -> Decision {
        self.store.charge(self.store.algorithm(), now.as_nanos(), cost)
    }

    /// Checks `cost` units at `now` under another quota than the limiter's, made by [`Algorithm::requota`].
    ///
    /// An algorithm that did not come from this limiter's own, so that it would read the state otherwise, is not used:
    /// the limiter's own decides instead. Debug builds panic.
    #[inline]
    pub fn check_with(&self, algorithm: &A, cost: u64, now: Timestamp) -> Decision {
        self.store.charge(super::readable(self.store.algorithm(), algorithm), now.as_nanos(), cost)
    }

    /// Whether [`RateLimiter::check`] would be allowed now, and how things stand (what remains, when it resets), without
    /// charging.
    pub fn peek(&self) -> Decision {
        self.peek_n(1)
    }

    /// Whether [`RateLimiter::check_n`] would be allowed now, and how things stand, without charging.
    pub fn peek_n(&self, cost: u64) -> Decision {
        self.peek_at(cost, self.clock.now())
    }

    /// Whether [`RateLimiter::check_at`] would be allowed, and how things stand, without charging.
    pub fn peek_at(&self, cost: u64, now: Timestamp) -> Decision {
        self.store.peek(now.as_nanos(), cost)
    }

    /// Charges as much of `most` as there is room for now: [`Decision::cost`] says how much that was. Denied if that is nothing.
    pub fn take_up_to(&self, most: u64) -> Decision {
        self.act(&(), Verb::Take, self.now(), most)
    }

    /// [`RateLimiter::take_up_to`] at a time that the caller says.
    pub fn take_up_to_at(&self, most: u64, now: Timestamp) -> Decision {
        self.act(&(), Verb::Take, self.given(now), most)
    }

    /// Charges `cost` units whether or not there is room: for work that is done already. What is charged beyond the burst is
    /// a debt, which time pays before anything is admitted; [`Decision::delay`] says when, and [`Decision::cost`] how
    /// much the state could hold.
    pub fn charge_unchecked(&self, cost: u64) -> Decision {
        self.act(&(), Verb::Force, self.now(), cost)
    }

    /// [`RateLimiter::charge_unchecked`] at a time that the caller says.
    pub fn charge_unchecked_at(&self, cost: u64, now: Timestamp) -> Decision {
        self.act(&(), Verb::Force, self.given(now), cost)
    }

    /// Takes a charge back, as far as it is still owed: how many units that was, the last perhaps in part. Give back each
    /// charge once.
    ///
    /// What time has paid of a charge is not given back again, and time pays each charge from when it was made (from its turn, if
    /// it was reserved), whatever was owed before it. Windows and batches give back in the window of the charge only; logs
    /// nothing; of requests that were told to wait, in queues, and of spaced events, only the last is taken back. What
    /// this bounds, and the caveats, are the same as those of [keyed limiters](RateLimiter::refund).
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
    pub fn reserve(&self, cost: u64, max_wait: Duration) -> Decision {
        self.act(&(), reserve(max_wait), self.now(), cost)
    }

    /// [`RateLimiter::reserve`] at a time that the caller says.
    pub fn reserve_at(&self, cost: u64, max_wait: Duration, now: Timestamp) -> Decision {
        self.act(&(), reserve(max_wait), self.given(now), cost)
    }

    /// Checks many costs in order at one time, and appends the decisions; the same as so many single checks.
    pub fn check_many(&self, costs: impl IntoIterator<Item = u64>, decisions: &mut Vec<Decision>) {
        let now = self.clock.now();
        decisions.extend(costs.into_iter().map(|cost| self.check_at(cost, now)));
    }

    /// The algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }
}
