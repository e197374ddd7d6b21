//! Fuzzes the endpoint for operators from the bytes of a body to the answer in JSON. No body causes a panic, and no operation gives a key
//! more than its limit or changes a key that it does not name.

#![no_main]

use std::sync::LazyLock;

use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tollgate_rules::{Descriptor, OperatorAction, Rules};
use tollgate_serve::admin::answer::perform;

const RULES: &str = "
domain: d
tollgate: {}
descriptors:
  - { key: a, rate_limit: { name: n, unit: minute, requests_per_unit: 10 } }
  - { key: b, rate_limit: { unit: hour, requests_per_unit: 5, algorithm: gcra, block: { for: 1m, at_most: 1h } } }
  - { key: c, value: v, rate_limit: { unit: day, requests_per_unit: 7, algorithm: sliding-window } }
  - { key: e, rate_limits: [ { in_progress: 3, hold: { life: 1s } }, { unit: day, requests_per_unit: 9, hold: {} } ] }
  - { key: f, rate_limit: { unlimited: true } }
  - key: g
    prefixes: { ipv4: { 24: { unit: hour, requests_per_unit: 3 } }, ipv6: { 48: { unit: hour, requests_per_unit: 3 } } }
";

/// The only unit of a key that no body names: it has bytes that are not in JSON.
const OTHER: [(&str, &str); 1] = [("a", "\u{0}kept")];

static KEPT: LazyLock<Rules> = LazyLock::new(|| {
    let rules = Rules::from_yaml(RULES).unwrap_or_else(|error| panic!("{error}"));
    assert!(rules.check_n("d", &[Descriptor::new(&OTHER)], 10).is_allowed());
    rules
});

// G146
fuzz_target!(|body: &[u8]| {
    for name in ["inspect", "reset", "grant", "block", "unblock"] {
        let acted =
            perform(&*KEPT, name, "fuzz", body).now_or_never().expect("rules of this process do not wait");
        let (status, answer) = acted.answer;
        assert_eq!(serde_json::from_str::<Value>(&answer.to_string()).ok(), Some(answer.clone()));
        let is_request = status != 400;
        assert_eq!(acted.line.is_some(), is_request);
        assert!(acted.line.is_none_or(|line| !line.chars().any(char::is_control)));
        match status.as_u16() {
            200 => {
                for rule in answer["rules"].as_array().expect("the rules are a list") {
                    assert_ne!(rule["done"] == true, rule["why_not"].is_string());
                    let state = &rule["state"];
                    assert!(
                        state.is_null() || state["remaining"].as_u64() <= state["limit"].as_u64(),
                        "{rule}"
                    );
                }
            }
            400 | 404 => assert!(answer["error"].is_string()),
            status => panic!("status {status}"),
        }
    }
    if !body.windows(4).any(|part| part == b"kept") && !body.contains(&b'\\') {
        let reports = KEPT.operate("d", &[Descriptor::new(&OTHER)], None, OperatorAction::Inspect);
        let figures = reports.and_then(|reports| reports[0].figures);
        // A window ends each minute.
        assert!(figures.is_some_and(|figures| figures.used == 10 || figures.used == 0));
    }
});
