//! The sliding-window counter of two windows.

use super::counts::{WindowCounts, WindowView};
use super::step::{Algorithm, Refund, Refunded, Step, Stepper};
use crate::algorithm::compact::{IntoCompact, SlidingWord};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason, or_panic};
use crate::base::sync::AtomicU64;

/// The sliding-window counter: estimates the last period's count from two aligned windows. The burst is ignored.
///
/// The previous window's count is weighted by the share of that window which the sliding window still overlaps:
///
/// `estimate = previous × (time left in the current window / period) + current`
///
/// A request is admitted if the estimate plus its cost is at most the limit. By default the weighted part is rounded
/// down: at 7 per minute, an estimate of 6.5 counts as 6, so one more unit fits. [`SlidingWindow::strict`] rounds it
/// up: 6.5 counts as 7, and no unit fits.
///
/// The estimate assumes that the previous window's requests were spread evenly. If they were not, up to twice the limit
/// can be admitted in an interval of one period. The default rounding adds less than one unit to this maximum. In
/// practice the error is a few percent. For a bound without this error, use
/// [`SubWindow::strict`](crate::SubWindow::strict) or [`SlidingLog`](crate::SlidingLog).
///
/// # Examples
/// ```
/// use tollgate::{ManualClock, Quota, RateLimiter, SlidingWindow, Timestamp};
///
/// let counter = SlidingWindow::new(Quota::per_minute(7));
/// let limiter = RateLimiter::builder(counter).clock(ManualClock::default()).direct();
/// assert!(limiter.at(Timestamp::from_secs(30)).check_n(5).is_allowed());
/// assert!(limiter.at(Timestamp::from_secs(60)).check_n(3).is_denied()); // 5 × 60/60 + 3 is 8
/// assert!(limiter.at(Timestamp::from_secs(78)).check_n(3).is_allowed()); // 5 × 42/60 + 3 is 6.5
/// assert!(limiter.at(Timestamp::from_secs(78)).check().is_allowed()); // 6.5 counts as 6
/// ```
/// # Source
/// J. Desgats, "How we built rate limiting capable of scaling to millions of domains", Cloudflare, 2017.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SlidingWindow {
    counts: WindowCounts,
    strict: bool,
}

const NAME: &str = "sliding window";

impl SlidingWindow {
    /// Creates a counter with two windows of the quota's period, aligned to the clock's origin, the Unix epoch.
    ///
    /// # Panics
    /// Panics if a 64-bit word has no room for both the limit and the index of the window. [`SlidingWindow::try_new`]
    /// returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(quota: Quota) -> Self {
        or_panic(Self::checked(&quota))
    }

    /// Creates a counter like [`SlidingWindow::new`].
    ///
    /// # Errors
    /// Returns an error if a 64-bit word has no room for both the limit and the index of the window. Rates up to about
    /// half a unit per nanosecond fit (a quarter in the worst case). The error states the maximum.
    pub fn try_new(quota: Quota) -> Result<Self, QuotaError> {
        Ok(Self::checked(&quota)?)
    }

    pub(super) const fn checked(quota: &Quota) -> Result<Self, Reason> {
        match WindowCounts::new(NAME, quota.limit(), quota.period_ns(), 1) {
            Ok(counts) => Ok(Self { counts, strict: false }),
            Err(reason) => Err(reason),
        }
    }

    /// Returns this counter with the weighted count rounded up instead of down, so a request needs room for its whole
    /// cost.
    #[must_use]
    pub const fn strict(self) -> Self {
        Self { strict: true, ..self }
    }
}

impl SlidingWindow {
    /// Returns the quota, and whether the window is strict.
    pub(crate) const fn quota(&self) -> (Quota, bool) {
        (Quota::stored(self.counts.limit, self.counts.window_ns, self.counts.limit), self.strict)
    }
}

/// The meaning of the words at one time.
struct Sight {
    view: WindowView,
    previous: u64,
    /// The time left in the window, for the weight of the previous count: at most the window's length.
    left_ns: u64,
    /// The time to the window's end. More than the window's length if the clock stepped back to a time before the
    /// window.
    to_end_ns: u64,
    now_ns: u64,
}

impl SlidingWindow {
    #[inline]
    fn sight(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> Sight {
        let window_ns = self.counts.window_ns;
        let view = self.counts.view(head, now_ns);
        let previous = self.counts.before(&view, read).next().map_or(0, |(_, count)| count);
        // A time before the counting window counts as the window's beginning.
        let left_ns = window_ns - now_ns.saturating_sub(view.index * window_ns);
        let to_end_ns = self.counts.until(u128::from(view.index) + 1, now_ns);
        Sight { view, previous, left_ns, to_end_ns, now_ns }
    }

    #[inline]
    fn decide(&self, sight: &Sight, outcome: Outcome, cost: u64, current: u64) -> Decision {
        let &Sight { previous, left_ns, to_end_ns, now_ns, .. } = sight;
        let WindowCounts { limit, window_ns, .. } = self.counts;
        let facts = Facts::Blend { previous, current, left_ns, to_end_ns, window_ns, ceil: self.strict };
        Decision::new(outcome, cost, limit, now_ns, facts)
    }
}

impl Stepper for SlidingWindow {
    type Tail = [AtomicU64; 2];

    #[inline]
    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let WindowCounts { limit, window_ns, .. } = self.counts;
        let sight = self.sight(head, read, now_ns);
        let Sight { view, previous, left_ns, .. } = &sight;
        if cost > limit {
            return Step::Deny(self.decide(&sight, Outcome::Never, cost, view.current));
        }
        let admitted = cost == 0
            || match limit.saturating_sub(view.current).checked_sub(cost) {
                None => false,
                Some(_) if *previous == 0 => true,
                Some(room) => {
                    // Rounded down: floor(p·left/W) <= room  <=>  p·left < (room + 1)·W. Rounded up: p·left <= room·W.
                    let room = u128::from(room) * u128::from(window_ns);
                    let weighted = u128::from(*previous) * u128::from(*left_ns);
                    if self.strict { weighted <= room } else { weighted < room + u128::from(window_ns) }
                }
            };
        if !admitted {
            return Step::Deny(self.decide(&sight, Outcome::Denied, cost, view.current));
        }
        let decision = self.decide(&sight, Outcome::Allowed, cost, view.current + cost);
        self.counts.admit(view, decision, head, cost)
    }

    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let sight = self.sight(head, read, now_ns);
        let cost = self.counts.fitting(&sight.view, cost);
        let decision = self.decide(&sight, Outcome::Allowed, cost, sight.view.current + cost);
        self.counts.admit(&sight.view, decision, head, cost)
    }

    const CAN_REFUND: bool = true;

    fn refund(&self, head: u64, _read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        self.counts.refund(head, refund, |charge| {
            let &Facts::Blend { to_end_ns, window_ns, .. } = charge.facts() else {
                return None;
            };
            if window_ns != self.counts.window_ns {
                return None;
            }
            // The window that counted the charge ends at this time.
            let end = u128::from(charge.at_ns()) + u128::from(to_end_ns);
            u64::try_from(end / u128::from(window_ns)).ok()?.checked_sub(1)
        })
    }

    fn reads(&self, other: &Self) -> bool {
        self.counts.reads(&other.counts)
    }

    fn accepts(&self, head: u64, _read: impl Fn(usize) -> u64) -> bool {
        self.counts.accepts(head)
    }

    #[inline]
    fn is_idle(&self, head: u64, _read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        self.counts.is_idle(head, now_ns)
    }
}

impl IntoCompact for SlidingWindow {
    type CompactState = SlidingWord;

    fn compact(&self, tiers: &[Quota], overdraft: u64) -> Result<SlidingWord, QuotaError> {
        let period = core::time::Duration::from_nanos(self.counts.window_ns);
        SlidingWord::new(NAME, &Quota::try_new(self.counts.limit, period)?, tiers, overdraft, self.strict)
    }

    fn tier(&self, own: &SlidingWord, quota: &Quota) -> Result<SlidingWord, QuotaError> {
        own.tier(NAME, quota)
    }
}

impl Algorithm for SlidingWindow {
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self { counts: self.counts.requota(NAME, quota, quota.period_ns())?, ..*self })
    }

    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self { strict: self.strict, ..Self::try_new(*quota)? })
    }
}
