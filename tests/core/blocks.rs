//! Blocks after denials, compared with a model, and by name.
//!
//! 1. Each decision equals the model's, whatever the order of checks, peeks, forced charges, reservations and refunds is.
//! 2. A block ends at its stated time, and not one nanosecond earlier. Denials during a block change nothing.
//! 3. Each block that follows another one is twice as long, up to the longest. After a quiet time, a key starts again.
//! 4. A joint check blocks the keys of those limits that deny it.
//! 5. A block survives a change of the quota, and does not become longer by it.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::{
    Algorithm, AnyLimiter, Block, Blocked, Carry, Class, Decision, Gcra, Limit, ManualClock, Quota,
    RateLimiter, StoreKind, Timestamp, check_all,
};
use tollgate_testing::blocks::{BlockOp, BlockSpec, play};
use tollgate_testing::operations::{config, ops_with, spec, start};
use tollgate_testing::{HOUR, MINUTE, SEC};

const MINUTES: fn(u64) -> Duration = |minutes| Duration::from_secs(60 * minutes);
const FIVE: Quota = Quota::per_minute(5);

fn growing() -> Block {
    Block::of(MINUTES(10)).at_most(MINUTES(60 * 24))
}

fn end(denial: &Decision) -> Duration {
    assert!(denial.is_denied() && denial.is_block(), "{denial:?}");
    denial.retry_after().expect("a block ends")
}

fn verbs() -> impl Strategy<Value = BlockOp> {
    prop_oneof![
        12 => Just(BlockOp::Check),
        3 => Just(BlockOp::Peek),
        2 => Just(BlockOp::Take),
        1 => (1_u64..=2).prop_map(BlockOp::Force),
        1 => (0_u64..1 << 44).prop_map(BlockOp::Reserve),
        1 => (0_u64..=3).prop_map(BlockOp::Refund),
    ]
}

fn specs() -> impl Strategy<Value = BlockSpec> {
    let first = prop_oneof![1_u64..=20, 1_u64..=10 * SEC, Just(10 * MINUTE), 1_u64..=HOUR];
    let most = prop_oneof![Just(1_u64), 1_u64..=9, Just(144), 1_u64..=16_384];
    let all = (spec(), first, most, 0_u64..2).prop_map(|(spec, first_ns, times, more)| BlockSpec {
        spec,
        first_ns,
        most_ns: (first_ns * times).saturating_add(more.min(times - 1)).min(first_ns << 14),
    });
    all.prop_filter("exact", BlockSpec::is_exact)
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..config(512) })]

    /// The times of direct limiters also step back.
    // G127, G129
    #[test]
    fn decisions_equal_those_of_the_model(
        spec in specs(),
        start in start(),
        backward in ops_with(1, 60, true, verbs()),
        forward in ops_with(1, 60, false, verbs()),
    ) {
        play(spec, start, &backward, &spec.direct().expect("the numbers are small"));
        play(spec, start, &forward, &spec.keyed().expect("the numbers are small"));
    }
}

// G127
#[test]
fn reservations_and_forced_charges_come_after_the_block() {
    let limiter = RateLimiter::builder(Blocked::new(FIVE, growing())).clock(ManualClock::default()).direct();
    assert!(limiter.check_n(5).is_allowed());
    assert_eq!(end(&limiter.check()), MINUTES(10));
    assert!(limiter.reserve(1, MINUTES(9)).is_denied());
    assert_eq!(limiter.reserve(1, MINUTES(10)).delay(), MINUTES(10));
    assert_eq!(end(&limiter.check()), MINUTES(10) + Duration::from_secs(12), "the free unit is reserved");
    assert_eq!(limiter.charge_unchecked(2).cost(), 2);
    assert_eq!(end(&limiter.check()), MINUTES(10) + Duration::from_secs(36));
}

#[test]
fn refunds_do_not_shorten_a_block() {
    let clock = ManualClock::default();
    let limiter = RateLimiter::builder(Blocked::new(FIVE, growing())).clock(clock.clone()).direct();
    let charge = limiter.check_n(5);
    assert_eq!(end(&limiter.check()), MINUTES(10));
    assert_eq!(limiter.refund(&charge), 0);
    assert_eq!(end(&limiter.check()), MINUTES(10));
    clock.advance(MINUTES(10));
    let charge = limiter.check();
    assert_eq!(limiter.refund(&charge), 1);
    assert!(limiter.check().is_allowed());
}

/// An interval of 369.5 ns has ticks of a fraction, and a TAT of 0 stands for a key that was never seen.
// G127
#[test]
fn refund_of_all_at_time_zero_leaves_nothing_owed() {
    let quota = Quota::try_new(2, Duration::from_nanos(739)).unwrap();
    let block = Block::of(Duration::from_nanos(1));
    let (plain, blocked) = (Gcra::new(quota), Blocked::try_new(quota, block).unwrap());
    let plain = RateLimiter::builder(plain).clock(ManualClock::default()).direct();
    let blocked = RateLimiter::builder(blocked).clock(ManualClock::default()).direct();
    let [plain_charge, blocked_charge] = [plain.check_n(2), blocked.check_n(2)];
    assert_eq!([plain.refund(&plain_charge), blocked.refund(&blocked_charge)], [2, 2]);
    assert_eq!([plain.peek().remaining(), blocked.peek().remaining()], [2, 2]);
    assert!(plain.check_n(2).is_allowed() && blocked.check_n(2).is_allowed());
}

// G127
#[test]
fn block_is_no_shorter_than_the_wait_without_it() {
    let block = Block::of(Duration::from_secs(1));
    let limiter = RateLimiter::builder(Blocked::new(FIVE, block)).clock(ManualClock::default()).direct();
    assert!(limiter.check_n(5).is_allowed());
    assert_eq!(end(&limiter.check()), Duration::from_secs(12));
    assert_eq!(end(&limiter.check_n(3)), Duration::from_secs(36));
}

/// The key owes nothing 48 seconds after its block. The quiet time is as long as the block was.
// G127
#[test]
fn store_keeps_a_key_while_its_blocks_count() {
    let clock = ManualClock::default();
    let limiter = RateLimiter::builder(Blocked::new(FIVE, growing())).clock(clock.clone()).keyed::<&str>();
    assert!(limiter.check_n(&"a", 5).is_allowed());
    assert_eq!(end(&limiter.check(&"a")), MINUTES(10));
    clock.advance(MINUTES(20) + Duration::from_secs(48) - Duration::from_nanos(1));
    assert!(limiter.peek_n(&"a", 5).is_allowed());
    limiter.retain_active();
    assert!(limiter.contains(&"a"));
}

#[test]
fn batch_blocks_as_single_checks_do() {
    for kind in [StoreKind::Keyed, StoreKind::Compact] {
        let limiter = any(kind, "5/min block 10min", &ManualClock::default());
        let mut seen = Vec::new();
        let requests = [("a", 5), ("a", 1), ("b", 6), ("b", 5), ("a", 1)];
        limiter.check_each(requests, |decision| seen.push((decision.is_allowed(), decision.is_block())));
        assert_eq!(seen, [(true, false), (false, true), (false, false), (true, false), (false, true)]);
    }
}

// G127
#[test]
fn old_word_is_no_block() {
    // With one, three and four ticks to a nanosecond.
    for quota in [FIVE, Quota::per_second(3), Quota::per_minute(7)] {
        let block = Block::of(Duration::from_secs(86_400 * 60));
        let limiter = RateLimiter::builder(Blocked::new(quota, block)).clock(ManualClock::default()).direct();
        let day = |day: u64| Timestamp::from_secs(1_700_000_000 + day * 86_400);
        for unused in 61..1_200 {
            let _ = limiter.at(day(0)).check_n(quota.limit());
            assert_eq!(end(&limiter.at(day(0)).check()), Duration::from_secs(86_400 * 60));
            // However long the key was not used, it is in no block.
            let later = limiter.at(day(unused)).peek();
            assert!(later.is_allowed(), "{quota} after {unused} days: {later:?}");
        }
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let refused = |quota: Quota, first: Duration, most: Duration| {
        Blocked::try_new(quota, Block::of(first).at_most(most)).unwrap_err().to_string()
    };
    let day = Duration::from_secs(86_400);
    for (error, needle) in [
        (refused(FIVE, Duration::ZERO, Duration::ZERO), "at least 1ns"),
        (refused(FIVE, MINUTES(10), MINUTES(9)), "is 9min, but must be at least 10min"),
        (refused(FIVE, Duration::from_secs(1), day), "can be at most 16384s"),
        (refused(FIVE, 1_000 * day, 1_000 * day), "can be at most 833d"),
        (refused("1/1000d".parse().unwrap(), day, day), "takes years to refill"),
    ] {
        assert!(error.contains(needle), "{error}");
    }
    assert!(Blocked::try_new(FIVE, Block::of(800 * day)).is_ok());
    let error = Blocked::new(FIVE, growing()).requota(&Quota::per_minute(6)).unwrap_err().to_string();
    assert!(error.contains("a block would end at another time"), "{error}");
    assert!(Blocked::new(FIVE, growing()).requota(&FIVE).is_ok());
}

// G129
#[test]
fn joint_check_blocks_only_the_limits_that_deny() {
    let clock = ManualClock::default();
    let make = || RateLimiter::builder(Blocked::new(FIVE, growing())).clock(clock.clone()).keyed::<&str>();
    let (users, addresses) = (make(), make());
    let plain = RateLimiter::builder(Gcra::new(Quota::per_minute(100))).clock(clock.clone()).keyed::<&str>();
    assert!(users.check_n(&"u", 5).is_allowed());
    let request = (users.on(&"u").named("user"), addresses.on(&"a").named("address"), plain.on(&"p"));
    assert!(check_all(request).is_denied());
    assert_eq!(users.peek(&"u").retry_after(), Some(MINUTES(10)));
    assert!(users.peek(&"u").is_block() && !addresses.peek(&"a").is_block());
    assert_eq!((addresses.peek_n(&"a", 0).remaining(), plain.peek_n(&"p", 0).remaining()), (5, 100));
    let denied = check_all(request);
    assert_eq!(end(&denied.each()[0]), MINUTES(10), "the second denial extends nothing");

    // Arrays and slices.
    for times in [1, 2] {
        let (one, other) = (make(), make());
        assert!(one.check_n(&"k", 5).is_allowed());
        let limits = [one.on(&"k"), other.on(&"k")];
        let denied =
            if times == 1 { check_all(limits).is_denied() } else { check_all(&limits[..]).is_denied() };
        assert!(denied && one.peek(&"k").is_block() && !other.peek(&"k").is_block());
    }
}

fn any(kind: StoreKind, limit: &str, clock: &ManualClock) -> AnyLimiter<String, ManualClock> {
    RateLimiter::any(limit.parse::<Limit>().unwrap()).clock(clock.clone()).build(kind).unwrap()
}

#[test]
fn limits_as_values_block_in_each_store() {
    let clock = ManualClock::default();
    for kind in [StoreKind::Direct, StoreKind::Keyed, StoreKind::Compact] {
        for limit in ["5/min block 10min", "token-bucket 5/min block 10m", "leaky-bucket 5/min block 10m"] {
            let limiter = any(kind, limit, &clock);
            assert!(limiter.check_n("a", 5).is_allowed());
            assert_eq!(end(&limiter.check("a")), MINUTES(10));
            let other = any(kind, limit, &clock);
            assert!(check_all((limiter.on("b"), other.on("b"))).is_allowed() || kind == StoreKind::Direct);
            let full = any(kind, limit, &clock);
            assert!(full.check_n("a", 5).is_allowed());
            assert!(check_all((full.on("a"), other.on("a"))).is_denied());
            assert!(full.peek("a").is_block() && !other.peek("a").is_block(), "{limit}");
        }
    }
    let limit: Limit = "5/min block 10m".parse().unwrap();
    for (kind, limit) in
        [(StoreKind::Compact, "5/min block 10m to 1d".parse().unwrap()), (StoreKind::Sketch, limit)]
    {
        let error = RateLimiter::any(limit).build::<String>(kind).unwrap_err().to_string();
        assert!(error.contains("block") && error.contains("keyed"), "{error}");
    }
}

// G130, G131
#[test]
fn block_survives_a_change_of_the_quota() {
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    // A change rounds to the ticks of a compact store.
    let stores =
        [(StoreKind::Direct, "to 1d", 0), (StoreKind::Keyed, "to 1d", 0), (StoreKind::Compact, "", 3)];
    let carries = [Carry::Used, Carry::AsIs, Carry::Proportional, Carry::Additive];
    for ((kind, longest, tick), carry) in stores.iter().flat_map(|store| carries.map(|carry| (*store, carry)))
    {
        let limit = |quota: &str| format!("{quota} block 10min {longest}").parse::<Limit>().unwrap();
        let limiter = RateLimiter::any(limit("5/min")).clock(clock.clone()).build::<String>(kind).unwrap();
        let tick = Duration::from_secs(tick);
        assert!(limiter.check_n("a", 5).is_allowed());
        assert_eq!(end(&limiter.check("a")), MINUTES(10));
        for (minutes, quota) in
            (1..10).zip(["5/h", "7/min", "3/s burst 20", "1/min burst 1", "5/min"].iter().cycle())
        {
            clock.advance(MINUTES(1));
            limiter.set_limit(limit(quota), carry).unwrap();
            // Some changes find the key still in the store before the last one.
            if minutes % 2 == 0 {
                let wrong = end(&limiter.check("a")).abs_diff(MINUTES(10 - minutes));
                assert!(wrong <= tick, "{kind:?} {quota} {carry:?}: {wrong:?}");
            }
        }
        clock.advance(MINUTES(1) + tick);
        assert!(limiter.check("a").is_allowed(), "{carry:?}: the block ends at its time");
        limiter.set_limit(limit("5/min"), carry).unwrap();
        while limiter.check("a").is_allowed() {}
        let next = if longest.is_empty() { 10 } else { 20 };
        assert_eq!(end(&limiter.peek("a")), MINUTES(next), "{kind:?} {carry:?}: and is remembered");
    }
}

// G130
#[test]
fn change_of_the_quota_can_shorten_or_lift_blocks() {
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let limiter = any(StoreKind::Keyed, "5/min block 1h", &clock);
    for key in ["a", "b"] {
        assert!(limiter.check_n(key, 5).is_allowed());
        assert_eq!(end(&limiter.check(key)), MINUTES(60));
    }
    limiter.set_limit("5/min block 10min".parse().unwrap(), Carry::Used).unwrap();
    assert_eq!(end(&limiter.check("a")), MINUTES(10));
    limiter.set_limit("5/min".parse().unwrap(), Carry::Used).unwrap();
    let denied = limiter.check("b");
    assert!(denied.is_denied() && !denied.is_block());
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(12)), "the key owes a burst");
}

// G129
#[test]
fn class_with_a_share_starts_no_block() {
    let clock = ManualClock::default();
    let limiter = RateLimiter::builder(Blocked::new(FIVE, growing())).clock(clock.clone()).keyed::<&str>();
    let batch = || limiter.check_class(&"a", 1, Class::percent(40));
    assert!(batch().is_allowed() && batch().is_allowed());
    assert!(batch().is_denied() && !limiter.peek(&"a").is_block());
    assert!(limiter.check_n(&"a", 3).is_allowed(), "other requests find their units");
    assert!(batch().is_denied() && !limiter.peek(&"a").is_block());

    // The share is free when three more units are paid.
    let share_free = Duration::from_secs(36);
    assert_eq!(end(&limiter.check(&"a")), MINUTES(10));
    assert_eq!(end(&batch()), MINUTES(10) + share_free);
    clock.advance(MINUTES(10));
    assert!(batch().is_denied() && !batch().is_block(), "the block has ended");
    assert_eq!(batch().retry_after(), Some(share_free));
    assert!(limiter.check(&"a").is_allowed());
    assert_eq!(end(&limiter.check_class(&"a", 1, Class::ALL)), MINUTES(20));
}

// G129
#[test]
fn ended_hold_is_released_before_a_denial_blocks() {
    let limiter = |clock: &ManualClock| {
        let build = RateLimiter::builder(Blocked::new(FIVE, growing())).clock(clock.clone());
        build.keyed::<&str>().with_holds(10).unwrap()
    };
    let life = Duration::from_secs(1);
    for is_joint in [false, true] {
        let clock = ManualClock::default();
        let limiter = limiter(&clock);
        let check = || match is_joint {
            true => check_all((limiter.on(&"a"), limiter.on(&"b").cost(0))).each()[0],
            false => limiter.check(&"a"),
        };
        std::mem::forget(limiter.hold(&"a", 5, life).unwrap());
        clock.advance(life);
        for _ in 0..5 {
            assert!(check().is_allowed(), "the hold has ended");
        }
        assert_eq!(end(&check()), MINUTES(10));

        // A denied hold is a denied check. A hold that ends during the block returns nothing.
        clock.advance(MINUTES(10));
        std::mem::forget(limiter.hold(&"a", 1, life).unwrap());
        assert_eq!(end(&limiter.hold(&"a", 1, life).unwrap_err().decision()), MINUTES(20));
        clock.advance(life);
        assert_eq!(end(&check()), MINUTES(20) - life);
        assert_eq!(limiter.holds(), 0);
    }
}
