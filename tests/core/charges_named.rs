//! Tests for what the documentation says about unchecked charges, `take`, reservations, refunds and
//! settlements, one behaviour per test. Some are regression tests; they state cause, trigger and symptom.

use std::time::Duration;
use tollgate::{
    Algorithm, Capacity, Compact, Decision, Direct, FixedWindow, Gcra, LeakyBucketQueue, ManualClock,
    MinimumSpacing, Overflow, Quota, RateLimiter, SlidingLog, SlidingWindow, SubWindow, Timestamp,
    TokenBucket, WhenFull, check_all, joint::AllOf,
};
use tollgate_testing::build;

const SEC: Duration = Duration::from_secs(1);

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(1_700_000_000))
}

fn direct<A: Algorithm>(algorithm: A) -> (RateLimiter<Direct<A>, ManualClock>, ManualClock) {
    let clock = clock();
    (build(algorithm, &clock).direct(), clock)
}

fn compact(overflow: Overflow, overdraft: u64, slots: usize) -> RateLimiter<Compact<Gcra>, ManualClock> {
    let builder = build(Gcra::new(Quota::per_minute(6)), &clock());
    builder
        .overflow(overflow)
        .overdraft(overdraft)
        .capacity(Capacity::slots(slots))
        .compact()
        .expect("the quota fits the store")
}

fn remaining<A: Algorithm>(limiter: &RateLimiter<Direct<A>, ManualClock>) -> u64 {
    limiter.peek_n(0).remaining()
}

/// A denied `take` had the cost 1, the unit for which it waits. A caller that added up the costs took 1,002 of 3 units.
#[test]
fn denied_take_has_charged_nothing() {
    let quota = Quota::per_hour(3);
    let keyed = build(Gcra::new(quota), &clock()).keyed::<String>();
    let full = build(Gcra::new(quota), &clock()).max_keys(1, WhenFull::Deny);
    let full = full.keyed::<String>();
    assert!(full.check("bob").is_allowed());
    let compact = compact(Overflow::Spill, 0, 16);
    let windows = build(SlidingWindow::new(quota), &clock()).direct();
    let taken: [Box<dyn Fn() -> Decision>; 4] = [
        Box::new(|| keyed.take("alice", 2)),
        Box::new(|| windows.at(Timestamp::from_secs(1_700_000_000)).take(2)),
        Box::new(|| compact.take("alice", 2)),
        Box::new(|| full.take("alice", 2)),
    ];
    for (take, units) in taken.iter().zip([3, 3, 6, 0]) {
        let all: Vec<_> = (0..1_000).map(|_| take()).collect();
        assert_eq!(all.iter().map(Decision::cost).sum::<u64>(), units);
        assert_eq!(all.iter().map(Decision::charged).sum::<u64>(), units);
        let last = all.last().unwrap();
        assert!(last.is_denied() && last.retry_after().unwrap() > SEC, "{last:?}: it waits for one unit");
    }
    let forced = full.charge_unchecked("alice", 2);
    assert_eq!((forced.is_denied(), forced.cost(), forced.charged()), (true, 0, 0));
}

/// Cause: the decision of a charge says how far ahead the charge moved the arrival time. The refund took this for how
/// far ahead the arrival time still was.
///
/// Trigger: an earlier charge is refunded, so time pays this charge sooner. Symptom: a refund after the charge was
/// paid returned units of later charges.
#[test]
fn charge_paid_by_time_is_not_refunded() {
    let (limiter, clock) = direct(Gcra::new(Quota::per_second(1).burst(10)));
    let (first, second) = (limiter.check_n(5), limiter.check_n(5));
    assert_eq!(limiter.refund(&first), 5);
    clock.advance(5 * SEC);
    assert_eq!(limiter.peek().reset_after(), Duration::ZERO, "the second charge has been paid");
    assert!(limiter.check_n(10).is_allowed());
    assert_eq!(limiter.refund(&second), 0);
    assert!(limiter.check().is_denied(), "no more than ten units are admitted at once");
}

#[test]
fn window_refunds_only_in_same_window() {
    fn story<A: Algorithm>(algorithm: A, window: Duration) {
        let clock = ManualClock::new(Timestamp::from_secs(600));
        let limiter = build(algorithm, &clock).direct();
        let charges = [limiter.check_n(2), limiter.check_n(3)];
        clock.advance(window - Duration::from_nanos(1));
        assert_eq!(limiter.refund(&charges[0]), 2);
        assert_eq!(remaining(&limiter), 7);
        clock.advance(Duration::from_nanos(1));
        assert!(limiter.check().is_allowed());
        assert_eq!(limiter.refund(&charges[1]), 0, "{limiter:?}");
    }
    let quota = Quota::per_minute(10);
    story(FixedWindow::new(quota), 60 * SEC);
    story(FixedWindow::from_first_use(quota), 60 * SEC);
    story(SlidingWindow::new(quota), 60 * SEC);
    story(SubWindow::new(quota, 6), 10 * SEC);
    story(TokenBucket::aligned(quota, Timestamp::ZERO), 60 * SEC);
    story(TokenBucket::interval(quota), 60 * SEC);
}

// G44
#[test]
fn log_sketch_and_inherit_refund_nothing() {
    let (log, _) = direct(SlidingLog::new(Quota::per_minute(10)));
    assert_eq!(log.refund(&log.check_n(4)), 0);
    let window = FixedWindow::new(Quota::per_minute(10));
    let sketch = build(window, &clock()).sketch().expect("the quota fits the store");
    assert_eq!(sketch.refund("alice", &sketch.check_n("alice", 4)), 0);
    assert_eq!(
        sketch.settle("alice", &sketch.check_n("alice", 2), 3).remaining(),
        3,
        "a settlement can only charge more"
    );
    let inherit = compact(Overflow::Inherit, 0, 64);
    assert_eq!(inherit.refund("alice", &inherit.check_n("alice", 4)), 0);
}

#[test]
fn evicted_key_is_not_refunded() {
    let limiter = compact(Overflow::Spill, 0, 16);
    let charge = limiter.check_n("alice", 2);
    for other in 0..200 {
        let _ = limiter.check_n(&other, 3);
    }
    let state = limiter.peek("alice").remaining();
    assert_eq!(limiter.refund("alice", &charge), 0);
    assert_eq!(limiter.peek("alice").remaining(), state);
    // The refund returns nothing even after the key has come back.
    let _ = limiter.check("alice");
    assert_eq!(limiter.refund("alice", &charge), 0);
}

/// A decision that charged nothing has nothing to give back.
#[test]
fn peeks_and_denials_refund_nothing() {
    fn story<A: Algorithm>(algorithm: A) {
        let (limiter, _) = direct(algorithm);
        assert!(limiter.check_n(7).is_allowed());
        let (look, denied, nothing) = (limiter.peek_n(3), limiter.check_n(8), limiter.check_n(0));
        assert!(look.is_allowed() && denied.is_denied());
        assert_eq!([look, denied, nothing].map(|charge| limiter.refund_n(&charge, 3)), [0; 3]);
        assert_eq!(remaining(&limiter), 3);
        assert_eq!(
            limiter.settle(&denied, 2).remaining(),
            1,
            "a settlement of a denied request charges all units that were used"
        );
        AllOf::new([limiter.on().cost(1)]).refund(&AllOf::new([limiter.on().cost(1)]).peek());
        assert_eq!(remaining(&limiter), 1);
        let joint = check_all([limiter.on().cost(1)]);
        AllOf::new([limiter.on().cost(1)]).refund(&joint);
        assert_eq!(remaining(&limiter), 1);
    }
    let quota = Quota::per_minute(10);
    story(Gcra::new(quota));
    story(FixedWindow::new(quota));
    story(FixedWindow::from_first_use(quota));
    story(SlidingWindow::new(quota));
    story(SubWindow::new(quota, 6));
    story(TokenBucket::interval(quota));

    let builder = build(FixedWindow::new(Quota::per_minute(10)), &clock());
    let capped = builder.max_keys(1, WhenFull::Admit).keyed::<u64>();
    assert!(capped.check(&1).is_allowed());
    let beyond = capped.check_n(&2, 5);
    assert!(beyond.is_allowed() && !capped.contains(&2));
    capped.reset(&1);
    assert!(capped.check_n(&2, 8).is_allowed());
    assert_eq!(capped.refund(&2, &beyond), 0, "a key admitted above the cap was not charged");
    assert_eq!(capped.peek_n(&2, 0).remaining(), 2);
}

#[test]
fn only_last_reservation_is_refunded() {
    let (limiter, clock) = direct(Gcra::new(Quota::per_second(1).burst(1)));
    let turns: Vec<Decision> = (0..4).map(|_| limiter.reserve(1, 60 * SEC)).collect();
    let state = limiter.peek().reset_after();
    assert_eq!(limiter.refund(&turns[2]), 0, "a refund of a turn in the middle frees nothing");
    assert_eq!(limiter.peek().reset_after(), state);
    clock.advance(SEC / 2);
    assert_eq!(limiter.refund(&turns[3]), 1, "a refund of the last turn frees it");
    assert_eq!(limiter.reserve(1, 60 * SEC).delay(), SEC * 5 / 2, "the next reservation gets the freed turn");

    let (queue, _) = direct(LeakyBucketQueue::new(Quota::per_second(1).burst(3)));
    let [first, second] = [queue.check(), queue.check()];
    assert_eq!(queue.refund(&first), 0);
    assert_eq!(queue.refund(&second), 1);
    assert_eq!(queue.check().delay(), SEC);

    let (posts, clock) = direct(MinimumSpacing::new(2 * SEC));
    let [first, second] = [posts.reserve(1, 60 * SEC), posts.reserve(1, 60 * SEC)];
    assert_eq!(posts.refund(&first), 0);
    assert_eq!(posts.refund(&second), 1);
    clock.advance(2 * SEC);
    assert!(posts.check().is_allowed());

    let (bucket, _) = direct(TokenBucket::interval(Quota::per_minute(2)));
    assert!(bucket.check_n(2).is_allowed());
    let turns: Vec<Decision> = (0..3).map(|_| bucket.reserve(1, 600 * SEC)).collect();
    assert_eq!(turns.iter().map(Decision::delay).collect::<Vec<_>>(), [60 * SEC, 60 * SEC, 120 * SEC]);
    assert_eq!(bucket.refund(&turns[0]), 0);
    assert_eq!(bucket.refund(&turns[2]), 1);
    assert_eq!(bucket.reserve(1, 600 * SEC).delay(), 120 * SEC);

    let posts = RateLimiter::builder(MinimumSpacing::new(2 * SEC)).clock(clock).overdraft(3).compact();
    let posts = posts.expect("the quota fits the store");
    let turns: Vec<Decision> = (0..3).map(|_| posts.reserve("alice", 1, 60 * SEC)).collect();
    assert_eq!(posts.refund("alice", &turns[1]), 0);
    assert_eq!(posts.refund("alice", &turns[2]), 1);
    assert_eq!(posts.reserve("alice", 1, 60 * SEC).delay(), 4 * SEC);
}

#[test]
fn compact_overdraft_bounds_debt_and_reservations() {
    let none = compact(Overflow::Spill, 0, 64);
    assert!(none.check_n("alice", 6).is_allowed());
    assert!(none.reserve("alice", 1, Duration::MAX).is_denied());
    assert_eq!(none.charge_unchecked("alice", 3).cost(), 0);

    let some = compact(Overflow::Spill, 4, 64);
    assert_eq!(some.charge_unchecked("alice", u64::MAX).cost(), 10);
    assert_eq!(some.peek("alice").retry_after(), Some(50 * SEC));
    assert_eq!(some.charge_unchecked("bob", 8).delay(), 20 * SEC);
    assert_eq!(some.reserve("bob", 2, 60 * SEC).delay(), 40 * SEC);
    assert!(some.reserve("bob", 1, Duration::MAX).is_denied());
}

/// The largest possible debt is read correctly: not as idle, and not as a debt from long ago.
// G45
#[test]
fn largest_compact_debt_is_denied_until_paid() {
    let limiter = compact(Overflow::Spill, 1_000, 64);
    let clock = limiter.clock().clone();
    assert_eq!(limiter.charge_unchecked("alice", 1_006).delay(), 10_000 * SEC);
    for _ in 0..10_000 {
        assert!(limiter.check("alice").is_denied());
        clock.advance(SEC);
    }
    assert!(limiter.check("alice").is_denied());
    clock.advance(10 * SEC);
    assert!(limiter.check("alice").is_allowed());
}

/// Cause: an event that was forced within the spacing hardly moved the state. Trigger: a refund of it, or of the
/// event before it.
///
/// Symptom: the state was again what it was before both events, and two events were admitted at one time.
#[test]
fn unchecked_spacing_charge_takes_next_turn() {
    let (posts, clock) = direct(MinimumSpacing::new(2 * SEC));
    let checked = posts.check();
    let forced = posts.charge_unchecked(1);
    assert_eq!(forced.delay(), 2 * SEC);
    assert_eq!(posts.refund(&checked), 0, "only the last event can be refunded");
    assert_eq!(posts.refund(&forced), 1);
    assert!(posts.check().is_denied(), "the spacing after the first event still applies");
    clock.advance(2 * SEC);
    assert!(posts.check().is_allowed());
}

/// Cause: a forced charge took entries of the log whose units still counted, and wrote its own time over theirs. If
/// their lap bit changed from odd to even, the new value was smaller than the old one.
///
/// Symptom: the next check took such an entry for unwritten and gave it a time one period late.
#[test]
fn unchecked_charge_of_log_takes_remaining() {
    let (log, clock) = direct(SlidingLog::new(Quota::per_minute(2)));
    assert_eq!(log.charge_unchecked(3).cost(), 2);
    assert_eq!(log.charge_unchecked(2).cost(), 0);
    assert_eq!(log.peek().retry_after(), Some(60 * SEC));
    clock.advance(60 * SEC);
    assert!(log.check_n(2).is_allowed());
}

// G38, G87
#[test]
fn no_reservations_at_end_of_time() {
    let end = Timestamp::from_nanos(u64::MAX - 2);
    let (posts, _) = direct(MinimumSpacing::new(2 * SEC));
    let near = Timestamp::from_nanos(u64::MAX - 10);
    assert!(posts.at(near).check().is_allowed());
    assert!(posts.at(near).reserve(1, Duration::MAX).is_denied());
    assert_eq!(posts.at(near).charge_unchecked(1).cost(), 0);
    for scale in [1, 7] {
        let (limiter, _) = direct(Gcra::new(Quota::per_second(scale)));
        for time in [Timestamp::ZERO, end, Timestamp::from_nanos(u64::MAX)] {
            let decision = limiter.at(time).charge_unchecked(u64::MAX);
            assert!(decision.is_allowed());
            let owed = limiter.at(time).peek_n(0).reset_after();
            assert_eq!(
                limiter.at(time).charge_unchecked(u64::MAX).cost(),
                0,
                "the state already holds the largest debt"
            );
            assert_eq!(limiter.at(time).peek_n(0).reset_after(), owed);
        }
    }
}

#[test]
fn zero_spacing_ignores_unchecked_charge() {
    let (posts, _) = direct(MinimumSpacing::new(Duration::ZERO));
    let _ = posts.charge_unchecked(1);
    assert!(
        posts.at(Timestamp::from_secs(1)).check().is_allowed(),
        "without a spacing, an event is admitted at any time, also an earlier one"
    );
}

// G45
#[test]
fn settled_charge_equals_charge_of_actual_cost() {
    let quota = Quota::per_second(1).burst(20);
    for (actual, later) in [(3, 2), (3, 6), (10, 4), (15, 9), (0, 10)] {
        let ((settled, clock), (exact, exact_clock)) = (direct(Gcra::new(quota)), direct(Gcra::new(quota)));
        let charge = settled.check_n(10);
        assert!(exact.check_n(actual).is_allowed());
        clock.advance(SEC * later);
        exact_clock.advance(SEC * later);
        assert_eq!(
            settled.settle(&charge, actual).reset_after(),
            exact.peek().reset_after(),
            "{actual} {later}"
        );
    }
}

/// If the true cost becomes known after the charge was paid, the missing units are charged at the time of the
/// settlement.
// G45
#[test]
fn settlement_charges_missing_units_now() {
    let (limiter, clock) = direct(Gcra::new(Quota::per_second(1).burst(20)));
    let charge = limiter.check_n(2);
    clock.advance(10 * SEC);
    assert_eq!(limiter.settle(&charge, 5).reset_after(), 3 * SEC);
}
