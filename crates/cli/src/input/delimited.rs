//! CSV (RFC 4180, quotes and line ends inside them) and TSV (no quotes), both with a header line.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::net::IpAddr;
use std::rc::Rc;
use std::str::FromStr;

use memchr::memchr;

use super::decompress::LONGEST_LINE;
use super::row::{Columns, Row};
use super::time::{is_day, is_moment};
use tollgate_report::error::Error;
use tollgate_report::text::printable;

/// The byte between two columns of CSV.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Delimiter(u8);

impl Delimiter {
    pub const COMMA: Self = Self(b',');
    pub const TAB: Self = Self(b'\t');

    /// The delimiters that are recognised, in the order in which they are preferred.
    const USUAL: [Self; 3] = [Self::COMMA, Self(b';'), Self(b'|')];

    /// Returns the delimiter that occurs most often in a header outside of quotes; `None` if there is none.
    pub fn guess(header: &[u8]) -> Option<Self> {
        let mut is_quoted = false;
        let mut counts = [0_u32; Self::USUAL.len()];
        for &byte in header {
            is_quoted ^= byte == b'"';
            let at = Self::USUAL.iter().position(|usual| usual.0 == byte && !is_quoted);
            if let Some(count) = at.and_then(|at| counts.get_mut(at)) {
                *count += 1;
            }
        }
        // If two occur equally often, the first one is chosen.
        let each = Self::USUAL.into_iter().zip(counts).rev().filter(|&(_, count)| count > 0);
        each.max_by_key(|&(_, count)| count).map(|(delimiter, _)| delimiter)
    }

    pub const fn byte(self) -> u8 {
        self.0
    }
}

impl FromStr for Delimiter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "\\t" | "tab" => Ok(Self::TAB),
            _ => match *text.as_bytes() {
                [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(Self(byte)),
                _ => Err("expected one ASCII character other than a quote, such as ';', or \\t for a tab"),
            },
        }
    }
}

impl fmt::Display for Delimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(self.0).escape_debug())
    }
}

/// The most text that is read for one record. A quote without an end makes one record of all that follows it.
pub const LONGEST_RECORD: usize = 2 * LONGEST_LINE;

/// The most lines of one record. Fields may have line ends, but a quote without an end would hide all lines after it.
pub const MOST_LINES: u64 = 100;

/// A text whose records take a bounded memory each: the end of a line that is longer than [`LONGEST_LINE`] is left out, and a
/// record that is longer than [`LONGEST_RECORD`] is an error.
pub struct Bounded<R> {
    text: R,
    /// The length of the line, as far as it was read.
    line: usize,
    /// The length of all that was read since the record before. Empty lines are no record, so they do not count.
    record: Rc<Cell<usize>>,
}

impl<R: Read> Bounded<R> {
    /// Reads this text. `record` is set to 0 at the end of each record.
    pub fn new(text: R, record: Rc<Cell<usize>>) -> Self {
        Self { text, line: 0, record }
    }

    /// Moves the parts of the lines that are short enough to the front, and returns their length.
    fn keep(&mut self, text: &mut [u8]) -> usize {
        let (mut kept, mut from) = (0, 0);
        while from < text.len() {
            let end = memchr(b'\n', &text[from..]).map(|at| from + at);
            let length = end.unwrap_or(text.len()) - from;
            let short = length.min(LONGEST_LINE.saturating_sub(self.line));
            text.copy_within(from..from + short, kept);
            (kept, self.line) = (kept + short, self.line + short);
            self.record.set(self.record.get() + if length > 1 { short } else { 0 });
            from += length;
            if end.is_some() {
                text[kept] = b'\n';
                (kept, from, self.line) = (kept + 1, from + 1, 0);
            }
        }
        kept
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.text.read(into)?;
            let kept = self.keep(&mut into[..read]);
            if self.record.get() > LONGEST_RECORD {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            if kept > 0 || read == 0 {
                return Ok(kept);
            }
        }
    }
}

/// Returns a reader of records. TSV has no quotes.
pub fn reader<R: Read>(text: R, delimiter: Delimiter, quotes: bool) -> csv::Reader<R> {
    let mut settings = csv::ReaderBuilder::new();
    settings.delimiter(delimiter.byte()).quoting(quotes).flexible(true).buffer_capacity(1 << 16);
    settings.from_reader(text)
}

/// Takes the fields of one record; `field` returns each column. `names` are those in the header.
///
/// # Errors
/// Returns an error if the record is too short.
pub fn extract<'a>(
    columns: &Columns<usize>,
    names: &[String],
    field: impl Fn(usize) -> Option<&'a [u8]>,
    count: usize,
    row: &mut Row,
) -> Result<(), String> {
    let get = |&column: &usize| {
        field(column).ok_or_else(|| {
            format!("the record has {count} columns, but {:?} is column {}", names[column], column + 1)
        })
    };
    columns.take(row, get, |&column| field(column))
}

/// Returns a header's names; bytes that are not text are escaped.
pub fn header<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    fields.map(|field| printable(field.trim_ascii(), 200)).collect()
}

/// Refuses a header that is a record: with its values as names, the first request would be lost.
///
/// # Errors
/// Returns an error if a name is a time or an address.
pub fn check_header(names: &[String], file: &str) -> Result<(), Error> {
    let is_value = |name: &&String| {
        is_moment(name.as_bytes()) || is_day(name.as_bytes()) || name.parse::<IpAddr>().is_ok()
    };
    if names.first().is_some_and(|name| name.starts_with("sep=")) {
        return Err(Error::run(format!(
            "{file}: the first line names the separator for Excel instead of the columns; remove it: tail -n +2 {file}"
        )));
    }
    let Some(value) = names.iter().find(is_value) else { return Ok(()) };
    Err(Error::run(format!(
        "{file}: what are the names of the columns? The first line seems to be a record, because {value:?} is a value. Put a line \
         with their names before it, such as time,ip; or name the format of the lines with --log-format"
    )))
}

/// Returns the first 20 fields of a CSV record as text, for a message.
pub fn shown(record: &csv::ByteRecord, delimiter: Delimiter) -> Vec<u8> {
    record.iter().take(20).collect::<Vec<_>>().join(&delimiter.byte())
}
