//! Limiters without keys that spend from leases.

use crate::limiter::RateLimiter;
use crate::limiter::striped::{LeaseAlgorithm, LeaseSource, Leases, Striped};

impl<P: LeaseSource, C> RateLimiter<Leases<P>, C> {
    /// Returns the leases, for a source that is filled by deposits.
    ///
    /// # Examples
    /// See [`LeaseSource`].
    pub const fn leases(&self) -> &Leases<P> {
        &self.store
    }
}

impl<A: LeaseAlgorithm, C> RateLimiter<Striped<A>, C> {
    /// Returns the algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.source().algorithm()
    }
}
