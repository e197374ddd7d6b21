//! The lease limiter of threads that may wait: that of async code, on the thread of the client.

use super::limiter::{LeaseLimiter, make};
use super::options::LeaseBuilder;
use super::stats::LeaseStats;
use crate::base::clock::{Clock, QuantaClock, Timestamp};
use crate::base::decision::Decision;
use crate::edge::redis::client::OnThread;
use crate::edge::redis::guard::Health;
use crate::edge::redis::mode::dispatch::builds;
use crate::edge::redis::protocol::{Answer, Key};

/// [`LeaseLimiter`](super::LeaseLimiter) for threads: its task runs on the thread of the client, and ends when the last copy is dropped.
///
/// All that is said there holds here. In a task of a tokio runtime, [`check_wait`](BlockingLeaseLimiter::check_wait) and
/// [`close`](BlockingLeaseLimiter::close) block the runtime's thread.
///
/// # Examples
/// ```
/// use tollgate::redis::{InProcess, Limit};
/// use tollgate::Quota;
///
/// let server = InProcess::default().blocking(); // or a `BlockingClient`
/// let limiter = server.limiter("api", Limit::gcra(Quota::per_second(100))).leases().build()?;
/// assert!(limiter.check_wait("203.0.113.7").is_allowed());
/// limiter.close();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type BlockingLeaseLimiter<C = QuantaClock> = OnThread<LeaseLimiter<C>>;

builds!(LeaseBuilder => blocking BlockingLeaseLimiter by make);

impl<C: Clock + Send + Sync + 'static> BlockingLeaseLimiter<C> {
    /// Checks one unit of a key by what is held, and charges it if it is allowed. Never waits.
    ///
    /// As [`LeaseLimiter::check`](super::LeaseLimiter::check).
    #[inline]
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.inner.check(key)
    }

    /// As [`check`](BlockingLeaseLimiter::check), of `cost` units: all of them or none.
    #[inline]
    pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.inner.check_n(key, cost)
    }

    /// As [`check_n`](BlockingLeaseLimiter::check_n), at a time that the caller read from [`clock`](super::LeaseBuilder::clock).
    #[inline]
    pub fn check_at<K: Key + ?Sized>(&self, key: &K, cost: u64, now: Timestamp) -> Answer {
        self.inner.check_at(key, cost, now)
    }

    /// Checks one unit of a key: by what is held, or else by the server, and waits for it. What most servers should use.
    ///
    /// As [`LeaseLimiter::check_async`](super::LeaseLimiter::check_async).
    pub fn check_wait<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.check_n_wait(key, 1)
    }

    /// As [`check_wait`](BlockingLeaseLimiter::check_wait), of `cost` units: all of them or none.
    pub fn check_n_wait<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.inner.check_wait(key, cost, &self.thread)
    }

    /// How things stand in this process, without charging. As [`LeaseLimiter::peek`](super::LeaseLimiter::peek).
    #[must_use]
    pub fn peek<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.inner.peek(key, cost)
    }

    /// Takes back the units of an answer. As [`LeaseLimiter::refund`](super::LeaseLimiter::refund).
    pub fn refund<K: Key + ?Sized>(&self, key: &K, answer: &Answer) -> u64 {
        self.inner.refund(key, answer)
    }

    /// What became of units so far. O(keys).
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        self.inner.stats()
    }

    /// How the server fares.
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner.health()
    }

    /// Stops fetching, and gives back to the server what is held. As [`LeaseLimiter::close`](super::LeaseLimiter::close).
    pub fn close(self) {
        self.thread.block_on(self.inner.close());
    }
}
