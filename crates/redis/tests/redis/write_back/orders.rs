//! Random orders of checks, posts, replies and time steps.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::Quota;
use tollgate_redis::Limit;
use tollgate_redis::internals::over_at_most;
use tollgate_testing::operations::config;

use super::steps::Steps;

const SECOND: u64 = 1_000_000_000;

#[derive(Copy, Clone, Debug)]
enum Op {
    Check { node: usize, key: u8, times: u8 },
    Due(usize),
    Arrive(usize),
    Late(usize),
    Answer { which: usize, lost: bool },
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..4_usize, 0..6_u8, 1..20_u8).prop_map(|(node, key, times)| Op::Check { node, key, times }),
        6 => (0..4_usize).prop_map(Op::Due),
        6 => any::<usize>().prop_map(Op::Arrive),
        2 => any::<usize>().prop_map(Op::Late),
        6 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(which, lost)| Op::Answer { which, lost }),
        4 => (0..SECOND).prop_map(Op::Pass),
        1 => (0..25 * SECOND).prop_map(Op::Pass),
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    let quota = (1_u64..60).prop_map(|limit| Quota::new(limit, Duration::from_secs(10)));
    prop_oneof![
        quota.clone().prop_map(Limit::fixed_window),
        quota.clone().prop_map(Limit::sliding_window),
        (quota, 1_u64..40).prop_map(|(quota, burst)| Limit::gcra(quota.burst(burst))),
    ]
}

fn play(steps: &mut Steps, ops: &[Op]) {
    for &op in ops {
        match op {
            Op::Check { node, key, times } => _ = steps.check(node, key, times),
            Op::Due(node) => steps.due(node),
            Op::Arrive(which) => steps.arrive(which),
            Op::Late(which) => steps.arrive_late(which),
            Op::Answer { which, lost } => steps.answer(which, lost),
            Op::Pass(ns) => steps.pass(ns),
        }
    }
}

proptest! {
    #![proptest_config(config(150))]

    // G81
    #[test]
    fn units_are_charged_once_or_dropped(
        limit in limit(), ops in prop::collection::vec(op(), 1..120), max_keys in 1_usize..12,
    ) {
        let mut steps = Steps::new(limit, 4, max_keys);
        play(&mut steps, &ops);
        let sum = steps.sum();
        prop_assert!(sum.charged <= sum.admitted, "no unit is charged twice: {sum:?}");
        prop_assert!(sum.charged + sum.pending + sum.dropped >= sum.admitted, "no unit is lost: {sum:?}");
        // After slow replies, a node may hold units of a window that has not begun at the server.
        for _ in 0..8 {
            steps.settle();
            if steps.sum().pending > 0 {
                steps.pass(2 * SECOND);
            }
        }
        let sum = steps.sum();
        prop_assert_eq!(sum.pending, 0);
        prop_assert!(sum.charged <= sum.admitted, "no unit is charged twice: {sum:?}");
        prop_assert!(sum.charged + sum.dropped >= sum.admitted, "every unit is charged or dropped in the end: {sum:?}");
    }

    // G81
    #[test]
    fn without_losses_every_unit_is_charged(limit in limit(), ops in prop::collection::vec(op(), 1..120)) {
        let ops: Vec<Op> = ops.into_iter().filter(|op| !matches!(op, Op::Answer { .. } | Op::Pass(_))).collect();
        let mut steps = Steps::new(limit, 4, 8);
        for chunk in ops.chunks(10) {
            play(&mut steps, chunk);
            steps.settle();
            steps.pass(SECOND / 3);
        }
        let sum = steps.sum();
        prop_assert_eq!((sum.charged, sum.pending, sum.dropped), (sum.admitted, 0, 0));
    }

    // G80
    #[test]
    fn window_stays_within_overshoot_bound(
        limit in 1_u64..60, ops in prop::collection::vec(op(), 1..200), max_keys in 1_usize..12,
    ) {
        let limit = Limit::fixed_window(Quota::new(limit, Duration::from_secs(10)));
        let mut steps = Steps::new(limit, 4, max_keys);
        play(&mut steps, &ops);
        let (sum, over) = (steps.sum(), over_at_most(limit.most(), 4));
        // After lost replies, each process may use its share of the window a second time.
        let alone = 4 * (limit.most() / 4).max(1);
        prop_assert!(sum.most <= limit.most() + over + alone, "{sum:?}, {over} over");
    }
}

/// Units admitted during an outage are not charged to the window in which the server returns (limitador #288).
// G80
#[test]
fn units_of_ended_window_are_dropped() {
    let limit = Limit::fixed_window(Quota::new(40, Duration::from_secs(10)));
    let mut steps = Steps::new(limit, 4, 8);
    assert_eq!(steps.check(0, 1, 40), 10, "a quarter, before the process knows the server's count");
    steps.due(0);
    steps.answer(0, true);
    steps.pass(10 * SECOND);
    steps.settle();
    let sum = steps.sum();
    assert_eq!((sum.charged, sum.dropped, sum.pending), (0, 10, 0), "the window has ended");
    for node in 0..4 {
        assert_eq!(steps.check(node, 1, 40), 10, "the next window has its full limit");
    }
    steps.settle();
    assert_eq!(steps.sum().charged, 40);
    assert_eq!(steps.check(3, 1, 1), 0, "the last process to post knows that no unit is left");
}

/// In a sliding window, a late post still counts in its own window, which is now the previous one.
#[test]
fn late_post_counts_in_previous_window() {
    let limit = Limit::sliding_window(Quota::new(40, Duration::from_secs(10)));
    let mut steps = Steps::new(limit, 1, 8);
    assert_eq!(steps.check(0, 1, 50), 40);
    steps.due(0);
    steps.answer(0, true);
    steps.pass(10 * SECOND);
    steps.settle();
    assert_eq!(steps.sum().charged, 40);
    assert_eq!(steps.check(0, 1, 1), 0, "the previous window has its full weight");
}

/// During a long outage, time pays for units beyond a burst. These units are not charged when the server returns.
// G80
#[test]
fn gcra_drops_paid_units_after_partition() {
    let limit = Limit::gcra(Quota::per_second(10).burst(20));
    let mut steps = Steps::new(limit, 1, 8);
    for _ in 0..600 {
        let _ = steps.check(0, 1, 1);
        steps.due(0);
        steps.answer(0, true);
        steps.pass(SECOND / 10);
    }
    let sum = steps.sum();
    assert!((600..=620).contains(&sum.admitted), "the process still admits at the limit's rate: {sum:?}");
    steps.settle();
    let sum = steps.sum();
    assert!(sum.charged <= 40, "{sum:?}");
    assert_eq!(sum.charged + sum.dropped, sum.admitted);
}

// G81
#[test]
fn repeated_or_late_post_charges_nothing() {
    for limit in [Limit::gcra(Quota::per_minute(100)), Limit::fixed_window(Quota::per_minute(100))] {
        let mut steps = Steps::new(limit, 1, 8);
        assert_eq!(steps.check(0, 1, 2), 2);
        steps.due(0);
        steps.arrive(0);
        steps.arrive(0);
        steps.answer(0, true);
        assert_eq!(steps.check(0, 1, 1), 1);
        steps.settle();
        steps.arrive_late(0);
        let sum = steps.sum();
        assert_eq!((sum.charged, sum.admitted, sum.unheard), (3, 3, 2), "{limit:?}");
    }
}
