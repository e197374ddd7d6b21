//! What every format hands on: one record's raw fields, or the reason why there are none.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use super::time::{TimeError, TimeFormat};

/// Between the parts of a key of several fields. Shown as ` + `.
pub const SEPARATOR: u8 = 0x1f;

/// One record's fields as text, its buffers used again for the next.
#[derive(Clone, Debug, Default)]
pub struct Row {
    time: Vec<u8>,
    key: Vec<u8>,
    key_parts: usize,
    empty_part: bool,
    cost: Option<Vec<u8>>,
    /// Values of other fields, one after the other.
    fields: Vec<u8>,
    /// Where each ends; `None` of one that is missing.
    field_ends: Vec<Option<usize>>,
    ipv6_prefix: Option<u8>,
}

impl Row {
    /// A row whose key's parts are folded to networks of this prefix length where they are addresses.
    #[must_use]
    pub fn new(ipv6_prefix: Option<u8>) -> Self {
        Self { ipv6_prefix, ..Self::default() }
    }

    /// Forgets the record.
    pub fn clear(&mut self) {
        self.time.clear();
        self.key.clear();
        self.key_parts = 0;
        self.empty_part = false;
        self.fields.clear();
        self.field_ends.clear();
        if let Some(cost) = &mut self.cost {
            cost.clear();
        }
    }

    /// Adds a part of the time; parts are joined by a space.
    pub fn add_time(&mut self, part: &[u8]) {
        if !self.time.is_empty() {
            self.time.push(b' ');
        }
        self.time.extend_from_slice(part);
    }

    /// Adds a part of the key.
    pub fn add_key(&mut self, part: &[u8]) {
        if self.key_parts > 0 {
            self.key.push(SEPARATOR);
        }
        self.key_parts += 1;
        self.empty_part |= part.is_empty();
        match self.ipv6_prefix.and_then(|prefix| fold_address(part, prefix)) {
            Some(network) => self.key.extend_from_slice(network.as_bytes()),
            None => self.key.extend_from_slice(part),
        }
    }

    /// Adds the value of another field, if the record has it. One that is empty or `-` is missing too, as logs write what there
    /// is not.
    pub fn add_field(&mut self, value: Option<&[u8]>) {
        let Some(value) = value.filter(|&value| !matches!(value, b"" | b"-")) else {
            return self.field_ends.push(None);
        };
        match self.ipv6_prefix.and_then(|prefix| fold_address(value, prefix)) {
            Some(network) => self.fields.extend_from_slice(network.as_bytes()),
            None => self.fields.extend_from_slice(value),
        }
        self.field_ends.push(Some(self.fields.len()));
    }

    /// The values of other fields, in the order in which they were added.
    pub fn fields(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.field_ends.iter().scan(0, |begin, &end| {
            let value = end.map(|end| &self.fields[*begin..end]);
            *begin = end.unwrap_or(*begin);
            Some(value)
        })
    }

    /// Sets the cost.
    pub fn set_cost(&mut self, cost: &[u8]) {
        let text = self.cost.get_or_insert_default();
        text.clear();
        text.extend_from_slice(cost);
    }

    /// The time's text.
    #[must_use]
    pub fn time(&self) -> &[u8] {
        &self.time
    }

    /// The key, unless a part of it is empty.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        (!self.empty_part && self.key_parts > 0).then_some(&self.key)
    }

    /// The cost's text, if costs are read.
    #[must_use]
    pub fn cost(&self) -> Option<&[u8]> {
        self.cost.as_deref()
    }
}

/// An IPv6 address's network of `prefix` bits, or an IPv4 address, also one that is written as IPv6.
fn fold_address(text: &[u8], prefix: u8) -> Option<String> {
    // Nothing longer is an address, and most keys that are none end here.
    if text.len() > 45 {
        return None;
    }
    let address = str::from_utf8(text).ok()?.parse::<IpAddr>().ok()?;
    Some(match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(prefix))).unwrap_or(0);
            format!("{}/{prefix}", Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    })
}

/// Why a line gives no record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Not a log line, for this cause.
    Clf(&'static str),
    /// Not JSON, or not an object, in the parser's words.
    Json(String),
    /// The record ends before this column.
    Short {
        /// The column's name.
        field: String,
        /// Its number, from 1.
        column: usize,
        /// How many the record has.
        columns: usize,
    },
    /// An object has no such field, but these.
    NoField {
        /// What was looked for.
        field: String,
        /// What is there.
        present: Vec<String>,
    },
    /// The field holds an object, a list or nothing.
    NotPlain(String),
    /// The time's text, how times are written here, and what is wrong with it.
    Time(String, TimeFormat, TimeError),
    /// The key, or one part of it, has no text.
    EmptyKey,
    /// The cost is not a whole number.
    Cost(String),
    /// The line is too long to be one.
    TooLong,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clf(what) => write!(f, "not a common or combined log line: {what}"),
            Self::Json(what) => write!(f, "not a JSON object: {what}"),
            Self::Short { field, column, columns } => {
                write!(f, "the record has {columns} columns, but {field:?} is column {column}")
            }
            Self::NoField { field, present } => {
                write!(f, "no field {field:?}; the fields are {}", present.join(", "))
            }
            Self::NotPlain(field) => write!(f, "field {field:?} is not a text or a number"),
            Self::Time(text, TimeFormat::Auto, TimeError::Syntax) => {
                write!(f, "the time {text:?} is written in no way that is known; say how with --time-format")
            }
            Self::Time(text, format, TimeError::Syntax) => {
                write!(f, "the time {text:?} is not written as {format}; see --time-format")
            }
            Self::Time(text, _, error) => write!(f, "the time {text:?} {error}"),
            Self::EmptyKey => f.write_str("the key is empty"),
            Self::Cost(text) => write!(f, "the cost {text:?} is not a whole number of units"),
            Self::TooLong => f.write_str("longer than 1 MiB: not a log line"),
        }
    }
}

/// Bytes as text for people: what is not printable is written `\xNN`, and a long text is cut.
#[must_use]
pub fn printable(bytes: &[u8], most: usize) -> String {
    let mut text = String::new();
    for chunk in bytes[..bytes.len().min(most.saturating_mul(4))].utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\u{1f}' => text.push_str(" + "),
                c if c.is_control() => text.extend(c.to_string().bytes().map(|b| format!("\\x{b:02x}"))),
                c => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(prefix: Option<u8>, parts: &[&str]) -> Option<String> {
        let mut row = Row::new(prefix);
        parts.iter().for_each(|part| row.add_key(part.as_bytes()));
        row.key().map(|key| printable(key, 200))
    }

    #[test]
    fn addresses_fold_only_when_asked_to() {
        assert_eq!(key(None, &["2001:db8::1"]).unwrap(), "2001:db8::1");
        assert_eq!(key(Some(64), &["2001:db8:0:1:aaaa::1"]).unwrap(), "2001:db8:0:1::/64");
        assert_eq!(key(Some(64), &["::ffff:192.0.2.1"]).unwrap(), "192.0.2.1");
        assert_eq!(key(Some(64), &["192.0.2.1", "2001:DB8::1"]).unwrap(), "192.0.2.1 + 2001:db8::/64");
        assert_eq!(key(Some(128), &["2001:db8::1"]).unwrap(), "2001:db8::1/128");
        assert_eq!(key(Some(0), &["2001:db8::1"]).unwrap(), "::/0");
        assert_eq!(key(Some(48), &["www.example.org"]).unwrap(), "www.example.org");
    }

    #[test]
    fn a_key_with_an_empty_part_is_none() {
        assert_eq!(key(None, &["a", "b"]).unwrap(), "a + b");
        assert_eq!(key(None, &["a", ""]), None);
        assert_eq!(key(None, &[]), None);
    }

    #[test]
    fn bytes_are_shown_as_text() {
        assert_eq!(printable(b"caf\xc3\xa9 \xff\n", 50), "café \\xff\\x0a");
        assert_eq!(printable(b"abcdef", 3), "abc…");
        assert_eq!(printable(b"abc", 3), "abc");
    }
}
