//! The methods that the limiters for threads share, whatever their mode.

use std::sync::Arc;

use crate::edge::redis::client::{OnThread, RuntimeThread};
use crate::edge::redis::guard::{Guard, Health};
use crate::edge::redis::protocol::{Answer, Key};

/// A limiter of any mode.
pub(crate) trait Guarded {
    fn guard(&self) -> &Guard;
}

/// A limiter that decides in this process, for async code.
pub(crate) trait DecidesHere: Guarded {
    /// Decides with what this process holds. Never waits.
    fn decide<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer;

    /// Waits for the server, if this process cannot decide.
    #[cfg(feature = "rules")]
    fn decide_async(&self, key: &str, cost: u64) -> impl Future<Output = Answer> + Send;

    /// Blocks the calling thread while it waits for the server, if this process cannot decide.
    fn decide_waiting<K: Key + ?Sized>(&self, key: &K, cost: u64, thread: &RuntimeThread) -> Answer;
}

#[expect(private_bounds, reason = "the limiters of this crate")]
impl<L: Guarded> OnThread<L> {
    /// Returns the health of the server, as seen by this limiter's calls.
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner.guard().health()
    }

    /// Returns the health of each server, if the client has [several](crate::edge::redis::Client::sharded). Otherwise
    /// returns an empty list.
    #[must_use]
    pub fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        self.inner.guard().health_by_server()
    }
}

#[expect(private_bounds, reason = "the limiters of this crate")]
impl<L: DecidesHere> OnThread<L> {
    /// Checks one unit of a key in this process, and charges it if it is admitted. Never waits.
    #[inline]
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.inner.decide(key, 1)
    }

    /// Like [`check`](Self::check), for `cost` units: charges all of them or none.
    #[inline]
    pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.inner.decide(key, cost)
    }

    /// Like [`check`](Self::check), but waits for the server if this process cannot decide. Prefer this method where a
    /// request can wait for a round trip.
    pub fn check_wait<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.check_n_wait(key, 1)
    }

    /// Like [`check_wait`](Self::check_wait), for `cost` units: charges all of them or none.
    pub fn check_n_wait<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.inner.decide_waiting(key, cost, &self.thread)
    }
}
