//! Calendars: the periods of a dozen zones, compared with a search through jiff's dates; daylight saving; short months;
//! and the decisions of windows that follow a calendar, compared with a plain model.

use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use std::time::Duration;
use tollgate::calendar::{CalendarPeriod, Weekday};
use tollgate::{
    AnyLimiter, Calendar, CalendarWindow, Carry, Decision, FixedWindow, Limit, LimitKind, ManualClock,
    Outcome, Quota, RateLimiter, StoreKind, Timestamp, check_all,
};
use tollgate_testing::operations::config;
use tollgate_testing::{HOUR, SEC, build};

const ZONES: [&str; 15] = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Asia/Kathmandu",
    "Asia/Beirut",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
];
/// 2100-01-01 and 2106-02-07 06:28:15, in UTC.
const YEAR_2100: u64 = 4_102_444_800;
const LAST: u64 = u32::MAX as u64;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

fn calendar(zone: &str, period: CalendarPeriod, hour: u8) -> Calendar {
    Calendar::at_hour(zone, period, hour).unwrap()
}

/// The month that began on 2026-11-15 at 06:00 in Berlin, in seconds.
const START: u64 = 1_794_718_800;

fn months() -> Calendar {
    calendar("Europe/Berlin", CalendarPeriod::Month { day: 15 }, 6)
}

/// The periods under test, with their hours. A process may have 1,000 calendars.
const PERIODS: [(CalendarPeriod, u8); 13] = [
    (CalendarPeriod::Day, 0),
    (CalendarPeriod::Day, 2),
    (CalendarPeriod::Week { from: Weekday::Monday }, 0),
    (CalendarPeriod::Week { from: Weekday::Sunday }, 2),
    (CalendarPeriod::Month { day: 1 }, 0),
    (CalendarPeriod::Month { day: 15 }, 6),
    (CalendarPeriod::Month { day: 31 }, 2),
    (CalendarPeriod::Year { month: 1, day: 1 }, 0),
    (CalendarPeriod::Year { month: 2, day: 29 }, 0),
    (CalendarPeriod::Year { month: 10, day: 6 }, 23),
    (CalendarPeriod::Day, 1),
    (CalendarPeriod::Day, 2),
    (CalendarPeriod::Month { day: 31 }, 23),
];

/// The dates on which periods begin, from before the date to after it.
fn dates_around(period: CalendarPeriod, date: Date) -> Vec<Date> {
    let clamped = |year: i16, month: i8, day: u8| {
        let first = Date::new(year, month, 1).unwrap();
        Date::new(year, month, i8::try_from(day).unwrap()).unwrap_or(first.last_of_month())
    };
    match period {
        CalendarPeriod::Day => (-4..=4).map(|days: i64| date.saturating_add(days.days())).collect(),
        CalendarPeriod::Week { from } => {
            let weekday = match from {
                Weekday::Monday => jiff::civil::Weekday::Monday,
                _ => jiff::civil::Weekday::Sunday,
            };
            let near = (-16..=16).map(|days: i64| date.saturating_add(days.days()));
            near.filter(|date| date.weekday() == weekday).collect()
        }
        CalendarPeriod::Month { day } => {
            let first = date.first_of_month();
            let near = (-2..=2).map(|months: i64| first.saturating_add(months.months()));
            near.map(|first| clamped(first.year(), first.month(), day)).collect()
        }
        CalendarPeriod::Year { month, day } => {
            (date.year() - 2..=date.year() + 2).map(|year| clamped(year, month.cast_signed(), day)).collect()
        }
    }
}

/// The period that contains a second, by a search.
fn searched(zone: &TimeZone, period: CalendarPeriod, hour: u8, second: u64) -> (i64, i64) {
    let second = i64::try_from(second).unwrap();
    let date = zone.to_datetime(jiff::Timestamp::from_second(second).unwrap()).date();
    let start = |date: Date| -> i64 {
        let local: DateTime = date.at(hour.cast_signed(), 0, 0, 0);
        let moved = zone.to_ambiguous_timestamp(local).compatible().unwrap().as_second();
        // In a gap, jiff moves a time to the other side. The period begins at the first second there.
        let shows = |second: i64| zone.to_datetime(jiff::Timestamp::from_second(second).unwrap()) >= local;
        match zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Gap { .. } => {
                (0..).map(|back| moved - back).find(|second| !shows(second - 1)).unwrap()
            }
            _ => moved,
        }
    };
    let starts: Vec<i64> = dates_around(period, date).into_iter().map(start).collect();
    let before = starts.iter().copied().filter(|&start| start <= second).max().unwrap();
    let after = starts.iter().copied().filter(|&start| start > second).min().unwrap();
    (before.max(0), after)
}

/// Random times from 1970 to 2100. The times include the edges of periods, and each period's second before and after.
// G125
#[test]
fn calendar_agrees_with_search() {
    let cases = (select(ZONES.to_vec()), select(PERIODS.to_vec()), 0..YEAR_2100, -1_i64..=1);
    TestRunner::new(config(4_000))
        .run(&cases, |(name, (period, hour), second, beside)| {
            let zone = TimeZoneDatabase::bundled().get(name).unwrap();
            let calendar = Calendar::at_hour(name, period, hour).unwrap();
            let edge = calendar.period_at(at(second)).end.as_nanos() / SEC;
            for second in [second, edge.saturating_add_signed(beside)] {
                let got = calendar.period_at(at(second));
                let (start, end) = searched(&zone, period, hour, second);
                let expected = at(start.cast_unsigned())..at(end.cast_unsigned());
                prop_assert_eq!(got, expected, "{} at {}", calendar, second);
            }
            Ok(())
        })
        .unwrap();
}

/// Days whose length is not 24 hours, or whose midnight does not exist. The figures are from Python's `zoneinfo`.
// G125
#[test]
fn days_have_their_true_length() {
    for (zone, day, start, minutes) in [
        ("Europe/Berlin", "2026-03-29", 1_774_738_800, 1_380),
        ("Europe/Berlin", "2026-10-25", 1_792_879_200, 1_500),
        ("Europe/Dublin", "2026-03-29", 1_774_742_400, 1_380),
        ("America/New_York", "2026-03-08", 1_772_946_000, 1_380),
        ("America/New_York", "2026-11-01", 1_793_505_600, 1_500),
        ("America/Sao_Paulo", "2017-10-15, from 01:00", 1_508_036_400, 1_380),
        ("America/Sao_Paulo", "2018-02-17", 1_518_832_800, 1_500),
        ("America/St_Johns", "2006-04-02, from 00:00", 1_143_948_600, 1_380),
        ("America/Caracas", "2016-05-01", 1_462_077_000, 1_410),
        ("Africa/Casablanca", "2024-03-10", 1_710_025_200, 1_500),
        ("Africa/Cairo", "2024-04-26, from 01:00", 1_714_082_400, 1_380),
        ("Asia/Beirut", "2024-03-31, from 01:00", 1_711_836_000, 1_380),
        ("Asia/Kathmandu", "1986-01-01, a new offset", 504_901_800, 1_425),
        ("Asia/Kolkata", "2026-05-01", 1_777_573_800, 1_440),
        ("Australia/Lord_Howe", "2026-04-05", 1_775_307_600, 1_470),
        ("Australia/Lord_Howe", "2026-10-04", 1_791_034_200, 1_410),
        ("Antarctica/Troll", "2024-03-31", 1_711_843_200, 1_320),
        ("Pacific/Apia", "2011-12-29, and 12-31 is the next day", 1_325_152_800, 1_440),
        ("Pacific/Chatham", "2026-09-27", 1_790_421_300, 1_380),
    ] {
        let days = calendar(zone, CalendarPeriod::Day, 0);
        let expected = at(start)..at(start + minutes * 60);
        for inside in [start * SEC, start * SEC + HOUR, (start + minutes * 60) * SEC - 1] {
            assert_eq!(days.period_at(Timestamp::from_nanos(inside)), expected, "{zone} {day}");
        }
        assert_eq!(days.period_at(at(start - 1)).end, at(start), "{zone} {day}");
    }
}

/// An hour inside a gap that begins before it: the period begins at the end of the gap, and not later by the part of the gap
/// before the hour.
// G125
#[test]
fn period_begins_at_the_end_of_a_gap() {
    let last = CalendarPeriod::Month { day: 31 };
    for (zone, period, hour, gap, end) in [
        ("Antarctica/Troll", CalendarPeriod::Day, 2, "2024-03-31, 01:00 to 03:00", 1_711_846_800),
        ("America/St_Johns", CalendarPeriod::Day, 1, "2006-04-02, 00:01 to 01:01", 1_143_948_660),
        ("Pacific/Kiritimati", last, 23, "all of 1994-12-31", 788_868_000),
    ] {
        let calendar = calendar(zone, period, hour);
        assert_eq!(calendar.period_at(at(end)).start, at(end), "{zone}: {gap}");
        assert_eq!(calendar.period_at(Timestamp::from_nanos(end * SEC - 1)).end, at(end), "{zone}: {gap}");
    }
}

/// A start on the 31st is the last day of a shorter month, and the next month has its 31st again.
// G125
#[test]
fn start_is_clamped_in_short_months() {
    let months = calendar("Europe/Berlin", CalendarPeriod::Month { day: 31 }, 6);
    let starts = [1_706_677_200, 1_709_182_800, 1_711_857_600, 1_714_449_600]; // 01-31, 02-29, 03-31, 04-30 of 2024
    for pair in starts.windows(2) {
        assert_eq!(months.period_at(at(pair[0])), at(pair[0])..at(pair[1]));
        assert_eq!(months.period_at(at(pair[1] - 1)), at(pair[0])..at(pair[1]));
    }
    assert_eq!(months.period_at(at(1_677_560_400)).start, at(1_677_560_400), "2023-02-28");
    let years = calendar("UTC", CalendarPeriod::Year { month: 2, day: 29 }, 0);
    assert_eq!(
        years.period_at(at(1_700_000_000)),
        at(1_677_542_400)..at(1_709_164_800),
        "2023-02-28, 2024-02-29"
    );
}

/// The table begins at the epoch, and its last period never ends: used units do not return.
// G126
#[test]
fn last_period_never_ends() {
    for (period, zone) in [(CalendarPeriod::Day, "UTC"), (CalendarPeriod::Month { day: 15 }, "Europe/Berlin")]
    {
        let calendar = calendar(zone, period, 0);
        assert_eq!(calendar.period_at(Timestamp::ZERO).start, Timestamp::ZERO);
        let last = calendar.period_at(Timestamp::MAX);
        assert!((at(LAST - 31 * 86_400)..=at(LAST)).contains(&last.start), "{last:?}");
        assert_eq!(last.end, Timestamp::MAX);
        let limiter = build(CalendarWindow::new(calendar, 2), &ManualClock::default()).direct();
        assert!(limiter.at(Timestamp::ZERO).check_n(2).is_allowed());
        assert!(limiter.at(last.start).check_n(2).is_allowed());
        let later = at(2 * LAST);
        let denied = limiter.at(later).check();
        assert_eq!(denied.retry_after(), Some(Timestamp::MAX.duration_since(later)));
        let end = limiter.at(Timestamp::MAX).check();
        assert!(end.is_denied());
        assert_eq!(end.retry_after(), Some(Duration::ZERO));
    }
}

/// A plain model of one key: the period of the newest admission, and the units used in it.
#[derive(Debug, Default)]
struct Plain {
    end: u64,
    used: u64,
}

/// Random checks, forced charges and refunds, with times that step back: each figure agrees with the model's.
// G125, G126
#[test]
fn calendar_window_agrees_with_plain_model() {
    let step = prop_oneof![
        3 => (0..2_592_000 * SEC).prop_map(u64::cast_signed),
        2 => -86_400_000_000_000_i64..=1_000_000_000,
        1 => Just(0)
    ];
    let op = (step, 0_u64..=7, 0_u8..4);
    let case =
        (select(ZONES.to_vec()), select(PERIODS.to_vec()), 0..YEAR_2100, prop::collection::vec(op, 1..40));
    TestRunner::new(config(400))
        .run(&case, |(zone, (period, hour), start, ops)| {
            let calendar = calendar(zone, period, hour);
            let limiter = build(CalendarWindow::new(calendar, 5), &ManualClock::default());
            let limiter = limiter.direct();
            let (mut model, mut now) = (Plain::default(), start * SEC);
            let mut last: Option<(Decision, u64)> = None;
            for (step, cost, verb) in ops {
                now = now.saturating_add_signed(step);
                let time = Timestamp::from_nanos(now);
                let end = calendar.period_at(time).end.as_nanos();
                let (end, used) = if model.end > end {
                    (model.end, model.used)
                } else {
                    (end, if model.end == end { model.used } else { 0 })
                };
                if let (3, Some((charge, of_end))) = (verb, &last) {
                    let expected = if *of_end == end { charge.cost().min(used) } else { 0 };
                    prop_assert_eq!(limiter.at(time).refund(charge), expected);
                    if expected > 0 {
                        model = Plain { end, used: used - expected };
                    }
                    last = None;
                    continue;
                }
                let forced = verb == 2;
                let decision = if forced {
                    limiter.at(time).charge_unchecked(cost)
                } else {
                    limiter.at(time).check_n(cost)
                };
                let outcome = match cost {
                    _ if forced => Outcome::Allowed,
                    6.. => Outcome::Never,
                    0 => Outcome::Allowed,
                    cost if used + cost <= 5 => Outcome::Allowed,
                    _ => Outcome::Denied,
                };
                prop_assert_eq!(decision.outcome(), outcome, "{} at {}", calendar, now);
                let after = if outcome == Outcome::Allowed { used + cost } else { used };
                if outcome == Outcome::Allowed && cost > 0 {
                    model = Plain { end, used: after };
                    last = Some((decision, end));
                }
                prop_assert_eq!(decision.remaining(), 5_u64.saturating_sub(after));
                let reset = if after > 0 { Duration::from_nanos(end - now) } else { Duration::ZERO };
                prop_assert_eq!(decision.reset_after(), reset);
                let retry = match outcome {
                    Outcome::Allowed => Some(Duration::ZERO),
                    Outcome::Denied => Some(Duration::from_nanos(end - now)),
                    Outcome::Never => None,
                };
                prop_assert_eq!(decision.retry_after(), retry);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn calendars_work_in_joint_checks() {
    let now = at(START + 5);
    let monthly = build(CalendarWindow::new(months(), 3), &ManualClock::new(now)).direct();
    let hourly = build(FixedWindow::new(Quota::per_hour(2)), &ManualClock::new(now)).direct();
    assert!(check_all((monthly.on(), hourly.on())).is_allowed());
    assert!(check_all((monthly.on(), hourly.on())).is_allowed());
    assert!(check_all((monthly.on(), hourly.on())).is_denied());
    assert_eq!(monthly.peek().remaining(), 1, "a joint denial charges nothing");

    let keyed = build(CalendarWindow::new(months(), 10), &ManualClock::new(now));
    let keyed = keyed.keyed::<u64>().adjustable();
    keyed.set_quota(&months().quota(8).unwrap(), Carry::Used).unwrap();
    let error = keyed.set_quota(&Quota::per_minute(8), Carry::Used).unwrap_err();
    assert!(error.to_string().contains("Calendar::quota"), "{error}");
}

/// A new calendar takes over the used units, as a changed window does.
#[test]
fn changed_calendar_keeps_what_was_used() {
    let limit = |calendar, most| Limit::from(CalendarWindow::new(calendar, most));
    for store in [StoreKind::Direct, StoreKind::Keyed] {
        let clock = ManualClock::new(at(START + 5));
        let limiter = RateLimiter::any(limit(months(), 10)).clock(clock.clone()).build(store).unwrap();
        assert!(limiter.check_n("a", 7).is_allowed());
        let others = calendar("Europe/Berlin", CalendarPeriod::Month { day: 20 }, 0);
        limiter.set_limit(limit(others, 10), Carry::Used).unwrap();
        assert_eq!(limiter.peek("a").remaining(), 3);
        clock.set(others.period_at(at(START + 5)).end);
        assert_eq!(limiter.peek("a").remaining(), 10);
    }
}

#[test]
fn calendar_is_one_limit_kind() {
    let limit = Limit::from(CalendarWindow::new(months(), 1_000));
    assert_eq!(limit.kind(), LimitKind::CalendarWindow { calendar: months() });
    assert_eq!(limit.quota(), months().quota(1_000).unwrap());
    assert_eq!(
        (limit.most(), limit.kind().name(), limit.kind().has_burst()),
        (1_000, "calendar-window", false)
    );
    let text = limit.to_string();
    assert_eq!(text, "calendar-window(month from day 15 at 06:00 in Europe/Berlin) 1000");
    let error = text.parse::<Limit>().unwrap_err();
    assert!(error.to_string().contains("a calendar has no text"), "{error}");
    for (store, fits) in [
        (StoreKind::Direct, true),
        (StoreKind::Keyed, true),
        (StoreKind::Compact, false),
        (StoreKind::Sketch, false),
    ] {
        assert_eq!(store.supports(limit.kind()), fits);
        let built: Result<AnyLimiter, _> = RateLimiter::any(limit).build(store);
        assert_eq!(built.is_ok(), fits, "{store:?}");
    }
    assert_ne!(months(), calendar("Europe/Berlin", CalendarPeriod::Month { day: 15 }, 5));
    let error = Limit::try_new(limit.kind(), Quota::per_day(5)).unwrap_err();
    assert!(error.to_string().contains("Calendar::quota"), "{error}");
}

#[test]
fn wrong_calendars_are_refused() {
    let said = |zone: &str, period, hour| Calendar::at_hour(zone, period, hour).unwrap_err().to_string();
    for (zone, meant) in [
        ("Europe/Berln", "did you mean Europe/Berlin"),
        ("berlin", "did you mean Europe/Berlin"),
        ("new york", "America/New_York"),
        ("CEST", "did you mean CET"),
        ("", "such as Europe/Berlin or UTC"),
        ("+02:00", "such as Europe/Berlin or UTC"),
        ("Etc/Unknown", "no time zone"),
    ] {
        let error = said(zone, CalendarPeriod::Day, 0);
        assert!(
            error.contains(&format!("no time zone is called {zone:?}")) && error.contains(meant),
            "{error}"
        );
    }
    let error = said("UTC", CalendarPeriod::Day, 24);
    assert_eq!(error, "the hour 24 is more than 23; use a whole number from 0 to 23");
    assert!(said("UTC", CalendarPeriod::Month { day: 32 }, 0).contains("the day 32 is more than 31"));
    assert!(said("UTC", CalendarPeriod::Month { day: 0 }, 0).contains("the day 0 is less than 1"));
    assert!(said("UTC", CalendarPeriod::Year { month: 13, day: 1 }, 0).contains("the month 13"));
    assert!(
        said("UTC", CalendarPeriod::Year { month: 2, day: 30 }, 0).contains("the day 30 is more than 29")
    );
    assert!(CalendarWindow::try_new(months(), 0).is_err());
    let error = CalendarWindow::try_new(months(), u64::MAX).unwrap_err();
    assert!(error.to_string().contains("9007199254740990"), "{error}");
}
