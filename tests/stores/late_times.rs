//! Calls with a time behind the newest time that the compact store and its sketch have seen. A late time may only
//! cause more denials.
//!
//! A state far ahead of a late time has either wrapped or was written in the meantime. The newest known time tells
//! these two cases apart. Each test here is a case in which the newest time was wrong once, so that a key was admitted
//! again.

use std::time::Duration;
use tollgate::sketch::TatSketch;
use tollgate::{Capacity, Compact, Gcra, ManualClock, Overflow, Quota, RateLimiter, Timestamp};
use tollgate_testing::compact::{POLICIES, Seeded, build};
use tollgate_testing::{SEC, START, at};

const QUARTER: usize = 250_000_000;
const HALF: usize = 500_000_000;

type Limiter = RateLimiter<Compact<Gcra, Seeded>, ManualClock>;

/// One unit a second with a burst of four, in a table of one bucket. A burst takes four seconds to refill.
fn of_one_bucket(overflow: Overflow) -> (Limiter, ManualClock) {
    let clock = ManualClock::new(at(START));
    let quota = Quota::per_second(1).burst(4);
    (build(Gcra::new(quota), overflow, Capacity::memory(1), clock.clone()), clock)
}

/// The sketch stores the newest time only now and then. Here the newest time is close to the stored one.
// G12
#[test]
fn tat_sketch_denies_late_times() {
    for first in [0, SEC / 2, SEC, 2 * SEC] {
        for back in (0..=16 * SEC).step_by(100_000_000) {
            let sketch = TatSketch::try_new(Quota::per_second(1).burst(4), 64 << 10).unwrap();
            assert!(sketch.check_at(1 << 40, 1, at(START)).is_allowed());
            assert!(sketch.check_at(2 << 40, 4, at(START + first)).is_allowed());
            let late = sketch.check_at(2 << 40, 1, at(START + first - back));
            assert!(late.is_denied(), "{first} ns after the first, {back} ns back");
        }
    }
}

/// The key is charged by the clock, then checked with a given time that lags it, then by the clock again.
// G12
#[test]
fn given_times_and_clock_share_usage() {
    for overflow in POLICIES {
        for back in (0..=20 * SEC).step_by(QUARTER) {
            let (limiter, clock) = of_one_bucket(overflow);
            assert!(limiter.check_n("key", 4).is_allowed());
            let late = limiter.at(at(START - back)).check("key");
            assert!(late.is_denied(), "{overflow:?}, {back} ns back");
            assert!(limiter.check("key").is_denied());
            clock.advance(Duration::from_secs(4));
            assert!(limiter.check("key").is_allowed());
        }
    }
}

/// One call with an absurd time must not set the newest time.
// G40
#[test]
fn absurd_time_does_not_become_newest() {
    for overflow in POLICIES {
        for back in (0..=20 * SEC).step_by(QUARTER) {
            let (limiter, _clock) = of_one_bucket(overflow);
            let _ = limiter.at(Timestamp::MAX).check("mad");
            assert!(limiter.at(at(START)).check_n("key", 4).is_allowed());
            let late = limiter.at(at(START - back)).check("key");
            assert!(late.is_denied(), "{overflow:?}, {back} ns back");
        }
    }
}

/// A new key with a lagging time evicts a debtor. Callers with the right time still find the debt.
#[test]
fn late_new_key_hides_no_debt() {
    let (mut pushed_out, step) = (0, 50_000_000);
    for back in (0..=16 * SEC).step_by(step) {
        let (limiter, _clock) = of_one_bucket(Overflow::Spill);
        let keys: Vec<usize> = (0..limiter.gauges().slots).collect();
        for key in &keys {
            assert!(limiter.at(at(START)).check_n(key, 4).is_allowed());
        }
        for newcomer in 1_000..1_004 {
            let _ = limiter.at(at(START - back)).check(&newcomer);
        }
        pushed_out += limiter.gauges().evicted;
        for key in &keys {
            let again = limiter.at(at(START + SEC / 2)).check(key);
            assert!(again.is_denied(), "new keys {back} ns back, key {key}");
        }
    }
    assert!(pushed_out > 100, "{pushed_out} were evicted");
}

/// Keys are evicted at the newest time and then checked at times far behind it.
// G12
#[test]
fn spilled_keys_are_denied_at_late_times() {
    for back in (0..=60 * SEC).step_by(HALF) {
        let (limiter, _clock) = of_one_bucket(Overflow::Spill);
        // In so small a sketch, some of the last keys share all their cells with debtors.
        let spent = |key: &usize| limiter.at(at(START)).check_n(key, 4).is_allowed();
        let keys: Vec<usize> = (0..3 * limiter.gauges().slots).filter(spent).collect();
        assert!(keys.len() > 2 * limiter.gauges().slots && limiter.gauges().evicted > 0);
        for key in &keys {
            assert!(limiter.at(at(START - back)).check(key).is_denied(), "{back} ns back, key {key}");
        }
    }
}
