//! What a limiter with one state has besides.

use super::RateLimiter;
use crate::algorithm::Algorithm;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::store::Direct;

impl<A: Algorithm, C: Clock> RateLimiter<Direct<A>, C> {
    /// Checks `cost` units at `now` under another quota than the limiter's, made by [`Algorithm::requota`].
    ///
    /// An algorithm that did not come from this limiter's own, so that it would read the state otherwise, is not used:
    /// the limiter's own decides instead. Debug builds panic.
    #[inline]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_with(&self, algorithm: &A, cost: u64, now: Timestamp) -> Decision {
        self.store.check_with(super::readable(self.store.algorithm(), algorithm), now.as_nanos(), cost)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }
}
