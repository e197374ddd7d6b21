//! Limits on the number of different values of a key, against sets of values.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Capacity, Distinct, FixedWindow, ManualClock, Overflow, Quota, RateLimiter, Timestamp};

const WINDOW_S: u64 = 3_600;

fn values(limit: u64, values: usize) -> Distinct<ManualClock> {
    let window = FixedWindow::new(Quota::per_hour(limit));
    let build = RateLimiter::builder(window).clock(ManualClock::default());
    // So many slots that no bucket is full: a key that takes the slot of another one is decided as of a later time.
    Distinct::new(build.capacity(Capacity::slots(1 << 18)).compact().unwrap(), values).unwrap()
}

proptest! {
    /// With so few values, the filter makes no mistakes.
    // G119
    #[test]
    fn values_are_counted_as_in_a_set(
        limit in 1..6_u64,
        checks in prop::collection::vec((0..3_u8, 0..10_u8, 0..1_500_u64, any::<bool>()), 1..200),
    ) {
        let limited = values(limit, 1_000_000);
        let (mut now, mut window) = (1_800_000_000, 0);
        let mut known = HashMap::<u8, HashSet<u8>>::new();
        for (key, value, seconds, only_peeks) in checks {
            now += if seconds % 7 == 0 { seconds } else { 0 };
            if now / WINDOW_S != window {
                (window, known) = (now / WINDOW_S, HashMap::new());
            }
            let of_key = known.entry(key).or_default();
            let admitted = of_key.contains(&value) || (of_key.len() as u64) < limit;
            let at = limited.at(Timestamp::from_secs(now));
            let peeked = at.peek(&key, &value);
            prop_assert_eq!(peeked.is_allowed(), admitted);
            if only_peeks {
                continue;
            }
            let decision = at.check(&key, &value);
            prop_assert_eq!(decision.is_allowed(), admitted);
            if admitted {
                of_key.insert(value);
            } else {
                prop_assert_eq!(decision.retry_after(), Some(Duration::from_secs(WINDOW_S - now % WINDOW_S)));
            }
            prop_assert_eq!(decision.remaining(), limit - of_key.len() as u64);
        }
    }
}

/// Admits `LIMIT` values of each key and tries as many more. Returns the share of them that was admitted.
fn share_of_mistakes(made_for: usize, keys: u64) -> f64 {
    const LIMIT: u64 = 4;
    let limited = values(LIMIT, made_for);
    let at = limited.at(Timestamp::from_secs(1_800_000_000));
    let mut mistakes = 0_u32;
    for key in 0..keys {
        for value in 0..LIMIT {
            // A mistake here leaves a unit for one of the values below.
            mistakes += u32::from(at.check(&key, &value).cost() == 0);
        }
    }
    let free: u64 = (0..keys)
        .map(|key| limited.limiter().at(Timestamp::from_secs(1_800_000_000)).peek(&key).remaining())
        .sum();
    assert!(free <= u64::from(mistakes), "each denied or uncounted value was a mistake");
    f64::from(mistakes) / (keys * LIMIT) as f64
}

// G119
#[test]
fn mistakes_are_as_rare_as_promised() {
    let as_made = share_of_mistakes(40_000, 10_000);
    assert!(as_made < 1.0 / 2_000.0, "{as_made}");
    for made_for in [10_000, 1_000, 10] {
        let share = share_of_mistakes(made_for, 10_000);
        assert!(share < 1.0 / 27.0, "{share} with a filter for {made_for}");
    }
}

// G119
#[test]
fn full_filter_denies_more_instead_of_less() {
    let limited = values(3, 10);
    let at = limited.at(Timestamp::from_secs(1_800_000_000));
    for key in 0..1_000 {
        let _ = at.check(&key, &0);
    }
    // The filter is full, so a known value is counted again.
    let admitted = (0..10).filter(|_| at.check("alice", "phone").is_allowed()).count();
    assert_eq!(admitted, 3);
    // A new window is empty.
    let next = limited.at(Timestamp::from_secs(1_800_003_600));
    assert!((0..10).all(|_| next.check("alice", "phone").is_allowed()));
}

// G119
#[test]
fn racing_value_is_counted_once() {
    for round in 0..200 {
        let limited = values(8, 100_000);
        let at = limited.at(Timestamp::from_secs(1_800_000_000));
        let admitted = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| at.check("alice", &round).is_allowed())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|&admitted| admitted).count()
        });
        assert_eq!(admitted, 4);
        assert_eq!(limited.limiter().at(Timestamp::from_secs(1_800_000_000)).peek("alice").remaining(), 7);
    }
}

/// Regression test. Other clients had begun a window in the filter, and late callers charged their values in the window
/// before, but inserted them into the new one. So those values were known there, and were never counted there.
// G119
#[test]
fn late_values_are_counted_where_they_are_known() {
    const NEXT_NS: u64 = 1_800_003_600_000_000_000;
    let limited = values(2, 20_000);
    let [late, next] = [NEXT_NS - 1, NEXT_NS].map(|ns| limited.at(Timestamp::from_nanos(ns)));
    for other in 1_000..21_000 {
        assert!(next.check(&other, &0).is_allowed());
    }
    let mut too_many = 0_i64;
    for key in 0..200 {
        for value in 0..2 {
            let peeked = late.peek(&key, &value);
            let decision = late.check(&key, &value);
            assert!(decision.is_allowed() && peeked.is_allowed());
            assert_eq!(decision.at().as_nanos(), NEXT_NS - 1, "the caller's time stays");
            let to_end = decision.reset_after().as_nanos();
            let is_end = decision.cost() == 0 || to_end == 1 || to_end == 3_600_000_000_001;
            assert!(is_end, "the window that counts ends in {to_end} ns");
        }
        too_many += (0..4).map(|value| i64::from(next.check(&key, &value).is_allowed())).sum::<i64>() - 2;
    }
    assert!(too_many.abs() < 10, "{too_many} values more, and the filter explains one of them");
}

/// Other values of a key have begun a window for the key, and the filter has seen nothing of it yet.
// G119
#[test]
fn late_value_is_known_in_the_window_that_counts_it() {
    let limited = values(3, 1_000_000);
    let [late, next] = [1_800_003_599, 1_800_003_600].map(|s| limited.at(Timestamp::from_secs(s)));
    assert!(next.check("alice", "laptop").is_allowed());
    assert_eq!(late.check("alice", "phone").remaining(), 1);
    for at in [next, late, next] {
        assert_eq!((at.peek("alice", "phone").cost(), at.check("alice", "phone").cost()), (0, 0));
        assert_eq!(at.check("alice", "phone").remaining(), 1, "the value is counted once");
    }
}

/// Regression test. A pair that was inserted at a wrong time stayed in its word of the filter. Other keys with pairs in the
/// same word were taken for late ones: their values were counted in the window of the wrong time, and so was every later
/// value of these keys, until that time had come.
// G40
#[test]
fn wrong_time_of_one_key_harms_no_other() {
    for ahead_s in [4 * WINDOW_S, 24 * WINDOW_S, 20_000 * WINDOW_S, 16_600_000_000] {
        let limited = values(3, 20);
        let at = |s: u64| limited.at(Timestamp::from_secs(1_800_000_000 + s));
        // The filter has 40 words, and the wrong time is in nearly all of them.
        for value in 0..200 {
            let _ = at(ahead_s).check(&format!("wrong {}", value / 3), &value);
        }
        for hour in 0..3 {
            let now = at(hour * WINDOW_S + 1_800);
            for value in 0..3 {
                assert!(now.peek("alice", &value).is_allowed());
                let decision = now.check("alice", &value);
                assert!(decision.is_allowed() && decision.reset_after() <= Duration::from_secs(WINDOW_S));
                assert_eq!(now.check("alice", &value).cost(), 0, "an admitted value is known");
                assert_eq!(now.check("alice", &value).remaining(), 2 - value);
            }
            assert!(now.check("alice", &3).is_denied());
        }
    }
}

/// Regression test. A store that cannot refund kept a unit for each thread that checked a new value.
// G119
#[test]
fn limiter_that_cannot_refund_is_refused() {
    let limiter = |overflow| {
        let build = RateLimiter::builder(FixedWindow::new(Quota::per_hour(3))).overflow(overflow);
        Distinct::new(build.compact().unwrap(), 100).map(|_| ()).map_err(|error| error.to_string())
    };
    assert!(limiter(Overflow::Spill).is_ok() && limiter(Overflow::Forget).is_ok());
    let refused = limiter(Overflow::Inherit).unwrap_err();
    assert!(refused.contains("cannot refund") && refused.contains("without Overflow::Inherit"), "{refused}");
}

#[test]
fn windows_that_the_filter_would_mix_up_are_refused() {
    let short = |ns| {
        let quota = Quota::try_new(10, Duration::from_nanos(ns)).unwrap();
        let limiter = RateLimiter::builder(FixedWindow::new(quota)).compact();
        limiter.and_then(|limiter| Distinct::new(limiter, 100)).map(|_| ()).map_err(|error| error.to_string())
    };
    assert!(short(1_000_000).is_ok());
    assert!(short(50).is_err());
    let error = Distinct::new(
        RateLimiter::builder(FixedWindow::new(Quota::per_hour(3))).compact().unwrap(),
        usize::MAX,
    );
    assert!(error.unwrap_err().is_out_of_memory());
}
