//! A keyed limiter allocates only when it first sees a key. A compact limiter and a sketch never allocate after
//! construction. The outcome of a check makes no difference.

use crate::counting::{allocations, bytes_held};
use std::time::Duration;
use tollgate::sketch::TatSketch;
use tollgate::{
    Capacity, Decision, FixedWindow, Gcra, ManualClock, Outcome, Quota, RateLimiter, Timestamp, check_all,
    joint::AllOf, stores::HashedStore,
};
use tollgate_testing::compact::{compact_of, policies};
use tollgate_testing::kinds::{ALL, COMPACT, Kind, WINDOWS};
use tollgate_testing::oracle::Spec;
use tollgate_testing::sketch::{LEAST, build, sketch_of};
use tollgate_testing::subjects::direct;
use tollgate_testing::{MINUTE, SEC};

/// Below the size from which tables are mapped, so that the allocator sees them. `process::resident` has the larger ones.
// G31
#[test]
fn compact_limiter_takes_requested_memory() {
    assert_eq!(bytes_held(|| Box::new([0_u8; 100])), 100);
    let build = |quota| RateLimiter::builder(Gcra::new(quota)).capacity(Capacity::memory(24 << 10));
    // The first limiter calibrates the clock and creates what the whole process shares.
    drop(build(Quota::per_second(1)).compact());
    for quota in [Quota::per_second(1), Quota::per_day(1_000_000), Quota::per_second(100_000).burst(1)] {
        let held = bytes_held(|| build(quota).compact().unwrap());
        assert!(held.abs_diff(24 << 10) <= 1 << 12, "{held} bytes for {quota}");
    }
}

/// Each key had maps of its own, with room for eleven holds: 1,900 bytes for the only hold of a key.
#[test]
fn hold_takes_little_memory_however_many_keys() {
    const HOLDS: u64 = 10_000;
    for keys in [1, 100, HOLDS] {
        let limiter = RateLimiter::builder(Gcra::new(Quota::per_day(HOLDS))).keyed::<u64>();
        let limiter = limiter.with_holds(1 << 20).expect("GCRA can refund");
        (0..keys).for_each(|key| assert!(limiter.check_n(&key, 0).is_allowed()));
        let held = bytes_held(|| {
            for hold in 0..HOLDS {
                let key = hold % keys;
                let held = limiter.hold(&key, 1, Duration::from_secs(60)).expect("units are left");
                let _ = held.detach();
            }
        });
        assert!((100..600).contains(&(held as u64 / HOLDS)), "{held} bytes for {HOLDS} holds of {keys} keys");
    }
}

const SPEC: Spec = Spec { limit: 40, period_ns: MINUTE, burst: 40 };

/// Counts of the outcomes seen: allowed, denied, never.
#[derive(Default)]
struct Seen([u64; 3]);

impl Seen {
    /// Counts the decision and calls its accessors.
    fn add(&mut self, decision: Decision) {
        let _ = (decision.remaining(), decision.retry_after(), decision.reset_after(), decision.delay());
        self.0[match decision.outcome() {
            Outcome::Allowed => 0,
            Outcome::Denied => 1,
            Outcome::Never => 2,
        }] += 1;
    }
}

const COSTS: [u64; 7] = [1, 0, 3, 40, 41, u64::MAX, 2];

/// The compact store and the sketch are too small, so keys share counters, or are evicted and come back with their debts.
// G28
#[test]
fn no_verb_allocates() {
    let capacity = Capacity::slots(24);
    let compact = |kind| compact_of(kind, SPEC, capacity, 20).unwrap().expect("the quota fits the store").0;
    let sketch = |kind| sketch_of(kind, SPEC, LEAST).unwrap().expect("the quota fits the store");
    let limiters = ALL.into_iter().map(|kind| (kind, 1, direct(kind, SPEC).expect("a valid quota")));
    let limiters = limiters.chain(COMPACT.into_iter().map(|kind| (kind, 60, compact(kind))));
    for (kind, keys, limiter) in limiters.chain(WINDOWS.into_iter().map(|kind| (kind, 60, sketch(kind)))) {
        let mut seen = Seen::default();
        let mut now = 1_700_000_000 * SEC;
        let count = allocations(|| {
            for step in 0..720 / u64::from(keys) {
                let late = time_of_step(step).as_nanos();
                for (key, cost) in (0..keys).flat_map(|key| COSTS.map(|cost| (key, cost))) {
                    let at = limiter.at(now);
                    seen.add(at.peek_n(key, cost));
                    seen.add(at.check_n(key, cost));
                    seen.add(limiter.at(late).check(key));
                    let charge = at.take(key, cost);
                    at.refund_n(key, &charge, 1);
                    seen.add(charge);
                    let charge = at.reserve(key, cost, Duration::from_secs(step % 7));
                    at.refund_n(key, &charge, u64::MAX);
                    seen.add(charge);
                    seen.add(at.settle(key, &charge, cost.min(3)));
                    seen.add(limiter.at(late).charge_unchecked(key, cost.min(2)));
                    at.give_back(key, cost % 2);
                    seen.add(at.check_oversized(key, cost));
                }
                now += [0, 700_000_000, 20 * SEC, 2 * SEC, 80 * SEC][index(step % 5)];
            }
        });
        assert_eq!(count, 0, "{kind:?} {limiter:?}");
        assert!(seen.0[0] > 500 && seen.0[1] > 500, "{kind:?} {limiter:?}: {:?}", seen.0);
    }
}

fn index(n: u64) -> usize {
    usize::try_from(n).expect("small")
}

/// Several limits on one request: some requests are admitted, each limit denies some, and some keys are new.
// G28
#[test]
fn joint_checks_never_allocate() {
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    let gcra = |limit| RateLimiter::builder(Gcra::new(Quota::per_hour(limit))).clock(clock.clone());
    let (direct, compact) = (gcra(200).direct(), gcra(2).compact().expect("a valid quota"));
    let window = RateLimiter::builder(FixedWindow::new(Quota::per_hour(3))).clock(clock.clone());
    let window = window.compact().expect("a valid quota");
    let mut seen = [0; 2];
    let count = allocations(|| {
        for key in 0_u64..50 {
            for _ in 0..3 {
                let tuple = check_all((direct.on(), compact.on(&key), window.on(&key)));
                seen[usize::from(tuple.is_allowed())] += 1;
                assert!(tuple.denied_by() != Some(0) && tuple.remaining() <= 3);
            }
            let (other, next) = (key + 100, key + 200);
            let array = check_all([compact.on(&other), compact.on(&next)]);
            AllOf::new([compact.on(&other), compact.on(&next)]).refund(&array);
        }
    });
    assert_eq!((count, seen), (0, [50, 100]));
}

/// Returns the current time. Every fiftieth step returns a time long past.
fn time_of_step(step: u64) -> Timestamp {
    Timestamp::from_nanos(if step.is_multiple_of(50) { step } else { 1_700_000_000 * SEC + step })
}

// G28
#[test]
fn keyed_limiter_allocates_for_new_keys_only() {
    let _alone = crate::alone();
    let keys: Vec<String> = (0..64).map(|key| format!("client number {key}")).collect();
    for kind in ALL {
        let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
        with_algorithm!(kind, SPEC, algorithm => {
            let limiter = RateLimiter::builder(algorithm).clock(clock.clone()).keyed::<String>();
            // The first check of each key, and the first use by this thread.
            let first = allocations(|| keys.iter().for_each(|key| assert!(limiter.check(key).is_allowed())));
            assert!(first >= keys.len() as u64, "{kind:?}: {first}");

            let mut seen = Seen::default();
            let count = allocations(|| {
                for step in 0..50_u64 {
                    for key in &keys {
                        for cost in COSTS {
                            seen.add(limiter.peek_n(key.as_str(), cost));
                            seen.add(limiter.check_n(key.as_str(), cost));
                        }
                        seen.add(limiter.at(time_of_step(step)).check(key.as_str()));
                    }
                    // The limiter keeps nothing for keys that it only peeks at or denies.
                    seen.add(limiter.peek("a stranger"));
                    seen.add(limiter.check_n("a stranger", 0));
                    if kind != Kind::Spacing {
                        seen.add(limiter.check_n("a stranger", u64::MAX - 1));
                    }
                    clock.advance(Duration::from_millis(700 * (step % 5)));
                }
            });
            assert_eq!(count, 0, "{kind:?}");
            assert!(seen.0[0] > 1_000 && seen.0[1] > 1_000, "{kind:?}");
        })
        .expect("a valid quota");
    }
}

// G28
#[test]
fn batch_allocates_only_callers_vector() {
    let _alone = crate::alone();
    let keys: Vec<String> = (0..64).map(|key| format!("client number {key}")).collect();
    for kind in ALL {
        let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
        with_algorithm!(kind, SPEC, algorithm => {
            let direct = RateLimiter::builder(algorithm).clock(clock.clone()).direct();
            let keyed = RateLimiter::builder(algorithm).clock(clock.clone()).keyed::<String>();
            let mut decisions = Vec::with_capacity(4 * keys.len());
            keyed.check_each(keys.iter().map(String::as_str).map(|key| (key, 1)), |decision| decisions.push(decision));
            let count = allocations(|| {
                decisions.clear();
                keyed.check_each(keys.iter().map(String::as_str).map(|key| (key, 1)), |decision| decisions.push(decision));
                direct.check_each(COSTS, |decision| decisions.push(decision));
            });
            assert_eq!(count, 0, "{kind:?}");
            assert_eq!(decisions.len(), keys.len() + COSTS.len());
        })
        .expect("a valid quota");
    }
}

/// The checks of a store that hashes keys: by the clock, by a given time, by hash, and in batches.
fn hashed_checks<S: HashedStore>(
    limiter: &RateLimiter<S, ManualClock>,
    keys: &[u64],
    step: u64,
    seen: &mut Seen,
) {
    for key in keys {
        for cost in COSTS {
            seen.add(limiter.peek_n(key, cost));
            seen.add(limiter.check_n(key, cost));
        }
        seen.add(limiter.at(time_of_step(step)).check(key));
        seen.add(limiter.check_hash(limiter.hash(key), 1));
    }
    limiter.check_each(keys.iter().map(|key| (key, 1)), |decision| seen.add(decision));
    let hashes = keys.iter().map(|key| (limiter.hash(key), 2));
    limiter.check_each_hash(hashes, |decision| seen.add(decision));
}

/// New keys, evictions, spilled debts, batches and resets all use the memory allocated at construction.
// G28
#[test]
fn compact_limiter_never_allocates() {
    let keys: Vec<u64> = (0..100).collect();
    for (kind, overflow) in
        COMPACT.into_iter().flat_map(|kind| policies(kind).iter().map(move |it| (kind, *it)))
    {
        let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
        with_compact!(kind, SPEC, algorithm => {
            let builder = RateLimiter::builder(algorithm).clock(clock.clone()).capacity(Capacity::slots(24));
            let limiter = builder.overflow(overflow).compact().expect("the quota fits the store");
            let tier = limiter.tier(&Quota::per_minute(30)).expect("the quota fits the store");
            let mut seen = Seen::default();
            let count = allocations(|| {
                for step in 0..8_u64 {
                    hashed_checks(&limiter, &keys, step, &mut seen);
                    for key in &keys {
                        seen.add(limiter.at(time_of_step(step)).check_with(key, 1, &tier));
                    }
                    limiter.reset(&keys[3]);
                    let _ = (limiter.gauges(), limiter.fill(), limiter.live_slots(), limiter.state_bytes());
                    if step == 5 {
                        limiter.clear();
                    }
                    clock.advance(Duration::from_millis(700 * (step % 5)));
                }
            });
            assert_eq!(count, 0, "{kind:?} {overflow:?}");
            assert!(seen.0[0] > 500 && seen.0[1] > 500, "{kind:?} {overflow:?}");
            let gauges = limiter.gauges();
            assert!(gauges.evicted + gauges.denied_for_debt > 0, "{kind:?} {overflow:?}");
        })
        .expect("a valid quota");
    }
}

/// Covers new keys, new windows, batches, late times, peeks and gauges.
// G28
#[test]
fn window_sketch_limiter_never_allocates() {
    let keys: Vec<u64> = (0..100).collect();
    for (kind, bytes) in WINDOWS.into_iter().flat_map(|kind| [(kind, LEAST), (kind, 1 << 16)]) {
        let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
        with_windows!(kind, SPEC, algorithm => {
            let limiter = build(algorithm, bytes, clock.clone()).expect("the quota fits the store");
            let mut seen = Seen::default();
            let count = allocations(|| {
                for step in 0..8_u64 {
                    hashed_checks(&limiter, &keys, step, &mut seen);
                    let _ = (limiter.saturation(), limiter.state_bytes());
                    if step == 5 {
                        limiter.clear();
                    }
                    clock.advance(Duration::from_secs(25 * (step % 5)));
                }
            });
            assert_eq!(count, 0, "{kind:?} {bytes}");
            assert!(seen.0.iter().all(|seen| *seen > 500), "{kind:?} {bytes}: {:?}", seen.0);
        })
        .expect("a valid quota");
    }
}

#[test]
fn tat_sketch_never_allocates() {
    let sketch = TatSketch::try_new(Quota::per_minute(4), 1 << 10).expect("the quota fits the store");
    let mut seen = Seen::default();
    let count = allocations(|| {
        for step in 0..5_000_u64 {
            seen.add(sketch.check_at(((step % 40) << 50) | (step % 40), 1, time_of_step(step)));
        }
    });
    assert_eq!(count, 0);
    assert!(seen.0[0] > 10 && seen.0[1] > 10);
}

#[test]
fn meters_and_denied_keys_never_allocate() {
    use tollgate::telemetry::{Meters, TopDenied};

    let limiter = RateLimiter::direct(Gcra::new(Quota::per_minute(100)));
    let (meters, denied) = (Meters::new("api", "per-ip"), TopDenied::try_new(10, 1).expect("enough memory"));
    let hashed = TopDenied::try_new(10, 1).expect("enough memory").hashed(b"secret");
    // The first record creates the hasher that the whole process shares, and the first event of meters their counters.
    denied.record("per-ip", "");
    meters.observe(&limiter.check(), false);
    let keys = ["203.0.113.7", "198.51.100.1", &"x".repeat(1_000)];
    let count = allocations(|| {
        for request in 0..1_000 {
            let decision = limiter.check();
            meters.observe(&decision, false);
            if decision.is_denied() {
                denied.record("per-ip", keys[request % 3]);
                hashed.record("per-ip", keys[request % 3]);
            }
        }
    });
    assert_eq!(count, 0);
    assert!(meters.counts().denied >= 800);
}
