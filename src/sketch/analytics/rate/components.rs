//! A key's counts, and what can be made of them.

use std::time::Duration;

/// A key's counts in the last window and in the present one, at one time.
///
/// Each count is at least the key's events, or [`Rate::largest`](super::Rate::largest).
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
    /// Events in the last whole window.
    pub previous: u64,
    /// Events in the present window, until now.
    pub current: u64,
    /// The window's length.
    pub window: Duration,
    /// How much of the present window has passed: from 0, and always below 1.
    pub fraction: f64,
}

impl RateComponents {
    /// Events a second in the last whole window.
    #[must_use]
    pub fn rate(&self) -> f64 {
        float(self.previous) / self.window.as_secs_f64()
    }

    /// About how many events there were in the last `window` of time: those of the present window, and as
    /// much of the last one's as is still within it, taken to have come evenly.
    #[must_use]
    pub fn sliding_count(&self) -> f64 {
        float(self.previous) * (1.0 - self.fraction) + float(self.current)
    }

    /// [`RateComponents::sliding_count`], a second.
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
