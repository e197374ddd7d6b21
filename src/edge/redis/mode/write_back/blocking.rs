//! The write-back limiter for threads that may block: the async limiter, on the thread of the client.

use std::sync::Arc;

use super::limiter::{WriteBackLimiter, make};
use super::options::WriteBackBuilder;
use super::regions::RegionHealth;
use super::stats::WriteBackStats;
use crate::base::clock::{Clock, IntoClock, QuantaClock};
use crate::edge::redis::client::{BuildError, OnThread, Tasks, on_thread};
use crate::edge::redis::protocol::Transport;

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

impl<T: Transport + Clone, C: IntoClock<Clock: Send + Sync + 'static>> WriteBackBuilder<OnThread<T>, C> {
    /// Builds the limiter. Its task runs on the client's thread.
    ///
    /// # Errors
    /// Returns an error if the thread cannot start, or if the server's script cannot count a quota exactly.
    pub fn build(self) -> Result<BlockingWriteBackLimiter<C::Clock>, BuildError> {
        let Self { builder, options, clock } = self;
        let (builder, thread) = on_thread(builder);
        let options = options.on_thread();
        let inner = make(Tasks::on(&thread)?, WriteBackBuilder { builder, options, clock })?;
        Ok(OnThread { inner, thread })
    }
}

impl<C: Clock + Send + Sync + 'static> BlockingWriteBackLimiter<C> {
    /// Returns the counts since the limiter was built. O(keys).
    #[must_use]
    pub fn stats(&self) -> WriteBackStats {
        self.inner.stats()
    }

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
