//! New keys that begin with a part of the burst.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::joint::AllOf;
use tollgate::{
    Algorithm, Block, Blocked, CalendarWindow, Carry, Class, Clock, FirstFill, Gcra, LeakyBucketMeter,
    LeakyBucketQueue, ManualClock, MinimumSpacing, Outcome, Quota, Timestamp, WhenFull,
};
use tollgate_testing::build;
use tollgate_testing::operations::run_cases;

const START: Timestamp = Timestamp::from_secs(3_600 * 500_000);
/// One unit in ten seconds.
const QUOTA: Quota = Quota::per_minute(6);
const UNIT_MS: u64 = 10_000;

#[derive(Copy, Clone, Debug)]
enum Act {
    Check(u64, u64),
    Peek(u64, u64),
    Take(u64, u64),
    CheckClass(u64, u64),
    Joint(u64, u64),
    Reset(u64),
    Advance(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let call = || (0..3_u64, 0..8_u64);
    prop_oneof![
        4 => call().prop_map(|(key, cost)| Act::Check(key, cost)),
        1 => call().prop_map(|(key, cost)| Act::Peek(key, cost)),
        2 => call().prop_map(|(key, cost)| Act::Take(key, cost)),
        1 => call().prop_map(|(key, cost)| Act::CheckClass(key, cost)),
        2 => call().prop_map(|(key, cost)| Act::Joint(key, cost)),
        1 => (0..3_u64).prop_map(Act::Reset),
        3 => (0..30_000_u64).prop_map(Act::Advance),
    ]
}

/// The times at which keys have paid their debts, in milliseconds.
struct Oracle {
    first: u64,
    now: u64,
    paid: BTreeMap<u64, u64>,
}

impl Oracle {
    fn left(&self, key: u64) -> u64 {
        let new = self.now + (6 - self.first.min(6)) * UNIT_MS;
        let owed = self.paid.get(&key).unwrap_or(&new).saturating_sub(self.now);
        6_u64.saturating_sub(owed.div_ceil(UNIT_MS))
    }

    /// Charges the units if there is room for them and the spare ones. A request that could ever be admitted begins its key.
    fn charge(&mut self, key: u64, cost: u64, spare: u64) -> bool {
        if cost + spare > 6 {
            return false;
        }
        let new = self.now + (6 - self.first.min(6)) * UNIT_MS;
        let paid = self.paid.entry(key).or_insert(new);
        let admitted = (*paid).max(self.now) + (cost + spare) * UNIT_MS <= self.now + 6 * UNIT_MS;
        if admitted {
            *paid = (*paid).max(self.now) + cost * UNIT_MS;
        }
        admitted
    }
}

// G156
#[test]
fn new_keys_begin_with_a_part_of_the_burst() {
    let cases = (0..8_u64, prop::collection::vec(act(), 1..60));
    let share = run_cases("first fill", 600, &cases, |(first, acts)| {
        let clock = ManualClock::new(START);
        let keyed = build(Gcra::new(QUOTA), &clock).first_fill(first).keyed::<u64>();
        let other = build(Gcra::new(Quota::per_minute(1_000)), &clock).direct();
        let mut oracle = Oracle { first, now: 0, paid: BTreeMap::new() };
        let mut denied_new = false;
        for act in acts {
            match act {
                Act::Check(key, cost) => {
                    denied_new |= !keyed.contains(&key) && cost > oracle.left(key) && cost <= 6;
                    let decision = keyed.check_n(&key, cost);
                    assert_eq!(decision.is_allowed(), oracle.charge(key, cost, 0));
                    assert_eq!(decision.remaining(), oracle.left(key));
                    if decision.outcome() == Outcome::Denied {
                        // The wait that it states is right, because the key has begun.
                        let at = clock.now() + decision.retry_after().unwrap();
                        assert!(keyed.at(at).peek_n(&key, cost).is_allowed());
                    }
                }
                Act::Peek(key, cost) => {
                    let held = keyed.contains(&key);
                    let decision = keyed.peek_n(&key, cost);
                    assert_eq!(
                        (decision.is_allowed(), decision.remaining()),
                        (cost <= oracle.left(key), oracle.left(key))
                    );
                    assert_eq!(keyed.contains(&key), held, "a peek begins no key");
                }
                Act::Take(key, cost) => {
                    let most = cost.min(oracle.left(key));
                    assert_eq!(keyed.take(&key, cost).charged(), most);
                    assert!(oracle.charge(key, most, 0));
                }
                Act::CheckClass(key, cost) => {
                    let decision = keyed.check_class(&key, cost, Class::percent(50));
                    let spare = if cost == 0 { 0 } else { 3 };
                    if cost > 0 {
                        assert_eq!(decision.is_allowed(), oracle.charge(key, cost, spare));
                    }
                }
                Act::Joint(key, cost) => {
                    let limits = AllOf::new((keyed.on(&key).cost(cost), other.on().cost(cost)));
                    assert_eq!(limits.check().is_allowed(), oracle.charge(key, cost, 0));
                }
                Act::Reset(key) => {
                    let _ = (keyed.reset(&key), oracle.paid.remove(&key));
                }
                Act::Advance(ms) => {
                    clock.advance(Duration::from_millis(ms));
                    oracle.now += ms;
                }
            }
        }
        denied_new
    });
    assert!(share > 0.2, "{share}");
}

/// Each algorithm: a new key has `k` units, a denial begins it, and it refills from then on.
// G156
#[test]
fn every_algorithm_begins_with_its_part() {
    fn begins<A: Algorithm<Tail = ()>>(algorithm: A, units: u64, refill: Duration) {
        let clock = ManualClock::new(START);
        let (name, burst) =
            (format!("{algorithm:?}"), build(algorithm.clone(), &clock).direct().peek().limit());
        for joint in [false, true] {
            let direct = build(algorithm.clone(), &clock).first_fill(units).direct();
            let keyed = build(algorithm.clone(), &clock).first_fill(units).keyed::<u64>();
            assert_eq!((direct.peek().remaining(), keyed.peek(&1).remaining()), (units, units), "{name}");
            if joint {
                assert!(
                    AllOf::new((direct.on().cost(units + 1), keyed.on(&1).cost(units + 1)))
                        .check()
                        .is_denied()
                );
            } else {
                assert!(direct.check_n(units + 1).is_denied() && keyed.check_n(&1, units + 1).is_denied());
            }
            assert!(keyed.contains(&1), "{name}: the denial began the key");
            let later = clock.now() + refill;
            assert_eq!(
                (direct.at(later).peek().remaining(), keyed.at(later).peek(&1).remaining()),
                (burst, burst),
                "{name}"
            );
        }
        let more = build(algorithm, &clock).first_fill(u64::MAX).direct();
        assert_eq!(more.peek().remaining(), burst, "{name}: at most the burst");
    }
    let minute = Duration::from_secs(60);
    begins(Gcra::new(QUOTA), 0, minute);
    begins(Gcra::new(QUOTA), 4, minute);
    begins(LeakyBucketMeter::new(QUOTA), 4, minute);
    begins(LeakyBucketQueue::new(QUOTA), 4, minute);
    begins(MinimumSpacing::new(minute), 0, minute);
    let blocked = Blocked::new(QUOTA, Block::of(Duration::from_secs(1)));
    begins(blocked, 4, minute + Duration::from_secs(1));
    let _: fn(CalendarWindow) -> FirstFill<CalendarWindow> =
        |window| build(window, &ManualClock::default()).first_fill(1).direct().algorithm().clone();
}

/// Forgetting: a full key that is removed begins with `k` again, and so does one that a cap forgets.
// G156
#[test]
fn forgotten_key_begins_again() {
    let clock = ManualClock::new(START);
    let keyed = build(Gcra::new(QUOTA), &clock).first_fill(2).keyed::<u64>();
    assert!(keyed.check_n(&1, 2).is_allowed());
    clock.advance(Duration::from_secs(600));
    assert_eq!(keyed.peek(&1).remaining(), 6);
    keyed.retain_active();
    assert_eq!(keyed.peek(&1).remaining(), 2);

    let capped = |when_full| {
        let capped = build(Gcra::new(QUOTA), &clock).first_fill(0).max_keys(1, when_full).keyed::<u64>();
        assert!(capped.check(&1).is_denied() && capped.contains(&1));
        (capped.check(&2).outcome(), capped.contains(&2), capped.len())
    };
    assert_eq!(capped(WhenFull::Forget), (Outcome::Denied, true, 1));
    assert_eq!(capped(WhenFull::Deny), (Outcome::Denied, false, 1));
    assert_eq!(capped(WhenFull::Admit), (Outcome::Allowed, false, 1), "or it would never refill");
}

/// A change of the quota and a snapshot keep keys that owe; the others begin with `k`.
// G156
#[test]
fn changes_and_snapshots_keep_keys_that_owe() {
    let clock = ManualClock::new(START);
    let make = || build(Gcra::new(QUOTA), &clock).first_fill(2).keyed::<u64>();
    let keyed = make();
    assert!(keyed.check(&1).is_allowed());
    let restored = make();
    restored.restore(&keyed.snapshot()).unwrap();
    assert_eq!((restored.peek(&1).remaining(), restored.peek(&2).remaining()), (1, 2));
    let changing = keyed.adjustable();
    changing.set_quota(&QUOTA, Carry::AsIs).unwrap();
    assert_eq!((changing.peek(&1).remaining(), changing.peek(&2).remaining()), (1, 2));
    assert!(changing.contains(&1) && !changing.contains(&2) && changing.len() == 1);
    changing.turn_off();
    changing.set_quota(&QUOTA, Carry::AsIs).unwrap();
    assert_eq!(changing.peek(&1).remaining(), 2, "a limiter that is turned on begins with its first fill");
}

/// Only a key with a state has spent anything.
// G156
#[test]
fn reset_of_a_new_key_finds_nothing() {
    let clock = ManualClock::new(START);
    let keyed = build(Gcra::new(QUOTA), &clock).first_fill(2).keyed::<u64>().adjustable();
    assert!(!keyed.reset(&1));
    assert!(keyed.check(&1).is_allowed() && keyed.reset(&1) && !keyed.reset(&1));
    assert!(keyed.check(&1).is_allowed());
    keyed.set_quota(&Quota::per_minute(60), Carry::AsIs).unwrap();
    assert!(keyed.reset(&1) && !keyed.reset(&1));
}

/// At the cap, a key that has just got its units keeps them for a second, or two clients could keep each other out.
// G156
#[test]
fn full_key_keeps_its_place_at_the_cap_for_a_second() {
    for when_full in [WhenFull::Deny, WhenFull::Admit] {
        let clock = ManualClock::new(START);
        let quota = Quota::per_minute(6).burst(1);
        let keyed = build(Gcra::new(quota), &clock).first_fill(0).max_keys(1, when_full).keyed::<u64>();
        let first = keyed.check(&1);
        assert_eq!(first.retry_after(), Some(Duration::from_secs(10)));
        if when_full == WhenFull::Deny {
            assert_eq!(keyed.check(&2).retry_after(), Some(Duration::from_secs(11)));
        }
        clock.advance(Duration::from_secs(10));
        let _ = keyed.check(&2);
        assert!(keyed.contains(&1) && !keyed.contains(&2));
        clock.advance(Duration::from_millis(999));
        let _ = keyed.check(&2);
        assert!(keyed.contains(&1) && keyed.peek(&1).is_allowed());
        clock.advance(Duration::from_millis(1));
        assert!(keyed.check(&2).is_denied() && keyed.contains(&2) && !keyed.contains(&1));
    }
}
