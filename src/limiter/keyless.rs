//! Limiters without keys: what they have in common.
//!
//! By macro, since the methods of limiters with keys have the same names: Rust admits a generic `impl` for one of the two only.

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

/// A store that is asked without a key.
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
            /// Checks one unit now, and charges it if it is allowed.
            ///
            /// # Complexity
            /// O(1): a clock reading, a load, and one exchange if it is allowed. Lock-free; a denial writes nothing. A
            /// [striped](crate::Leases) limiter writes a line that no other core writes, and charges its source once in a block.
            #[inline]
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn check(&self) -> Decision {
                self.check_n(1)
            }

            /// Checks `cost` units now, and charges all of them or none.
            #[inline]
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn check_n(&self, cost: u64) -> Decision {
                Keyless::check(&self.store, self.time(None), cost)
            }

            /// Checks `cost` units at a time that the caller says.
            ///
            /// A `now` behind an earlier call's can only deny more, by less than the step back. (A striped limiter may spend what was
            /// charged up to a lease's life after it.)
            #[inline]
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn check_at(&self, cost: u64, now: Timestamp) -> Decision {
                Keyless::check(&self.store, self.time(Some(now)), cost)
            }

            /// Whether [`RateLimiter::check`] would be allowed now, and how things stand (what remains, when it resets), without
            /// charging.
            ///
            /// # Complexity
            /// As a check, and writes nothing. Of a striped limiter: O(stripes).
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn peek(&self) -> Decision {
                self.peek_n(1)
            }

            /// Whether [`RateLimiter::check_n`] would be allowed now, and how things stand, without charging.
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn peek_n(&self, cost: u64) -> Decision {
                Keyless::peek(&self.store, self.time(None), cost)
            }

            /// Whether [`RateLimiter::check_at`] would be allowed, and how things stand, without charging.
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn peek_at(&self, cost: u64, now: Timestamp) -> Decision {
                Keyless::peek(&self.store, self.time(Some(now)), cost)
            }

            /// Checks many costs in order at one time, and appends the decisions; the same as so many single checks.
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
        /// Charges of other kinds, taking them back, and waiting for one's turn, first come, first served: see
        /// [`guide::waiting`](crate::guide::waiting).
        impl<A: Algorithm, C: Clock> RateLimiter<$store, C> {
            /// This limit, to be checked together with others by [`check_all`](crate::check_all).
            pub const fn on(&self) -> BoundLimit<'_, $store, C, ()> {
                BoundLimit::new(self, &())
            }

            /// Charges as much of `most` as there is room for now: [`Decision::cost`] says how much that was. Denied if that is nothing.
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn take_up_to(&self, most: u64) -> Decision {
                self.apply(&(), Operation::Take, most, None)
            }

            /// [`RateLimiter::take_up_to`] at a time that the caller says.
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn take_up_to_at(&self, most: u64, now: Timestamp) -> Decision {
                self.apply(&(), Operation::Take, most, Some(now))
            }

            /// Charges `cost` units whether or not there is room: for work that is done already. What is charged beyond the burst is
            /// a debt, which time pays before anything is admitted; [`Decision::delay`] says when, and [`Decision::cost`] how
            /// much the state could hold.
            pub fn charge_unchecked(&self, cost: u64) -> Decision {
                self.apply(&(), Operation::Force, cost, None)
            }

            /// [`RateLimiter::charge_unchecked`] at a time that the caller says.
            pub fn charge_unchecked_at(&self, cost: u64, now: Timestamp) -> Decision {
                self.apply(&(), Operation::Force, cost, Some(now))
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
                self.refund_key(&(), charge, units, None)
            }

            /// [`RateLimiter::refund_n`] at a time that the caller says.
            pub fn refund_n_at(&self, charge: &Decision, units: u64, now: Timestamp) -> u64 {
                self.refund_key(&(), charge, units, Some(now))
            }

            /// Makes a charge what it turned out to be: gives back what was too much, and charges what was too little, unchecked.
            /// Answers how things stand. (A denied charge was none: all of `actual` is charged.)
            pub fn settle(&self, charge: &Decision, actual: u64) -> Decision {
                self.settle_key(&(), charge, actual, None)
            }

            /// [`RateLimiter::settle`] at a time that the caller says.
            pub fn settle_at(&self, charge: &Decision, actual: u64, now: Timestamp) -> Decision {
                self.settle_key(&(), charge, actual, Some(now))
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
                self.apply(&(), reserve(max_wait), cost, None)
            }

            /// [`RateLimiter::reserve`] at a time that the caller says.
            #[must_use = "a decision that nobody reads limits nothing"]
            pub fn reserve_at(&self, cost: u64, max_wait: Duration, now: Timestamp) -> Decision {
                self.apply(&(), reserve(max_wait), cost, Some(now))
            }

            /// A wait of the calling thread until one unit may go.
            ///
            /// If the quota changes, a turn that was reserved stands, and the next in line asks under the new quota.
            ///
            /// # Examples
            /// ```
            /// use tollgate::{Gcra, Quota, RateLimiter};
            ///
            /// let limiter = RateLimiter::direct(Gcra::new(Quota::per_second(1_000).burst(1)));
            /// for _ in 0..5 {
            ///     limiter.wait().block()?; // one a millisecond
            /// }
            /// # Ok::<(), tollgate::NotReady>(())
            /// ```
            #[cfg(feature = "std")]
            pub fn wait(&self) -> Wait<'_, $store, C> {
                self.wait_n(1)
            }

            /// A wait of the calling thread until `cost` units may go, all at once.
            #[cfg(feature = "std")]
            pub fn wait_n(&self, cost: u64) -> Wait<'_, $store, C> {
                Wait::new(&self.store, &self.clock, &self.lines, &(), cost)
            }

            /// A task's wait until one unit may go. Feature `tokio`.
            #[cfg(feature = "tokio")]
            pub fn until_ready(&self) -> UntilReady<'_, $store, C> {
                self.until_ready_n(1)
            }

            /// A task's wait until `cost` units may go, all at once. Feature `tokio`.
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
