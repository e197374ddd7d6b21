//! The lease limiter for threads that may block: the async limiter, on the thread of the client.

use super::limiter::{LeaseLimiter, make};
use super::options::LeaseBuilder;
use super::stats::LeaseStats;
use crate::base::clock::{Clock, IntoClock, QuantaClock, Timestamp};
use crate::base::decision::Decision;
use crate::edge::redis::client::{BuildError, OnThread, Tasks, on_thread};
use crate::edge::redis::protocol::{Answer, Key, Transport};
use crate::limiter::At;

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

impl<T: Transport, C: IntoClock<Clock: Send + Sync + 'static>> LeaseBuilder<OnThread<T>, C> {
    /// Builds the limiter. Its task runs on the client's thread.
    ///
    /// # Errors
    /// Returns an error if the thread cannot start, or if the server's script cannot count a quota exactly.
    pub fn build(self) -> Result<BlockingLeaseLimiter<C::Clock>, BuildError> {
        let Self { builder, options, clock } = self;
        let (builder, thread) = on_thread(builder);
        let inner = make(Tasks::on(&thread)?, LeaseBuilder { builder, options, clock })?;
        Ok(OnThread { inner, thread })
    }
}

impl<C: Clock + Send + Sync + 'static> BlockingLeaseLimiter<C> {
    /// Returns the counts since the limiter was built. O(keys).
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        self.inner.stats()
    }

    /// Returns this limiter at a time that the caller read from [`clock`](super::LeaseBuilder::clock).
    pub const fn at(&self, now: Timestamp) -> At<'_, LeaseLimiter<C>> {
        self.inner.at(now)
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
