//! Fuzzes the recognition of log formats and the reader of `--log-format`. Random strings and lines never panic; fields
//! lie within their line, in order; what a format writes is read back; and a JSON file is read alike in pieces of any size.

#![no_main]

use std::io::{Cursor, Read};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

use tollgate_cli::input::client::Clients;
use tollgate_cli::input::decompress::InputSource;
use tollgate_cli::input::elements::{Elements, RecordPlace};
use tollgate_cli::input::fields::Format;
use tollgate_cli::input::layout::{Layout, Spans, known};
use tollgate_cli::input::prefix::Prefix;
use tollgate_cli::input::recognise::{LogFormat, ReadPlan};
use tollgate_cli::input::time::TimeFormat;
use tollgate_cli::input::{Selection, Trace, load_source, w3c};

#[derive(Arbitrary, Debug)]
enum Input {
    Format {
        format: String,
        lines: Vec<Vec<u8>>,
    },
    /// A format of fields in quotes, with the texts of one line.
    Written {
        apache: bool,
        texts: Vec<Vec<u8>>,
    },
    Known(Vec<u8>),
    Prefix(Vec<u8>),
    W3c {
        header: Vec<u8>,
        line: Vec<u8>,
    },
    Json {
        text: Vec<u8>,
        piece: u8,
    },
    File {
        inner: bool,
        bytes: Vec<u8>,
    },
}

// G88
fuzz_target!(|input: Input| {
    match input {
        Input::Format { format, lines } => log_format(&format, &lines),
        Input::Written { apache, texts } => written(apache, &texts),
        Input::Known(line) => known::all().for_each(|layout| split(&layout, &line)),
        Input::Prefix(line) => prefix(&line),
        Input::W3c { header, line } => w3c_line(&header, &line),
        Input::Json { text, piece } => json(&text, piece),
        Input::File { inner, bytes } => file(inner, bytes),
    }
});

/// A string is compiled or refused with a reason.
fn log_format(format: &str, lines: &[Vec<u8>]) {
    match format.parse::<LogFormat>() {
        Ok(LogFormat::Layout(layout)) => lines.iter().for_each(|line| split(&layout, line)),
        Ok(LogFormat::Common) => {}
        Err(why) => assert!(!why.is_empty()),
    }
}

/// The fields of a line lie within it, in order.
fn split(layout: &Layout, line: &[u8]) {
    let mut spans = Spans::new();
    if layout.split(line, &mut spans).is_ok() {
        let mut last = 0;
        for &(begin, end) in &spans {
            assert!(last <= begin && begin <= end && end <= line.len(), "{spans:?} of {line:?}");
            last = end;
        }
        assert!(layout.fields(line, &mut spans).is_some());
    }
}

/// Texts in quotes are read back, if the server escapes quotes in them.
fn written(apache: bool, texts: &[Vec<u8>]) {
    // One field in quotes is a whole string in quotes.
    if texts.len() < 2 || texts.len() > 20 {
        return;
    }
    let name = |n: usize| if apache { format!("\"%{{x{n}}}i\"") } else { format!("\"$http_x{n}\"") };
    let format: Vec<String> = (0..texts.len()).map(name).collect();
    let layout = Layout::compile("written", &format.join(" ")).unwrap_or_else(|why| panic!("{why}"));
    let escaped = |text: &Vec<u8>| {
        let inner = text.iter().flat_map(|&b| match b {
            b'"' | b'\\' => vec![b'\\', b],
            b'\n' => vec![b'_'],
            b => vec![b],
        });
        inner.collect::<Vec<u8>>()
    };
    let texts: Vec<Vec<u8>> = texts.iter().map(escaped).collect();
    let line = [b"\"", &*texts.join(&b"\" \""[..]), b"\""].concat();
    let mut spans = Spans::new();
    layout.split(&line, &mut spans).unwrap_or_else(|field| panic!("{field}: {line:?}"));
    assert!(spans.iter().map(|&(begin, end)| &line[begin..end]).eq(texts.iter().map(Vec::as_slice)));
}

/// What follows a prefix is the end of the line.
fn prefix(line: &[u8]) {
    for prefix in Prefix::ALL {
        if let Some(cut) = prefix.cut(line) {
            assert!(line.ends_with(cut.rest) && cut.rest.len() < line.len(), "{prefix:?}");
        }
    }
}

/// Columns lie within their line.
fn w3c_line(header: &[u8], line: &[u8]) {
    let _ = w3c::declared(&[b"#Fields:", header].concat());
    let mut places = Vec::new();
    w3c::split(line, &mut places);
    assert!(places.iter().all(|place| place.start <= place.end && place.end <= line.len()));
}

/// A reader that returns a few bytes at a time.
struct Pieces(Cursor<Vec<u8>>, usize);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = buffer.len().min(self.1);
        self.0.read(&mut buffer[..length])
    }
}

/// The records of a JSON file do not depend on how it is read, and each is a part of it.
fn json(text: &[u8], piece: u8) {
    let Some(place) = RecordPlace::guess(text, |name| name == "t") else { return };
    let records = |size: usize| {
        let reader = Box::new(Pieces(Cursor::new(text.to_vec()), size));
        let source = InputSource::from_reader("input", reader).unwrap_or_else(|why| panic!("{why}"));
        let mut elements = Elements::new(source, place.clone());
        let mut records = Vec::new();
        while let Ok(Some(record)) = elements.next_record() {
            assert!(record.bytes.starts_with(b"{"));
            records.push(record.bytes.to_vec());
        }
        records
    };
    if !matches!(text, [0x1f | 0x28 | 0x50..=0x5f | 0x42 | 0xfd, ..]) {
        assert_eq!(records(usize::from(piece) + 1), records(usize::MAX));
    }
}

/// A file of random bytes is read or refused.
fn file(inner: bool, bytes: Vec<u8>) {
    let selection = Selection {
        files: Vec::new(),
        format: Format::Auto,
        log_format: None,
        inner: inner.then(|| "log".to_owned()),
        time: None,
        time_format: TimeFormat::Auto,
        key: None,
        cost: None,
        delimiter: None,
        clients: Clients::default(),
        strict: false,
        allow_skipped: false,
        no_sort: false,
    };
    let _ = ReadPlan::guess(&bytes, &selection);
    let mut trace = Trace::default();
    if let Ok(source) = InputSource::from_reader("input", Box::new(Cursor::new(bytes))) {
        let _ = load_source(source, &selection, &mut trace);
    }
    assert!(trace.records.iter().all(|record| (record.key as usize) < trace.keys.len()));
}
