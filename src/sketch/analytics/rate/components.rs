//! A key's two counts, and the estimates that follow from them.

use std::time::Duration;

/// A key's counts in the previous window and in the current one, at one time.
///
/// Each count is at least the number of the key's events, or it is [`Rate::largest`](super::Rate::largest).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::sketch::Rate;
/// use tollgate::{ManualClock, Timestamp};
///
/// let clock = ManualClock::new(Timestamp::from_secs(60));
/// let rate = Rate::builder(Duration::from_secs(10)).clock(clock.clone()).build()?;
/// rate.observe("alice", 50);
/// clock.advance(Duration::from_secs(12));
/// rate.observe("alice", 3);
///
/// let components = rate.components("alice");
/// assert_eq!((components.previous, components.current, components.fraction), (50, 3, 0.2));
/// assert_eq!(components.rate(), 5.0);
/// assert_eq!(components.sliding_count(), 43.0); // 50 × 0.8 + 3
/// assert_eq!(components.sliding_rate(), 4.3);
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
#[derive(Copy, Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct RateComponents {
    /// The events in the previous window.
    pub previous: u64,
    /// The events in the current window until now.
    pub current: u64,
    /// The window's length.
    pub window: Duration,
    /// The elapsed part of the current window: at least 0 and always below 1.
    pub fraction: f64,
}

impl RateComponents {
    /// Returns the events per second in the previous window.
    #[must_use]
    pub fn rate(&self) -> f64 {
        float(self.previous) / self.window.as_secs_f64()
    }

    /// Estimates the number of events in the last `window` of time. The estimate is the count of the current window,
    /// plus a part of the previous window's count: the part of that window that is still within the last `window` of
    /// time. It assumes that the events of the previous window were evenly spread.
    #[must_use]
    pub fn sliding_count(&self) -> f64 {
        float(self.previous) * (1.0 - self.fraction) + float(self.current)
    }

    /// Returns [`RateComponents::sliding_count`] per second.
    #[must_use]
    pub fn sliding_rate(&self) -> f64 {
        self.sliding_count() / self.window.as_secs_f64()
    }
}

/// A count, which has at most 48 bits.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}
