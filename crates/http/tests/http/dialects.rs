//! Fields of admitted requests in each dialect, in the form that the drafts and known services use.

use http::HeaderMap;
use std::time::Duration;
use tollgate::{
    Algorithm, Decision, FixedWindow, Gcra, ManualClock, MinimumSpacing, Quota, RateLimiter, SlidingLog,
    SlidingWindow, SubWindow, Timestamp, TokenBucket,
};
use tollgate_http::{Dialect, Fields, Policy, Reset, Unit};
use tollgate_testing::SEC;

/// A Monday, at the start of a minute and of an hour, but not of a day.
const START: u64 = 1_790_006_400 - 3_600;

const BURST: Quota = Quota::per_minute(100);
const DAILY: Quota = Quota::per_day(1_000);

/// Returns the decision on `last` units, `ms` milliseconds after the start, when `used` units are already charged.
fn after(algorithm: impl Algorithm, used: u64, last: u64, ms: u64) -> Decision {
    let clock = ManualClock::new(Timestamp::from_secs(START));
    let limiter = RateLimiter::builder(algorithm).clock(clock.clone()).direct();
    clock.advance(Duration::from_millis(ms));
    assert!(used == 0 || limiter.check_n(used).is_allowed());
    limiter.check_n(last)
}

fn fields(dialect: Dialect, policies: &[Policy<'_>]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    Fields::new(dialect).write(&mut headers, policies);
    lines(&headers)
}

/// The fields as text, sorted by name.
pub(super) fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII"))).collect();
    lines.sort();
    lines
}

/// Two GCRA policies: "burst" has 50 of 100 units left, and "daily" has 812 of 1,000.
fn two() -> [Policy<'static>; 2] {
    [
        Policy::new("burst", &BURST, after(Gcra::new(BURST), 49, 1, 0)),
        Policy::new("daily", &DAILY, after(Gcra::new(DAILY), 187, 1, 0)),
    ]
}

// G69
#[test]
fn each_dialect_lists_policies_and_available_units() {
    for (fields, expected) in [
        (
            Fields::default(),
            &[
                r#"ratelimit-policy: "burst";q=100;w=60, "daily";q=1000;w=86400"#,
                r#"ratelimit: "burst";r=50;t=30, "daily";r=812;t=70157"#,
            ][..],
        ),
        (
            Fields::default().nearest_only(true),
            &[
                r#"ratelimit-policy: "burst";q=100;w=60, "daily";q=1000;w=86400"#,
                r#"ratelimit: "burst";r=50;t=30"#,
            ],
        ),
        (
            Fields::new(Dialect::Draft07),
            &["ratelimit-policy: 100;w=60, 1000;w=86400", "ratelimit: limit=100, remaining=50, reset=30"],
        ),
        (
            Fields::new(Dialect::Draft06),
            &[
                "ratelimit-limit: 100",
                "ratelimit-policy: 100;w=60, 1000;w=86400",
                "ratelimit-remaining: 50",
                "ratelimit-reset: 30",
            ],
        ),
    ] {
        let mut headers = HeaderMap::new();
        fields.write(&mut headers, &two());
        assert_eq!(lines(&headers), expected, "{fields:?}");
    }
}

#[test]
fn longest_window_wins_tie_for_nearest() {
    let hour = Quota::per_hour(100);
    let policies = [
        Policy::new("minute", &BURST, after(Gcra::new(BURST), 0, 90, 0)),
        Policy::new("hour", &hour, after(Gcra::new(hour), 0, 90, 0)),
    ];
    let mut headers = HeaderMap::new();
    Fields::default().nearest_only(true).write(&mut headers, &policies);
    assert_eq!(headers["ratelimit"], r#""hour";r=10;t=360"#);
}

#[test]
fn draft_11_names_units_and_partitions() {
    let bytes = Quota::new(65_535, Duration::from_secs(10));
    let key = [0xB1_u8, 0xD7, 0xE3, 0x2C, 0x95, 0x0E];
    let policy = Policy::new("peruser", &bytes, after(FixedWindow::new(bytes), 0, 535, 0))
        .unit(Unit::ContentBytes)
        .partition(&key);
    assert_eq!(
        fields(Dialect::Draft11, &[policy]),
        [
            r#"ratelimit-policy: "peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUO:"#,
            r#"ratelimit: "peruser";r=65000;t=10;pk=:sdfjLJUO:"#
        ]
    );
    let concurrent = policy.unit(Unit::ConcurrentRequests);
    assert!(fields(Dialect::Draft11, &[concurrent])[0].contains(r#";qu="concurrent-requests""#));
}

/// Cause: the reset time was the current time plus a rounded duration. Symptom: two answers in the same window differed
/// by a second.
#[test]
fn epoch_reset_is_stable_within_window() {
    for ms in [0, 1, 499, 500, 999, 1_000, 59_999] {
        let policy = Policy::new("core", &BURST, after(FixedWindow::new(BURST), 0, 1, ms));
        let written = fields(Dialect::Legacy { reset: Reset::Epoch }, &[policy]);
        assert_eq!(written[2], format!("x-ratelimit-reset: {}", START + 60), "{ms}");
        let written = fields(Dialect::Legacy { reset: Reset::Delta }, &[policy]);
        assert_eq!(written[2], format!("x-ratelimit-reset: {}", (60_000 - ms).div_ceil(1_000)), "{ms}");
        assert_eq!(written[..2], ["x-ratelimit-limit: 100", "x-ratelimit-remaining: 99"]);
    }
}

#[test]
fn epoch_reset_field_is_unix_time() {
    let limiter = RateLimiter::builder(FixedWindow::new(BURST)).clock(ManualClock::default()).direct();
    let policy = [Policy::new("core", &BURST, limiter.check())];
    let mut headers = HeaderMap::new();
    let origin = Duration::from_secs(START);
    let fields = Fields::new(Dialect::Legacy { reset: Reset::Epoch }).unix_time(move |time| time + origin);
    fields.write(&mut headers, &policy);
    assert_eq!(headers["x-ratelimit-reset"], (START + 60).to_string());
}

#[test]
fn advertised_limit_includes_burst() {
    let quota = BURST.burst(300);
    let policy = Policy::new("x", &quota, after(Gcra::new(quota), 0, 1, 0));
    assert_eq!(fields(Dialect::Draft11, &[policy])[0], r#"ratelimit-policy: "x";q=300;w=180"#);
    assert_eq!(
        fields(Dialect::Legacy { reset: Reset::Delta }, &[policy])[..2],
        ["x-ratelimit-limit: 300", "x-ratelimit-remaining: 299"]
    );
    // Fixed windows ignore the burst.
    let policy = Policy::new("x", &quota, after(FixedWindow::new(quota), 0, 1, 0));
    assert_eq!(fields(Dialect::Draft11, &[policy])[0], r#"ratelimit-policy: "x";q=100;w=60"#);
}

/// The effective window of each algorithm, 15 seconds after the start of a minute.
#[test]
fn effective_window_depends_on_algorithm() {
    let quota = Quota::per_minute(60).burst(60);
    let shown = |decision| fields(Dialect::Draft11, &[Policy::new("x", &quota, decision)])[1].clone();
    let cases: [(Decision, &str); 12] = [
        // With units left: the time in which the quota refills that many at its sustained rate.
        (after(Gcra::new(quota), 49, 1, 15_000), "r=10;t=10"),
        (after(SlidingWindow::new(quota), 49, 1, 15_000), "r=10;t=10"),
        (after(SubWindow::new(quota, 6), 49, 1, 15_000), "r=10;t=10"),
        (after(SlidingLog::new(quota), 49, 1, 15_000), "r=10;t=10"),
        // With a fixed window: the rest of the window.
        (after(FixedWindow::new(quota), 49, 1, 15_000), "r=10;t=45"),
        (after(TokenBucket::aligned(quota, Timestamp::ZERO), 49, 1, 15_000), "r=10;t=45"),
        // With no units left after an admitted request: the time until one unit is admitted.
        (after(Gcra::new(quota), 59, 1, 15_000), "r=0;t=1"),
        (after(FixedWindow::new(quota), 59, 1, 15_000), "r=0;t=45"),
        // This ends in the first second of the next minute, where the previous window weighs 60 × 59/60 < 60. The
        // weighted count is rounded down.
        (after(SlidingWindow::new(quota), 59, 1, 15_000), "r=0;t=46"),
        (after(SubWindow::new(quota, 6), 59, 1, 15_000), "r=0;t=55"),
        (after(SlidingLog::new(quota), 59, 1, 15_000), "r=0;t=60"),
        (after(SlidingLog::new(quota), 0, 60, 15_000), "r=0;t=60"),
    ];
    for (index, (decision, expected)) in cases.into_iter().enumerate() {
        assert_eq!(shown(decision), format!("ratelimit: \"x\";{expected}"), "case {index}");
    }
}

/// A nearly full bucket must not advertise 99 units in one second.
#[test]
fn nearly_full_bucket_advertises_sustained_rate() {
    let policy = Policy::new("x", &BURST, after(Gcra::new(BURST), 0, 1, 0));
    assert_eq!(fields(Dialect::Draft11, &[policy])[1], r#"ratelimit: "x";r=99;t=60"#);
}

#[test]
fn unenforced_policies_write_no_fields() {
    let shadow = Policy::new("x", &BURST, after(Gcra::new(BURST), 0, 1, 0)).enforced(false);
    for dialect in
        [Dialect::Draft11, Dialect::Draft07, Dialect::Draft06, Dialect::Legacy { reset: Reset::Epoch }]
    {
        assert!(fields(dialect, &[shadow]).is_empty());
        assert!(fields(dialect, &[]).is_empty());
    }
    assert!(fields(Dialect::Off, &two()).is_empty());
    let [burst, _] = two();
    assert_eq!(fields(Dialect::Draft11, &[shadow, burst])[0], r#"ratelimit-policy: "burst";q=100;w=60"#);
}

/// Draft 11 allows several lines of a list field. The other dialects allow one value.
#[test]
fn inner_service_fields_are_appended_or_replaced() {
    let mut headers = HeaderMap::new();
    let put = |headers: &mut HeaderMap, name: &'static str, value: &'static str| {
        headers.insert(name, value.parse().expect("a valid header value"));
    };
    put(&mut headers, "ratelimit", r#""inner";r=1;t=1"#);
    put(&mut headers, "x-ratelimit-limit", "7");
    Fields::default().write(&mut headers, &two()[..1]);
    let values: Vec<_> = headers.get_all("ratelimit").iter().collect();
    assert_eq!(values, [r#""inner";r=1;t=1"#, r#""burst";r=50;t=30"#]);
    Fields::new(Dialect::Legacy { reset: Reset::Epoch }).write(&mut headers, &two());
    assert_eq!(headers.get_all("x-ratelimit-limit").iter().count(), 1);
    assert_eq!(headers["x-ratelimit-limit"], "100");
    Fields::new(Dialect::Draft07).write(&mut headers, &two());
    assert_eq!(headers.get_all("ratelimit").iter().count(), 1);
}

#[test]
fn numbers_stay_within_fifteen_digits() {
    let quota = Quota::new(1 << 56, Duration::from_secs(1 << 30));
    let policy = Policy::new("x", &quota, after(Gcra::new(quota), 0, 1, 0));
    assert_eq!(
        fields(Dialect::Draft11, &[policy]),
        [
            r#"ratelimit-policy: "x";q=999999999999999;w=1073741824"#,
            r#"ratelimit: "x";r=999999999999999;t=1073741824"#
        ]
    );
    let windows = Policy::new("x", &Quota::new(10, Duration::from_nanos(SEC / 10)), *policy.decision());
    assert!(windows.window() > Duration::ZERO);
}

#[test]
fn names_and_partitions_are_escaped() {
    for (name, text) in [
        ("per user", r#""per user""#),
        ("say \"hi\" \\ bye", r#""say \"hi\" \\ bye""#),
        ("größe\r\n\0\u{7f}", r#""gr%C3%B6%C3%9Fe%0D%0A%00%7F""#),
        ("50%", r#""50%25""#),
        ("", r#""""#),
    ] {
        let policy = Policy::new(name, &BURST, after(Gcra::new(BURST), 49, 1, 0));
        assert_eq!(fields(Dialect::Draft11, &[policy])[1], format!("ratelimit: {text};r=50;t=30"));
    }
    // Test vectors of RFC 4648 §10.
    for (bytes, text) in [("", "::"), ("f", ":Zg==:"), ("fo", ":Zm8=:"), ("foo", ":Zm9v:")] {
        let [burst, _] = two();
        let written = fields(Dialect::Draft11, &[burst.partition(bytes.as_bytes())]);
        assert_eq!(written[1], format!("ratelimit: \"burst\";r=50;t=30;pk={text}"));
    }
}

/// A header map holds at most 32,768 fields, and `append` panics on the next one. The fields are left out instead.
#[test]
fn full_header_map_stays_unchanged() {
    let mut headers = HeaderMap::new();
    let filler =
        |number: usize| format!("x-{number}").parse::<http::HeaderName>().expect("a valid field name");
    while headers.try_append(filler(headers.len()), http::HeaderValue::from(0)).is_ok() {}
    let full = headers.len();
    for dialect in
        [Dialect::Draft11, Dialect::Draft07, Dialect::Draft06, Dialect::Legacy { reset: Reset::Epoch }]
    {
        Fields::new(dialect).refuse(&mut headers, &two());
    }
    assert_eq!(headers.len(), full);
}

/// The fields show the rate of the decision, even if the policy was made with another quota. If the limiter rounds a
/// rate internally, the fields show the requested rate.
#[test]
fn fields_show_the_decision_rate() {
    fn shown(decision: Decision, quota: Quota) -> String {
        fields(Dialect::Draft11, &[Policy::new("x", &quota, decision)])[0].replace("ratelimit-policy: ", "")
    }
    let (old, new) = (Quota::per_minute(100), Quota::per_minute(10));
    assert_eq!(shown(after(Gcra::new(new), 0, 1, 0), old), "\"x\";q=10;w=60");
    let compact = RateLimiter::builder(Gcra::new(new)).clock(ManualClock::default()).compact().unwrap();
    assert_eq!(shown(compact.check("a"), old), "\"x\";q=10;w=60");
    assert_eq!(shown(after(FixedWindow::new(new), 0, 1, 0), old), "\"x\";q=10;w=60");
    assert_eq!(shown(after(SlidingWindow::new(new), 0, 1, 0), old), "\"x\";q=10;w=60");
    assert_eq!(shown(after(TokenBucket::new(new.burst(40)), 0, 1, 0), old), "\"x\";q=40;w=240");
    // With these algorithms, the period comes from the quota of the policy.
    assert_eq!(shown(after(SlidingLog::new(new), 0, 1, 0), old), "\"x\";q=10;w=60");
    assert_eq!(shown(after(SubWindow::new(new, 10), 0, 1, 0), old), "\"x\";q=10;w=60");
    assert_eq!(shown(after(MinimumSpacing::new(Duration::from_secs(6)), 0, 1, 0), new), "\"x\";q=1;w=6");
    // 1/33 of a second is not a whole number of ticks, so the limiter rounds the interval up.
    for limit in [7, 33, 97, 1_013, 999_983] {
        let quota = Quota::per_second(limit);
        assert_eq!(shown(after(Gcra::new(quota), 0, 1, 0), quota), format!("\"x\";q={limit};w=1"));
    }
}
