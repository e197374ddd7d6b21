//! A chart's axes: columns and ticks at round times, ticks at round numbers.
//!
//! Columns are no finer than the log's times; otherwise some columns would be empty only because they are short. Long
//! gaps are left out; otherwise the other columns would be too narrow.

use std::time::Duration;

use jiff::ToSpan as _;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;

use tollgate_report::human::{self, datetime};

pub const SECOND: u64 = 1_000_000_000;
pub const MINUTE: u64 = 60 * SECOND;
pub const HOUR: u64 = 60 * MINUTE;
pub const DAY: u64 = 24 * HOUR;

/// Time cut into columns of a round length. Long gaps are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeAxis {
    column: u64,
    /// The number of columns, at least 1, including those that stand for gaps.
    pub columns: u64,
    /// The stretches of time in the chart.
    pub pieces: Vec<Piece>,
}

/// A stretch of time without a long gap.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The start of its first column.
    pub start: u64,
    /// Its first column.
    pub first: u64,
    /// The number of its columns, at least 1.
    pub columns: u64,
}

/// A gap is left out if it is longer than the shown time divided by this number: longer than all the rest.
const GAP: u64 = 2;
/// The most gaps that are left out: a chart of more pieces is hard to read.
const MOST_GAPS: usize = 5;
/// The width of a gap is the chart's width divided by this number.
const BREAK: u64 = 50;

/// Round lengths of time, ascending.
fn round_lengths() -> impl Iterator<Item = u64> {
    let below_second = (0..9).flat_map(|power| [1, 2, 5].map(|n| n * 10_u64.pow(power)));
    let seconds = [1, 2, 5, 10, 15, 30].map(|n| n * SECOND);
    let minutes = [1, 2, 5, 10, 15, 30].map(|n| n * MINUTE);
    let hours = [1, 2, 3, 6, 12].map(|n| n * HOUR);
    let days = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map(|n| n * DAY);
    below_second.chain(seconds).chain(minutes).chain(hours).chain(days)
}

/// Returns the coarsest unit of which all times are multiples.
fn resolution(times: &[u64]) -> u64 {
    let units = round_lengths().filter(|unit| DAY.is_multiple_of(*unit)).collect::<Vec<_>>();
    let fits = |unit: &u64| times.iter().all(|time| time.is_multiple_of(*unit));
    units.into_iter().rev().find(fits).unwrap_or(1)
}

/// Returns the first and the last time of each stretch without a long gap, from times in order.
fn stretches(times: &[u64]) -> Vec<(u64, u64)> {
    let (Some(&first), Some(&last)) = (times.first(), times.last()) else { return vec![(0, 0)] };
    let mut gaps: Vec<(u64, u64)> = times.windows(2).map(|pair| (pair[1] - pair[0], pair[1])).collect();
    gaps.sort_unstable_by_key(|&(length, _)| std::cmp::Reverse(length));
    let mut shown = last - first;
    let long = gaps.into_iter().take(MOST_GAPS).take_while(|&(length, _)| {
        let is_long = length > shown / GAP;
        shown -= length;
        is_long
    });
    let mut begins: Vec<u64> = long.map(|(_, begin)| begin).collect();
    begins.sort_unstable();
    let mut stretches = Vec::new();
    let mut begin = first;
    for next in begins {
        let before = times.partition_point(|&time| time < next);
        stretches.push((begin, times[before - 1]));
        begin = next;
    }
    stretches.push((begin, last));
    stretches
}

impl TimeAxis {
    /// Creates an axis that shows all times in at most `most` columns, none finer than the times.
    pub fn new(mut times: Vec<u64>, most: u64) -> Self {
        times.sort_unstable();
        let stretches = stretches(&times);
        let finest = resolution(&times);
        let axis = |column: u64| {
            let piece = |&(first, last): &(u64, u64)| {
                let start = first - first % column;
                Piece { start, first: 0, columns: ((last - start) / column).saturating_add(1) }
            };
            let mut pieces: Vec<Piece> = stretches.iter().map(piece).collect();
            let shown = pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.columns));
            let gap = (shown / BREAK).max(1);
            let mut columns = 0_u64;
            for piece in &mut pieces {
                piece.first = columns;
                columns = columns.saturating_add(piece.columns).saturating_add(gap);
            }
            Self { column, columns: columns - gap, pieces }
        };
        let fits = |axis: &Self| axis.columns <= most;
        let longest = || {
            let shown = stretches.iter().fold(0_u64, |sum, (first, last)| sum.saturating_add(last - first));
            axis(shown / (most / 2).max(1) + 1)
        };
        round_lengths().filter(|&length| length >= finest).map(axis).find(fits).unwrap_or_else(longest)
    }

    /// Returns a column's length.
    pub fn column(&self) -> Duration {
        Duration::from_nanos(self.column)
    }

    /// Returns a number of columns that fit at most `most` times: of a round length, if one is a multiple of a column.
    pub fn columns_each(&self, most: u64) -> usize {
        let least = self.columns.div_ceil(most.max(1)).max(1);
        let is_round = |length: &u64| *length / self.column >= least && length.is_multiple_of(self.column);
        let round = round_lengths().find(is_round).map(|length| length / self.column);
        usize::try_from(round.unwrap_or(least)).unwrap_or(usize::MAX)
    }

    /// Returns the piece that contains a time.
    fn piece_of(&self, at: u64) -> &Piece {
        let after = self.pieces.partition_point(|piece| piece.start <= at);
        &self.pieces[after.saturating_sub(1)]
    }

    /// Returns the column that contains a time.
    pub fn column_of(&self, at: u64) -> usize {
        let piece = self.piece_of(at);
        let column = at.saturating_sub(piece.start) / self.column;
        usize::try_from(piece.first + column.min(piece.columns - 1)).unwrap_or(0)
    }

    /// Returns the start of a column; `None` in a gap.
    pub fn start_of(&self, column: u64) -> Option<u64> {
        let piece = self.pieces.iter().rev().find(|piece| piece.first <= column)?;
        let at = column - piece.first;
        (at < piece.columns).then(|| piece.start.saturating_add(at.saturating_mul(self.column)))
    }

    /// Returns the position of a time, as a fraction of the axis's length.
    pub fn place(&self, at: u64) -> f64 {
        let piece = self.piece_of(at);
        let columns = at.saturating_sub(piece.start) as f64 / self.column as f64;
        (piece.first as f64 + columns.min(piece.columns as f64)) / self.columns as f64
    }

    /// Returns the start and the end of a piece.
    fn range(&self, piece: &Piece) -> (u64, u64) {
        (piece.start, piece.start.saturating_add(self.column.saturating_mul(piece.columns)))
    }

    /// Returns about five to ten times for labels.
    pub fn ticks(&self) -> Vec<(u64, String)> {
        let ranges: Vec<(u64, u64)> = self.pieces.iter().map(|piece| self.range(piece)).collect();
        let shown = ranges.iter().fold(0_u64, |sum, (start, end)| sum.saturating_add(end - start));
        if let &[(start, end)] = &ranges[..]
            && shown > 75 * DAY
        {
            return month_ticks(start, end);
        }
        let fits = |step: &u64| shown / step < 10 && *step >= self.column;
        let step = round_lengths().find(fits).unwrap_or(1000 * DAY);
        let mut ticks = Vec::new();
        for (start, end) in ranges {
            let Some(first) = start.checked_next_multiple_of(step) else { continue };
            let times =
                (0..).map_while(|n: u64| first.checked_add(n.checked_mul(step)?)).take_while(|&at| at < end);
            ticks.extend(times.map(|at| (at, label(at, step))));
        }
        ticks
    }

    /// Returns the label under the axis.
    pub fn caption(&self) -> String {
        let [.., last] = &self.pieces[..] else { return String::new() };
        let (start, end) = (self.pieces[0].start, self.range(last).1);
        let without = if self.pieces.len() > 1 { ", without long gaps" } else { "" };
        format!("UTC, {} to {}{without}", human::utc(start), human::utc(end))
    }

    /// Returns the day on which a piece begins.
    pub fn day(piece: &Piece) -> String {
        datetime(piece.start).strftime("%-d %b %Y").to_string()
    }
}

/// Places ticks at the beginning of months, with a fixed number of months between them.
fn month_ticks(start: u64, end: u64) -> Vec<(u64, String)> {
    let months = i64::try_from((end - start) / (30 * DAY)).unwrap_or(i64::MAX);
    let step =
        [1, 2, 3, 6, 12, 24, 60, 120, 240, 600].into_iter().find(|step| months / step <= 10).unwrap_or(1200);
    let year = datetime(start).date().first_of_year();
    let dates = (0..).map_while(|n: i64| year.checked_add((n * step).months()).ok());
    let at = |date: Date| {
        let time = Offset::UTC.to_timestamp(date.to_datetime(Time::midnight())).ok()?;
        Some((u64::try_from(time.as_nanosecond()).ok()?, date.strftime("%b %Y").to_string()))
    };
    dates.map_while(at).skip_while(|&(at, _)| at < start).take_while(|&(at, _)| at <= end).collect()
}

/// Returns the part of a time that differs between ticks; midnight shows its date.
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

/// Returns at most `most` round numbers from zero up to `highest`.
pub fn value_ticks(highest: u64, most: u64) -> Vec<u64> {
    let steps = (0..19).flat_map(|power| [1, 2, 5].map(|n: u64| n.saturating_mul(10_u64.pow(power))));
    let step = steps.into_iter().find(|step| highest / step <= most).unwrap_or(u64::MAX);
    (0..=highest / step).map(|n| n * step).collect()
}
