//! Limiters whose stores identify keys by their hashes.

use core::hash::Hash;

use super::RateLimiter;
use super::at::Timed;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::store::HashedStore;

/// Keys may have any type that hashes, and the type may differ from call to call. Two keys with equal hashes are the
/// same key. `&str` and `String` have the same hash. An integer and its text do not.
impl<S: HashedStore, C: Clock> RateLimiter<S, C> {
    /// Returns the hash that this limiter uses for `key`, for [`RateLimiter::check_hash`].
    #[inline]
    #[must_use]
    pub fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.store.hash(key)
    }

    /// Checks `cost` units now for the key with this hash.
    ///
    /// The limiter identifies the key only by this hash. The hash must come from [`RateLimiter::hash`], or from a
    /// keyed hasher of 64-bit quality, for *every* call on this limiter.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_minute(1));
    /// let hash = limiter.hash("alice"); // once per connection
    /// assert!(limiter.check_hash(hash, 1).is_allowed());
    /// assert!(limiter.check("alice").is_denied());
    /// ```
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_hash(&self, hash: u64, cost: u64) -> Decision {
        self.apply_hash(hash, cost)
    }

    /// [`RateLimiter::check_each`] for keys that are already hashed; see [`RateLimiter::check_hash`].
    #[inline]
    pub fn check_each_hash(
        &self,
        requests: impl IntoIterator<Item = (u64, u64)>,
        decided: impl FnMut(Decision),
    ) {
        self.at(self.clock.now()).check_each_hash(requests, decided);
    }
}
