//! Methods that only limiters with one state have.

use super::RateLimiter;
use crate::algorithm::Algorithm;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::store::Direct;

impl<A: Algorithm, C: Clock> RateLimiter<Direct<A>, C> {
    /// Checks `cost` units at `now` under another quota than the limiter's, made with [`Algorithm::requota`].
    ///
    /// An algorithm that was not made from this limiter's own would read the state differently. The limiter then uses
    /// its own algorithm instead; debug builds panic.
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
