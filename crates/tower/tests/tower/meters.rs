//! What the layer counts, and the values that the `metrics` facade receives.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use tollgate::telemetry::Meters;
use tollgate::{FixedWindow, Gcra, Quota, RateLimiter};
use tollgate_tower::{Global, Head, Missing, RateLimitLayer, RequestLimit, Ruling};

use crate::recorded::recorded;
use crate::setup::{ask, manual};

#[test]
fn requests_without_a_key_are_counted_by_outcome() {
    recorded(|values| {
        let layer = RateLimitLayer::new(RateLimiter::new(Quota::per_minute(1)), |_: Head<'_>| None::<u32>);
        let [allow, shared] =
            [Missing::Allow, Missing::Shared(1)].map(|missing| layer.clone().missing(missing));
        for layer in [&layer, &allow, &allow, &shared, &shared, &shared] {
            ask(layer, Request::new(()));
        }
        let values = values();
        for (outcome, expected) in [("refused", 1.0), ("allowed", 2.0), ("shared", 3.0)] {
            let name = format!("tollgate_requests_without_key_total{{outcome={outcome}}}");
            assert_eq!(values[&name], expected, "{outcome}");
        }
    });
}

/// Sends a request with this cost through the layer.
fn send<L: RequestLimit<()>>(layer: &RateLimitLayer<L, Global>, cost: u64) {
    ask(&layer.clone().cost(move |_| cost), Request::new(()));
}

#[test]
fn metered_layer_counts_by_outcome() {
    recorded(|values| {
        let limiter = RateLimiter::builder(FixedWindow::new(Quota::per_minute(10))).clock(manual()).direct();
        let layer = RateLimitLayer::new(limiter, Global).metered(Meters::new("shop", "all"));
        for cost in [7, 2, 3, 0] {
            send(&layer, cost); // below 80 % of the limit, near the limit, denied, exempt
        }
        let values = values();
        let counted = |decision: &str| {
            values[&format!("tollgate_requests_total{{domain=shop,rule=all,decision={decision}}}")]
        };
        assert_eq!((counted("allowed"), counted("denied")), (2.0, 1.0));
        assert_eq!(values["tollgate_hits_total{domain=shop,rule=all}"], 12.0);
        assert_eq!(values["tollgate_near_limit_total{domain=shop,rule=all}"], 1.0);
        assert_eq!(values["tollgate_over_limit_total{domain=shop,rule=all}"], 3.0);
    });
}

/// An admitted request of a striped limiter sees the units of one stripe, which say nothing about the limit.
#[test]
fn metered_layer_counts_no_near_limit_of_stripes() {
    let limiter = RateLimiter::builder(Gcra::new(Quota::per_minute(100))).clock(manual()).striped();
    let meters = Arc::new(Meters::new("shop", "striped"));
    let layer = RateLimitLayer::new(limiter, Global).metered(Arc::clone(&meters));
    (0..101).for_each(|_| send(&layer, 1));
    let counts = meters.counts();
    assert_eq!((counts.allowed, counts.denied, counts.near_limit, counts.over_limit), (100, 1, 0, 1));
}

/// A limit without a `Decision` is counted by its rulings.
#[test]
fn metered_layer_counts_rulings_without_a_decision() {
    struct Closed;
    struct NotToday;
    impl RequestLimit<()> for Closed {
        type Ruling = NotToday;
        fn check(&self, (): &(), _: u64) -> NotToday {
            NotToday
        }
        fn refund(&self, (): &(), _: &NotToday) {}
    }
    impl Ruling for NotToday {
        fn is_allowed(&self) -> bool {
            false
        }
        fn retry_after(&self) -> Option<Duration> {
            None
        }
    }
    let meters = Arc::new(Meters::new("shop", "closed"));
    send(&RateLimitLayer::new(Closed, Global).metered(Arc::clone(&meters)), 4);
    let counts = meters.counts();
    assert_eq!((counts.denied, counts.denied_hits, counts.over_limit), (1, 4, 0));
}

/// A shared limiter whose server does not answer is counted by its failure policy.
#[cfg(feature = "redis")]
#[tokio::test]
async fn metered_layer_names_failure_policies() {
    use tollgate_redis::{Client, Limit, OnFailure};
    use tower::{Layer as _, ServiceExt as _};

    use crate::setup::INNER;
    for (policy, expected) in [(OnFailure::Open, (1, 0)), (OnFailure::Closed, (0, 1))] {
        let client = Client::open("redis://127.0.0.1:1").expect("the URL is valid");
        let builder = client.limiter("down", Limit::gcra(Quota::per_minute(9))).on_failure(policy);
        let limiter = builder.atomic().expect("the limiter can be built");
        let meters = Arc::new(Meters::new("shop", "down"));
        let layer = RateLimitLayer::new(limiter, |_: Head<'_>| Some(7_u32)).metered(Arc::clone(&meters));
        let _answered = layer.awaited().layer(INNER).oneshot(Request::new(())).await;
        let counts = meters.counts();
        assert_eq!((counts.error_open, counts.error_closed), expected, "{counts:?}");
    }
}
