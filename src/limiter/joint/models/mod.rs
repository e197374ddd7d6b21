//! Loom models of several limits on one request.
//!
//! Laws: no limit admits more than its own bound. After all threads end, each limit is charged for the admitted
//! requests and for nothing else.

use std::time::Duration;

use super::*;
use crate::algorithm::Algorithm;
use crate::algorithm::{Gcra, MinimumSpacing, SlidingLog};
use crate::base::clock::models::Still;
use crate::base::quota::Quota;
use crate::base::sync::{Arc, explore, spawn};
use crate::limiter::RateLimiter;
use crate::store::Direct;

#[cfg(tollgate_shuttle)]
mod many;

type Direct1<A> = RateLimiter<Direct<A>, Still>;

fn direct<A: Algorithm>(algorithm: A) -> Direct1<A> {
    RateLimiter::builder(algorithm).clock(Still(100_000_000_000)).direct()
}

fn gcra(units: u64) -> Direct1<Gcra> {
    direct(Gcra::new(Quota::per_hour(units)))
}

/// Runs two threads, and passes each thread's result to `then`.
fn both<T: Send + Sync + 'static>(shared: T, a: fn(&T) -> bool, b: fn(&T) -> bool, then: fn(&T, bool, bool)) {
    let shared = Arc::new(shared);
    let other = spawn(&shared, a);
    let here = b(&shared);
    then(&shared, other.join().unwrap(), here);
}

// G47
#[test]
fn two_limits_admit_one_of_two_requests() {
    explore(3, || {
        let check = |(x, y): &(_, _)| check_all((on(x), on(y))).is_allowed();
        both((gcra(1), gcra(2)), check, check, |(x, y), a, b| {
            assert!(a ^ b, "one of two requests gets the unit, if both charge in the same order");
            assert_eq!(
                (x.peek().remaining(), y.peek().remaining()),
                (0, 1),
                "only admitted requests are charged"
            );
        });
    });
}

fn on<A: Algorithm>(limiter: &Direct1<A>) -> BoundLimit<'_, Direct<A>, Still, ()> {
    limiter.on()
}

/// If two requests charge the limits in opposite orders, both may be denied, each because of a charge that the other
/// one then refunds. The docs of `check_all` describe this.
// G47
#[test]
fn lost_race_leaves_no_charge() {
    explore(3, || {
        both(
            (gcra(1), gcra(1)),
            |(x, y)| check_all((on(x), on(y))).is_allowed(),
            |(x, y)| check_all((on(y), on(x))).is_allowed(),
            |(x, y), a, b| {
                assert!(!(a && b), "no limit admits more than one unit");
                let left = u64::from(!(a || b));
                let (x, y) = (x.peek().remaining(), y.peek().remaining());
                assert_eq!((x, y), (left, left), "only admitted requests are charged");
            },
        );
    });
}

#[test]
fn single_check_races_a_pair() {
    explore(3, || {
        both(
            (gcra(2), gcra(1)),
            |(x, y)| check_all((on(x).cost(2), on(y))).is_allowed(),
            |(_, y)| y.check().is_allowed(),
            |(x, y), pair, single| {
                assert!(pair ^ single, "one of two requests gets the unit of the second limit");
                let (x, y) = (x.peek().remaining(), y.peek().remaining());
                assert_eq!((x, y), (if pair { 0 } else { 2 }, 0), "only admitted requests are charged");
            },
        );
    });
}

/// The log cannot refund, so it is charged last although it is listed first.
// G47
#[test]
fn limit_without_refund_is_charged_last() {
    explore(3, || {
        let log = direct(SlidingLog::new(Quota::per_hour(2)));
        both(
            (log, gcra(1)),
            |(log, unit)| check_all((on(log), on(unit))).is_allowed(),
            |(_, unit)| unit.check().is_allowed(),
            |(log, unit), pair, single| {
                assert!(pair ^ single, "one of two requests gets the unit");
                assert_eq!(unit.peek().remaining(), 0, "only admitted requests are charged");
                assert_eq!(
                    log.peek().remaining(),
                    if pair { 1 } else { 2 },
                    "the log is charged only for an admitted pair"
                );
            },
        );
    });
}

// G47
#[test]
fn three_threads_share_two_limits() {
    explore(2, || {
        let limits = Arc::new((gcra(2), direct(MinimumSpacing::new(Duration::from_secs(1)))));
        let check = |limits: &(_, _)| check_all((on(&limits.0), on(&limits.1))).is_allowed();
        let [a, b] = [(); 2].map(|()| spawn(&limits, check));
        let here = check(&limits);
        let admitted = u64::from(here) + u64::from(a.join().unwrap()) + u64::from(b.join().unwrap());
        assert!(admitted <= 1, "at most one event per second is admitted: {admitted}");
        let left = limits.0.peek().remaining();
        assert_eq!(left, 2 - admitted, "only admitted requests are charged");
    });
}

/// Peeks at both limits, then charges both, and refunds nothing.
fn check_then_act<A: Algorithm, B: Algorithm>(x: &Direct1<A>, y: &Direct1<B>) -> bool {
    x.peek().is_allowed() && y.peek().is_allowed() && x.check().is_allowed() && y.check().is_allowed()
}

// G47
#[test]
#[should_panic(expected = "only admitted requests are charged")]
fn control_without_refund_leaves_a_charge() {
    explore(3, || {
        both(
            (gcra(2), gcra(1)),
            |(x, y)| check_then_act(x, y),
            |(x, y)| check_then_act(x, y),
            |(x, _), a, b| {
                let admitted = u64::from(a) + u64::from(b);
                assert_eq!(x.peek().remaining(), 2 - admitted, "only admitted requests are charged");
            },
        );
    });
}
