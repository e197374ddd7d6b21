//! The keys of calendars: `period`, `time_zone` and `starts`.

use tollgate::LimitKind;
use tollgate::calendar::{CalendarPeriod, Weekday};
use tollgate::{Calendar, Limit};
use tollgate_config::Amount;

use super::support::{good, limit, problem, rejected_limits};

#[track_caller]
fn calendar_of(fields: &str) -> (Calendar, Limit) {
    let config = good(&limit(fields));
    let Amount::Limited { limit, .. } = config.rules()[0].limit else { panic!("{config:?}") };
    let LimitKind::CalendarWindow { calendar } = limit.kind() else { panic!("{limit}") };
    (calendar, limit)
}

#[test]
fn calendars_are_read() {
    let berlin = "Europe/Berlin";
    let month = |day| CalendarPeriod::Month { day };
    let week = |from| CalendarPeriod::Week { from };
    let year = |month, day| CalendarPeriod::Year { month, day };
    for (fields, zone, period, hour) in [
        ("period: month", "UTC", month(1), 0),
        ("period: day, time_zone: Europe/Berlin", berlin, CalendarPeriod::Day, 0),
        ("period: day, time_zone: europe/berlin, starts: { hour: 23 }", berlin, CalendarPeriod::Day, 23),
        ("period: month, time_zone: Europe/Berlin, starts: { day: 15, hour: 6 }", berlin, month(15), 6),
        ("period: month, starts: {}", "UTC", month(1), 0),
        ("period: week", "UTC", week(Weekday::Monday), 0),
        ("period: week, starts: { weekday: sunday }", "UTC", week(Weekday::Sunday), 0),
        ("period: year", "UTC", year(1, 1), 0),
        ("period: year, starts: { month: 4, day: 6 }", "UTC", year(4, 6), 0),
        ("period: year, starts: { month: 2, day: 29 }", "UTC", year(2, 29), 0),
        ("period: month, algorithm: fixed-window", "UTC", month(1), 0),
    ] {
        let (calendar, limit) = calendar_of(&format!("{fields}, requests_per_unit: 1000"));
        assert_eq!(calendar, Calendar::at_hour(zone, period, hour).unwrap(), "{fields}");
        assert_eq!(limit.most(), 1_000);
    }
}

/// The file's default algorithm does not apply to a calendar. Envoy's month stays 30 days.
#[test]
fn calendar_is_a_choice_of_its_own() {
    let text = "domain: d\ntollgate: { algorithm: gcra }\ndescriptors:\n  - key: a\n    rate_limits:\n      - { period: month, requests_per_unit: 5 }\n      - { unit: month, requests_per_unit: 5 }\n";
    let config = good(text);
    let kinds: Vec<LimitKind> = config
        .rules()
        .iter()
        .map(|rule| match &rule.limit {
            Amount::Limited { limit, .. } => limit.kind(),
            other => panic!("{other:?}"),
        })
        .collect();
    let calendar = Calendar::new("UTC", CalendarPeriod::Month { day: 1 }).unwrap();
    assert_eq!(kinds, [LimitKind::CalendarWindow { calendar }, LimitKind::Gcra]);
    assert_ne!(config.rules()[0].identity, config.rules()[1].identity);
}

#[test]
fn wrong_calendars_are_refused() {
    let rows = r#"
        period: fortnight => rate_limit.period: no period is called "fortnight"; use day, week, month or year
        period: hour => no period is called "hour"
        period: day, time_zone: Europe/Berln
            => 5: ... rate_limit.time_zone: no time zone is called "Europe/Berln" ... did you mean Europe/Berlin
        period: day, time_zone: '' => no time zone is called "" ... such as Europe/Berlin or UTC
        period: month, starts: { day: 32 } => rate_limit.starts.day: 32 is more than 31
        period: month, starts: { day: 0 } => rate_limit.starts.day: 0 is less than 1
        period: month, starts: { hour: 24 } => rate_limit.starts.hour: 24 is more than 23
        period: year, starts: { month: 13 } => rate_limit.starts.month: 13 is more than 12
        period: year, starts: { month: 2, day: 30 }
            => rate_limit.starts: the day 30 is more than 29; use a whole number from 1 to 29
        period: day, starts: { day: 3 }
            => rate_limit.starts.day: day does not apply to the period day; remove it; this period has hour
        period: month, starts: { weekday: monday }
            => starts.weekday: weekday does not apply to the period month ... this period has day or hour
        period: week, starts: { weekday: funday }
            => rate_limit.starts.weekday: no weekday is called "funday" ... use monday, tuesday
        period: week, starts: { hours: 3 } => starts has no key "hours"; did you mean hour?
        period: week, starts: monday => rate_limit.starts: expected a map, found "monday"
        unit: month, period: month => rate_limit.unit: unit cannot be used with period ... a unit of month is 30 days
        period: month, every: 3 => rate_limit.every: every cannot be used with period
        unit: month, starts: { day: 15 }
            => rate_limit.starts: starts applies only to a period of the calendar ... write period: month
        unit: month, time_zone: UTC => rate_limit.time_zone: time_zone applies only to a period
        period: month, algorithm: gcra
            => rate_limit.algorithm: gcra cannot count periods of the calendar ... use algorithm: fixed-window
        period: month, burst: 5 => calendar-window does not use burst
        period: month, store: compact => the compact store does not support calendar-window; use store: keyed
        period: month, store: sketch => the sketch store does not support calendar-window
        period: month, store: redis, mode: write-back => the redis store does not support calendar-window ... or mode: atomic
        period: month, store: redis, mode: lease => the redis store does not support calendar-window ... or mode: atomic
    "#;
    rejected_limits("requests_per_unit: 1, ", rows);
    let rows = r#"
        unlimited: true, period: month => period cannot be used with unlimited: true
        period: month, requests_per_unit: 0
            => rate_limit.period: a limit of 0 denies all requests ... write unit instead of period
    "#;
    rejected_limits("", rows);
    let plain =
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { period: month, requests_per_unit: 1 } }\n";
    let said = r#"
            the unit is missing
            it is an extra key of rate_limit ... tollgate: {}
    "#;
    problem(plain, said);
}
