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
use tollgate_testing::compact::{Layout, Seeded};
use tollgate_testing::kinds::Kind;
use tollgate_testing::operations::run_cases;
use tollgate_testing::oracle::{Oracle, Spec, Verdict};
use tollgate_testing::subjects::verdict;
use tollgate_testing::{HOUR, MINUTE, SEC};

const START: u64 = 1_700_000_000 * SEC;
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

/// How the store reads times: in ticks, or for windows in nanoseconds.
struct Reading {
    layout: Layout,
    start: u64,
    spec: Spec,
    tick_ns: u128,
}

impl Reading {
    fn new(kind: Kind, spec: Spec, start: u64, snapshot: &[u8]) -> Self {
        let layout = Layout::read(snapshot);
        match &layout {
            Layout::Ticks(ticks) => {
                let (spec, tick_ns) = (ticks.spec(kind, spec), ticks.nanos(1));
                Self { layout, start, spec, tick_ns }
            }
            Layout::Windows { .. } => Self { layout, start, spec, tick_ns: 0 },
        }
    }

    fn of(&self, now: u64) -> u64 {
        match &self.layout {
            Layout::Ticks(ticks) => u64::try_from(ticks.floor(now) - ticks.floor(self.start))
                .expect("a time soon after the start"),
            Layout::Windows { .. } => now,
        }
    }
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
    let limiter = RateLimiter::builder(algorithm)
        .clock(ManualClock::new(Timestamp::ZERO))
        .hasher(Seeded(5))
        .capacity(capacity)
        .overflow(overflow)
        .compact()
        .expect("an ordinary quota");
    let reading = Reading::new(kind, spec, start, &limiter.snapshot());
    let mut keys: Vec<_> = (0..KEYS).map(|_| (kind.oracle(reading.spec), Vec::<(u64, u64)>::new())).collect();
    let exact = kind.oracle(spec);
    let mut now = start;
    for &(key, step, cost) in requests {
        now += spec.period_ns / spec.limit * u64::from(step) / 100;
        let at = reading.of(now);
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
            let mut sum = 0;
            let looked_at = if overflow == Overflow::Forget { 0 } else { 16 };
            for &(from, cost) in admitted.iter().rev().take(looked_at) {
                sum += u128::from(cost);
                let bound = exact.most_in(u128::from(now - from) + reading.tick_ns);
                assert!(sum <= bound, "{sum} > {bound} since {from}: {}", told(&**oracle));
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
    assert!(overflown * 3.0 > 1.0, "{overflown} of them overflow");
}

macro_rules! laws {
    ($($name:ident: $kind:expr, [$($test:ident: $overflow:ident),*];)*) => {$(
        mod $name {
            use super::*;

            $(#[test]
            fn $test() {
                check($kind, Overflow::$overflow);
            })*
        }
    )*};
}

laws! {
    gcra: Kind::Gcra, [
        spilling_never_admits_more: Spill,
        inheriting_never_admits_more: Inherit,
        forgetting_never_denies_more: Forget
    ];
    leaky_bucket_queue: Kind::Queue, [
        spilling_never_admits_more: Spill,
        inheriting_never_admits_more: Inherit,
        forgetting_never_denies_more: Forget
    ];
    minimum_spacing: Kind::Spacing, [
        spilling_never_admits_more: Spill,
        inheriting_never_admits_more: Inherit,
        forgetting_never_denies_more: Forget
    ];
    fixed_window: Kind::Fixed, [
        spilling_never_admits_more: Spill,
        inheriting_never_admits_more: Inherit,
        forgetting_never_denies_more: Forget
    ];
    sliding_window: Kind::Sliding, [forgetting_never_denies_more: Forget];
    sliding_window_strict: Kind::SlidingStrict, [forgetting_never_denies_more: Forget];
}

type Limiter = RateLimiter<Compact<Gcra, Seeded>, ManualClock>;

/// A table of one bucket, with a limit per hour.
fn of_one_bucket(limit: u64, overflow: Overflow) -> (Limiter, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let builder = RateLimiter::builder(Gcra::new(Quota::per_hour(limit))).clock(clock.clone());
    let builder = builder.hasher(Seeded(5)).capacity(Capacity::memory(1)).overflow(overflow);
    (builder.compact().expect("an ordinary quota"), clock)
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
