//! Kuadrant's two methods.

use super::*;

const RULES: &str = r"
descriptors:
  - { key: a, rate_limit: { unit: minute, requests_per_unit: 4 } }
  - { key: q, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: s, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 0 } }
";

fn code(service: &Service, entry: Entry<'_>, hits: u32, keys: &[&str]) -> i32 {
    let descriptors = keys.iter().map(|&key| of([(key, "")]));
    let request = RateLimitRequest { hits_addend: hits, ..request(descriptors) };
    service.call(request, entry).unwrap().overall_code
}

#[test]
fn check_counts_nothing_and_refuses_a_full_limit() {
    let service = service(RULES);
    let (ok, over) = (Code::Ok as i32, Code::OverLimit as i32);
    for _ in 0..9 {
        assert_eq!(code(&service, Entry::Check, 5, &["a"]), ok);
    }
    assert_eq!(code(&service, Entry::Report, 3, &["a"]), ok);
    assert_eq!(code(&service, Entry::Check, 0, &["a"]), ok);
    assert_eq!(code(&service, Entry::Report, 0, &["a"]), ok);
    assert_eq!(code(&service, Entry::Check, 0, &["a"]), over);
    assert_eq!(code(&service, Entry::Check, 0, &["s"]), ok);
    assert_eq!(code(&service, Entry::Check, 0, &["q", "none"]), ok);
    assert_eq!(code(&service, Entry::Report, 2, &["q"]), ok);
    assert_eq!(code(&service, Entry::Check, 0, &["q", "none"]), over);
    assert_eq!(service.answerer.meters().read().entries, [0, 14, 3, 0, 0, 0]);
}

#[test]
fn report_is_always_ok() {
    let service = service(RULES);
    for _ in 0..9 {
        let request = RateLimitRequest { hits_addend: 3, ..request([of([("a", "")])]) };
        let response = service.call(request, Entry::Report).unwrap();
        assert_eq!(shown(&response), "OK: ");
    }
}

#[test]
fn report_counts_under_each_limit() {
    let service = service(RULES);
    let both = || request([with_hits(of([("a", "")]), 5), of([("q", "")])]);
    assert_eq!(service.call(both(), Entry::Report).unwrap().overall_code, Code::Ok as i32);
    // The first limit is over, and the second one was charged.
    assert_eq!(code(&service, Entry::Check, 0, &["a"]), Code::OverLimit as i32);
    assert_eq!(service.told([with_hits(of([("q", "")]), 0)]), "OK: OK 2/MINUTE 1 58s");
}
