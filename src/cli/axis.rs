//! A chart's axes: columns and ticks at round times, ticks at round numbers.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan};

use super::human;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Time cut into columns of a round length.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TimeAxis {
    start: u64,
    column: u64,
    columns: u64,
}

/// Round lengths of time, ascending.
fn round_lengths() -> impl Iterator<Item = u64> {
    let below_second = (0..9).flat_map(|power| [1, 2, 5].map(|n| n * 10_u64.pow(power)));
    let above = [
        SECOND,
        2 * SECOND,
        5 * SECOND,
        10 * SECOND,
        15 * SECOND,
        30 * SECOND,
        MINUTE,
        2 * MINUTE,
        5 * MINUTE,
        10 * MINUTE,
        15 * MINUTE,
        30 * MINUTE,
        HOUR,
        2 * HOUR,
        3 * HOUR,
        6 * HOUR,
        12 * HOUR,
        DAY,
        2 * DAY,
        5 * DAY,
        10 * DAY,
        20 * DAY,
        50 * DAY,
        100 * DAY,
        200 * DAY,
        500 * DAY,
        1000 * DAY,
    ];
    below_second.chain(above)
}

impl TimeAxis {
    /// An axis that shows both times in at most `most` columns.
    #[must_use]
    pub fn new(first: u64, last: u64, most: u64) -> Self {
        let axis = |column: u64| {
            let start = first - first % column;
            Self { start, column, columns: ((last - start) / column).saturating_add(1) }
        };
        let fits = |axis: &Self| axis.columns <= most;
        round_lengths().map(axis).find(fits).unwrap_or_else(|| axis((last - first) / most.max(1) + 1))
    }

    /// A column's length.
    #[must_use]
    pub fn column(&self) -> Duration {
        Duration::from_nanos(self.column)
    }

    /// How many columns there are, 1 or more.
    #[must_use]
    pub fn columns(&self) -> u64 {
        self.columns
    }

    /// The column that a time falls into.
    #[must_use]
    pub fn column_of(&self, at: u64) -> usize {
        let column = at.saturating_sub(self.start) / self.column;
        usize::try_from(column.min(self.columns - 1)).unwrap_or(0)
    }

    /// Where the first column begins and the last one ends.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        (self.start, self.start.saturating_add(self.column.saturating_mul(self.columns)))
    }

    /// Five to about ten times to be labelled.
    #[must_use]
    pub fn ticks(&self) -> Vec<(u64, String)> {
        let (start, end) = self.range();
        if end - start > 75 * DAY {
            return self.month_ticks();
        }
        let step = round_lengths().find(|step| (end - start) / step < 10).unwrap_or(1000 * DAY);
        let first = start.next_multiple_of(step);
        let times =
            (0..).map_while(|n: u64| first.checked_add(n.checked_mul(step)?)).take_while(|&at| at <= end);
        times.map(|at| (at, label(at, step))).collect()
    }

    /// At the beginning of months, or of every so many months.
    fn month_ticks(&self) -> Vec<(u64, String)> {
        let (start, end) = self.range();
        let months = (end - start) / (30 * DAY);
        let step = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600]
            .into_iter()
            .find(|step| months / step <= 10)
            .unwrap_or(1200);
        let mut ticks = Vec::new();
        let from = datetime(start).date();
        let Ok(mut date) = jiff::civil::Date::new(from.year(), 1, 1) else { return ticks };
        while let Ok(time) = Offset::UTC.to_timestamp(date.to_datetime(jiff::civil::Time::midnight())) {
            match u64::try_from(time.as_nanosecond()) {
                Ok(at) if at > end => break,
                Ok(at) if at >= start => ticks.push((at, date.strftime("%b %Y").to_string())),
                _ => {}
            }
            match i64::try_from(step).ok().and_then(|step| date.checked_add(step.months()).ok()) {
                Some(next) => date = next,
                None => break,
            }
        }
        ticks
    }

    /// What is shown, under the axis.
    #[must_use]
    pub fn caption(&self) -> String {
        let (start, end) = self.range();
        format!("UTC, {} to {}", human::utc(start), human::utc(end))
    }
}

fn datetime(at: u64) -> DateTime {
    let timestamp = Timestamp::from_nanosecond(i128::from(at)).unwrap_or_default();
    timestamp.to_zoned(TimeZone::UTC).datetime()
}

/// As much of a time as differs between ticks; midnight shows its date.
fn label(at: u64, step: u64) -> String {
    let time = datetime(at);
    if at.is_multiple_of(DAY) {
        time.strftime("%-d %b").to_string()
    } else if step.is_multiple_of(MINUTE) {
        time.strftime("%H:%M").to_string()
    } else if step.is_multiple_of(SECOND) {
        time.strftime("%H:%M:%S").to_string()
    } else {
        time.strftime("%H:%M:%S%.f").to_string()
    }
}

/// At most `most` round numbers from zero up to `highest`.
#[must_use]
pub fn value_ticks(highest: u64, most: u64) -> Vec<u64> {
    let steps = (0..19).flat_map(|power| [1, 2, 5].map(|n: u64| n.saturating_mul(10_u64.pow(power))));
    let step = steps.into_iter().find(|step| highest / step <= most).unwrap_or(u64::MAX);
    (0..=highest / step).map(|n| n * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_498_780_801 * SECOND;

    fn labels(first: u64, last: u64) -> Vec<String> {
        TimeAxis::new(first, last, 270).ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn columns_are_round_and_few() {
        for length in [0, 1, 999, SECOND, 71 * SECOND, DAY, 173 * DAY, 30_000 * DAY] {
            let axis = TimeAxis::new(T, T + length, 270);
            assert!((1..=270).contains(&axis.columns()), "{length}");
            assert_eq!(axis.column_of(T), 0);
            assert_eq!(axis.column_of(T + length) as u64, axis.columns() - 1);
        }
        let day = TimeAxis::new(T, T + DAY, 270);
        assert_eq!(day.column(), Duration::from_secs(600));
        assert_eq!(TimeAxis::new(0, u64::MAX, 270).column_of(u64::MAX), 213);
    }

    #[test]
    fn ticks_are_labelled_as_finely_as_needed() {
        assert_eq!(labels(T, T + DAY)[..2], ["30 Jun", "03:00"]);
        assert_eq!(labels(T, T + 60 * SECOND)[0], "00:00:10");
        assert_eq!(labels(T, T + 10 * DAY)[0], "1 Jul");
        assert_eq!(labels(T, T + 170 * DAY)[..2], ["Jul 2017", "Aug 2017"]);
        assert_eq!(labels(T, T + 4_000_000)[1], "00:00:01.0005");
        for length in [0, 1, SECOND, 71 * SECOND, DAY, 30 * DAY, 173 * DAY, 30_000 * DAY] {
            assert!((1..=12).contains(&labels(T, T + length).len()), "{length}");
        }
    }

    #[test]
    fn values_are_round() {
        assert_eq!(value_ticks(7, 6), [0, 2, 4, 6]);
        assert_eq!(value_ticks(454, 3), [0, 200, 400]);
        assert_eq!(value_ticks(0, 3), [0]);
        assert!(value_ticks(u64::MAX, 3).len() <= 4);
    }
}
