//! The sliding-window counter of many sub-windows.

use super::counts::{WindowCounts, WindowView};
use super::step::{Algorithm, Refund, Refunded, Step, Stepper};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason, or_panic};
use crate::base::sync::AtomicU64;
use alloc::boxed::Box;

/// The sub-window counter: divides the period into `parts` aligned sub-windows, each with a count, and admits `limit`
/// units in the last `parts` of them. The burst is ignored.
///
/// The current sub-window is one of the `parts`, so the counted time is between `(parts − 1) / parts` of a period and a
/// whole period.
///
/// - *Lenient*, the default, never admits more than the limit in any interval of `(parts − 1) / parts` of a period. It
///   can admit up to **twice the limit** in a whole period: the limit at the end of one sub-window, and again as soon
///   as that sub-window is no longer counted.
/// - [`SubWindow::strict`] also counts the sub-window before those, which is partly expired. It therefore never admits
///   more than the limit in any period, but it counts a unit for up to one sub-window too long.
///
/// A check reads up to `parts` words; 50 or 60 parts are usual. Sub-windows are `period / parts` long, rounded up to a
/// nanosecond.
///
/// # Examples
/// ```
/// use tollgate::{ManualClock, Quota, RateLimiter, SubWindow, Timestamp};
///
/// // At most 500 in the last hour, in sub-windows of one minute.
/// let counter = SubWindow::new(Quota::per_hour(500), 60).strict();
/// let limiter = RateLimiter::builder(counter).clock(ManualClock::default()).direct();
/// assert!(limiter.at(Timestamp::from_secs(59)).check_n(500).is_allowed());
/// assert!(limiter.at(Timestamp::from_secs(3_659)).check().is_denied()); // the units may be exactly 3,600 s old
/// assert!(limiter.at(Timestamp::from_secs(3_660)).check().is_allowed());
/// ```
/// # Source
/// Common practice; Alibaba Sentinel's `LeapArray` is a well-known implementation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SubWindow {
    counts: WindowCounts,
    parts: u32,
    /// The whole period. The sub-windows together can be longer, because they are rounded up.
    period_ns: u64,
}

const NAME: &str = "sub-window counter";

impl SubWindow {
    /// The greatest number of parts.
    pub const MAX_PARTS: u32 = 4_096;

    /// Creates a lenient counter that divides the quota's period into `parts` sub-windows.
    ///
    /// # Panics
    /// Panics if `parts` is 0 or above [`SubWindow::MAX_PARTS`], or if a 64-bit word has no room for both the limit and
    /// the index of the sub-window. [`SubWindow::try_new`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(quota: Quota, parts: u32) -> Self {
        or_panic(Self::checked(&quota, parts))
    }

    /// Creates a counter like [`SubWindow::new`].
    ///
    /// # Errors
    /// Returns an error if `parts` is 0 or above [`SubWindow::MAX_PARTS`], or if a 64-bit word has no room for both the
    /// limit and the index of the sub-window. The error states the maximum.
    pub fn try_new(quota: Quota, parts: u32) -> Result<Self, QuotaError> {
        Ok(Self::checked(&quota, parts)?)
    }

    pub(super) const fn checked(quota: &Quota, parts: u32) -> Result<Self, Reason> {
        if parts == 0 {
            return Err(Reason::ZeroParts);
        }
        if parts > Self::MAX_PARTS {
            let (got, max) = (parts as u64, Self::MAX_PARTS as u64);
            return Err(Reason::Word { algorithm: NAME, what: "the number of parts", got, max });
        }
        match WindowCounts::new(NAME, quota.limit(), quota.period_ns().div_ceil(parts as u64), parts - 1) {
            Ok(counts) => Ok(Self { counts, parts, period_ns: quota.period_ns() }),
            Err(reason) => Err(reason),
        }
    }

    /// Also counts the partly expired sub-window, so that no interval of one period ever holds more than the limit.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.counts.history = self.parts;
        self
    }

    /// Returns the quota, the number of parts, and whether the counter is strict.
    pub(crate) const fn quota(&self) -> (Quota, u32, bool) {
        let limit = self.counts.limit;
        (Quota::stored(limit, self.period_ns, limit), self.parts, self.counts.history == self.parts)
    }

    /// Returns the time from now until enough counted units have expired to make room for `excess` units.
    #[cold]
    fn retry_ns(
        &self,
        view: &WindowView,
        read: impl Fn(usize) -> u64,
        now_ns: u64,
        used: u64,
        excess: u64,
    ) -> u64 {
        // The oldest units expire first. The loop finds the sub-window whose expiry makes room: the sub-windows after
        // it hold at most `most` units.
        let most = used.saturating_sub(excess);
        let mut newer = 0u64;
        let present = core::iter::once((0, view.current));
        for (back, count) in present.chain(self.counts.before(view, read)) {
            newer = newer.saturating_add(count);
            if newer > most {
                let next = u128::from(view.index) + u128::from(self.counts.history - back) + 1;
                return self.counts.until(next, now_ns);
            }
        }
        // Reached only if words changed while they were read; then the caller retries.
        0
    }

    /// Returns the time from now until one more unit fits in addition to the `used` units, or 0 if one fits now.
    fn room_ns(&self, view: &WindowView, read: impl Fn(usize) -> u64, now_ns: u64, used: u64) -> u64 {
        match used.checked_sub(self.counts.limit) {
            None => 0,
            Some(over) => self.retry_ns(view, read, now_ns, used, over.saturating_add(1)),
        }
    }

    /// Returns the time from now until nothing is counted.
    fn reset_ns(&self, newest: Option<u64>, now_ns: u64) -> u64 {
        newest.map_or(0, |newest| {
            self.counts.until(u128::from(newest) + u128::from(self.counts.history) + 1, now_ns)
        })
    }
}

/// The state of the words at one time.
struct Usage {
    view: WindowView,
    /// The units in all counted sub-windows.
    used: u64,
    /// The newest counted sub-window that is not empty.
    newest: Option<u64>,
}

impl SubWindow {
    fn usage(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> Usage {
        let view = self.counts.view(head, now_ns);
        let mut used = view.current;
        let mut newest = (view.current > 0).then_some(view.index);
        for (back, count) in self.counts.before(&view, &read) {
            used = used.saturating_add(count);
            if count > 0 && newest.is_none() {
                newest = Some(view.index - u64::from(back));
            }
        }
        Usage { view, used, newest }
    }

    fn decide(
        &self,
        outcome: Outcome,
        now_ns: u64,
        cost: u64,
        remaining: u64,
        retry_ns: u64,
        newest: Option<u64>,
    ) -> Decision {
        let reset_ns = self.reset_ns(newest, now_ns);
        let facts = Facts::Plain { remaining, retry_ns, reset_ns, delay_ns: 0 };
        Decision::new(outcome, cost, self.counts.limit, now_ns, facts)
    }

    fn admit(&self, usage: &Usage, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let Usage { view, used, newest } = usage;
        let newest = if cost > 0 { Some(view.index) } else { *newest };
        let used = used.saturating_add(cost);
        let remaining = self.counts.limit.saturating_sub(used);
        let mut after = *view;
        after.current = after.current.saturating_add(cost);
        let room_ns = self.room_ns(&after, read, now_ns, used);
        let decision = self.decide(Outcome::Allowed, now_ns, cost, remaining, room_ns, newest);
        self.counts.admit(view, decision, head, cost)
    }
}

impl Stepper for SubWindow {
    type Tail = Box<[AtomicU64]>;

    fn tail_len(&self) -> usize {
        self.counts.ring_len()
    }

    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let limit = self.counts.limit;
        let usage = self.usage(head, &read, now_ns);
        let Usage { view, used, newest } = &usage;
        let remaining = limit.saturating_sub(*used);
        if cost > limit {
            let room_ns = self.room_ns(view, &read, now_ns, *used);
            return Step::Deny(self.decide(Outcome::Never, now_ns, cost, remaining, room_ns, *newest));
        }
        if cost > remaining {
            let excess = cost - remaining + used.saturating_sub(limit);
            let retry_ns = self.retry_ns(view, &read, now_ns, *used, excess);
            return Step::Deny(self.decide(Outcome::Denied, now_ns, cost, remaining, retry_ns, *newest));
        }
        self.admit(&usage, head, &read, now_ns, cost)
    }

    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let usage = self.usage(head, &read, now_ns);
        let cost = self.counts.fitting(&usage.view, cost);
        self.admit(&usage, head, &read, now_ns, cost)
    }

    const CAN_REFUND: bool = true;

    fn refund(&self, head: u64, _read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        self.counts.refund(head, refund, |charge| {
            let &Facts::Plain { reset_ns, .. } = charge.facts() else {
                return None;
            };
            // The charge was counted in the sub-window that expires at the reset time. If the caller's time was late,
            // that sub-window is later than the one that contains the charge's time.
            let counted_until =
                (u128::from(charge.at_ns()) + u128::from(reset_ns)) / u128::from(self.counts.window_ns);
            u64::try_from(counted_until).ok()?.checked_sub(u64::from(self.counts.history) + 1)
        })
    }

    fn reads(&self, other: &Self) -> bool {
        self.counts.reads(&other.counts)
    }

    fn accepts(&self, head: u64, _read: impl Fn(usize) -> u64) -> bool {
        self.counts.accepts(head)
    }

    fn is_idle(&self, head: u64, _read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        self.counts.is_idle(head, now_ns)
    }
}

impl Algorithm for SubWindow {
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        let window_ns = quota.period_ns().div_ceil(u64::from(self.parts));
        let counts = self.counts.requota(NAME, quota, window_ns)?;
        Ok(Self { counts, parts: self.parts, period_ns: quota.period_ns() })
    }

    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        let strict = self.counts.history == self.parts;
        let window = Self::try_new(*quota, self.parts)?;
        Ok(if strict { window.strict() } else { window })
    }
}
