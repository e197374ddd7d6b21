//! `hold` and `in_progress` in files: forms that are read, and forms that are errors.

use std::time::Duration;

use tollgate_config::{Amount, Config};

use super::support::{good, limit, problem, rejected_limits};

const TEN: &str = "unit: minute, requests_per_unit: 10";

/// Returns the life of a rule's holds in seconds, the most units, and its own units.
fn hold_of(config: &Config) -> (u64, u64, Option<u64>) {
    let hold = config.rules()[0].hold.as_ref().expect("the rule has holds");
    (hold.life.as_secs(), hold.most, hold.units)
}

#[test]
fn holds_are_read() {
    for (text, expected) in [
        ("hold: {}", (60, 10, None)),
        ("hold: { life: 2m, most: 50%, units: 3 }", (120, 5, Some(3))),
        ("hold: { most: 19% }", (60, 1, None)),
        ("hold: { units: 10 }", (60, 10, Some(10))),
        ("algorithm: gcra, burst: 30, hold: { most: 50% }", (60, 15, None)),
        ("algorithm: sliding-window, store: keyed, hold: {}", (60, 10, None)),
    ] {
        assert_eq!(hold_of(&good(&limit(&format!("{TEN}, {text}")))), expected, "{text}");
    }
    assert!(good(&limit(TEN)).rules()[0].hold.is_none());
}

#[test]
fn requests_in_progress_are_read() {
    let read = |text: &str| match good(&limit(text)).rules()[0].limit {
        Amount::InProgress { most, life } => (most, life),
        ref other => panic!("{other:?}"),
    };
    assert_eq!(read("in_progress: 16"), (16, Duration::from_secs(600)));
    let named = read("in_progress: 1, name: exports, headers: false, hold: { life: 1h }");
    assert_eq!(named, (1, Duration::from_secs(3_600)));
    let both = limit("in_progress: 4")
        .replace("rate_limit: {", "rate_limits: [ { unit: day, requests_per_unit: 9 }, {");
    let both = good(&format!("{} ]", both.trim_end()));
    assert_eq!(both.rules().len(), 2);
    assert!(both.rules()[1].identity.contains("in-progress"));
}

#[test]
fn bad_holds_are_refused() {
    let rows = r#"
        hold: 60s => rate_limit.hold: expected a map ... write a map with the keys life, most, units
        hold: { life: 0s } => rate_limit.hold.life: expected a time above 0
        hold: { most: 9% } => less than one of 10 units could be held ... raise it
        hold: { most: 101% } => expected a percentage
        hold: { units: 11 } => 11 is more than 10
        hold: { units: 6, most: 50% } => 6 is more than 5
        hold: { units: 0 } => 0 is less than 1
        hold: { lives: 60s } => hold has no key "lives" ... did you mean life?
        hold: {}, store: sketch => a sketch cannot give units back ... store: compact or keyed
        hold: {}, algorithm: sliding-log => a log cannot give units back
        hold: {}, store: redis => a limit that processes share has no holds ... tollgate_redis::HoldingLimiter
    "#;
    rejected_limits(&format!("{TEN}, "), rows);
    let rows = r#"
        unit: minute, requests_per_unit: 0, hold: {} => the limit is 0, so there is nothing to hold
        unlimited: true, hold: {} => hold cannot be used with unlimited: true
        in_progress: 0 => 0 is less than 1
        in_progress: 4, unit: day => unit cannot be used with in_progress ... a second limit in rate_limits
        in_progress: 4, requests_per_unit: 4 => requests_per_unit cannot be used with in_progress
        in_progress: 4, algorithm: gcra => algorithm cannot be used with in_progress
        in_progress: 4, store: redis => store cannot be used with in_progress
        in_progress: 4, hold: { most: 50% } => rate_limit.hold.most: most cannot be used with in_progress
        in_progress: 4, unlimited: true => in_progress cannot be used with unlimited: true
    "#;
    rejected_limits("", rows);
}

#[test]
fn classes_share_no_holds() {
    for text in [&format!("{TEN}, hold: {{}}"), "in_progress: 4"] {
        let classes = limit(text).replace("- key: a\n", "- key: a\n    classes: { x: 100%, y: 50% }\n");
        problem(&classes, "descriptors[0].classes: classes cannot share a limit on units that requests hold");
    }
}

/// `store: redis` as the default of a file does not silently become a limit of each process.
#[test]
fn default_store_redis_and_in_progress_are_not_combined_silently() {
    let text = "{ domain: d, tollgate: { store: redis }, descriptors: [ { key: user, rate_limit: { in_progress: 4 } } ] }";
    problem(text, "in_progress");
}

#[test]
fn files_that_count_first_have_no_holds() {
    for text in [&format!("{TEN}, hold: {{}}"), "in_progress: 4"] {
        let file = limit(text).replace("tollgate: {}", "tollgate: { charging: count-first }");
        problem(&file, "cannot be used with charging: count-first ... use charging: all-or-nothing");
    }
}
