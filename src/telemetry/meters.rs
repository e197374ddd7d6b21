//! Counters of one rule.

use std::fmt;
use std::sync::Arc;

use super::event::Event;
use super::facade::RuleHandles;
use super::shares::{NearLimit, Shares};
use super::tallies::{OwnCounter, RuleTallies};
use crate::base::decision::{Decision, Facts, Outcome};

/// How often each [`Event`] was recorded since the [`Meters`] were created. The counts wrap on overflow.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MeterCounts {
    /// Requests that were admitted and counted.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests that a dry run would have denied.
    pub shadow_denied: u64,
    /// Requests that were admitted without counting.
    pub unlimited: u64,
    /// Requests that were admitted because the shared state was unavailable: it did not answer, or was not called.
    pub error_open: u64,
    /// Requests that were denied because the shared state was unavailable.
    pub error_closed: u64,
    /// Requests that this process decided alone because the shared state was unavailable.
    pub error_local: u64,
    /// The units of all these requests.
    pub hits: u64,
    /// The units of the requests that were denied, whatever the reason.
    pub denied_hits: u64,
    /// The units of the requests that a dry run would have denied.
    pub shadow_denied_hits: u64,
    /// Admitted units above four fifths of the limit, or above another [line](Meters::near_limit).
    pub near_limit: u64,
    /// Units above the limit.
    pub over_limit: u64,
    /// Admitted units above the soft limit.
    pub soft_limited: u64,
    /// Units that were denied because their key is [blocked](crate::Blocked).
    pub blocked: u64,
}

impl MeterCounts {
    /// Returns the number of requests, whatever their outcome.
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

/// The indices of the hits of all requests, less one for each request, of denied ones, and of those that a dry run would have denied.
/// They follow the indices of the events. Most requests cost one unit, and then need no addition to the hits.
const MORE_HITS: usize = Event::COUNT;
const DENIED_HITS: usize = MORE_HITS + 1;
const SHADOW_DENIED_HITS: usize = MORE_HITS + 2;

/// The counters of several rules: the counts of each event, and then the hits.
pub(crate) type MeterTallies = RuleTallies<{ SHADOW_DENIED_HITS + 1 }>;

/// The counters of one rule.
///
/// Create the meters together with the rule. Recording adds to counters that threads share as little as possible. With
/// the feature `metrics`, it also adds to the facade's counters, which are registered once, at creation. Install the
/// recorder first: meters that were created earlier never reach it.
///
/// # Memory
/// 128 bytes for each thread that records an event, up to 32 threads, and the handles of the facade if a recorder is installed. A
/// clone shares all of them.
///
/// # Consistency
/// Each count is exact. [`Meters::counts`] reads the counts one after another, so it may include some counts of a
/// request in flight and miss others.
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
// Rules have them in place, so that a check among thousands of rules waits for no memory of theirs: see `RuleTallies`.
#[derive(Clone)]
#[repr(C)]
pub struct Meters {
    tallies: Arc<MeterTallies>,
    /// The index of the rule among those that share the counters.
    rule: u32,
    near: NearLimit,
    handles: RuleHandles,
}

/// One thread's counter of admitted requests in some [`Meters`]. A request looks it up once, because it requests its memory before
/// it is decided.
#[derive(Copy, Clone, Debug)]
#[doc(hidden)]
pub struct OwnTallies<'m>(OwnCounter<'m>);

impl OwnTallies<'_> {
    /// Requests the counter of an admitted request in advance. With thousands of rules, it is in no cache, and the exchange
    /// of the charge would let the processor wait for it afterwards.
    #[inline(always)]
    pub fn prefetch(self) {
        self.0.prefetch();
    }
}

/// Whether at most the half of a decision's limit is in use, rounded down. Also `false` if this takes as long to compute as
/// [`Decision::remaining`] does.
#[inline(always)]
fn uses_at_most_half(decision: &Decision) -> bool {
    let half = decision.limit() / 2;
    // The facts of compact stores first. The others are apart, because the compiler would jump by one table for all of them.
    match *decision.facts() {
        Facts::Ticks { ahead, interval, .. } => ahead <= interval.saturating_mul(half),
        Facts::Batch { used, .. } => used <= half,
        _ => other_uses_at_most_half(decision, half),
    }
}

#[inline(never)]
fn other_uses_at_most_half(decision: &Decision, half: u64) -> bool {
    let rest = decision.limit() - half;
    match *decision.facts() {
        // The quotient of a number is at least `rest` exactly if the number is at least `rest` times the divisor.
        Facts::Pace { ahead, interval, capacity, .. } => {
            capacity.saturating_sub(ahead) >= interval.saturating_mul(rest)
        }
        Facts::Plain { remaining, .. } => remaining >= rest,
        Facts::Blend { .. } | Facts::Ticks { .. } | Facts::Batch { .. } => false,
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Meters {
    /// Creates the counters of a rule, under the labels `domain` and `rule`.
    #[must_use]
    pub fn new(domain: &str, rule: &str) -> Self {
        Self::among(&Arc::new(RuleTallies::new(1)), 0, domain, rule)
    }

    /// Creates the memory of the counters of several rules.
    #[must_use]
    #[doc(hidden)]
    pub fn tallies(rules: usize) -> Arc<MeterTallies> {
        Arc::new(RuleTallies::new(rules))
    }

    /// [`Meters::new`] with counters that have their memory among those of other rules, at this index.
    #[must_use]
    #[doc(hidden)]
    pub fn among(tallies: &Arc<MeterTallies>, index: u32, domain: &str, rule: &str) -> Self {
        Self {
            tallies: Arc::clone(tallies),
            rule: index,
            near: NearLimit::default(),
            handles: RuleHandles::register(domain, rule),
        }
    }

    /// Sets the share of the limit above which units are near it. Default: four fifths.
    #[must_use]
    pub fn near_limit(self, near: NearLimit) -> Self {
        Self { near, ..self }
    }

    /// Records an event. An outcome counts one request and its `hits`; a mark counts `hits` units.
    #[inline]
    pub fn record(&self, event: Event, hits: u64) {
        if !self.add(event.index(), if event.is_decision() { 1 } else { hits }) {
            return self.record_first(event, hits);
        }
        if event.is_decision() && hits != 1 {
            self.add(MORE_HITS, hits.wrapping_sub(1));
        }
        let denied = match event {
            Event::Denied | Event::ErrorClosed => Some(DENIED_HITS),
            Event::ShadowDenied => Some(SHADOW_DENIED_HITS),
            _ => None,
        };
        if let Some(index) = denied {
            self.add(index, hits);
        }
        self.handles.record(event, hits);
    }

    /// Adds to a counter of this thread. Returns `false` before the first event of a thread with its stripe.
    #[inline]
    fn add(&self, counter: usize, count: u64) -> bool {
        self.tallies.get(self.rule as usize, counter).map(|own| own.add(count)).is_some()
    }

    /// Creates the counters, and records the first event.
    #[cold]
    #[inline(never)]
    fn record_first(&self, event: Event, hits: u64) {
        self.tallies.make();
        self.record(event, hits);
    }

    /// Records which of the last `cost` units of `used` are near and above the limit; see [`Shares::of_line`].
    #[doc(hidden)]
    pub fn record_use(&self, limit: u64, used: u64, cost: u64) {
        self.record_shares(Shares::of_line(self.near, limit, used, cost));
    }

    /// Records the units near and above the limit; see [`Shares::of`].
    #[cold]
    pub fn record_shares(&self, shares: Shares) {
        if shares.near > 0 {
            self.record(Event::NearLimit, shares.near);
        }
        if shares.over > 0 {
            self.record(Event::OverLimit, shares.over);
        }
    }

    /// Records a decision: the request's outcome, its hits, and how many of them are near or above the limit. With
    /// `shadow`, a denial counts as a dry run that denied nothing.
    ///
    /// A denied request is not charged, so all its units count as above the limit, and none as near it. A denied
    /// [`take`](crate::RateLimiter::take) counts as a request without units.
    #[inline]
    pub fn observe(&self, decision: &Decision, shadow: bool) {
        match decision.outcome() {
            Outcome::Allowed => self.observe_allowed(self.own(), decision),
            Outcome::Denied | Outcome::Never => {
                let cost = decision.cost();
                self.record(if shadow { Event::ShadowDenied } else { Event::Denied }, cost);
                self.record_shares(Shares { near: 0, over: cost });
                if decision.is_block() {
                    self.record(Event::Blocked, cost);
                }
            }
        }
    }

    /// Records a decision that admitted its request, as [`Meters::observe`] does. It is shorter if the caller knows the outcome, and
    /// has looked up the counters of its thread.
    #[inline(always)]
    #[doc(hidden)]
    pub fn observe_allowed(&self, own: Option<OwnTallies<'_>>, decision: &Decision) {
        match own {
            Some(OwnTallies(allowed)) => {
                let hits = decision.cost();
                allowed.add(1);
                if hits != 1 {
                    self.add(MORE_HITS, hits.wrapping_sub(1));
                }
                self.handles.record(Event::Allowed, hits);
            }
            None => self.record_first(Event::Allowed, decision.cost()),
        }
        // The half of the limit is cheaper to compute than most lines.
        if !uses_at_most_half(decision) || self.near.is_below_half() {
            self.observe_near(decision);
        }
    }

    /// Records the units of an admitted request that are near the limit.
    #[inline(never)]
    fn observe_near(&self, decision: &Decision) {
        let limit = decision.limit();
        let used = limit.saturating_sub(decision.remaining());
        if self.near.is_above(limit, used) {
            self.record_shares(Shares::of_line(self.near, limit, used, decision.cost()));
        }
    }

    /// Returns this thread's counter of admitted requests. `None` before its first event.
    #[inline(always)]
    #[doc(hidden)]
    pub fn own(&self) -> Option<OwnTallies<'_>> {
        self.tallies.get(self.rule as usize, Event::Allowed.index()).map(OwnTallies)
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> MeterCounts {
        let sum = |counter| self.tallies.sum(self.rule as usize, counter);
        let event = |event: Event| sum(event.index());
        // Negative for requests without units. It is read before their events, which are counted first.
        let more_hits = sum(MORE_HITS).cast_signed();
        let mut counts = MeterCounts {
            allowed: event(Event::Allowed),
            denied: event(Event::Denied),
            shadow_denied: event(Event::ShadowDenied),
            unlimited: event(Event::Unlimited),
            error_open: event(Event::ErrorOpen),
            error_closed: event(Event::ErrorClosed),
            error_local: event(Event::ErrorLocal),
            hits: 0,
            denied_hits: sum(DENIED_HITS),
            shadow_denied_hits: sum(SHADOW_DENIED_HITS),
            near_limit: event(Event::NearLimit),
            over_limit: event(Event::OverLimit),
            soft_limited: event(Event::SoftLimited),
            blocked: event(Event::Blocked),
        };
        counts.hits = counts.requests().saturating_add_signed(more_hits);
        counts
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// The units in use are compared without a division, and must compare as the quotient does.
    #[test]
    fn half_of_limit_is_exact() {
        let decision = |limit, facts| Decision::new(Outcome::Allowed, 1, limit, 0, facts);
        for limit in 0..8_u64 {
            for interval in 1..4_u64 {
                for ahead in 0..=limit * interval + 2 {
                    let capacity = limit * interval;
                    let all = [
                        Facts::Pace { ahead, interval, capacity, scale: 1, queued: false, mark: 0 },
                        Facts::Ticks { ahead, interval, remainder: 0, num: 1, den: 1, queued: false },
                        Facts::Batch { used: ahead, raised: 0, batch: 1, to_boundary_ns: 1, period_ns: 1 },
                        Facts::Plain { remaining: ahead, retry_ns: 0, reset_ns: 0, delay_ns: 0 },
                    ];
                    for facts in all {
                        let decision = decision(limit, facts);
                        let used = limit.saturating_sub(decision.remaining());
                        let is_exact = uses_at_most_half(&decision) == (used <= limit / 2);
                        assert!(is_exact || limit == 0, "{facts:?} of {limit}");
                    }
                }
            }
        }
    }

    /// The first threads of a process have counters of their own, and later ones share some.
    #[test]
    fn events_of_many_threads_are_counted() {
        let (meters, each) = (Meters::new("", "many threads"), 1_000);
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| (0..each).for_each(|_| meters.record(Event::Allowed, 1)));
            }
        });
        assert_eq!(meters.counts().allowed, 40 * each);
    }
}
