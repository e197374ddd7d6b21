//! Tokio's time as a clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::base::clock::{Clock, Timestamp, saturating_nanos, unix_nanos};

/// Tokio's own time, anchored once to the wall clock.
///
/// It is the operating system's monotonic clock. In tests, `tokio::time::pause` and `advance` control it. Outside
/// tests it has no advantage over [`StdClock`](crate::StdClock), and it is slower than the default clock; waits are
/// exact with any of these clocks. Create it in the runtime whose time it reads.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, Quota, RateLimiter, TokioClock};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tollgate::waiting::NotReady> {
/// let start = tokio::time::Instant::now(); // in a test with `start_paused = true`
/// let build = RateLimiter::builder(Gcra::new(Quota::per_minute(1)));
/// let limiter = build.clock(TokioClock::new()).direct();
/// for _ in 0..=60 {
///     limiter.until_ready().await?; // one hour of paused time
/// }
/// assert_eq!(start.elapsed(), Duration::from_secs(3_600));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TokioClock {
    start: Instant,
    origin: Timestamp,
}

impl TokioClock {
    /// Creates the clock, anchored to the wall clock.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Timestamp::from_nanos(unix_nanos()))
    }

    /// Creates a clock that reads `now` at this moment, so that a test can begin at a chosen point of a window.
    #[must_use]
    pub fn starting_at(now: Timestamp) -> Self {
        Self { start: Instant::now(), origin: now }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let elapsed: Duration = self.start.elapsed();
        self.origin + Duration::from_nanos(saturating_nanos(elapsed))
    }
}
