//! Measures how full a sketch is.

use crate::sketch::window::{WindowCounters, WindowedBloom, Windows};

/// The number of words in a sample.
const SAMPLE: usize = 4_096;

/// How full a sketch is in the current window, as the chances of errors. All values are estimates from 4,096 words.
///
/// # Examples
/// ```
/// use tollgate::{Capacity, FixedWindow, Quota, RateLimiter};
///
/// let window = FixedWindow::new(Quota::per_hour(10));
/// let limiter = RateLimiter::builder(window).capacity(Capacity::memory(64 << 10)).sketch()?;
/// assert!(!limiter.saturation().is_warning());
/// for key in 0..500_000 {
///     let _ = limiter.check_n(&key, 5);
/// }
/// assert!(limiter.saturation().is_warning()); // the sketch needs more memory
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Copy, Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Saturation {
    /// The chance, from 0 to 1, that the sketch takes a new key for one that it has seen. Such a key loses one unit.
    pub false_positive: f64,
    /// The chance that a key that was seen before is counted at least one unit above its use.
    pub overcounted: f64,
    /// The chance that a key is denied although it used less than half of its limit.
    ///
    /// This happens if other keys have raised each of its counters to half of the limit or more.
    pub denied: f64,
}

impl Saturation {
    /// If [`Saturation::denied`] is above this value, the sketch is too small.
    pub const WARNING: f64 = 0.001;

    /// Returns whether more than one key in a thousand is denied although it used less than half of its limit.
    ///
    /// In this case the sketch needs more memory or shorter windows.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.denied > Self::WARNING
    }

    pub(super) fn of(
        windows: &Windows,
        seen: &WindowedBloom,
        counters: &WindowCounters,
        window: u64,
        limit: u64,
    ) -> Self {
        let false_positive = seen.false_positives(windows, window, SAMPLE);
        let reached = |count| counters.reached(windows, window, count, SAMPLE);
        // With a limit of one, a new key is denied wrongly if the doorkeeper takes it for a key that it has seen. A key
        // that was really seen has used its unit, so its denial is right.
        let denied = if limit == 1 { false_positive } else { reached((limit / 2).max(1)) };
        Self { false_positive, overcounted: reached(1), denied }
    }
}
