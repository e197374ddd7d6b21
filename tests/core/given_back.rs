//! `give_back` takes back units without the decision that charged them. `charges_oracle.rs` compares it with the oracles
//! of all algorithms; these tests are about stores, and about what cannot come back.

use std::time::Duration;

use tollgate::joint::AllOf;
use tollgate::{
    Algorithm, Block, Blocked, Carry, Decision, FixedWindow, Gcra, ManualClock, Overflow, Quota, RateLimiter,
    SlidingLog, StoreKind, Timestamp, check_all,
};
use tollgate_testing::kinds::ALL;
use tollgate_testing::oracle::Spec;
use tollgate_testing::subjects::direct;

const TEN: Quota = Quota::per_hour(10);

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(1_700_000_000))
}

// G150
#[test]
fn units_return_up_to_a_full_burst() {
    let gcra = || RateLimiter::builder(Gcra::new(TEN)).clock(clock());
    let keyed = gcra().keyed::<String>();
    let compact = gcra().compact().unwrap();
    let any = RateLimiter::any(TEN).clock(clock()).build::<String>(StoreKind::Keyed).unwrap();
    let adjustable = gcra().keyed::<String>().adjustable();
    macro_rules! each {
        ($($limiter:ident),+) => {$(
            assert_eq!($limiter.give_back("alice", 5), 0, "a new key owes nothing");
            assert!($limiter.check_n("alice", 8).is_allowed());
            assert_eq!($limiter.give_back("alice", 0), 0);
            assert_eq!($limiter.give_back("alice", 3), 3);
            assert_eq!($limiter.peek("alice").remaining(), 5);
            assert_eq!($limiter.give_back("alice", u64::MAX), 5);
            let full = $limiter.peek("alice");
            assert_eq!((full.remaining(), full.reset_after()), (10, Duration::ZERO));
        )+};
    }
    each!(keyed, compact, any, adjustable);
    let debt = gcra().direct();
    assert_eq!(debt.charge_unchecked(25).charged(), 25);
    assert_eq!((debt.give_back(14), debt.peek().remaining()), (14, 0));
    assert_eq!((debt.give_back(100), debt.peek().remaining()), (11, 10));
}

// G150
#[test]
fn extreme_times_and_units_stay_total() {
    for kind in ALL {
        for now in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let limiter = direct(kind, Spec::new(3, 1_000_000_007)).unwrap();
            let before = limiter.at(now).peek_n(0, 0).remaining();
            let charged = limiter.at(now).take(0, 3).charged();
            let back = limiter.at(now).give_back(0, u64::MAX);
            assert!(back <= 3, "{kind:?} at {now}: {back} of {charged}");
            assert!(limiter.at(now).peek_n(0, 0).remaining() <= before.max(3), "{kind:?} at {now}");
            assert!(limiter.at(u64::MAX - now).give_back(0, u64::MAX) <= 3);
        }
    }
}

/// The states of these limiters cannot lower a count of one key.
// G150
#[test]
fn logs_sketches_and_inherited_debts_return_nothing() {
    let log = RateLimiter::builder(SlidingLog::new(TEN)).clock(clock()).keyed::<String>();
    let sketch = RateLimiter::builder(FixedWindow::new(TEN)).clock(clock()).sketch().unwrap();
    let inherit = RateLimiter::builder(Gcra::new(TEN)).clock(clock()).overflow(Overflow::Inherit);
    let inherit = inherit.compact().unwrap();
    macro_rules! each {
        ($($limiter:ident),+) => {$(
            assert!($limiter.check_n("alice", 8).is_allowed());
            assert_eq!($limiter.give_back("alice", 3), 0);
            assert_eq!($limiter.peek("alice").remaining(), 2);
        )+};
    }
    each!(log, sketch, inherit);
}

// G150
#[test]
fn key_in_block_gets_nothing_back() {
    let blocked = Blocked::new(TEN, Block::of(Duration::from_secs(60)));
    let limiter = RateLimiter::builder(blocked).clock(clock()).keyed::<String>();
    assert!(limiter.check_n("mallory", 9).is_allowed());
    assert_eq!(limiter.give_back("mallory", 1), 1);
    assert!(limiter.check_n("mallory", 3).is_block());
    assert_eq!(limiter.give_back("mallory", 5), 0);
    assert_eq!(limiter.peek("mallory").retry_after(), Some(Duration::from_secs(60)));
}

// G150
#[test]
fn held_units_are_left_to_their_holders() {
    let limiter = RateLimiter::builder(Gcra::new(TEN)).clock(clock()).keyed::<u64>().with_holds(8).unwrap();
    let hold = limiter.hold(&7, 4, Duration::from_secs(60)).unwrap();
    assert!(limiter.check_n(&7, 3).is_allowed());
    assert_eq!(limiter.give_back(&7, 10), 3);
    assert_eq!(limiter.peek(&7).remaining(), 6);
    drop(hold);
    assert_eq!(limiter.peek(&7).remaining(), 10);
}

/// Cause: a key that was not checked since a change is not in the new store yet.
// G150
#[test]
fn debts_of_an_older_quota_come_back() {
    let limiter = RateLimiter::builder(Gcra::new(TEN)).clock(clock()).keyed::<String>().adjustable();
    assert!(limiter.check_n("alice", 8).is_allowed());
    limiter.set_quota(&Quota::per_hour(20), Carry::Used).unwrap();
    assert_eq!(limiter.give_back("alice", 3), 3);
    assert_eq!(limiter.peek("alice").remaining(), 15);
}

// G150
#[test]
fn joint_limits_each_get_their_cost_back() {
    let (hour, day) = (RateLimiter::new(TEN), RateLimiter::direct(FixedWindow::new(Quota::per_day(100))));
    let now = Timestamp::from_secs(1_700_000_000);
    let limits = AllOf::new((hour.on("alice").cost(2), day.on().cost(30))).at(now);
    assert!(limits.check().is_allowed());
    limits.give_back();
    assert_eq!((hour.at(now).peek("alice").remaining(), day.at(now).peek().remaining()), (10, 100));
    assert!(check_all((hour.on("alice"), day.on())).is_allowed());
}

// G150
#[test]
fn units_of_stripes_do_not_come_back_before_they_are_spent() {
    let limiter = RateLimiter::builder(Gcra::new(Quota::per_hour(1_000))).clock(clock()).striped();
    // Cause: a check that leased a block said that it charged nothing. A caller that added up the charges had 93 of 100.
    let spent: u64 = (0..100).map(|_| limiter.check().charged()).sum();
    assert_eq!(spent, 100);
    assert_eq!(limiter.give_back(1_000), 100);
    let left: u64 = std::iter::from_fn(|| Some(limiter.check().charged()).filter(|units| *units > 0)).sum();
    assert_eq!(left, 1_000);
}

/// The turns that callers were given do not move: only the requests after them come earlier.
// G150
#[test]
fn reserved_turns_keep_their_times() {
    let pace = Gcra::new(Quota::per_second(1).burst(1));
    let limiter = RateLimiter::builder(pace).clock(clock()).direct();
    let reserve = || limiter.reserve(1, Duration::from_secs(9)).delay().as_secs();
    let turns: Vec<_> = (0..4).map(|_| reserve()).collect();
    assert_eq!(turns, [0, 1, 2, 3]);
    assert_eq!((limiter.give_back(1), reserve(), reserve()), (1, 3, 4));
}

fn remaining<A: Algorithm>(algorithm: A, before: u64, after: u64) -> (u64, u64) {
    let limiter = RateLimiter::direct(algorithm);
    let taken: Decision = limiter.at(Timestamp::from_secs(before)).take(6);
    assert_eq!(taken.charged(), 6);
    let at = limiter.at(Timestamp::from_secs(after));
    (at.give_back(6), at.peek_n(0).remaining())
}

/// Windows give back what the present one counts, and nothing of those before it.
// G150
#[test]
fn ended_windows_keep_their_counts() {
    let quota = Quota::per_minute(10);
    assert_eq!(remaining(FixedWindow::new(quota), 59, 59), (6, 10));
    assert_eq!(remaining(FixedWindow::new(quota), 59, 60), (0, 10));
    assert_eq!(remaining(tollgate::SlidingWindow::new(quota), 59, 59), (6, 10));
    assert_eq!(remaining(tollgate::SlidingWindow::new(quota), 59, 60), (0, 4));
    assert_eq!(remaining(tollgate::SubWindow::new(quota, 6), 9, 10), (0, 4));
}

/// A key that owes nothing may be removed. What it owed before the change stays given back.
// G150
#[test]
fn units_given_back_after_a_change_stay_back() {
    let gcra = || RateLimiter::builder(Gcra::new(TEN)).clock(clock());
    let keyed = gcra().keyed::<String>().adjustable();
    assert!(keyed.check_n("alice", 8).is_allowed() && keyed.check_n("bob", 8).is_allowed());
    for limit in [20, 30] {
        keyed.set_quota(&Quota::per_hour(limit), Carry::Used).unwrap();
    }
    assert_eq!(keyed.give_back("alice", u64::MAX), 8);
    keyed.retain_active();
    assert_eq!((keyed.peek("alice").remaining(), keyed.peek("bob").remaining()), (30, 22));
    assert_eq!(keyed.give_back("bob", 3), 3);
    assert_eq!(keyed.peek("bob").remaining(), 25);
}
