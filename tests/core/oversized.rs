//! `check_oversized` admits a cost above the burst if nothing is owed. `charges_oracle.rs` compares it with the oracles of all
//! algorithms; these tests are about stores, and about what cannot owe.

use std::time::Duration;

use tollgate::joint::AllOf;
use tollgate::{
    Carry, Clock, Decision, FixedWindow, Gcra, ManualClock, Overflow, Quota, RateLimiter, SlidingLog,
    SlidingWindow, StoreKind, SubWindow, Timestamp, TokenBucket,
};

const SECOND: Duration = Duration::from_secs(1);
/// A unit a second, four at once.
const RATE: Quota = Quota::per_minute(60).burst(4);

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(1_700_000_000))
}

/// Checks that a cost of ten goes, and that the next requests wait until its debt is paid.
fn debt_is_paid(clock: &ManualClock, check: impl Fn(u64) -> Decision, oversized: impl Fn(u64) -> Decision) {
    assert!(check(10).is_never());
    assert!(oversized(4).is_allowed(), "a cost up to the burst is an ordinary check");
    let busy = oversized(10);
    assert_eq!((busy.is_never(), busy.retry_after()), (false, Some(4 * SECOND)));
    assert_eq!((busy.cost(), busy.charged()), (10, 0));
    clock.advance(4 * SECOND - Duration::from_nanos(1));
    assert!(oversized(10).is_denied());
    clock.advance(Duration::from_nanos(1));
    let large = oversized(10);
    assert_eq!((large.is_allowed(), large.charged(), large.delay()), (true, 10, 6 * SECOND));
    assert_eq!(check(1).retry_after(), Some(7 * SECOND));
    assert_eq!(oversized(11).retry_after(), Some(10 * SECOND));
    clock.advance(7 * SECOND);
    assert!(check(1).is_allowed() && check(1).is_denied());
}

// G152
#[test]
fn cost_above_burst_passes_an_idle_limiter() {
    let c = clock();
    let gcra = || RateLimiter::builder(Gcra::new(RATE)).clock(c.clone());
    let direct = gcra().direct();
    debt_is_paid(&c, |n| direct.check_n(n), |n| direct.check_oversized(n));
    let direct = gcra().direct();
    debt_is_paid(&c, |n| direct.at(c.now()).check_n(n), |n| direct.at(c.now()).check_oversized(n));
    macro_rules! each {
        ($($limiter:expr),+) => {$({
            let limiter = $limiter;
            debt_is_paid(&c, |n| limiter.check_n("alice", n), |n| limiter.check_oversized("alice", n));
            debt_is_paid(&c, |n| limiter.at(c.now()).check_n("bob", n), |n| limiter.at(c.now()).check_oversized("bob", n));
        })+};
    }
    each!(
        gcra().keyed::<String>(),
        gcra().overdraft(16).compact().unwrap(),
        gcra().overdraft(16).overflow(Overflow::Forget).compact().unwrap(),
        gcra().keyed::<String>().adjustable(),
        gcra().keyed::<String>().with_holds(8).unwrap(),
        RateLimiter::any(RATE).clock(c.clone()).build::<String>(StoreKind::Keyed).unwrap()
    );
}

/// Windows drop a debt at their ends, so a cost above the limit would be admitted at any rate.
// G152
#[test]
fn limits_that_drop_debts_admit_no_more_than_the_limit() {
    let build = |clock| RateLimiter::builder(FixedWindow::new(RATE)).clock(clock);
    let sketch = build(clock()).sketch().unwrap();
    assert!(
        sketch.check_oversized("alice", 61).is_never() && sketch.check_oversized("alice", 60).is_allowed()
    );
    let compact = build(clock()).overdraft(100).compact().unwrap();
    assert!(compact.check_oversized("alice", 61).is_never());
    macro_rules! each {
        ($($algorithm:expr),+) => {$({
            let limiter = RateLimiter::builder($algorithm).clock(clock()).direct();
            assert!(limiter.check_oversized(61).is_never());
            assert_eq!(limiter.peek().remaining(), 60);
        })+};
    }
    each!(
        FixedWindow::new(RATE),
        FixedWindow::from_first_use(RATE),
        SlidingWindow::new(RATE),
        SubWindow::new(RATE, 4),
        SlidingLog::new(RATE)
    );
}

// G152
#[test]
fn compact_words_without_room_for_the_debt_refuse_it() {
    for (overdraft, largest) in [(0, 4), (3, 7), (16, 20)] {
        let limiter =
            RateLimiter::builder(Gcra::new(RATE)).clock(clock()).overdraft(overdraft).compact().unwrap();
        assert!(limiter.check_oversized("alice", largest + 1).is_never());
        assert_eq!(limiter.peek("alice").remaining(), 4, "nothing was charged");
        assert_eq!(limiter.check_oversized("alice", largest).charged(), largest);
        assert!(limiter.check_oversized("alice", largest + 1).is_never(), "no wait helps");
    }
}

// G152
#[test]
fn batches_pay_debts_at_their_ends() {
    let c = clock();
    let bucket = TokenBucket::interval(Quota::new(2, SECOND).burst(4));
    let limiter = RateLimiter::builder(bucket).clock(c.clone()).direct();
    assert_eq!(limiter.check_oversized(9).delay(), 3 * SECOND);
    assert_eq!(limiter.check_oversized(9).retry_after(), Some(5 * SECOND));
    c.advance(3 * SECOND);
    assert_eq!(limiter.take(9).charged(), 1);
}

// G152
#[test]
fn extreme_costs_charge_all_or_nothing() {
    for now in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        for cost in [5, u64::MAX / 3, u64::MAX - 1, u64::MAX] {
            let limiter = RateLimiter::builder(Gcra::new(RATE)).clock(clock()).direct();
            let decision = limiter.at(Timestamp::from_nanos(now)).check_oversized(cost);
            let is_whole = decision.is_allowed() && decision.charged() == cost;
            assert!(
                is_whole || decision.is_never() && decision.charged() == 0,
                "{cost} at {now}: {decision:?}"
            );
        }
    }
}

/// The debt of a change is paid under the new quota.
// G152
#[test]
fn change_of_quota_keeps_the_debt() {
    let limiter = RateLimiter::builder(Gcra::new(RATE)).clock(clock()).keyed::<String>().adjustable();
    assert!(limiter.check_oversized("alice", 10).is_allowed());
    limiter.set_quota(&Quota::per_minute(120).burst(4), Carry::AsIs).unwrap();
    assert_eq!(limiter.check("alice").retry_after(), Some(SECOND * 7 / 2));
}

// G152
#[test]
fn joint_call_charges_all_limits_or_none() {
    let now = Timestamp::from_secs(1_700_000_000);
    let (one, all) = (RateLimiter::keyed::<u64, _>(Gcra::new(RATE)), RateLimiter::direct(Gcra::new(RATE)));
    let window = RateLimiter::direct(FixedWindow::new(RATE));
    let message = AllOf::new((one.on(&7).cost(10), all.on().cost(10))).at(now);
    assert!(message.check().is_never());
    assert!(message.check_oversized().is_allowed());
    let next = AllOf::new((one.on(&8).cost(10), all.on().cost(10))).at(now).check_oversized();
    assert_eq!((next.denied_by(), next.retry_after()), (Some(1), Some(10 * SECOND)));
    assert_eq!(one.at(now).peek(&8).remaining(), 4, "no limit is charged");
    let both = AllOf::new((one.on(&9).cost(10), window.on().cost(61))).at(now);
    assert!(both.check_oversized().is_never());
    assert_eq!((one.at(now).peek(&9).remaining(), window.at(now).peek().remaining()), (4, 60));
}

/// As for any charge, time pays a large one from its beginning on, so later charges do not hinder its refund.
// G152
#[test]
fn charges_beyond_the_burst_come_back_after_later_ones() {
    let c = clock();
    let gcra = || RateLimiter::builder(Gcra::new(RATE)).clock(c.clone());
    macro_rules! each {
        ($($limiter:expr),+) => {$({
            let limiter = $limiter;
            for force in [false, true] {
                let large = match force {
                    true => limiter.charge_unchecked(&7, 100),
                    false => limiter.check_oversized(&7, 100),
                };
                assert_eq!((large.is_allowed(), large.charged()), (true, 100));
                assert_eq!(limiter.charge_unchecked(&7, 1).charged(), 1);
                c.advance(3 * SECOND);
                assert_eq!(limiter.refund(&7, &large), 97, "by force: {force}");
                c.advance(SECOND);
                assert_eq!(limiter.peek(&7).remaining(), 4, "no debt stays");
            }
        })+};
    }
    each!(
        gcra().keyed::<u64>(),
        gcra().overdraft(200).compact().unwrap(),
        gcra().overdraft(200).overflow(Overflow::Forget).compact().unwrap()
    );
}
