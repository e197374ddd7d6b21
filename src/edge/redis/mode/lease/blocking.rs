//! The lease limiter for threads that may block: the async limiter, on the thread of the client.

use super::limiter::{LeaseLimiter, make};
use super::options::LeaseBuilder;
use super::stats::LeaseStats;
use crate::base::clock::{Clock, QuantaClock, Timestamp};
use crate::base::decision::Decision;
use crate::edge::redis::client::OnThread;
use crate::edge::redis::guard::Health;
use crate::edge::redis::mode::forms::blocking;
use crate::edge::redis::protocol::{Answer, Key};

/// [`LeaseLimiter`](super::LeaseLimiter) for threads. Its task runs on the thread of the client, and ends when the last
/// clone is dropped.
///
/// Its guarantees are those of [`LeaseLimiter`](super::LeaseLimiter). In a task of a tokio runtime,
/// [`check_wait`](BlockingLeaseLimiter::check_wait) and [`close`](BlockingLeaseLimiter::close) block a thread of that
/// runtime.
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

blocking!(LeaseBuilder => BlockingLeaseLimiter by make, LeaseStats);

impl<C: Clock + Send + Sync + 'static> BlockingLeaseLimiter<C> {
    /// Like [`check_n`](BlockingLeaseLimiter::check_n), at a time that the caller read from
    /// [`clock`](super::LeaseBuilder::clock).
    #[inline]
    pub fn check_at<K: Key + ?Sized>(&self, key: &K, cost: u64, now: Timestamp) -> Answer {
        self.inner.check_at(key, cost, now)
    }

    /// Returns the state of a key in this process, without a charge. See
    /// [`LeaseLimiter::peek`](super::LeaseLimiter::peek).
    #[must_use]
    pub fn peek<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.inner.peek(key, cost)
    }

    /// Takes back the units of an answer. See [`LeaseLimiter::refund`](super::LeaseLimiter::refund).
    pub fn refund<K: Key + ?Sized>(&self, key: &K, answer: &Answer) -> u64 {
        self.inner.refund(key, answer)
    }

    /// Stops fetching, and gives held units back to the server. See
    /// [`LeaseLimiter::close`](super::LeaseLimiter::close).
    pub fn close(self) {
        self.thread.block_on(self.inner.close());
    }
}

#[cfg(feature = "rules")]
impl<C: Clock + Send + Sync + 'static> BlockingLeaseLimiter<C> {
    /// See [`LeaseLimiter::decide_without_server`].
    pub(crate) fn decide_without_server(&self, key: &str, cost: u64) -> Answer {
        self.inner.decide_without_server(key, cost)
    }

    /// See [`LeaseLimiter::spend_held`].
    pub(crate) fn spend_held(&self, key: &str, cost: u64) -> u64 {
        self.inner.spend_held(key, cost)
    }
}
