//! Keyed stores with a maximum number of keys, and quotas that a call chooses.

use std::time::Duration;

use tollgate::{
    Algorithm, FixedWindow, Gcra, ManualClock, MinimumSpacing, Quota, RateLimiter, SlidingLog, SubWindow,
    Timestamp, TokenBucket, WhenFull,
};
use tollgate_testing::build;

const START: Timestamp = Timestamp::from_secs(1_000_000);

fn capped(
    max: usize,
    capacity: usize,
    overflow: WhenFull,
    clock: &ManualClock,
) -> impl Fn(u64) -> bool + use<> {
    let limiter = build(Gcra::new(Quota::per_minute(1)), clock)
        .capacity(capacity)
        .max_keys(max, overflow)
        .keyed::<u64>();
    move |key| {
        let allowed = limiter.check(&key).is_allowed();
        assert!(limiter.len() <= max, "{} keys under a cap of {max}", limiter.len());
        allowed
    }
}

// G35
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn full_store_forgets_one_key_per_new_key() {
    for capacity in [0, 100, 1_000_000] {
        let check = capped(100, capacity, WhenFull::Forget, &ManualClock::new(START));
        for key in 0..10_000 {
            assert!(check(key), "new key {key} with capacity {capacity}");
        }
    }
}

// G35
#[test]
fn full_store_denies_new_keys_until_idle() {
    let clock = ManualClock::new(START);
    let check = capped(100, 0, WhenFull::Deny, &clock);
    for key in 0..1_000 {
        assert_eq!(check(key), key < 100, "new key {key}");
    }
    // The keys in the store stay limited.
    assert!(!check(7));
    clock.advance(Duration::from_secs(60));
    for key in 1_000..1_100 {
        assert!(check(key), "every stored key is idle, so new key {key} has room");
    }
    assert!(!check(2_000));
}

// G35
#[test]
fn full_store_admits_new_keys_uncounted() {
    let check = capped(100, 0, WhenFull::Admit, &ManualClock::new(START));
    for key in 0..1_000 {
        assert!(check(key) && check(key) == (key >= 100), "new key {key}");
    }
}

// G35
#[test]
#[should_panic(expected = "max_keys is 0")]
fn max_keys_refuses_zero() {
    let _ = capped(0, 0, WhenFull::Admit, &ManualClock::new(START));
}

#[test]
fn key_denied_for_room_learns_expiry() {
    let clock = ManualClock::new(START);
    let limiter = build(Gcra::new(Quota::per_minute(1)), &clock).max_keys(1, WhenFull::Deny).keyed::<u64>();
    assert!(limiter.check(&1).is_allowed());
    clock.advance(Duration::from_secs(20));
    let decision = limiter.check(&2);
    assert!(decision.is_denied() && !decision.is_never());
    assert_eq!(decision.retry_after(), Some(Duration::from_secs(40)));
    clock.advance(Duration::from_secs(40));
    assert!(limiter.check(&2).is_allowed());
}

// G35
#[test]
fn panicking_key_releases_its_room() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key(u64);
    #[derive(PartialEq, Eq, Hash)]
    struct Bomb(u64);
    impl tollgate::stores::Lookup<Key> for Bomb {
        fn is(&self, held: &Key) -> bool {
            held.0 == self.0
        }
        fn to_key(&self) -> Key {
            panic!("`to_key` panics")
        }
    }
    let limiter =
        RateLimiter::builder(Gcra::new(Quota::per_minute(1))).max_keys(2, WhenFull::Deny).keyed::<Key>();
    for key in 0..10 {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| limiter.check(&Bomb(key))));
        assert!(caught.is_err());
    }
    assert!(limiter.check(&Key(1)).is_allowed());
    assert!(limiter.check(&Key(2)).is_allowed());
    assert!(limiter.check(&Key(3)).is_denied());
}

#[test]
fn window_end_clears_usage_of_every_quota() {
    for window in
        [FixedWindow::new(Quota::per_minute(10)), FixedWindow::from_first_use(Quota::per_minute(10))]
    {
        let limiter = build(window, &ManualClock::new(START)).keyed::<u64>();
        // START is 40 s into a minute.
        let premium = window.requota(&Quota::per_minute(9)).unwrap();
        let end = START + Duration::from_secs(60);
        assert!(limiter.at(START).check_n(&1, 10).is_allowed());
        assert!(limiter.at(START).check_with(&1, 1, &premium).is_denied());
        assert!(limiter.at(end).check_with(&1, 9, &premium).is_allowed());
        assert!(limiter.at(end).check(&1).is_allowed());
        assert!(limiter.at(end).check(&1).is_denied());
    }
    let window = FixedWindow::new(Quota::per_minute(10));
    let limiter = build(window, &ManualClock::new(START)).keyed::<u64>();
    let premium = window.requota(&Quota::per_minute(100)).unwrap();
    assert!(limiter.at(START).check_with(&1, 100, &premium).is_allowed());
    assert!(limiter.at(START + Duration::from_secs(19)).check(&1).is_denied());
    assert!(limiter.at(START + Duration::from_secs(20)).check_n(&1, 10).is_allowed());
}

// G48
#[test]
fn requota_refuses_incompatible_quotas() {
    let minute = Quota::per_minute(10);
    let hour = Quota::per_hour(10);
    assert!(FixedWindow::new(minute).requota(&hour).is_err());
    assert!(SlidingLog::new(minute).requota(&hour).is_err());
    assert!(SlidingLog::new(minute).requota(&Quota::per_minute(11)).is_err());
    assert!(SubWindow::new(minute, 6).requota(&hour).is_err());
    assert!(TokenBucket::interval(minute).requota(&Quota::per_minute(9)).is_err());
    assert!(TokenBucket::interval(minute).requota(&minute.burst(5)).is_ok());
    assert!(Gcra::new(minute).requota(&hour).is_ok());
    assert!(MinimumSpacing::new(Duration::from_secs(1)).requota(&hour).is_ok());
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "requota"))]
fn incompatible_algorithm_never_admits() {
    let limiter = build(SlidingLog::new(Quota::per_minute(2)), &ManualClock::new(START)).keyed::<u64>();
    let foreign = SlidingLog::new(Quota::per_minute(100));
    assert!(limiter.at(START).check_with(&1, 100, &foreign).is_never());
}

#[test]
fn zero_spacing_limits_nothing() {
    let limiter = build(MinimumSpacing::new(Duration::ZERO), &ManualClock::default()).direct();
    for _ in 0..3 {
        assert!(limiter.check().is_allowed());
    }
}

#[test]
fn keys_can_be_removed_while_visiting() {
    let limiter = build(Gcra::new(Quota::per_hour(1)), &ManualClock::new(START)).keyed::<u64>();
    for key in 0..20_000 {
        assert!(limiter.check(&key).is_allowed());
    }
    let mut seen = 0;
    limiter.for_each(|key, _| {
        seen += 1;
        assert!(limiter.reset(key));
    });
    assert_eq!(seen, 20_000);
    assert!(limiter.is_empty());
}
