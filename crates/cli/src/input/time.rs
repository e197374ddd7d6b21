//! The conversion of time texts to nanoseconds since the Unix epoch: RFC 3339 and its variants, log time, and plain
//! numbers.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::fmt::{strtime, temporal::DateTimeParser};
use jiff::tz::Offset;

use super::decimal::{self, DecimalError};

/// The format of a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum TimeFormat {
    /// Detected from the field's name and its first value.
    #[default]
    Auto,
    /// `2017-06-30T00:00:01.5Z`; a space instead of the `T` is accepted, and a missing offset means UTC.
    Rfc3339,
    /// `30/Jun/2017:00:00:01 -0400`, with or without brackets.
    Clf,
    /// A number of seconds, 10⁹ ns each, or of the finer units with their powers of ten.
    Epoch(EpochUnit),
    /// A pattern of `strftime`; without an offset it is UTC.
    Pattern(String),
}

/// A unit of time since the epoch: its name, its nanoseconds as a power of ten, and the endings of field names with
/// this unit.
type EpochUnit = (&'static str, i32, &'static str);

const UNITS: [EpochUnit; 4] =
    [("s", 9, "_s _sec _secs"), ("ms", 6, "_ms _millis"), ("us", 3, "_us _micros"), ("ns", 0, "_ns _nanos")];

/// Returns the unit of a field name's ending, as in `ts_ns`.
fn unit_by_name(field: &str) -> Option<EpochUnit> {
    let field = field.to_ascii_lowercase();
    let is_end = |(_, _, ends): &EpochUnit| ends.split(' ').any(|end| field.ends_with(end));
    UNITS.into_iter().find(is_end)
}

/// Returns the unit in which `digits` whole digits are a date near the present: seconds have ten digits from 2001 to
/// 2286. With 18 digits there is none, because no clock had nanoseconds before 2001: such numbers are ticks of 100 ns since
/// year 1 or 1601.
const fn unit_by_size(digits: i64) -> Option<EpochUnit> {
    Some(match digits {
        ..=11 => UNITS[0],
        12..=14 => UNITS[1],
        15..=17 => UNITS[2],
        18 => return None,
        _ => UNITS[3],
    })
}

impl FromStr for TimeFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "auto" => Self::Auto,
            "rfc3339" | "iso8601" => Self::Rfc3339,
            "clf" => Self::Clf,
            pattern if pattern.contains('%') => Self::Pattern(pattern.to_owned()),
            unit => match UNITS.into_iter().find(|&(name, ..)| name == unit) {
                Some(unit) => Self::Epoch(unit),
                None => {
                    return Err("expected auto, rfc3339, clf, s, ms, us, ns or a strftime pattern such as \
                                \"%Y-%m-%d %H:%M:%S\"");
                }
            },
        })
    }
}

impl fmt::Display for TimeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Rfc3339 => "rfc3339",
            Self::Clf => "clf",
            Self::Epoch((name, ..)) => name,
            Self::Pattern(pattern) => pattern,
        })
    }
}

/// The reason why a text is not a time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TimeError {
    /// It does not have the expected form.
    Syntax,
    /// It names a day or an hour that does not exist.
    NoSuchTime,
    /// It is before 1970 or after 2554, where nanoseconds in 64 bits begin and end.
    OutOfRange,
    /// It is a number in no usual unit, or not in [`PLAUSIBLE`] although other times of the file are.
    Implausible,
}

impl TimeError {
    /// Returns the error message for a text in this format.
    pub fn of(self, text: &str, format: &TimeFormat) -> String {
        let what = match (self, format) {
            (Self::Syntax, TimeFormat::Auto) if is_clock(text.as_bytes()) => {
                "is a time of day without a date; name the field of the date too, as in --time date+time, or add the date to \
                 each line"
            }
            (Self::Syntax, TimeFormat::Auto) => "has no known format; name the format with --time-format",
            (Self::Syntax, TimeFormat::Pattern(pattern)) => {
                // The reason tells a pattern that cannot be read from a text that does not fit.
                let why =
                    strtime::parse(pattern, inner(text.as_bytes())).map_err(|error| format!(" ({error})"));
                &format!("is not in the format {format}{}; see --time-format", why.err().unwrap_or_default())
            }
            (Self::Syntax, _) => &format!("is not in the format {format}; see --time-format"),
            (Self::Implausible, TimeFormat::Auto) => {
                "is not from 1990 to 2099 in any unit since 1970; convert it, or name its format with --time-format"
            }
            (Self::Implausible, _) => &format!(
                "is not from 1990 to 2099 ({format}), as other times of the file are; if it is right, add --time-format {:?}",
                format.to_string()
            ),
            (Self::NoSuchTime, _) => "is a date or time of day that does not exist",
            (Self::OutOfRange, _) => "is before 1970 or after 2554",
        };
        format!("the time {text:?} {what}")
    }
}

/// Reads one field's times. The first readable value determines an automatic format.
#[derive(Clone, Debug)]
pub struct TimeParser {
    format: TimeFormat,
    unit: Option<EpochUnit>,
    /// The times that are accepted.
    range: RangeInclusive<u64>,
}

impl TimeParser {
    /// Creates a parser for times in `format`, in fields of these names.
    pub fn new(format: TimeFormat, fields: &[String]) -> Self {
        let unit = if let [field] = fields { unit_by_name(field) } else { None };
        Self { format, unit, range: 0..=u64::MAX }
    }

    /// Rejects times that are not [`PLAUSIBLE`], if the format is a guess. This is for fields that mostly have plausible times,
    /// because times may also count from another origin than 1970.
    pub fn plausible(self) -> Self {
        let range = if self.format == TimeFormat::Auto { PLAUSIBLE } else { self.range };
        Self { range, ..self }
    }

    /// Returns the format in use; [`TimeFormat::Auto`] until a value was read.
    pub fn format(&self) -> &TimeFormat {
        &self.format
    }

    /// Returns nanoseconds since the Unix epoch. Digits below the nanosecond are cut off.
    ///
    /// # Errors
    /// Returns an error if the text is not a time of this format, or is out of range.
    pub fn parse(&mut self, text: &[u8]) -> Result<u64, TimeError> {
        let text = inner(text);
        if self.format == TimeFormat::Auto {
            let format = guess(text, self.unit)?;
            // A value that is no plausible time says nothing of the format of the others.
            let nanos = self.in_range(parse_as(&format, text)?)?;
            self.format = format;
            return Ok(nanos);
        }
        self.in_range(parse_as(&self.format, text)?)
    }

    fn in_range(&self, nanos: u64) -> Result<u64, TimeError> {
        self.range.contains(&nanos).then_some(nanos).ok_or(TimeError::Implausible)
    }
}

/// The times of a log, in nanoseconds: 1 January 1990 to 1 January 2100. Smaller numbers are durations, or are in a larger
/// unit than is assumed. The units differ by factors of 1,000, so a number in the wrong one is in 1970, or long after 2100.
pub const PLAUSIBLE: RangeInclusive<u64> = 631_152_000_000_000_000..=4_102_444_799_999_999_999;

/// Returns whether a text is a time by itself.
pub fn is_moment(text: &[u8]) -> bool {
    TimeParser::new(TimeFormat::Auto, &[]).plausible().parse(text).is_ok()
}

/// Returns whether a text begins as a time of day does, `13:55`.
pub fn is_clock(text: &[u8]) -> bool {
    matches!(inner(text), [b'0'..=b'2', b'0'..=b'9', b':', b'0'..=b'5', b'0'..=b'9', ..])
}

/// Returns whether a text is a date without a time of day: `2024-10-10`, `2024/10/10` or `20241010`.
pub fn is_day(text: &[u8]) -> bool {
    let text = inner(text);
    matches!(text.len(), 8 | 10) && (text.len() == 8) == compact_day(text).is_some() && rfc3339(text).is_ok()
}

/// Returns the date `20241010` at the begin of a text, and what follows it.
fn compact_day(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (day, rest) = text.split_at_checked(8)?;
    let is_day = day.iter().all(u8::is_ascii_digit) && matches!(&day[..2], b"19" | b"20");
    (is_day && matches!(rest.first(), None | Some(b' ' | b'T' | b'_'))).then_some((day, rest))
}

/// Returns whether a name is probably that of a time.
pub fn may_be_time(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["time", "date"].iter().any(|part| lower.contains(part))
        || ["_at", "At"].iter().any(|end| name.ends_with(end))
        || matches!(&*lower, "ts" | "ts_ns" | "ts_us" | "ts_ms" | "dt" | "msec" | "when")
}

/// Forms of times that begin with the name of a day or of a month, or with a day.
const BY_NAME: [&str; 11] = [
    "%a %b %d %H:%M:%S%.f %Y",
    "%a %b %d %H:%M:%S UTC %Y",
    "%a %b %d %H:%M:%S %z %Y",
    "%A, %d-%b-%y %H:%M:%S GMT",
    "%a, %d %b %Y %H:%M:%S %z",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%a, %d %b %Y %H:%M:%S UTC",
    "%d %b %Y %H:%M:%S%.f %z",
    "%d %b %Y %H:%M:%S%.f",
    "%d-%b-%Y %H:%M:%S%.f",
    "%b %d, %Y @ %H:%M:%S%.f",
];

/// Removes the brackets or the quotes around a time.
fn inner(text: &[u8]) -> &[u8] {
    match text.trim_ascii() {
        [b'[', inner @ .., b']'] | [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        text => text,
    }
}

fn guess(text: &[u8], unit: Option<EpochUnit>) -> Result<TimeFormat, TimeError> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    match text.get(digits) {
        Some(b'/') if digits == 2 => Ok(TimeFormat::Clf),
        Some(b'-' | b'/') if digits == 4 => Ok(TimeFormat::Rfc3339),
        _ if unit.is_none() && compact_day(text).is_some() && rfc3339(text).is_ok() => {
            Ok(TimeFormat::Rfc3339)
        }
        None | Some(b'.' | b'e' | b'E') if digits > 0 => {
            let mut parts = text.split(|b| matches!(b, b'e' | b'E')).skip(1);
            let exponent: Option<i64> =
                parts.next().and_then(|power| str::from_utf8(power).ok()?.parse().ok());
            let whole = i64::try_from(digits).unwrap_or(i64::MAX).saturating_add(exponent.unwrap_or(0));
            unit.or(unit_by_size(whole)).map(TimeFormat::Epoch).ok_or(TimeError::Implausible)
        }
        _ => {
            let mut patterns = BY_NAME.into_iter();
            let pattern =
                patterns.find(|pattern| by_pattern(pattern, text).is_ok()).ok_or(TimeError::Syntax)?;
            Ok(TimeFormat::Pattern(pattern.to_owned()))
        }
    }
}

fn parse_as(format: &TimeFormat, text: &[u8]) -> Result<u64, TimeError> {
    match format {
        TimeFormat::Auto => Err(TimeError::Syntax),
        TimeFormat::Rfc3339 => rfc3339(text),
        TimeFormat::Clf => clf(text),
        &TimeFormat::Epoch((_, power, _)) => epoch(text, power),
        TimeFormat::Pattern(pattern) => by_pattern(pattern, text),
    }
}

fn epoch(text: &[u8], power: i32) -> Result<u64, TimeError> {
    match decimal::scaled(text, power) {
        Ok(scaled) => Ok(scaled.value),
        Err(DecimalError::Syntax) => Err(TimeError::Syntax),
        Err(DecimalError::Negative | DecimalError::TooLarge) => Err(TimeError::OutOfRange),
    }
}

static TEMPORAL: DateTimeParser = DateTimeParser::new();

/// Parses a time whose first part is a date with the year first: RFC 3339, and the forms of loggers, with slashes, a space
/// before the offset, an offset without a colon, or the name UTC.
fn rfc3339(text: &[u8]) -> Result<u64, TimeError> {
    match iso(text) {
        Err(TimeError::Syntax) => {}
        done => return done,
    }
    let parts = compact_day(text).or_else(|| text.split_at_checked(10));
    let (date, time) = parts.ok_or(TimeError::Syntax)?;
    let mut plain: Vec<u8> = date.iter().map(|&b| if b == b'/' { b'-' } else { b }).collect();
    let time =
        [&b" UTC"[..], b" GMT", b" Z"].iter().find_map(|zone| time.strip_suffix(*zone)).unwrap_or(time);
    let is_utc = plain.len() + time.len() < text.len();
    // A space or an underscore may separate the date, and a space the offset.
    plain.push(b'T');
    let clock = time.get(1..).ok_or(TimeError::Syntax)?;
    plain.extend(clock.iter().filter(|&&b| b != b' '));
    let has_offset = plain[date.len()..].iter().any(|b| matches!(b, b'Z' | b'z' | b'+' | b'-'));
    if is_utc && !has_offset {
        plain.push(b'Z');
    }
    iso(&plain)
}

fn iso(text: &[u8]) -> Result<u64, TimeError> {
    // jiff rejects digits below the nanosecond; this parser cuts them off, as it does for numbers.
    if let Some(point) = text.iter().position(|&b| b == b'.' || b == b',') {
        let digits = text[point + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits > 9 {
            let shorter = [&text[..point + 10], &text[point + 1 + digits..]].concat();
            return iso(&shorter);
        }
    }
    // Only an offset can hold Z or + or, after the date, a minus.
    let has_offset = text.iter().skip(10).any(|b| matches!(b, b'Z' | b'z' | b'+' | b'-'));
    if has_offset {
        let timestamp = TEMPORAL.parse_timestamp(text).map_err(|_| TimeError::Syntax)?;
        nanos_in_range(timestamp)
    } else {
        let datetime = TEMPORAL.parse_datetime(text).map_err(|_| TimeError::Syntax)?;
        at_offset(datetime, Offset::UTC)
    }
}

fn by_pattern(pattern: &str, text: &[u8]) -> Result<u64, TimeError> {
    let time = strtime::parse(pattern, text).map_err(|_| TimeError::Syntax)?;
    // Only a time with an offset, or seconds since the epoch, is a timestamp by itself.
    if let Ok(timestamp) = time.to_timestamp() {
        return nanos_in_range(timestamp);
    }
    let datetime = time.to_datetime().map_err(|_| TimeError::Syntax)?;
    at_offset(datetime, Offset::UTC)
}

/// Parses `10/Oct/2000:13:55:36 -0700`; a fraction of a second may follow, and a missing offset means UTC.
fn clf(text: &[u8]) -> Result<u64, TimeError> {
    let text = text.strip_prefix(b"[").unwrap_or(text);
    let text = text.strip_suffix(b"]").unwrap_or(text);
    let form = b"00/aaa/0000:00:00:00";
    let (text, rest) = text.split_at_checked(form.len()).ok_or(TimeError::Syntax)?;
    if text.iter().zip(form).any(|(b, form)| matches!(form, b'/' | b':') && b != form) {
        return Err(TimeError::Syntax);
    }
    let number = |digits: &[u8]| match digits {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
            i8::try_from((tens - b'0') * 10 + (ones - b'0')).map_err(|_| TimeError::Syntax)
        }
        _ => Err(TimeError::Syntax),
    };
    let months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let month = (1..).zip(months).find(|(_, name)| text[3..6].eq_ignore_ascii_case(name.as_bytes()));
    let (month, _) = month.ok_or(TimeError::Syntax)?;
    let year = i16::from(number(&text[7..9])?) * 100 + i16::from(number(&text[9..11])?);
    let (nanos, rest) = fraction(rest);
    let offset = match rest {
        [] => Offset::UTC,
        &[b' ', sign @ (b'+' | b'-'), h1, h2, m1, m2] => {
            let seconds = i32::from(number(&[h1, h2])?) * 3600 + i32::from(number(&[m1, m2])?) * 60;
            Offset::from_seconds(if sign == b'-' { -seconds } else { seconds })
                .map_err(|_| TimeError::NoSuchTime)?
        }
        _ => return Err(TimeError::Syntax),
    };
    // A leap second becomes the second before it, as is usual in Unix time.
    let second = number(&text[18..])?;
    let second = if second == 60 { 59 } else { second };
    let (day, hour, minute) = (number(&text[..2])?, number(&text[12..14])?, number(&text[15..17])?);
    let datetime =
        DateTime::new(year, month, day, hour, minute, second, nanos).map_err(|_| TimeError::NoSuchTime)?;
    at_offset(datetime, offset)
}

/// Returns a fraction's nanoseconds, and the rest of the text.
fn fraction(text: &[u8]) -> (i32, &[u8]) {
    let [b'.', digits @ ..] = text else { return (0, text) };
    let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    let nine = digits[..count].iter().copied().chain(std::iter::repeat(b'0')).take(9);
    let nanos = nine.fold(0, |nanos, digit| nanos * 10 + i32::from(digit - b'0'));
    (nanos, &digits[count..])
}

fn at_offset(datetime: DateTime, offset: Offset) -> Result<u64, TimeError> {
    offset.to_timestamp(datetime).map_err(|_| TimeError::OutOfRange).and_then(nanos_in_range)
}

fn nanos_in_range(timestamp: jiff::Timestamp) -> Result<u64, TimeError> {
    u64::try_from(timestamp.as_nanosecond()).map_err(|_| TimeError::OutOfRange)
}
