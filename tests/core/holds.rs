//! Units that are taken now and settled later, against a list of charges that are refunded by hand.

use std::hash::BuildHasherDefault;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::holds::{HoldId, Holding, InProgress, Permit};
use tollgate::{
    CompactAlgorithm, FixedWindow, Gcra, LeakyBucketQueue, Limit, ManualClock, Overflow, Quota, RateLimiter,
    SlidingLog, StoreKind, SubWindow, TokenBucket,
};
use tollgate_testing::holds::{HoldOp as Op, at, same_as_by_hand};
use tollgate_testing::subjects::Constant;

const KEYS: u64 = 2;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn op() -> impl Strategy<Value = (u64, Op)> {
    let op = prop_oneof![
        4 => (0..12_u64).prop_map(Op::Check),
        4 => (0..12_u64, 0..40_u8).prop_map(|(units, life_s)| Op::Hold { units, life_s }),
        3 => (any::<u8>(), 0..20_u64).prop_map(|(which, actual)| Op::Commit { which, actual }),
        2 => any::<u8>().prop_map(|which| Op::Release { which }),
        3 => (0..20_000_000_000_u64).prop_map(Op::Wait),
    ];
    (0..KEYS, op)
}

/// Compares limiters in a keyed and in a compact store.
fn in_both_stores<A: CompactAlgorithm>(algorithm: &A, ops: &[(u64, Op)], most: usize) {
    let build = || RateLimiter::builder(algorithm.clone()).clock(ManualClock::default());
    let keyed = || build().keyed::<u64>();
    same_as_by_hand(&keyed().with_holds(most).unwrap(), &keyed(), ops, most);
    let compact = || build().compact().unwrap();
    same_as_by_hand(&compact().with_holds(most).unwrap(), &compact(), ops, most);
}

proptest! {
    // G117
    #[test]
    fn holds_equal_charges_by_hand(ops in prop::collection::vec(op(), 1..60)) {
        let quota = Quota::per_minute(20);
        in_both_stores(&Gcra::new(quota), &ops, 1_000);
        in_both_stores(&TokenBucket::new(Quota::per_minute(12).burst(18)), &ops, 1_000);
        in_both_stores(&FixedWindow::new(quota), &ops, 1_000);
        let keyed = || {
            RateLimiter::builder(SubWindow::new(quota, 6)).clock(ManualClock::default()).keyed::<u64>()
        };
        same_as_by_hand(&keyed().with_holds(1_000).unwrap(), &keyed(), &ops, 1_000);
    }

    /// Ended holds make room for new ones, and give their units back to whichever key had them.
    // G117
    #[test]
    fn full_book_equals_charges_by_hand(
        ops in prop::collection::vec(op(), 1..60),
        most in 1_usize..=4,
    ) {
        let quota = Quota::per_minute(20);
        in_both_stores(&Gcra::new(quota), &ops, most);
        in_both_stores(&FixedWindow::new(quota), &ops, most);
        let any = || {
            let build = RateLimiter::any(Limit::gcra(quota)).clock(ManualClock::default());
            build.build::<u64>(StoreKind::Compact).unwrap()
        };
        same_as_by_hand(&any().with_holds(most).unwrap(), &any(), &ops, most);
        // All keys have the same hash in the store.
        let crowded = || {
            let hasher = BuildHasherDefault::<Constant>::default();
            RateLimiter::builder(Gcra::new(quota)).clock(ManualClock::default()).hasher(hasher).keyed::<u64>()
        };
        same_as_by_hand(&crowded().with_holds(most).unwrap(), &crowded(), &ops, most);
    }

    /// The units in progress are those of the holds that are not released and have not ended.
    // G118
    #[test]
    fn in_progress_never_exceeds_its_limit(ops in prop::collection::vec(op(), 1..80)) {
        const LIMIT: u64 = 15;
        let limit = InProgress::new(LIMIT).clock(ManualClock::default());
        let (mut now, mut held) = (0, Vec::<(u64, HoldId, u64)>::new());
        for (key, op) in ops {
            held.retain(|(_, id, _)| id.end() > at(now));
            match op {
                Op::Hold { units, .. } => {
                    let used: u64 = held.iter().filter(|of| of.0 == key).map(|&(_, _, units)| units).sum();
                    match limit.at(at(now)).try_enter(&key, units).map(Permit::detach) {
                        Ok(id) => {
                            prop_assert!(used + units <= LIMIT);
                            held.push((key, id, units));
                        }
                        Err(denied) => {
                            prop_assert!(used + units > LIMIT);
                            let decision = denied.decision();
                            prop_assert_eq!((decision.limit(), decision.remaining()), (LIMIT, LIMIT - used));
                            let first = held.iter().filter(|of| of.0 == key).map(|of| of.1.end()).min();
                            let first = first.map_or(Duration::ZERO, |end| end.duration_since(at(now)));
                            prop_assert_eq!(decision.retry_after(), Some(first));
                        }
                    }
                }
                Op::Release { which } if !held.is_empty() => {
                    let (key, id, _) = held.swap_remove(usize::from(which) % held.len());
                    prop_assert!(limit.leave(&key, id));
                    prop_assert!(!limit.leave(&key, id));
                }
                Op::Wait(ns) => now += ns,
                _ => {}
            }
        }
    }
}

fn tokens(most: usize) -> (RateLimiter<Holding<tollgate::Keyed<String>>, ManualClock>, ManualClock) {
    let clock = ManualClock::default();
    let build = RateLimiter::builder(Gcra::new(Quota::per_hour(100))).clock(clock.clone());
    (build.keyed::<String>().with_holds(most).unwrap(), clock)
}

#[test]
fn dropped_hold_is_released() {
    let (limiter, _clock) = tokens(10);
    drop(limiter.hold("alice", 100, seconds(60)).unwrap());
    assert_eq!((limiter.peek("alice").remaining(), limiter.holds()), (100, 0));
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _hold = limiter.hold("alice", 100, seconds(60)).unwrap();
        panic!("the work failed");
    }));
    assert!(unwound.is_err());
    assert_eq!((limiter.peek("alice").remaining(), limiter.holds()), (100, 0));
}

#[test]
fn hold_of_another_key_is_not_settled() {
    let (limiter, _clock) = tokens(10);
    let id = limiter.hold("alice", 50, seconds(60)).unwrap().detach();
    assert_eq!(limiter.release("bob", id), 0);
    let mut bytes = id.to_bytes();
    assert_eq!(HoldId::from_bytes(bytes), id);
    bytes[23] ^= 1;
    assert_eq!(limiter.release("alice", HoldId::from_bytes(bytes)), 0);
    assert_eq!(limiter.release("alice", id), 50);
}

// G117
#[test]
fn full_book_denies_and_charges_nothing() {
    let (limiter, clock) = tokens(2);
    let ids = [1, 2].map(|_| limiter.hold("alice", 10, seconds(60)).unwrap().detach());
    let denied = limiter.hold("bob", 10, seconds(60)).unwrap_err().decision();
    assert_eq!((denied.is_never(), denied.retry_after()), (false, Some(seconds(1))));
    assert_eq!((limiter.peek("bob").remaining(), limiter.holds()), (100, 2));
    assert!(limiter.check("bob").is_allowed(), "checks need no hold");
    limiter.release("alice", ids[0]);
    drop(limiter.hold("bob", 10, seconds(60)).unwrap());
    // A lost hold makes room once time has paid its charge: ten units take six minutes.
    let _lost = limiter.hold("alice", 0, seconds(1)).unwrap().detach();
    clock.advance(seconds(3_600));
    for user in 0..1_000 {
        let _ = limiter.hold(&user.to_string(), 1, seconds(1)).map(tollgate::holds::Hold::detach);
        clock.advance(seconds(60));
    }
    assert!(limiter.holds() <= 2);
}

/// A book for one hold was full of an ended one. The next hold took its place, and its five units stayed charged: a request
/// was denied for 43,198 s, although five of ten units were free.
// G117
#[test]
fn ended_hold_makes_room_and_gives_its_units_back() {
    let clock = ManualClock::default();
    let tenths = || {
        let build = RateLimiter::builder(Gcra::new(Quota::per_day(10))).clock(clock.clone());
        build.keyed::<u64>().with_holds(1).unwrap()
    };
    let limiter = tenths();
    for (now, next) in [(0, 1), (2, 2)] {
        let hold = limiter.hold(&0, 5, seconds(1)).map(tollgate::holds::Hold::detach);
        assert!(hold.is_ok(), "at {now} s");
        clock.advance(seconds(next));
    }
    assert!(limiter.check_n(&0, 5).is_allowed());
    // The same if the place is needed for another key: 397 of 400 keys were denied.
    for key in 0..400 {
        let limiter = tenths();
        let lost = limiter.hold(&key, 10, seconds(1)).unwrap().detach();
        clock.advance(seconds(2));
        let other = key + 1;
        let kept = limiter.hold(&other, 5, seconds(60)).unwrap();
        assert!(limiter.check_n(&key, 10).is_allowed(), "key {key}");
        assert_eq!((limiter.release(&key, lost), limiter.holds()), (0, 1));
        drop(kept);
    }
}

/// Requests whose life had ended denied others if they lay in another part of the memory, and `remaining` counted them.
// G118
#[test]
fn ended_requests_are_not_in_progress() {
    let clock = ManualClock::default();
    for key in 0..200_u64 {
        let limit = InProgress::new(5).life(seconds(1)).clock(clock.clone()).at_most(2);
        let [_first, second] = [1, 2].map(|_| limit.try_enter(&key, 1).unwrap().detach());
        clock.advance(seconds(1));
        assert_eq!(limit.try_enter(&key, 0).unwrap().decision().remaining(), 5);
        let others = [1, 2].map(|other| limit.try_enter(&(key + other), 1).unwrap());
        assert!(!limit.leave(&key, second));
        drop(others);
        assert!(limit.is_empty());
    }
}

// G117
#[test]
fn lost_holds_are_forgotten() {
    let (limiter, clock) = tokens(100_000);
    for user in 0..20_000 {
        let _lost = limiter.hold(&user.to_string(), 1, seconds(1)).unwrap().detach();
        clock.advance(Duration::from_millis(50));
    }
    // Time pays a unit in 36 s, in which 720 holds begin. Each shard forgets its own when it gets new ones.
    assert!(limiter.holds() < 1_600, "{}", limiter.holds());
}

// G117
#[test]
fn joint_check_finds_ended_holds() {
    let (limiter, clock) = tokens(10);
    let _lost = limiter.hold("alice", 100, seconds(60)).unwrap().detach();
    let other = RateLimiter::builder(Gcra::new(Quota::per_hour(5))).clock(clock.clone()).compact().unwrap();
    let both = || tollgate::check_all((limiter.on("alice").cost(50), other.on("alice")));
    assert_eq!(both().denied_by(), Some(0));
    clock.advance(seconds(60));
    assert!(both().is_allowed());
    let mut admitted = 0;
    let id = limiter.hold("alice", 50, seconds(60)).unwrap().detach();
    clock.advance(id.end().duration_since(tollgate::Clock::now(&clock)));
    limiter.check_each([("alice", 30), ("alice", 30)], |decision| {
        admitted += u32::from(decision.is_allowed());
    });
    assert_eq!(admitted, 1);
}

#[test]
fn limiter_without_refunds_has_no_holds() {
    let quota = Quota::per_minute(10);
    let error = RateLimiter::keyed::<u64, _>(SlidingLog::new(quota)).with_holds(1).unwrap_err();
    assert!(error.to_string().contains("cannot refund"), "{error}");
    assert!(RateLimiter::direct(LeakyBucketQueue::new(quota)).with_holds(1).is_err());
    let inherit = RateLimiter::builder(Gcra::new(quota)).overflow(Overflow::Inherit).compact().unwrap();
    assert!(inherit.with_holds(1).is_err());
}

#[test]
fn limiter_without_keys_has_holds() {
    let clock = ManualClock::default();
    let build = RateLimiter::builder(Gcra::new(Quota::per_hour(100))).clock(clock.clone());
    let limiter = build.direct().with_holds(10).unwrap();
    let hold = limiter.hold(80, seconds(60)).unwrap();
    assert!(limiter.check_n(30).is_denied());
    assert_eq!(hold.commit(20).remaining(), 80);
    let id = limiter.at(tollgate::Clock::now(&clock)).hold(80, seconds(60)).unwrap();
    assert!(limiter.hold(1, seconds(60)).is_err());
    clock.advance(seconds(60));
    assert!(limiter.check_n(80).is_allowed());
    assert_eq!(limiter.release(id), 0);
}

// G118
#[test]
fn full_book_denies_requests_of_other_keys() {
    let limit = InProgress::new(2).clock(ManualClock::default()).at_most(1);
    let id = limit.try_enter("alice", 1).unwrap().detach();
    assert_eq!((limit.current("alice"), limit.len()), (1, 1));
    assert_eq!(limit.try_enter("bob", 1).unwrap_err().decision().retry_after(), Some(seconds(1)));
    assert!(limit.leave("alice", id) && limit.try_enter("bob", 1).is_ok());
}

// G118
#[test]
fn racing_requests_never_exceed_in_progress() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let (limit, inside) = (InProgress::new(3), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    if let Ok(permit) = limit.try_enter("alice", 1) {
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                }
            });
        }
    });
    assert!(limit.is_empty());
}
