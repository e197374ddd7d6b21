//! The choice of a file's format, and of its time and key fields.

use std::slice;
use std::str::FromStr;

use clap::ValueEnum;

use super::choice::argument;
use super::decompress::BYTE_ORDER_MARK;
use super::delimited::Delimiter;
use super::sample::{RECORDS, Role, Sample, SampleField};
use super::time::{PLAUSIBLE, TimeFormat, TimeParser, is_clock, is_day, may_be_time};
use super::{Error, clf, jsonl};
use tollgate_report::text::printable;

/// A file's format.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Detect the format from the content.
    Auto,
    /// Common or combined log format, as web servers write it.
    Clf,
    /// One JSON object per line.
    Jsonl,
    /// Values between commas, semicolons or bars, with a header line and quotes as in RFC 4180; see --delimiter.
    Csv,
    /// Tab-separated values with a header line, no quoting.
    Tsv,
    /// Extended log file of the W3C with a line #Fields:, as IIS and CloudFront write it.
    W3c,
    /// Lines of a text format; see --log-format.
    #[value(skip)]
    Layout,
}

impl Format {
    /// Returns the format of a text from its beginning: the format of most first lines, or of the header.
    pub fn guess(head: &[u8]) -> Option<Self> {
        let lines = || head_lines(head).take(20);
        let first = lines().next()?;
        let most = |is: fn(&[u8]) -> bool| 2 * lines().filter(|line| is(line)).count() > lines().count();
        if most(|line| clf::parse(line).is_ok()) {
            Some(Self::Clf)
        } else if most(|line| line.trim_ascii_start().starts_with(b"{")) {
            Some(Self::Jsonl)
        } else if !is_text(first) {
            None
        } else if first.contains(&b'\t') {
            Some(Self::Tsv)
        } else if Delimiter::guess(first).is_some() {
            Some(Self::Csv)
        } else if lines().any(|line| clf::parse(line).is_ok()) {
            Some(Self::Clf)
        } else if lines().any(|line| line.trim_ascii_start().starts_with(b"{")) {
            Some(Self::Jsonl)
        } else {
            None
        }
    }
}

/// Whether a line is UTF-8 without control characters other than tabs.
pub fn is_text(line: &[u8]) -> bool {
    str::from_utf8(line).is_ok() && !line.iter().any(|&b| b < b' ' && b != b'\t')
}

/// Returns the nonempty lines of a file's first part. The last may be cut.
pub fn head_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    head.split(|&b| b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty())
}

/// One or more fields, written `FIELD[+FIELD…]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldList(pub Vec<String>);

impl FromStr for FieldList {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fields: Vec<String> = text.split('+').map(|field| field.trim().to_owned()).collect();
        if fields.iter().any(String::is_empty) {
            return Err("expected a field's name, or several joined by +, as in date+time");
        }
        Ok(Self(fields))
    }
}

/// Usual names of time fields, the most certain first. Names are compared without case.
const TIME_NAMES: &str = "\
    ts_ns ts_us ts_ms ts timestamp_ns timestamp_us timestamp_ms timestamp @timestamp datetime \
    date_time time_iso8601 time_local eventtime event_time start_time created_at \
    request_timestamp time_ns time_ms time dt msec date starttime startutc requestreceivedtimestamp";

/// Returns whether a field of this name, or the last part of its path, is usually a time.
pub fn is_time_name(name: &str) -> bool {
    let name = name.rsplit('.').next().unwrap_or(name);
    TIME_NAMES.split(' ').any(|known| known.eq_ignore_ascii_case(name))
}

/// Returns whether most values of a field are times by themselves.
fn is_moment(field: &SampleField, format: &TimeFormat) -> bool {
    let mut parser = TimeParser::new(format.clone(), slice::from_ref(&field.name));
    most(field, |value| parser.parse(value).is_ok_and(|at| PLAUSIBLE.contains(&at)))
}

/// Returns whether this holds for most values of a field.
fn most(field: &SampleField, mut is: impl FnMut(&[u8]) -> bool) -> bool {
    let values = || field.values.iter().flatten();
    2 * values().filter(|value| is(value)).count() > values().count()
}

/// Returns whether the values of a time field are numbers that count from another origin than 1970.
pub fn has_own_origin(field: &SampleField, format: &TimeFormat) -> bool {
    let is_number = |value: &[u8]| value.iter().all(|b| b.is_ascii_digit() || b"+-.eE".contains(b));
    *format == TimeFormat::Auto && most(field, is_number) && !is_moment(field, format)
}

/// Returns whether the values of a time field are dates without a time of day.
pub fn has_days(field: &SampleField) -> bool {
    most(field, is_day)
}

/// Returns whether most values of two fields, joined, are a time.
fn is_joined(date: &SampleField, clock: &SampleField, format: &TimeFormat) -> bool {
    let mut parser = TimeParser::new(format.clone(), &[]);
    let pairs = || {
        date.values.iter().zip(&clock.values).filter_map(|(date, clock)| date.as_ref().zip(clock.as_ref()))
    };
    let is_time =
        |(date, clock): &(&Vec<u8>, &Vec<u8>)| parser.parse(&[&date[..], clock].join(&b' ')).is_ok();
    2 * pairs().filter(is_time).count() > pairs().count()
}

/// Adds the field of the time of day to a field that has dates without it: at midnight, all requests of a day would be a burst.
fn with_clock(
    date: &SampleField,
    sample: &Sample,
    format: &TimeFormat,
    file: &str,
) -> Result<Vec<String>, Error> {
    if *format != TimeFormat::Auto || !has_days(date) {
        return Ok(vec![date.name.clone()]);
    }
    let others = || sample.fields.iter().filter(|field| field.name != date.name);
    let clocks: Vec<&SampleField> =
        others().filter(|field| most(field, is_clock) && is_joined(date, field, format)).collect();
    let last_word = |name: &str| {
        let lower = name.to_ascii_lowercase();
        lower.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default().to_owned()
    };
    let by_name = others().find(|field| {
        let name = last_word(&field.name);
        ["time", "clock", "hour"].iter().any(|end| name.ends_with(end))
    });
    match (&clocks[..], by_name) {
        ([clock], _) => Ok(vec![date.name.clone(), clock.name.clone()]),
        ([], None) => Ok(vec![date.name.clone()]),
        (found, named) => {
            let names = found
                .iter()
                .copied()
                .chain(named)
                .map(|clock| format!("--time {}", argument(&format!("{}+{}", date.name, clock.name))));
            let mut names: Vec<String> = names.collect();
            names.dedup();
            names.push(format!("--time {} --time-format rfc3339", argument(&date.name)));
            Err(Error::run(format!(
                "{file}: which field is the time of day? {:?} has only the date. Name it with {}",
                date.name,
                names.join(" or ")
            )))
        }
    }
}

/// Selects the field of the time, or the fields that make one time, in a file with these first records: one of a usual
/// name whose values are times, or else the only one whose values are.
///
/// # Errors
/// Returns an error if no field is the time; the message lists the fields.
pub fn choose_time(sample: &Sample, format: &TimeFormat, file: &str) -> Result<Vec<String>, Error> {
    let own = |field: &SampleField| with_clock(field, sample, format, file);
    let by_role = || sample.fields.iter().filter(|field| field.role == Role::Time);
    let by_name = || TIME_NAMES.split(' ').filter_map(|name| sample.field(name));
    let by_path = || sample.fields.iter().filter(|field| is_time_name(&field.name));
    let moment = |field: &&SampleField| is_moment(field, format);
    let has = |field: &SampleField, marks: &[u8]| {
        field.values.iter().flatten().flatten().any(|byte| marks.contains(byte))
    };
    // Two columns make one time if neither is one by itself.
    if let (Some(date), Some(time)) = (sample.field("date"), sample.field("time"))
        && !moment(&time)
        && date.values.iter().flatten().all(|date| date.len() <= 10)
        && (*format != TimeFormat::Auto
            || sample.records == 0
            || has(date, b"-/")
            || has(time, b":")
            || is_joined(date, time, format))
    {
        return Ok(vec![date.name.clone(), time.name.clone()]);
    }
    if let Some(field) = by_role().chain(by_name()).chain(by_path()).find(moment) {
        return own(field);
    }
    // A small number in a field such as time_ms is a duration, if another field has dates.
    let is_text = |field: &&SampleField| {
        let number = |value: &Vec<u8>| value.iter().all(|b| b.is_ascii_digit() || *b == b'.');
        !field.values.iter().flatten().all(number)
    };
    let moments: Vec<&SampleField> = sample.fields.iter().filter(moment).collect();
    let dates: Vec<&SampleField> = moments.iter().copied().filter(is_text).collect();
    if let [only] = dates[..] {
        return own(only);
    }
    // A large number that does not grow is the number of something.
    let grow = |field: &SampleField, least: usize| {
        let numbers: Vec<f64> = field
            .values
            .iter()
            .flatten()
            .filter_map(|value| str::from_utf8(value).ok()?.parse().ok())
            .collect();
        let falls = numbers.windows(2).filter(|pair| pair[0] > pair[1]).count();
        falls < least || 10 * falls <= numbers.len()
    };
    let numbers: Vec<&SampleField> = moments.into_iter().filter(|field| grow(field, 1)).collect();
    let with_name: Vec<&SampleField> =
        numbers.iter().copied().filter(|field| may_be_time(&field.name)).collect();
    let named = by_role().chain(by_name()).next();
    let unsure = match (&dates[..], &numbers[..], named, &with_name[..]) {
        ([one, other, ..], ..) | ([], _, None, [one, other, ..]) => Some((&one.name, &other.name)),
        ([], [number, ..], Some(named), _) if named.role != Role::Time => Some((&named.name, &number.name)),
        ([], _, None, [only]) => return own(only),
        _ => None,
    };
    if let Some((one, other)) = unsure {
        return Err(Error::run(format!(
            "{file}: which field is the time? {one:?} and {other:?} would do. Name it with --time {} or --time {}",
            argument(one),
            argument(other),
        )));
    }
    // Without any values that are times, a usual name is the best choice. It may be a number from any origin, but a duration
    // does not grow.
    let named = named.filter(|field| !has_own_origin(field, format) || grow(field, 2));
    named.map_or_else(
        || {
            let list = sample.shown_names();
            let nested = match sample.open {
                true => "; if the records are in an inner array, write them on lines first, as jq -c '.data.items[]' does",
                false => "",
            };
            Err(Error::run(format!(
                "{file}: which field is the time? Name it with --time; the fields are: {list}{nested}"
            )))
        },
        own,
    )
}

/// Reads the first objects of a JSON file.
///
/// # Errors
/// Returns an error if no line of the first part is a whole object; it says why the first line is not.
pub fn json_sample(lines: &[Vec<u8>], file: &str) -> Result<Sample, Error> {
    let mut sample = Sample { open: true, ..Sample::default() };
    let mut first_bad: Option<(String, &[u8])> = None;
    for line in lines {
        let repaired = jsonl::repaired(line);
        let fields = jsonl::fields(line);
        match fields.or_else(|why| repaired.as_deref().map_or(Err(why), jsonl::fields)) {
            Ok(fields) => {
                sample.add(fields.iter().map(|(name, value)| (&**name, &**value)));
            }
            Err(reason) => drop(first_bad.get_or_insert((reason, line))),
        }
        if sample.records == RECORDS {
            break;
        }
    }
    match first_bad {
        Some((reason, line)) if sample.records == 0 => Err(Error::run(format!(
            "{file}: no JSON object found; the first line is {reason}: {}",
            printable(line, 80)
        ))),
        _ => Ok(sample),
    }
}
