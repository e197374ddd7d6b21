//! What clients see of rules.

use std::time::Duration;

use http::HeaderMap;
use tollgate::{ManualClock, Quota, Timestamp};
use tollgate_http::{Fields, Policy};
use tollgate_rules::{Charging, Config, Descriptor, Rules, TimeUnit};

const START: u64 = 3_600 * 500_000;

fn config(text: &str) -> Config {
    Config::from_yaml("test.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn rules(start: u64, charging: Option<Charging>, text: &str) -> (ManualClock, Rules<ManualClock>) {
    let clock = ManualClock::new(Timestamp::from_secs(start));
    let mut builder = Rules::builder().clock(clock.clone());
    if let Some(charging) = charging {
        builder = builder.charging(charging);
    }
    (clock, builder.load([config(text)]).unwrap())
}

// G125
#[test]
fn header_fields_show_the_length_and_the_end_of_the_period() {
    let (now, start, end) = (1_795_780_800, 1_794_718_800, 1_797_310_800);
    let (_, rules) = rules(
        now,
        None,
        "{ domain: d, tollgate: {}, descriptors: [ { key: a, rate_limit: { period: month, time_zone: Europe/Berlin, \
         starts: { day: 15, hour: 6 }, requests_per_unit: 3 } } ] }",
    );
    let answer = rules.check("d", &[Descriptor::new(&[("a", "x")])]);
    let policies: Vec<_> = answer.limits().filter_map(|limit| Policy::of_rule("monthly", &limit)).collect();
    let mut headers = HeaderMap::new();
    Fields::default().write(&mut headers, &policies);
    assert_eq!(headers["ratelimit-policy"], format!("\"monthly\";q=3;w={}", end - start));
    assert_eq!(headers["ratelimit"], format!("\"monthly\";r=2;t={}", end - now));
}

/// A limit of 0 that a request sets is shown as such, and not as the quota of the counter of all such limits.
#[test]
fn request_limit_of_zero_has_a_policy_without_units() {
    let text =
        "{ domain: d, descriptors: [ { key: a, rate_limit: { unit: minute, requests_per_unit: 10 } } ] }";
    let (_, rules) = rules(START, None, text);
    let answer = rules.check("d", &[Descriptor::new(&[("a", "x")]).limit(0, TimeUnit::Hour)]);
    let policies: Vec<_> = answer.limits().filter_map(|limit| Policy::of_rule("own", &limit)).collect();
    let mut headers = HeaderMap::new();
    Fields::default().refuse(&mut headers, &policies);
    assert_eq!(headers["ratelimit-policy"], "\"own\";q=0;w=3600");
}

/// An exhausted key reports when its own next unit is available. Spare room of the store does not count: neither room
/// for counting denied requests, nor room from before the limit was lowered.
#[test]
fn exhausted_rule_reports_time_of_next_unit() {
    const KINDS: [&str; 6] = [
        "",
        "algorithm: gcra",
        "algorithm: sliding-window",
        "algorithm: sub-window",
        "algorithm: sub-window, strict: true",
        "algorithm: sliding-log",
    ];
    let of = |limit: u32, kind: &str| {
        format!(
            "{{ domain: d, tollgate: {{}}, descriptors: [ \
             {{ key: a, rate_limit: {{ unit: hour, requests_per_unit: {limit}, {kind} }} }} ] }}"
        )
    };
    // Three requests: for the last unit, a peek after it, and a request that costs more than the limit.
    for (kind, asked) in KINDS.into_iter().flat_map(|kind| [1, 0, 4].map(|asked| (kind, asked))) {
        for (charging, before) in
            [None, Some(Charging::CountFirst)].into_iter().flat_map(|it| [(it, 3), (it, 9)])
        {
            let (clock, rules) = rules(START, charging, &of(before, kind));
            let advance = |seconds| clock.advance(Duration::from_secs(seconds));
            let ask = |cost| rules.check_n("d", &[Descriptor::new(&[("a", "x")])], cost);
            let left = || ask(0).remaining(0);
            for _ in 0..2 {
                assert!(ask(1).is_allowed());
                advance(100);
            }
            rules.replace([config(&of(3, kind))]).unwrap();
            assert!(asked == 1 || ask(1).is_allowed());
            let answer = ask(asked);
            let decision = *answer.limits().next().unwrap().decision().unwrap();
            let told = Policy::new("p", &Quota::per_hour(3), decision).available();
            assert_eq!(told.units, 0, "{kind}");
            advance(told.seconds - 1);
            assert_eq!(left(), 0, "{kind}: {before} before, {asked} asked, {told:?}");
            advance(1);
            assert!(left() > 0, "{kind}: {before} before, {asked} asked, {told:?}");
        }
    }
}
