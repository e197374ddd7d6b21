//! Denials, peeks and other read-only calls write nothing: the limiter's whole memory is read-only during these calls.

use super::alone;
use super::arena::{pages_of, writes};
use std::time::Duration;
use tollgate::sketch::{Bloom, CountMin, InFlight, Rate};
use tollgate::{
    Capacity, Carry, Clock, FixedWindow, Gcra, ManualClock, MinimumSpacing, Outcome, Overflow, Quota,
    RateLimiter, SlidingLog, Timestamp, check_all, joint::AllOf,
};
use tollgate_testing::HOUR;
use tollgate_testing::compact::{POLICIES, compact_of};
use tollgate_testing::kinds::{ALL, COMPACT, Kind, WINDOWS};
use tollgate_testing::oracle::Spec;
use tollgate_testing::sketch::sketch_of;
use tollgate_testing::subjects::{Subject, direct, keyed};

const SPEC: Spec = Spec { limit: 2, period_ns: HOUR, burst: 2 };
/// A time well before the end of any window or sub-window.
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// The size of compact stores. Larger tables are mapped from the system, and do not lie in the arena.
const SMALL: Capacity = Capacity::memory(8 << 10);

/// Returns a clock that lies outside the arena, so that it can move while the limiters are read-only.
fn clock() -> ManualClock {
    ManualClock::new(START)
}

/// Creates this thread's own state in advance, such as its registration as an epoch reader.
fn warm() {
    let keyed = RateLimiter::builder(Gcra::new(Quota::per_second(1))).keyed::<u64>();
    let adjustable = RateLimiter::new(Quota::per_second(1)).adjustable();
    let _ = (keyed.check(&1), keyed.reset(&1), adjustable.check(&1));
}

/// Asserts that denied requests write nothing. As a control, an admitted request two hours later does write.
fn writes_nothing(name: &str, clock: &ManualClock, make: impl FnOnce() -> Box<dyn Fn(u64) -> Outcome>) {
    clock.set(START);
    warm();
    let (pages, ask) = pages_of(|| {
        let ask = make();
        let denied = (0..10).any(|_| ask(1) == Outcome::Denied);
        assert!(denied, "{name}: the limiter denies after a few requests");
        ask
    });
    let written = writes(&pages, || {
        for _ in 0..300 {
            clock.advance(Duration::from_millis(250));
            assert!(ask(1) == Outcome::Denied, "{name}: the key is denied until it has paid its debt");
            assert!(ask(u64::MAX) != Outcome::Allowed, "{name}: a cost above the burst is never admitted");
            let _ = ask(0);
        }
    });
    assert_eq!(written, 0, "{name}: a denial or a peek wrote to the limiter's memory");

    clock.advance(Duration::from_secs(2 * 3_600));
    let written = writes(&pages, || assert!(ask(1) == Outcome::Allowed, "{name}: the debt is paid"));
    assert!(written > 0, "{name}: the test detects the write of an admitted request");
}

// G26
#[test]
fn denial_writes_nothing_in_any_store() {
    let (_alone, clock) = (alone(), clock());
    let check = |name: &str, kind, make: fn(Kind) -> Box<dyn Subject>| {
        writes_nothing(&format!("{name}, {kind:?}"), &clock, || {
            let (limiter, clock) = (make(kind), clock.clone());
            Box::new(move |cost| limiter.at(clock.now().as_nanos()).check_n(0, cost).outcome())
        });
    };
    for kind in ALL {
        check("direct", kind, |kind| direct(kind, SPEC).unwrap());
        check("keyed", kind, |kind| keyed(kind, SPEC).unwrap());
        with_algorithm!(kind, SPEC, algorithm => {
            writes_nothing(&format!("direct and adjustable, {kind:?}"), &clock, || {
                let limiter = RateLimiter::builder(algorithm).clock(clock.clone()).direct().adjustable();
                Box::new(move |cost| limiter.check_n(cost).outcome())
            });
        })
        .expect("every algorithm supports this quota");
    }
    for kind in COMPACT {
        check("compact", kind, |kind| compact_of(kind, SPEC, Capacity::slots(64), 0).unwrap().unwrap().0);
    }
    for kind in WINDOWS {
        check("sketch", kind, |kind| sketch_of(kind, SPEC, 4096).unwrap().unwrap());
    }
}

/// Stripes, tiers, changed quotas, full tables, and several limits whose last one denies.
// G26
#[test]
fn denial_writes_nothing_after_changes_and_evictions() {
    let (_alone, clock) = (alone(), clock());
    let quota = Quota::per_hour(2);
    let build = || RateLimiter::builder(Gcra::new(quota)).clock(clock.clone()).capacity(SMALL);
    writes_nothing("striped", &clock, || {
        let limiter = RateLimiter::builder(Gcra::new(quota)).clock(clock.clone()).stripes(4).striped();
        Box::new(move |cost| limiter.check_n(cost).outcome())
    });
    writes_nothing("a tier of a compact limiter", &clock, || {
        let limiter = build().compact().unwrap();
        let tier = limiter.tier(&Quota::per_hour(1).burst(1)).unwrap();
        let clock = clock.clone();
        Box::new(move |cost| limiter.at(clock.now()).check_with("alice", cost, &tier).outcome())
    });
    writes_nothing("a changed quota", &clock, || {
        let limiter = build().compact().unwrap().adjustable();
        let _ = limiter.check_n("alice", 2);
        limiter.set_quota(&Quota::per_hour(1).burst(2), Carry::AsIs).unwrap();
        let clock = clock.clone();
        Box::new(move |cost| limiter.at(clock.now()).check_n("alice", cost).outcome())
    });
    for overflow in POLICIES {
        writes_nothing(&format!("a full table, {overflow:?}"), &clock, || {
            let limiter = build().overflow(overflow).capacity(Capacity::slots(16)).compact().unwrap();
            let came_in: Vec<u64> = (0..200).filter(|key| limiter.check_n(key, 2).is_allowed()).collect();
            // Some of these keys were evicted, even by new keys that were then denied. `is_held` excludes them: the denial
            // of an evicted key increments `denied_for_debt`.
            let is_held = |key: &u64| {
                let before = limiter.gauges().denied_for_debt;
                !limiter.check(key).is_allowed() && limiter.gauges().denied_for_debt == before
            };
            let held = came_in.into_iter().rfind(is_held).expect("the table holds a key");
            assert!(limiter.gauges().evicted > 0 || overflow == Overflow::Inherit);
            Box::new(move |cost| limiter.check_n(&held, cost).outcome())
        });
    }
    writes_nothing("several limits, and the last one denies", &clock, || {
        let (keyed, windows) =
            (build().keyed::<u64>(), RateLimiter::builder(FixedWindow::new(Quota::per_hour(90))));
        let windows = windows.clock(clock.clone()).capacity(SMALL).compact().unwrap();
        let spacing = RateLimiter::builder(MinimumSpacing::new(Duration::from_secs(3_600)))
            .clock(clock.clone())
            .direct();
        Box::new(move |cost| {
            let limits =
                (windows.on(&7_u64).cost(cost), keyed.on(&7).cost(cost.min(1)), spacing.on().cost(cost));
            check_all(limits).outcome()
        })
    });
}

type Look = Box<dyn Fn(u64)>;

/// Read-only calls of limiters and sketches write nothing.
// G26
#[test]
fn read_only_calls_write_nothing() {
    let (_alone, clock) = (alone(), clock());
    warm();
    let (pages, looks) = pages_of(|| {
        let builder = RateLimiter::builder(Gcra::new(Quota::per_hour(2))).clock(clock.clone());
        let compact = builder.capacity(Capacity::slots(64)).compact().unwrap();
        let keyed =
            RateLimiter::builder(SlidingLog::new(Quota::per_hour(2))).clock(clock.clone()).keyed::<u64>();
        let windows = RateLimiter::builder(FixedWindow::new(Quota::per_hour(2))).clock(clock.clone());
        let sketch = windows.capacity(Capacity::memory(4096)).sketch().unwrap();
        let rate = Rate::builder(Duration::from_secs(1)).clock(clock.clone()).build().unwrap();
        let (bloom, counts) = (Bloom::for_items(100, 0.01).unwrap(), CountMin::try_new(64, 4).unwrap());
        let in_flight = InFlight::with_memory(4096).unwrap();
        std::mem::forget(in_flight.enter(&7_u64, 3));
        let _ = (compact.check(&7_u64), keyed.check(&7), sketch.check(&7_u64), rate.observe(&7_u64, 5));
        let _ = (bloom.insert(&7_u64), counts.add(&7_u64, 5));
        let one = &7_u64;
        let looks: Vec<(&str, Look)> = vec![
            (
                "the sketches",
                Box::new(move |_| {
                    assert_eq!(
                        (bloom.contains(one), counts.estimate(one), in_flight.current(one)),
                        (true, 5, 3)
                    );
                }),
            ),
            (
                "a rate",
                Box::new(move |key| {
                    assert_eq!((rate.current(one), rate.components(&key).previous), (5, 0));
                    assert!(rate.rate(&key) == 0.0);
                }),
            ),
            (
                "a compact limiter",
                Box::new(move |key| {
                    assert!(
                        compact.peek(&key).is_allowed()
                            && AllOf::new((compact.on(&key), compact.on(&key))).peek().is_allowed()
                    );
                    assert_eq!(
                        (compact.gauges().evicted, compact.live_slots(), compact.fill() > 0.0),
                        (0, 1, true)
                    );
                    assert!(compact.snapshot().len() > 8);
                }),
            ),
            (
                "a keyed limiter",
                Box::new(move |key| {
                    assert!(keyed.peek(&key).is_allowed());
                    assert_eq!((keyed.contains(&key), keyed.len(), keyed.is_empty()), (key == 7, 1, false));
                    keyed.for_each(|key, state| assert!(*key == 7 && state.remaining() == 1));
                }),
            ),
            (
                "a limiter in a sketch",
                Box::new(move |key| {
                    assert!(sketch.peek(&key).is_allowed() && sketch.saturation().denied < 0.5);
                }),
            ),
        ];
        looks
    });
    for (name, look) in looks {
        // Make all calls before the measurement too, so that their first-use state exists.
        (0..50).chain([7]).for_each(&look);
        assert_eq!(
            writes(&pages, || (0..50).for_each(&look)),
            0,
            "{name}: a read-only call wrote to its memory"
        );
    }
}

/// Unlike an insertion, a peek writes nothing, even in a store that never held a key.
// G26
#[test]
fn peek_of_absent_key_writes_nothing() {
    let (_alone, clock) = (alone(), clock());
    warm();
    let (pages, limiter) = pages_of(|| {
        let builder = RateLimiter::builder(Gcra::new(Quota::per_hour(2))).clock(clock.clone());
        builder.capacity(500).keyed::<u64>()
    });
    let look =
        || (0..400).for_each(|key| assert!(limiter.peek(&key).is_allowed() && !limiter.contains(&key)));
    assert_eq!(writes(&pages, look), 0);
    assert!(
        writes(&pages, || assert!(limiter.check(&400).is_allowed())) > 0,
        "the test detects the write of an insertion"
    );
}

/// A new key that is denied for an inherited debt is counted, so this denial writes. The crate page documents it.
// G26
#[test]
fn denial_for_inherited_debt_is_counted() {
    let (_alone, clock) = (alone(), clock());
    let (pages, (limiter, newcomer)) = pages_of(|| {
        let builder = RateLimiter::builder(Gcra::new(Quota::per_hour(2))).clock(clock.clone());
        let limiter = builder.overflow(Overflow::Inherit).capacity(Capacity::slots(16)).compact().unwrap();
        for key in 0..400_u64 {
            let _ = limiter.check_n(&key, 2);
        }
        let newcomer = (400..800_u64)
            .find(|key| limiter.peek(key).is_denied())
            .expect("a new key finds only full slots");
        (limiter, newcomer)
    });
    let before = limiter.gauges().denied_for_debt;
    assert!(writes(&pages, || assert!(limiter.check(&newcomer).is_denied())) > 0);
    assert_eq!(limiter.gauges().denied_for_debt, before + 1);
}
