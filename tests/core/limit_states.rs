//! States in the caller's structs decide as direct limiters do, which `algorithms_oracle` compares with their oracles.
//!
//! 1. With every algorithm of a fixed size, each verb returns the same decision and leaves the same state, whether the
//!    state is shared or owned.
//! 2. Threads that share a state admit exactly the burst.
//! 3. Sizes are what the documentation says.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    Algorithm, Block, Blocked, Class, Decision, Direct, FixedWindow, Gcra, LeakyBucketMeter,
    LeakyBucketQueue, LimitState, ManualClock, MinimumSpacing, Quota, RateLimiter, SlidingLog, SlidingWindow,
    Timestamp, TokenBucket,
};
use tollgate_testing::build;
use tollgate_testing::operations::config;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A call: how long after the last one, which verb, how many units, and a number that the verb uses.
type Call = (u64, u8, u64, u64);

/// Calls a verb. `last` is the last charge of the place that is called.
macro_rules! call {
    ($at:expr, $call:expr, $last:expr) => {{
        let ((_, verb, units, number), last): (Call, &Decision) = ($call, $last);
        let wait = Duration::from_millis(number * 10);
        let at = $at;
        match verb {
            0 => (0, at.check()),
            1 => (0, at.check_n(units)),
            2 => (0, at.take(units)),
            3 => (0, at.charge_unchecked(units)),
            4 => (0, at.reserve(units, wait)),
            5 => (0, at.settle(last, units)),
            6 => (at.refund(last), *last),
            7 => (at.refund_n(last, units), *last),
            8 => (0, at.check_class(units, Class::percent(50))),
            9 => (0, at.peek_n(units)),
            10 => (at.give_back(units), *last),
            11 => (0, at.check_oversized(units)),
            _ => {
                let mut decided = *last;
                at.check_each([units, 1], |decision| decided = decision);
                (0, decided)
            }
        }
    }};
}

/// Makes the calls at a limiter, at a shared state and at an owned one.
macro_rules! alike {
    ($calls:expr, $($algorithm:expr),+) => {$({
        let algorithm = $algorithm;
        let limiter = build(algorithm.clone(), &ManualClock::new(START)).direct();
        let (shared, mut owned) = (LimitState::new(), LimitState::new());
        let mut now = START;
        let mut last = limiter.at(now).peek();
        for &one in $calls {
            now = now + Duration::from_micros(one.0);
            let expected = call!(limiter.at(now), one, &last);
            assert_eq!(call!(shared.at(&algorithm, now), one, &last), expected, "{algorithm:?} {one:?}");
            assert_eq!(call!(owned.at_mut(&algorithm, now), one, &last), expected, "{algorithm:?} {one:?}");
            let left = limiter.at(now).peek();
            assert_eq!(shared.at(&algorithm, now).peek(), left, "{algorithm:?} {one:?}");
            assert_eq!(owned.at_mut(&algorithm, now).peek(), left, "{algorithm:?} {one:?}");
            last = expected.1;
        }
    })+};
}

proptest! {
    #![proptest_config(config(256))]

    // G149
    #[test]
    fn states_decide_as_direct_limiters(
        limit in 1_u64..=20,
        burst in 1_u64..=20,
        calls in prop::collection::vec((0_u64..=400_000, 0_u8..=12, 0_u64..=22, 0_u64..=200), 1..60),
    ) {
        let quota = Quota::per_second(limit).burst(burst);
        let whole = Quota::per_second(limit);
        alike!(
            &calls,
            Gcra::new(quota),
            LeakyBucketMeter::new(quota),
            LeakyBucketQueue::new(quota),
            MinimumSpacing::new(Duration::from_millis(limit)),
            Blocked::new(quota, Block::of(Duration::from_secs(1)).at_most(Duration::from_secs(3))),
            TokenBucket::new(quota),
            TokenBucket::interval(whole),
            FixedWindow::new(whole),
            FixedWindow::from_first_use(whole),
            SlidingWindow::new(whole),
            SlidingWindow::new(whole).strict()
        );
    }
}

// G149
#[test]
fn another_quota_reads_the_state() {
    let slow = Gcra::new(Quota::per_second(1).burst(4));
    let fast = slow.requota(&Quota::per_second(1_000).burst(4)).unwrap();
    let state = LimitState::<Gcra>::default();
    assert!(state.at(&slow, START).check_n(4).is_allowed());
    assert!(state.at(&slow, START).check().is_denied());
    // Under the faster quota, four seconds are 4,000 units.
    assert_eq!(state.at(&fast, START).peek().retry_after(), Some(Duration::from_millis(3_997)));
}

// G149
#[test]
fn threads_admit_exactly_the_burst() {
    let algorithm = Gcra::new(Quota::per_hour(1).burst(1_000));
    let state = LimitState::new();
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| (0..500).filter(|_| state.at(&algorithm, START).check().is_allowed()).count())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 1_000);
}

// G149
// G30
#[test]
fn sizes_are_as_documented() {
    assert_eq!(size_of::<LimitState>(), 8);
    assert_eq!(size_of::<LimitState<Blocked>>(), 8);
    assert_eq!(size_of::<LimitState<MinimumSpacing>>(), 8);
    assert_eq!(size_of::<LimitState<LeakyBucketQueue>>(), 8);
    assert_eq!(size_of::<LimitState<FixedWindow>>(), 24);
    assert_eq!(size_of::<LimitState<SlidingWindow>>(), 24);
    assert_eq!(size_of::<LimitState<TokenBucket>>(), 24);
    assert!(size_of::<RateLimiter<Direct>>() <= 80);
    assert!(size_of::<RateLimiter<Direct<LeakyBucketQueue>>>() <= 128);
    assert!(size_of::<RateLimiter<Direct<SlidingLog>>>() <= 128);
    assert!(size_of::<RateLimiter<Direct<FixedWindow>>>() <= 128);
    assert!(size_of::<RateLimiter<Direct<TokenBucket>>>() <= 128);
    assert!(size_of::<RateLimiter<Direct<Blocked>>>() <= 128);
    assert!(align_of::<RateLimiter<Direct>>() <= 8);
}
