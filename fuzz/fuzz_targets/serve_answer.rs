//! Fuzzes the rate limit service from the bytes of a message to the bytes of the answer. No bytes cause a panic. Every
//! request that the protocol permits has an answer, whatever its texts and numbers are.

#![no_main]

use std::sync::LazyLock;
use std::time::Instant;

use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use tollgate_http::{Dialect, Fields};
use tollgate_rules::Rules;
use tollgate_serve::answer::{Answerer, Entry, LimitHeaders, Names, Settings};
use tollgate_serve::proto::{Code, CommitRequest, RateLimitRequest, RateLimitResponse, ReserveRequest};

const RULES: &str = "
domain: rl
tollgate: { charging: count-denials }
descriptors:
  - { key: foo, rate_limit: { unit: minute, requests_per_unit: 10 } }
  - { key: generic_key, value: v*, metadata: { a: { b: 1 } }, rate_limit: { name: n, unit: second, requests_per_unit: 2 } }
  - { key: remote_address, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: other, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 5, algorithm: gcra } }
  - { key: '*', rate_limit: { unlimited: true } }
  - key: remote_address
    value: 127.0.0.1
    descriptors:
      - { key: generic_key, rate_limit: { unit: week, requests_per_unit: 4294967295, store: keyed, max_keys: 100 } }
  - { key: held, rate_limit: { unit: hour, requests_per_unit: 100, store: keyed, hold: { life: 1s, most: 50%, units: 7 } } }
  - { key: running, rate_limits: [ { in_progress: 3, hold: { life: 1s } }, { unit: day, requests_per_unit: 9, hold: {} } ] }
";

/// One service with few parts in its answers, and one with all.
static SERVICES: LazyLock<[Answerer; 2]> = LazyLock::new(|| {
    let rules = || Rules::from_yaml(RULES).unwrap_or_else(|error| panic!("{error}"));
    let three = Settings { limit_headers: LimitHeaders::Three(Names::default()), ..Settings::default() };
    let all = Settings {
        limit_headers: LimitHeaders::Dialect(Fields::new(Dialect::Draft11)),
        retry_after: true,
        dynamic_metadata: true,
        problem_body: true,
        negative_hits: true,
        ..Settings::default()
    };
    [three, all].map(|settings| Answerer::new(rules().into(), settings))
});

/// Holds units. Settles them if the message also is a commit, at once and once more.
fn hold(service: &Answerer, message: &[u8]) {
    let Ok(request) = ReserveRequest::decode(message) else { return };
    let (domain, descriptors) = (request.domain.clone(), request.descriptors.clone());
    let answer = service.reserve(request, Instant::now()).now_or_never();
    match answer.expect("rules of this process do not wait") {
        Ok(answer) => {
            assert_eq!(answer.code == Code::Ok as i32, !answer.reservation_id.is_empty());
            let reservation_id = answer.reservation_id.into();
            let commit = CommitRequest { domain, descriptors, reservation_id, actual_amount: 3 };
            let settle = || service.commit(commit.clone(), Instant::now()).now_or_never();
            assert!(settle().expect("it does not wait").is_ok(), "what can be held can be settled");
            let again = settle().expect("it does not wait").expect("a commit is a report");
            assert!(!again.reservation_released, "a hold is settled once");
        }
        Err(status) => refused(&status),
    }
}

fn commit(service: &Answerer, message: &[u8]) {
    let Ok(request) = CommitRequest::decode(message) else { return };
    if let Err(status) = service.commit(request, Instant::now()).now_or_never().expect("it does not wait") {
        refused(&status);
    }
}

fn refused(status: &tonic::Status) {
    use tonic::Code::{InvalidArgument, Unimplemented};
    assert!(matches!(status.code(), InvalidArgument | Unimplemented), "{status:?}");
}

// G106
fuzz_target!(|input: &[u8]| {
    let Some((first, message)) = input.split_first() else { return };
    let (entry, _) = Entry::OWN[usize::from(first >> 1) % Entry::OWN.len()];
    let service = &SERVICES[usize::from(first & 1)];
    match entry {
        Entry::Reserve => return hold(service, message),
        Entry::Commit => return commit(service, message),
        _ => {}
    }
    let Ok(request) = RateLimitRequest::decode(message) else { return };
    let descriptors = request.descriptors.len();
    let answer = service.answer(request, entry, Instant::now()).now_or_never();
    match answer.expect("rules of this process do not wait") {
        Ok(answer) => {
            let code = Code::try_from(answer.overall_code).expect("the code exists");
            assert_ne!(code, Code::Unknown, "gateways admit a request on it");
            assert_eq!(answer.statuses.len(), if entry == Entry::Report { 0 } else { descriptors });
            for status in &answer.statuses {
                let is_over = status.code == Code::OverLimit as i32;
                assert!(is_over || status.code == Code::Ok as i32);
                assert!(!is_over || status.limit_remaining == 0);
                assert_eq!(status.current_limit.is_some(), status.duration_until_reset.is_some());
                assert!(status.duration_until_reset.is_none_or(|left| left.seconds >= 1 && left.nanos == 0));
            }
            for header in &answer.response_headers_to_add {
                assert!(header.value.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{header:?}");
            }
            let bytes = answer.encode_to_vec();
            assert_eq!(RateLimitResponse::decode(&bytes[..]), Ok(answer));
        }
        Err(status) => refused(&status),
    }
});
