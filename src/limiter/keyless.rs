//! The common methods of limiters without keys.
//!
//! A macro generates them for each store. A generic `impl` is not possible: limiters with keys have methods of the same
//! names, and Rust accepts a generic `impl` for only one of the two groups.

use alloc::vec::Vec;
use core::time::Duration;

use super::RateLimiter;
use super::joint::BoundLimit;
use super::verbs::reserve;
use crate::algorithm::Algorithm;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
#[cfg(feature = "std")]
use crate::base::sync::thread_number;
#[cfg(feature = "std")]
use crate::limiter::striped::{LeaseSource, Leases};
#[cfg(feature = "tokio")]
use crate::limiter::wait::UntilReady;
#[cfg(feature = "std")]
use crate::limiter::wait::Wait;
#[cfg(feature = "std")]
use crate::store::Adjustable;
use crate::store::{Direct, Operation, Store};

/// A store without keys.
trait Keyless {
    fn check(&self, at: CheckTime, cost: u64) -> Decision;
    fn peek(&self, at: CheckTime, cost: u64) -> Decision;
}

impl<S: Store<()>> Keyless for S {
    #[inline(always)]
    fn check(&self, at: CheckTime, cost: u64) -> Decision {
        self.apply(self.prepare(&()), Operation::Check, at, cost)
    }

    fn peek(&self, at: CheckTime, cost: u64) -> Decision {
        Store::peek(self, self.prepare(&()), at, cost)
    }
}

#[cfg(feature = "std")]
impl<P: LeaseSource> Keyless for Leases<P> {
    #[inline(always)]
    fn check(&self, at: CheckTime, cost: u64) -> Decision {
        self.charge_on(thread_number(), at.ns(), cost)
    }

    fn peek(&self, at: CheckTime, cost: u64) -> Decision {
        self.account().peek(at.ns(), cost)
    }
}

macro_rules! checks {
    ($([$param:ident: $bound:ident] $store:ty),+) => {$(
        impl<$param: $bound, C: Clock> RateLimiter<$store, C> {
            /// Checks one unit now, and charges it if it is admitted.
            ///
            /// # Complexity
            /// O(1): one clock reading, one load, and one exchange if the unit is admitted. Lock-free. A denial writes
            /// nothing. A [striped](crate::Leases) limiter writes a cache line that no other core writes, and charges
            /// its source once per block.
            #[inline]
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check(&self) -> Decision {
                self.check_n(1)
            }

            /// Checks `cost` units now, and charges all of them or none.
            #[inline]
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check_n(&self, cost: u64) -> Decision {
                Keyless::check(&self.store, self.time(None), cost)
            }

            /// Checks `cost` units at the time `now`.
            ///
            /// A `now` before an earlier call's time can only deny more, by less than the step back. A striped limiter
            /// may spend units for up to one lease life after it charged them.
            #[inline]
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check_at(&self, cost: u64, now: Timestamp) -> Decision {
                Keyless::check(&self.store, self.time(Some(now)), cost)
            }

            /// Returns the decision that [`RateLimiter::check`] would make now, without a charge. The decision
            /// includes the remaining units and the reset time.
            ///
            /// # Complexity
            /// The same as a check, and writes nothing. For a striped limiter: O(stripes).
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn peek(&self) -> Decision {
                self.peek_n(1)
            }

            /// Returns the decision that [`RateLimiter::check_n`] would make now, without a charge.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn peek_n(&self, cost: u64) -> Decision {
                Keyless::peek(&self.store, self.time(None), cost)
            }

            /// Returns the decision that [`RateLimiter::check_at`] would make, without a charge.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn peek_at(&self, cost: u64, now: Timestamp) -> Decision {
                Keyless::peek(&self.store, self.time(Some(now)), cost)
            }

            /// Checks many costs in order, all at one time, and appends the decisions. They equal those of single
            /// checks.
            pub fn check_many(&self, costs: impl IntoIterator<Item = u64>, decisions: &mut Vec<Decision>) {
                let at = self.time(None);
                decisions.extend(costs.into_iter().map(|cost| Keyless::check(&self.store, at, cost)));
            }
        }
    )+};
}

checks!([A: Algorithm] Direct<A>);
#[cfg(feature = "std")]
checks!([A: Algorithm] Adjustable<Direct<A>>, [P: LeaseSource] Leases<P>);

macro_rules! charges {
    ($($store:ty),+) => {$(
        /// Other kinds of charges, refunds, and waits, first come, first served: see
        /// [`guide::waiting`](crate::guide::waiting).
        impl<A: Algorithm, C: Clock> RateLimiter<$store, C> {
            /// Returns this limit as one of several for [`check_all`](crate::check_all).
            pub const fn on(&self) -> BoundLimit<'_, $store, C, ()> {
                BoundLimit::new(self, &())
            }

            /// Charges as many of `most` units as the limiter can admit now. [`Decision::cost`] returns how many it
            /// charged. Denies if it can admit none.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn take_up_to(&self, most: u64) -> Decision {
                self.apply(&(), Operation::Take, most, None)
            }

            /// [`RateLimiter::take_up_to`] at the time `now`.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn take_up_to_at(&self, most: u64, now: Timestamp) -> Decision {
                self.apply(&(), Operation::Take, most, Some(now))
            }

            /// Charges `cost` units even if the limiter cannot admit them: for work that is already done.
            ///
            /// The charge beyond the burst is a debt. The limiter admits nothing until time has paid it.
            /// [`Decision::delay`] returns when that is. [`Decision::cost`] returns how many units the state could
            /// hold.
            pub fn charge_unchecked(&self, cost: u64) -> Decision {
                self.apply(&(), Operation::Force, cost, None)
            }

            /// [`RateLimiter::charge_unchecked`] at the time `now`.
            pub fn charge_unchecked_at(&self, cost: u64, now: Timestamp) -> Decision {
                self.apply(&(), Operation::Force, cost, Some(now))
            }

            /// Refunds the part of a charge that is still owed. Returns the number of refunded units; the last one may
            /// be refunded only in part. Refund each charge once.
            ///
            /// Units that time has already paid are not refunded. Time pays each charge from the moment of the charge,
            /// or from its turn if it was reserved. Earlier debts do not change this. Windows and batches refund only
            /// in the window of the charge. Logs refund nothing. Of requests with a delay, requests in queues and
            /// spaced events, only the last one can be refunded. The bound and the exceptions are the same as for
            /// [keyed limiters](RateLimiter::refund).
            ///
            /// # Examples
            /// ```
            /// use tollgate::{Gcra, Quota, RateLimiter};
            ///
            /// let limiter = RateLimiter::direct(Gcra::new(Quota::per_hour(10)));
            /// let charge = limiter.check_n(10);
            /// assert_eq!(limiter.refund(&charge), 10); // at once, before time has paid a whole unit
            /// assert!(limiter.check_n(9).is_allowed());
            /// ```
            pub fn refund(&self, charge: &Decision) -> u64 {
                self.refund_n(charge, charge.cost())
            }

            /// [`RateLimiter::refund`] at the time `now`.
            pub fn refund_at(&self, charge: &Decision, now: Timestamp) -> u64 {
                self.refund_n_at(charge, charge.cost(), now)
            }

            /// Refunds up to `units` of a charge; see [`RateLimiter::refund`].
            pub fn refund_n(&self, charge: &Decision, units: u64) -> u64 {
                self.refund_key(&(), charge, units, None)
            }

            /// [`RateLimiter::refund_n`] at the time `now`.
            pub fn refund_n_at(&self, charge: &Decision, units: u64, now: Timestamp) -> u64 {
                self.refund_key(&(), charge, units, Some(now))
            }

            /// Corrects a charge to the actual cost. If the charge was too high, this call refunds the difference. If
            /// it was too low, this call charges the difference, unchecked. Returns the state afterwards. A denied
            /// charge charged nothing, so this call then charges all of `actual`.
            pub fn settle(&self, charge: &Decision, actual: u64) -> Decision {
                self.settle_key(&(), charge, actual, None)
            }

            /// [`RateLimiter::settle`] at the time `now`.
            pub fn settle_at(&self, charge: &Decision, actual: u64, now: Timestamp) -> Decision {
                self.settle_key(&(), charge, actual, Some(now))
            }

            /// Reserves a turn for `cost` units within `max_wait` from now, and charges them. [`Decision::delay`]
            /// returns the time until the turn. Denies if the turn would come later. Counts of windows and logs cannot
            /// predict a turn, and decide as a check does.
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
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn reserve(&self, cost: u64, max_wait: Duration) -> Decision {
                self.apply(&(), reserve(max_wait), cost, None)
            }

            /// [`RateLimiter::reserve`] at the time `now`.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn reserve_at(&self, cost: u64, max_wait: Duration, now: Timestamp) -> Decision {
                self.apply(&(), reserve(max_wait), cost, Some(now))
            }

            /// Returns a wait that blocks the calling thread until one unit is admitted.
            ///
            /// If the quota changes, a reserved turn stays valid, and the next waiter asks under the new quota.
            ///
            /// # Examples
            /// ```
            /// use tollgate::{Gcra, Quota, RateLimiter};
            ///
            /// let limiter = RateLimiter::direct(Gcra::new(Quota::per_second(1_000).burst(1)));
            /// for _ in 0..5 {
            ///     limiter.wait().block()?; // one per millisecond
            /// }
            /// # Ok::<(), tollgate::NotReady>(())
            /// ```
            #[cfg(feature = "std")]
            pub fn wait(&self) -> Wait<'_, $store, C> {
                self.wait_n(1)
            }

            /// Returns a wait that blocks the calling thread until `cost` units are admitted, all at once.
            #[cfg(feature = "std")]
            pub fn wait_n(&self, cost: u64) -> Wait<'_, $store, C> {
                Wait::new(&self.store, &self.clock, &self.lines, &(), cost)
            }

            /// Returns a future that waits until one unit is admitted. Feature `tokio`.
            #[cfg(feature = "tokio")]
            pub fn until_ready(&self) -> UntilReady<'_, $store, C> {
                self.until_ready_n(1)
            }

            /// Returns a future that waits until `cost` units are admitted, all at once. Feature `tokio`.
            #[cfg(feature = "tokio")]
            pub fn until_ready_n(&self, cost: u64) -> UntilReady<'_, $store, C> {
                UntilReady::new(&self.store, &self.clock, &self.lines, &(), cost)
            }
        }
    )+};
}

charges!(Direct<A>);
#[cfg(feature = "std")]
charges!(Adjustable<Direct<A>>);
