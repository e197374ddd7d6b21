//! Counters and gauges of rules and their loads, and the values that the `metrics` facade receives.

use crate::recorded::recorded;
use metrics_util::debugging::DebuggingRecorder;
use std::time::{Duration, SystemTime};
use tollgate::telemetry::Reading;
use tollgate::{ManualClock, Timestamp};
use tollgate_rules::telemetry::{Reloads, describe};
use tollgate_rules::{Config, Descriptor, Rules};

/// Returns a file with `tollgate: {}` and one rule.
fn text(domain: &str, limit: &str) -> String {
    let rule = format!("{{ key: a, rate_limit: {{ unit: hour, {limit} }} }}");
    format!("{{ domain: {domain}, tollgate: {{}}, descriptors: [ {rule} ] }}")
}

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(1_700_000_000))
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
        let config = |name: &str, limit: u32| {
            let text = text("d", &format!("requests_per_unit: {limit}")).replace(" tollgate: {},", "");
            Config::from_yaml(name, &text).expect("the rules are valid")
        };
        let hash = |rules: &Rules<ManualClock>| rules.reloads().config_hash;
        let load = |config| Rules::builder().clock(clock()).load([config]).expect("the rules load");
        let (one, other) = (load(config("one.yaml", 1)), load(config("other.yaml", 1)));
        let first = hash(&one);
        assert!(first == hash(&other) && first == FIRST, "{first:#x}");
        one.replace([config("one.yaml", 2)]).expect("the rules load");
        assert!(hash(&one) != first && hash(&one) < 1 << 48);
        assert_eq!(values()["tollgate_config_hash{}"].to_bits(), (hash(&one) as f64).to_bits());
        let two_files = one.replace([config("one.yaml", 3), config("two.yaml", 3)]);
        assert!(two_files.is_err(), "two files of one domain are an error");
        assert_ne!(hash(&one), first, "the hash is of the rules in force");
        one.replace([config("again.yaml", 1)]).expect("the rules load");
        assert_eq!(hash(&one), first);
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

/// Loads version 7 of rules without any descriptor.
#[cfg(feature = "watch")]
fn followed() -> (std::sync::Arc<Rules>, tollgate_rules::Watcher) {
    use tollgate_rules::{Fetched, Follow, Format, RuleText, Source, Version};

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
            tollgate_rules::publish_rules(&rules);
            let values = values();
            ["one", "two"].map(|domain| values[&format!("tollgate_rules_unmatched{{domain={domain}}}")])
        };
        assert_eq!(unmatched(), [0.0, 0.0], "a domain without requests has no unmatched rules");
        assert!(rules.check("one", &[Descriptor::new(&[("a", "x")])]).is_allowed());
        assert_eq!(unmatched(), [1.0, 0.0]);
        assert!(rules.check("one", &[Descriptor::new(&[("b", "x")])]).is_allowed());
        assert_eq!(unmatched(), [0.0, 0.0]);
        // Domain two is not in use, so the load may remove it.
        let one = Config::from_yaml("one.yaml", &text("one")).expect("the rules are valid");
        rules.replace([one]).expect("the rules load");
        let _ = rules.check("one", &[]);
        assert!(unmatched()[0] > 1.0, "rules without a request since the load are unmatched");
    });
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
        let [one, two] = ["one", "two"].map(|domain| text(domain, "requests_per_unit: 20, name: r"));
        let (rules, _) = rules(&[&one, &two]);
        for client in ["x", "y"] {
            assert!(rules.check("one", &[Descriptor::new(&[("a", client)])]).is_allowed());
        }
        tollgate_rules::publish_rules(&rules);
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
            let store = format!("algorithm: {algorithm}, store: compact, memory: 4KiB");
            text("d", &format!("requests_per_unit: 20, name: r, {store}"))
        };
        let (rules, clock) = rules(&[&text("gcra")]);
        let mut seen = Vec::new();
        for (algorithm, keys) in [("gcra", 5_000), ("fixed-window", 3_000), ("gcra", 4_000)] {
            clock.advance(Duration::from_secs(7_200));
            let next = Config::from_yaml("test.yaml", &text(algorithm)).expect("the rules are valid");
            rules.replace([next]).expect("the rules load");
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
            tollgate_rules::publish_rules(&rules);
            let told = values()["tollgate_evictions{domain=d,rule=r}"];
            assert_eq!(told, f64::from(u32::try_from(counted).expect("the number fits in 32 bits")));
            seen.push(counted);
        }
        assert!(seen[0] > seen[1] && seen[1] > 0, "{seen:?}");
    });
}

/// Every metric has a description and a unit.
#[test]
fn every_metric_is_described() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        tollgate::telemetry::describe();
        describe();
        Reloads::new().loaded(1);
        tollgate_rules::publish_rules(&rules(&["{ domain: e, descriptors: [] }"]).0);
        #[cfg(feature = "watch")]
        let _followed = followed();
    });
    let all = snapshotter.snapshot().into_vec();
    // Rules that follow a source have their version, its time, the time of an answer, and whether the source fails.
    let source = if cfg!(feature = "watch") { 4 } else { 0 };
    // Loads count successes, errors, unknown and removed domains. A domain of rules has the gauge of unmatched rules and
    // the timer.
    assert_eq!(all.len(), 4 + 3 + 2 + source);
    for (key, unit, text, _) in all {
        assert!(unit.is_some() && text.is_some_and(|text| !text.is_empty()), "{}", key.key().name());
        assert!(key.key().name().starts_with("tollgate_"));
    }
}
