//! Bytes to commands: arrays of texts, and lines that people type.
//!
//! A command is read in place. Its texts are ranges of the buffer, so nothing is copied. A command that has arrived in part is not read
//! again from its beginning.

use std::borrow::Cow;
use std::ops::Range;

use tollgate_report::decimal::{self, Scaled};

/// The longest line that a person types, and the longest line of an array's head.
const LINE: usize = 64 << 10;
const HEAD: usize = 32;

/// What a client may send before it has given a password.
const UNAUTHENTICATED: Limits = Limits { args: 10, bytes: 16 << 10 };

/// The bounds of one command.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// The most texts.
    pub args: usize,
    /// The most bytes, with those of the protocol.
    pub bytes: usize,
}

impl Limits {
    /// Returns the bounds of a client that has not given a password yet.
    pub fn before_password(self) -> Self {
        Self { args: self.args.min(UNAUTHENTICATED.args), bytes: self.bytes.min(UNAUTHENTICATED.bytes) }
    }
}

/// A client that breaks the rules of the protocol. The text tells it how.
pub type Fault = Cow<'static, str>;

/// Reads commands at the front of a buffer.
#[derive(Debug, Default)]
pub struct Reader {
    /// The texts of the command that have arrived.
    args: Vec<Range<usize>>,
    /// How many texts of an array are still to come.
    missing: usize,
    /// Where reading goes on: after the texts of an array, or up to where the end of a line was looked for.
    at: usize,
    /// Whether the command is an array. `None` before its first byte.
    is_array: Option<bool>,
}

/// The texts of a command. The first is its name.
#[derive(Copy, Clone, Debug)]
pub struct Args<'a> {
    input: &'a [u8],
    ranges: &'a [Range<usize>],
}

impl<'a> Args<'a> {
    /// The texts in these parts of a buffer.
    pub const fn of(input: &'a [u8], ranges: &'a [Range<usize>]) -> Self {
        Self { input, ranges }
    }

    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        self.input.get(self.ranges.get(index)?.clone())
    }

    pub const fn len(self) -> usize {
        self.ranges.len()
    }

    /// Returns the texts from this one on.
    pub fn from(self, first: usize) -> Self {
        Self { ranges: self.ranges.get(first..).unwrap_or_default(), ..self }
    }

    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.ranges.iter().filter_map(move |range| self.input.get(range.clone()))
    }
}

impl Reader {
    /// Reads on, in a buffer that begins with the same command as in the last call. Returns the length of the command when all of it has
    /// arrived: see [`Reader::args`]. A length without texts is to be passed over.
    ///
    /// # Errors
    /// If the bytes are no command, or more than the limits permit. Nothing that follows can be read.
    pub fn read(&mut self, input: &mut [u8], limits: Limits) -> Result<Option<usize>, Fault> {
        let is_array = match (self.is_array, input.first()) {
            (Some(is_array), _) => is_array,
            (None, None) => return Ok(None),
            (None, Some(first)) => {
                self.args.clear();
                (self.missing, self.at) = (0, 0);
                *self.is_array.insert(*first == b'*')
            }
        };
        let read = if is_array { self.array(input, limits)? } else { self.inline(input, limits)? };
        if read.is_some() {
            self.is_array = None;
        }
        Ok(read)
    }

    /// Returns the texts of the command that was read last, in the same buffer.
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        Args { input, ranges: &self.args }
    }

    fn array(&mut self, input: &[u8], limits: Limits) -> Result<Option<usize>, Fault> {
        if self.at == 0 {
            let Some((count, at)) = self.head(input)? else { return Ok(None) };
            let count = count.ok_or("invalid multibulk length")?;
            // A negative one is an array that does not exist. It is passed over.
            self.missing = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
            if self.missing > limits.args {
                return Err(
                    format!("invalid multibulk length: a command has at most {} texts", limits.args).into()
                );
            }
            self.at = at;
        }
        while self.missing > 0 {
            match input.get(self.at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => return Err(format!("expected '$', got '{}'", other.escape_ascii()).into()),
            }
            let Some((length, at)) = self.head(input)? else { return Ok(None) };
            let length =
                length.and_then(|length| usize::try_from(length).ok()).ok_or("invalid bulk length")?;
            let end = at.saturating_add(length);
            if end.saturating_add(2) > limits.bytes {
                return Err(too_long(limits));
            }
            let Some(after) = input.get(end..end + 2) else { return Ok(None) };
            if after != b"\r\n" {
                return Err("a text is longer than its length says".into());
            }
            self.args.push(at..end);
            self.missing -= 1;
            self.at = end + 2;
        }
        Ok(Some(self.at))
    }

    /// Reads the number in a line that begins with a letter for its kind. Returns it with the place after the line.
    fn head(&mut self, input: &[u8]) -> Result<Option<(Option<i64>, usize)>, Fault> {
        let Some(line) = input.get(self.at..) else { return Ok(None) };
        // Most numbers are short, and a command has one for each text.
        match *line {
            [_, one @ b'0'..=b'9', b'\r', b'\n', ..] => {
                return Ok(Some((Some((one - b'0').into()), self.at + 4)));
            }
            [_, ten @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
                return Ok(Some((Some((10 * (ten - b'0') + (one - b'0')).into()), self.at + 5)));
            }
            _ => {}
        }
        let Some(length) = line.iter().take(HEAD).position(|byte| *byte == b'\n') else {
            return match line.len() >= HEAD {
                true => Err("too big count string".into()),
                false => Ok(None),
            };
        };
        let number = line[..length].strip_suffix(b"\r").and_then(|line| integer(line.get(1..)?));
        Ok(Some((number, self.at + length + 1)))
    }

    /// Reads a line of words, as people type them.
    fn inline(&mut self, input: &mut [u8], limits: Limits) -> Result<Option<usize>, Fault> {
        let most = LINE.min(limits.bytes);
        let too_big = || Err("too big inline request".into());
        let rest = input.get(self.at..).unwrap_or_default();
        let Some(more) = rest.iter().position(|byte| *byte == b'\n') else {
            self.at = input.len();
            return if self.at > most { too_big() } else { Ok(None) };
        };
        let end = self.at + more;
        if end > most {
            return too_big();
        }
        if self.words(&mut input[..end], limits)? { Ok(Some(end + 1)) } else { too_big() }
    }

    /// Splits a line at spaces. Quoted words are written over themselves without their quotes, which makes them shorter. Returns whether
    /// there are as few words as the limits permit.
    fn words(&mut self, line: &mut [u8], limits: Limits) -> Result<bool, Fault> {
        let (mut from, mut to) = (0, 0);
        loop {
            while line.get(from).is_some_and(u8::is_ascii_whitespace) {
                from += 1;
            }
            if from >= line.len() {
                return Ok(true);
            }
            if self.args.len() == limits.args {
                return Ok(false);
            }
            let start = to;
            let mut quote = None;
            while let Some(&byte) = line.get(from) {
                let (written, width) = match (quote, byte) {
                    (None, b'"' | b'\'') => (None, 1),
                    (None, _) if byte.is_ascii_whitespace() => break,
                    (Some(b'"'), b'\\') => escaped(&line[from..]),
                    (Some(b'\''), b'\\') if line.get(from + 1) == Some(&b'\'') => (Some(b'\''), 2),
                    (Some(open), _) if open == byte => (None, 1),
                    _ => (Some(byte), 1),
                };
                from += width;
                match written {
                    Some(byte) => {
                        line[to] = byte;
                        to += 1;
                    }
                    None if quote.take().is_none() => quote = Some(byte),
                    // A word ends at its quote.
                    None if line.get(from).is_some_and(|next| !next.is_ascii_whitespace()) => {
                        return Err("unbalanced quotes in request".into());
                    }
                    None => {}
                }
            }
            if quote.is_some() {
                return Err("unbalanced quotes in request".into());
            }
            self.args.push(start..to);
        }
    }
}

/// Returns the byte that an escape in double quotes stands for, and the length of the escape.
fn escaped(text: &[u8]) -> (Option<u8>, usize) {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match text {
        [_, b'x', high, low, ..] if digit(high).is_some() && digit(low).is_some() => {
            (digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low), 4)
        }
        [_, b'n', ..] => (Some(b'\n'), 2),
        [_, b'r', ..] => (Some(b'\r'), 2),
        [_, b't', ..] => (Some(b'\t'), 2),
        [_, b'b', ..] => (Some(8), 2),
        [_, b'a', ..] => (Some(7), 2),
        [_, other, ..] => (Some(*other), 2),
        _ => (Some(b'\\'), 1),
    }
}

fn too_long(limits: Limits) -> Fault {
    format!("invalid bulk length: a command has at most {} bytes", limits.bytes).into()
}

/// Returns the whole number that a text contains: digits, with a sign if it is negative.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    let mut number = 0_i64;
    for byte in digits {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    Some(if negative { -number } else { number })
}

/// Returns the nanoseconds in a text of seconds, which may have a fraction. A part of a nanosecond counts as one.
pub fn nanos(text: &[u8]) -> Option<u64> {
    if let Some(whole) = integer(text) {
        return u64::try_from(whole).ok()?.checked_mul(1_000_000_000);
    }
    let Scaled { value, exact } = decimal::scaled(text, 9).ok()?;
    value.checked_add(u64::from(!exact))
}

#[cfg(test)]
mod tests {
    use super::*;

    // G141
    #[test]
    fn lines_of_many_words_take_little_memory() {
        let limits = Limits { args: 10, bytes: 1 << 20 };
        let mut reader = Reader::default();
        let mut line = b"a ".repeat(20_000);
        line.push(b'\n');
        assert!(reader.read(&mut line, limits).is_err());
        assert!(reader.args.capacity() <= 16, "{}", reader.args.capacity());
        let mut line = *b"a b c d e f g h i j\n";
        assert_eq!(Reader::default().read(&mut line, limits), Ok(Some(20)));
    }
}
