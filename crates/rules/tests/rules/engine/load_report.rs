//! Reports of the changes that a load made.

use tollgate_rules::{Change, ChangeKind, LoadReport, Rules};

use super::config;

fn rules(text: &str) -> Rules {
    Rules::builder().load([config(text)]).unwrap()
}

fn told(report: &LoadReport) -> Vec<(ChangeKind, &str, Option<&str>)> {
    let one = |change| (Change::kind(change), Change::domain(change), Change::rule(change));
    report.changes().iter().map(one).collect()
}

const BEFORE: &str = "
domain: shop
tollgate: {}
descriptors:
  - key: remote_address
    rate_limit: { name: per-client, unit: second, requests_per_unit: 10, burst: 30, algorithm: gcra }
  - key: path
    value: /search
    descriptors:
      - { key: remote_address, rate_limit: { name: search, unit: minute, requests_per_unit: 3 } }
";

/// Cause: a load reported no changes. Trigger: someone renamed a key. Symptom: requests with that key had no limit, and
/// no message said that.
// G64
#[test]
fn renamed_key_is_reported() {
    let rules = rules(BEFORE);
    let report = rules.replace([config(&BEFORE.replace("- key: path", "- key: paht"))]).unwrap();
    let [old, new] = ["path", "paht"].map(|key| format!("shop|{key}=/search|remote_address"));
    let changes = [(ChangeKind::Added, "shop", Some(&*new)), (ChangeKind::Removed, "shop", Some(&*old))];
    assert_eq!(told(&report), changes);
    assert_eq!(
        report.to_string(),
        "1 added, 0 changed, 1 removed
  added rule \"search\" (shop|paht=/search|remote_address): 3/min, fixed-window
  removed rule \"search\" (shop|path=/search|remote_address): 3/min, fixed-window"
    );
}

#[test]
fn changed_numbers_and_flags_are_reported() {
    let rules = rules(BEFORE);
    let after = BEFORE
        .replace("tollgate: {}", "tollgate: { shadow: true }")
        .replace(
            "requests_per_unit: 10, burst: 30, algorithm: gcra",
            "requests_per_unit: 10, soft: 5, store: keyed",
        )
        .replace("requests_per_unit: 3", "requests_per_unit: 5");
    let report = rules.replace([config(&after)]).unwrap();
    assert_eq!(
        report.to_string(),
        "0 added, 3 changed, 0 removed
  changed domain \"shop\": shadow false to true
  changed rule \"per-client\" (shop|remote_address): limit 10/s burst 30 to 10/s, algorithm gcra to fixed-window, store compact to keyed, \
         soft none to 5
  changed rule \"search\" (shop|path=/search|remote_address): limit 3/min to 5/min"
    );
    let search = report.changes().last().unwrap();
    assert_eq!((search.name(), report.changes()[0].name()), (Some("search"), None));
    let differences: Vec<_> =
        search.differences().iter().map(|each| (each.what(), each.before(), each.after())).collect();
    assert_eq!(differences, [("limit", "3/min", "5/min")]);
    assert_eq!(report.of_kind(ChangeKind::Changed).count(), 3);
}

#[test]
fn moved_rules_are_no_change() {
    let rules = rules(BEFORE);
    let report = rules.replace([config(&format!("# a comment\n{BEFORE}"))]).unwrap();
    assert!(report.is_empty() && report.changes().is_empty());
    assert_eq!(report.to_string(), "nothing has changed");
}

#[test]
fn renamed_domain_is_reported_with_its_rules() {
    let rules = rules(BEFORE);
    let report = rules.replace([config(&BEFORE.replace("domain: shop", "domain: store"))]).unwrap();
    let domain = |kind, domain, rules: [&'static str; 2]| {
        [(kind, domain, None), (kind, domain, Some(rules[0])), (kind, domain, Some(rules[1]))]
    };
    let store = ["store|remote_address", "store|path=/search|remote_address"];
    let shop = ["shop|remote_address", "shop|path=/search|remote_address"];
    let expected = [domain(ChangeKind::Added, "store", store), domain(ChangeKind::Removed, "shop", shop)];
    assert_eq!(told(&report), expected.concat());
}

// G64
#[test]
fn every_setting_of_a_rule_is_compared() {
    let text = |rule: &str, key: &str| {
        format!(
            "{{ domain: d, tollgate: {{}}, descriptors: [ {{ key: a, {key} rate_limit: {{ unit: hour, requests_per_unit: 9 {rule} }} }} ] }}"
        )
    };
    for (rule, key, what) in [
        (", algorithm: gcra, burst: 4", "", "limit"),
        (", algorithm: sliding-window", "", "algorithm"),
        (", algorithm: sub-window, parts: 30", "", "algorithm"),
        (", store: sketch", "", "store"),
        (", store: compact, memory: 2MiB", "", "store"),
        (", store: keyed, max_keys: 7", "", "store"),
        (", soft: 5", "", "soft"),
        (", enforced: 10%", "", "enforced per million"),
        (", headers: false", "", "headers"),
        (", replaces: [{ name: other }]", "", "replaces"),
        ("", "shadow_mode: true,", "shadow"),
        ("", "quota_mode: true,", "quota_mode"),
        ("", "detailed_metric: true,", "metric"),
    ] {
        let rules = rules(&text("", ""));
        let report = rules.replace([config(&text(rule, key))]).unwrap();
        let differences = report.changes().first().map(Change::differences).unwrap_or_default();
        assert!(differences.iter().any(|each| each.what() == what), "expected {what} in the report {report}");
    }
    // The report also shows a change in which keys are counted separately.
    let starred = |share: bool| text("", &format!("value: '*', share_threshold: {share},"));
    let report = rules(&starred(false)).replace([config(&starred(true))]).unwrap();
    assert!(report.to_string().contains("counted by [1] to []"), "{report}");
}

/// A value that no request has is reported by the load, not only by a check of the file.
// G90
#[test]
fn loads_tell_the_warnings_of_their_files() {
    let text = |value: &str| {
        format!(
            "{{ domain: d, descriptors: [ {{ key: remote_address, value: '{value}', rate_limit: {{ unit: hour, requests_per_unit: 9 }} }} ] }}"
        )
    };
    let rules = rules(&text("2001:DB8::1"));
    assert!(rules.warnings()[0].to_string().contains("write \"2001:db8::1\""), "{:?}", rules.warnings());
    let report = rules.replace([config(&text("192.0.2.1:80"))]).unwrap();
    assert_eq!(report.warnings(), rules.warnings());
    assert!(report.to_string().contains("\n  warning: test.yaml:1:"), "{report}");
    assert!(rules.replace([config(&text("$IP"))]).unwrap().warnings()[0].message().contains("a variable"));
    // A load that fails leaves the warnings of the rules in force.
    assert!(rules.replace([config(&text("192.0.2.1")), config(&text("192.0.2.1"))]).is_err());
    assert_eq!(rules.warnings().len(), 1);
    assert!(rules.replace([config(&text("192.0.2.1"))]).unwrap().warnings().is_empty());
    assert!(rules.warnings().is_empty());
}
