//! Counters of one rule.
//!
//! Each is a tally that publishes nothing, and all orderings are relaxed. Threads count in stripes, since a rule that every
//! request meets would else be one line that all cores write.

use std::fmt;

use crossbeam_utils::CachePadded;

use super::shares::Shares;
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::Ordering::Relaxed;
use crate::base::sync::{AtomicU64, processors, thread_number};

#[cfg(feature = "metrics")]
use super::facade::Handles;

/// What there is to count about a request under a rule.
///
/// The first seven are what became of it: one of them for each request. The others are marks besides.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Event {
    /// `allowed`: it went through, counted.
    Allowed,
    /// `denied`.
    Denied,
    /// `shadow_denied`: a dry run would have denied it.
    ShadowDenied,
    /// `unlimited`: it went through uncounted.
    Unlimited,
    /// `error_open`: it could not be decided, and went through.
    ErrorOpen,
    /// `error_closed`: it could not be decided, and was refused.
    ErrorClosed,
    /// `error_local`: it could not be decided where it should be, and was decided here.
    ErrorLocal,
    /// Units that went through above four fifths of the limit.
    NearLimit,
    /// Units above the limit.
    OverLimit,
    /// Units that went through above the soft limit.
    SoftLimited,
}

impl Event {
    pub(super) const DECISIONS: [Self; 7] = [
        Self::Allowed,
        Self::Denied,
        Self::ShadowDenied,
        Self::Unlimited,
        Self::ErrorOpen,
        Self::ErrorClosed,
        Self::ErrorLocal,
    ];
    pub(super) const MARKS: [Self; 3] = [Self::NearLimit, Self::OverLimit, Self::SoftLimited];
    const COUNT: usize = Self::DECISIONS.len() + Self::MARKS.len();

    /// Its place in an array of all, in the order of their declaration.
    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// Its name: the label `decision` in `tollgate_requests_total`, or the mark's own name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow_denied",
            Self::Unlimited => "unlimited",
            Self::ErrorOpen => "error_open",
            Self::ErrorClosed => "error_closed",
            Self::ErrorLocal => "error_local",
            Self::NearLimit => "near_limit",
            Self::OverLimit => "over_limit",
            Self::SoftLimited => "soft_limited",
        }
    }

    /// Whether it says what became of a request.
    #[must_use]
    pub const fn is_decision(self) -> bool {
        !matches!(self, Self::NearLimit | Self::OverLimit | Self::SoftLimited)
    }
}

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

/// One stripe: by event, and the hits.
#[derive(Default)]
struct MeterStripe {
    events: [AtomicU64; Event::COUNT],
    hits: AtomicU64,
}

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
    stripes: Box<[CachePadded<MeterStripe>]>,
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
        let stripes = processors().unwrap_or(4).min(16).next_power_of_two();
        Self {
            stripes: (0..stripes).map(|_| CachePadded::default()).collect(),
            #[cfg(feature = "metrics")]
            handles: Handles::register(domain, rule),
        }
    }

    /// Records an event: for what became of a request, one request and its `hits`; for a mark, so many units.
    #[inline]
    pub fn record(&self, event: Event, hits: u64) {
        let stripe = &self.stripes[thread_number() & (self.stripes.len() - 1)];
        let is_decision = event.is_decision();
        stripe.events[event.index()].fetch_add(if is_decision { 1 } else { hits }, Relaxed);
        if is_decision {
            stripe.hits.fetch_add(hits, Relaxed);
        }
        #[cfg(feature = "metrics")]
        self.handles.record(event, hits);
    }

    /// Records units near and above the limit; see [`Shares::of`].
    #[inline]
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
        let cost = decision.cost();
        match decision.outcome() {
            Outcome::Allowed => {
                self.record(Event::Allowed, cost);
                let used = decision.limit().saturating_sub(decision.remaining());
                self.record_shares(Shares::of(decision.limit(), used, cost));
            }
            Outcome::Denied | Outcome::Never => {
                self.record(if shadow { Event::ShadowDenied } else { Event::Denied }, cost);
                self.record_shares(Shares { near: 0, over: cost });
            }
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> MeterCounts {
        let sum = |of: &dyn Fn(&MeterStripe) -> u64| {
            self.stripes.iter().fold(0_u64, |sum, stripe| sum.wrapping_add(of(stripe)))
        };
        let event = |event: Event| sum(&|stripe| stripe.events[event.index()].load(Relaxed));
        MeterCounts {
            allowed: event(Event::Allowed),
            denied: event(Event::Denied),
            shadow_denied: event(Event::ShadowDenied),
            unlimited: event(Event::Unlimited),
            error_open: event(Event::ErrorOpen),
            error_closed: event(Event::ErrorClosed),
            error_local: event(Event::ErrorLocal),
            hits: sum(&|stripe| stripe.hits.load(Relaxed)),
            near_limit: event(Event::NearLimit),
            over_limit: event(Event::OverLimit),
            soft_limited: event(Event::SoftLimited),
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_a_place_of_its_own() {
        let all = Event::DECISIONS.into_iter().chain(Event::MARKS);
        assert!(all.clone().map(Event::index).eq(0..Event::COUNT));
        assert!(all.clone().map(Event::is_decision).eq((0..Event::COUNT).map(|index| index < 7)));
        let names: std::collections::HashSet<&str> = all.map(Event::as_str).collect();
        assert_eq!(names.len(), Event::COUNT);
    }
}
