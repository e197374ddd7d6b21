//! Files and standard input as lines: plain, gzip (also with several members) or zstd, detected by their first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;

use super::{Error, plain};

const BUFFER: usize = 256 * 1024;
/// The length of the text that is inspected to detect its format.
pub const HEAD: usize = 64 * 1024;
/// The longest valid log line. The limit bounds the memory for a file without line ends.
pub const LONGEST_LINE: usize = 1024 * 1024;

/// An opened input: its decompressed text, and the first part of the text for inspection.
pub struct InputSource {
    /// The name in messages.
    pub name: String,
    /// The first [`HEAD`] bytes, or the whole first line if it is longer; `reader` returns them too.
    pub head: Vec<u8>,
    /// The compression.
    pub compression: Compression,
    /// The whole text.
    pub reader: Chain<Cursor<Vec<u8>>, Box<dyn BufRead>>,
}

/// The compression of an input.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Uncompressed.
    Plain,
    /// RFC 1952, any number of members.
    Gzip,
    /// RFC 8878, any number of frames.
    Zstd,
}

impl Compression {
    /// Detects the compression by the first bytes.
    fn of(magic: &[u8]) -> Result<Self, &'static str> {
        match magic {
            [0x1f, 0x8b, ..] => Ok(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Self::Zstd),
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => Err("bzip2"),
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Err("xz"),
            [b'P', b'K', 3, 4, ..] => Err("zip"),
            _ => Ok(Self::Plain),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

impl InputSource {
    /// Opens a file, or standard input for `-`.
    ///
    /// # Errors
    /// Returns an error if the input cannot be read, is a directory, is compressed in another way, or is empty. Also if
    /// its compressed data is broken within the first [`HEAD`] bytes.
    pub fn open(path: &Path, progress: &ProgressBar) -> Result<Self, Error> {
        if path.as_os_str() == "-" {
            return Self::from_reader("standard input", Box::new(progress.wrap_read(io::stdin())));
        }
        let name = path.display().to_string();
        let cannot = |error: io::Error| Error::run(format!("cannot read {name}: {}", plain(&error)));
        let file = File::open(path).map_err(cannot)?;
        if file.metadata().map_err(cannot)?.is_dir() {
            return Err(Error::run(format!("cannot read {name}: it is a directory; name the files in it")));
        }
        Self::from_reader(&name, Box::new(progress.wrap_read(file)))
    }

    /// Reads from any reader, as [`InputSource::open`] does from a file.
    ///
    /// # Errors
    /// The same as for [`InputSource::open`].
    pub fn from_reader(name: &str, mut raw: Box<dyn Read>) -> Result<Self, Error> {
        let mut magic = Vec::new();
        raw.by_ref()
            .take(6)
            .read_to_end(&mut magic)
            .map_err(|error| Error::run(format!("cannot read {name}: {}", plain(&error))))?;
        if magic.is_empty() {
            return Err(Error::run(format!("{name} is empty")));
        }
        let compression = Compression::of(&magic).map_err(|kind| {
            Error::run(format!(
                "{name} is {kind} data; tollgate reads plain text, gzip and zstd: decompress it first"
            ))
        })?;
        let raw = BufReader::with_capacity(BUFFER, Cursor::new(magic).chain(raw));
        let mut text: Box<dyn BufRead> = match compression {
            Compression::Plain => Box::new(raw),
            Compression::Gzip => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(raw))),
            Compression::Zstd => {
                let decoder = zstd::Decoder::with_buffer(raw);
                let decoder =
                    decoder.map_err(|error| read_error(name, compression, Position::after(b""), &error))?;
                Box::new(BufReader::with_capacity(BUFFER, decoder))
            }
        };
        let mut head = Vec::new();
        let mut read = text.by_ref().take(HEAD as u64).read_to_end(&mut head);
        if read.is_ok() && !head.contains(&b'\n') {
            // The fields are chosen by whole records.
            read = text.by_ref().take((LONGEST_LINE - HEAD) as u64).read_until(b'\n', &mut head);
        }
        read.map_err(|error| read_error(name, compression, Position::after(&head), &error))?;
        if head.is_empty() {
            return Err(Error::run(format!(
                "{name} is empty after decompression ({})",
                compression.as_str()
            )));
        }
        if let Some(encoding) = utf_16(&head) {
            return Err(Error::run(format!(
                "{name} is {encoding} text; tollgate reads UTF-8: convert it with iconv -f {encoding} -t UTF-8"
            )));
        }
        if has_cr_ends(&head) {
            head.iter_mut().for_each(as_lf);
            text = Box::new(BufReader::with_capacity(BUFFER, CrLines(text)));
        }
        let reader = Cursor::new(head.clone()).chain(text);
        Ok(Self { name: name.to_owned(), head, compression, reader })
    }
}

impl InputSource {
    /// Returns the compression that the name promises, if the data is not compressed.
    pub fn missing_compression(&self) -> Option<&'static str> {
        let extension = Path::new(&self.name).extension()?.to_str()?.to_ascii_lowercase();
        let named = match &*extension {
            "gz" => Compression::Gzip,
            "zst" => Compression::Zstd,
            _ => return None,
        };
        (self.compression == Compression::Plain).then(|| named.as_str())
    }
}

/// Returns the encoding of a text with two bytes for each letter, by its mark or by the zeros of its first letters.
fn utf_16(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Some("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("UTF-16"),
        [b' '..=b'~', 0, b' '..=b'~', 0, b' '..=b'~', 0, ..] => Some("UTF-16LE"),
        [0, b' '..=b'~', 0, b' '..=b'~', 0, b' '..=b'~', ..] => Some("UTF-16BE"),
        _ => None,
    }
}

/// Returns whether lines end in CR only, as those of old programs for Macintosh.
fn has_cr_ends(head: &[u8]) -> bool {
    let lines = head.trim_ascii();
    lines.contains(&b'\r') && !lines.contains(&b'\n')
}

fn as_lf(byte: &mut u8) {
    if *byte == b'\r' {
        *byte = b'\n';
    }
}

/// A text whose lines end in CR only, with LF instead.
struct CrLines<R>(R);

impl<R: Read> Read for CrLines<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(into)?;
        into[..read].iter_mut().for_each(as_lf);
        Ok(read)
    }
}

/// A place in the decompressed text.
#[derive(Copy, Clone, Debug)]
pub struct Position {
    /// The line, from 1.
    pub line: u64,
    /// The bytes before it.
    pub byte: u64,
}

impl Position {
    /// Returns the position of a text after `read`.
    fn after(read: &[u8]) -> Self {
        let lines = read.iter().filter(|&&b| b == b'\n').count();
        Self { line: lines as u64 + 1, byte: read.len() as u64 }
    }
}

/// Returns the message for input that ended early. The program discards the records before it: half a log gives wrong
/// answers.
pub fn read_error(name: &str, compression: Compression, at: Position, error: &io::Error) -> Error {
    let kind = compression.as_str();
    let what = match (compression, error.kind()) {
        (Compression::Plain, _) => plain(error),
        (_, io::ErrorKind::UnexpectedEof) => format!("the {kind} data ends early: the file is cut short"),
        // zstd reports a truncated frame with the kind Other.
        _ if error.to_string().contains("incomplete frame") => {
            format!("the {kind} data ends early: the file is cut short")
        }
        _ => format!("the {kind} data is damaged ({})", plain(error)),
    };
    Error::run(format!("{name}: line {}, byte {} of the text: {what}", at.line, at.byte))
}

/// A source's lines, without their `\n` or `\r\n`.
pub struct Lines {
    source: InputSource,
    line: Vec<u8>,
    position: Position,
}

/// One line.
#[derive(Copy, Clone, Debug)]
pub struct Line<'a> {
    /// Its number, from 1.
    pub number: u64,
    /// Its bytes, or the first part of it if it is too long.
    pub bytes: &'a [u8],
    /// Whether it was too long to be read whole.
    pub cut: bool,
}

impl Lines {
    /// The lines of `source`.
    pub fn new(source: InputSource) -> Self {
        Self { source, line: Vec::new(), position: Position { line: 0, byte: 0 } }
    }

    /// The next line, or `None` at the end.
    ///
    /// # Errors
    /// Returns an error if reading or decompressing fails; the message names the position.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>, Error> {
        self.line.clear();
        self.position.line += 1;
        let cut = self.read_line().map_err(|error| {
            let at = Position { line: self.position.line, byte: self.position.byte + self.line.len() as u64 };
            read_error(&self.source.name, self.source.compression, at, &error)
        })?;
        if self.line.is_empty() {
            return Ok(None);
        }
        self.position.byte += self.line.len() as u64;
        let mut bytes = &self.line[..];
        if let [rest @ .., b'\n'] = bytes {
            bytes = rest;
        }
        if let [rest @ .., b'\r'] = bytes {
            bytes = rest;
        }
        if self.position.line == 1 {
            bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        }
        Ok(Some(Line { number: self.position.line, bytes, cut }))
    }

    fn read_line(&mut self) -> io::Result<bool> {
        let reader = &mut self.source.reader;
        reader.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut self.line)?;
        let cut = self.line.len() == LONGEST_LINE && self.line.last() != Some(&b'\n');
        if cut {
            self.skip_line()?;
        }
        Ok(cut)
    }

    /// Skips the rest of a line.
    fn skip_line(&mut self) -> io::Result<()> {
        let reader = &mut self.source.reader;
        loop {
            let available = reader.fill_buf()?;
            let (end, skip) = match available.iter().position(|&b| b == b'\n') {
                Some(at) => (true, at + 1),
                None => (available.is_empty(), available.len()),
            };
            reader.consume(skip);
            self.position.byte += skip as u64;
            if end {
                return Ok(());
            }
        }
    }
}

/// The UTF-8 byte order mark, which some programs write before the first line.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
