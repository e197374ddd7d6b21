//! Methods that only limiters with a sketch have.

use std::hash::BuildHasher;

use super::RateLimiter;
use crate::algorithm::WindowAlgorithm;
use crate::base::clock::Clock;
use crate::store::{Saturation, Sketch};

impl<A: WindowAlgorithm, H: BuildHasher, C: Clock> RateLimiter<Sketch<A, H>, C> {
    /// Returns the algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }

    /// Returns how full the sketch is in the present window.
    ///
    /// # Complexity
    /// O(1): it reads at most 12,288 words.
    pub fn saturation(&self) -> Saturation {
        self.store.saturation(self.now_ns())
    }
}
