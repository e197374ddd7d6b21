//! Methods that only limiters with one state have.

use super::RateLimiter;
use crate::algorithm::Algorithm;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::store::Direct;

impl<A: Algorithm, C: Clock> RateLimiter<Direct<A>, C> {
    /// Checks `cost` units at `now` under the quota of `algorithm` instead of the limiter's own quota.
    ///
    /// Make `algorithm` with [`Algorithm::requota`] from the limiter's own algorithm. If another algorithm is passed
    /// that would read the state differently, the limiter uses its own algorithm instead.
    ///
    /// # Panics
    /// Debug builds panic if `algorithm` would read the state differently.
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_with(&self, algorithm: &A, cost: u64, now: Timestamp) -> Decision {
        self.store.check_with(super::readable(self.store.algorithm(), algorithm), now.as_nanos(), cost)
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }
}
