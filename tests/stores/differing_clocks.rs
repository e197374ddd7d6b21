//! Callers whose times differ. A time comes from the clock or from the caller, may be ahead or behind by more than a
//! burst takes to refill, and may be wrong.
//!
//! Laws:
//! - If callers' times differ by at most d, an interval of length t admits no more than the algorithm's bound for t + d.
//! - One wrong time, however wrong, gives each key at most one more burst, and locks no key out for long.
//! - Reset, snapshot, restore and gauges use the times of the checks.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::sketch::TatSketch;
use tollgate::{
    Capacity, Clock, Compact, CompactAlgorithm, FixedWindow, Gcra, ManualClock, Overflow, Quota, RateLimiter,
    Sketch, SlidingWindow, Timestamp, check_all,
};
use tollgate_testing::compact::{POLICIES, Seeded, build};
use tollgate_testing::laws::newest_is_within;
use tollgate_testing::{MS, SEC, START, at};

/// Units per second, and the burst.
#[derive(Copy, Clone)]
struct Rate {
    per_second: u64,
    burst: u64,
}

impl Rate {
    fn quota(self) -> Quota {
        Quota::per_second(self.per_second).burst(self.burst)
    }

    /// The most that GCRA admits in an interval of this length.
    fn bound(self, ns: u64) -> u64 {
        let units = u128::from(ns) * u128::from(self.per_second) / u128::from(SEC);
        self.burst + u64::try_from(units).unwrap()
    }
}

type Limiter<A = Gcra> = RateLimiter<Compact<A, Seeded>, ManualClock>;

fn clock() -> ManualClock {
    ManualClock::new(at(START))
}

fn compact<A: CompactAlgorithm>(algorithm: A, clock: &ManualClock, overflow: Overflow) -> Limiter<A> {
    build(algorithm, overflow, Capacity::memory(1 << 16), clock.clone())
}

fn admitted(count: u64, mut check: impl FnMut() -> bool) -> u64 {
    (0..count).map(|_| u64::from(check())).sum()
}

/// Checks with given times ahead of the clock alternate with checks by the clock.
// G11
#[test]
fn far_ahead_given_times_admit_no_more() {
    let quota = Quota::per_minute(10);
    let bound = |ns: u64| 10 + ns.min(120 * SEC) / (6 * SEC);
    for ahead_ns in [SEC, 61 * SEC, 119 * SEC, 3_600 * SEC, 400 * 86_400 * SEC] {
        for overflow in POLICIES {
            let limiter = compact(Gcra::new(quota), &clock(), overflow);
            let both = admitted(1_000, || {
                limiter.at(at(START + ahead_ns)).check("a").is_allowed() | limiter.check("a").is_allowed()
            });
            assert!(both <= bound(ahead_ns), "{overflow:?}, {ahead_ns} ns: {both}");
        }
        let builder = RateLimiter::builder(FixedWindow::new(quota)).clock(clock()).hasher(Seeded(5));
        let sketch: RateLimiter<Sketch<FixedWindow, Seeded>, _> =
            builder.capacity(Capacity::memory(1 << 16)).sketch().expect("an ordinary quota");
        let both = admitted(1_000, || {
            sketch.at(at(START + ahead_ns)).check("a").is_allowed() | sketch.check("a").is_allowed()
        });
        assert!(both <= 20, "two windows: {both}");
        let sketch = TatSketch::try_new(quota, 1 << 16).expect("an ordinary quota");
        let both = admitted(1_000, || {
            let ahead = sketch.check_at(1 << 40, 1, at(START + ahead_ns)).is_allowed();
            ahead | sketch.check_at(1 << 40, 1, at(START)).is_allowed()
        });
        assert!(both <= bound(ahead_ns), "{ahead_ns} ns: {both}");
    }
}

/// Two threads whose clocks differ by one and a half intervals.
// G11
#[test]
fn thread_clocks_admit_at_most_their_difference() {
    let rate = Rate { per_second: 1_000, burst: 1 };
    for overflow in POLICIES {
        let limiter = compact(Gcra::new(rate.quota()), &clock(), overflow);
        let (both, length) = (&std::sync::atomic::AtomicU64::new(0), 200 * MS);
        std::thread::scope(|scope| {
            for ahead_ns in [0, 1_500_000] {
                let limiter = &limiter;
                scope.spawn(move || {
                    for step in 0..100_000 {
                        let now = at(START + ahead_ns + step * length / 100_000);
                        let allowed = limiter.at(now).check("a").is_allowed();
                        both.fetch_add(u64::from(allowed), std::sync::atomic::Ordering::Relaxed);
                    }
                });
            }
        });
        let both = both.load(std::sync::atomic::Ordering::Relaxed);
        assert!(both <= rate.bound(length + 1_500_000), "{overflow:?}: {both}");
    }
}

// G11
#[test]
fn limiters_with_different_clocks_are_checked_together() {
    let quota = Quota::per_second(10);
    for (first_ns, second_ns) in [(0, 3 * SEC), (3 * SEC, 0), (0, 400 * 86_400 * SEC)] {
        for overflow in POLICIES {
            let of = |ns| compact(Gcra::new(quota), &ManualClock::new(at(START + ns)), overflow);
            let (a, b) = (of(first_ns), of(second_ns));
            let mut key = 0_u32;
            let both = admitted(1_000, || {
                key += 1;
                let joint = check_all((a.on(&key), b.on("b"))).is_allowed();
                joint | b.check("b").is_allowed()
            });
            assert!(both <= 21, "{overflow:?}: {both} of {first_ns} and {second_ns}");
        }
    }
}

/// With this quota, half the range of a state is little more than a second.
// G39
#[test]
fn clock_stepping_back_seconds_admits_no_more() {
    let quota = Quota::per_second(1_000_000_000).burst(30_000_000);
    for back_ms in (100..4_000).step_by(7) {
        for overflow in POLICIES {
            let clock = clock();
            let limiter = compact(Gcra::new(quota), &clock, overflow);
            assert!(limiter.check_n("a", 30_000_000).is_allowed());
            clock.set(at(START - back_ms * MS));
            assert!(limiter.check_n("a", 30_000_000).is_denied(), "{overflow:?}: {back_ms} ms back");
        }
    }
}

/// The times of one key lag those of all others. The others take its slot whenever it is idle at their times.
// G11
#[test]
fn lagging_key_is_admitted_no_more() {
    let rate = Rate { per_second: 10, burst: 5 };
    for lag in [200 * MS, 500 * MS, 5 * SEC, 3_600 * SEC] {
        let clock = clock();
        let builder = RateLimiter::builder(Gcra::new(rate.quota())).clock(clock.clone()).hasher(Seeded(5));
        let limiter = builder.capacity(Capacity::memory(1 << 12)).compact().expect("an ordinary quota");
        let mut others = 0_u64..;
        let mut now = START + lag;
        let mut units = 0;
        for _ in 0..100 {
            for key in others.by_ref().take(1_000) {
                let _ = limiter.at(at(now)).check(&key);
            }
            units += limiter.at(at(now - lag)).check_n("lags", 5).charged();
            now += 200 * MS;
        }
        assert!(units <= rate.bound(now - START), "{lag} ns: {units}");
    }
}

// G40
#[test]
fn wrong_time_locks_out_no_key_for_long() {
    let rate = Rate { per_second: 10, burst: 5 };
    for wrong in [u64::MAX, u64::MAX - 1, START + 30 * 365 * 86_400 * SEC, 1 << 63] {
        for overflow in POLICIES {
            let clock = clock();
            let limiter = compact(Gcra::new(rate.quota()), &clock, overflow);
            let _ = limiter.check("before");
            let _ = limiter.at(at(wrong)).check("wrong");
            // For at most one second plus the time of a burst, checks use one instant. Then the clock counts again.
            let mut units = 0;
            for _ in 0..100 {
                units += u64::from(limiter.check("key").is_allowed());
                clock.advance(Duration::from_millis(100));
            }
            assert!(
                units >= 80,
                "{overflow:?}: {units} of 10 a second for 10 seconds, less about one second"
            );
            assert!(units <= rate.bound(10 * SEC) + 2 * rate.burst, "{overflow:?}: {units}");
        }
    }
}

// G40
#[test]
fn wrong_time_in_sketch_is_dropped_soon() {
    for wrong in [u64::MAX, START + 30 * 365 * 86_400 * SEC] {
        let clock = clock();
        let builder = RateLimiter::builder(SlidingWindow::new(Quota::per_second(10))).clock(clock.clone());
        let limiter = builder.capacity(Capacity::memory(1 << 16)).sketch().expect("an ordinary quota");
        let _ = limiter.at(at(wrong)).check("wrong");
        let units = admitted(100, || {
            clock.advance(Duration::from_millis(100));
            limiter.check("key").is_allowed()
        });
        assert!((80..=110).contains(&units), "{units}");
        let sketch = TatSketch::try_new(Quota::per_second(10).burst(5), 1 << 16).expect("an ordinary quota");
        let _ = sketch.check_at(1 << 40, 1, at(wrong));
        let mut now = START;
        let units = admitted(100, || {
            now += 100 * MS;
            sketch.check_at(2 << 40, 1, at(now)).is_allowed()
        });
        assert!((80..=110).contains(&units), "{units}");
    }
}

/// Clock readings and given times from four sources. They differ by much more than a burst takes to refill.
fn sources() -> impl Strategy<Value = Vec<(usize, bool, u64, u64)>> {
    prop::collection::vec((0..4_usize, any::<bool>(), 0..400_u64, 1..=4_u64), 1..300)
}

proptest! {
    #![proptest_config(tollgate_testing::operations::config(300))]

    // G11
    #[test]
    fn clock_sources_admit_at_most_their_difference(
        steps in sources(),
        differ in prop_oneof![0..2_000_u64, 0..5_000_000_u64],
        rate in 1..2_000_u64,
        burst in 1..8_u64,
        start in prop_oneof![Just(0), Just(START), 0..u64::MAX / 4],
    ) {
        let rate = Rate { per_second: rate, burst };
        for overflow in POLICIES {
            let clock = clock();
            let limiter = compact(Gcra::new(rate.quota()), &clock, overflow);
            let mut admitted = Vec::new();
            let mut now = start;
            for &(source, given, step_ms, cost) in &steps {
                now += step_ms * MS / 10;
                // Each source is ahead by a number of thirds of the difference.
                let own = now + differ * MS * source as u64 / 3;
                let decision = if given {
                    limiter.at(at(own)).check_n("key", cost)
                } else {
                    clock.set(at(own));
                    limiter.check_n("key", cost)
                };
                if !decision.is_allowed() {
                    continue;
                }
                admitted.push((now, cost));
                // A bound on one tick, which is a millionth of a burst's time.
                let more_ns = differ * MS + 1 + burst * SEC / rate.per_second / 500_000;
                let most_in = |t| rate.bound(u64::try_from(t).unwrap() + more_ns).into();
                newest_is_within(&admitted, most_in, overflow);
            }
        }
    }

    /// Each wrong time may give a key one more burst while it is the newest time, and one more when it is dropped.
    // G40
    #[test]
    fn absurd_times_admit_bounded_bursts(
        steps in prop::collection::vec((0..40_u64, 0..500_u64), 1..200),
        rate in 1..2_000_u64,
        burst in 1..8_u64,
    ) {
        let rate = Rate { per_second: rate, burst };
        for overflow in POLICIES {
            let limiter = compact(Gcra::new(rate.quota()), &clock(), overflow);
            let (mut now, mut units, mut absurd) = (START, 0, 0);
            for &(which, step_ms) in &steps {
                now += step_ms * MS;
                let wrong = match which {
                    0 => Some(0),
                    1 => Some(u64::MAX),
                    2 => Some(u64::MAX / 2 + now % 1_000),
                    3 => Some(START / 2),
                    _ => None,
                };
                absurd += u64::from(wrong.is_some());
                units += u64::from(limiter.at(at(wrong.unwrap_or(now))).check("key").is_allowed());
            }
            let most = rate.bound(now - START) + 3 * absurd * burst;
            prop_assert!(units <= most, "{overflow:?}: {units} of {most}, {absurd} wrong times");
        }
    }
}

#[test]
fn other_calls_use_times_of_checks() {
    // The clock is an hour ahead of all times that are given.
    let clock = ManualClock::new(at(START + 3_600 * SEC));
    let limiter = compact(Gcra::new(Quota::per_minute(10)), &clock, Overflow::Spill);
    let now = at(START);
    for key in ["a", "b", "c"] {
        assert!(limiter.at(now).check_n(key, 10).is_allowed());
    }
    assert_eq!((limiter.live_slots(), limiter.at(now).live_slots()), (0, 3));
    assert!(limiter.at(now).fill() > 0.0);

    let snapshot = limiter.snapshot();
    let restored = compact(Gcra::new(Quota::per_minute(10)), &clock, Overflow::Spill);
    restored.at(now).restore(&snapshot).expect("a snapshot of a limiter like it");
    assert!(restored.at(now).check("a").is_denied());
    assert_eq!(limiter.at(now).snapshot(), snapshot);

    assert!(limiter.reset("a"));
    assert!(limiter.at(now).check_n("a", 10).is_allowed());
    assert!(limiter.at(now).reset("b"));
    assert!(limiter.at(now).check_n("b", 10).is_allowed());
    assert!(!limiter.at(at(START + 61 * SEC)).reset("c"), "the debt is paid by then");
    assert!(limiter.at(now).check_n("c", 10).is_allowed(), "the reset applies to earlier times too");
}

// G11
#[test]
fn retain_active_uses_given_time() {
    let limiter =
        RateLimiter::builder(Gcra::new(Quota::per_second(10).burst(5))).clock(clock()).keyed::<&str>();
    let lag = 1_200 * MS;
    let units = admitted(1_000, || {
        limiter.at(at(START - lag)).retain_active();
        limiter.at(at(START - lag)).check(&"lags").is_allowed()
    });
    assert_eq!(units, 5);
    limiter.at(at(START - lag)).for_each(|_, decision| assert_eq!(decision.remaining(), 0));
}

// G41
#[test]
fn clocks_of_a_process_agree() {
    use tollgate::{CoarseClock, DefaultClock, StdClock};
    let (first, std) = (DefaultClock::new(), StdClock::new());
    let begun = std.now().as_nanos();
    while std.now().as_nanos() < begun + 20 * MS {}
    let (second, coarse) = (DefaultClock::new(), CoarseClock::new());
    let times =
        [first.now(), second.now(), std.now(), StdClock::new().now(), coarse.now()].map(Timestamp::as_nanos);
    let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(most - least < 10 * MS, "the clocks differ by 10 ms or more: {times:?}");
}

fn of_size<A: CompactAlgorithm>(algorithm: A, bytes: usize, overflow: Overflow) -> Limiter<A> {
    build(algorithm, overflow, Capacity::memory(bytes), clock())
}

/// The debts are paid at the newest time, but not yet at the times of their keys. In the past eviction dropped them.
// G11
#[test]
fn evicted_debts_of_lagging_keys_are_kept() {
    let rate = Rate { per_second: 10, burst: 5 };
    for (ahead_ns, cost) in [(0, 5), (100 * MS, 1), (SEC, 5), (SEC, 1)] {
        let limiter = of_size(Gcra::new(rate.quota()), 272, Overflow::Spill);
        let _ = limiter.at(at(START + ahead_ns)).check(&u32::MAX);
        let mut units = [0; 40];
        for _ in 0..50 {
            for (key, units) in (0_u32..).zip(&mut units) {
                *units += limiter.at(at(START)).check_n(&key, cost).charged();
            }
        }
        let most = units.into_iter().max().unwrap();
        assert!(most <= rate.bound(ahead_ns), "{ahead_ns} ns ahead, cost {cost}: {most}");
    }
    // Two clocks differ by two nanoseconds, around the end of a window.
    let limiter = of_size(FixedWindow::new(Quota::per_minute(10)), 272, Overflow::Spill);
    let turn = START / (60 * SEC) * 60 * SEC + 60 * SEC;
    let _ = limiter.at(at(turn)).check(&u32::MAX);
    let mut units = [0; 40];
    for _ in 0..50 {
        for (key, units) in (0_u32..).zip(&mut units) {
            *units += limiter.at(at(turn - 2)).check_n(&key, 10).charged();
        }
    }
    assert!(units.into_iter().all(|units| units <= 20), "more than two windows: {units:?}");
}

/// A new key with a time ahead takes the slot of an idle key. Keys that come to these buckets later use their own time.
// G40
#[test]
fn time_ahead_locks_out_no_new_key() {
    for overflow in POLICIES {
        let limiter = of_size(Gcra::new(Quota::per_second(10).burst(5)), 1 << 14, overflow);
        for key in 0..20_000_u32 {
            let _ = limiter.at(at(START)).check(&key);
        }
        let mut now = START + 60 * SEC;
        let _ = limiter.at(at(now + 3_600 * SEC)).check(&u32::MAX);
        let mut units = [0; 200];
        for _ in 0..100 {
            now += 100 * MS;
            for (key, units) in (1_000_000_u32..).zip(&mut units) {
                *units += limiter.at(at(now)).check(&key).charged();
            }
        }
        let locked_out = units.into_iter().filter(|units| *units < 50).count();
        assert_eq!(locked_out, 0, "{overflow:?}: of 200 new keys, with less than half of their 100 units");
    }
}

/// Two times lie just about one range apart, so each reads the other's state as slightly ahead.
// G12
#[test]
fn times_one_range_apart_admit_no_more() {
    let rate = Rate { per_second: 1_000_000_000, burst: 30_000_000 };
    let limiter = of_size(Gcra::new(rate.quota()), 1 << 16, Overflow::Forget);
    // A nanosecond is 286 ticks.
    let apart = (1 << 40) / 286 - rate.burst + 1_000;
    let units: u64 = (0..200)
        .map(|_| {
            let newest = limiter.at(at(START)).check_n("a", rate.burst).charged();
            newest + limiter.at(at(START - apart)).check_n("a", rate.burst - 2_000).charged()
        })
        .sum();
    assert!(units <= rate.bound(apart), "{units}");
}

// G11
#[test]
fn peeks_do_not_move_the_newest_time() {
    let rate = Rate { per_second: 1_000_000_000, burst: 30_000_000 };
    let limiter = of_size(Gcra::new(rate.quota()), 1 << 16, Overflow::Forget);
    let quarter = (1 << 38) / 286;
    let mut units = 0;
    for _ in 0..100 {
        units += limiter.at(at(START)).check_n("a", rate.burst).charged();
        let _ = limiter.at(at(START - quarter - 1_200 * MS)).peek("b");
        let _ = limiter.at(at(START - quarter - 100 * MS)).peek("b");
        units += limiter.at(at(START - 500 * MS)).check_n("a", rate.burst).charged();
    }
    assert!(units <= rate.bound(500 * MS), "{units}");
}

/// A quota change cut the debts of a caller ahead of the change's time to one burst at that time.
// G11
#[test]
fn quota_changes_keep_debts_of_callers_ahead() {
    for ahead_ns in [0, 30 * SEC, 61 * SEC] {
        let limiter = compact(Gcra::new(Quota::per_minute(10)), &clock(), Overflow::Spill).adjustable();
        let mut units = 0;
        for round in 0..20 {
            units += admitted(20, || limiter.at(at(START + ahead_ns)).check("a").is_allowed());
            let quota = Quota::per_minute(10 + round % 2);
            limiter.at(at(START)).set_quota(&quota, tollgate::Carry::AsIs).expect("an ordinary quota");
        }
        // Each time the burst grows, it adds one unit.
        assert!(units <= 11 + ahead_ns / (6 * SEC) + 10, "{ahead_ns} ns ahead: {units}");
    }
}

#[test]
fn snapshots_keep_debts_of_callers_ahead() {
    for (per_second, burst) in [(10, 5), (100_000_000, 3_000_000), (1_000_000_000, 30_000_000)] {
        let rate = Rate { per_second, burst };
        let full_ns = burst * SEC / per_second;
        for back_ns in [0, full_ns / 2, full_ns * 3] {
            let limiter = compact(Gcra::new(rate.quota()), &clock(), Overflow::Spill);
            assert!(limiter.at(at(START)).check_n("a", burst).is_allowed());
            let snapshot = limiter.at(at(START - back_ns)).snapshot();
            let restored = compact(Gcra::new(rate.quota()), &clock(), Overflow::Spill);
            restored.at(at(START - back_ns)).restore(&snapshot).expect("a snapshot of a limiter like it");
            assert!(
                restored.at(at(START - back_ns)).check("a").is_denied(),
                "{per_second}: {back_ns} ns back"
            );
            assert!(restored.at(at(START)).check("a").is_denied(), "{per_second}: {back_ns} ns back");
        }
    }
}

#[test]
fn reset_frees_a_key_whose_times_lag() {
    for later_ns in [55 * SEC, 61 * SEC, 3_600 * SEC] {
        for overflow in POLICIES {
            let limiter = compact(Gcra::new(Quota::per_minute(10)), &clock(), overflow);
            assert!(limiter.at(at(START)).check_n("b", 10).is_allowed());
            let _ = limiter.at(at(START + later_ns)).check("a");
            let _ = limiter.reset("b");
            assert!(limiter.at(at(START)).check_n("b", 10).is_allowed(), "{overflow:?}, {later_ns} ns later");
        }
    }
}
