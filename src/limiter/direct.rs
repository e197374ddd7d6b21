//! Methods that only limiters with one state have.

use super::{At, RateLimiter};
use crate::algorithm::Algorithm;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::store::Direct;

impl<A: Algorithm, C: Clock> RateLimiter<Direct<A>, C> {
    /// Checks `cost` units now under the quota of `algorithm` instead of the limiter's own quota.
    ///
    /// Make `algorithm` with [`Algorithm::requota`] from the limiter's own algorithm. If another algorithm is passed
    /// that would read the state differently, the limiter uses its own algorithm instead.
    ///
    /// # Panics
    /// Debug builds panic if `algorithm` would read the state differently.
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_with(&self, cost: u64, algorithm: &A) -> Decision {
        self.at(self.clock.now()).check_with(cost, algorithm)
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }
}

impl<A: Algorithm, C> At<'_, RateLimiter<Direct<A>, C>> {
    /// [`RateLimiter::check_with`] at this time.
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_with(self, cost: u64, algorithm: &A) -> Decision {
        let store = &self.limiter.store;
        store.check_for(super::readable(store.algorithm(), algorithm), self.now.as_nanos(), cost)
    }
}
