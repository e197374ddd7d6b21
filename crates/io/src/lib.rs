//! Readers, writers, streams, sinks and HTTP bodies at the rate of a [`RateLimiter`](tollgate::RateLimiter).
//!
//! [`Limited`] wraps what transports bytes. It charges the bytes that have passed, and then waits until time has paid
//! them, before the next ones pass. So no byte is held back to ask first, the limit needs no burst as large as a buffer,
//! and the rate is exact: a wait that ends late makes the next one shorter.
//!
//! ```
//! use std::sync::Arc;
//! use tokio::io::AsyncReadExt;
//! use tollgate::{Gcra, Quota, RateLimiter, TokioClock};
//! use tollgate_io::Limited;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> std::io::Result<()> {
//! // 1 MB/s, with bursts of 64 KiB. The clock is tokio's, for tests in paused time. A server uses the default one.
//! let megabyte = Gcra::new(Quota::per_second(1_000_000).burst(65_536));
//! let all = Arc::new(RateLimiter::builder(megabyte).clock(TokioClock::new()).direct());
//!
//! let start = tokio::time::Instant::now();
//! let file = &[0_u8; 2_000_000][..];
//! let mut download = Limited::new(file, all.clone());
//! let mut bytes = Vec::new();
//! download.read_to_end(&mut bytes).await?;
//! assert_eq!(start.elapsed().as_millis(), 1_935); // (2,000,000 − 65,536) bytes, rounded up to a whole millisecond
//! # Ok(())
//! # }
//! ```
//!
//! [`ByteLimit`] says what a limit can be: a limiter without keys, a pair of them that both have to be paid, or a function,
//! such as one that charges a key.
//!
//! # Features
//!
//! Readers and writers need no feature. `futures` adds `Stream` and `Sink`, and `http-body` adds `Body`. The guide
//! [`docs/bytes.md`](https://docs.rs/crate/tollgate/latest/source/docs/bytes.md) says how to choose a burst, and what to do
//! without tokio.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

/// The README and the guide, as tests.
#[cfg(all(doctest, feature = "futures", feature = "http-body"))]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/bytes.md")]
    struct Bytes;
}

#[cfg(feature = "http-body")]
mod body;
mod byte_limit;
#[cfg(feature = "futures")]
mod items;
mod pause;
mod read_write;

use std::fmt;

use pin_project_lite::pin_project;

pub use self::byte_limit::ByteLimit;
use self::pause::Pause;

pin_project! {
    /// What transports bytes, at the rate of a limit: an `AsyncRead`, `AsyncWrite`, `Stream`, `Sink` or `Body` if `T` is
    /// one.
    ///
    /// Each call waits until the limit has a free unit, which is when time has paid what passed before, here and through others
    /// that share the limit. It lets the inner value transport bytes, and charges them. It
    /// charges what passed, not what was asked for, so a call that returns fewer bytes or an error costs no more.
    ///
    /// Both directions charge one limit, and each waits with a timer of its own. For a limit of one direction, wrap the half that
    /// `tokio::io::split` returns.
    ///
    /// # Consistency
    /// Any number of values can share a limit. In any interval of length t, at most `burst + rate × t` bytes pass, and for
    /// each value that shares the limit what one call transports. A large buffer therefore makes a large step: with 64 KiB
    /// at 1 KiB a second, a read returns at once, and the next one comes after a minute.
    ///
    /// A change of the limit's quota applies to what passes after it. A wait that has begun keeps its end.
    ///
    /// # Cancellation
    /// A future of a read or a write can be dropped at any time. The wait belongs to this value, so nothing is charged twice
    /// and the next call waits for the rest. Bytes that have passed stay charged if this value is dropped.
    ///
    /// # Panics
    /// A call panics if it has to wait outside a tokio runtime, or in a runtime without a timer.
    ///
    /// # Complexity
    /// One charge for each call that transports bytes. The first wait allocates a timer for its direction.
    pub struct Limited<T, L, F = ()> {
        #[pin]
        inner: T,
        limit: L,
        cost: F,
        read: Pause,
        write: Pause,
    }
}

impl<T, L: ByteLimit> Limited<T, L> {
    /// Wraps a reader, a writer or a body, whose bytes cost one unit each.
    pub const fn new(inner: T, limit: L) -> Self {
        Self { inner, limit, cost: (), read: Pause::new(), write: Pause::new() }
    }
}

impl<T, L: ByteLimit, F> Limited<T, L, F> {
    /// Wraps a stream or a sink. `cost` returns the units of an item, such as its bytes.
    ///
    /// # Examples
    /// ```
    /// use futures_util::{StreamExt, stream};
    /// use tollgate::{Gcra, Quota, RateLimiter, TokioClock};
    /// use tollgate_io::Limited;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let quota = Quota::per_second(100).burst(10);
    /// let limiter = RateLimiter::builder(Gcra::new(quota)).clock(TokioClock::new()).direct();
    /// let messages = stream::iter(["hello"; 202]);
    /// let start = tokio::time::Instant::now();
    /// let limited = Limited::items(messages, &limiter, |text: &&str| text.len() as u64);
    /// assert_eq!(limited.count().await, 202);
    /// assert_eq!(start.elapsed().as_secs(), 10); // 1,010 bytes, less the burst
    /// # }
    /// ```
    #[cfg(feature = "futures")]
    pub const fn items(inner: T, limit: L, cost: F) -> Self {
        Self { inner, limit, cost, read: Pause::new(), write: Pause::new() }
    }

    /// Returns the inner value.
    pub const fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the inner value. What it transports without this wrapper is not charged.
    pub const fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the limit.
    pub const fn limit(&self) -> &L {
        &self.limit
    }

    /// Returns the inner value without the limit. What has passed stays charged.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T: fmt::Debug, L: fmt::Debug, F> fmt::Debug for Limited<T, L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited")
            .field("inner", &self.inner)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
