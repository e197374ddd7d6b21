//! Methods that wait for a turn.

use std::hash::Hash;

use crate::base::clock::Clock;
use crate::limiter::RateLimiter;
#[cfg(feature = "tokio")]
use crate::limiter::wait::UntilReady;
use crate::limiter::wait::Wait;
use crate::store::{ManyKeys, Store};

/// Waits for a turn, first come, first served for each key. See
/// [`docs/waiting.md`](https://docs.rs/crate/tollgate/latest/source/docs/waiting.md).
impl<S: ManyKeys, C: Clock> RateLimiter<S, C> {
    /// Returns a wait that blocks the calling thread until one unit of `key` is admitted.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(Quota::per_second(1_000).burst(1));
    /// for _ in 0..5 {
    ///     limiter.wait("alice").within(Duration::from_secs(1)).block()?; // one per millisecond
    /// }
    /// # Ok::<(), tollgate::waiting::NotReady>(())
    /// ```
    pub fn wait<'a, Q>(&'a self, key: &'a Q) -> Wait<'a, S, C, Q>
    where
        S: Store<Q>,
        Q: Hash + ?Sized,
    {
        self.wait_n(key, 1)
    }

    /// Returns a wait that blocks the calling thread until all `cost` units of `key` are admitted together.
    pub fn wait_n<'a, Q>(&'a self, key: &'a Q, cost: u64) -> Wait<'a, S, C, Q>
    where
        S: Store<Q>,
        Q: Hash + ?Sized,
    {
        Wait::new(&self.store, &self.clock, &self.lines, key, cost)
    }

    /// Returns a future that waits until one unit of `key` is admitted. Feature `tokio`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::waiting::NotReady> {
    /// let limiter = RateLimiter::new(Quota::per_second(100).burst(1));
    /// for _ in 0..3 {
    ///     limiter.until_ready("alice").within(Duration::from_secs(1)).await?; // one per 10 ms
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tokio")]
    pub fn until_ready<'a, Q>(&'a self, key: &'a Q) -> UntilReady<'a, S, C, Q>
    where
        S: Store<Q>,
        Q: Hash + ?Sized,
    {
        self.until_ready_n(key, 1)
    }

    /// Returns a future that waits until all `cost` units of `key` are admitted together. Feature `tokio`.
    #[cfg(feature = "tokio")]
    pub fn until_ready_n<'a, Q>(&'a self, key: &'a Q, cost: u64) -> UntilReady<'a, S, C, Q>
    where
        S: Store<Q>,
        Q: Hash + ?Sized,
    {
        UntilReady::new(&self.store, &self.clock, &self.lines, key, cost)
    }
}

/// Methods of every store.
impl<S, C> RateLimiter<S, C> {
    /// Returns the number of threads and tasks that wait now, for all keys. An estimate while waiters come and go.
    /// Zero for limiters without waits, such as limiters with leases.
    pub fn waiting(&self) -> usize {
        self.lines.waiters()
    }

    /// Returns the number of lines. There is one line for each key that has waiters.
    #[doc(hidden)]
    pub fn waiting_lines(&self) -> usize {
        self.lines.len()
    }
}
