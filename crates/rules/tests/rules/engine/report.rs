//! The metrics and reports of rules that operators see.

use tollgate::telemetry::{MeterCounts, Reading, TopDenied};
use tollgate_rules::{Descriptor, Rules};

use super::{Scene, config, file};

const TWO: &[&str] = &[
    "key: a, rate_limit: { unit: minute, requests_per_unit: 10, soft: 5 }",
    "key: b, rate_limit: { unit: hour, requests_per_unit: 2 }",
    "key: c, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 }",
    "key: free, rate_limit: { unlimited: true }",
];

/// Rules that keep the most-denied keys.
fn with_top(descriptors: &[&str]) -> Rules {
    let top = TopDenied::try_new(10, 1).unwrap();
    Rules::builder().top_denied(top).load([config(&file(descriptors))]).unwrap()
}

fn counts(scene: &Scene, wanted: &str) -> MeterCounts {
    let mut found = None;
    scene.rules.for_each(|_, rule, counts| {
        if &*rule.name == wanted {
            found = Some(counts);
        }
    });
    found.unwrap_or_else(|| panic!("no rule is called {wanted}"))
}

#[test]
fn metrics_count_each_rule() {
    let scene = Scene::of(TWO);
    assert_eq!(scene.admitted(&[("a", "x")], 12), 10);
    let a = counts(&scene, "d.a");
    assert_eq!((a.allowed, a.denied, a.hits, a.soft_limited), (10, 2, 12, 5));
    // The ninth and the tenth request are above 80% of the limit.
    assert_eq!((a.near_limit, a.over_limit), (2, 2));
    assert_eq!(scene.admitted(&[("c", "x")], 3), 3);
    let c = counts(&scene, "d.c");
    assert_eq!((c.allowed, c.denied, c.shadow_denied), (1, 0, 2));
    assert_eq!(scene.admitted(&[("free", "x")], 3), 3);
    assert_eq!(counts(&scene, "d.free").unlimited, 3);
    let _look = scene.ask_n(&[("a", "y")], 0);
    assert_eq!(counts(&scene, "d.a"), a, "a peek is not counted");
}

/// If one rule denies a request, the other rule neither charges it nor counts it.
#[test]
fn denial_by_other_rule_is_not_counted() {
    let (a, b) = ([("a", "x")], [("b", "x")]);
    let scene = Scene::of(TWO);
    (0..5).for_each(|_| assert!(!scene.ask_both(&a, &b).is_never()));
    assert_eq!(counts(&scene, "d.a").requests(), 2);
    assert_eq!((counts(&scene, "d.b").allowed, counts(&scene, "d.b").denied), (2, 3));
    let scene = Scene::counting_first(&file(TWO));
    (0..5).for_each(|_| assert!(!scene.ask_both(&a, &b).is_never()));
    assert_eq!(counts(&scene, "d.a").allowed, 5, "with count-first, both rules charge and count the request");
}

#[test]
fn metrics_continue_over_reloads() {
    let scene = Scene::of(TWO);
    assert_eq!(scene.admitted(&[("b", "x")], 3), 2);
    scene.reload(&file(TWO).replace("requests_per_unit: 2", "requests_per_unit: 3"));
    assert_eq!(scene.admitted(&[("b", "x")], 3), 1);
    assert_eq!((counts(&scene, "d.b").allowed, counts(&scene, "d.b").denied), (3, 4 - 1));
    assert_eq!(scene.rules.reloads().rules, 4);
}

#[test]
fn unknown_domains_are_counted() {
    let scene = Scene::of(TWO);
    assert!(scene.rules.check("nope", &[]).is_allowed());
    assert_eq!(scene.rules.reloads().unknown_domains, 1);
}

#[test]
fn most_denied_keys_are_listed() {
    let rules = with_top(TWO);
    for _ in 0..7 {
        let _ = rules.check("d", &[Descriptor::new(&[("b", "alice")])]);
        let _ = rules.check("d", &[Descriptor::new(&[("c", "bob")])]);
    }
    let top = rules.top_denied(5);
    assert_eq!(top.len(), 1, "shadow denials do not appear among the most-denied keys");
    assert_eq!((top[0].rule.as_str(), top[0].key.as_str(), top[0].count), ("d.b", "alice", 5));
}

/// A client that changes its address within its network is one key in the counter, and must be one key in the report.
#[test]
fn most_denied_keys_are_those_that_are_counted() {
    let rules = with_top(&[
        "key: path, descriptors: [ { key: ip, rate_limit: { name: login, unit: day, requests_per_unit: 1 } } ]",
    ]);
    for host in 0..6 {
        let address = format!("2001:db8::{host}");
        let whole = [("path", "/login"), ("ip", &*address)];
        let network = [("path", "/login"), ("ip", "2001:db8::")];
        let _ = rules.check("d", &[Descriptor::new(&whole).counted_as(&network)]);
    }
    let top: Vec<_> = rules.top_denied(9).into_iter().map(|one| (one.key, one.count)).collect();
    assert_eq!(top, [("path=/login,ip=2001:db8::".to_owned(), 5)]);
}

/// The report had the client's network for each prefix, the spelling that the client chose, and values that the rule does not
/// count, so one counter filled the list.
#[test]
fn most_denied_keys_are_those_of_counters() {
    let rules = with_top(&["
  - key: ip
    prefixes:
      ipv4: { 32: { unlimited: true } }
      ipv6: { 48: { name: wide, unit: day, requests_per_unit: 0 } }
  - key: path
    descriptors:
      - key: ip
        prefixes:
          ipv4: { 32: { unlimited: true } }
          ipv6: { 48: { name: below, unit: day, requests_per_unit: 1 } }
  - key: user
    descriptors:
      - { key: ip, ranges: ['2001:db8::/32'], rate_limit: { name: each, unit: day, requests_per_unit: 1 } }
  - key: tenant
    value: 't*'
    share_threshold: true
    descriptors:
      - key: zone
        descriptors: [ { key: id, rate_limit: { name: shared, unit: day, requests_per_unit: 1 } } ]
"]);
    for host in 0..4 {
        let (address, tenant) = (format!("2001:db8:0:{host}::1"), format!("t{host}"));
        let spelled = ["2001:db8::1", "2001:DB8::1", "2001:db8:0::1", "2001:db8::0:1"][host];
        for entries in [
            &[("ip", &*address)][..],
            &[("path", "/"), ("ip", &address)],
            &[("user", "u"), ("ip", spelled)],
            &[("tenant", &tenant), ("zone", "z"), ("id", "i")],
        ] {
            let _ = rules.check("d", &[Descriptor::new(entries)]);
        }
    }
    let mut top: Vec<_> = rules.top_denied(9).into_iter().map(|one| (one.rule, one.key, one.count)).collect();
    top.sort();
    let top: Vec<_> = top.iter().map(|(rule, key, count)| (&**rule, &**key, *count)).collect();
    assert_eq!(
        top,
        [
            ("below", "path=/,ip=2001:db8::/48", 3),
            ("each", "user=u,ip=2001:db8::1", 3),
            ("shared", "zone=z,id=i", 3),
            ("wide", "2001:db8::/48", 4),
        ]
    );
}

#[test]
fn stores_report_key_gauges() {
    let scene = Scene::of(&[
        "key: a, rate_limit: { unit: minute, requests_per_unit: 10, store: keyed }",
        "key: b, rate_limit: { unit: minute, requests_per_unit: 10 }",
        "key: c, rate_limit: { unit: minute, requests_per_unit: 10, store: sketch }",
    ]);
    for value in ["x", "y"] {
        for key in ["a", "b", "c"] {
            assert!(scene.ask(&[(key, value)]).is_allowed());
        }
    }
    let mut seen = Vec::new();
    scene.rules.readings(|domain, name, readings| {
        assert_eq!(domain, "d");
        seen.push((name.to_owned(), readings.to_vec()));
    });
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0], ("d.a".to_owned(), vec![Reading::Gauge("tollgate_keys", 2.0)]));
    assert!(seen[1].1.contains(&Reading::Gauge("tollgate_keys", 2.0)), "{:?}", seen[1]);
    assert!(seen[1].1.contains(&Reading::Counter("tollgate_evictions", 0)), "{:?}", seen[1]);
    let is_estimate = |reading: &Reading| reading.name() == "tollgate_sketch_estimated_error";
    assert!(seen[2].1.iter().any(is_estimate), "{:?}", seen[2]);
}

/// Regression test. A load with another limit moves no keys, and the number of keys fell to 0 while all of them owed.
#[test]
fn number_of_keys_survives_loads() {
    let text = |limit| {
        let rate = format!("rate_limit: {{ unit: hour, requests_per_unit: {limit}");
        file(&[&format!("key: a, {rate}, store: keyed }}"), &format!("key: b, {rate} }}")])
    };
    let scene = Scene::new(&text(10));
    for value in 0..20 {
        for key in ["a", "b"] {
            assert!(scene.ask(&[(key, &value.to_string())]).is_allowed());
        }
    }
    for limit in [20, 30, 10] {
        scene.reload(&text(limit));
        let mut rules = 0;
        scene.rules.readings(|_, name, readings| {
            let keys = Reading::Gauge("tollgate_keys", 20.0);
            assert!(readings.contains(&keys), "{name}, {limit}: {readings:?}");
            rules += 1;
        });
        assert_eq!(rules, 2);
    }
}

/// A cost that crosses a threshold is split there. By Envoy's definition, with a limit of 10 and costs of 8 and then 6,
/// two units are near the limit and four are over it.
#[test]
fn cost_is_split_at_metric_thresholds() {
    let text = "{ domain: d, tollgate: {}, descriptors: [ { key: a, rate_limit: { unit: hour, requests_per_unit: 10 } } ] }";
    let scene = Scene::counting_first(text);
    assert!(scene.ask_n(&[("a", "x")], 8).is_allowed());
    assert!(scene.ask_n(&[("a", "x")], 6).is_denied());
    let counted = counts(&scene, "d.a");
    assert_eq!((counted.near_limit, counted.over_limit), (2, 4));
    // The same holds for a soft limit.
    let scene = Scene::new(&text.replace("requests_per_unit: 10", "requests_per_unit: 10, soft: 5"));
    assert!(scene.ask_n(&[("a", "x")], 6).is_soft_limited());
    assert_eq!(counts(&scene, "d.a").soft_limited, 1);
}
