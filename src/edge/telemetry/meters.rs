//! Counters of one rule.

use std::fmt;

use super::event::Event;
#[cfg(feature = "metrics")]
use super::facade::Handles;
use super::shares::Shares;
use super::stripes::Stripes;
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::Ordering::Relaxed;

/// How often each [`Event`] was recorded, since the [`Meters`] were made. Counts wrap around.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MeterCounts {
    /// Requests that went through, counted.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests that a dry run would have denied.
    pub shadow_denied: u64,
    /// Requests that went through uncounted.
    pub unlimited: u64,
    /// Requests that could not be decided, and went through.
    pub error_open: u64,
    /// Requests that could not be decided, and were refused.
    pub error_closed: u64,
    /// Requests that could not be decided where they should be, and were decided here.
    pub error_local: u64,
    /// Units of all these requests.
    pub hits: u64,
    /// Units that went through above four fifths of the limit.
    pub near_limit: u64,
    /// Units above the limit.
    pub over_limit: u64,
    /// Units that went through above the soft limit.
    pub soft_limited: u64,
}

impl MeterCounts {
    /// Requests, whatever became of them.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.allowed
            .wrapping_add(self.denied)
            .wrapping_add(self.shadow_denied)
            .wrapping_add(self.unlimited)
            .wrapping_add(self.error_open)
            .wrapping_add(self.error_closed)
            .wrapping_add(self.error_local)
    }
}

/// The place of the hits, after those of events.
const HITS: usize = Event::COUNT;

/// The counters of one rule.
///
/// Made once, when the rule is; recording is then a few additions to memory that threads share as little as possible, and with
/// feature `metrics` to the facade's counters, which are registered here once. Install the recorder before: what was made earlier
/// feeds none.
///
/// # Memory
/// 128 bytes for each thread that can run at once, and 2 KiB at most.
///
/// # Consistency
/// Each count is exact; [`Meters::counts`] reads one after another, so those of a request in flight may be there in part.
///
/// # Examples
/// ```
/// use tollgate::telemetry::Meters;
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::new(Quota::per_minute(2));
/// let meters = Meters::new("api", "per-ip");
/// for _ in 0..3 {
///     meters.observe(&limiter.check("203.0.113.7"), false);
/// }
/// let counts = meters.counts();
/// assert_eq!((counts.allowed, counts.denied, counts.hits), (2, 1, 3));
/// ```
pub struct Meters {
    /// By event, and the hits.
    tallies: Stripes<{ HITS + 1 }>,
    #[cfg(feature = "metrics")]
    handles: Handles,
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Meters {
    /// Counters of a rule, which the labels `domain` and `rule` name.
    #[must_use]
    pub fn new(domain: &str, rule: &str) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = (domain, rule);
        Self {
            tallies: Stripes::default(),
            #[cfg(feature = "metrics")]
            handles: Handles::register(domain, rule),
        }
    }

    /// Records an event: for what became of a request, one request and its `hits`; for a mark, so many units.
    #[inline]
    pub fn record(&self, event: Event, hits: u64) {
        let tallies = self.tallies.own();
        let is_decision = event.is_decision();
        // Ordering: Relaxed; see `Stripes`.
        tallies[event.index()].fetch_add(if is_decision { 1 } else { hits }, Relaxed);
        if is_decision {
            tallies[HITS].fetch_add(hits, Relaxed);
        }
        #[cfg(feature = "metrics")]
        self.handles.record(event, hits);
    }

    /// Records units near and above the limit; see [`Shares::of`].
    #[cold]
    pub fn record_shares(&self, shares: Shares) {
        if shares.near > 0 {
            self.record(Event::NearLimit, shares.near);
        }
        if shares.over > 0 {
            self.record(Event::OverLimit, shares.over);
        }
    }

    /// Records a decision: what became of the request, its hits, and which of them are near or above the limit. `shadow`: a denial
    /// refuses nobody.
    ///
    /// A refused request is not charged, so all of its units are above the limit, and none near it.
    #[inline]
    pub fn observe(&self, decision: &Decision, shadow: bool) {
        match decision.outcome() {
            Outcome::Allowed => self.observe_allowed(decision),
            Outcome::Denied | Outcome::Never => {
                let cost = decision.cost();
                self.record(if shadow { Event::ShadowDenied } else { Event::Denied }, cost);
                self.record_shares(Shares { near: 0, over: cost });
            }
        }
    }

    /// [`Meters::observe`] of a request that is admitted.
    #[inline(always)]
    pub(crate) fn observe_allowed(&self, decision: &Decision) {
        let (cost, limit) = (decision.cost(), decision.limit());
        self.record(Event::Allowed, cost);
        let used = limit.saturating_sub(decision.remaining());
        // No line is below the half, which takes less to work out.
        if used > limit / 2 && used > Shares::near_line(limit) {
            self.record_shares(Shares::of(limit, used, cost));
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> MeterCounts {
        let event = |event: Event| self.tallies.sum(event.index());
        MeterCounts {
            allowed: event(Event::Allowed),
            denied: event(Event::Denied),
            shadow_denied: event(Event::ShadowDenied),
            unlimited: event(Event::Unlimited),
            error_open: event(Event::ErrorOpen),
            error_closed: event(Event::ErrorClosed),
            error_local: event(Event::ErrorLocal),
            hits: self.tallies.sum(HITS),
            near_limit: event(Event::NearLimit),
            over_limit: event(Event::OverLimit),
            soft_limited: event(Event::SoftLimited),
        }
    }
}
