//! Header fields, bodies and metadata.

use prost_types::Struct;
use prost_types::value::Kind;
use tollgate_http::{Dialect, Fields, Reset};

use super::*;

const RULES: &str = r"
descriptors:
  - { key: a, rate_limit: { name: first, unit: minute, requests_per_unit: 2 } }
  - { key: b, rate_limit: { name: second, unit: hour, requests_per_unit: 2 } }
  - { key: s, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 0 } }
";

fn with(settings: Settings) -> Service {
    service_with(RULES, settings, |builder| builder)
}

/// Asks for these keys, and returns the header fields of the answer.
fn headers(service: &Service, keys: &[&str]) -> Vec<String> {
    let response = service.ask(keys.iter().map(|&key| of([(key, "")])));
    assert_eq!(response.request_headers_to_add, []);
    response
        .response_headers_to_add
        .iter()
        .map(|header| format!("{}: {}", header.key, header.value))
        .collect()
}

#[test]
fn answer_has_no_headers_by_default() {
    let service = with(Settings::default());
    for _ in 0..3 {
        assert!(headers(&service, &["a", "b"]).is_empty());
    }
}

#[test]
fn three_headers_describe_the_nearest_limit() {
    let three = |names| Settings { limit_headers: LimitHeaders::Three(names), ..Settings::default() };
    let service = with(three(Names::default()));
    let fields = |left: u32, reset: u32| {
        [
            "RateLimit-Limit: 2".to_owned(),
            format!("RateLimit-Remaining: {left}"),
            format!("RateLimit-Reset: {reset}"),
        ]
    };
    assert!(headers(&service, &["none"]).is_empty());
    assert_eq!(headers(&service, &["b"]), fields(1, 2818));
    // The least remaining; the first of equals.
    assert_eq!(headers(&service, &["a", "b"]), fields(0, 2818));
    assert_eq!(headers(&service, &["a", "none"]), fields(0, 58));
    // One that is over its limit wins; the last of several.
    assert_eq!(headers(&service, &["a", "b"]), fields(0, 2818));
    assert_eq!(headers(&service, &["b", "a"]), fields(0, 58));
    let named = with(three(Names::new(["X-Limit", "X-Left", "X-Reset"]).unwrap()));
    assert_eq!(headers(&named, &["a"]), ["X-Limit: 2", "X-Left: 1", "X-Reset: 58"]);
}

#[test]
fn dialects_are_those_of_the_library() {
    let dialect = |dialect| {
        with(Settings {
            limit_headers: LimitHeaders::Dialect(Fields::new(dialect)),
            retry_after: true,
            ..Settings::default()
        })
    };
    let service = dialect(Dialect::Draft11);
    assert_eq!(
        headers(&service, &["a"]),
        ["ratelimit-policy: \"first\";q=2;w=60", "ratelimit: \"first\";r=1;t=58"]
    );
    let _ = headers(&service, &["a"]);
    assert_eq!(
        headers(&service, &["a"]),
        [
            "ratelimit-policy: \"first\";q=2;w=60",
            "ratelimit: \"first\";r=0;t=58",
            "cache-control: no-store",
            "retry-after: 58"
        ]
    );
    let legacy = dialect(Dialect::Legacy { reset: Reset::Delta });
    assert_eq!(
        headers(&legacy, &["b"]),
        ["x-ratelimit-limit: 2", "x-ratelimit-remaining: 1", "x-ratelimit-reset: 2818"]
    );
    assert!(headers(&legacy, &["s"]).is_empty(), "a rule that only reports is hidden");
}

#[test]
fn name_of_unnamed_rule_is_hidden() {
    let settings = Settings {
        limit_headers: LimitHeaders::Dialect(Fields::new(Dialect::Draft11)),
        problem_body: true,
        ..Settings::default()
    };
    let rules =
        "descriptors: [{ key: api_key, value: secret, rate_limit: { unit: minute, requests_per_unit: 1 } }]";
    let service = service_with(rules, settings, |builder| builder);
    let ask = || service.ask([of([("api_key", "secret")])]);
    for _ in 0..2 {
        let answer = ask();
        assert_eq!(answer.response_headers_to_add[0].value, "\"limit\";q=1;w=60");
        assert!(!format!("{answer:?}").contains("secret"), "{answer:?}");
    }
    let body = String::from_utf8(ask().raw_body.to_vec()).unwrap();
    assert!(body.contains(r#""violated-policies":["limit"]"#), "{body}");
    // A limit of 0 that the request sets.
    let own = service.ask([with_limit(of([("a", "")]), 0, 2)]);
    assert_eq!(own.response_headers_to_add[0].value, "\"limit\";q=0;w=60");
}

#[test]
fn retry_after_is_sent_on_refusals_only() {
    let service = with(Settings { retry_after: true, ..Settings::default() });
    assert!(headers(&service, &["a"]).is_empty());
    assert!(headers(&service, &["a", "s"]).is_empty());
    assert_eq!(headers(&service, &["a"]), ["cache-control: no-store", "retry-after: 58"]);
    service.clock.advance(Duration::from_millis(57_500));
    assert_eq!(headers(&service, &["a"]), ["cache-control: no-store", "retry-after: 1"]);
}

#[test]
fn problem_body_names_the_limits_that_refuse() {
    let service = with(Settings { problem_body: true, ..Settings::default() });
    let ask = || service.ask([of([("a", "")]), of([("b", "")])]);
    for _ in 0..2 {
        let admitted = ask();
        assert_eq!((admitted.raw_body.len(), admitted.response_headers_to_add.len()), (0, 0));
    }
    let refused = ask();
    let body = String::from_utf8(refused.raw_body.to_vec()).unwrap();
    assert!(body.contains(r#""status":429,"violated-policies":["first","second"]"#), "{body}");
    assert_eq!(refused.response_headers_to_add.len(), 1);
    let header = &refused.response_headers_to_add[0];
    assert_eq!((&*header.key, &*header.value), ("content-type", "application/problem+json"));
}

/// Returns metadata as JSON.
fn json(metadata: Struct) -> String {
    let response = RateLimitResponse { dynamic_metadata: Some(metadata), ..RateLimitResponse::default() };
    serde_json::to_string(&response).unwrap()
}

#[test]
fn metadata_repeats_the_request() {
    let service = with(Settings { dynamic_metadata: true, ..Settings::default() });
    let request = RateLimitRequest {
        hits_addend: 2,
        ..request([of([("a", "x"), ("b", "größe")]), with_hits(with_limit(of([("c", "")]), 42, 3), 7)])
    };
    let metadata = service.call(request, Entry::ShouldRateLimit).unwrap().dynamic_metadata.unwrap();
    assert!(matches!(metadata.fields["domain"].kind, Some(Kind::StringValue(_))));
    assert_eq!(
        json(metadata),
        r#"{"dynamicMetadata":{"descriptors":[{"entries":["a=x","b=größe"]},{"entries":["c="],"hitsAddend":7,"limit":"requests_per_unit:42 unit:HOUR"}],"domain":"rl","hitsAddend":2}}"#
    );
    assert_eq!(with(Settings::default()).ask([of([])]).dynamic_metadata, None);
}

#[test]
fn metadata_of_rules_that_pass_is_merged() {
    let rules = r"
descriptors:
  - { key: a, metadata: { backend: x, deep: { one: 1, list: [a, 2, null, true] } }, rate_limit: { unit: day, requests_per_unit: 9 } }
  - { key: b, metadata: { backend: y, deep: { one: 7, two: 2.5 }, more: {} }, rate_limit: { unlimited: true } }
  - { key: over, metadata: { over: true }, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: wild*, metadata: { wild: true }, rate_limit: { unit: day, requests_per_unit: 9 } }
";
    let settings = Settings { dynamic_metadata: true, ..Settings::default() };
    let service = service_with(rules, settings, |builder| builder);
    let metadata = |keys: &str| {
        let response = service.ask(keys.split(' ').map(|key| of([(key, "")])));
        let text = json(response.dynamic_metadata.unwrap());
        let (_, metadata) = text.split_once(r#""domain":"rl""#).unwrap();
        metadata.to_owned()
    };
    assert_eq!(metadata("none over"), "}}");
    assert_eq!(
        metadata("a b over"),
        r#","metadata":{"backend":"x","deep":{"list":["a",2,null,true],"one":1,"two":2.5},"more":{}}}}"#
    );
    assert_eq!(
        metadata("b a"),
        r#","metadata":{"backend":"y","deep":{"list":["a",2,null,true],"one":7,"two":2.5},"more":{}}}}"#
    );
    assert_eq!(metadata("wild-1"), r#","metadata":{"wild":true}}}"#);
}

#[test]
fn header_names_are_checked() {
    assert!(Names::new(["A-1", "b", "c"]).is_ok());
    for bad in ["", "a b", "a\r\nb", "größe", ":path"] {
        let error = Names::new(["ok", bad, "ok"]).unwrap_err();
        assert!(error.starts_with(&format!("{bad:?} is not a name")), "{error}");
    }
}

/// A rule with `headers: false` decides. The figures for clients are those of the other rules.
// G122
#[test]
fn hidden_rule_has_no_figures() {
    const HIDDEN: &str = r"
tollgate: {}
descriptors:
  - key: a
    rate_limits:
      - { name: shown, unit: minute, requests_per_unit: 5 }
      - { name: secret, unit: hour, requests_per_unit: 1, headers: false }
  - { key: b, rate_limit: { name: other, unit: minute, requests_per_unit: 0, headers: false } }
";
    let settings = Settings {
        limit_headers: LimitHeaders::Dialect(Fields::new(Dialect::Draft11)),
        retry_after: true,
        problem_body: true,
        ..Settings::default()
    };
    let service = service_with(HIDDEN, settings, |builder| builder);
    for (code, left) in [(Code::Ok, 4), (Code::OverLimit, 4)] {
        let response = service.ask([of([("a", "x")])]);
        assert_eq!(response.overall_code, code as i32);
        let status = &response.statuses[0];
        assert_eq!((status.code, status.limit_remaining), (code as i32, left));
        assert_eq!(status.current_limit.as_ref().map(|limit| &*limit.name), Some("shown"));
        let all =
            format!("{:?} {}", response.response_headers_to_add, String::from_utf8_lossy(&response.raw_body));
        assert!(!all.contains("secret"), "{all}");
        assert_eq!(all.to_lowercase().contains("retry-after"), code == Code::OverLimit, "{all}");
    }
    let response = service.ask([of([("b", "x")])]);
    let status = &response.statuses[0];
    assert_eq!((status.code, &status.current_limit), (Code::OverLimit as i32, &None));
}

/// The limit of a class is what it may have in use.
#[test]
fn class_shows_its_own_limit() {
    const CLASSES: &str = r"
tollgate: {}
descriptors:
  - key: a
    classes: { high: 100%, batch: 50% }
    rate_limit: { unit: minute, requests_per_unit: 4 }
";
    let service = service_with(CLASSES, Settings::default(), |builder| builder);
    assert_eq!(service.told([of([("a", "batch")])]), "OK: OK 2/MINUTE 1 58s");
    assert_eq!(service.told([of([("a", "high")])]), "OK: OK 4/MINUTE 2 58s");
    assert_eq!(service.told([of([("a", "batch")])]), "OVER_LIMIT: OVER_LIMIT 2/MINUTE 0 58s");
}
