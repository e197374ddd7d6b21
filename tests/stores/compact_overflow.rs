//! A full compact store against one oracle for each key.
//!
//! Each oracle knows only what its key was admitted. Properties, over random streams of many keys on tables of a few
//! slots, while time does not step back:
//! - With `Spill` and `Inherit`, the key's oracle admits every request that the store admits. Sharing and evicting can
//!   only deny more, so each interval stays within the quota's bound.
//! - With `Forget`, the key's oracle denies every request that the store denies.
//! - Fixed windows keep both properties, and sliding windows keep the second.

use proptest::prelude::*;
use proptest::sample::select;
use std::time::Duration;
use tollgate::{
    Capacity, Compact, CompactAlgorithm, FixedWindow, Gcra, ManualClock, Overflow, Quota, RateLimiter,
    Timestamp,
};
use tollgate_testing::compact::{Layout, Seeded, build};
use tollgate_testing::kinds::Kind;
use tollgate_testing::laws::newest_is_within;
use tollgate_testing::operations::run_cases;
use tollgate_testing::oracle::{Oracle, Spec, Verdict};
use tollgate_testing::reading::Reading;
use tollgate_testing::subjects::verdict;
use tollgate_testing::{HOUR, MINUTE, SEC, START};

const KEYS: u16 = 60;

/// A key, the time since the previous request in hundredths of the interval, and the cost.
type Request = (u16, u32, u64);

/// Requests in which a few keys are frequent and many keys are rare.
fn requests() -> impl Strategy<Value = Vec<Request>> {
    let key = prop_oneof![0..4_u16, 0..16_u16, 0..KEYS];
    let step = prop_oneof![150 => Just(0_u32), 49 => 0..20_u32, 1 => 0..1_000_u32];
    let cost = prop_oneof![6 => Just(1_u64), 2 => 0..4_u64, 1 => 1..20_u64];
    prop::collection::vec((key, step, cost), 150..300)
}

fn spec() -> impl Strategy<Value = Spec> {
    let burst = prop_oneof![1_u64..=3, 1_u64..=20, Just(300)];
    (1_u64..=20, select(vec![SEC, MINUTE, HOUR, 77_777_777]), burst)
        .prop_map(|(limit, period_ns, burst)| Spec::new(limit, period_ns).with_burst(burst))
}

/// A table of one bucket, or of a few.
fn capacity() -> impl Strategy<Value = Capacity> {
    select(vec![Capacity::memory(1), Capacity::memory(400), Capacity::memory(800)])
}

/// Start times over all phases of cells and states. For most of these quotas the range of states is two years or less.
fn start() -> impl Strategy<Value = u64> {
    START..START + 2 * 365 * 24 * HOUR
}

/// Plays a stream and compares each decision with the key's own oracle. Returns how often a bucket was full.
fn play<A: CompactAlgorithm>(
    algorithm: A,
    kind: Kind,
    spec: Spec,
    (overflow, capacity): (Overflow, Capacity),
    start: u64,
    requests: &[Request],
) -> u64 {
    let limiter = build(algorithm, overflow, capacity, ManualClock::new(Timestamp::ZERO));
    let reading = Reading::new(Some(Layout::read(&limiter.snapshot())), kind, spec, start);
    let mut keys: Vec<_> = (0..KEYS).map(|_| (reading.oracle(), Vec::<(u64, u64)>::new())).collect();
    let exact = kind.oracle(spec);
    let mut now = start;
    for &(key, step, cost) in requests {
        now += spec.period_ns / spec.limit * u64::from(step) / 100;
        let at = reading.at(now);
        let (oracle, admitted) = &mut keys[usize::from(key)];
        let expected = oracle.peek(at, cost);
        let ours = limiter.at(Timestamp::from_nanos(now)).check_n(&key, cost);
        let told = |oracle: &dyn Oracle| {
            format!("{cost} at {now} of key {key}, {overflow:?} {capacity:?} {spec:?}, {oracle:?}")
        };
        match (verdict(&ours), expected) {
            (Verdict::Allowed, Verdict::Denied) => {
                assert_eq!(overflow, Overflow::Forget, "admitted {}", told(&**oracle));
            }
            (Verdict::Denied, Verdict::Allowed) => {
                assert_ne!(overflow, Overflow::Forget, "denied {}", told(&**oracle));
            }
            (ours, own) => assert_eq!(ours, own, "{}", told(&**oracle)),
        }
        if ours.is_allowed() && cost > 0 {
            oracle.charge(at.into(), cost);
            admitted.push((now, if kind == Kind::Spacing { 1 } else { cost }));
            let last = &admitted[admitted.len().saturating_sub(16)..];
            if overflow != Overflow::Forget {
                newest_is_within(last, |t| exact.most_in(t + reading.tick_ns()), told(&**oracle));
            }
        }
    }
    let gauges = limiter.gauges();
    assert_eq!(gauges.raced, 0, "only one thread uses the limiter");
    gauges.evicted + gauges.denied_for_debt
}

/// Plays random streams under one policy. More than a third of them must overflow.
fn check(kind: Kind, overflow: Overflow) {
    let cases = (spec(), capacity(), start(), requests());
    let overflown = run_cases((kind, overflow), 128, &cases, |(spec, capacity, start, requests)| {
        let room = (overflow, capacity);
        let full =
            with_compact!(kind, spec, algorithm => play(algorithm, kind, spec, room, start, &requests));
        full > Some(0)
    });
    assert!(overflown * 3.0 > 1.0, "{kind:?} {overflow:?}: {overflown} of them overflow");
}

/// The algorithms whose state is one word.
const ONE_WORD: [Kind; 4] = [Kind::Gcra, Kind::Queue, Kind::Spacing, Kind::Fixed];

#[test]
fn spilling_never_admits_more() {
    ONE_WORD.into_iter().for_each(|kind| check(kind, Overflow::Spill));
}

#[test]
fn inheriting_never_admits_more() {
    ONE_WORD.into_iter().for_each(|kind| check(kind, Overflow::Inherit));
}

#[test]
fn forgetting_never_denies_more() {
    let kinds = ONE_WORD.into_iter().chain([Kind::Sliding, Kind::SlidingStrict]);
    kinds.for_each(|kind| check(kind, Overflow::Forget));
}

type Limiter = RateLimiter<Compact<Gcra, Seeded>, ManualClock>;

/// A table of one bucket, with a limit per hour.
fn of_one_bucket(limit: u64, overflow: Overflow) -> (Limiter, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let gcra = Gcra::new(Quota::per_hour(limit));
    (build(gcra, overflow, Capacity::memory(1), clock.clone()), clock)
}

/// A key uses up its quota. A minute later other keys do the same, until the policy evicts the first key if it can.
fn flooded(overflow: Overflow) -> (Limiter, ManualClock) {
    let (limiter, clock) = of_one_bucket(4, overflow);
    assert!(limiter.check_n("guilty", 4).is_allowed());
    clock.advance(Duration::from_secs(60));
    for key in 1..limiter.gauges().slots {
        assert!(limiter.check_n(&key, 4).is_allowed());
    }
    // The guilty key has the smallest debt.
    assert_eq!(limiter.check_n("last", 4).is_allowed(), overflow != Overflow::Inherit);
    assert_eq!(limiter.gauges().evicted, u64::from(overflow != Overflow::Inherit));
    (limiter, clock)
}

// G6, G8, G9
#[test]
fn evicted_debt_follows_overflow_policy() {
    assert!(flooded(Overflow::Spill).0.check("guilty").is_denied(), "the debt is in the sketch");
    assert!(flooded(Overflow::Inherit).0.check("guilty").is_denied(), "the key still has its slot");
    assert!(flooded(Overflow::Forget).0.check("guilty").is_allowed(), "the debt is forgotten");
}

// G19, G20
#[test]
fn new_key_in_full_bucket_follows_policy() {
    assert!(flooded(Overflow::Spill).0.check_n("honest", 4).is_allowed(), "no debt of this key was spilled");
    assert!(flooded(Overflow::Forget).0.check_n("honest", 4).is_allowed());
    assert!(flooded(Overflow::Inherit).0.check("honest").is_denied(), "the key inherits a debt");
}

/// Time pays a spilled debt at the same rate as before. The debt is rounded up to a thousandth of the burst's hour.
#[test]
fn spilled_debt_is_paid_by_time() {
    let (limiter, clock) = flooded(Overflow::Spill);
    let refused = limiter.check("guilty");
    assert!(refused.is_denied());
    let wait = refused.retry_after().expect("a finite wait");
    let exact = Duration::from_secs(14 * 60);
    assert!((exact..=exact + Duration::from_secs(8)).contains(&wait), "{wait:?}");
    clock.advance(wait - Duration::from_nanos(1));
    assert!(limiter.check("guilty").is_denied());
    clock.advance(Duration::from_nanos(1));
    assert!(limiter.check("guilty").is_allowed());
    assert_eq!(limiter.gauges().indebted, 1);
}

/// A cell of the sketch wraps its sixteen bits after thousands of windows. Its old value must not count for a later
/// window that stores a smaller usage.
// G6
#[test]
fn spilled_debt_survives_old_cells() {
    let period = MINUTE;
    let window = FixedWindow::new(Quota::per_minute(14));
    // Cells can distinguish 4,096 windows of this limit.
    let all = (4_092..4_100).flat_map(|windows| [1, 2, 3, 8, 14].map(|before| (windows, before)));
    for (windows, before) in all {
        let clock = ManualClock::new(Timestamp::from_nanos(START / period * period));
        let builder = RateLimiter::builder(window).clock(clock.clone()).hasher(Seeded(2));
        let limiter = builder.capacity(Capacity::memory(1)).compact().expect("an ordinary quota");
        for key in 1_000..1_100 {
            let _ = limiter.check_n(&key, before);
        }
        assert!(limiter.gauges().evicted > 20);
        clock.advance(Duration::from_nanos(windows * period));
        let admitted =
            |cost| -> Vec<u64> { (0..60).filter(|key| limiter.check_n(key, cost).is_allowed()).collect() };
        let (first, again) = (admitted(14), admitted(1));
        assert!(
            again.iter().all(|key| !first.contains(key)),
            "{windows} windows later: {first:?}, {again:?}"
        );
    }
}
