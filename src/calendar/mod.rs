//! Calendars: the months, years, weeks and days of a time zone, as the periods of a limit.
//!
//! ```
//! use tollgate::calendar::CalendarPeriod;
//! use tollgate::{Calendar, CalendarWindow, RateLimiter, Timestamp};
//!
//! let months = Calendar::at_hour("Europe/Berlin", CalendarPeriod::Month { day: 15 }, 6)?;
//! assert_eq!(months.to_string(), "month from day 15 at 06:00 in Europe/Berlin");
//!
//! let limiter = RateLimiter::builder(CalendarWindow::new(months, 1_000)).keyed::<String>();
//! assert!(limiter.check("customer 17").is_allowed());
//! # Ok::<(), tollgate::calendar::CalendarError>(())
//! ```
//!
//! A table with the beginning of each period is computed when a calendar is first built, and stays until the process ends.
//! [`docs/calendars.md`](https://docs.rs/crate/tollgate/latest/source/docs/calendars.md)
//! explains short months, daylight saving, and changes of the rules.

mod error;

use std::collections::BTreeMap;
use std::fmt;
use std::iter::successors;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

pub use self::error::CalendarError;
use self::error::NoCalendar;
use crate::algorithm::{Calendar, CalendarTable};

/// The most calendars of a process: tables are never freed.
const MOST: usize = 1_000;

/// The tables of all calendars, by their text.
static TABLES: Mutex<BTreeMap<String, &'static CalendarTable>> = Mutex::new(BTreeMap::new());

/// The length of a calendar's periods, and the day on which they begin.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum CalendarPeriod {
    /// Days of the zone. They have 23 or 25 hours if daylight saving begins or ends.
    Day,
    /// Weeks that begin on this day.
    Week {
        /// The first day.
        from: Weekday,
    },
    /// Months that begin on this day.
    Month {
        /// The first day, from 1 to 31. In a month without this day, the period begins on the month's last day.
        day: u8,
    },
    /// Years that begin on this day.
    Year {
        /// The month of the first day, from 1 to 12.
        month: u8,
        /// The first day, from 1. February 29 is February 28 in most years.
        day: u8,
    },
}

/// A day of the week.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Weekday {
    /// The days with their names, from Monday.
    #[doc(hidden)]
    pub const ALL: [(&'static str, Self); 7] = [
        ("monday", Self::Monday),
        ("tuesday", Self::Tuesday),
        ("wednesday", Self::Wednesday),
        ("thursday", Self::Thursday),
        ("friday", Self::Friday),
        ("saturday", Self::Saturday),
        ("sunday", Self::Sunday),
    ];
}

impl Calendar {
    /// Creates a calendar in a time zone. Its periods begin at midnight.
    ///
    /// # Errors
    /// Returns an error if no zone has this name, if no month has the period's day, or if the process has 1,000 other
    /// calendars.
    ///
    /// # Examples
    /// ```
    /// use tollgate::calendar::CalendarPeriod;
    /// use tollgate::{Calendar, Timestamp};
    ///
    /// let days = Calendar::new("Europe/Berlin", CalendarPeriod::Day)?;
    /// let noon = Timestamp::from_secs(1_774_778_400); // 2026-03-29, when daylight saving begins
    /// let day = days.period_at(noon);
    /// assert_eq!(day.end.duration_since(day.start).as_secs(), 23 * 3_600);
    ///
    /// let error = Calendar::new("Europe/Berln", CalendarPeriod::Day).unwrap_err();
    /// assert!(error.to_string().contains("did you mean Europe/Berlin"));
    /// # Ok::<(), tollgate::calendar::CalendarError>(())
    /// ```
    /// # Complexity
    /// The first calendar of a kind computes its table: about 50,000 days, or 1,600 months. Others find it.
    #[cfg_attr(docsrs, doc(cfg(feature = "calendar")))]
    pub fn new(zone: &str, period: CalendarPeriod) -> Result<Self, CalendarError> {
        Self::at_hour(zone, period, 0)
    }

    /// Creates a calendar whose periods begin at this hour of the day, from 0 to 23. If a day does not have this hour,
    /// its period begins when the clocks have gone forward. If it has the hour twice, the first one counts.
    ///
    /// # Errors
    /// The same as for [`Calendar::new`], or if the hour is above 23.
    #[cfg_attr(docsrs, doc(cfg(feature = "calendar")))]
    pub fn at_hour(zone: &str, period: CalendarPeriod, hour: u8) -> Result<Self, CalendarError> {
        period.check()?;
        within("hour", hour, 0, 23)?;
        let found = find(zone)?;
        let name = found.iana_name().unwrap_or(zone);
        let text = match hour {
            0 => format!("{period} in {name}"),
            hour => format!("{period} at {hour:02}:00 in {name}"),
        };
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(&text) {
            return Ok(Self::of(table));
        }
        if tables.len() >= MOST {
            return Err(NoCalendar::TooMany.into());
        }
        let table = CalendarTable::new(text.as_str().into(), period.starts(hour, &found));
        let table: &'static _ = Box::leak(Box::new(table));
        tables.insert(text, table);
        Ok(Self::of(table))
    }
}

impl CalendarPeriod {
    fn check(self) -> Result<(), CalendarError> {
        match self {
            Self::Day | Self::Week { .. } => Ok(()),
            Self::Month { day } => within("day", day, 1, 31),
            Self::Year { month, day } => {
                within("month", month, 1, 12)?;
                // A leap year.
                within("day", day, 1, clamped(2_024, month, 31).day().unsigned_abs())
            }
        }
    }

    /// Returns the seconds at which periods begin, in ascending order. Times before the epoch count as the epoch.
    fn starts(self, hour: u8, zone: &TimeZone) -> impl Iterator<Item = u32> {
        let second = move |date: Date| {
            let start = reached(zone, date.at(hour.cast_signed(), 0, 0, 0))?;
            u32::try_from(start.as_second().max(0)).ok()
        };
        self.dates().map_while(second)
    }

    /// Returns the dates on which periods begin, from a date before the epoch in every zone.
    fn dates(self) -> Box<dyn Iterator<Item = Date>> {
        const FIRST: Date = Date::constant(1969, 12, 30);
        const YEARS: std::ops::Range<i16> = 1969..2_108;
        let days = successors(Some(FIRST), |date| date.tomorrow().ok());
        match self {
            Self::Day => Box::new(days),
            Self::Week { from } => {
                let place = from as i8;
                Box::new(days.filter(move |date| date.weekday().to_monday_zero_offset() == place))
            }
            Self::Month { day } => {
                Box::new(YEARS.flat_map(move |year| (1..=12).map(move |month| clamped(year, month, day))))
            }
            Self::Year { month, day } => Box::new(YEARS.map(move |year| clamped(year, month, day))),
        }
    }
}

impl fmt::Display for CalendarPeriod {
    /// Writes the period, and its start unless that is the usual one: `month from day 15`, `week from sunday`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Day => f.write_str("day"),
            Self::Week { from: Weekday::Monday } => f.write_str("week"),
            Self::Week { from } => write!(f, "week from {}", Weekday::ALL[from as usize].0),
            Self::Month { day: 1 } => f.write_str("month"),
            Self::Month { day } => write!(f, "month from day {day}"),
            Self::Year { month: 1, day: 1 } => f.write_str("year"),
            Self::Year { month, day } => write!(f, "year from {month:02}-{day:02}"),
        }
    }
}

/// Returns the first time at which the clocks of a zone show `local` or a later time. Of two equal times, that is the
/// earlier one. For a time inside a gap, it is the end of the gap. (jiff's own choice moves such a time by the length of
/// the gap, so it is late by the part of the gap before `local`.)
fn reached(zone: &TimeZone, local: DateTime) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    if let AmbiguousOffset::Gap { after, .. } = ambiguous.offset() {
        // With the offset after the gap, the time is before the gap.
        let before = after.to_timestamp(local).ok()?;
        return zone.following(before).next().map(|end| end.timestamp());
    }
    ambiguous.compatible().ok()
}

/// Returns a date, or the last date of its month.
fn clamped(year: i16, month: u8, day: u8) -> Date {
    let first = Date::constant(year, month.cast_signed(), 1);
    let last = first.last_of_month();
    Date::new(year, month.cast_signed(), day.cast_signed()).unwrap_or(last)
}

fn within(what: &'static str, got: u8, least: u8, most: u8) -> Result<(), CalendarError> {
    if (least..=most).contains(&got) {
        return Ok(());
    }
    Err(NoCalendar::Range { what, got, least, most }.into())
}

fn find(zone: &str) -> Result<TimeZone, CalendarError> {
    let found = TimeZoneDatabase::bundled().get(zone).ok().filter(|zone| !zone.is_unknown());
    found.ok_or_else(|| NoCalendar::Zone { name: zone.chars().take(80).collect() }.into())
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use jiff::ToSpan;

    /// Steps through the minutes until the clocks of the zone show `local` or a later time.
    fn searched(zone: &TimeZone, local: DateTime) -> i64 {
        let offset = |hours: i64| {
            let near = TimeZone::UTC.to_timestamp(local.saturating_add(hours.hours())).unwrap();
            zone.to_offset(near).seconds()
        };
        let most = (-30..=30).map(offset).max().unwrap();
        let utc = TimeZone::UTC.to_timestamp(local).unwrap().as_second();
        let shows = |second: &i64| zone.to_datetime(Timestamp::from_second(*second).unwrap()) >= local;
        (0..).map(|step| utc - i64::from(most) + 30 * step).find(shows).unwrap()
    }

    /// A period began later than the end of a gap by the part of the gap before its hour: in Troll, where the clocks go
    /// from 01:00 to 03:00, days from 02:00 began at 04:00. Hours on both sides of all changes of the clocks from 1972,
    /// before which offsets had odd seconds, in every seventh zone and in those with unusual gaps.
    // G125
    #[test]
    fn periods_begin_at_the_end_of_a_gap() {
        let zones = TimeZoneDatabase::bundled();
        let names = zones.available().map(|name| name.as_str().to_owned()).step_by(7);
        let unusual = [
            "Antarctica/Troll",
            "America/St_Johns",
            "Pacific/Kiritimati",
            "Pacific/Apia",
            "Pacific/Kwajalein",
        ];
        let from: Timestamp = "1972-06-01T00:00:00Z".parse().unwrap();
        let until: Timestamp = "2040-01-01T00:00:00Z".parse().unwrap();
        let mut gaps = 0;
        for name in names.chain(unusual.map(str::to_owned)) {
            let zone = find(&name).unwrap();
            for change in zone.following(from).take_while(|change| change.timestamp() < until) {
                let date = zone.to_datetime(change.timestamp()).date();
                for date in [date.yesterday().unwrap(), date] {
                    for hour in [0, 1, 2, 3, 23] {
                        let local = date.at(hour, 0, 0, 0);
                        gaps += u32::from(matches!(
                            zone.to_ambiguous_timestamp(local).offset(),
                            AmbiguousOffset::Gap { .. }
                        ));
                        let got = reached(&zone, local).unwrap().as_second();
                        assert_eq!(got, searched(&zone, local), "{name}: {local}");
                    }
                }
            }
        }
        assert!(gaps > 1_000, "{gaps} hours were in gaps");
    }

    /// A check of a calendar takes a bounded number of steps. Every seventh zone of the database, and those without a day.
    #[test]
    fn guess_is_near_in_every_zone() {
        let zones = TimeZoneDatabase::bundled();
        let names = zones.available().map(|name| name.as_str().to_owned()).step_by(7);
        let without_a_day = ["Pacific/Apia", "Pacific/Kwajalein", "Pacific/Kiritimati"].map(str::to_owned);
        for name in names.chain(without_a_day) {
            let zone = find(&name).unwrap();
            let weeks = CalendarPeriod::Week { from: Weekday::Sunday };
            let years = CalendarPeriod::Year { month: 2, day: 29 };
            for period in [CalendarPeriod::Day, weeks, CalendarPeriod::Month { day: 31 }, years] {
                let table = CalendarTable::new("".into(), period.starts(0, &zone));
                for second in period.starts(0, &zone).filter(|second| *second > 0) {
                    for second in [second - 1, second] {
                        let right = table.index(u64::from(second) * 1_000_000_000);
                        let far = table.guess(second).abs_diff(right);
                        assert!(far <= 2, "{name} {period} at {second}: {far}");
                    }
                }
            }
        }
    }
}
