//! Counters and gauges, and the values that the `metrics` facade receives.

use crate::recorded::recorded;
use metrics_util::debugging::DebuggingRecorder;
use tollgate::internals::KeylessCounts;
use tollgate::telemetry::{CheckTimer, Event, Meters, Reading, Readings, Shares, describe, publish};
use tollgate::{Capacity, FixedWindow, Gcra, ManualClock, Quota, RateLimiter, Timestamp};

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(1_700_000_000))
}

#[test]
fn rule_requests_are_counted_by_outcome() {
    recorded(|values| {
        let meters = Meters::new("api", "per-ip");
        let limiter = RateLimiter::builder(FixedWindow::new(Quota::per_minute(10))).clock(clock()).direct();
        meters.observe(&limiter.check_n(7), false); // below 80 % of the limit
        meters.observe(&limiter.check_n(2), false); // the ninth unit is near the limit
        meters.observe(&limiter.check(), false); // near the limit
        meters.observe(&limiter.check_n(3), false); // denied
        meters.observe(&limiter.check_n(4), true); // denied by a shadow rule
        meters.observe(&limiter.check_n(11), false); // above the limit, never admitted
        meters.record(Event::Unlimited, 5);
        meters.record(Event::SoftLimited, 2);

        let counts = meters.counts();
        assert_eq!((counts.allowed, counts.denied, counts.shadow_denied, counts.unlimited), (3, 2, 1, 1));
        assert_eq!((counts.requests(), counts.hits), (7, 7 + 2 + 1 + 3 + 4 + 11 + 5));
        assert_eq!((counts.near_limit, counts.over_limit, counts.soft_limited), (2, 18, 2));

        let values = values();
        let of = |name: &str, decision: &str| {
            let labels = if decision.is_empty() { String::new() } else { format!(",decision={decision}") };
            values[&format!("tollgate_{name}_total{{domain=api,rule=per-ip{labels}}}")]
        };
        assert_eq!((of("requests", "allowed"), of("requests", "denied")), (3.0, 2.0));
        assert_eq!((of("requests", "shadow_denied"), of("requests", "unlimited")), (1.0, 1.0));
        assert_eq!((of("requests", "error_open"), of("requests", "error_closed")), (0.0, 0.0));
        assert_eq!((of("requests", "error_local"), of("hits", "")), (0.0, 33.0));
        assert_eq!((of("near_limit", ""), of("over_limit", ""), of("soft_limited", "")), (2.0, 18.0, 2.0));
        assert_eq!(values.len(), 7 + 5, "there are no other metrics");
    });
}

#[test]
fn each_event_has_its_own_counter() {
    let decisions = [
        Event::Allowed,
        Event::Denied,
        Event::ShadowDenied,
        Event::Unlimited,
        Event::ErrorOpen,
        Event::ErrorClosed,
        Event::ErrorLocal,
    ];
    let marks = [Event::NearLimit, Event::OverLimit, Event::SoftLimited, Event::Blocked];
    for event in decisions.into_iter().chain(marks) {
        recorded(|values| {
            Meters::new("d", "r").record(event, 7);
            let is_decision = decisions.contains(&event);
            assert_eq!(event.is_decision(), is_decision);
            let counter = match event.as_str() {
                decision if is_decision => format!("requests_total{{domain=d,rule=r,decision={decision}}}"),
                mark => format!("{mark}_total{{domain=d,rule=r}}"),
            };
            let mut counted: Vec<_> = values().into_iter().filter(|(_, value)| *value > 0.0).collect();
            counted.retain(|(name, _)| !name.starts_with("tollgate_hits_total"));
            assert_eq!(counted, [(format!("tollgate_{counter}"), if is_decision { 1.0 } else { 7.0 })]);
        });
    }
}

/// A caller that also counts denied requests, as Envoy's service does, splits the units into shares.
#[test]
fn nonzero_shares_are_recorded() {
    recorded(|values| {
        let meters = Meters::new("d", "r");
        meters.record_shares(Shares::of(20, 10, 10));
        assert!(values().values().all(|value| *value == 0.0));
        meters.record_shares(Shares::of(20, 22, 9));
        assert_eq!((meters.counts().near_limit, meters.counts().over_limit), (4, 2));
        assert_eq!(meters.counts().requests(), 0);
    });
}

/// Only separators, and the dots of addresses, are replaced.
#[test]
fn metric_labels_are_sanitized() {
    recorded(|values| {
        Meters::new("a|b", "remote_10.0.0.1:443/größe").record(Event::Allowed, 1);
        let labels = "{domain=a_b,rule=remote_10_0_0_1_443/größe";
        assert_eq!(values()[&format!("tollgate_hits_total{labels}}}")], 1.0);
        for (name, expected) in [
            ("", ""),
            ("path_/api/v1.2", "path_/api/v1.2"),
            ("a:b|c", "a_b_c"),
            ("remote_address_10.0.0.255", "remote_address_10_0_0_255"),
            ("10.0.0.1:443", "10_0_0_1_443"),
            ("1.2.3", "1.2.3"),
            ("1.2.3.4.5", "1.2.3.4.5"),
            ("256.0.0.1", "256.0.0.1"),
            ("größe|€", "größe_€"),
        ] {
            Meters::new("d", name).record(Event::Allowed, 1);
            assert_eq!(values()[&format!("tollgate_hits_total{{domain=d,rule={expected}}}")], 1.0);
        }
    });
}

/// The number of a rule's metrics does not depend on the number of keys.
// G73
#[test]
fn keys_create_no_metrics() {
    recorded(|values| {
        let meters = Meters::new("d", "r");
        let limiter = RateLimiter::new(Quota::per_minute(1));
        for key in 0..1_000 {
            meters.observe(&limiter.check(&key), false);
        }
        publish("l", &limiter);
        assert_eq!(values().len(), 7 + 5 + 4);
    });
}

// G73
#[test]
fn no_count_is_lost_between_threads() {
    const EACH: u64 = if cfg!(miri) { 20 } else { 5_000 };
    let meters = Meters::new("d", "r");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..EACH).for_each(|_| meters.record(Event::Allowed, 3)));
        }
    });
    assert_eq!((meters.counts().allowed, meters.counts().hits), (4 * EACH, 12 * EACH));
}

#[test]
fn publish_reports_limiter_figures() {
    recorded(|values| {
        let gcra = Gcra::new(Quota::per_hour(1));
        let compact = RateLimiter::builder(gcra).clock(clock()).capacity(Capacity::slots(64)).compact();
        let compact = compact.expect("the limiter can be built");
        for key in 0..1_000 {
            let _ = compact.check(&key);
        }
        publish("small", &compact);
        let first = values();
        let gauges = compact.gauges();
        let number = |number: u64| f64::from(u32::try_from(number).expect("the number fits in 32 bits"));
        let size = |number: usize| f64::from(u32::try_from(number).expect("the number fits in 32 bits"));
        assert!(gauges.evicted > 0);
        assert_eq!(first["tollgate_evictions{limiter=small}"], number(gauges.evicted));
        assert_eq!(first["tollgate_debt_denials{limiter=small}"], number(gauges.denied_for_debt));
        assert_eq!(first["tollgate_slots{limiter=small}"], size(gauges.slots));
        assert_eq!(first["tollgate_keys{limiter=small}"], size(compact.live_slots()));

        let keyed = RateLimiter::builder(gcra).clock(clock()).keyed::<u32>();
        let _ = (keyed.check(&1), keyed.check(&2));
        publish("exact", &keyed);
        let sketch = RateLimiter::builder(FixedWindow::new(Quota::per_minute(10))).clock(clock());
        let sketch = sketch.capacity(Capacity::memory(1 << 16)).sketch().expect("the limiter can be built");
        for key in 0..20_000 {
            let _ = sketch.check_n(&key, 4);
        }
        publish("rough", &sketch);
        let values = values();
        assert_eq!(values["tollgate_keys{limiter=exact}"], 2.0);
        let saturation = sketch.saturation();
        assert!(saturation.overcounted > 0.0);
        for (name, expected) in [
            ("false_positive_estimate", saturation.false_positive),
            ("estimated_error", saturation.overcounted),
            ("false_denial_estimate", saturation.denied),
        ] {
            assert_eq!(values[&format!("tollgate_sketch_{name}{{limiter=rough}}")], expected, "{name}");
        }
        let readings = format!("{:?}", compact.readings());
        assert_eq!(format!("{:?}", compact.adjustable().readings()), readings);
        assert!(sketch.readings().iter().all(|reading| matches!(reading, Reading::Gauge(..))));
    });
}

#[test]
fn timer_samples_one_check_in_n() {
    const CALLS: u32 = 10_000;
    recorded(|values| {
        for (every, timed) in [(1, 10_000), (10, 1_000), (100, 100), (0, 0)] {
            let timer = CheckTimer::new(&every.to_string(), every);
            assert_eq!(
                (0..CALLS).filter(|_| timer.time(|| true)).count(),
                10_000,
                "the timer runs every call"
            );
            let told = values()[&format!("tollgate_check_duration_seconds{{domain={every}}}")];
            // The bound is six standard deviations of a binomial distribution.
            let far = 6.0 * f64::from(timed).sqrt() * f64::from(u8::from(every > 1));
            assert!((told - f64::from(timed)).abs() <= far, "one in {every}: {told} of {CALLS}");
        }
    });
}

/// Cause: all timers of a thread shared one counter. Symptom: with requests to two domains in turn, one domain was
/// never timed.
#[test]
fn interleaved_timers_are_all_sampled() {
    recorded(|values| {
        let timers = ["a", "b", "c", "d"].map(|domain| CheckTimer::new(domain, 16));
        for _ in 0..2_000 {
            timers.iter().for_each(|timer| timer.time(|| ()));
        }
        for (domain, told) in values() {
            assert!((50.0..200.0).contains(&told), "{domain}: {told} of 2000");
        }
    });
}

/// Counting works without any recorder.
#[test]
fn counting_needs_no_recorder() {
    let meters = Meters::new("d", "r");
    meters.record(Event::ErrorOpen, 1);
    describe();
    publish("l", &RateLimiter::new(Quota::per_minute(1)));
    assert_eq!(meters.counts().error_open, 1);
    // Each outcome with other units: which of them are units of denied requests?
    let outcomes = [Event::Allowed, Event::Unlimited, Event::Denied, Event::ErrorClosed, Event::ShadowDenied];
    let meters = Meters::new("api", "user");
    outcomes.iter().zip([1, 2, 4, 8, 16]).for_each(|(event, hits)| meters.record(*event, hits));
    let counts = meters.counts();
    assert_eq!((counts.hits, counts.denied_hits, counts.shadow_denied_hits), (31, 12, 16));
}

/// A recorder without fields looks like the one that stands in for a missing one, except for what it does.
#[test]
fn recorder_without_fields_is_reached() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use metrics::{
        Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };

    static SUM: AtomicU64 = AtomicU64::new(0);
    struct Adds;
    impl CounterFn for Adds {
        fn increment(&self, value: u64) {
            SUM.fetch_add(value, Relaxed);
        }
        fn absolute(&self, _: u64) {}
    }
    struct Fieldless;
    impl Recorder for Fieldless {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::new(Adds))
        }
        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }
    let meters = metrics::with_local_recorder(&Fieldless, || Meters::new("d", "r"));
    meters.record(Event::Allowed, 4);
    assert_eq!(SUM.load(Relaxed), 1 + 4, "a request and its units");
}

/// Every metric has a description and a unit.
#[test]
fn every_metric_is_described() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        describe();
        Meters::new("d", "r").record(Event::Allowed, 1);
        let _without_key = KeylessCounts::register(["refused", "allowed", "shared"]);
        CheckTimer::new("d", 1).time(|| ());
        publish("compact", &RateLimiter::new(Quota::per_minute(1)));
        let window = FixedWindow::new(Quota::per_minute(10));
        publish("sketch", &RateLimiter::builder(window).sketch().expect("the limiter can be built"));
    });
    let all = snapshotter.snapshot().into_vec();
    assert_eq!(all.len(), 7 + 5 + 3 + 1 + 4 + 3);
    for (key, unit, text, _) in all {
        assert!(unit.is_some() && text.is_some_and(|text| !text.is_empty()), "{}", key.key().name());
        assert!(key.key().name().starts_with("tollgate_"));
    }
}
