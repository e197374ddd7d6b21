//! Tests the configuration keys that Tollgate adds to Envoy's language: their values, and the combinations that are
//! rejected.

use tollgate::{Capacity, LimitKind, Quota, StoreConfig, StoreKind, WhenFull};
use tollgate_config::{Amount, Charging, Rule, Store};

use super::support::{file, good, limit, problem, rejected, rejected_limits};

fn quota(rule: &Rule) -> (Quota, LimitKind, Option<Store>) {
    match rule.limit {
        Amount::Limited { limit, store } => (limit.quota(), limit.kind(), store),
        _ => panic!("{rule:?}"),
    }
}

fn only(text: &str) -> (Quota, LimitKind, Option<Store>) {
    let config = good(text);
    assert_eq!(config.rules().len(), 1);
    quota(&config.rules()[0])
}

#[test]
fn tollgate_keys_need_opt_in() {
    let rows = r#"
        descriptors: [{ key: a, rate_limit: { unit: day, requests_per_unit: 1, burst: 2 } }]
            => descriptors[0].rate_limit.burst: rate_limit has no key "burst" ... add `tollgate: {}` at the top
        descriptors: [{ key: a, tiers: {} }] => it is an extra key of a descriptor
        tollgate: {}\ndescriptors: [{ key: a, burst: 2 }] => a descriptor has no key "burst"; move it to rate_limit
        tollgate: { algorithm: leaky } => no algorithm is called "leaky"; use gcra, token-bucket,
        tollgate: { unit: day } => the `tollgate` map has no key "unit"
        tollgate: { charging: twice } => use all-or-nothing, count-first or count-denials
        tollgate: 5 => expected a map, found "5"
    "#;
    rejected(rows, |rest| format!("domain: d\n{rest}"));
}

#[test]
fn algorithm_parameters_are_read() {
    let day = "unit: day, requests_per_unit: 100";
    let rows = [
        ("", LimitKind::FixedWindow),
        (", algorithm: gcra", LimitKind::Gcra),
        (", algorithm: token-bucket", LimitKind::TokenBucket),
        (", algorithm: leaky-bucket", LimitKind::LeakyBucketMeter),
        (", algorithm: sliding-window", LimitKind::SlidingWindow { strict: false }),
        (", algorithm: sliding-window, strict: true", LimitKind::SlidingWindow { strict: true }),
        (", algorithm: sub-window", LimitKind::SubWindow { parts: 60, strict: false }),
        (
            ", algorithm: sub-window, parts: 24, strict: true",
            LimitKind::SubWindow { parts: 24, strict: true },
        ),
        (", algorithm: sliding-log", LimitKind::SlidingLog),
    ];
    for (more, algorithm) in rows {
        assert_eq!(only(&limit(&format!("{day}{more}"))), (Quota::per_day(100), algorithm, None), "{more}");
    }
    let burst = only(&limit("unit: second, every: 10, requests_per_unit: 100, algorithm: gcra, burst: 7"));
    assert_eq!(burst.0, "100/10s burst 7".parse().unwrap());
}

#[test]
fn store_sizes_are_read() {
    let day = "unit: day, requests_per_unit: 100";
    let mib = |n: usize| Capacity::memory(n << 20);
    let [compact, keyed] = [StoreKind::Compact, StoreKind::Keyed].map(StoreConfig::new);
    for (more, store) in [
        (", store: compact", compact.with_capacity(mib(1))),
        (", memory: 4MiB", compact.with_capacity(mib(4))),
        (", store: sketch, memory: 2MiB", StoreConfig::new(StoreKind::Sketch).with_capacity(mib(2))),
        (", store: keyed", keyed),
        (", max_keys: 10", keyed.with_max_keys(10, WhenFull::Forget)),
        (", store: keyed, max_keys: 1_000_000", keyed.with_max_keys(1_000_000, WhenFull::Forget)),
    ] {
        assert_eq!(only(&limit(&format!("{day}{more}"))).2, Some(Store::Local(store)), "{more}");
    }
}

#[test]
fn incompatible_fields_are_rejected() {
    let rows = r#"
        burst: 5 => fixed-window does not use burst; remove it, or use algorithm: gcra
        algorithm: gcra, strict: true => gcra does not use strict
        algorithm: sliding-window, parts: 5 => sliding-window does not use parts
        algorithm: sub-window, parts: 0 => 0 is less than 1
        algorithm: sub-window, parts: 1000000 => number of parts
        algorithm: gcra, store: sketch => the sketch store does not support gcra
        algorithm: sliding-log, store: compact => the compact store does not support sliding-log; use store: keyed
        algorithm: sub-window, memory: 1MiB => the compact store does not support sub-window
        store: keyed, memory: 1MiB => the keyed store has no fixed size
        store: compact, max_keys: 5 => max_keys applies only to the keyed store
        memory: much => invalid amount of memory "much"
        memory: 100B => too little
        max_keys: 0 => 0 is less than 1
        soft: 101 => 101 is above the limit of 100
        algorithm: gcra, burst: 5, soft: 6 => 6 is above the burst of 5
        enforced: half => expected a percentage from 0% to 100%, found "half"
        every: 0 => 0 is less than 1
        every: 400000 => 292 years
        algorithm: gcra, burst: 0 => 0 is less than 1
        algorithm: gcra, burst: 18446744073709551615 => 292 years
    "#;
    rejected_limits("unit: day, requests_per_unit: 100, ", rows);
    // The remedy names the number that is wrong. It was always "choose another limit or algorithm".
    let rows = r#"
        unit: second, requests_per_unit: 100, algorithm: gcra, store: compact, burst: 10000000000
            => the burst, in the compact store, can be at most ... but is 10000000000;
        unit: day, requests_per_unit: 65537, algorithm: sliding-log
            => can be at most 65536, but is 65537; lower it to 65536, or use another algorithm
        unit: day, requests_per_unit: 9, algorithm: sub-window, parts: 4097
            => the number of parts can be at most 4096, but is 4097; lower it to 4096,
        unlimited: true, burst: 5 => burst cannot be used with unlimited: true
    "#;
    rejected_limits("", rows);
}

#[test]
fn file_defaults_apply_to_rules() {
    let text = "
domain: d
tollgate: { charging: count-first, algorithm: sliding-log, memory: 2MiB, shadow: true, enforced: 25% }
descriptors:
  - { key: a, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: b, rate_limit: { unit: day, requests_per_unit: 10, algorithm: gcra, enforced: 0.0001% } }
  - { key: c, rate_limit: { unit: day, requests_per_unit: 10, store: keyed } }
";
    let config = good(text);
    assert_eq!(config.charging(), Charging::CountFirst);
    assert!(config.is_shadow() && config.rules().iter().all(|rule| !rule.shadow));
    let [a, b, c] = config.rules() else { panic!("{config:?}") };
    // A sliding log has no compact form. The file's `memory` applies only to rules in a store of fixed size.
    assert_eq!((quota(a).1, quota(a).2), (LimitKind::SlidingLog, None));
    let compact = StoreConfig::new(StoreKind::Compact).with_capacity(Capacity::memory(2 << 20));
    assert_eq!((quota(b).1, quota(b).2), (LimitKind::Gcra, Some(Store::Local(compact))));
    assert_eq!(quota(c).2, Some(Store::Local(StoreKind::Keyed.into())));
    let shares = config.rules().iter().map(|rule| rule.enforced_per_million);
    assert_eq!(shares.collect::<Vec<_>>(), [250_000, 1, 250_000]);
    assert_eq!(good("domain: d").charging(), Charging::AllOrNothing);
    let text = "
domain: d
descriptors: [{ key: a, rate_limit: { unit: day, requests_per_unit: 10, algorithm: sub-window } }]
tollgate: { store: compact }
";
    problem(text, "the compact store, the file's default, does not support sub-window");
    let said = "tollgate.memory: the keyed store has no fixed size";
    problem("domain: d\ntollgate: { store: keyed, memory: 1MiB }", said);
}

#[test]
fn soft_limits_are_read() {
    let soft = |fields: &str| good(&limit(fields)).rules()[0].soft;
    assert_eq!(soft("unit: day, requests_per_unit: 10, soft: 8"), 8);
    assert_eq!(soft("unit: day, requests_per_unit: 10, soft: 10"), 10);
    assert_eq!(soft("unit: day, requests_per_unit: 10, algorithm: gcra, burst: 50, soft: 40"), 40);
    assert_eq!(soft("unit: day, requests_per_unit: 10"), u64::MAX);
}

#[test]
fn several_limits_get_distinct_identities() {
    let text = file(&["
  - key: a
    rate_limits:
      - { unit: second, requests_per_unit: 10 }
      - { unit: second, every: 10, requests_per_unit: 50 }
      - { unit: hour, requests_per_unit: 1000, name: hourly }
      - { unit: hour, requests_per_unit: 2000, name: second }
"]);
    let config = good(&text);
    let identities: Vec<&str> = config.rules().iter().map(|rule| &*rule.identity).collect();
    assert_eq!(identities, ["d|a#unit=second", "d|a#unit=10-second", "d|a#name=hourly", "d|a#name=second"]);
    let names: Vec<&str> = config.rules().iter().map(|rule| &*rule.name).collect();
    assert_eq!(names, ["d.a.second", "d.a.10-second", "hourly", "second"]);
    let same = text.replace("every: 10", "every: 1");
    let said =
        "7:9: descriptors[0].rate_limits[1]: two limits here have the same unit, second ... give each a name";
    problem(&same, said);
    let same = text.replace("name: second", "name: hourly");
    problem(&same, r#"two limits here are named "hourly""#);
    let both = "domain: d\ntollgate: {}\ndescriptors: [{ key: a, rate_limit: { unlimited: true }, rate_limits: [] }]";
    problem(both, "rate_limit and rate_limits cannot be used together");
}

/// A separator in a key, a value or a tier is escaped, and [`Rule::path`] reverses this.
#[test]
fn different_paths_have_different_identities() {
    type Level = (&'static str, Option<&'static str>);
    let leaf = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let text = format!(
        r"
domain: 'd|=\#'
tollgate: {{}}
descriptors:
  - {{ key: a, value: b_c, {leaf} }}
  - {{ key: a_b, value: c, {leaf} }}
  - {{ key: a, value: b, {leaf}, tiers: {{ 'x|u=v': {{ {leaf} }} }}, descriptors: [ {{ key: c, {leaf} }} ] }}
  - {{ key: a, value: 'b|c', {leaf} }}
  - {{ key: a, descriptors: [ {{ key: b, {leaf} }} ] }}
  - {{ key: a, value: 'b#tier=x', {leaf} }}
  - {{ key: 'b|=\#', value: '/a|b=c#d\', descriptors: [ {{ key: c, value: 'x|y', {leaf} }} ] }}
"
    );
    let config = good(&text);
    let domain = r"d\|\=\\\#";
    let expected: [(&str, &[Level]); 9] = [
        ("|a=b_c", &[("a", Some("b_c"))]),
        ("|a_b=c", &[("a_b", Some("c"))]),
        ("|a=b", &[("a", Some("b"))]),
        (r"|a=b#tier=x\|u\=v", &[("a", Some("b"))]),
        ("|a=b|c", &[("a", Some("b")), ("c", None)]),
        (r"|a=b\|c", &[("a", Some("b|c"))]),
        ("|a|b", &[("a", None), ("b", None)]),
        (r"|a=b\#tier\=x", &[("a", Some("b#tier=x"))]),
        (r"|b\|\=\\\#=/a\|b\=c\#d\\|c=x\|y", &[(r"b|=\#", Some(r"/a|b=c#d\")), ("c", Some("x|y"))]),
    ];
    assert_eq!(config.rules().len(), expected.len());
    for (rule, (identity, steps)) in config.rules().iter().zip(expected) {
        assert_eq!(&*rule.identity, [domain, identity].concat());
        let path = rule.path();
        let path: Vec<_> = path.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        assert_eq!(path, steps);
    }
    assert_eq!(config.rules()[6].counted_by, 0b11);
}

#[test]
fn tier_limits_and_members_are_read() {
    let text = file(&["
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 1 }
    tiers:
      premium:
        members: [acme, 7]
        rate_limit: { unit: day, requests_per_unit: 100 }
      gold:
        rate_limits:
          - { unit: day, requests_per_unit: 1000 }
          - { unit: hour, requests_per_unit: 100 }
"]);
    let config = good(&text);
    let identities: Vec<&str> = config.rules().iter().map(|rule| &*rule.identity).collect();
    let expected =
        ["d|tenant", "d|tenant#tier=premium", "d|tenant#tier=gold#unit=day", "d|tenant#tier=gold#unit=hour"];
    assert_eq!(identities, expected);
    assert_eq!(&*config.rules()[3].name, "d.tenant.tier_gold.hour");
    for (from, to, part) in [
        ("[acme, 7]", "[acme, acme]", "\"acme\" is already a member of \"premium\""),
        (
            "      gold:\n",
            "      gold:\n        members: [acme]\n",
            "\"acme\" is already a member of \"premium\"",
        ),
        ("key: tenant", "key: tenant\n    value: x", "this descriptor matches one value only"),
        ("key: tenant", "key: tenant\n    value: 'x*'", "\"acme\" does not match the descriptor's value"),
        ("[acme, 7]", "acme", "expected a list, found \"acme\""),
        ("[acme, 7]", "[acme, {}]", "expected text, found a map"),
        ("        rate_limit: { unit: day, requests_per_unit: 100 }\n", "", "this tier has no limit"),
        ("premium:", "'':", "this tier has no name"),
    ] {
        let said = super::support::bad(&text.replacen(from, to, 1));
        assert!(said.iter().any(|said| said.contains(part)), "{part:?} is not in {said:#?}");
    }
}

#[test]
fn headers_are_on_by_default() {
    assert!(good(&limit("unit: day, requests_per_unit: 1")).rules()[0].headers);
    assert!(!good(&limit("unit: day, requests_per_unit: 1, headers: false")).rules()[0].headers);
    let said = r#"5:61 ... descriptors[0].rate_limit.headers ... "maybe" ... true or false"#;
    problem(&limit("unit: day, requests_per_unit: 1, headers: maybe"), said);
    problem(&limit("unlimited: true, headers: false"), "headers cannot be used with unlimited: true");
}

#[test]
fn classes_are_checked() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 10 }";
    let classes = |fields: &str| file(&[&format!("key: a, classes: {fields}, {limit}")]);
    let config = good(&classes("{ x: 100%, '*': 50% }"));
    let shares: Vec<_> =
        config.rules().iter().map(|rule| rule.class.clone().unwrap().share.share()).collect();
    assert_eq!(shares, [1_000_000, 500_000]);
    assert_eq!(&*config.rules()[0].class.as_ref().unwrap().counter, "d|a#classes");
    let rows = r#"
        {} => 4:24 ... expected 1 to 16 classes, found 0 ... { critical: 100% ...
        [x] => expected a map ...
        { x: 0% } => descriptors[0].classes.x ... a class with 0% admits nothing ...
        { x: 50 } => expected a percentage ... 25% ...
        { x: 101% } => expected a percentage ...
        { 'x*': 50% } => is not the name of a class ... * for all other values ...
        { x: 9% } => less than one of 10 units is left ... raise its share ...
        { x: 50% }, value: y => value and classes cannot be used together ...
        { x: 50% }, tiers: { t: { rate_limit: { unlimited: true } } } => tiers and classes ...
        { x: 50% }, ranges: [10.0.0.0/8] => ranges and classes ... the classes are the values ...
        { x: 50% }, prefixes: { ipv4: { 24: { unit: day, requests_per_unit: 1 } } }
            => prefixes and classes ... remove one of them ...
        { x: 50% }, descriptors: [{ key: b }] => descriptors and classes ... must be the last one ...
    "#;
    rejected(rows, classes);
    let limit =
        |limit: &str| classes("{ x: 50%, y: 60% }").replace("unit: day, requests_per_unit: 10", limit);
    // The problems of a limit are reported once, and not for each class.
    let rows = r#"
        unit: day, requests_per_unit: 10, store: redis, mode: lease
            => classes cannot share a limit in the mode lease ... write mode: atomic ... compact
        unit: day, requests_per_unit: 10, store: redis, mode: write-back
            => classes cannot share a limit in the mode write-back ... write mode: atomic ... compact
        unlimited: true => no share
        unit: day, requests_per_unit: -1 => negative
    "#;
    rejected(rows, limit);
    let rows = r#"
        tollgate: {}\ndescriptors: [{ key: a, classes: { x: 50% } }] => no limit to share
        descriptors: [{ key: a, classes: { x: 50% }, rate_limit: { unit: day, requests_per_unit: 1 } }] => add `tollgate: {}`
    "#;
    rejected(rows, |rest| format!("domain: d\n{rest}"));
    // A value that another descriptor has already.
    let twice =
        classes("{ x: 50% }") + "  - { key: a, value: x, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    problem(&twice, "occurs twice");
}

/// Millionths of a dollar and bytes need more than the 32 bits of Envoy's service.
#[test]
fn limits_beyond_32_bits_need_the_key() {
    let month = "unit: month, requests_per_unit: 5000000000";
    assert_eq!(only(&limit(month)).0.limit(), 5_000_000_000);
    for algorithm in ["gcra", "token-bucket", "leaky-bucket", "sliding-window", "sub-window"] {
        let fields = format!("{month}, algorithm: {algorithm}, soft: 4500000000");
        assert_eq!(only(&limit(&fields)).0.limit(), 5_000_000_000, "{algorithm}");
    }
    let terabyte = only(&limit("unit: day, requests_per_unit: 1_099_511_627_776, store: keyed"));
    assert_eq!(terabyte.0.limit(), 1 << 40);
    let without = format!("domain: d\ndescriptors: [{{ key: a, rate_limit: {{ {month} }} }}]");
    problem(&without, "5000000000 is more than 4294967295 ... add `tollgate: {}`");
    let said = "is more than 18446744073709551615";
    problem(&limit("unit: day, requests_per_unit: 18446744073709551616"), said);
}
