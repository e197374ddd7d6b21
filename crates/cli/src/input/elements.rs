//! JSON files whose records are not one on a line: an array of objects, an object with such an array under one name, and
//! objects that have several lines. Each record is returned as if it were a line, without the whole file in memory.

use std::borrow::Cow;
use std::io::BufRead;

use super::decompress::{InputSource, LONGEST_LINE, Line, Position, read_error};
use super::jsonl;
use super::time::is_moment;
use tollgate_report::error::Error;

/// Where the records of a file are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordPlace {
    /// Objects after each other.
    Objects,
    /// The elements of an array.
    Array,
    /// The elements of the array of this name in an object.
    Named(String),
}

impl RecordPlace {
    /// Returns the place of the records, if they are not lines. `is_time` tells whether a name is that of a record's time.
    pub fn guess(head: &[u8], is_time: impl Fn(&str) -> bool) -> Option<Self> {
        let head = head.trim_ascii_start();
        let first = head.split(|&b| b == b'\n').next().unwrap_or_default();
        let inside = head.get(1..)?.trim_ascii_start();
        match head[0] {
            b'[' if matches!(inside.first(), None | Some(b'{' | b']')) => Some(Self::Array),
            b'{' => {
                let is_whole = jsonl::fields(first);
                let others = head.split(|&b| b == b'\n').skip(1).take(20);
                if is_whole.is_err() && others.filter(|line| jsonl::fields(line).is_ok()).count() > 1 {
                    // A line that is damaged, before lines that are not.
                    return None;
                }
                let mut object = Scanner::default();
                let end = head.iter().position(|&b| {
                    object.step(b);
                    object.stack.is_empty()
                });
                let (object, rest) = head.split_at(end.map_or(0, |end| end + 1));
                // One of several objects has the time of a record under any name.
                let several = rest.trim_ascii_start().starts_with(b"{") && end.is_some();
                let is_of_record = |(name, value): &(String, Cow<'_, [u8]>)| {
                    is_time(name) || several && !name.contains(['.', '[']) && is_moment(value)
                };
                let of_record = jsonl::fields(object).is_ok_and(|fields| fields.iter().any(is_of_record));
                let named = Scanner::default().array_name(head).filter(|_| !of_record).map(Self::Named);
                named.or_else(|| is_whole.is_err().then_some(Self::Objects))
            }
            _ => None,
        }
    }
}

/// The position within a JSON text.
#[derive(Debug, Default)]
struct Scanner {
    /// The open brackets outside of the record.
    stack: Vec<u8>,
    quoted: bool,
    escaped: bool,
    /// The last text at the level of names, without escapes.
    name: Vec<u8>,
    /// The name before the array that is open.
    array: Vec<u8>,
}

impl Scanner {
    /// Reads a byte.
    fn step(&mut self, b: u8) {
        if self.quoted {
            match b {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.quoted = false,
                _ if self.stack == b"{" && self.name.len() < 256 => self.name.push(b),
                _ => {}
            }
            return;
        }
        match b {
            b'"' => {
                self.quoted = true;
                if self.stack == b"{" {
                    self.name.clear();
                }
            }
            b'{' | b'[' => {
                if self.stack == b"{" {
                    self.array.clone_from(&self.name);
                }
                self.stack.push(b);
            }
            b'}' | b']' => drop(self.stack.pop()),
            _ => {}
        }
    }

    /// Whether an object that begins here is a record.
    fn is_record(&self, place: &RecordPlace) -> bool {
        match place {
            RecordPlace::Objects => self.stack.is_empty(),
            RecordPlace::Array => self.stack == b"[",
            RecordPlace::Named(name) => self.stack == b"{[" && self.array == name.as_bytes(),
        }
    }

    /// Returns the name of the first array of objects in an object.
    fn array_name(mut self, text: &[u8]) -> Option<String> {
        for &b in text {
            if b == b'{' && !self.quoted && self.stack == b"{[" {
                return String::from_utf8(self.array).ok();
            }
            self.step(b);
            if self.stack.is_empty() {
                return None;
            }
        }
        None
    }
}

/// The records of a source.
pub struct Elements {
    source: InputSource,
    place: RecordPlace,
    scanner: Scanner,
    record: Vec<u8>,
    position: Position,
    /// The line where the last record begins.
    last: u64,
    /// The name of another array with objects.
    other: Option<Vec<u8>>,
}

impl Elements {
    /// Returns the records of `source`.
    pub fn new(source: InputSource, place: RecordPlace) -> Self {
        let position = Position { line: 1, byte: 0 };
        Self {
            source,
            place,
            scanner: Scanner::default(),
            record: Vec::new(),
            position,
            last: 1,
            other: None,
        }
    }

    /// Returns the name of another array with objects, which are not read.
    pub fn other(&self) -> Option<&[u8]> {
        self.other.as_deref()
    }

    /// Returns the next record, with the number of its first line, or `None` at the end.
    ///
    /// # Errors
    /// Returns an error if reading or decompressing fails, or if the text ends inside a record or an array; the message
    /// names the position.
    pub fn next_record(&mut self) -> Result<Option<Line<'_>>, Error> {
        self.record.clear();
        // The brackets that were open where the record began.
        let mut outside: Option<(usize, u64)> = None;
        let (mut cut, mut done) = (false, false);
        while !done {
            let buffer = match self.source.reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) => {
                    return Err(read_error(
                        &self.source.name,
                        self.source.compression,
                        self.position,
                        &error,
                    ));
                }
            };
            if buffer.is_empty() {
                return self.ended(outside.map(|(_, line)| line));
            }
            let mut used = 0;
            for &b in buffer {
                used += 1;
                if b == b'{' && outside.is_none() && !self.scanner.quoted {
                    if self.scanner.is_record(&self.place) {
                        outside = Some((self.scanner.stack.len(), self.position.line));
                        self.last = self.position.line;
                    } else if self.scanner.stack == b"{[" && self.other.is_none() {
                        self.other = Some(self.scanner.array.clone());
                    }
                }
                self.scanner.step(b);
                self.position.line += u64::from(b == b'\n');
                if let Some((depth, _)) = outside {
                    if self.record.len() < LONGEST_LINE {
                        // A record is one line in messages.
                        self.record.push(if matches!(b, b'\n' | b'\r') { b' ' } else { b });
                    } else {
                        cut = true;
                    }
                    if self.scanner.stack.len() == depth {
                        done = true;
                        break;
                    }
                }
            }
            self.source.reader.consume(used);
            self.position.byte += used as u64;
        }
        Ok(outside.map(|(_, number)| Line { number, bytes: &self.record, cut }))
    }

    /// Returns the end of the records, or an error if the text ends before a record that begins in line `inside` does, or
    /// before what is around the records: some are then lost.
    fn ended(&self, inside: Option<u64>) -> Result<Option<Line<'_>>, Error> {
        let what = match inside {
            None if self.scanner.stack.is_empty() && !self.scanner.quoted => return Ok(None),
            None => "after the record that begins here, the JSON text is not closed",
            Some(_) => "the JSON record that begins here does not end",
        };
        Err(Error::run(format!(
            "{}: line {}: {what}: the file is cut short, or a text has a quote without \\; repair or remove the record, and \
             close the array with ]",
            self.source.name, self.last
        )))
    }
}
