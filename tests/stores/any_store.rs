//! Limiters whose store and algorithm are chosen at run time.

use std::time::Duration;
use tollgate::{
    AnyLimiter, Capacity, Carry, Limit, LimitKind, ManualClock, Quota, QuotaError, RateLimiter, StoreKind,
    Timestamp, WhenFull, joint::AllOf,
};
use tollgate_testing::SEC;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const KINDS: [StoreKind; 4] = [StoreKind::Direct, StoreKind::Keyed, StoreKind::Compact, StoreKind::Sketch];

/// Limits with every algorithm and variant.
const LIMITS: [&str; 14] = [
    "10/min burst 5",
    "token-bucket 10/min burst 5",
    "token-bucket(interval) 10/min burst 5",
    "token-bucket(aligned, at 7s) 10/min burst 5",
    "token-bucket(aligned, adaptive) 10/min burst 5",
    "leaky-bucket 10/min burst 5",
    "leaky-bucket(queue) 10/min burst 5",
    "fixed-window 10/min",
    "fixed-window(first-use) 10/min",
    "sliding-window 10/min",
    "sliding-window(strict) 10/min",
    "sub-window(6) 10/min",
    "sliding-log 10/min",
    "minimum-spacing 6s",
];

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

/// A store, and the maximum number of its keys.
#[derive(Copy, Clone, PartialEq, Debug)]
struct Layout(StoreKind, Option<(usize, WhenFull)>);

type Any = AnyLimiter<String, ManualClock>;

fn new(Layout(kind, cap): Layout, limit: Limit) -> Result<Any, QuotaError> {
    let mut builder = RateLimiter::any(limit).clock(ManualClock::new(NOW));
    if matches!(kind, StoreKind::Compact | StoreKind::Sketch) {
        builder = builder.capacity(Capacity::memory(64 << 10));
    }
    if let Some((most, when_full)) = cap {
        builder = builder.max_keys(most, when_full);
    }
    builder.build(kind)
}

/// All pairs of store and limit that fit.
fn pairs() -> impl Iterator<Item = (Layout, Limit)> {
    let capped = Layout(StoreKind::Keyed, Some((2, WhenFull::Forget)));
    let layouts = KINDS.map(|kind| Layout(kind, None)).into_iter().chain([capped]);
    let all = layouts.flat_map(|layout| LIMITS.map(|text| (layout, limit(text))));
    all.filter(|(layout, limit)| layout.0.supports(limit.kind()))
}

#[test]
fn store_supports_the_limits_that_it_names() {
    let more = ["minimum-spacing 0s", "sub-window(1) 10/min", "sub-window(1, strict) 10/min"];
    for kind in KINDS {
        for limit in LIMITS.into_iter().chain(more).map(limit) {
            let made = new(Layout(kind, None), limit);
            assert_eq!(made.is_ok(), kind.supports(limit.kind()), "{kind:?} {limit}");
            if let Err(error) = made {
                assert!(error.to_string().contains("; use "), "{error}");
            }
        }
    }
}

/// Each pair decides like the limiter of its algorithm.
#[test]
fn pair_decides_like_its_algorithm() {
    for (layout, limit) in pairs() {
        let (any, keyed) = (new(layout, limit).unwrap(), new(Layout(StoreKind::Keyed, None), limit).unwrap());
        for step in 0..60 {
            let now = NOW + Duration::from_secs(step * step);
            let (left, right) = (any.at(now).check_n("x", step % 3), keyed.at(now).check_n("x", step % 3));
            assert_eq!(left.outcome(), right.outcome(), "{layout:?} {limit} {step}");
        }
    }
}

/// A change of the limit keeps used units, whatever the algorithms.
// G49
#[test]
fn change_of_algorithm_carries_usage_over() {
    for (layout, from) in pairs() {
        for (_, into) in pairs().filter(|(other, _)| *other == layout) {
            let limiter = new(layout, from).unwrap();
            assert!(limiter.check("x").is_allowed());
            limiter.set_limit(into, Carry::Used).unwrap();
            let left = limiter.peek_n("x", 0).remaining();
            let (most, is_adaptive) = match into.kind() {
                LimitKind::MinimumSpacing { .. } => (1, false),
                LimitKind::AlignedBucket { adaptive, .. } => (into.most(), adaptive),
                _ => (into.most(), false),
            };
            // A sketch with other windows starts empty.
            let is_fresh = layout.0 == StoreKind::Sketch
                && std::mem::discriminant(&from.kind()) != std::mem::discriminant(&into.kind());
            let expected = most - u64::from(!is_fresh);
            assert!(left == expected || (is_adaptive && left < most), "{layout:?} {from} to {into}: {left}");
        }
    }
}

/// A store that does not exist yet answers like a store that holds nothing.
// G68
#[test]
fn planned_store_answers_like_an_empty_one() {
    let mut count = 0;
    for (layout, limit) in pairs() {
        let (planned, made) = (new(layout, limit).unwrap(), new(layout, limit).unwrap());
        // Even a check of no units creates the store.
        assert!(made.check_n("y", 0).is_allowed());
        count += 1;
        for at_ns in [0, 1, 59 * SEC, 60 * SEC, 1_700_000_000 * SEC + 7, u64::MAX / 2, u64::MAX] {
            let at = Timestamp::from_nanos(at_ns);
            for cost in [0, 1, 5, 6, 10, 11, u64::MAX] {
                let name = format!("{layout:?} {limit} at {at_ns}, cost {cost}");
                assert_eq!(planned.at(at).peek_n("x", cost), made.at(at).peek_n("x", cost), "{name}");
            }
        }
        let readings = |any: &Any| format!("{:?} {:?} {:?}", any.keys(), any.gauges(), any.saturation());
        assert_eq!(readings(&planned), readings(&made), "{layout:?} {limit}");
        assert_eq!(planned.state_bytes(), 0);
        assert!(planned.check("x").is_allowed());
        assert!(planned.state_bytes() > 0 || layout.0 == StoreKind::Direct);
    }
    assert_eq!(count, 14 * 3 + 8 + 3);
}

/// A limiter with the default size of its store.
fn plain(text: &str, store: StoreKind) -> Any {
    let builder = RateLimiter::any(limit(text)).clock(ManualClock::new(NOW));
    let builder = if store == StoreKind::Compact { builder.overdraft(10) } else { builder };
    builder.build(store).unwrap()
}

#[test]
fn every_verb_works() {
    for store in [StoreKind::Direct, StoreKind::Keyed, StoreKind::Compact] {
        let limiter = plain("10/min", store);
        assert_eq!(limiter.check_n("alice", 4).remaining(), 6);
        let charge = limiter.take("alice", 20);
        assert_eq!((charge.cost(), charge.remaining()), (6, 0));
        assert_eq!(limiter.refund_n("alice", &charge, 5), 5);
        assert_eq!(limiter.settle("alice", &limiter.check_n("alice", 3), 1).remaining(), 4);
        assert_eq!(limiter.charge_unchecked("alice", 6).remaining(), 0);
        assert_eq!(limiter.reserve("alice", 1, Duration::from_secs(60)).delay(), Duration::from_secs(18));
        assert!(
            AllOf::new((limiter.on("alice"), plain("1/s", store).on("alice"))).at(NOW).check().is_denied()
        );
        assert!(limiter.wait("alice").within(Duration::ZERO).block().is_err());
    }
}

/// A sketch has no debts that could be unpaid.
#[test]
fn sketch_changes_any_number_of_times_at_one_time() {
    let limiter = plain("fixed-window 500/min", StoreKind::Sketch);
    assert!(limiter.check_n("alice", 4).is_allowed());
    for limit in (100..300).rev() {
        limiter.set_quota(&Quota::per_minute(limit), Carry::Used).unwrap();
    }
    assert_eq!(limiter.peek("alice").remaining(), 96);
    limiter.set_quota(&Quota::per_minute(50), Carry::Reset).unwrap();
    assert_eq!((limiter.peek("alice").remaining(), limiter.limit().most()), (50, 50));
}

#[test]
fn refused_limit_changes_nothing() {
    let limiter = plain("fixed-window 10/min", StoreKind::Sketch);
    let error = limiter.set_limit(limit("10/min"), Carry::Used).unwrap_err();
    assert!(error.to_string().contains("gcra: the sketch store does not support"), "{error}");
    assert_eq!(limiter.limit(), limit("fixed-window 10/min"));
}

/// Regression test. A change moved no keys, and the number of keys fell to 0 while all of them owed.
#[test]
fn number_of_keys_survives_new_limits() {
    for kind in [StoreKind::Keyed, StoreKind::Compact] {
        let any = new(Layout(kind, None), limit("gcra 10/h")).unwrap();
        for key in 0..20 {
            assert!(any.check(&key.to_string()).is_allowed());
        }
        for text in ["gcra 20/h", "fixed-window 20/h", "gcra 10/h"] {
            any.set_limit(limit(text), Carry::Used).unwrap();
            assert_eq!(any.keys(), Some(20), "{kind:?}, {text}");
            assert!(any.check("0").is_allowed());
            assert_eq!(any.keys(), Some(20), "{kind:?}, {text}, after a check");
        }
        assert!(any.reset("0") && !any.reset("0"));
        any.set_limit(limit("gcra 10/h"), Carry::Reset).unwrap();
        assert_eq!(any.keys(), Some(0), "{kind:?}");
    }
}
