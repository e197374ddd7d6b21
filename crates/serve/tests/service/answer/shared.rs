//! Rules of a server that is away, and rules that cannot refund.

use tollgate_http::{Dialect, Fields};
use tollgate_redis::Client;

use super::*;

const RULES: &str = r"
tollgate: { store: redis, mode: atomic, timeout: 500ms }
descriptors:
  - { key: open, rate_limit: { unit: year, requests_per_unit: 9, on_failure: open } }
  - { key: closed, rate_limit: { unit: year, requests_per_unit: 9, on_failure: closed } }
  - { key: local, rate_limit: { unit: year, requests_per_unit: 9, on_failure: local } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 9, on_failure: closed } }
  - { key: here, rate_limit: { unit: minute, requests_per_unit: 9, store: keyed } }
";

/// Starts a service whose Redis server is away.
fn away(settings: Settings) -> Service {
    // Nothing listens on this port of the machine.
    let client = Client::open("redis://127.0.0.1:1/").unwrap();
    service_with(RULES, settings, |builder| builder.shared(client.clone()))
}

#[test]
fn policy_without_server_shows_no_figures() {
    let service = away(Settings::default());
    for (key, told) in [("open", "OK: OK 0"), ("closed", "OVER_LIMIT: OVER_LIMIT 0"), ("shadow", "OK: OK 0")]
    {
        assert_eq!(service.told([of([(key, "")])]), told);
    }
    let told = service.told([of([("local", "")])]);
    assert!(told.starts_with("OK: OK 9/YEAR 8 "), "{told}");
}

#[test]
fn denial_without_server_has_no_policy_in_headers() {
    let limit_headers = LimitHeaders::Dialect(Fields::new(Dialect::Draft11));
    let service = away(Settings { limit_headers, ..Settings::default() });
    let denied = service.ask([with_hits(of([("local", "")]), 10)]);
    assert_eq!(denied.overall_code, Code::OverLimit as i32);
    assert_eq!(denied.response_headers_to_add, []);
}

#[test]
fn check_follows_the_policy_without_server() {
    let service = away(Settings::default());
    let check = |key| service.call(request([of([(key, "")])]), Entry::Check).unwrap().overall_code;
    let (ok, over) = (Code::Ok as i32, Code::OverLimit as i32);
    assert_eq!(["open", "closed", "local", "shadow"].map(check), [ok, over, ok, ok]);
}

#[test]
fn rule_that_denies_nothing_needs_no_server() {
    let settings = Settings { unavailable_without_store: true, ..Settings::default() };
    let service = away(settings);
    let ask = |keys: &[&str]| {
        let descriptors = keys.iter().map(|&key| of([(key, "")]));
        service.call(request(descriptors), Entry::ShouldRateLimit).map(|answer| answer.overall_code)
    };
    for key in ["open", "closed", "local"] {
        assert_eq!(ask(&[key, "here"]).unwrap_err().code(), tonic::Code::Unavailable, "{key}");
    }
    assert_eq!(ask(&["shadow"]).unwrap(), Code::Ok as i32);
    // The other rules were not charged.
    let here = || of([("here", "")]);
    assert_eq!(service.told([with_hits(here(), 9)]), "OK: OK 9/MINUTE 0 58s");
    // A limit of this process denies whether the server is there or not.
    assert_eq!(ask(&["open", "here"]).unwrap(), Code::OverLimit as i32);
}

#[test]
fn report_counts_although_a_server_is_away() {
    let settings = Settings { unavailable_without_store: true, ..Settings::default() };
    let service = away(settings);
    let both = || request([of([("open", "")]), of([("here", "")])]);
    assert_eq!(service.call(both(), Entry::Report).unwrap_err().code(), tonic::Code::Unavailable);
    assert_eq!(service.told([with_hits(of([("here", "")]), 0)]), "OK: OK 9/MINUTE 8 58s");
}

#[test]
fn rules_that_cannot_refund_take_no_hits_back() {
    let settings = Settings { negative_hits: true, ..Settings::default() };
    let service = away(settings.clone());
    let back = |key: &str| RateLimitDescriptor { is_negative_hits: true, ..with_hits(of([(key, "")]), 5) };
    let here = |hits| with_hits(of([("here", "")]), hits);
    let _ = service.told([here(6)]);
    for entry in [Entry::ShouldRateLimit, Entry::Json, Entry::Report] {
        let status = service.call(request([back("here"), here(1), back("local")]), entry).unwrap_err();
        let message = "a rule with `store: redis`, a log or a sketch takes no hits back";
        assert_eq!((status.code(), status.message()), (tonic::Code::Unimplemented, message));
    }
    assert_eq!(service.told([here(0)]), "OK: OK 9/MINUTE 3 58s", "nothing was counted or given back");
    assert_eq!(service.told([back("here")]), "OK: OK 9/MINUTE 8 58s");
    let log = "tollgate: {}\ndescriptors: [{ key: a, rate_limit: { unit: day, requests_per_unit: 9, algorithm: sliding-log } }]";
    let log = service_with(log, settings, |builder| builder);
    let status = log.call(request([back("a")]), Entry::ShouldRateLimit).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
}
