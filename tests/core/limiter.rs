//! The public API of a limiter, tested with a manual clock.

use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tollgate::{
    Algorithm, Builder, Clock, CoarseClock, DefaultClock, Direct, FixedWindow, Gcra, Keyed, Limit,
    ManualClock, Outcome, Overflow, Quota, RateLimiter, SlidingLog, StdClock, StoreKind, SubWindow,
    Timestamp, TokenBucket, WhenFull,
};
use tollgate_testing::SEC;

fn noon() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(43_200))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn default_limiter_uses_string_keys() {
    struct Server {
        limiter: RateLimiter,
    }
    let server = Server { limiter: RateLimiter::new(Quota::per_day(2)) };
    assert!(server.limiter.check("203.0.113.7").is_allowed());
    assert!(server.limiter.check("203.0.113.7").is_allowed());
    assert!(server.limiter.check("203.0.113.7").is_denied());
    assert!(server.limiter.check(&String::from("203.0.113.8")).is_allowed());
}

#[test]
fn direct_limiter_follows_clock() {
    let clock = noon();
    let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(2))).clock(clock.clone()).direct();
    assert!(limiter.check().is_allowed());
    assert!(limiter.check().is_allowed());
    let refused = limiter.check();
    assert_eq!(refused.outcome(), Outcome::Denied);
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(500)));
    assert_eq!(refused.reset_after(), secs(1));
    clock.advance(Duration::from_millis(499));
    assert!(limiter.check().is_denied());
    clock.advance(Duration::from_millis(1));
    assert!(limiter.check().is_allowed());
    clock.set(Timestamp::from_secs(50_000));
    assert!(limiter.check_n(2).is_allowed());
    assert_eq!(limiter.clock().now(), Timestamp::from_secs(50_000));
    assert_eq!(limiter.algorithm().clone().requota(&Quota::per_second(3)).map(|_| ()), Ok(()));
}

#[test]
fn decision_reports_cost_limit_and_remaining() {
    let limiter = RateLimiter::builder(Gcra::new(Quota::per_minute(60).burst(100))).clock(noon()).direct();
    let decision = limiter.check_n(30);
    assert_eq!((decision.cost(), decision.limit(), decision.remaining()), (30, 100, 70));
    assert!(decision.is_allowed() && !decision.is_denied() && !decision.is_never());
    assert_eq!(decision.retry_after(), Some(Duration::ZERO));
    assert_eq!(decision.reset_after(), secs(30));
    assert_eq!(decision.delay(), Duration::ZERO);
    let refused = limiter.check_n(71);
    assert_eq!((refused.cost(), refused.limit(), refused.remaining()), (71, 100, 70));
    assert_eq!(refused.retry_after(), Some(secs(1)));
    let never = limiter.check_n(101);
    assert_eq!((never.outcome(), never.remaining()), (Outcome::Never, 70));
    assert!(never.is_denied() && never.is_never());
    assert_eq!(never.retry_after(), None);
    assert_eq!(never.reset_after(), secs(30));
}

/// Errors name what is out of range and what to write instead.
#[test]
fn refused_quotas_name_the_remedy() {
    let panic = catch_unwind(|| RateLimiter::new(Quota::per_second(10_000_000_000))).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(
        text.contains("the burst, in the compact store, can be at most 8589934592, but is 10000000000"),
        "{text}"
    );
    assert!(text.contains("RateLimiter::builder(Gcra::new(quota)).keyed()"), "{text}");
    let error = RateLimiter::try_new(Quota::per_second(10_000_000_000)).unwrap_err().to_string();
    assert!(error.ends_with("a keyed or direct store has room for it"), "{error}");
    let error = "fixed-window 1/ns".parse::<Limit>().unwrap_err().to_string();
    assert!(error.contains("the period is 1 ns, but with this limit it must be at least 5 ns"), "{error}");
    assert!("fixed-window 1/5ns".parse::<Limit>().is_ok());
    assert!("fixed-window 1/4ns".parse::<Limit>().is_err());
}

/// Each store keeps the figures in units of its own.
#[test]
fn decisions_with_equal_figures_are_equal() {
    let quota = Quota::per_minute(6);
    let direct = RateLimiter::builder(Gcra::new(quota)).clock(noon()).direct();
    let compact = RateLimiter::builder(Gcra::new(quota)).clock(noon()).compact().unwrap();
    let window = RateLimiter::builder(FixedWindow::new(quota)).clock(noon()).direct();
    for cost in [5, 2, 7, 0] {
        assert_eq!(direct.check_n(cost), compact.check_n("alice", cost), "{cost}");
        assert_ne!(direct.peek_n(cost), window.check_n(cost), "{cost}: other times");
    }
    assert_ne!(direct.peek_n(1), direct.peek_n(2));
}

// G41
#[test]
fn given_time_overrides_clock() {
    let limiter = RateLimiter::builder(FixedWindow::new(Quota::per_minute(1))).clock(noon()).keyed::<u64>();
    assert!(limiter.check(&7).is_allowed());
    assert!(limiter.at(Timestamp::from_secs(43_259)).check(&7).is_denied());
    assert!(limiter.at(Timestamp::from_secs(43_260)).check(&7).is_allowed());
    assert!(limiter.check(&7).is_denied(), "the clock is behind the time of the last charge");
}

// G29
#[test]
fn batch_uses_one_clock_reading() {
    /// Advances by one second at each reading.
    struct Hasty(ManualClock);
    impl Clock for Hasty {
        fn now(&self) -> Timestamp {
            self.0.advance(Duration::from_secs(1));
            self.0.now()
        }
    }
    let quota = Quota::per_second(1);
    let mut decisions = Vec::new();

    let direct = RateLimiter::builder(Gcra::new(quota)).clock(Hasty(noon())).direct();
    direct.check_each([1, 1, 1], |decision| decisions.push(decision));
    let admitted = decisions.iter().filter(|decision| decision.is_allowed()).count();
    assert_eq!((decisions.len(), admitted), (3, 1));

    decisions.clear();
    let keyed = RateLimiter::builder(Gcra::new(quota)).clock(Hasty(noon())).keyed::<String>();
    keyed.check_each(["a", "b", "a", "a"].into_iter().map(|key| (key, 1)), |decision| {
        decisions.push(decision);
    });
    let compact = RateLimiter::builder(Gcra::new(quota)).clock(Hasty(noon())).compact().unwrap();
    compact.check_each(["a", "b", "a", "a"].into_iter().map(|key| (key, 1)), |decision| {
        decisions.push(decision);
    });
    let outcomes: Vec<_> = decisions.iter().map(|decision| decision.is_allowed()).collect();
    assert_eq!(outcomes, [true, true, false, false].repeat(2));
}

#[test]
fn keys_are_looked_up_by_reference() {
    let clock = noon();
    let by_address =
        RateLimiter::builder(TokenBucket::new(Quota::per_second(1))).clock(&clock).keyed::<IpAddr>();
    assert!(by_address.check(&IpAddr::V4(Ipv4Addr::LOCALHOST)).is_allowed());
    assert!(by_address.check(&IpAddr::V4(Ipv4Addr::LOCALHOST)).is_denied());

    let by_pair =
        RateLimiter::builder(Gcra::new(Quota::per_second(1))).clock(&clock).keyed::<(u32, String)>();
    assert!(by_pair.check(&(1, "a".to_owned())).is_allowed());
    assert!(by_pair.check(&(2, "a".to_owned())).is_allowed());
    assert!(by_pair.check(&(1, "a".to_owned())).is_denied());

    let by_bytes = RateLimiter::builder(Gcra::new(Quota::per_second(1))).clock(&clock).keyed::<Vec<u8>>();
    assert!(by_bytes.check(&b"abc"[..]).is_allowed());
    assert!(by_bytes.check(&b"abc"[..]).is_denied());
    assert!(by_bytes.check(&b""[..]).is_allowed());
}

#[test]
fn check_with_uses_other_quota() {
    let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(2))).clock(noon()).keyed::<String>();
    let paying =
        limiter.algorithm().requota(&Quota::per_second(10)).expect("GCRA can read its state under any quota");
    let now = limiter.clock().now();
    for _ in 0..10 {
        assert!(limiter.at(now).check_with("paying", 1, &paying).is_allowed());
    }
    assert!(limiter.at(now).check_with("paying", 1, &paying).is_denied());
    assert!(limiter.check_n("free", 2).is_allowed());
    assert!(limiter.check("free").is_denied());

    let windows = SubWindow::new(Quota::per_minute(5), 6);
    assert!(windows.requota(&Quota::per_minute(50)).is_ok());
    assert!(
        windows.requota(&Quota::per_second(5)).is_err(),
        "its counts belong to windows of a minute, not of a second"
    );
}

#[test]
fn default_constructors_use_real_clock() {
    let direct: RateLimiter<Direct<FixedWindow>, DefaultClock> =
        RateLimiter::direct(FixedWindow::from_first_use(Quota::per_day(1)));
    assert!(direct.check().is_allowed());
    assert!(direct.check().is_denied());
    let keyed: RateLimiter<Keyed<u64, SlidingLog>, DefaultClock> =
        RateLimiter::keyed::<u64, _>(SlidingLog::new(Quota::per_day(1)));
    assert!(keyed.check(&1).is_allowed());
    assert!(keyed.check(&1).is_denied());
    assert!(keyed.check(&2).is_allowed());
}

// G41
#[test]
fn real_clocks_are_monotonic_unix_time() {
    fn law(clock: &impl Clock, resolution: Duration) {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let wall = Timestamp::from_nanos(u64::try_from(wall.as_nanos()).expect("before 2554"));
        let mut last = clock.now();
        let apart = last.duration_since(wall).max(wall.duration_since(last));
        assert!(apart < secs(5) + resolution, "the clock differs from the wall clock by {apart:?}");
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
    law(&DefaultClock::new(), Duration::ZERO);
    law(&StdClock::new(), Duration::ZERO);
    law(&Arc::new(StdClock::new()), Duration::ZERO);
    law(&CoarseClock::new(), secs(1));
}

// G11
#[test]
fn coarse_clock_advances_only_on_refresh() {
    let (clock, source) = (CoarseClock::new(), StdClock::new());
    let other = clock.clone();
    let (before, start) = (clock.now(), source.now());
    while source.now() <= start {}
    assert_eq!(clock.now(), before);
    while other.now() <= before {
        clock.refresh();
    }
}

#[test]
fn manual_clock_clones_share_time() {
    let clock = ManualClock::default();
    let clone = clock.clone();
    clone.advance(secs(3));
    assert_eq!(clock.now(), Timestamp::from_secs(3));
    clock.set(Timestamp::from_secs(1));
    assert_eq!(clone.now(), Timestamp::from_secs(1));
    clock.set(Timestamp::MAX);
    clock.advance(secs(1));
    assert_eq!(clone.now(), Timestamp::MAX, "the latest time does not wrap around");
}

// G41
#[test]
fn timestamps_saturate() {
    assert_eq!(Timestamp::MAX + secs(1), Timestamp::MAX);
    assert_eq!(Timestamp::from_secs(u64::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::from_millis(u64::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::from_millis(1_500).as_nanos(), SEC + SEC / 2);
    assert_eq!(Timestamp::ZERO.duration_since(Timestamp::MAX), Duration::ZERO);
    assert_eq!(Timestamp::from_secs(5).duration_since(Timestamp::from_secs(2)), secs(3));
    assert_eq!(Timestamp::ZERO + Duration::MAX, Timestamp::MAX);
    assert_eq!(format!("{:?}", Timestamp::from_millis(1_500)), "1.500000000s");
}

/// A turn at the next refill assumes that the bucket is full at that refill, so the units left in it now overflow and
/// are lost.
///
/// A regression test: the bucket once kept those units, and it admitted four units at one moment from a burst of
/// three.
#[test]
fn reservation_at_refill_drops_overflow() {
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    let quota = Quota::new(3, Duration::from_millis(120));
    let bucket = RateLimiter::builder(TokenBucket::interval(quota)).clock(clock.clone()).direct();
    assert!(bucket.check_n(2).is_allowed());
    let turn = bucket.reserve(2, Duration::from_secs(1));
    assert_eq!(turn.delay(), Duration::from_millis(120));
    let next = bucket.reserve(2, Duration::from_secs(1));
    assert_eq!(next.delay(), Duration::from_millis(240));
    clock.advance(Duration::from_millis(120));
    assert!(bucket.check().is_denied(), "checks are denied until the time of the second turn");
    clock.advance(Duration::from_millis(120));
    assert!(
        bucket.check_n(1).is_allowed() && bucket.check_n(1).is_denied(),
        "the second turn uses two of the three units"
    );
}

/// A refund of a turn at a refill also returns the units that were in the bucket when the turn was reserved.
///
/// A regression test: the reservation charged those units too, and the refund once did not return them.
#[test]
fn reservation_at_refill_is_fully_refunded() {
    let quota = Quota::new(3, Duration::from_secs(1)).burst(5);
    for bucket in [TokenBucket::interval(quota), TokenBucket::aligned(quota, Timestamp::ZERO)] {
        let clock = ManualClock::new(Timestamp::from_millis(1_000_100));
        let bucket = RateLimiter::builder(bucket).clock(clock).direct();
        assert_eq!(bucket.check().remaining(), 4);
        let turn = bucket.reserve(5, Duration::from_secs(10));
        assert!(turn.delay() > Duration::ZERO);
        assert_eq!(bucket.peek().remaining(), 0);
        assert_eq!(bucket.refund(&turn), 5);
        assert_eq!(bucket.peek().remaining(), 4);
    }
}

/// Each limiter hashes with its own secret, so a list of keys that collide in one limiter does not help against
/// another.
// G36
#[test]
fn each_limiter_has_own_hash_secret() {
    let quota = Quota::per_second(1);
    let limiters = [RateLimiter::new(quota), RateLimiter::new(quota)];
    let differ = (0..100_u64).filter(|key| limiters[0].hash(key) != limiters[1].hash(key)).count();
    assert!(differ > 98, "two limiters hash {} of 100 keys to the same value", 100 - differ);
    assert_eq!(
        limiters[0].hash("alice"),
        limiters[0].hash(&"alice".to_owned()),
        "a limiter always hashes equal keys to the same value"
    );
}

/// An option is never ignored: a store that does not have it is not built.
#[test]
fn option_of_other_store_is_an_error() {
    let build = || RateLimiter::builder(Gcra::new(Quota::per_second(5))).clock(noon());
    let any = |build: Builder<Limit, ManualClock>, store| build.build::<String>(store).map(drop).unwrap_err();
    let limit = || RateLimiter::any(Quota::per_second(5)).clock(noon());
    let panics = |build: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(build)).expect_err("the option does not fit");
        panic.downcast_ref::<String>().expect("a text").clone()
    };
    for (error, store, option) in [
        (
            build().max_keys(9, WhenFull::Deny).compact().map(drop).unwrap_err().to_string(),
            "compact",
            "max_keys",
        ),
        (build().stripes(2).compact().map(drop).unwrap_err().to_string(), "compact", "stripes"),
        (any(limit().overflow(Overflow::Forget), StoreKind::Keyed).to_string(), "keyed", "overflow"),
        (any(limit().tiers([Quota::per_day(1)]), StoreKind::Compact).to_string(), "compact", "tiers"),
        (any(limit().capacity(10), StoreKind::Direct).to_string(), "direct", "capacity"),
        (panics(&|| drop(build().capacity(10).direct())), "direct", "capacity"),
        (panics(&|| drop(build().overdraft(1).keyed::<u64>())), "keyed", "overdraft"),
        (panics(&|| drop(build().capacity(10).striped())), "striped", "capacity"),
    ] {
        let place = format!("a {store} limiter has no option {option}");
        assert!(
            error.contains(&place) && error.ends_with("do not set it, or build another store"),
            "{error}"
        );
    }
    assert!(build().lease_life(Duration::from_millis(1)).striped().check().is_allowed());
}
