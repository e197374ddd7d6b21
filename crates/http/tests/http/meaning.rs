//! A client gets the units that the fields advertise, and never more than the limit allows.
//!
//! Properties, after each decision of each algorithm:
//! - The limiter admits `r` units at once, as the field announces.
//! - If nothing is available, the limiter admits one unit when the advertised window ends. A second and a nanosecond
//!   earlier, it still denies that unit.
//! - With moving windows, a client that uses `r` units every `t` seconds stays within the sustained rate.
//! - With fixed windows, `t` ends with the window.
//! - A denied request is admitted after `Retry-After`, and `Retry-After` is not shorter than the effective window.

use proptest::test_runner::TestRunner;
use tollgate::{Outcome, Quota};
use tollgate_http::{Available, Policy, retry_after};
use tollgate_testing::SEC;
use tollgate_testing::kinds::{ALL, Kind, quota};
use tollgate_testing::operations::{config, exact_spec, ops, start};
use tollgate_testing::oracle::Spec;
use tollgate_testing::steps::{Op, within_reach};
use tollgate_testing::subjects::direct;

fn holds(kind: Kind, &(spec, start, ref ops): &(Spec, u64, Vec<Op>)) {
    let (Some(limiter), Some(quota)) = (direct(kind, spec), quota(spec)) else { return };
    let quota = if kind == Kind::Spacing { Quota::new(1, quota.period()) } else { quota };
    let mut oracle = kind.oracle(spec);
    let mut now = start;
    for op in ops {
        now = within_reach(op.step.apply(now, spec, &*oracle), start, kind, spec).max(now);
        let cost = op.cost.apply(now, &*oracle);
        oracle.offer(now, cost);
        let decision = limiter.at(now).check_n(0, cost);
        let policy = Policy::new("x", &quota, decision);
        let Available { units, seconds } = policy.available();
        let after =
            |seconds: u64, ns: u64| now.saturating_add(seconds.saturating_mul(SEC)).saturating_sub(ns);
        let place = format!("{kind:?} {spec:?} {cost} at {now}: {decision:?}, {units} in {seconds} s");
        // A key that arrives late in an adaptive period gets fewer units. A wait past the period's boundary can
        // therefore be too long.
        let is_near =
            |time| !matches!(kind, Kind::Adaptive(_)) && within_reach(time, start, kind, spec) == time;

        if units > 0 {
            assert!(units <= decision.remaining(), "{place}");
            assert!(limiter.at(now).peek_n(0, units).is_allowed(), "{place}");
        } else if cost <= 1 && decision.outcome() != Outcome::Never && is_near(after(seconds, 0)) {
            assert!(
                limiter.at(after(seconds, 0)).peek(0).is_allowed(),
                "the advertised window ends too early: {place}"
            );
            let before = after(seconds - 1, 1);
            assert!(
                before < now || limiter.at(before).peek(0).is_denied(),
                "the advertised window ends too late: {place}"
            );
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
                assert!(used <= given, "the fields advertise more than the rate: {place}");
            }
        }
        if decision.outcome() == Outcome::Denied {
            let wait = retry_after(&[policy]).expect("a denied request has a wait");
            let wait =
                u64::try_from(wait.as_nanos().div_ceil(SEC.into())).expect("the wait fits in 64 bits").max(1);
            assert!(seconds <= wait, "{place}, Retry-After {wait} s");
            if is_near(after(wait, 0)) {
                assert!(
                    limiter.at(after(wait, 0)).peek_n(0, cost).is_allowed(),
                    "{place}, Retry-After {wait} s"
                );
            }
        } else {
            assert_eq!(retry_after(&[policy]), None, "{place}");
        }
    }
}

// G69
#[test]
fn advertised_units_are_available() {
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
