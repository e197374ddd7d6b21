//! An adjustable limiter has the verbs of its store. As long as its quota does not change, it answers as the store alone. After
//! a change to the same quota, keys that owe are the same.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    Algorithm, Builder, Carry, Class, Clock, Gcra, LeakyBucketMeter, ManualClock, Quota, RateLimiter,
    SlidingWindow, Timestamp, TokenBucket,
};
use tollgate_testing::operations::run_cases;

/// The start of a day.
const START: Timestamp = Timestamp::from_secs(19_700 * 86_400);

const CLASS: Class = Class::percent(50);

fn build<A: Algorithm>(algorithm: A, clock: &ManualClock) -> Builder<A, ManualClock> {
    RateLimiter::builder(algorithm).clock(clock.clone()).seeds([1; 4])
}

#[derive(Copy, Clone, Debug)]
enum Act {
    Check(u64, u64),
    CheckWith(u64, u64),
    CheckClass(u64, u64),
    Advance(u64),
    Reset(u64),
    Clear,
    RetainActive,
    /// To the same quota, so that all debts stay what they are.
    Change,
    Look,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..6_u64, 0..5_u64).prop_map(|(key, cost)| Act::Check(key, cost)),
        2 => (0..6_u64, 0..12_u64).prop_map(|(key, cost)| Act::CheckWith(key, cost)),
        1 => (0..6_u64, 0..4_u64).prop_map(|(key, cost)| Act::CheckClass(key, cost)),
        2 => (0..6_u64).prop_map(|units| Act::Advance(6_000 * units)),
        1 => (0..6_u64).prop_map(Act::Reset),
        1 => Just(Act::Clear),
        1 => Just(Act::RetainActive),
        2 => Just(Act::Change),
        2 => Just(Act::Look),
    ]
}

/// What the keyed limiters of this file have in common.
macro_rules! owing {
    ($limiter:expr) => {{
        let mut owing = BTreeMap::new();
        $limiter.for_each(|key, decision| {
            if decision.remaining() < decision.limit() {
                assert_eq!(owing.insert(*key, decision.remaining()), None, "each key once");
            }
        });
        owing
    }};
}

/// The other quota has the same interval, and times are whole intervals, because a change rounds a fraction of a unit up.
fn keyed_acts<A: Algorithm>(algorithm: A, own: Quota, other: Quota, acts: &[Act]) -> bool {
    let clock = ManualClock::new(START);
    let plain = build(algorithm.clone(), &clock).keyed::<u64>();
    let changing = build(algorithm, &clock).keyed::<u64>().adjustable();
    let premium = plain.algorithm().requota(&other).unwrap();
    let mut changes = 0;
    for act in acts {
        match *act {
            Act::Check(key, cost) => {
                assert_eq!(plain.check_n(&key, cost).outcome(), changing.check_n(&key, cost).outcome());
            }
            Act::CheckWith(key, cost) => {
                let (a, b) =
                    (plain.check_with(&key, cost, &premium), changing.check_with(&key, cost, &premium));
                assert_eq!((a.outcome(), a.remaining(), a.limit()), (b.outcome(), b.remaining(), b.limit()));
            }
            Act::CheckClass(key, cost) => {
                let (a, b) = (plain.check_class(&key, cost, CLASS), changing.check_class(&key, cost, CLASS));
                assert_eq!((a.outcome(), a.remaining()), (b.outcome(), b.remaining()));
            }
            Act::Advance(ms) => clock.advance(Duration::from_millis(ms)),
            Act::Reset(key) => {
                let before = plain.peek_n(&key, 0);
                let _ = plain.reset(&key);
                assert_eq!(changing.reset(&key), before.remaining() < before.limit());
            }
            Act::Clear => (plain.clear(), changing.clear()).0,
            Act::RetainActive => (plain.retain_active(), changing.retain_active()).0,
            Act::Change => {
                changing.set_quota(&own, Carry::AsIs).unwrap();
                changes += 1;
            }
            Act::Look => {
                for key in 0..6 {
                    let owes = plain.peek_n(&key, 0).remaining() < plain.peek_n(&key, 0).limit();
                    assert!(!owes || changing.contains(&key), "a key that owes is held");
                    assert!(changes > 0 || plain.contains(&key) == changing.contains(&key));
                }
                assert_eq!(owing!(plain), owing!(changing));
                assert!(changes > 0 || plain.len() == changing.len());
                assert!((owing!(plain).len()..=6).contains(&changing.len()));
                assert!(owing!(plain).is_empty() || !changing.is_empty());
                assert_eq!(changing.at(clock.now()).len(), changing.len());
                assert!(changing.state_bytes() > 0 || changing.is_empty());
            }
        }
    }
    changes > 0
}

// G49
#[test]
fn adjustable_keyed_limiter_answers_as_its_store() {
    let acts = proptest::collection::vec(act(), 1..60);
    let quota = Quota::per_minute(10);
    let gcra = |acts: Vec<Act>| keyed_acts(Gcra::new(quota), quota, quota.burst(40), &acts);
    assert!(run_cases("gcra", 400, &acts, gcra) > 0.3);
    let unchanged = act().prop_filter("no change", |act| !matches!(act, Act::Change));
    let acts = proptest::collection::vec(unchanged, 1..60);
    let window =
        |acts: Vec<Act>| keyed_acts(SlidingWindow::new(quota).strict(), quota, Quota::per_minute(40), &acts);
    let _ = run_cases("sliding window", 400, &acts, window);
}

/// A tier made before a change keeps its quota, although the words of the limiter are different ones afterwards.
// G49
#[test]
fn tier_keeps_its_quota_over_changes() {
    let clock = ManualClock::new(START);
    let limiter = build(Gcra::new(Quota::per_minute(10)), &clock).compact().unwrap().adjustable();
    let tier = limiter.tier(&Quota::per_minute(60)).unwrap();
    assert_eq!(limiter.check_with("alice", 30, &tier).remaining(), 30);
    for (limit, remaining) in [(20, 30), (7, 30), (10, 30)] {
        limiter.set_quota(&Quota::per_minute(limit), Carry::Reset).unwrap();
        assert_eq!(limiter.algorithm(), Gcra::new(Quota::per_minute(limit)));
        let decision = limiter.at(clock.now()).check_with("alice", 30, &tier);
        assert_eq!((decision.limit(), decision.remaining()), (60, remaining), "{limit}");
    }
    // Its burst takes longer than any that these words can hold, so the limiter's own quota decides.
    limiter.set_quota(&Quota::per_second(1_000), Carry::Reset).unwrap();
    assert_eq!(limiter.check_with("alice", 1, &tier).limit(), 1_000);
}

/// Debts of a tier beyond the burst are carried over, also those that the limiter's own units make long.
// G49
#[test]
fn debts_of_other_quotas_are_carried_over() {
    let clock = ManualClock::new(START);
    let keyed = build(Gcra::new(Quota::per_minute(60)), &clock).keyed::<u64>().adjustable();
    let slow = keyed.algorithm().requota(&Quota::per_minute(1).burst(10)).unwrap();
    let direct = build(Gcra::new(Quota::per_minute(60)), &clock).direct().adjustable();
    let patient = Quota::per_minute(1).burst(10);
    let compact =
        build(Gcra::new(Quota::per_minute(60)), &clock).tiers([patient]).compact().unwrap().adjustable();
    let tier = compact.tier(&patient).unwrap();
    assert!(keyed.check_with(&7, 10, &slow).is_allowed() && direct.check_with(10, &slow).is_allowed());
    assert!(compact.check_with(&7, 10, &tier).is_allowed());
    // Ten minutes are 600 units of the limiter's own quota.
    for _ in 0..2 {
        let quota = Quota::per_minute(60);
        keyed.set_quota(&quota, Carry::AsIs).unwrap();
        direct.set_quota(&quota, Carry::AsIs).unwrap();
        compact.set_quota(&quota, Carry::AsIs).unwrap();
        assert!(keyed.contains(&7) && keyed.len() == 1);
    }
    clock.advance(Duration::from_secs(540));
    assert!(keyed.check(&7).is_denied() && direct.check().is_denied() && compact.check(&7).is_denied());
    clock.advance(Duration::from_secs(62));
    assert!(
        keyed.check(&7).is_allowed()
            && direct.check_class(1, CLASS).is_allowed()
            && compact.check(&7).is_allowed()
    );
}

/// So does an algorithm, although the times of the limiter's words have other units afterwards.
// G49
#[test]
fn algorithm_keeps_its_quota_over_changes() {
    macro_rules! each {
        ($($algorithm:expr),+) => {$({
            let clock = ManualClock::new(START);
            let small = Quota::per_minute(2);
            let keyed = build($algorithm, &clock).keyed::<u64>().adjustable();
            let direct = build($algorithm, &clock).direct().adjustable();
            let plan = keyed.algorithm().requota(&small).unwrap();
            for limit in [700, 1_100, 6_000] {
                keyed.set_quota(&Quota::per_minute(limit), Carry::Reset).unwrap();
                direct.set_quota(&Quota::per_minute(limit), Carry::Reset).unwrap();
                for decision in [keyed.check_with(&7, 2, &plan), direct.check_with(2, &plan)] {
                    assert_eq!((decision.limit(), decision.remaining()), (2, 0), "{limit}");
                }
                assert!(keyed.check_with(&7, 1, &plan).is_denied() && direct.check_with(1, &plan).is_denied());
                let wait = keyed.check_with(&7, 1, &plan).retry_after().unwrap();
                assert!(wait >= Duration::from_secs(30) && wait.as_secs() == 30, "{wait:?}");
            }
        })+};
    }
    let quota = Quota::per_minute(60);
    each!(Gcra::new(quota), TokenBucket::new(quota), LeakyBucketMeter::new(quota));
}
