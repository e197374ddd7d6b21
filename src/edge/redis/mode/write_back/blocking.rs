//! The write-back limiter for threads that may block: the async limiter, on the thread of the client.

use std::sync::Arc;

use super::limiter::{WriteBackLimiter, make};
use super::options::WriteBackBuilder;
use super::regions::RegionHealth;
use super::stats::WriteBackStats;
use crate::base::clock::{Clock, QuantaClock};
use crate::edge::redis::client::OnThread;
use crate::edge::redis::guard::Health;
use crate::edge::redis::mode::forms::blocking;
use crate::edge::redis::protocol::{Answer, Key};

/// [`WriteBackLimiter`](super::WriteBackLimiter) for threads. Its task runs on the thread of the client.
/// [`Builder::write_back`](crate::edge::redis::Builder::write_back) creates its builder.
///
/// All clones are the same limiter. The task ends when the last clone is dropped, after a last post.
/// [`close`](BlockingWriteBackLimiter::close) waits for this post. In a task of a tokio runtime, methods that wait
/// block a thread of that runtime.
///
/// # Examples
/// ```
/// use tollgate::redis::{InProcess, Limit};
/// use tollgate::Quota;
///
/// let server = InProcess::default().blocking(); // or a `BlockingClient`
/// let limit = Limit::fixed_window(Quota::per_minute(600));
/// let limiter = server.limiter("api", limit).write_back().processes(4).build()?;
/// assert!(limiter.check("203.0.113.7").is_allowed()); // decided here
/// assert_eq!(limiter.close(), 0); // nothing is left to be posted
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type BlockingWriteBackLimiter<C = QuantaClock> = OnThread<WriteBackLimiter<C>>;

blocking!(WriteBackBuilder => BlockingWriteBackLimiter by make, WriteBackStats);

impl<C: Clock + Send + Sync + 'static> BlockingWriteBackLimiter<C> {
    /// Returns what this process knows of the other regions, in the order in which the builder received them. Empty if
    /// there is only one region.
    #[must_use]
    pub fn health_by_region(&self) -> Vec<(Arc<str>, RegionHealth)> {
        self.inner.health_by_region()
    }

    /// Posts all units that are not yet posted. Returns the number of units that could not be posted.
    pub fn flush(&self) -> u64 {
        self.thread.block_on(self.inner.flush())
    }

    /// Posts all units that are not yet posted, and ends the task for all clones. Later checks use what this process
    /// has, and nothing more is posted. Returns the number of units that could not be posted.
    pub fn close(self) -> u64 {
        self.thread.block_on(self.inner.close())
    }
}

#[cfg(feature = "rules")]
impl<C: Clock + Send + Sync + 'static> BlockingWriteBackLimiter<C> {
    /// Returns what [`check_n_wait`](Self::check_n_wait) would decide, and queues the call that it would queue. Charges
    /// nothing. Returns `None` if only the server can decide.
    pub(crate) fn look<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Option<Answer> {
        self.thread.block_on(self.inner.look_async(key, cost))
    }

    /// See [`WriteBackLimiter::look`].
    pub(crate) fn look_here<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Option<Answer> {
        self.inner.look(key, cost)
    }

    /// See [`WriteBackLimiter::spend_held`].
    pub(crate) fn spend_held(&self, key: &str, cost: u64) -> u64 {
        self.inner.spend_held(key, cost)
    }

    /// See [`WriteBackLimiter::decide_without_server`].
    pub(crate) fn decide_without_server(&self, key: &str, cost: u64) -> Answer {
        self.inner.decide_without_server(key, cost)
    }

    /// See [`WriteBackBook::succeed`](super::book::WriteBackBook::succeed).
    pub(crate) fn succeed(&self) {
        self.inner.succeed();
    }
}
