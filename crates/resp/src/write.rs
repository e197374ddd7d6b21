//! Answers to bytes, in version 2 or 3 of the protocol.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::time::Duration;

/// The version of the protocol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Version {
    /// RESP2, the version at the start of a connection.
    Two,
    /// RESP3, after `HELLO 3`.
    Three,
}

/// Answers that wait to be sent.
#[derive(Debug)]
pub struct Replies {
    bytes: Vec<u8>,
    /// The version in which the next answer is written.
    pub version: Version,
}

impl Replies {
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), version: Version::Two }
    }

    /// The bytes that wait.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Empties the buffer. One that a large answer has grown gives its memory back.
    pub fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        if self.bytes.capacity() > keep {
            self.bytes.shrink_to(keep);
        }
    }

    /// Begins an array of this many items.
    pub fn array(&mut self, items: usize) {
        self.head(b'*', items as u64);
    }

    /// Begins a map of this many pairs. In version 2, it is an array of names and values.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Two => self.array(pairs * 2),
            Version::Three => self.head(b'%', pairs as u64),
        }
    }

    /// A short text without ends of lines.
    pub fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.end();
    }

    pub fn ok(&mut self) {
        self.simple("OK");
    }

    /// An error. Characters that would end the line, and others that a terminal would obey, are escaped.
    pub fn error(&mut self, message: impl fmt::Display) {
        self.bytes.push(b'-');
        // Writing to memory does not fail.
        let _ = write!(Escaped(&mut self.bytes), "{message}");
        self.end();
    }

    pub fn integer(&mut self, number: i64) {
        if let Ok(number) = u64::try_from(number) {
            return self.head(b':', number);
        }
        self.bytes.extend_from_slice(b":-");
        self.digits(number.unsigned_abs());
        self.end();
    }

    /// A number of units. The protocol's integers end at 2⁶³ − 1.
    pub fn count(&mut self, number: u64) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Whole seconds, rounded up: a client that waits this long does not ask too early. −1 stands for none.
    pub fn seconds(&mut self, time: Option<Duration>) {
        match time {
            None => self.integer(-1),
            Some(time) => self.count(time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))),
        }
    }

    /// Seconds with their fraction: a double in version 3, and a text in version 2. −1 stands for none.
    pub fn fraction(&mut self, time: Option<Duration>) {
        let mut text = [0_u8; 32];
        let mut rest = &mut text[..];
        // 20 digits, a point and 9 digits fit.
        let _ = match time {
            None => write!(rest, "-1"),
            Some(time) if time.subsec_nanos() == 0 => write!(rest, "{}", time.as_secs()),
            Some(time) => write!(rest, "{}.{:09}", time.as_secs(), time.subsec_nanos()),
        };
        let left = rest.len();
        let mut shown = &text[..text.len() - left];
        if shown.contains(&b'.') {
            while let Some((b'0', shorter)) = shown.split_last() {
                shown = shorter;
            }
        }
        match self.version {
            Version::Two => self.bulk(shown),
            Version::Three => {
                self.bytes.push(b',');
                self.bytes.extend_from_slice(shown);
                self.end();
            }
        }
    }

    /// A text of any bytes.
    pub fn bulk(&mut self, text: &[u8]) {
        self.head(b'$', text.len() as u64);
        self.bytes.extend_from_slice(text);
        self.end();
    }

    pub fn null(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// A kind with its number. Most have one digit.
    fn head(&mut self, kind: u8, length: u64) {
        if let Ok(digit @ 0..=9) = u8::try_from(length) {
            return self.bytes.extend_from_slice(&[kind, b'0' + digit, b'\r', b'\n']);
        }
        self.bytes.push(kind);
        self.digits(length);
        self.end();
    }

    /// `write!` takes several times as long, and an answer has five numbers.
    fn digits(&mut self, mut number: u64) {
        let mut text = [0_u8; 20];
        let mut from = text.len();
        for place in text.iter_mut().rev() {
            *place = b'0' + (number % 10) as u8;
            number /= 10;
            from -= 1;
            if number == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&text[from..]);
    }

    fn end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }
}

struct Escaped<'a>(&'a mut Vec<u8>);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character.is_control() {
                true => self.0.extend(character.escape_default().map(|ascii| ascii as u8)),
                false => self.0.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        Ok(())
    }
}

/// The beginning of a client's text, for an error.
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.0.len().min(64);
        write!(f, "'{}", self.0[..most].escape_ascii())?;
        f.write_str(if self.0.len() > most { "…'" } else { "'" })
    }
}
