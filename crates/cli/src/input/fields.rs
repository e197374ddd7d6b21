//! The choice of a file's format, and of its time and key fields.

use std::str::FromStr;

use clap::ValueEnum;

use super::decompress::BYTE_ORDER_MARK;
use super::delimited::Delimiter;
use super::row::ChosenFields;
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
    request_timestamp time_ns time_ms time dt msec date";

/// Usual names of the client field, the most certain first.
const KEY_NAMES: &str = "\
    client client_ip clientip client_addr remote_addr remote_ip remote_host src_ip srcip \
    source_ip sourceipaddress c-ip id.orig_h src source ip ip_address actor user user_id \
    username account api_key tenant customer key host";

/// Selects the fields of a file in which the fields `present` are known.
///
/// # Errors
/// Returns an error if an unnamed field cannot be guessed; the message lists those present.
pub fn choose(
    time: Option<&FieldList>,
    key: Option<&FieldList>,
    cost: Option<&str>,
    present: &[String],
    file: &str,
) -> Result<ChosenFields, Error> {
    let find = |name: &str| present.iter().find(|field| field.eq_ignore_ascii_case(name)).cloned();
    let list = || if present.is_empty() { "none".to_owned() } else { present.join(", ") };
    let guess = |names: &str, what: &str, flag: &str| {
        names.split(' ').find_map(find).ok_or_else(|| {
            Error::run(format!(
                "{file}: which field is the {what}? Name it with --{flag}; the fields are: {}",
                list()
            ))
        })
    };
    let time = match time {
        Some(FieldList(fields)) => fields.clone(),
        // Two columns make one time only if both are present.
        None => match (find("date"), find("time")) {
            (Some(date), Some(time)) => vec![date, time],
            _ => vec![guess(TIME_NAMES, "time", "time")?],
        },
    };
    let key = match key {
        Some(FieldList(fields)) => fields.clone(),
        None => vec![guess(KEY_NAMES, "client", "key")?],
    };
    Ok(ChosenFields { time, key, cost: cost.map(str::to_owned) })
}

/// Returns the fields of a JSON file, from the objects in its first part. The error says why the first line is not an
/// object.
///
/// # Errors
/// Returns an error if no line of the first part is a whole object.
pub fn json_names(head: &[u8], file: &str) -> Result<Vec<String>, Error> {
    let mut all: Vec<String> = Vec::new();
    let mut first_bad: Option<(String, &[u8])> = None;
    let mut objects = 0;
    for line in head_lines(head) {
        match jsonl::names(line) {
            Ok(names) => {
                objects += 1;
                all.extend(names.into_iter().filter(|name| !all.contains(name)).collect::<Vec<_>>());
            }
            Err(reason) => drop(first_bad.get_or_insert((reason, line))),
        }
        if objects == 50 {
            break;
        }
    }
    match first_bad {
        Some((reason, line)) if objects == 0 => Err(Error::run(format!(
            "{file}: no JSON object found; the first line is {reason}: {}",
            printable(line, 80)
        ))),
        _ => Ok(all),
    }
}
