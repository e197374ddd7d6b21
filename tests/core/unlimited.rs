//! Limiters that are off, and limits that a request does not have: both admit everything and charge no key.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::joint::AllOf;
use tollgate::{
    AnyLimiter, Carry, Class, Decision, Direct, FixedWindow, Gcra, Limit, ManualClock, Outcome, Quota,
    RateLimiter, SlidingLog, StoreKind, Timestamp, check_all,
};
use tollgate_testing::operations::run_cases;

const START: Timestamp = Timestamp::from_secs(3_600 * 500_000);
const STORES: [StoreKind; 4] = [StoreKind::Direct, StoreKind::Keyed, StoreKind::Compact, StoreKind::Sketch];

fn limiter_of(limit: Limit, store: StoreKind, clock: &ManualClock) -> AnyLimiter<u64, ManualClock> {
    RateLimiter::any(limit).clock(clock.clone()).seeds([1; 4]).build(store).unwrap()
}

/// Two limits, each with the stores that support it.
fn pairs() -> impl Iterator<Item = (Limit, StoreKind)> {
    let limits = [Limit::gcra(Quota::per_hour(4)), Limit::fixed_window(Quota::per_hour(4))];
    let all = limits.into_iter().flat_map(|limit| STORES.map(|store| (limit, store)));
    all.filter(|(limit, store)| store.supports(limit.kind()))
}

fn is_unlimited(decision: &Decision, cost: u64) -> bool {
    let figures = (decision.limit(), decision.remaining(), decision.reset_after(), decision.delay());
    decision.is_unlimited()
        && figures == (u64::MAX, u64::MAX, Duration::ZERO, Duration::ZERO)
        && (decision.outcome(), decision.cost(), decision.charged()) == (Outcome::Allowed, cost, cost)
}

// G153
#[test]
fn limiter_that_is_off_admits_everything() {
    let clock = ManualClock::new(START);
    for (limit, store) in pairs() {
        let limiter = limiter_of(limit, store, &clock);
        let before = limiter.check_n(&1, 4);
        assert!(before.is_allowed() && limiter.check(&1).is_denied() && !limiter.is_off());
        limiter.turn_off();
        for cost in [0, 1, 5, u64::MAX] {
            assert!(is_unlimited(&limiter.check_n(&1, cost), cost), "{limit} {store}");
            assert!(is_unlimited(&limiter.peek_n(&1, cost), cost));
            assert!(is_unlimited(&limiter.take(&1, cost), cost));
            assert!(is_unlimited(&limiter.charge_unchecked(&1, cost), cost));
            assert!(is_unlimited(&limiter.reserve(&1, cost, Duration::ZERO), cost));
            assert!(is_unlimited(&limiter.check_class(&1, cost, Class::percent(1)), cost));
            let charge = limiter.at(START).check_n(&1, cost);
            assert_eq!((limiter.refund(&1, &charge), limiter.refund(&1, &before)), (0, 0));
            assert!(limiter.settle(&1, &charge, 1).is_unlimited());
        }
        limiter.check_each([(&1, 9), (&2, 9)], |decision| assert!(is_unlimited(&decision, 9)));
        limiter.forget_past();
        assert!(limiter.is_off(), "only a limit turns it on");
        let log = SlidingLog::new(Quota::per_hour(4)).into();
        if store == StoreKind::Compact || store == StoreKind::Sketch {
            assert!(limiter.set_limit(log, Carry::AsIs).is_err() && limiter.is_off());
        }
        assert_eq!(limiter.limit(), limit, "the limit that was in force");
    }
}

// G153
#[test]
fn limiter_begins_with_a_full_burst_when_it_is_turned_on() {
    let clock = ManualClock::new(START);
    for carry in [Carry::AsIs, Carry::Proportional, Carry::Additive, Carry::Reset, Carry::Used] {
        for (limit, store) in pairs() {
            let limiter = limiter_of(limit, store, &clock);
            let before = limiter.check_n(&1, 4);
            limiter.turn_off();
            let during = limiter.check_n(&1, 3);
            limiter.set_limit(limit, carry).unwrap();
            assert!(!limiter.is_off());
            assert_eq!((limiter.refund(&1, &before), limiter.refund(&1, &during)), (0, 0));
            assert_eq!(
                (limiter.check_n(&1, 4).remaining(), limiter.check(&1).outcome()),
                (0, Outcome::Denied)
            );
            // The next change carries debts over again.
            limiter.set_limit(limit, Carry::AsIs).unwrap();
            assert!(limiter.check(&1).is_denied(), "{limit} {store} {carry:?}");
        }
    }
}

#[derive(Copy, Clone, Debug)]
enum Act {
    Check(u64, u64),
    Off,
    On,
    Advance(u64),
}

/// A limiter that is turned off and on decides as one that was made when it was turned on.
// G153
#[test]
fn switched_limiter_decides_as_a_new_one() {
    let act = prop_oneof![
        5 => (0..3_u64, 0..4_u64).prop_map(|(key, cost)| Act::Check(key, cost)),
        1 => Just(Act::Off),
        1 => Just(Act::On),
        // Whole units, because a change rounds a part of a unit up.
        2 => (0..4_u64).prop_map(|units| Act::Advance(900 * units)),
    ];
    let acts = prop::collection::vec(act, 1..60);
    let share = run_cases("off and on", 400, &acts, |acts| {
        let clock = ManualClock::new(START);
        let limit = Limit::gcra(Quota::per_hour(4));
        let (limiter, mut oracle) =
            (limiter_of(limit, StoreKind::Keyed, &clock), Some(limiter_of(limit, StoreKind::Keyed, &clock)));
        let mut switched = false;
        for act in acts {
            match act {
                Act::Check(key, cost) => {
                    let decision = limiter.check_n(&key, cost);
                    match &oracle {
                        Some(oracle) => assert_eq!(decision, oracle.check_n(&key, cost)),
                        None => assert!(is_unlimited(&decision, cost)),
                    }
                }
                Act::Off => {
                    limiter.turn_off();
                    oracle = None;
                }
                Act::On => {
                    limiter.set_limit(limit, Carry::AsIs).unwrap();
                    switched |= oracle.is_none();
                    oracle = Some(oracle.unwrap_or_else(|| limiter_of(limit, StoreKind::Keyed, &clock)));
                }
                Act::Advance(s) => clock.advance(Duration::from_secs(s)),
            }
        }
        switched
    });
    assert!(share > 0.3, "{share}");
}

/// A joint check with absent limits decides as one without them, and keeps the positions.
// G154
#[test]
fn absent_limits_change_no_decision() {
    let acts = prop::collection::vec((0..3_u64, 1..4_u64, presence()), 1..60);
    let share = run_cases("absent", 400, &acts, |acts| {
        let build = || {
            let clock = ManualClock::new(START);
            let direct = RateLimiter::builder(Gcra::new(Quota::per_hour(9))).clock(clock.clone()).direct();
            let keyed = RateLimiter::builder(FixedWindow::new(Quota::per_hour(5)))
                .clock(clock.clone())
                .keyed::<u64>();
            let compact = RateLimiter::builder(Gcra::new(Quota::per_hour(3)))
                .clock(clock)
                .seeds([1; 4])
                .compact()
                .unwrap();
            (direct, keyed, compact)
        };
        let ((a, b, c), (x, y, z)) = (build(), build());
        let mut denied = 0;
        for (key, cost, [first, second, third]) in acts {
            let limits = AllOf::new((
                first.then(|| a.on().cost(cost).named("a")),
                second.then(|| b.on(&key).cost(cost).named("b")),
                third.then(|| c.on(&key).cost(cost).named("c")),
            ));
            let peek = limits.peek();
            let decision = limits.check();
            // The oracle: one peek at each limit that is present, and then one charge at each.
            let peeks = [
                first.then(|| x.peek_n(cost)),
                second.then(|| y.peek_n(&key, cost)),
                third.then(|| z.peek_n(&key, cost)),
            ];
            let is_allowed = peeks.iter().flatten().all(Decision::is_allowed);
            if is_allowed {
                let _ = first.then(|| x.check_n(cost));
                let _ = second.then(|| y.check_n(&key, cost));
                let _ = third.then(|| z.check_n(&key, cost));
            }
            assert_eq!((decision.is_allowed(), peek.is_allowed()), (is_allowed, is_allowed));
            for (one, present) in decision.each().iter().zip([first, second, third]) {
                assert_eq!(one.is_unlimited(), !present);
            }
            if let Some(at) = decision.denied_by() {
                assert!(peeks[at].unwrap().is_denied(), "the position is that in the tuple");
                assert_eq!(decision.denied_by_name(), Some(["a", "b", "c"][at]));
                denied += 1;
            }
            // A refund gives the present limits back what they were charged.
            if cost == 2 && is_allowed {
                limits.refund(&decision);
                let left = (a.peek().remaining(), b.peek(&key).remaining(), c.peek(&key).remaining());
                let expected = (x.peek().remaining(), y.peek(&key).remaining(), z.peek(&key).remaining());
                let back = |present: bool| if present { 2 } else { 0 };
                assert_eq!(
                    left,
                    (expected.0 + back(first), expected.1 + back(second), expected.2 + back(third))
                );
                let again = limits.check();
                assert!(again.is_allowed());
            }
        }
        denied > 0
    });
    assert!(share > 0.3, "{share}");
}

fn presence() -> impl Strategy<Value = [bool; 3]> {
    [prop::bool::ANY, prop::bool::ANY, prop::bool::ANY]
}

// G154
#[test]
fn arrays_and_slices_take_absent_limits() {
    let clock = ManualClock::new(START);
    let [a, b] =
        [1, 2].map(|n| RateLimiter::builder(Gcra::new(Quota::per_hour(n))).clock(clock.clone()).direct());
    let none: Option<&RateLimiter<Direct, ManualClock>> = None;
    let limits = [None, Some(a.on()), none.map(RateLimiter::<Direct, _>::on), Some(b.on())];
    assert!(check_all(limits).is_allowed());
    let denied = check_all(limits);
    assert_eq!((denied.denied_by(), denied.each().len(), denied.remaining()), (Some(1), 4, 0));
    let slice = check_all(limits.as_slice());
    assert_eq!((slice.denied_by(), slice.each()), (Some(1), denied.each()));
    assert_eq!(check_all([limits[0], limits[2]]).remaining(), u64::MAX);
    assert_eq!(check_all([limits[0]]).at(), Timestamp::ZERO, "no clock is read");
    assert_eq!(check_all((limits[0], limits[3])).at(), START);
}
