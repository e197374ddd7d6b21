//! What is advertised can be had, and is no more than the limit gives.
//!
//! Properties, after each decision of each algorithm:
//! - `r` units are admitted at once, as announced;
//! - where nothing is available, one unit is admitted when the window ends, and not a second and a nanosecond before;
//! - a client that uses `r` units every `t` seconds stays within the sustained rate, in windows that move;
//! - in windows that stand, `t` ends with them;
//! - a refused request is admitted after `Retry-After`, and that is not before the end of the effective window.

use crate::common::SEC;
use crate::common::kinds::{ALL, Kind};
use crate::common::operations::{config, exact_spec, ops, start};
use crate::common::oracle::Spec;
use crate::common::steps::{Op, within_reach};
use crate::common::subjects::{direct, quota};
use proptest::test_runner::TestRunner;
use tollgate::http::{Available, Policy, retry_after};
use tollgate::{Outcome, Quota};

fn holds(kind: Kind, &(spec, start, ref ops): &(Spec, u64, Vec<Op>)) {
    let (Some(limiter), Some(quota)) = (direct(kind, spec), quota(spec)) else { return };
    let quota = if kind == Kind::Spacing { Quota::new(1, quota.period()) } else { quota };
    let mut oracle = kind.oracle(spec);
    let mut now = start;
    for op in ops {
        now = within_reach(op.step.apply(now, spec, &*oracle), start, kind, spec).max(now);
        let cost = op.cost.apply(now, &*oracle);
        oracle.offer(now, cost);
        let decision = limiter.check_at(0, cost, now);
        let policy = Policy::new("x", &quota, decision);
        let Available { units, seconds } = policy.available();
        let after =
            |seconds: u64, ns: u64| now.saturating_add(seconds.saturating_mul(SEC)).saturating_sub(ns);
        let place = format!("{kind:?} {spec:?} {cost} at {now}: {decision:?}, {units} in {seconds} s");
        // A key that is seen late in an adaptive period has less, so waiting longer than to its boundary can be too long.
        let is_near =
            |time| !matches!(kind, Kind::Adaptive(_)) && within_reach(time, start, kind, spec) == time;

        if units > 0 {
            assert!(units <= decision.remaining(), "{place}");
            assert!(limiter.peek_at(0, units, now).is_allowed(), "{place}");
        } else if cost <= 1 && decision.outcome() != Outcome::Never && is_near(after(seconds, 0)) {
            assert!(limiter.peek_at(0, 1, after(seconds, 0)).is_allowed(), "too early: {place}");
            let before = after(seconds - 1, 1);
            assert!(before < now || limiter.peek_at(0, 1, before).is_denied(), "too late: {place}");
        }
        match kind {
            Kind::Fixed | Kind::FirstUse | Kind::Interval | Kind::Aligned(_) | Kind::Adaptive(_) => {
                if kind == Kind::Fixed && units > 0 {
                    let left = spec.period_ns - now % spec.period_ns;
                    assert_eq!(seconds, left.div_ceil(SEC), "{place}");
                }
            }
            _ => {
                let (used, given) = (
                    u128::from(units) * quota.period().as_nanos(),
                    u128::from(seconds) * u128::from(SEC) * u128::from(quota.limit()),
                );
                assert!(used <= given, "more than the rate: {place}");
            }
        }
        if decision.outcome() == Outcome::Denied {
            let wait = retry_after(&[policy]).expect("it can be admitted");
            let wait = u64::try_from(wait.as_nanos().div_ceil(SEC.into())).expect("centuries").max(1);
            assert!(seconds <= wait, "{place}, again in {wait} s");
            if is_near(after(wait, 0)) {
                assert!(limiter.peek_at(0, cost, after(wait, 0)).is_allowed(), "{place}, again in {wait} s");
            }
        } else {
            assert_eq!(retry_after(&[policy]), None, "{place}");
        }
    }
}

#[test]
fn what_is_advertised_can_be_had() {
    for kind in ALL {
        let cases = (exact_spec(kind), start(), ops(1, 30, false));
        let mut runner = TestRunner::new(config(48));
        let result = runner.run(&cases, |case| {
            holds(kind, &case);
            Ok(())
        });
        result.unwrap_or_else(|failure| panic!("{kind:?}: {failure}"));
    }
}
