//! Limiters without keys.

use super::RateLimiter;
use crate::algorithm::Algorithm;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::store::Direct;
use alloc::vec::Vec;

impl<A: Algorithm, C: Clock> RateLimiter<Direct<A>, C> {
    /// Checks one unit now, and charges it if it is allowed.
    ///
    /// # Complexity
    /// O(1): a clock reading, a load, and one exchange if it is allowed. Lock-free; a denial writes nothing.
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check(&self) -> Decision {
        self.check_n(1)
    }

    /// Checks `cost` units now, and charges all of them or none.
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_n(&self, cost: u64) -> Decision {
        self.check_at(cost, self.clock.now())
    }

    /// Checks `cost` units at a time that the caller says.
    ///
    /// A `now` behind an earlier call's can only deny more, by less than the step back.
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_at(&self, cost: u64, now: Timestamp) -> Decision {
        self.store.charge(self.store.algorithm(), now.as_nanos(), cost)
    }

    /// Checks `cost` units at `now` under another quota than the limiter's, made by [`Algorithm::requota`].
    ///
    /// An algorithm that did not come from this limiter's own, so that it would read the state otherwise, is not used:
    /// the limiter's own decides instead. Debug builds panic.
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_with(&self, algorithm: &A, cost: u64, now: Timestamp) -> Decision {
        self.store.charge(super::readable(self.store.algorithm(), algorithm), now.as_nanos(), cost)
    }

    /// Whether [`RateLimiter::check`] would be allowed now, and how things stand (what remains, when it resets), without
    /// charging.
    ///
    /// # Complexity
    /// As a check, and writes nothing.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn peek(&self) -> Decision {
        self.peek_n(1)
    }

    /// Whether [`RateLimiter::check_n`] would be allowed now, and how things stand, without charging.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn peek_n(&self, cost: u64) -> Decision {
        self.peek_at(cost, self.clock.now())
    }

    /// Whether [`RateLimiter::check_at`] would be allowed, and how things stand, without charging.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn peek_at(&self, cost: u64, now: Timestamp) -> Decision {
        self.store.peek(now.as_nanos(), cost)
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
