//! How full a sketch is.

use crate::sketch::window::{WindowCounters, WindowedBloom, Windows};

/// Words that are looked at.
const SAMPLE: usize = 4_096;

/// How full a sketch is in the present window, as what that does to keys; estimates from 4,096 words.
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
/// assert!(limiter.saturation().is_warning()); // give it more memory
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Copy, Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Saturation {
    /// The chance that a key that comes for the first time is taken for one that came before, from 0 to 1. Costs it one unit.
    pub mistaken: f64,
    /// The chance that a key that came before is counted at least one unit more than it used.
    pub overcounted: f64,
    /// The chance that a key that used less than half of its limit is denied, since others used all of its counters more than
    /// that.
    pub denied: f64,
}

impl Saturation {
    /// Above this share of [`Saturation::denied`] the sketch is too small.
    pub const WARNING: f64 = 0.001;

    /// Whether more than one key in a thousand that used less than half of its limit is denied: the sketch needs more
    /// memory, or shorter windows.
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
        let mistaken = seen.false_positives(windows, window, SAMPLE);
        let reached = |count| counters.reached(windows, window, count, SAMPLE);
        // Who comes for the first time is only denied if it is mistaken, and who comes again has used a unit: with a limit of
        // one, those are all the wrong denials there are.
        let denied = if limit == 1 { mistaken } else { reached((limit / 2).max(1)) };
        Self { mistaken, overcounted: reached(1), denied }
    }
}
