//! CSV (RFC 4180, quotes and line ends inside them) and TSV (no quotes), both with a header line.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

use super::row::{Columns, Row};
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

/// Returns the first 20 fields of a CSV record as text, for a message.
pub fn shown(record: &csv::ByteRecord, delimiter: Delimiter) -> Vec<u8> {
    record.iter().take(20).collect::<Vec<_>>().join(&delimiter.byte())
}
