//! Answers to denied requests: examples from the drafts, `Retry-After`, and the problem document.

use super::dialects::lines;
use http::{HeaderMap, StatusCode};
use std::time::Duration;
use tollgate::{
    Algorithm, Block, Blocked, Decision, FixedWindow, Gcra, ManualClock, Quota, RateLimiter, Timestamp,
};
use tollgate_http::{Dialect, Fields, Policy, Reset, problem, problem_at, retry_after};

const BURST: Quota = Quota::per_minute(100);
const DAILY: Quota = Quota::per_day(1_000);

/// 36 s before the end of a minute.
const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

fn after(algorithm: impl Algorithm, used: u64, last: u64) -> Decision {
    let limiter = RateLimiter::builder(algorithm).clock(ManualClock::new(NOW)).direct();
    assert!(used == 0 || limiter.check_n(used).is_allowed());
    limiter.check_n(last)
}

/// Two policies: "burst" is a fixed window that has no units left for 36 s, and "daily" is a GCRA with units left.
fn two() -> [Policy<'static>; 2] {
    let clock = ManualClock::new(NOW + Duration::from_secs(4));
    let limiter = RateLimiter::builder(FixedWindow::new(BURST)).clock(clock).direct();
    assert!(limiter.check_n(100).is_allowed());
    let burst = limiter.check();
    let burst = match burst.retry_after() {
        Some(wait) if wait == Duration::from_secs(36) => burst,
        other => panic!("expected a denial with 36 s left in the window: {other:?}"),
    };
    [Policy::new("burst", &BURST, burst), Policy::new("daily", &DAILY, after(Gcra::new(DAILY), 187, 1))]
}

fn refused(dialect: Dialect, policies: &[Policy<'_>]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    Fields::new(dialect).refuse(&mut headers, policies);
    lines(&headers)
}

#[test]
fn draft_11_names_denying_policy() {
    let response = Fields::default().refusal(&two());
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        lines(response.headers()),
        [
            "cache-control: no-store",
            "content-type: application/problem+json",
            r#"ratelimit-policy: "burst";q=100;w=60, "daily";q=1000;w=86400"#,
            r#"ratelimit: "burst";r=0;t=36"#,
            "retry-after: 36",
        ]
    );
    let body: serde_json::Value = serde_json::from_str(response.body()).expect("JSON");
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "violated-policies": ["burst"],
    });
    assert_eq!(body, expected);
}

#[test]
fn other_dialects_show_denying_policy() {
    assert_eq!(
        refused(Dialect::Draft06, &two()),
        [
            "cache-control: no-store",
            "ratelimit-limit: 100",
            "ratelimit-policy: 100;w=60, 1000;w=86400",
            "ratelimit-remaining: 0",
            "ratelimit-reset: 36",
            "retry-after: 36",
        ]
    );
    assert_eq!(
        refused(Dialect::Draft07, &two()),
        [
            "cache-control: no-store",
            "ratelimit-policy: 100;w=60, 1000;w=86400",
            "ratelimit: limit=100, remaining=0, reset=36",
            "retry-after: 36",
        ]
    );
    assert_eq!(refused(Dialect::Off, &two()), ["cache-control: no-store", "retry-after: 36"]);
}

#[test]
fn legacy_denial_matches_github() {
    let hour = Quota::per_hour(5_000);
    let clock = ManualClock::new(Timestamp::from_secs(1_790_002_800 - 36));
    let limiter = RateLimiter::builder(FixedWindow::new(hour)).clock(clock).direct();
    assert!(limiter.check_n(5_000).is_allowed());
    let policy = Policy::new("core", &hour, limiter.check());
    assert_eq!(
        refused(Dialect::Legacy { reset: Reset::Epoch }, &[policy]),
        [
            "cache-control: no-store",
            "retry-after: 36",
            "x-ratelimit-limit: 5000",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 1790002800",
            "x-ratelimit-retry-after: 36",
        ]
    );
}

// G70
#[test]
fn x_ratelimit_retry_after_is_legacy_only() {
    const NAME: &str = "x-ratelimit-retry-after";
    let legacy = |reset| Fields::new(Dialect::Legacy { reset });
    for reset in [Reset::Epoch, Reset::Delta] {
        let mut headers = HeaderMap::new();
        legacy(reset).write(&mut headers, &two());
        assert!(!headers.contains_key(NAME));
        // Whole seconds, rounded up, as in `Retry-After`. This also holds for a caller that names no policy.
        for (wait, seconds) in [(Duration::ZERO, "1"), (Duration::from_millis(36_001), "37")] {
            legacy(reset).refuse_for(&mut headers, &[], Some(wait));
            assert_eq!(
                (&headers[NAME], &headers["retry-after"]),
                (&seconds.parse().unwrap(), &headers[NAME])
            );
        }
        legacy(reset).refuse_for(&mut headers, &two(), None);
        assert!(!headers.contains_key(NAME) && !headers.contains_key("retry-after"));
    }
    for dialect in [Dialect::Draft11, Dialect::Draft07, Dialect::Draft06, Dialect::Off] {
        assert!(refused(dialect, &two()).iter().all(|line| !line.starts_with("x-")), "{dialect:?}");
    }
}

/// Cause: waits of less than a second were rounded down to zero. Symptom: well-behaved clients retried immediately,
/// again and again.
// G70
#[test]
fn retry_after_rounds_up_to_seconds() {
    for (quota, expected) in [
        (Quota::per_second(1_000).burst(1), "1"),
        (Quota::per_second(1).burst(1), "1"),
        (Quota::new(1, Duration::from_millis(1_001)), "2"),
        (Quota::new(1, Duration::from_nanos(2_000_000_001)), "3"),
    ] {
        let policy = [Policy::new("x", &quota, after(Gcra::new(quota), 1, 1))];
        let mut headers = HeaderMap::new();
        Fields::default().refuse(&mut headers, &policy);
        assert_eq!(headers["retry-after"], expected, "{quota}");
        Fields::default().refuse_for(&mut headers, &policy, Some(Duration::ZERO));
        assert_eq!(headers["retry-after"], "1");
        Fields::default().refuse_for(&mut headers, &policy, Some(Duration::MAX));
        assert_eq!(headers["retry-after"], "999999999999999");
    }
}

// G70
#[test]
fn impossible_cost_gets_no_retry_after() {
    let never = Policy::new("small", &BURST, after(Gcra::new(BURST), 10, 101));
    assert!(never.decision().is_never());
    assert_eq!(retry_after(&[never]), None);
    let mut headers = HeaderMap::new();
    headers.insert("retry-after", "5".parse().expect("a valid header value"));
    Fields::default().refuse(&mut headers, &[never]);
    assert!(!headers.contains_key("retry-after"), "a field from an inner service must be removed too");
    // The same holds if another denied policy would admit the request later.
    let [burst, daily] = two();
    assert_eq!(retry_after(&[burst, never, daily]), None);
    assert_eq!(retry_after(&[burst, daily]), Some(Duration::from_secs(36)));
    assert_eq!(retry_after(&[daily]), None);
    assert_eq!(retry_after(&[]), None);
}

#[test]
fn blocked_policy_advertises_zero_quota() {
    let blocked = Policy::blocked("closed", Duration::from_secs(60), NOW);
    assert_eq!((blocked.quota(), blocked.window()), (0, Duration::from_secs(60)));
    assert_eq!(
        refused(Dialect::Draft11, &[blocked]),
        [
            "cache-control: no-store",
            r#"ratelimit-policy: "closed";q=0;w=60"#,
            r#"ratelimit: "closed";r=0;t=60"#
        ]
    );
    assert!(problem(&[blocked]).ends_with(r#""violated-policies":["closed"]}"#));
    assert_eq!(Policy::blocked("x", Duration::ZERO, NOW).available().seconds, 1);
}

// G70
#[test]
fn retry_after_is_longest_of_denying_policies() {
    let slow = Quota::per_hour(1);
    let policies = [
        Policy::new("fast", &Quota::per_second(1).burst(1), after(Gcra::new(Quota::per_second(1)), 1, 1)),
        Policy::new("slow", &slow, after(Gcra::new(slow), 1, 1)),
        // A policy that is not enforced adds no wait.
        Policy::new("dry", &DAILY, after(Gcra::new(DAILY), 1_000, 1_000)).enforced(false),
    ];
    let mut headers = HeaderMap::new();
    Fields::default().nearest_only(true).refuse(&mut headers, &policies);
    assert_eq!(headers["retry-after"], "3600");
    assert_eq!(headers["ratelimit"], r#""slow";r=0;t=3600"#);
    assert!(problem(&policies).ends_with(r#""violated-policies":["fast","slow"]}"#));
}

/// The bucket holds ten units and refills one per second. Seven units are left, and the request costs eight.
#[test]
fn denied_cost_reports_time_until_it_fits() {
    let quota = Quota::per_second(1).burst(10);
    let policy = Policy::new("x", &quota, after(Gcra::new(quota), 3, 8));
    assert_eq!(policy.decision().remaining(), 7);
    assert_eq!(refused(Dialect::Draft11, &[policy])[2..], [r#"ratelimit: "x";r=1;t=1"#, "retry-after: 1"]);
}

/// A request can be admitted although one policy denies it, for example with quotas that deny only together. The answer
/// then lists all policies.
#[test]
fn admitted_answer_lists_all_policies() {
    let mut headers = HeaderMap::new();
    Fields::default().write(&mut headers, &two());
    assert_eq!(headers["ratelimit"], r#""burst";r=0;t=36, "daily";r=812;t=70157"#);
    assert!(!headers.contains_key("retry-after") && !headers.contains_key("cache-control"));
}

#[test]
fn instance_is_a_uri_in_json() {
    let body: serde_json::Value =
        serde_json::from_str(&problem_at(&two(), "/limits?rule=%2F&\"q\\ \n\u{e9}#burst")).expect("JSON");
    assert_eq!(body["instance"], "/limits?rule=%2F&%22q%5C%20%0A%C3%A9#burst");
    assert_eq!(body["violated-policies"], serde_json::json!(["burst"]));
}

#[test]
fn refusal_of_a_blocked_client_has_the_end_of_its_block() {
    let quota = Quota::per_minute(2);
    let algorithm = Blocked::new(quota, Block::of(Duration::from_secs(600)));
    let policy = [Policy::new("login", &quota, after(algorithm, 2, 1))];
    assert_eq!(retry_after(&policy), Some(Duration::from_secs(600)));
    let response = Fields::default().refusal(&policy);
    let said = lines(response.headers());
    assert!(said.contains(&"retry-after: 600".to_owned()), "{said:?}");
    assert!(said.contains(&r#"ratelimit: "login";r=0;t=600"#.to_owned()), "{said:?}");
}
