//! Examples of allowed requests in each dialect, as the drafts and the services that use them print them.

use crate::common::SEC;
use http::HeaderMap;
use std::time::Duration;
use tollgate::http::{Dialect, Fields, Policy, Reset, Unit};
use tollgate::{
    Algorithm, Decision, FixedWindow, Gcra, ManualClock, MinimumSpacing, Quota, RateLimiter, SlidingLog,
    SlidingWindow, SubWindow, Timestamp, TokenBucket,
};

/// A Monday, at the beginning of a minute, an hour and not of a day.
const START: u64 = 1_790_006_400 - 3_600;

const BURST: Quota = Quota::per_minute(100);
const DAILY: Quota = Quota::per_day(1_000);

/// The decision on `last` units, once `used` are charged, so many milliseconds after the start.
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

/// "burst" has 50 of 100 left, "daily" 812 of 1000; both are GCRA.
fn two() -> [Policy<'static>; 2] {
    [
        Policy::new("burst", &BURST, after(Gcra::new(BURST), 49, 1, 0)),
        Policy::new("daily", &DAILY, after(Gcra::new(DAILY), 187, 1, 0)),
    ]
}

#[test]
fn draft_11_lists_policies_and_what_is_available() {
    assert_eq!(
        fields(Dialect::default(), &two()),
        [
            r#"ratelimit-policy: "burst";q=100;w=60, "daily";q=1000;w=86400"#,
            r#"ratelimit: "burst";r=50;t=30, "daily";r=812;t=70157"#
        ]
    );
}

#[test]
fn draft_11_can_report_the_nearest_only() {
    let mut headers = HeaderMap::new();
    Fields::default().nearest_only(true).write(&mut headers, &two());
    assert_eq!(
        lines(&headers),
        [
            r#"ratelimit-policy: "burst";q=100;w=60, "daily";q=1000;w=86400"#,
            r#"ratelimit: "burst";r=50;t=30"#
        ]
    );
}

#[test]
fn of_equals_the_longest_window_is_nearest() {
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

#[test]
fn drafts_7_and_6_show_the_nearest_and_list_all() {
    assert_eq!(
        fields(Dialect::Draft07, &two()),
        ["ratelimit-policy: 100;w=60, 1000;w=86400", "ratelimit: limit=100, remaining=50, reset=30"]
    );
    assert_eq!(
        fields(Dialect::Draft06, &two()),
        [
            "ratelimit-limit: 100",
            "ratelimit-policy: 100;w=60, 1000;w=86400",
            "ratelimit-remaining: 50",
            "ratelimit-reset: 30"
        ]
    );
}

/// Cause: a time to live was added to the present time. Symptom: two answers within a window differed by a second.
#[test]
fn an_epoch_reset_does_not_wobble_within_a_window() {
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
fn the_limit_is_shown_with_the_burst() {
    let quota = BURST.burst(300);
    let policy = Policy::new("x", &quota, after(Gcra::new(quota), 0, 1, 0));
    assert_eq!(fields(Dialect::Draft11, &[policy])[0], r#"ratelimit-policy: "x";q=300;w=180"#);
    assert_eq!(
        fields(Dialect::Legacy { reset: Reset::Delta }, &[policy])[..2],
        ["x-ratelimit-limit: 300", "x-ratelimit-remaining: 299"]
    );
    // Windows ignore the burst.
    let policy = Policy::new("x", &quota, after(FixedWindow::new(quota), 0, 1, 0));
    assert_eq!(fields(Dialect::Draft11, &[policy])[0], r#"ratelimit-policy: "x";q=100;w=60"#);
}

/// Each algorithm's window, a quarter into a minute.
#[test]
fn the_effective_window_is_the_algorithms() {
    let quota = Quota::per_minute(60).burst(60);
    let shown = |decision| fields(Dialect::Draft11, &[Policy::new("x", &quota, decision)])[1].clone();
    let cases: [(Decision, &str); 12] = [
        // Something left: its time at the sustained rate.
        (after(Gcra::new(quota), 49, 1, 15_000), "r=10;t=10"),
        (after(SlidingWindow::new(quota), 49, 1, 15_000), "r=10;t=10"),
        (after(SubWindow::new(quota, 6), 49, 1, 15_000), "r=10;t=10"),
        (after(SlidingLog::new(quota), 49, 1, 15_000), "r=10;t=10"),
        // Or the window that there is.
        (after(FixedWindow::new(quota), 49, 1, 15_000), "r=10;t=45"),
        (after(TokenBucket::aligned(quota, Timestamp::ZERO), 49, 1, 15_000), "r=10;t=45"),
        // Nothing left, by a request that went through: until one unit fits.
        (after(Gcra::new(quota), 59, 1, 15_000), "r=0;t=1"),
        (after(FixedWindow::new(quota), 59, 1, 15_000), "r=0;t=45"),
        // The next minute's first second: 60 × 59/60 < 60, by the count that is rounded down.
        (after(SlidingWindow::new(quota), 59, 1, 15_000), "r=0;t=46"),
        (after(SubWindow::new(quota, 6), 59, 1, 15_000), "r=0;t=55"),
        (after(SlidingLog::new(quota), 59, 1, 15_000), "r=0;t=60"),
        (after(SlidingLog::new(quota), 0, 60, 15_000), "r=0;t=60"),
    ];
    for (index, (decision, expected)) in cases.into_iter().enumerate() {
        assert_eq!(shown(decision), format!("ratelimit: \"x\";{expected}"), "case {index}");
    }
}

/// A full bucket is not said to give 99 in one second.
#[test]
fn a_nearly_full_bucket_advertises_no_more_than_the_rate() {
    let policy = Policy::new("x", &BURST, after(Gcra::new(BURST), 0, 1, 0));
    assert_eq!(fields(Dialect::Draft11, &[policy])[1], r#"ratelimit: "x";r=99;t=60"#);
}

#[test]
fn dry_runs_and_no_policies_write_nothing() {
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

/// Draft 11's lists may come in several lines; the others hold one value.
#[test]
fn inner_service_fields_are_appended_or_replaced() {
    let mut headers = HeaderMap::new();
    let put = |headers: &mut HeaderMap, name: &'static str, value: &'static str| {
        headers.insert(name, value.parse().expect("a value"));
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

/// A header map holds 32,768 fields, and panics on the next unless it is asked first.
#[test]
fn a_full_header_map_is_left_as_it_is() {
    let mut headers = HeaderMap::new();
    let filler = |number: usize| format!("x-{number}").parse::<http::HeaderName>().expect("a name");
    while headers.try_append(filler(headers.len()), http::HeaderValue::from(0)).is_ok() {}
    let full = headers.len();
    for dialect in
        [Dialect::Draft11, Dialect::Draft07, Dialect::Draft06, Dialect::Legacy { reset: Reset::Epoch }]
    {
        Fields::new(dialect).refuse(&mut headers, &two());
    }
    assert_eq!(headers.len(), full);
}

/// A decision knows by what rate it was made, whatever quota is said beside it; a rate that is rounded in the limiter is told as it
/// was asked for.
#[test]
fn the_rate_is_the_decisions() {
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
    // Of these the period is the quota's.
    assert_eq!(shown(after(SlidingLog::new(new), 0, 1, 0), old), "\"x\";q=10;w=60");
    assert_eq!(shown(after(SubWindow::new(new, 10), 0, 1, 0), old), "\"x\";q=10;w=60");
    assert_eq!(shown(after(MinimumSpacing::new(Duration::from_secs(6)), 0, 1, 0), new), "\"x\";q=1;w=6");
    // 1/33 of a second is no whole number of ticks, and is rounded up in the limiter.
    for limit in [7, 33, 97, 1_013, 999_983] {
        let quota = Quota::per_second(limit);
        assert_eq!(shown(after(Gcra::new(quota), 0, 1, 0), quota), format!("\"x\";q={limit};w=1"));
    }
}
