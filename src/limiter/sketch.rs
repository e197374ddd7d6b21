//! What limiters that count in a sketch have besides.

use std::hash::BuildHasher;

use super::RateLimiter;
use crate::algorithm::WindowAlgorithm;
use crate::base::clock::{Clock, Timestamp};
use crate::store::{Saturation, Sketch};

impl<A: WindowAlgorithm, H: BuildHasher, C: Clock> RateLimiter<Sketch<A, H>, C> {
    /// The algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }

    /// How full the sketch is in the present window.
    ///
    /// # Complexity
    /// O(1): 12,288 words are looked at, at most.
    pub fn saturation(&self) -> Saturation {
        self.store.saturation(self.now_ns())
    }

    /// [`RateLimiter::saturation`] at a time that the caller says: for limiters whose checks are given times too.
    pub fn saturation_at(&self, now: Timestamp) -> Saturation {
        self.store.saturation(now.as_nanos())
    }
}
