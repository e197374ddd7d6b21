//! `tollgate rules explain`: the table and the JSON.

use crate::support::Place;

const EDGE: &str = "\
domain: edge
tollgate: {}
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 10, algorithm: gcra, name: calls }
  - key: remote_address
    value: 203.0.113.7
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        shadow_mode: true
        rate_limit: { unit: minute, requests_per_unit: 5 }
";

#[test]
fn explanation_prints_table() {
    let place = Place::new();
    place.file("edge.yaml", EDGE);
    let run = place.run("rules explain edge.yaml edge remote_address=192.0.2.1").ok();
    let line = |needle: &str| {
        let found = run.stdout.lines().find(|line| line.contains(needle));
        found.unwrap_or_else(|| panic!("{needle} is not in {}", run.stdout)).to_owned()
    };
    assert_eq!(line("Domain"), "Domain   edge, charged all-or-nothing");
    assert_eq!(line("Request"), "Request  descriptor 1: remote_address=192.0.2.1");
    assert_eq!(line("Answer"), "Answer   a new client's request of 1 unit is admitted");
    let row = line("edge|remote_address ");
    for part in ["yes", "enforced", "10/s", "remote_address=192.0.2.1", "allowed", " 10 ", " 5"] {
        assert!(row.contains(part), "{part:?} is not in {row:?}");
    }
    let row = line("edge|remote_address=203.0.113.7");
    assert!(row.contains("no") && row.contains("the value of entry 1 is not \"203.0.113.7\""), "{row}");

    // Several entries, and several descriptors.
    let run = place
        .run("rules explain edge.yaml edge path=/login remote_address=192.0.2.1 --descriptor remote_address=203.0.113.7")
        .ok();
    for part in ["never admitted", "shadow_mode: only reports", "descriptor 2: remote_address=203.0.113.7"] {
        assert!(run.stdout.contains(part), "{part:?} is not in {}", run.stdout);
    }
    let run = place.run("rules explain edge.yaml edge user=ann").ok();
    assert!(run.stdout.contains("no rule applies"), "{}", run.stdout);
}

#[test]
fn explanation_prints_json() {
    let place = Place::new();
    place.file("edge.yaml", EDGE);
    let json = place
        .run("rules explain edge.yaml edge path=/login,remote_address=192.0.2.1 --cost 6 --tier gold --json")
        .json();
    assert_eq!(json["descriptors"][0][1], serde_json::json!(["remote_address", "192.0.2.1"]));
    assert_eq!(
        (&json["outcome"], &json["cost"], &json["tier"]),
        (&"admitted".into(), &6.into(), &"gold".into())
    );
    let rule = &json["rules"][0];
    assert_eq!(rule["rule"], "edge|path=/login|remote_address");
    assert_eq!((&rule["reason"], &rule["verdict"]), (&"shadow".into(), &"shadow-denied".into()));
    assert_eq!(
        (&rule["counter"], &rule["remaining"], &rule["quota"]),
        (&"192.0.2.1".into(), &5.into(), &5.into())
    );
    assert_eq!((&rule["limit"], &rule["applies"], &json["others"]), (&5.into(), &true.into(), &2.into()));
    let json = place.run("rules explain edge.yaml edge remote_address=1 --cost 11 --json").json();
    assert_eq!((&json["outcome"], &json["retry_after_ns"]), (&"never".into(), &serde_json::Value::Null));
}

#[test]
fn ranges_and_prefixes_are_explained() {
    let place = Place::new();
    let text = "\
domain: edge
tollgate: {}
descriptors:
  - key: remote_address
    prefixes:
      ipv4: { 24: { unit: second, requests_per_unit: 10 } }
      ipv6: { 64: { unit: second, requests_per_unit: 10 } }
  - key: remote_address
    ranges: [10.0.0.0/8, 172.16.0.0/12]
    rate_limit: { unit: second, requests_per_unit: 99 }
";
    place.file("ranges.yaml", text);
    let json = place.run("rules explain ranges.yaml edge remote_address=192.0.2.1 --json").json();
    let rule = |at: usize, key: &str| json["rules"][at][key].as_str().map(str::to_owned);
    let row = |at: usize| (rule(at, "rule").unwrap(), rule(at, "why").unwrap(), rule(at, "counter"));
    let (identity, why, counter) = row(0);
    assert_eq!((&*identity, &*why), ("edge|remote_address#prefix=ipv4/24", "enforced"));
    assert_eq!(counter.as_deref(), Some("192.0.2.0/24"));
    let (identity, why, _) = row(1);
    assert_eq!(identity, "edge|remote_address#prefix=ipv6/64");
    assert_eq!(why, "the value of entry 1 is not an IPv6 address");
    let (identity, why, _) = row(2);
    assert_eq!(identity, "edge|remote_address==10.0.0.0/8");
    assert_eq!(why, "the value of entry 1 is not in the ranges 10.0.0.0/8 and 1 more");
    let run = place.run("rules explain ranges.yaml edge remote_address=192.0.2.1").ok();
    assert!(run.stdout.contains("remote_address=192.0.2.1/24"), "{}", run.stdout);
}

#[test]
fn wrong_arguments_are_explained() {
    let place = Place::new();
    place.file("edge.yaml", EDGE);
    place.run("rules explain edge.yaml shop a=b").fails(2, &["\"shop\"", "use \"edge\""]);
    place.run("rules explain edge.yaml edge").fails(2, &["KEY=VALUE"]);
    place.run("rules explain edge.yaml edge address").fails(2, &["address"]);
    place.run("rules explain nowhere.yaml edge a=b").fails(1, &["nowhere.yaml"]);
}
