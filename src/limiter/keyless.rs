//! The common methods of limiters without keys.
//!
//! A macro generates them for each store. A generic `impl` is not possible: limiters with keys have methods of the same
//! names, and Rust accepts a generic `impl` for only one of the two groups.

use core::time::Duration;

use super::at::{Timed, reserve};
use super::joint::BoundLimit;
use super::{At, RateLimiter, StateAt};
use crate::algorithm::Algorithm;
use crate::base::check_time::CheckTime;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
#[cfg(feature = "std")]
use crate::base::sync::thread_number;
#[cfg(feature = "std")]
use crate::limiter::striped::{LeaseSource, Leases};
#[cfg(feature = "tokio")]
use crate::limiter::wait::UntilReady;
#[cfg(feature = "std")]
use crate::limiter::wait::Wait;
use crate::store::state::Lasting;
#[cfg(feature = "std")]
use crate::store::{Adjustable, Holding};
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
        self.account().charge_on(thread_number(), at.ns(), cost).0
    }

    fn peek(&self, at: CheckTime, cost: u64) -> Decision {
        self.account().peek(at.ns(), cost)
    }
}

/// The same checks at a given time.
macro_rules! checks_at {
    ([$($generics:tt)*] $timed:ty) => {
        impl<$($generics)*> $timed {
            /// [`RateLimiter::check`] at this time.
            #[inline]
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check(self) -> Decision {
                self.check_n(1)
            }

            /// [`RateLimiter::check_n`] at this time.
            #[inline]
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check_n(self, cost: u64) -> Decision {
                Keyless::check(self.store(), self.time(), cost)
            }

            /// [`RateLimiter::peek`] at this time.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn peek(self) -> Decision {
                self.peek_n(1)
            }

            /// [`RateLimiter::peek_n`] at this time.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn peek_n(self, cost: u64) -> Decision {
                Keyless::peek(self.store(), self.time(), cost)
            }

            /// [`RateLimiter::check_each`] at this time.
            pub fn check_each(self, costs: impl IntoIterator<Item = u64>, decided: impl FnMut(Decision)) {
                costs.into_iter().map(|cost| Keyless::check(self.store(), self.time(), cost)).for_each(decided);
            }
        }
    };
}

macro_rules! checks {
    ($([$param:ident: $bound:ident] $store:ty),+) => {$(
        impl<$param: $bound, C: Clock> RateLimiter<$store, C> {
            /// Checks one unit now, and charges it if it is admitted.
            ///
            /// # Complexity
            /// O(1): one clock reading, one load, and one exchange if the unit is admitted. Lock-free. A denial writes
            /// nothing. A [striped](crate::leases::Leases) limiter writes a cache line that no other core writes, and charges
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
                Keyless::check(&self.store, self.time(), cost)
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
                Keyless::peek(&self.store, self.time(), cost)
            }

            /// Checks many costs in order, all at one time, and passes each decision to `decided`. The decisions equal
            /// those of single checks.
            pub fn check_each(&self, costs: impl IntoIterator<Item = u64>, decided: impl FnMut(Decision)) {
                self.at(self.clock.now()).check_each(costs, decided);
            }
        }

        checks_at!([$param: $bound, C] At<'_, RateLimiter<$store, C>>);
    )+};
}

checks!([A: Algorithm] Direct<A>);
checks_at!([A: Algorithm, X: Lasting] StateAt<'_, A, X>);
#[cfg(feature = "std")]
checks!([A: Algorithm] Adjustable<Direct<A>>, [A: Algorithm] Holding<Direct<A>>, [P: LeaseSource] Leases<P>);

/// The same charges at a given time.
macro_rules! charges_at {
    ([$($generics:tt)*] $timed:ty) => {
        /// Other kinds of charges, and refunds.
        impl<$($generics)*> $timed {
            /// [`RateLimiter::take`] at this time.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn take(self, most: u64) -> Decision {
                self.apply(&(), Operation::Take, most)
            }

            /// [`RateLimiter::charge_unchecked`] at this time.
            pub fn charge_unchecked(self, cost: u64) -> Decision {
                self.apply(&(), Operation::Force, cost)
            }

            /// [`RateLimiter::check_oversized`] at this time.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check_oversized(self, cost: u64) -> Decision {
                self.apply(&(), Operation::CheckOversized, cost)
            }

            /// [`RateLimiter::refund`] at this time.
            pub fn refund(self, charge: &Decision) -> u64 {
                self.refund_key(&(), charge, charge.cost())
            }

            /// [`RateLimiter::refund_n`] at this time.
            pub fn refund_n(self, charge: &Decision, units: u64) -> u64 {
                self.refund_key(&(), charge, units)
            }

            /// [`RateLimiter::give_back`] at this time.
            pub fn give_back(self, units: u64) -> u64 {
                self.give_back_key(&(), units)
            }

            /// [`RateLimiter::settle`] at this time.
            pub fn settle(self, charge: &Decision, actual: u64) -> Decision {
                self.settle_key(&(), charge, actual)
            }

            /// [`RateLimiter::reserve`] at this time.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn reserve(self, cost: u64, max_wait: Duration) -> Decision {
                self.apply(&(), reserve(max_wait), cost)
            }
        }
    };
}

macro_rules! charges {
    ($($store:ty),+) => {$(
        /// Other kinds of charges, refunds, and waits, first come, first served: see
        /// [`docs/waiting.md`](https://docs.rs/crate/tollgate/latest/source/docs/waiting.md).
        impl<A: Algorithm, C: Clock> RateLimiter<$store, C> {
            /// Returns this limit as one of several for [`check_all`](crate::check_all).
            pub const fn on(&self) -> BoundLimit<'_, $store, C, ()> {
                BoundLimit::new(self, &())
            }

            /// Charges as many of `most` units as the limiter can admit now. [`Decision::charged`] returns how many it
            /// charged. Denies if it can admit none; the denial has charged 0 units.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn take(&self, most: u64) -> Decision {
                self.apply(&(), Operation::Take, most)
            }

            /// Charges `cost` units even if the limiter cannot admit them: for work that is already done.
            ///
            /// The charge beyond the burst is a debt. The limiter admits nothing until time has paid it.
            /// [`Decision::delay`] returns when that is. [`Decision::charged`] returns how many units the state
            /// could hold.
            pub fn charge_unchecked(&self, cost: u64) -> Decision {
                self.apply(&(), Operation::Force, cost)
            }

            /// Checks `cost` units as [`RateLimiter::check_n`] does, but also admits a cost above the burst if nothing is
            /// owed: for messages that may be larger than a burst. What is beyond the burst is a debt. Windows and logs
            /// decide as a check does. See [keyed limiters](RateLimiter::check_oversized).
            ///
            /// # Examples
            /// ```
            /// use tollgate::{Gcra, Quota, RateLimiter};
            ///
            /// let limiter = RateLimiter::direct(Gcra::new(Quota::per_hour(64)));
            /// assert!(limiter.check_oversized(1_000).is_allowed());
            /// assert!(limiter.check().is_denied());
            /// ```
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check_oversized(&self, cost: u64) -> Decision {
                self.apply(&(), Operation::CheckOversized, cost)
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

            /// Refunds up to `units` of a charge; see [`RateLimiter::refund`].
            pub fn refund_n(&self, charge: &Decision, units: u64) -> u64 {
                self.refund_key(&(), charge, units)
            }

            /// Takes back up to `units` of what is owed, whichever calls charged them: for a caller that does not have
            /// the decision of the charge. Returns the number of units taken back. The limiter never has more than its
            /// full burst afterwards. Which units come back is the same as for
            /// [keyed limiters](RateLimiter::give_back).
            ///
            /// # Examples
            /// ```
            /// use tollgate::{Gcra, Quota, RateLimiter};
            ///
            /// let limiter = RateLimiter::direct(Gcra::new(Quota::per_hour(10)));
            /// assert!(limiter.check_n(4).is_allowed());
            /// assert_eq!(limiter.give_back(3), 3);
            /// assert_eq!(limiter.peek().remaining(), 9);
            /// assert_eq!(limiter.give_back(3), 1);
            /// ```
            pub fn give_back(&self, units: u64) -> u64 {
                self.give_back_key(&(), units)
            }

            /// Corrects a charge to the actual cost. If the charge was too high, this call refunds the difference. If
            /// it was too low, this call charges the difference, unchecked. Returns the state afterwards. A denied
            /// charge charged nothing, so this call then charges all of `actual`.
            pub fn settle(&self, charge: &Decision, actual: u64) -> Decision {
                self.settle_key(&(), charge, actual)
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
                self.apply(&(), reserve(max_wait), cost)
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
            /// # Ok::<(), tollgate::waiting::NotReady>(())
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

        charges_at!([A: Algorithm, C] At<'_, RateLimiter<$store, C>>);
    )+};
}

charges!(Direct<A>);
charges_at!([A: Algorithm, X: Lasting] StateAt<'_, A, X>);
#[cfg(feature = "std")]
charges!(Adjustable<Direct<A>>, Holding<Direct<A>>);
