//! Differences from Envoy's service, and features that it lacks: tiers, members, and several limits on one descriptor.

use super::support::domain;
use crate::files::file;

const DAY: &str = "rate_limit: { unit: day, requests_per_unit: 1 }";

fn names(text: &str, entries: &[(&str, &str)], tier: Option<&str>) -> Vec<String> {
    domain(text).matching(entries, tier).iter().map(|rule| rule.identity.to_string()).collect()
}

#[test]
fn key_and_value_match_separately() {
    let text = format!("domain: d\ndescriptors: [{{ key: a, value: b_c, {DAY} }}, {{ key: a_b, {DAY} }}]");
    assert_eq!(names(&text, &[("a", "b_c")], None), ["d|a=b_c"]);
    // Envoy's service joins key and value, so both entries would be `a_b_c` there.
    assert_eq!(names(&text, &[("a_b", "c")], None), ["d|a_b"]);
    assert!(names(&text, &[("a", "b")], None).is_empty());
}

#[test]
fn first_declared_wildcard_matches() {
    let text = file(&[
        "key: p, value: '*.png', DAY",
        "key: p, value: /a/*, DAY",
        "key: p, value: /a/b*, DAY",
        "key: p, value: '*x*', DAY",
        "key: 'q*', value: '*', DAY",
        "key: 'q*', DAY",
        "key: p, DAY",
    ])
    .replace("DAY", DAY);
    for (entries, found) in [
        (("p", "/a/b.png"), "d|p=*.png"),
        (("p", "/a/bx"), "d|p=/a/*"),
        (("p", "/b/x"), "d|p=*x*"),
        (("p", "/b"), "d|p"),
        (("query", ""), "d|q*=*"),
        // A request's value may look like a pattern. It then matches that entry exactly, as in Envoy's service.
        (("p", "/a/b*"), "d|p=/a/b*"),
    ] {
        assert_eq!(names(&text, &[entries], None), [found], "{entries:?}");
    }
}

#[test]
fn wildcard_keys_match_keys() {
    let text = format!(
        "domain: d\ndescriptors: [{{ key: 'x-*', {DAY} }}, {{ key: x-a, {DAY} }}, {{ key: x-a, value: v, {DAY} }}]"
    );
    assert_eq!(names(&text, &[("x-b", "1")], None), ["d|x-*"]);
    assert_eq!(names(&text, &[("x-a", "v")], None), ["d|x-a=v"]);
    // Wildcards come before the key without a value.
    assert_eq!(names(&text, &[("x-a", "w")], None), ["d|x-*"]);
    let domain = domain(&text);
    let rule = &domain.matching(&[("x-b", "1")], None)[0];
    assert_eq!((rule.counted_by, &*rule.metric_name("d", &[("x-b", "1")])), (1, "d.x-*"));
}

const TIERS: &[&str] = &["
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 1 }
    tiers:
      premium:
        members: [acme, '7']
        rate_limit: { unit: day, requests_per_unit: 100 }
      gold:
        members: [globex]
        rate_limits:
          - { unit: day, requests_per_unit: 1000 }
          - { unit: hour, requests_per_unit: 100 }
  - { key: tenant, value: globex, rate_limit: { unit: day, requests_per_unit: 5 } }
  - { key: route, tiers: { premium: { rate_limit: { unlimited: true } } } }
"];

#[test]
fn tier_limits_override_entry_limit() {
    let own = &["d|tenant"][..];
    let premium = &["d|tenant#tier=premium"][..];
    let gold = &["d|tenant#tier=gold#unit=day", "d|tenant#tier=gold#unit=hour"][..];
    let rows: [(&str, Option<&str>, &[&str]); 8] = [
        ("x", None, own),
        ("x", Some("premium"), premium),
        ("x", Some("gold"), gold),
        ("x", Some("other"), own),
        ("acme", None, premium),
        // The tier in the request takes precedence over membership.
        ("acme", Some("gold"), gold),
        ("7", Some("other"), premium),
        // An exact entry takes precedence over membership in a tier.
        ("globex", None, &["d|tenant=globex"]),
    ];
    for (tenant, tier, found) in rows {
        assert_eq!(names(&file(TIERS), &[("tenant", tenant)], tier), found, "{tenant} {tier:?}");
    }
    assert!(names(&file(TIERS), &[("route", "x")], None).is_empty());
    assert_eq!(names(&file(TIERS), &[("route", "x")], Some("premium")), ["d|route#tier=premium"]);
}

#[test]
fn tier_and_unit_appear_in_metric_names() {
    let domain = domain(&file(TIERS));
    let metric = |tier| {
        let entries = [("tenant", "x")];
        let rules = domain.matching(&entries, tier);
        rules.iter().map(|rule| rule.metric_name("d", &entries)).collect::<Vec<_>>()
    };
    assert_eq!(metric(None), ["d.tenant"]);
    assert_eq!(metric(Some("gold")), ["d.tenant.tier_gold.day", "d.tenant.tier_gold.hour"]);
}

#[test]
fn metrics_follow_envoys_rules() {
    let text = file(&[&format!(
        "
  - key: route
    value: 'api/*'
    share_threshold: true
    value_to_metric: true
    descriptors:
      - {{ key: method, {DAY} }}
      - {{ key: method, value: GET, detailed_metric: true, {DAY} }}
  - key: user
    descriptors:
      - {{ key: host, value: '*.example', value_to_metric: true, {DAY} }}
      - {{ key: host, value: a.test, {DAY} }}
"
    )]);
    let domain = domain(&text);
    for (entries, metric) in [
        ([("route", "api/x"), ("method", "PUT")], "d.route_api/*.method"),
        ([("route", "api/x"), ("method", "GET")], "d.route_api/*.method_GET"),
        ([("user", "joe"), ("host", "b.example")], "d.user.host_b.example"),
        ([("user", "joe"), ("host", "a.test")], "d.user.host_a.test"),
    ] {
        assert_eq!(domain.matching(&entries, None)[0].metric_name("d", &entries), metric);
    }
}

#[test]
fn longest_of_many_nested_patterns_matches() {
    // A hundred prefix patterns and a hundred suffix patterns, where each pattern contains the next shorter pattern.
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for length in (0..100).rev() {
        text += &format!("  - {{ key: p, value: '{}*', {DAY} }}\n", "a".repeat(length + 1));
        text += &format!("  - {{ key: s, value: '*{}', {DAY} }}\n", "b".repeat(length + 1));
    }
    let domain = domain(&text);
    let found = |key: &str, value: &str| domain.matching(&[(key, value)], None).first().map(|rule| rule.line);
    for length in 1..=150 {
        // The longest pattern is declared first.
        let line = 3 + 2 * (100 - length.min(100));
        assert_eq!(found("p", &("a".repeat(length) + "x")), Some(line), "{length}");
        assert_eq!(found("s", &("x".to_owned() + &"b".repeat(length))), Some(line + 1), "{length}");
    }
    assert_eq!((found("p", "xa"), found("s", "bx"), found("p", "")), (None, None, None));
}
