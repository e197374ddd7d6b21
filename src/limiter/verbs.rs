//! Operations on a key other than checks, for every store that has keys.

use core::time::Duration;

use super::RateLimiter;
use super::at::{Timed, reserve};
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::store::{ManyKeys, Operation, Store};

/// Other kinds of charges, and refunds. The caller passes keys by reference, as for a check.
impl<S: ManyKeys, C: Clock> RateLimiter<S, C> {
    /// Charges as many of `most` units as the key can spend now. [`Decision::charged`] returns how many it charged.
    ///
    /// Denies if the key cannot spend one unit. The denial has charged 0 units, and [`Decision::retry_after`] returns when
    /// one unit is free.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(10));
    /// assert_eq!(limiter.take("alice", 7).charged(), 7);
    /// assert_eq!(limiter.take("alice", 7).charged(), 3); // only three units were left
    /// assert_eq!(limiter.take("alice", 7).charged(), 0); // denied
    /// ```
    ///
    /// A program that sends a batch in parts adds up what was charged:
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(10));
    /// let mut batch: Vec<u32> = (0..25).collect();
    /// let mut sent = Vec::new();
    /// while !batch.is_empty() {
    ///     let taken = limiter.take("alice", batch.len() as u64);
    ///     if taken.is_denied() {
    ///         break; // a real program waits for `taken.retry_after()`
    ///     }
    ///     sent.extend(batch.drain(..taken.charged() as usize));
    /// }
    /// assert_eq!((sent.len(), batch.len()), (10, 15));
    /// ```
    ///
    /// # Complexity
    /// O(1) and lock-free, as a check. If another thread charges first, this call takes the units that are left.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn take<Q: ?Sized>(&self, key: &Q, most: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Take, most)
    }

    /// Charges `cost` units even if the key cannot spend them: for work that is already done.
    ///
    /// The charge beyond the burst is a debt. The key is denied until time has paid it.
    ///
    /// [`Decision::charged`] returns how many units were charged. That is less than `cost` if the state cannot hold the
    /// whole debt:
    /// - A direct or keyed state of time (GCRA, buckets, spacing) holds debts of 4 to 292 years.
    /// - Counts of windows and batches hold some multiple of the limit, within the window of the charge.
    /// - The sliding log, the sketch, and a compact store without an [`overdraft`](crate::Builder::overdraft) charge
    ///   only the units that are left up to the limit, or slightly more.
    ///
    /// [`Decision::delay`] returns when the debt is paid, except for counts of sliding windows, which cannot predict
    /// this. A keyed store that is full and denies new keys denies this call too.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
    ///
    /// let clock = ManualClock::default();
    /// let limiter = RateLimiter::builder(Gcra::new(Quota::per_minute(60))).clock(clock.clone()).keyed::<String>();
    /// // The burst is 60, so 40 of 100 units are a debt.
    /// assert_eq!(limiter.charge_unchecked("alice", 100).delay(), Duration::from_secs(40));
    /// clock.advance(Duration::from_secs(40));
    /// assert!(limiter.check("alice").is_denied());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.check("alice").is_allowed());
    /// ```
    ///
    /// # Complexity
    /// O(1) and lock-free, as a check that is admitted.
    pub fn charge_unchecked<Q: ?Sized>(&self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::Force, cost)
    }

    /// Checks `cost` units as [`RateLimiter::check_n`] does, but also admits a cost above the burst if the key owes
    /// nothing: for messages and packets that may be larger than a burst.
    ///
    /// A cost above the burst charges all of its units. What is beyond the burst is a debt: the key is denied until time has
    /// paid it, so the rate holds. [`Decision::delay`] returns when that is. While the key owes anything, the cost is denied,
    /// and [`Decision::retry_after`] returns the time until it owes nothing. In any interval, the key is admitted at most
    /// what a burst as large as its largest cost would admit.
    ///
    /// These limiters decide as a check does, so a cost above the burst is [never](Decision::is_never) admitted:
    /// - Windows, logs and sketches, because they drop a debt when a window ends. Use a bucket for bytes.
    /// - A compact store whose words cannot hold the debt. Set an [`overdraft`](crate::Builder::overdraft): the burst and the
    ///   overdraft together are the largest cost.
    /// - A batch whose count cannot hold the debt.
    ///
    /// Minimum spacing admits any cost in each check. A denial starts no [block](crate::Blocked).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
    ///
    /// let (clock, kb) = (ManualClock::default(), 1_000);
    /// let rate = Quota::per_second(125 * kb).burst(64 * kb);
    /// let bytes = RateLimiter::builder(Gcra::new(rate)).clock(clock.clone()).keyed::<String>();
    /// assert!(bytes.check_n("alice", 1_000 * kb).is_never());
    /// assert!(bytes.check_oversized("alice", 1_000 * kb).is_allowed());
    ///
    /// // A megabyte takes eight seconds at this rate.
    /// let next = bytes.check_oversized("alice", 1_000 * kb);
    /// assert_eq!(next.retry_after(), Some(Duration::from_secs(8)));
    /// assert_eq!(bytes.check_n("alice", 64 * kb).retry_after(), Some(Duration::from_secs(8)));
    /// clock.advance(Duration::from_secs(8));
    /// assert!(bytes.check_oversized("alice", 1_000 * kb).is_allowed());
    /// ```
    ///
    /// # Complexity
    /// O(1) and lock-free, as a check that is admitted.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_oversized<Q: ?Sized>(&self, key: &Q, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, Operation::CheckOversized, cost)
    }

    /// Refunds the part of a charge that the key still owes: for work that was not done. Returns the number of
    /// refunded units; the last one may be refunded only in part.
    ///
    /// Units that time has already paid are not refunded. The admitted units, without the refunded ones, therefore stay
    /// within the algorithm's bound.
    ///
    /// Time pays a charge from the moment of the charge, or from its turn if it was [reserved](RateLimiter::reserve). A
    /// charge of n units can be refunded until the time of n units has passed. As soon as the time of one unit has
    /// passed, the refund is at least one unit less than the charge. Earlier charges of the key do not extend this
    /// time, because they may have been refunded in the meantime.
    ///
    /// What can be refunded depends on the algorithm and the store:
    /// - Windows and batches are paid at their ends. They refund only in the window, sub-window or period of the
    ///   charge.
    /// - Of requests with a [delay](Decision::delay), only the last one can be refunded. The same holds for requests
    ///   in queues and for spaced events.
    /// - Logs, sketches, and compact stores with [`Overflow::Inherit`](crate::Overflow::Inherit) refund nothing.
    /// - A compact store refunds nothing to a key that was evicted after the charge.
    ///
    /// Refund each charge once, and not after the key was removed or reset. Reserved turns that have not come yet keep
    /// their times. After these turns, the refunded units are available earlier. A refund dated before later charges
    /// may return too much: it also returns the units that time paid in between.
    ///
    /// # Consistency
    /// Checks between the charge and the refund still see the charge.
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
    /// O(1) and lock-free: one read, and one exchange if there are units to refund.
    pub fn refund<Q: ?Sized>(&self, key: &Q, charge: &Decision) -> u64
    where
        S: Store<Q>,
    {
        self.refund_n(key, charge, charge.cost())
    }

    /// Refunds up to `units` of a charge; see [`RateLimiter::refund`].
    pub fn refund_n<Q: ?Sized>(&self, key: &Q, charge: &Decision, units: u64) -> u64
    where
        S: Store<Q>,
    {
        self.refund_key(key, charge, units)
    }

    /// Takes back up to `units` of what the key owes, whichever calls charged them: for a caller that does not have the
    /// decision of the charge. Returns the number of units taken back; the last one may have been paid in part.
    ///
    /// The key never has more than its full burst afterwards. These units come back:
    /// - GCRA, buckets and leaky buckets owe a time. It becomes shorter by the time of the units, but does not end before
    ///   now. These are the units that were charged last, with debts beyond the burst first.
    /// - Windows, sub-windows and batches take back units of the present window, sub-window or period. The windows before
    ///   it keep their counts.
    /// - Minimum spacing takes back one event for each unit, the last event first.
    /// - Logs, sketches, compact stores with [`Overflow::Inherit`](crate::Overflow::Inherit), and a key in a
    ///   [block](crate::Blocked), take back nothing, for the reasons that a [refund](RateLimiter::refund) has.
    /// - A compact store with [`Overflow::Spill`](crate::Overflow::Spill) takes back nothing from a key that it has evicted.
    /// - A limiter with holds leaves the units that are [held](RateLimiter::hold): their holders settle them. It counts all of
    ///   them as owed, also what time has paid of them, so less may come back than was charged without a hold.
    ///
    /// The caller vouches for the units: between two times, the limiter admits at most its bound and the units that came
    /// back. Use [`RateLimiter::refund`] if you have the decision. It knows what time has paid of the charge, so it keeps
    /// the bound. Turns that are [reserved](RateLimiter::reserve) already keep their times.
    ///
    /// # Consistency
    /// A check that races with this call comes before or after it, and so does a change of the quota of an
    /// [adjustable](RateLimiter::adjustable) limiter. In a compact limiter, the units may not come back if the first check of the
    /// key after a change races with this call, and the key would owe nothing after it.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let retries = RateLimiter::new(Quota::per_hour(10));
    /// assert!(retries.check_n("backend", 8).is_allowed());
    /// assert_eq!(retries.give_back("backend", 1), 1); // a request succeeded
    /// assert_eq!(retries.peek("backend").remaining(), 3);
    /// assert_eq!(retries.give_back("backend", 100), 7); // the key owed no more
    /// assert_eq!(retries.peek("backend").remaining(), 10);
    /// ```
    ///
    /// # Complexity
    /// The same as for [`RateLimiter::refund`]. A limiter with holds also locks the key's shard of holds.
    pub fn give_back<Q: ?Sized>(&self, key: &Q, units: u64) -> u64
    where
        S: Store<Q>,
    {
        self.give_back_key(key, units)
    }

    /// Corrects a charge to the actual cost: for costs that are known only afterwards, such as bytes sent or a
    /// language model's tokens.
    ///
    /// Charge an estimate before the work, and settle once after it. If the estimate was too high, this call refunds
    /// the difference as [`RateLimiter::refund`] does. If it was too low, this call charges the difference now, as
    /// [`RateLimiter::charge_unchecked`] does. Returns the state of the key afterwards.
    ///
    /// With GCRA and greedy buckets, the result can equal that of a charge of `actual` from the start. This holds if
    /// the key had no debt before the charge, and the charge is settled before time has paid it. A denied charge or a
    /// peek charged nothing, so this call then charges all of `actual`.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let tokens = RateLimiter::new(Quota::per_hour(1_000));
    /// let charge = tokens.check_n("alice", 400); // the highest possible cost
    /// assert!(charge.is_allowed());
    /// let now = tokens.settle("alice", &charge, 150);
    /// assert_eq!(now.remaining(), 850);
    /// ```
    ///
    /// # Complexity
    /// The same as for [`RateLimiter::refund`] or [`RateLimiter::charge_unchecked`], plus one peek.
    pub fn settle<Q: ?Sized>(&self, key: &Q, charge: &Decision, actual: u64) -> Decision
    where
        S: Store<Q>,
    {
        self.settle_key(key, charge, actual)
    }

    /// Reserves a turn for `cost` units within `max_wait` from now, and charges them. [`Decision::delay`] returns the
    /// time until the turn.
    ///
    /// Denies if the turn would come later than `max_wait`. [`Decision::retry_after`] then returns when a check would
    /// admit the units, or, in a queue with room, when they would not wait. A cost above the burst is never admitted.
    ///
    /// Turns are first come, first served. Checks are denied until the reserved turns have passed. A caller that does
    /// not use its turn returns it with [`RateLimiter::refund`]. The refund frees the turn only if no later turn was
    /// reserved.
    ///
    /// Reservations work with algorithms that can predict a turn: GCRA, token buckets, leaky buckets and minimum
    /// spacing. A leaky bucket used as a queue gives turns only within its queue. Counts of windows, logs and sketches
    /// decide as a check does. A compact store reserves only within its [`overdraft`](crate::Builder::overdraft).
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
    /// O(1) and lock-free, as a check.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn reserve<Q: ?Sized>(&self, key: &Q, cost: u64, max_wait: Duration) -> Decision
    where
        S: Store<Q>,
    {
        self.apply(key, reserve(max_wait), cost)
    }
}
