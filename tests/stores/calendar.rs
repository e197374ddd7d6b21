//! Decisions do not depend on the date. The tests build limiters in every phase of each counter that wraps.
//!
//! These counters wrap: the cells of a sketch (16 bits), a compact state (40 bits), and the tags of windows (16 bits or
//! more).
//! Start times are spread over the whole cycle of each counter. Seeds are fixed.

use tollgate::sketch::{Rate, TatSketch};
use tollgate::{
    Capacity, Compact, FixedWindow, Gcra, ManualClock, Overflow, Quota, RateLimiter, SlidingWindow,
};
use tollgate_testing::compact::{self, Layout, POLICIES, Random, Seeded};
use tollgate_testing::sketch::{build, round};
use tollgate_testing::{HOUR, MINUTE, SEC, START, at};

const PHASES: u64 = if cfg!(miri) { 2 } else { 16 };

type Spilling = RateLimiter<Compact<Gcra, Seeded>, ManualClock>;

/// A limiter of ten a minute.
fn compact(overflow: Overflow, bytes: usize, start: u64) -> Spilling {
    let gcra = Gcra::new(Quota::per_minute(10));
    compact::build(gcra, overflow, Capacity::memory(bytes), ManualClock::new(at(start)))
}

/// A limiter in 64 KiB. A flood has written all cells of its sketch within one second.
fn flooded(start: u64) -> Spilling {
    let limiter = compact(Overflow::Spill, 64 << 10, start);
    let mut random = Random(start);
    for number in 0..20_000 {
        let _ = limiter.at(at(start + number * 50_000)).check_hash(random.next(), 10);
    }
    limiter
}

/// Makes `bucket` evict a key that owes one unit, and returns the hash of that key.
///
/// Sixteen keys that owe one minute each take all slots of the bucket.
fn evict(limiter: &Spilling, bucket: u64, now: u64) -> u64 {
    let hash = |key: u64| (bucket << 48) | ((key + 1) << 30) | ((now / SEC + key) % (1 << 24));
    assert!(limiter.at(at(now)).check_hash(hash(0), 1).is_allowed(), "a new key is admitted");
    let before = limiter.gauges().evicted;
    for key in 1..=16 {
        assert!(limiter.at(at(now)).check_hash(hash(key), 10).is_allowed(), "new key {key} is admitted");
    }
    assert_eq!(limiter.gauges().evicted, before + 1);
    hash(0)
}

/// The phases are spread over half a day. Each covers five rounds of the cells, with one eviction every 200 s.
// G19
#[test]
fn spill_admits_new_keys_in_every_phase() {
    let mut denied = 0;
    for phase in 0..PHASES {
        let start = START + phase * 3_371 * SEC;
        let limiter = flooded(start);
        let mut random = Random(phase);
        for step in 1..=22 {
            let now = start + step * 200 * SEC;
            evict(&limiter, random.next() >> 48, now);
            for _ in 0..100 {
                denied += u64::from(limiter.at(at(now)).check_hash(random.next(), 1).is_denied());
            }
        }
    }
    // One group of cells in 128 holds a debt. A new key may seem to owe that debt while the cells read as ahead of now.
    assert!(denied * 500 <= PHASES * 22 * 100, "{denied} denied");
}

/// The wrapped cells of the flood add nothing to the debt of the evicted key.
// G19
#[test]
fn evicted_debt_is_kept_in_every_phase() {
    for phase in 0..PHASES {
        let start = START + phase * 53 * SEC;
        let limiter = flooded(start);
        for step in 1..=10 {
            let now = start + step * 97 * SEC;
            let evicted = evict(&limiter, step * 4_001, now);
            let owed = limiter.at(at(now + 1)).check_hash(evicted, 10);
            assert!(owed.is_denied(), "phase {phase}, step {step}: the debt is lost");
            let left = owed.retry_after().expect("a wait").as_secs_f64();
            assert!((5.9..6.1).contains(&left), "phase {phase}, step {step}: {left} s instead of 6");
        }
    }
}

/// A snapshot contains the times at which debts end.
// G19
#[test]
fn snapshot_restores_no_paid_debt() {
    let limiter = flooded(START);
    for step in 1..=20 {
        let now = START + step * 97 * SEC;
        let evicted = evict(&limiter, step * 1_003, now);
        let restored = compact(Overflow::Spill, 64 << 10, now + 1);
        limiter.clock().set(at(now + 1));
        restored.restore(&limiter.snapshot()).expect("a limiter like it");
        assert!(
            restored.at(at(now + 1)).check_hash(evicted, 10).is_denied(),
            "step {step}: the debt is lost"
        );
        let mut random = Random(step);
        let denied = (0..100).filter(|_| restored.at(at(now + 1)).check_hash(random.next(), 1).is_denied());
        assert!(denied.count() <= 3, "step {step}: too many new keys are denied");
    }
}

/// Evicted debts are kept although a clock was far ahead earlier.
#[test]
fn spill_keeps_debts_after_a_wrong_time() {
    for ahead in [HOUR, 24 * HOUR, 1_000 * 24 * HOUR] {
        let limiter = flooded(START + ahead);
        for step in 0..20 {
            limiter.clock().set(at(START + step * 97 * SEC));
            let now = START + step * 97 * SEC;
            let hash = |key: u64| ((step * 3_001) << 48) | ((key + 1) << 30) | (key + 1);
            for key in 0..=16 {
                let _ = limiter.check_hash(hash(key), 10);
            }
            let again = (0..=16).filter(|&key| limiter.check_hash(hash(key), 10).is_allowed()).count();
            assert_eq!(again, 0, "{ahead} ns ahead, {now}: a key is admitted twice");
        }
    }
}

/// Checks a key that spends its burst and a key that comes once each interval, near sixteen points of the state's range.
/// At one of these points the state wraps.
// G42
#[test]
fn wrapped_compact_state_decides_correctly() {
    let layout = Layout::read(&compact(Overflow::Spill, 1 << 10, START).snapshot());
    let ticks = layout.ticks().expect("GCRA counts ticks");
    let round = u64::try_from(ticks.nanos(1 << 40)).expect("a few years");
    for phase in 0..PHASES {
        // Around each multiple of a sixteenth of the range, among them zero and a half.
        let start = START / round * round + round + phase * (round / 16) - 90 * SEC;
        for overflow in POLICIES {
            let limiter = compact(overflow, 1 << 10, start);
            for second in 0..180 {
                let now = at(start + second * SEC);
                if second % 6 == 0 {
                    assert!(limiter.at(now).check("steady").is_allowed(), "{phase} {second} {overflow:?}");
                }
                if second == 0 || second == 120 {
                    assert!(
                        limiter.at(now).check_n("burst", 10).is_allowed(),
                        "{phase} {second} {overflow:?}"
                    );
                }
                let more = limiter.at(now).check_n("burst", 10);
                assert!(more.is_denied() || second == 60, "{phase} {second} {overflow:?}");
            }
        }
    }
}

/// A cell wraps after the time that 64 bursts take. The pauses last from one to 267 bursts.
// G42
#[test]
fn tat_sketch_admits_lone_key_after_wrap() {
    for burst in [1, 10, 768, 1_024] {
        for phase in 0..PHASES {
            let sketch = TatSketch::try_new(Quota::per_minute(burst), 1 << 10).expect("an ordinary quota");
            let mut now = START + phase * 4 * MINUTE + 1;
            for third in (0..220).chain(560..600).chain(750..800) {
                assert!(sketch.check_at(1, burst, at(now)).is_allowed(), "{burst} {phase} after {third} / 3");
                assert!(sketch.check_at(1, 1, at(now)).is_denied(), "{burst} {phase}: the quota is spent");
                now += MINUTE + SEC + third * MINUTE / 3;
            }
        }
    }
}

// G42
#[test]
fn tat_sketch_admits_new_keys_after_a_flood() {
    for phase in 0..PHASES {
        let sketch = TatSketch::try_new(Quota::per_minute(10), 16 << 10).expect("an ordinary quota");
        let mut random = Random(phase);
        let start = START + phase * 4 * MINUTE;
        for _ in 0..8_000 {
            let _ = sketch.check_at(random.next(), 10, at(start));
        }
        let (mut denied, mut all) = (0, 0);
        for step in 11..=400 {
            let now = at(start + step * MINUTE / 5);
            // One key always owes, so the sketch is never idle.
            let _ = sketch.check_at(5, 1, now);
            denied += u32::from(sketch.check_at(random.next(), 1, now).is_denied());
            all += 1;
        }
        assert!(denied * 100 <= all, "phase {phase}: {denied} of {all}");
    }
}

/// Runs many keys in little memory over three windows, in each phase of the tags. One phase begins at tag zero.
// G42
#[test]
fn crowd_decisions_equal_in_every_tag_phase() {
    const LIMIT: u64 = 10;
    let tags = round(HOUR);
    let mut shares = Vec::new();
    for phase in 0..PHASES {
        let window = 6 * tags + phase * (tags / PHASES);
        let clock = ManualClock::new(at(window * HOUR));
        let limiter = build(FixedWindow::new(Quota::per_hour(LIMIT)), 4 << 10, clock.clone());
        let limiter = limiter.expect("an ordinary quota");
        let (mut random, mut denied, mut deserving) = (Random(1), 0, 0_u32);
        for turn in 0..3 {
            clock.set(at((window + turn) * HOUR));
            let mut used = [0; 1_000];
            for _ in 0..5_000 {
                let key = random.skewed(1_000);
                let used = &mut used[usize::try_from(key).expect("few keys")];
                let allowed = limiter.check(&key).is_allowed();
                assert!(*used < LIMIT || !allowed, "phase {phase}: a window admits more than its limit");
                deserving += u32::from(*used < LIMIT);
                denied += u32::from(*used < LIMIT && !allowed);
                *used += u64::from(allowed);
            }
        }
        shares.push(f64::from(denied) / f64::from(deserving));
    }
    // Requests and hashes are the same in all phases. Only the tags differ.
    assert!(shares.iter().all(|share| (share - shares[0]).abs() < 0.001), "{shares:?}");
    assert!(shares[0] < 0.05, "{shares:?}");
}

/// A thread whose clock is slightly behind counts in the window that another thread has begun.
/// This holds even if that window has tag zero and its words were never written.
// G12
#[test]
fn lagging_clock_counts_in_the_newest_window() {
    let tags = round(HOUR);
    for phase in 0..PHASES {
        let window = 6 * tags + phase * (tags / PHASES);
        for cost in [1, 4] {
            let clock = ManualClock::new(at(window * HOUR));
            let fixed = build(FixedWindow::new(Quota::per_hour(4)), 64 << 10, clock.clone()).unwrap();
            let sliding = build(SlidingWindow::new(Quota::per_hour(4)), 64 << 10, clock.clone()).unwrap();
            for _ in 0..4 / cost {
                assert!(fixed.check_n("key", cost).is_allowed());
                assert!(sliding.check_n("key", cost).is_allowed());
            }
            clock.set(at(window * HOUR - 1));
            assert!(fixed.check("key").is_denied(), "phase {phase}: window {window} is full");
            assert!(sliding.check("key").is_denied(), "phase {phase}: window {window} is full");
        }
    }
}

// G42
#[test]
fn rate_counts_equal_in_every_tag_phase() {
    let tags = round(SEC);
    let mut all = Vec::new();
    for phase in 0..PHASES {
        let window = 64 * tags + phase * (tags / PHASES);
        let clock = ManualClock::new(at(window * SEC));
        let rate = Rate::builder(std::time::Duration::from_secs(1)).memory(16 << 10).largest((1 << 12) - 1);
        let rate = rate.clock(clock.clone()).hasher(Seeded(7)).build().expect("an ordinary size");
        for key in 0..2_000_u64 {
            rate.observe(&key, 1);
        }
        let unseen: u64 = (2_000..3_000_u64).map(|key| rate.current(&key)).sum();
        // This clock reading is slightly behind.
        clock.set(at(window * SEC - 1));
        rate.observe(&1_u64, 1);
        clock.set(at(window * SEC));
        assert!(rate.current(&1_u64) >= 1, "phase {phase}");
        clock.set(at((window + 1) * SEC));
        assert!((0..2_000_u64).all(|key| rate.previous(&key) >= 1), "phase {phase}");
        clock.set(at((window + 2) * SEC));
        assert!((0..3_000_u64).all(|key| rate.current(&key) + rate.previous(&key) == 0), "phase {phase}");
        all.push(unseen);
    }
    assert!(all.iter().all(|unseen| *unseen == all[0]), "{all:?}");
}
