//! Counters and gauges, and the values that the `metrics` facade receives.

use crate::recorded::recorded;
use metrics_util::debugging::DebuggingRecorder;
use std::time::{Duration, SystemTime};
use tollgate::internals::KeylessCounts;
use tollgate::rules::{Config, Descriptor, Rules};
use tollgate::telemetry::{CheckTimer, Event, Meters, Reading, Readings, Reloads, Shares, describe, publish};
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
fn rule_loads_are_counted() {
    recorded(|values| {
        let before = SystemTime::now() - Duration::from_secs(1);
        let reloads = Reloads::new();
        assert_eq!(reloads.counts().last_success, None);
        reloads.loaded(3);
        reloads.failed(&"line 3: no");
        reloads.loaded(5);
        let counts = reloads.counts();
        assert_eq!((counts.successes, counts.errors, counts.rules), (2, 1, 5));
        assert!(counts.last_success.is_some_and(|time| time > before));
        let values = values();
        assert_eq!(values["tollgate_reload_total{result=success}"], 2.0);
        assert_eq!(values["tollgate_reload_total{result=error}"], 1.0);
        assert_eq!(values["tollgate_rules{}"], 5.0);
        let epoch =
            before.duration_since(SystemTime::UNIX_EPOCH).expect("the clock is after 1970").as_secs_f64();
        assert!(values["tollgate_reload_last_success_timestamp_seconds{}"] >= epoch);
    });
}

/// The configuration hash depends on the text of the rule files and not on their names, so it can be compared between
/// processes.
#[test]
fn config_hash_identifies_loaded_rules() {
    /// FNV-1a of the file's FNV-1a, in the first 48 bits, by another program.
    const FIRST: u64 = 0x7482_ea70_e6f5;
    recorded(|values| {
        let text = |limit: u32| {
            format!(
                "{{ domain: d, descriptors: [ {{ key: a, rate_limit: {{ unit: hour, requests_per_unit: {limit} }} }} ] }}"
            )
        };
        let config =
            |name: &str, limit: u32| Config::from_yaml(name, &text(limit)).expect("the rules are valid");
        let hash = |rules: &Rules<ManualClock>| rules.reloads().config_hash;
        let load = |config| Rules::builder().clock(clock()).load([config]).expect("the rules load");
        let (one, other) = (load(config("one.yaml", 1)), load(config("other.yaml", 1)));
        let first = hash(&one);
        assert!(first == hash(&other) && first == FIRST, "{first:#x}");
        one.replace([config("one.yaml", 2)]).expect("the rules load");
        assert!(hash(&one) != first && hash(&one) < 1 << 48);
        assert_eq!(values()["tollgate_config_hash{}"].to_bits(), (hash(&one) as f64).to_bits());
        assert!(
            one.replace([config("one.yaml", 3), config("two.yaml", 3)]).is_err(),
            "two files of one domain are an error"
        );
        assert_ne!(hash(&one), first, "the hash is of the rules in force");
        one.replace([config("again.yaml", 1)]).expect("the rules load");
        assert_eq!(hash(&one), first);
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

/// Cause: a check of two rules was timed when both were charged at once, and again when one denied. Symptom: denied
/// requests were twice as frequent in the sample as admitted ones.
#[test]
fn denied_request_is_timed_once() {
    const CALLS: u32 = 40_000;
    recorded(|values| {
        let text = "{ domain: d, descriptors: [ { key: a, rate_limit: { unit: year, requests_per_unit: LIMIT } }, { key: b, rate_limit: { unit: year, requests_per_unit: LIMIT } } ] }";
        let descriptors = [Descriptor::new(&[("a", "x")]), Descriptor::new(&[("b", "x")])];
        let [admitted, denied] = ["1000000", "1"].map(|limit| {
            let config =
                Config::from_yaml("rules", &text.replace("LIMIT", limit)).expect("the rules are valid");
            let rules = Rules::builder().clock(clock()).load([config]).expect("the rules load");
            for _ in 0..CALLS {
                let _ = rules.check("d", &descriptors);
            }
            values()["tollgate_check_duration_seconds{domain=d}"]
        });
        assert!(admitted > 100.0 && (denied / admitted - 1.0).abs() < 0.5, "{admitted} and {denied}");
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

/// The metrics of a set of servers have the label `server`.
// G96
#[cfg(feature = "redis")]
#[test]
fn shared_metrics_name_the_server() {
    use tollgate::redis::{Client, InProcess, Limit, OnFailure, Shard};
    recorded(|values| {
        let servers = ["one", "two"].map(|name| Shard::new(name, InProcess::default()));
        let set = InProcess::sharded(servers).expect("the set is valid").blocking();
        let limit = Limit::gcra(Quota::per_minute(9));
        let limiter = set.limiter("api", limit).atomic().expect("the limiter can be built");
        for key in 0..20_u32 {
            assert!(limiter.check(&key).is_allowed());
        }
        tollgate::telemetry::publish_servers("api", &limiter.health_by_server());
        let down = ["one", "two"].map(|name| Shard::new(name, Client::open("redis://127.0.0.1:1").unwrap()));
        let down = tollgate::redis::Client::sharded(down).expect("the set is valid").blocking();
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

#[cfg(feature = "redis")]
#[test]
#[expect(clippy::disallowed_methods, reason = "the exchange is a task of another thread")]
fn gauges_of_regions_name_the_region() {
    use tollgate::redis::{InProcess, Limit};
    recorded(|values| {
        let began = std::time::Instant::now();
        let servers = [(); 2].map(|()| InProcess::default().blocking());
        let builder = servers[0].limiter("api", Limit::fixed_window(Quota::per_day(100))).write_back();
        let limiter = builder
            .regions("east", [("west", servers[1].clone())])
            .build()
            .expect("the limiter can be built");
        assert!(limiter.block_on(|l| l.check_async("a")).is_allowed());
        let is_answered = || limiter.health_by_region()[0].1.last_answer.is_some();
        assert!((0..6_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_answered()
        }));
        tollgate::telemetry::publish_regions("api", &limiter.health_by_region());
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
        Meters::new("d", "r").record(Event::Allowed, 1);
        let _without_key = KeylessCounts::register(["refused", "allowed", "shared"]);
        Reloads::new().loaded(1);
        CheckTimer::new("d", 1).time(|| ());
        publish("compact", &RateLimiter::new(Quota::per_minute(1)));
        let window = FixedWindow::new(Quota::per_minute(10));
        publish("sketch", &RateLimiter::builder(window).sketch().expect("the limiter can be built"));
        tollgate::rules::publish_rules(&rules(&["{ domain: e, descriptors: [] }"]).0);
        #[cfg(feature = "watch")]
        let _followed = followed();
        #[cfg(feature = "redis")]
        {
            let server = tollgate::redis::InProcess::default().blocking();
            let limit = tollgate::redis::Limit::gcra(Quota::per_minute(1));
            let limiter = server.limiter("shared", limit).atomic().expect("the limiter can be built");
            assert!(limiter.check("a").is_allowed());
            publish("shared", &limiter.health());
        }
    });
    let all = snapshotter.snapshot().into_vec();
    // A shared limiter has the duration of calls, six kinds of errors, three failure policies and three gauges.
    let shared = if cfg!(feature = "redis") { 1 + 6 + 3 + 3 } else { 0 };
    // Rules that follow a source have their version, its time, the time of an answer, and whether the source fails.
    let source = if cfg!(feature = "watch") { 4 } else { 0 };
    // A domain of rules has the gauge of unmatched rules and the timer.
    // Loads also count the domains that they removed.
    assert_eq!(all.len(), 7 + 5 + 3 + 4 + 2 + 5 + 3 + 2 + 1 + shared + source);
    for (key, unit, text, _) in all {
        assert!(unit.is_some() && text.is_some_and(|text| !text.is_empty()), "{}", key.key().name());
        assert!(key.key().name().starts_with("tollgate_"));
    }
}

/// Loads version 7 of rules without any descriptor.
#[cfg(feature = "watch")]
fn followed() -> (std::sync::Arc<Rules>, tollgate::rules::Watcher) {
    use tollgate::rules::{Fetched, Follow, Format, RuleText, Source, Version};

    struct Fixed;

    impl Source for Fixed {
        fn name(&self) -> String {
            "fixed".to_owned()
        }

        fn fetch(
            &mut self,
            _: Option<&Version>,
        ) -> Result<Fetched, Box<dyn std::error::Error + Send + Sync>> {
            let text = RuleText::new(Version::number("s", 7), Format::Yaml, "{ domain: e, descriptors: [] }");
            Ok(Fetched::Text(text.written_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))))
        }
    }

    let slow = Follow::new(Fixed).every(Duration::from_secs(3_600));
    Rules::builder().follow(slow, |_| {}).expect("the rules are valid")
}

// G91
#[cfg(feature = "watch")]
#[test]
fn followed_version_is_published() {
    recorded(|values| {
        let before = SystemTime::now() - Duration::from_secs(1);
        let (rules, _watcher) = followed();
        let counts = rules.reloads();
        assert_eq!((counts.version, counts.source_fails), (7, false));
        assert!(counts.source_answer.is_some_and(|time| time > before));
        let values = values();
        assert_eq!(values["tollgate_rules_version{}"], 7.0);
        assert_eq!(values["tollgate_rules_version_timestamp_seconds{}"], 1_700_000_000.0);
        assert_eq!(values["tollgate_rules_source_fails{}"], 0.0);
        assert!(values["tollgate_rules_source_answer_timestamp_seconds{}"] > 1_700_000_000.0);
    });
}

// G64
#[test]
fn unmatched_rules_gauge_is_per_domain() {
    recorded(|values| {
        let text = |domain: &str| {
            let rule =
                |key: &str| format!("{{ key: {key}, rate_limit: {{ unit: hour, requests_per_unit: 9 }} }}");
            format!("{{ domain: {domain}, descriptors: [ {}, {} ] }}", rule("a"), rule("b"))
        };
        let (rules, _) = rules(&[&text("one"), &text("two")]);
        let unmatched = || {
            tollgate::rules::publish_rules(&rules);
            let values = values();
            ["one", "two"].map(|domain| values[&format!("tollgate_rules_unmatched{{domain={domain}}}")])
        };
        assert_eq!(unmatched(), [0.0, 0.0], "a domain without requests has no unmatched rules");
        assert!(rules.check("one", &[Descriptor::new(&[("a", "x")])]).is_allowed());
        assert_eq!(unmatched(), [1.0, 0.0]);
        assert!(rules.check("one", &[Descriptor::new(&[("b", "x")])]).is_allowed());
        assert_eq!(unmatched(), [0.0, 0.0]);
        rules
            .replace([Config::from_yaml("one.yaml", &text("one")).expect("the rules are valid")])
            .expect("domain two is not in use, so the load may remove it");
        let _ = rules.check("one", &[]);
        assert!(unmatched()[0] > 1.0, "rules without a request since the load are unmatched");
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

fn rules(texts: &[&str]) -> (Rules<ManualClock>, ManualClock) {
    let clock = clock();
    let configs = texts.iter().map(|text| Config::from_yaml("test.yaml", text).expect("the rules are valid"));
    (Rules::builder().clock(clock.clone()).load(configs).expect("the rules load"), clock)
}

/// Cause: the stores' gauges had only the rule's name as label. Symptom: if two domains had a rule of the same name,
/// the gauges showed only one of the rules.
#[test]
fn rule_gauges_are_separate_per_domain() {
    recorded(|values| {
        let text = |domain: &str| {
            format!(
                "{{ domain: {domain}, descriptors: [ {{ key: a, rate_limit: {{ unit: hour, requests_per_unit: 20, name: r }} }} ] }}"
            )
        };
        let (rules, _) = rules(&[&text("one"), &text("two")]);
        for client in ["x", "y"] {
            assert!(rules.check("one", &[Descriptor::new(&[("a", client)])]).is_allowed());
        }
        tollgate::rules::publish_rules(&rules);
        let values = values();
        assert_eq!(values["tollgate_keys{domain=one,rule=r}"], 2.0);
        assert_eq!(values["tollgate_keys{domain=two,rule=r}"], 0.0);
    });
}

/// Cause: a store's count was published as an absolute counter, which keeps its maximum, and some reloads create a
/// new store. Symptom: new evictions were invisible until they exceeded the count of the previous store.
#[test]
fn new_store_evictions_are_published() {
    recorded(|values| {
        let text = |algorithm: &str| {
            format!(
                "{{ domain: d, tollgate: {{}}, descriptors: [ {{ key: a, rate_limit: {{ unit: hour, requests_per_unit: 20, algorithm: {algorithm}, store: compact, memory: 4KiB, name: r }} }} ] }}"
            )
        };
        let (rules, clock) = rules(&[&text("gcra")]);
        let mut seen = Vec::new();
        for (algorithm, keys) in [("gcra", 5_000), ("fixed-window", 3_000), ("gcra", 4_000)] {
            clock.advance(Duration::from_secs(7_200));
            rules
                .replace([Config::from_yaml("test.yaml", &text(algorithm)).expect("the rules are valid")])
                .expect("the rules load");
            for key in 0..keys {
                let _ = rules.check("d", &[Descriptor::new(&[("a", &*key.to_string())])]);
            }
            let mut counted = 0;
            rules.readings(|_, _, readings| {
                let evictions = readings.iter().filter_map(|reading| match reading {
                    Reading::Counter("tollgate_evictions", count) => Some(*count),
                    _ => None,
                });
                counted += evictions.sum::<u64>();
            });
            tollgate::rules::publish_rules(&rules);
            let told = values()["tollgate_evictions{domain=d,rule=r}"];
            assert_eq!(told, f64::from(u32::try_from(counted).expect("the number fits in 32 bits")));
            seen.push(counted);
        }
        assert!(seen[0] > seen[1] && seen[1] > 0, "{seen:?}");
    });
}
