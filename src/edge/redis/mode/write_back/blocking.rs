//! The write-back limiter of threads that may wait: that of async code, on the thread of the client.

use std::fmt;

use super::limiter::{WriteBackLimiter, make_on};
use super::options::WriteBackBuilder;
use super::stats::WriteBackStats;
use crate::base::clock::{Clock, QuantaClock};
use crate::edge::redis::client::{Blocking, BuildError, RuntimeThread, Tasks, on_thread};
use crate::edge::redis::guard::Health;
use crate::edge::redis::mode::dispatch::builds;
use crate::edge::redis::protocol::{Answer, Key};

/// As [`WriteBackLimiter`](super::WriteBackLimiter), for threads: its task runs on the thread of the client. By
/// [`Builder::write_back`](crate::edge::redis::Builder::write_back).
///
/// Copies are the same limiter. The task ends when the last one is dropped, after a last post; [`close`](Self::close) waits for that.
/// In a task of a tokio runtime, what waits blocks the runtime's thread.
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
pub struct BlockingWriteBackLimiter<C: Clock + Send + Sync + 'static = QuantaClock> {
    limiter: WriteBackLimiter<C>,
    thread: RuntimeThread,
}

impl<C: Clock + Send + Sync + 'static> Clone for BlockingWriteBackLimiter<C> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), thread: self.thread.clone() }
    }
}

impl<C: Clock + Send + Sync + 'static> fmt::Debug for BlockingWriteBackLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingWriteBackLimiter").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

fn make<B: Blocking, C: Clock + Send + Sync + 'static>(
    builder: WriteBackBuilder<B, C>,
) -> Result<BlockingWriteBackLimiter<C>, BuildError> {
    let WriteBackBuilder { builder, options, clock } = builder;
    let (builder, thread) = on_thread(builder);
    let limiter = make_on(Tasks::on(&thread)?, WriteBackBuilder { builder, options, clock })?;
    Ok(BlockingWriteBackLimiter { limiter, thread })
}

builds!(blocking WriteBackBuilder => BlockingWriteBackLimiter by make);

impl<C: Clock + Send + Sync + 'static> BlockingWriteBackLimiter<C> {
    /// Decides about one unit, here and now. Never waits.
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.limiter.check(key)
    }

    /// Decides about `cost` units, here and now; all or nothing. Never waits.
    pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.limiter.check_n(key, cost)
    }

    /// As [`check`](Self::check), but waits for the server where this process has spent what it may: no longer than the time-out.
    pub fn check_wait<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.check_n_wait(key, 1)
    }

    /// As [`check_n`](Self::check_n), but waits for the server where this process has spent what it may: no longer than the time-out.
    pub fn check_n_wait<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.limiter.check_wait(key, cost, &self.thread)
    }

    /// Posts all that is not posted. Returns how many units could not be.
    pub fn flush(&self) -> u64 {
        self.thread.block_on(self.limiter.flush())
    }

    /// Posts all that is not posted and ends the task, for all copies: later checks go on by what this process has, and nothing more is
    /// posted. Returns how many units could not be.
    pub fn close(self) -> u64 {
        self.thread.block_on(self.limiter.close())
    }

    /// What was counted, and what is not posted. O(keys).
    #[must_use]
    pub fn stats(&self) -> WriteBackStats {
        self.limiter.stats()
    }

    /// How the server fares.
    #[must_use]
    pub fn health(&self) -> Health {
        self.limiter.health()
    }
}

#[cfg(feature = "rules")]
impl<C: Clock + Send + Sync + 'static> BlockingWriteBackLimiter<C> {
    /// What [`check_n_wait`](Self::check_n_wait) would decide, and what it would ask for; charges nothing. `None` if only the server
    /// knows.
    pub(crate) fn look<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Option<Answer> {
        self.thread.block_on(self.limiter.look_async(key, cost))
    }

    /// See [`WriteBackBook::succeed`](super::book::WriteBackBook::succeed).
    pub(crate) fn succeed(&self) {
        self.limiter.succeed();
    }
}
