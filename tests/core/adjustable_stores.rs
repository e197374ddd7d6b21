//! Limiters that were used before they became adjustable, and what an adjustable limiter can do beside its checks.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use tollgate::{
    Algorithm as _, AnyLimiter, Carry, Clock, Gcra, ManualClock, MinimumSpacing, Quota, RateLimiter,
    StoreKind, Timestamp, TokenBucket, WhenFull,
};
use tollgate_testing::build;

/// The start of a day.
const START: Timestamp = Timestamp::from_secs(19_700 * 86_400);

fn clock() -> ManualClock {
    ManualClock::new(START)
}

/// Regression test. A debt beyond the burst from before the limiter became adjustable was paid at the old rate until it
/// was a burst, and [`Carry::Used`] did not limit it.
// G49
#[test]
fn debt_from_before_adjustable_is_paid_at_new_rate() {
    let clock = clock();
    let start = || build(Gcra::new(Quota::per_second(100)), &clock);
    for (rate, carry, left_s) in [
        (10, Carry::AsIs, 336),
        (1_000, Carry::AsIs, 4),
        (10, Carry::Proportional, 34),
        (10, Carry::Used, 1),
        (1_000, Carry::Used, 1),
    ] {
        let quota = Quota::per_second(rate);
        macro_rules! paid {
            ($what:literal, $limiter:expr, [$($key:expr)?], |$it:ident| $charge:expr) => {{
                let $it = $limiter;
                $charge;
                let limiter = $it.adjustable();
                limiter.set_quota(&quota, carry).unwrap();
                let wait = || limiter.peek($($key)?).retry_after().unwrap();
                let first = wait();
                let seconds = u64::try_from(first.as_nanos().div_ceil(1_000_000_000)).unwrap();
                assert_eq!(seconds, left_s, "{}: {rate}/s, {carry:?}, {first:?}", $what);
                clock.advance(Duration::from_secs(left_s));
                assert_eq!(wait(), Duration::ZERO, "{}: {rate}/s, {carry:?}", $what);
            }};
        }
        paid!("direct", start().direct(), [], |it| it.charge_unchecked(3_450));
        paid!("keyed", start().keyed::<u64>(), [&7], |it| {
            it.charge_unchecked(&7, 3_450);
            assert!(it.check_n(&8, 100).is_allowed(), "another key owes a burst");
        });
        paid!("keyed with a quota for one key", start().keyed::<u64>(), [&7], |it| {
            let plan = it.algorithm().requota(&Quota::per_second(100).burst(3_450)).unwrap();
            assert!(it.check_with(&7, 3_450, &plan).is_allowed());
        });
        // In its own units, this debt is less than the limiter's burst.
        let slow = Quota::per_second(2).burst(69);
        paid!("keyed with a slower quota for one key", start().keyed::<u64>(), [&7], |it| {
            let plan = it.algorithm().requota(&slow).unwrap();
            assert!(it.check_with(&7, 69, &plan).is_allowed());
        });
        let bucket = build(TokenBucket::new(Quota::per_second(100)), &clock).direct();
        paid!("direct with a slower quota", bucket, [], |it| {
            let plan = it.algorithm().requota(&slow).unwrap();
            assert!(it.check_with(69, &plan).is_allowed());
        });
        let compact = start().capacity(4_096).overdraft(4_000).compact().unwrap();
        paid!("compact", compact, [&7], |it| it.charge_unchecked(&7, 3_450));
        let saved = start().keyed::<u64>();
        saved.charge_unchecked(&7, 3_450);
        paid!("restored", start().keyed::<u64>(), [&7], |it| it.restore(&saved.snapshot()).unwrap());
    }
}

/// A spacing has a burst of one event. A longer spacing of one call, and each event that is charged ahead of its turn, leave
/// a debt of several.
// G49
#[test]
fn spaced_debt_from_before_adjustable_is_paid_at_new_rate() {
    let clock = clock();
    let spaced = || build(MinimumSpacing::new(Duration::from_secs(1)), &clock).direct();
    let charged = spaced();
    for _ in 0..30 {
        let _ = charged.charge_unchecked(1);
    }
    let longer = spaced();
    let plan = longer.algorithm().requota(&Quota::per_minute(2)).unwrap();
    assert!(longer.check_with(1, &plan).is_allowed());
    for limiter in [charged, longer].map(RateLimiter::adjustable) {
        limiter.set_quota(&Quota::per_second(10), Carry::AsIs).unwrap();
        assert_eq!(limiter.peek().retry_after(), Some(Duration::from_secs(3)));
    }
}

/// A change moves no keys. The figures still have all keys that owe.
#[test]
fn adjustable_compact_limiter_has_figures_and_resets() {
    let clock = clock();
    let limiter = build(Gcra::new(Quota::per_hour(5)), &clock).capacity(4_096).compact().unwrap();
    let (slots, bytes) = (limiter.gauges().slots, limiter.state_bytes());
    let limiter = limiter.adjustable();
    assert!((0..20).all(|key| limiter.check_n(&key, 5).is_allowed()));
    for (limit, carry, live) in [(5, Carry::AsIs, 20), (10, Carry::Used, 20), (10, Carry::Reset, 0)] {
        limiter.set_quota(&Quota::per_hour(limit), carry).unwrap();
        assert_eq!((limiter.live_slots(), limiter.gauges().slots), (live, slots), "{carry:?}");
        assert_eq!(limiter.state_bytes(), bytes);
        assert_eq!(limiter.fill() > 0.0, live > 0, "{carry:?}");
        assert_eq!(limiter.live_slots(), live, "{carry:?}, once more");
    }
    assert!(limiter.check_n(&1, 10).is_allowed() && limiter.check_n(&2, 10).is_allowed());
    limiter.set_quota(&Quota::per_hour(10).burst(5), Carry::Used).unwrap();
    assert!(limiter.reset(&1) && !limiter.reset(&1) && !limiter.reset(&3));
    assert_eq!((limiter.peek(&1).remaining(), limiter.peek(&2).remaining()), (5, 0));
    limiter.set_quota(&Quota::per_hour(10), Carry::AsIs).unwrap();
    assert_eq!((limiter.peek(&1).remaining(), limiter.peek(&2).remaining()), (10, 0));
    limiter.clear();
    assert_eq!((limiter.live_slots(), limiter.peek(&2).remaining()), (0, 10));
}

/// Cause: the figures of a limiter took over the debts that were unpaid at their own time. Trigger: figures for a later time.
/// Symptom: each key had a full burst again.
// G49
#[test]
fn figures_of_a_later_time_forgive_nothing() {
    let clock = clock();
    let later = clock.now() + Duration::from_secs(61);
    let compact =
        build(Gcra::new(Quota::per_minute(60)), &clock).capacity(64).compact().unwrap().adjustable();
    let keyed = build(Gcra::new(Quota::per_minute(60)), &clock).keyed::<u64>().adjustable();
    assert!(compact.check_n(&1, 60).is_allowed() && keyed.check_n(&1, 60).is_allowed());
    compact.set_quota(&Quota::per_minute(60), Carry::AsIs).unwrap();
    keyed.set_quota(&Quota::per_minute(60), Carry::AsIs).unwrap();
    let _ = (compact.at(later).live_slots(), keyed.at(later).len());
    assert_eq!((compact.peek(&1).remaining(), keyed.peek(&1).remaining()), (0, 0));
}

/// A debt of a key that no request has looked up since the change is forgotten, too.
// G49
#[test]
fn reset_forgets_debts_under_old_quotas() {
    let clock = clock();
    let keyed = build(Gcra::new(Quota::per_day(60)), &clock).keyed::<u64>().adjustable();
    assert!(keyed.check_n(&1, 60).is_allowed() && keyed.check_n(&2, 60).is_allowed());
    keyed.set_quota(&Quota::per_day(60).burst(40), Carry::Used).unwrap();
    let later = clock.now() + Duration::from_secs(60);
    assert!(keyed.at(later).reset(&1) && !keyed.reset(&1));
    assert_eq!((keyed.peek(&1).remaining(), keyed.peek(&2).remaining()), (40, 0));
}

/// A keyed limiter with room for a number of keys, whose limit can change.
fn capped(most: usize, when_full: WhenFull) -> AnyLimiter<String, ManualClock> {
    let build = RateLimiter::any(Quota::per_hour(10)).clock(clock()).max_keys(most, when_full);
    build.build(StoreKind::Keyed).unwrap()
}

fn change(limiter: &AnyLimiter<String, ManualClock>) {
    limiter.set_limit(limiter.limit(), Carry::AsIs).unwrap();
}

/// Regression test. The number of keys took the debts over after a change. With [`WhenFull::Admit`], a key without room counted
/// as taken over, so its debt was dropped.
// G49
#[test]
fn figure_drops_no_debt_without_room() {
    for when_full in [WhenFull::Admit, WhenFull::Deny] {
        let limiter = capped(1, when_full);
        assert!(limiter.check_n("a", 10).is_allowed());
        change(&limiter);
        assert!(limiter.check("b").is_allowed());
        assert_eq!(limiter.keys(), Some(1), "key b has the only place");
        assert!(limiter.reset("b"));
        assert!(limiter.check("a").is_denied(), "{when_full:?}: key a still owes");
    }
}

/// Regression test. The same for a second change, which takes the debts over too, and for a store in the middle, which knew
/// nothing of a key that it had admitted without room.
// G49
#[test]
fn debt_without_room_survives_more_changes() {
    let limiter = capped(1, WhenFull::Admit);
    assert!(limiter.check_n("a", 10).is_allowed());
    for other in ["b", "c", "d"] {
        change(&limiter);
        assert!(limiter.check_n(other, 10).is_allowed());
        assert!(limiter.check("a").is_allowed(), "key {other} has the only place");
    }
    change(&limiter);
    assert!(limiter.check("a").is_denied() && limiter.reset("a"));
    assert!(limiter.check("d").is_denied());
}

/// Regression test. Each figure asked for room for all keys again, if there was none for one of them.
#[test]
fn figures_after_a_change_take_keys_over_once() {
    #[derive(Clone, PartialEq, Eq)]
    struct Counted(u32);

    thread_local!(static HASHED: Cell<u32> = const { Cell::new(0) });

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            HASHED.set(HASHED.get() + 1);
            self.0.hash(state);
        }
    }

    for when_full in [WhenFull::Deny, WhenFull::Admit] {
        let build = build(Gcra::new(Quota::per_hour(1)), &clock()).max_keys(100, when_full);
        let limiter = build.keyed::<Counted>().adjustable();
        assert!((0..100).all(|key| limiter.check(&Counted(key)).is_allowed()));
        limiter.set_quota(&Quota::per_hour(1), Carry::AsIs).unwrap();
        assert!((100..200).all(|key| limiter.check(&Counted(key)).is_allowed()));
        let hashed_by_figure = || {
            HASHED.set(0);
            assert_eq!(limiter.len(), 100);
            HASHED.get()
        };
        assert!(hashed_by_figure() >= 100);
        assert_eq!(hashed_by_figure(), 0, "{when_full:?}");
    }
}

/// Regression test. A reset looked the key up by a peek, which carried the key over, and so took the room of another key.
// G49
#[test]
fn reset_carries_no_key_over() {
    let limiter = capped(1, WhenFull::Forget);
    assert!(limiter.check_n("a", 10).is_allowed());
    change(&limiter);
    assert!(limiter.check_n("b", 9).is_allowed());
    assert!(limiter.reset("a") && !limiter.reset("a"), "its debt is in the store before");
    assert_eq!((limiter.keys(), limiter.peek("b").remaining()), (Some(1), 1), "key b keeps its place");
}
