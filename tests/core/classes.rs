//! Classes that share one count: no class uses units that it must leave to the others, with every algorithm and store.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::{
    AnyLimiter, Class, Gcra, Limit, ManualClock, Outcome, Quota, RateLimiter, StoreKind, Timestamp,
};
use tollgate_testing::build;
use tollgate_testing::kinds::Kind;
use tollgate_testing::oracle::{Spec, Verdict};

const START: Timestamp = Timestamp::from_secs(3_600 * 500_000);
const SHARES: [u32; 5] = [1_000_000, 800_000, 500_000, 333_333, 1];
const STORES: [StoreKind; 4] = [StoreKind::Direct, StoreKind::Keyed, StoreKind::Compact, StoreKind::Sketch];
const KINDS: [&str; 10] = [
    "gcra",
    "token-bucket",
    "leaky-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-window(strict)",
    "sub-window(6)",
    "sub-window(6, strict)",
    "sliding-log",
    "leaky-bucket-queue",
];

fn limiters(units: u64) -> Vec<(String, AnyLimiter<String, ManualClock>)> {
    let mut all = Vec::new();
    for kind in KINDS {
        let Ok(limit) = format!("{kind} {units}/min").parse::<Limit>() else {
            assert!(kind.contains("queue"), "{kind}");
            continue;
        };
        for store in STORES {
            let builder = RateLimiter::any(limit).clock(ManualClock::new(START)).seeds([1; 4]);
            // Some stores do not hold some algorithms.
            if let Ok(limiter) = builder.build(store) {
                all.push((format!("{kind} {store:?}"), limiter));
            }
        }
    }
    assert!(all.len() > 20, "{}", all.len());
    all
}

/// Returns the share of a burst in exact arithmetic.
fn share(burst: u64, per_million: u32) -> u64 {
    u64::try_from(u128::from(burst) * u128::from(per_million) / 1_000_000).unwrap()
}

// G120
#[test]
fn share_is_rounded_down() {
    for burst in [0, 1, 2, 3, 9, 10, 1_000_003, u64::MAX - 1, u64::MAX] {
        for per_million in SHARES {
            let class = Class::per_million(per_million);
            assert_eq!(burst - class.headroom(burst), share(burst, per_million), "{burst} {per_million}");
        }
        assert_eq!(Class::per_million(0).headroom(burst), burst);
    }
    assert_eq!(
        (Class::percent(100), Class::percent(255), Class::per_million(u32::MAX)),
        (Class::ALL, Class::ALL, Class::ALL)
    );
    assert_eq!(Class::percent(80).share(), 800_000);
    assert!(Class::percent(50) < Class::percent(80));
}

proptest! {
    #![proptest_config(tollgate_testing::operations::config(40))]

    /// A check of a class is admitted exactly if its cost and the units that it leaves fit, and it leaves them. A denial
    /// charges nothing, and its figures are those of the class.
    // G120
    #[test]
    fn classes_leave_their_headroom(
        units in select(vec![1_u64, 2, 3, 7, 10, 100]),
        ops in prop::collection::vec((0..SHARES.len(), 0_u64..5, 0_u64..20_000_000_000), 1..40),
    ) {
        for (name, limiter) in limiters(units) {
            let mut now = START;
            for &(class, cost, wait) in &ops {
                now = now + Duration::from_nanos(if wait % 3 == 0 { wait } else { 0 });
                let (at, class) = (limiter.at(now), Class::per_million(SHARES[class]));
                let before = at.peek_n("k", 0);
                let headroom = class.headroom(before.limit());
                let fits = cost == 0 || at.peek_n("k", cost + headroom).is_allowed();
                let decision = at.check_class("k", cost, class);
                prop_assert_eq!(decision.is_allowed(), fits, "{} {:?} {:?}", name, class, before);
                prop_assert_eq!(decision.limit(), share(units, class.share()), "{}", name);
                prop_assert_eq!(decision.cost(), cost);
                let after = at.peek_n("k", 0);
                if decision.is_allowed() && cost > 0 {
                    prop_assert!(after.remaining() >= headroom, "{name} {class:?} {after:?}");
                } else {
                    prop_assert_eq!(after.remaining(), before.remaining(), "{}", name);
                }
                prop_assert_eq!(decision.remaining(), after.remaining().saturating_sub(headroom), "{}", name);
                if cost > share(units, class.share()) {
                    prop_assert_eq!(decision.outcome(), Outcome::Never, "{}", name);
                }
            }
        }
    }
}

/// A class is admitted after its wait, and not a nanosecond earlier.
// G120
#[test]
fn wait_of_a_class_is_exact() {
    for (name, limiter) in limiters(10).into_iter().filter(|(name, _)| name.ends_with("Direct")) {
        let class = Class::percent(50);
        for cost in [1, 2, 5] {
            let key = "k";
            let start = START + Duration::from_secs(600 * cost);
            assert!(limiter.at(start).check_n(key, 8).is_allowed(), "{name}");
            let at = start + Duration::from_millis(1_234);
            let wait = limiter.at(at).check_class(key, cost, class).retry_after().expect(&name);
            let then = at + wait;
            let before = Timestamp::from_nanos(then.as_nanos() - 1);
            assert!(limiter.at(before).check_class(key, cost, class).is_denied(), "{name} {cost} {wait:?}");
            assert!(limiter.at(then).check_class(key, cost, class).is_allowed(), "{name} {cost} {wait:?}");
        }
    }
}

/// A cost of 0 was said to wait until the units that the class leaves free were free again.
#[test]
fn cost_of_zero_does_not_wait() {
    for (name, limiter) in limiters(10) {
        assert!(limiter.at(START).check_n("k", 10).is_allowed(), "{name}");
        let decision = limiter.at(START).check_class("k", 0, Class::percent(50));
        assert!(decision.is_allowed(), "{name}");
        assert_eq!((decision.delay(), decision.charged()), (Duration::ZERO, 0), "{name}");
    }
}

// G120
#[test]
fn charge_of_a_class_is_refunded() {
    let quota = Quota::per_hour(10);
    let limiter = build(Gcra::new(quota), &ManualClock::new(START)).keyed::<String>();
    let charge = limiter.check_class("k", 5, Class::percent(50));
    assert_eq!(limiter.refund("k", &charge), 5);
    assert_eq!(limiter.peek("k").remaining(), 10);
    assert!(limiter.check_class("k", 5, Class::percent(50)).is_allowed());
    assert!(limiter.check_class("k", 1, Class::percent(50)).is_denied());
}

proptest! {
    #![proptest_config(tollgate_testing::operations::config(64))]

    /// Compared with the oracles: a class is admitted exactly if the oracle admits its cost together with the units that
    /// it leaves free, and its wait is the oracle's wait for both.
    // G120
    #[test]
    fn classes_decide_as_the_oracle(
        (text, kind) in select(vec![
            ("gcra", Kind::Gcra),
            ("token-bucket", Kind::Greedy),
            ("leaky-bucket", Kind::Meter),
            ("fixed-window", Kind::Fixed),
            ("sliding-window", Kind::Sliding),
            ("sliding-window(strict)", Kind::SlidingStrict),
            ("sub-window(6)", Kind::Sub(6)),
            ("sliding-log", Kind::Log),
        ]),
        units in select(vec![1_u64, 3, 10, 60]),
        ops in prop::collection::vec((0..SHARES.len(), 0_u64..7, 0_u64..9_000_000_000), 1..40),
    ) {
        let limit: Limit = format!("{text} {units}/min").parse().unwrap();
        let limiter: AnyLimiter = RateLimiter::any(limit).build(StoreKind::Keyed).unwrap();
        let mut oracle = kind.oracle(Spec::new(units, 60_000_000_000));
        let mut now = START;
        for &(class, cost, wait) in &ops {
            now = now + Duration::from_nanos(wait);
            let (ns, class) = (now.as_nanos(), Class::per_million(SHARES[class]));
            let both = if cost == 0 { 0 } else { cost + class.headroom(units) };
            let decision = limiter.at(now).check_class("k", cost, class);
            let expected = match oracle.peek(ns, both) {
                Verdict::Allowed => Outcome::Allowed,
                Verdict::Denied => Outcome::Denied,
                Verdict::Never => Outcome::Never,
            };
            prop_assert_eq!(decision.outcome(), expected, "{:?} {} {:?}", kind, cost, oracle);
            if expected == Outcome::Allowed && cost > 0 {
                oracle.charge(ns.into(), cost);
            }
            let wait = decision.retry_after().map(|wait| wait.as_nanos());
            prop_assert_eq!(wait, if decision.is_allowed() { Some(0) } else { oracle.retry_after(ns, both) });
        }
    }
}
