//! Fuzzes the rate limit service from a body in JSON to the answer in JSON. No body causes a panic. What serde_json does not
//! parse is refused, and each status has its form of body.

#![no_main]

use std::sync::LazyLock;
use std::time::Instant;

use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;
use tollgate_rules::Rules;
use tollgate_serve::answer::{Answerer, Entry, Settings};
use tollgate_serve::http::json;

const RULES: &str = "
domain: rl
tollgate: {}
descriptors:
  - { key: foo, rate_limit: { name: n, unit: minute, requests_per_unit: 10, hold: {} } }
  - { key: '*', metadata: { a: [1, 2.5, null, { b: true }] }, rate_limit: { unlimited: true } }
";

static SERVICE: LazyLock<Answerer> = LazyLock::new(|| {
    let rules = Rules::from_yaml(RULES).unwrap_or_else(|error| panic!("{error}"));
    Answerer::new(rules.into(), Settings { dynamic_metadata: true, ..Settings::default() })
});

fn ask(entry: Entry<'_>, body: &[u8]) {
    let response = json(&SERVICE, entry, body, Instant::now()).now_or_never();
    let response = response.expect("rules of this process do not wait");
    let told: serde_json::Value = serde_json::from_slice(response.body()).expect("the answer is JSON");
    let code = if entry == Entry::Json { "overallCode" } else { "code" };
    match response.status().as_u16() {
        200 if entry == Entry::Commit => assert!(told.is_object()),
        200 => assert_eq!(told[code], "OK"),
        429 => assert_eq!(told[code], "OVER_LIMIT"),
        400 => assert!(told["code"].is_u64() && told["message"].is_string()),
        status => panic!("status {status}"),
    }
    let parsed = serde_json::from_slice::<serde_json::Value>(body);
    assert!(response.status() == 400 || parsed.is_ok_and(|value| value.is_object()));
}

// G106
fuzz_target!(|body: &[u8]| {
    for entry in [Entry::Json, Entry::Reserve, Entry::Commit] {
        ask(entry, body);
    }
});
