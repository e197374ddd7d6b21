//! Tests of requests and answers in JSON.

use http::header::CONTENT_TYPE;
use prost::Message;
use tollgate::ManualClock;
use tollgate_rules::{Config, Rules};
use tollgate_serve::answer::{Answerer, Entry, Settings};
use tollgate_serve::http::json;
use tollgate_serve::proto::{Object, RateLimitRequest};

use crate::answer::deadline;

/// Reads a request by the description of the messages alone.
fn described(text: &str) -> Option<RateLimitRequest> {
    let message = crate::messages::described("envoy.service.ratelimit.v3.RateLimitRequest", text)?;
    RateLimitRequest::decode(&message.encode_to_vec()[..]).ok()
}

fn read(text: &str) -> Option<RateLimitRequest> {
    serde_json::from_str(text).ok().map(|Object(request)| request)
}

// G105
#[test]
fn requests_are_read_as_by_another_reader() {
    for (text, is_valid) in [
        ("{}", true),
        (r#"{"domain":"rl","descriptors":[{"entries":[{"key":"foo","value":"bar"}]}]}"#, true),
        (r#"{"domain":"rl","hitsAddend":7}"#, true),
        (r#"{"domain":"rl","hits_addend":7}"#, true),
        (r#"{"hitsAddend":"7"}"#, true),
        (r#"{"hitsAddend":7.0}"#, true),
        (r#"{"hitsAddend":7e0}"#, true),
        (r#"{"hitsAddend":7.5}"#, false),
        (r#"{"hitsAddend":-1}"#, false),
        (r#"{"hitsAddend":4294967295}"#, true),
        (r#"{"hitsAddend":4294967296}"#, false),
        (r#"{"hitsAddend":"x"}"#, false),
        (r#"{"hitsAddend":""}"#, false),
        (r#"{"hitsAddend":"inf"}"#, false),
        (r#"{"hitsAddend":true}"#, false),
        (r#"{"domain":null,"descriptors":null,"hitsAddend":null}"#, true),
        (r#"{"descriptors":[null]}"#, false),
        (r#"{"descriptors":[{"hitsAddend":"18446744073709551615"}]}"#, true),
        (r#"{"descriptors":[{"hitsAddend":18446744073709551615}]}"#, true),
        (r#"{"descriptors":[{"hitsAddend":18446744073709551616}]}"#, false),
        (r#"{"descriptors":[{"hitsAddend":0}]}"#, true),
        (r#"{"descriptors":[{"hitsAddend":null,"limit":null,"entries":null,"isNegativeHits":null}]}"#, true),
        (r#"{"descriptors":[{"isNegativeHits":true},{"is_negative_hits":true}]}"#, true),
        (r#"{"descriptors":[{"isNegativeHits":"true"}]}"#, false),
        (r#"{"descriptors":[{"limit":{"requestsPerUnit":42,"unit":"HOUR"}}]}"#, true),
        (r#"{"descriptors":[{"limit":{"requests_per_unit":"42","unit":3}}]}"#, true),
        (r#"{"descriptors":[{"limit":{"unit":99}}]}"#, true),
        (r#"{"descriptors":[{"limit":{"unit":-1}}]}"#, true),
        (r#"{"descriptors":[{"limit":{"unit":null}}]}"#, true),
        (r#"{"descriptors":[{"limit":{"unit":"WEEK"}}]}"#, false),
        (r#"{"descriptors":[{"limit":{"unit":"hour"}}]}"#, false),
        (r#"{"descriptors":[{"entries":[{"key":"k","value":"gr\u00f6\u00dfe\u0000"}]}]}"#, true),
        (r#"{"descriptors":[{"entries":[{"key":7}]}]}"#, false),
        (r#"{"descriptors":{}}"#, false),
        (r#"{"domian":"rl"}"#, false),
        (r#"{"domain":"a"} x"#, false),
        (r#"{"descriptors":[{"entries":[["k","v"]]}]}"#, false),
        (r#"{"descriptors":[{"limit":[1,2]}]}"#, false),
        ("[]", false),
        ("", false),
        ("7", false),
    ] {
        let ours = read(text);
        assert_eq!(ours.is_some(), is_valid, "{text}");
        if is_valid {
            assert_eq!(ours, described(text), "{text}");
        }
    }
    // The other reader accepts numbers that are too large, and a field that appears twice.
    assert_eq!(read(r#"{"hitsAddend":1,"hits_addend":1}"#), None);
}

const RULES: &str = "
domain: rl
descriptors:
  - key: foo
    rate_limit: { name: daily, unit: day, requests_per_unit: 1 }
";

/// Returns an answerer whose clock does not move, so that no day ends within a test.
fn answerer(rules: &str, settings: Settings) -> Answerer<ManualClock> {
    let config = Config::from_yaml("rules", rules).unwrap();
    let rules = Rules::builder().clock(ManualClock::default()).load([config]).unwrap();
    Answerer::new(rules.into(), settings)
}

#[tokio::test]
async fn json_status_follows_the_answer() {
    let answerer = self::answerer(RULES, Settings::default());
    let ask = async |body: &str| {
        let response = json(&answerer, Entry::Json, body.as_bytes(), deadline()).await;
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        (response.status().as_u16(), String::from_utf8(response.into_body().to_vec()).unwrap())
    };
    let request = r#"{"domain":"rl","descriptors":[{"entries":[{"key":"foo","value":"x"}]}]}"#;
    let (status, body) = ask(request).await;
    assert_eq!(status, 200);
    assert!(body.starts_with(r#"{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":1,"unit":"DAY","name":"daily"},"durationUntilReset":""#), "{body}");
    assert!(body.ends_with(r#"s"}]}"#), "{body}");
    let (status, body) = ask(request).await;
    assert_eq!(status, 429);
    assert!(body.starts_with(r#"{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","#), "{body}");
    let (status, body) = ask("{").await;
    assert_eq!(status, 400);
    assert!(body.starts_with(r#"{"code":3,"message":"the body is no request: "#), "{body}");
    assert_eq!(ask("{}").await, (400, r#"{"code":3,"message":"the domain is empty"}"#.to_owned()));
    let settings = Settings { max_in_flight: 0, ..Settings::default() };
    let busy = self::answerer(RULES, settings);
    let response = json(&busy, Entry::Json, request.as_bytes(), deadline()).await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.body(), &br#"{"code":14,"message":"too many requests wait for an answer"}"#[..]);
    let counts = answerer.meters().read();
    assert_eq!((counts.entries, counts.undecodable, counts.over_limit), ([0, 0, 0, 4, 0, 0], 1, 1));
    assert_eq!((counts.codes[0], counts.codes[3]), (2, 2));
}

#[tokio::test]
async fn units_are_held_and_settled_in_json() {
    let rules = RULES
        .replace("domain: rl", "domain: rl\ntollgate: {}")
        .replace("requests_per_unit: 1 ", "requests_per_unit: 9, hold: {} ");
    let answerer = self::answerer(&rules, Settings::default());
    let ask = async |entry, more: &str| {
        let body =
            format!(r#"{{"domain":"rl","descriptors":[{{"entries":[{{"key":"foo","value":"x"}}]}}]{more}}}"#);
        let response = json(&answerer, entry, body.as_bytes(), deadline()).await;
        (response.status().as_u16(), String::from_utf8(response.into_body().to_vec()).unwrap())
    };
    let (status, body) = ask(Entry::Reserve, r#","amount":"6","ttl":"30s""#).await;
    let id =
        body.strip_prefix(r#"{"code":"OK","reservationId":""#).and_then(|rest| rest.strip_suffix(r#""}"#));
    let commit = format!(r#","reservationId":"{}","actualAmount":2"#, id.expect(&body));
    assert_eq!(status, 200);
    assert_eq!(ask(Entry::Reserve, r#","amount":4"#).await, (429, r#"{"code":"OVER_LIMIT"}"#.to_owned()));
    assert_eq!(ask(Entry::Commit, &commit).await, (200, r#"{"reservationReleased":true}"#.to_owned()));
    assert_eq!(ask(Entry::Commit, &commit).await, (200, "{}".to_owned()));
    assert_eq!(ask(Entry::Reserve, r#","amount":5,"ttl":"1.5s""#).await.0, 200);
    for bad in [
        r#","amount":-1"#,
        r#","amount":1,"ttl":60"#,
        r#","amount":1,"ttl":"60""#,
        r#","ttl":"-1s""#,
        r#","hits":1"#,
    ] {
        let (status, body) = ask(Entry::Reserve, bad).await;
        assert_eq!(status, 400, "{bad}: {body}");
    }
}
