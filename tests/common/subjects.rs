//! Our limiters, all behind one face.

use super::kinds::Kind;
use super::oracle::{Spec, Verdict};
use std::fmt::Debug;
use std::time::Duration;
use tollgate::{
    Algorithm, Clock, Decision, Direct, Keyed, ManualClock, Outcome, Quota, RateLimiter, Timestamp,
};

/// Evaluates the body with `$algorithm` bound to the algorithm itself: `Some` of it, or `None` where the quota is
/// refused.
macro_rules! with_algorithm {
    ($kind:expr, $spec:expr, $algorithm:ident => $body:expr) => {{
        use $crate::common::kinds::Kind;
        $crate::common::subjects::quota($spec).and_then(|quota| match $kind {
            Kind::Gcra => tollgate::Gcra::try_new(quota).ok().map(|$algorithm| $body),
            Kind::Greedy => tollgate::TokenBucket::try_new(quota).ok().map(|$algorithm| $body),
            Kind::Meter => tollgate::LeakyBucketMeter::try_new(quota).ok().map(|$algorithm| $body),
            Kind::Queue => tollgate::LeakyBucketQueue::try_new(quota).ok().map(|$algorithm| $body),
            Kind::Interval => tollgate::TokenBucket::try_interval(quota).ok().map(|$algorithm| $body),
            Kind::Aligned(origin) => {
                tollgate::TokenBucket::try_aligned(quota, tollgate::Timestamp::from_nanos(origin))
                    .ok()
                    .map(|$algorithm| $body)
            }
            Kind::Adaptive(origin) => {
                tollgate::TokenBucket::try_aligned_adaptive(quota, tollgate::Timestamp::from_nanos(origin))
                    .ok()
                    .map(|$algorithm| $body)
            }
            Kind::Fixed => tollgate::FixedWindow::try_new(quota).ok().map(|$algorithm| $body),
            Kind::FirstUse => tollgate::FixedWindow::try_from_first_use(quota).ok().map(|$algorithm| $body),
            Kind::Sliding => tollgate::SlidingWindow::try_new(quota).ok().map(|$algorithm| $body),
            Kind::SlidingStrict => tollgate::SlidingWindow::try_new(quota)
                .ok()
                .map(tollgate::SlidingWindow::strict)
                .map(|$algorithm| $body),
            Kind::Sub(parts) => tollgate::SubWindow::try_new(quota, parts).ok().map(|$algorithm| $body),
            Kind::SubStrict(parts) => tollgate::SubWindow::try_new(quota, parts)
                .ok()
                .map(tollgate::SubWindow::strict)
                .map(|$algorithm| $body),
            Kind::Log => tollgate::SlidingLog::try_new(quota).ok().map(|$algorithm| $body),
            Kind::Spacing => tollgate::MinimumSpacing::try_new(quota.period()).ok().map(|$algorithm| $body),
        })
    }};
}

/// Our limiter for one stream, or `None` where the algorithm refuses the quota.
pub(crate) fn direct(kind: Kind, spec: Spec) -> Option<Box<dyn Subject>> {
    let clock = ManualClock::new(Timestamp::ZERO);
    with_algorithm!(kind, spec, algorithm => {
        Box::new(RateLimiter::builder(algorithm).clock(clock).direct()) as Box<dyn Subject>
    })
}

/// Our limiter for many keys, or `None` where the algorithm refuses the quota.
pub(crate) fn keyed(kind: Kind, spec: Spec) -> Option<Box<dyn Subject>> {
    let clock = ManualClock::new(Timestamp::ZERO);
    with_algorithm!(kind, spec, algorithm => {
        Box::new(RateLimiter::builder(algorithm).clock(clock).keyed::<u32>()) as Box<dyn Subject>
    })
}

/// The quota that a plain description names, if it is one.
pub(crate) fn quota(spec: Spec) -> Option<Quota> {
    Quota::try_new(spec.limit, Duration::from_nanos(spec.period_ns)).ok()?.try_burst(spec.burst).ok()
}

/// A limiter of ours, direct or keyed, seen the same way. A direct one has only key 0.
pub(crate) trait Subject: Debug + Send + Sync {
    fn check_at(&self, key: u32, cost: u64, now: u64) -> Decision;
    fn peek_at(&self, key: u32, cost: u64, now: u64) -> Decision;
}

impl<A: Algorithm, C: Clock + Debug + Send + Sync> Subject for RateLimiter<Direct<A>, C> {
    fn check_at(&self, key: u32, cost: u64, now: u64) -> Decision {
        assert_eq!(key, 0, "a direct limiter is one stream");
        RateLimiter::check_at(self, cost, Timestamp::from_nanos(now))
    }

    fn peek_at(&self, key: u32, cost: u64, now: u64) -> Decision {
        assert_eq!(key, 0, "a direct limiter is one stream");
        RateLimiter::peek_at(self, cost, Timestamp::from_nanos(now))
    }
}

impl<A: Algorithm, C: Clock + Debug + Send + Sync> Subject for RateLimiter<Keyed<u32, A>, C> {
    fn check_at(&self, key: u32, cost: u64, now: u64) -> Decision {
        RateLimiter::check_at(self, &key, cost, Timestamp::from_nanos(now))
    }

    fn peek_at(&self, key: u32, cost: u64, now: u64) -> Decision {
        RateLimiter::peek_at(self, &key, cost, Timestamp::from_nanos(now))
    }
}

/// The decision's outcome in the oracle's words.
pub(crate) fn verdict(decision: &Decision) -> Verdict {
    match decision.outcome() {
        Outcome::Allowed => Verdict::Allowed,
        Outcome::Denied => Verdict::Denied,
        Outcome::Never => Verdict::Never,
    }
}
