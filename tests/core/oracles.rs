//! Tests of the oracles themselves.
//!
//! Properties:
//! 1. The four descriptions of the bucket family (arrival time, tokens, level, queue) decide alike, also when time
//!    steps back.
//! 2. No oracle admits more in any interval than the bound that it states.
//! 3. After a step back, an oracle admits a request only if it would also admit it at the newest time of an
//!    admission.
//! 4. A wait is tight: the cost is admitted after it, and denied one nanosecond earlier.

use proptest::prelude::*;
use tollgate_testing::kinds::{ALL, Kind};
use tollgate_testing::laws::all_are_within;
use tollgate_testing::operations::{config, ops, spec, start};
use tollgate_testing::oracle::{Oracle, Spec, Verdict};
use tollgate_testing::steps::Op;
use tollgate_testing::{MINUTE, SEC};

/// Plays the operations on one stream and returns the admissions as (time, cost).
fn play(
    oracle: &mut dyn Oracle,
    spec: Spec,
    start: u64,
    ops: &[Op],
    mut seen: impl FnMut(&dyn Oracle, u64, u64),
) -> Vec<(u64, u64)> {
    let mut now = start;
    let mut admitted = Vec::new();
    for op in ops {
        now = op.step.apply(now, spec, oracle).min(1 << 62);
        let cost = op.cost.apply(now, oracle);
        seen(oracle, now, cost);
        if oracle.offer(now, cost) == Verdict::Allowed && cost > 0 {
            admitted.push((now, cost));
        }
    }
    admitted
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn bucket_family_oracles_agree(spec in spec(), start in start(), ops in ops(1, 60, true)) {
        let others = [Kind::Greedy, Kind::Meter, Kind::Queue];
        let mut others = others.map(|kind| kind.oracle(spec));
        play(&mut *Kind::Gcra.oracle(spec), spec, start, &ops, |gcra, now, cost| {
            for other in &mut others {
                assert_eq!(other.remaining(now), gcra.remaining(now), "{other:?} {gcra:?} at {now}");
                assert_eq!(other.retry_after(now, cost), gcra.retry_after(now, cost), "{other:?} {gcra:?}");
                assert_eq!(other.offer(now, cost), gcra.peek(now, cost), "{other:?} {gcra:?} at {now}");
            }
        });
    }

    // G1
    #[test]
    fn oracle_never_exceeds_its_bound(spec in spec(), start in start(), ops in ops(1, 60, false)) {
        for kind in ALL {
            let mut oracle = kind.oracle(spec);
            let mut admitted = play(&mut *oracle, spec, start, &ops, |_, _, _| ());
            if kind == Kind::Spacing {
                admitted.iter_mut().for_each(|(_, cost)| *cost = 1);
            }
            all_are_within(&admitted, |t| oracle.most_in(t), kind);
        }
    }

    // G39
    #[test]
    fn oracle_step_back_admits_nothing_more(spec in spec(), start in start(), ops in ops(1, 60, true)) {
        for kind in ALL {
            let mut held = kind.oracle(spec);
            let mut newest = 0;
            play(&mut *kind.oracle(spec), spec, start, &ops, |oracle, now, cost| {
                if oracle.peek(now, cost) == Verdict::Allowed && cost > 0 {
                    newest = now.max(newest);
                    assert_eq!(held.offer(newest, cost), Verdict::Allowed, "{kind:?} {oracle:?} at {now}");
                }
            });
        }
    }

    // G23
    #[test]
    fn waits_are_tight(spec in spec(), start in start(), ops in ops(1, 40, true)) {
        for kind in ALL {
            play(&mut *kind.oracle(spec), spec, start, &ops, |oracle, now, cost| {
                match oracle.retry_after(now, cost) {
                    None => assert_eq!(oracle.peek(now, cost), Verdict::Never),
                    Some(0) => assert_eq!(oracle.peek(now, cost), Verdict::Allowed),
                    Some(wait) => {
                        assert!(oracle.admits(u128::from(now) + wait, cost), "{kind:?} {oracle:?} at {now}");
                        assert!(!oracle.admits(u128::from(now) + wait - 1, cost), "{kind:?} {oracle:?} at {now}");
                    }
                }
            });
        }
    }
}

// G23
#[test]
fn remaining_is_largest_admitted_cost() {
    let mut oracle = Kind::Gcra.oracle(Spec::new(10, 60 * SEC));
    assert_eq!(oracle.remaining(0), 10);
    assert_eq!(oracle.offer(0, 4), Verdict::Allowed);
    assert_eq!(oracle.remaining(0), 6);
    assert_eq!(oracle.remaining(6 * SEC - 1), 6);
    assert_eq!(oracle.remaining(6 * SEC), 7);
    assert_eq!(oracle.reset_after(0), u128::from(24 * SEC));
}

#[test]
fn queue_oracle_delays_each_request() {
    let mut oracle = Kind::Queue.oracle(Spec::new(1, SEC).with_burst(3));
    for wait in [0, 1, 2] {
        assert_eq!(oracle.delay(0), u128::from(wait * SEC));
        assert_eq!(oracle.offer(0, 1), Verdict::Allowed);
    }
    assert_eq!(oracle.offer(0, 1), Verdict::Denied);
    assert_eq!(oracle.offer(SEC - 1, 1), Verdict::Denied);
    assert_eq!(oracle.offer(SEC, 1), Verdict::Allowed);
}

#[test]
fn unused_adaptive_bucket_waits_for_batch() {
    let mut oracle = Kind::Adaptive(0).oracle(Spec::new(400, 60 * MINUTE));
    assert_eq!(oracle.remaining(20 * MINUTE), 266);
    assert_eq!(oracle.retry_after(20 * MINUTE, 300), Some(u128::from(40 * MINUTE)));
    assert_eq!(oracle.offer(20 * MINUTE, 266), Verdict::Allowed);
    assert_eq!(oracle.remaining(60 * MINUTE), 400);
}
