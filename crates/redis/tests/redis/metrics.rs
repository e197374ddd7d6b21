//! Metrics of the servers and regions of shared limiters, and the values that the `metrics` facade receives.

use crate::recorded::recorded;
use metrics_util::debugging::DebuggingRecorder;
use tollgate::Quota;
use tollgate_redis::telemetry::{describe, publish_regions, publish_servers};
use tollgate_redis::{Client, InProcess, Limit, OnFailure, Shard};

/// The metrics of a set of servers have the label `server`.
// G96
#[test]
fn shared_metrics_name_the_server() {
    recorded(|values| {
        let servers = ["one", "two"].map(|name| Shard::new(name, InProcess::default()));
        let set = InProcess::sharded(servers).expect("the set is valid").blocking();
        let limit = Limit::gcra(Quota::per_minute(9));
        let limiter = set.limiter("api", limit).atomic().expect("the limiter can be built");
        for key in 0..20_u32 {
            assert!(limiter.check(&key).is_allowed());
        }
        publish_servers("api", &limiter.health_by_server());
        let down = ["one", "two"].map(|name| Shard::new(name, crate::absent()));
        let down = Client::sharded(down).expect("the set is valid").blocking();
        let down = down.limiter("down", limit).on_failure(OnFailure::Closed).atomic().unwrap();
        for key in 0..20_u32 {
            assert!(down.check(&key).is_denied());
        }
        let values = values();
        for server in ["one", "two"] {
            assert_eq!(values[&format!("tollgate_partitioned{{limiter=api,server={server}}}")], 0.0);
            assert_eq!(values[&format!("tollgate_breaker_state{{limiter=api,server={server}}}")], 0.0);
        }
        let denied = |server: &str| {
            let labels = format!("limiter=down,server={server},decision=error_closed");
            values[&format!("tollgate_failure_decisions_total{{{labels}}}")]
        };
        assert_eq!(denied("one") + denied("two"), 20.0);
        assert!(denied("one") > 0.0 && denied("two") > 0.0);
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the exchange is a task of another thread")]
fn gauges_of_regions_name_the_region() {
    recorded(|values| {
        let began = std::time::Instant::now();
        let servers = [(); 2].map(|()| InProcess::default().blocking());
        let builder = servers[0].limiter("api", Limit::fixed_window(Quota::per_day(100))).write_back();
        let limiter = builder.regions("east", [("west", servers[1].clone())]).build().unwrap();
        assert!(limiter.block_on(|l| l.check_async("a")).is_allowed());
        let region = || limiter.health_by_region()[0].1;
        crate::wait_until("the other region answers", || region().last_answer.is_some());
        publish_regions("api", &limiter.health_by_region());
        let values = values();
        assert_eq!(values["tollgate_region_cut_off{limiter=api,region=west}"], 0.0);
        let since = values["tollgate_region_last_answer_seconds{limiter=api,region=west}"];
        assert!((0.0..=began.elapsed().as_secs_f64()).contains(&since), "{since}");
    });
}

/// Every metric has a description and a unit.
#[test]
fn every_metric_is_described() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        describe();
        let limiter = InProcess::default().blocking().limiter("shared", Limit::gcra(Quota::per_minute(1)));
        let limiter = limiter.atomic().expect("the limiter can be built");
        assert!(limiter.check("a").is_allowed());
        tollgate::telemetry::publish("shared", &limiter.health());
    });
    let all = snapshotter.snapshot().into_vec();
    // The duration of calls, six kinds of errors, three failure policies and three gauges.
    assert_eq!(all.len(), 1 + 6 + 3 + 3);
    for (key, unit, text, _) in all {
        assert!(unit.is_some() && text.is_some_and(|text| !text.is_empty()), "{}", key.key().name());
        assert!(key.key().name().starts_with("tollgate_"));
    }
}
