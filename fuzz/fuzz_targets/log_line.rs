//! Fuzzes the readers of the replay tool. Lines, times, numbers and whole files of random bytes never panic. The
//! results equal those of simple oracles.

#![no_main]

use std::io::Cursor;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

use tollgate_cli::input::client::Clients;
use tollgate_cli::input::decompress::InputSource;
use tollgate_cli::input::delimited::{self, Delimiter};
use tollgate_cli::input::fields::{FieldList, Format};
use tollgate_cli::input::row::{ChosenFields, Columns, Row};
use tollgate_cli::input::sample::Sample;
use tollgate_cli::input::time::{TimeFormat, TimeParser};
use tollgate_cli::input::{Selection, Trace, clf, jsonl, load_source};
use tollgate_report::decimal::{self, DecimalError};
use tollgate_report::text::printable;

#[derive(Arbitrary, Debug)]
enum Input {
    Clf(Vec<u8>),
    /// Random text in the place of the request, in an otherwise valid line.
    Request(Vec<u8>),
    Json(Vec<u8>),
    Tsv(Vec<u8>),
    Time(u8, Vec<u8>),
    Number(i8, Vec<u8>),
    Decimal {
        whole: u32,
        fraction: u16,
        power: u8,
    },
    File {
        format: u8,
        named: bool,
        bytes: Vec<u8>,
    },
}

// G88
fuzz_target!(|input: Input| {
    match input {
        Input::Clf(line) => clf_line(&line),
        Input::Request(request) => clf_request(&request),
        Input::Json(line) => json(&line),
        Input::Tsv(line) => tsv(&line),
        Input::Time(format, text) => time(format, &text),
        Input::Number(power, text) => drop(decimal::scaled(&text, i32::from(power))),
        Input::Decimal { whole, fraction, power } => number(whole, fraction, power % 24),
        Input::File { format, named, bytes } => file(format, named, bytes),
    }
});

/// If a line parses, its parts occur in the line, and the required parts are well-formed.
fn clf_line(line: &[u8]) {
    let Ok(parsed) = clf::parse(line) else { return };
    assert!(line.first() == Some(&b'"') || !parsed.host.is_empty());
    assert!(
        parsed.status == b"-" || parsed.status.len() == 3 && parsed.status.iter().all(u8::is_ascii_digit)
    );
    for name in clf::names() {
        let field = clf::sample().column(name).unwrap_or_else(|| panic!("no field is called {name}"));
        assert!(clf::text(&parsed, field).len() <= line.len().max(1));
    }
    assert!(line.len() <= 1000 || printable(line, 100).chars().count() <= 101);
}

/// If servers escape quotes, a request of any text is read back whole.
fn clf_request(request: &[u8]) {
    let mut line = b"192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] \"".to_vec();
    let mut escaped = Vec::new();
    for &b in request {
        if matches!(b, b'"' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(b);
    }
    line.extend_from_slice(&escaped);
    line.extend_from_slice(b"\" 404 17 \"-\" \"x\"");
    let parsed = clf::parse(&line).unwrap_or_else(|reason| panic!("{reason}"));
    assert_eq!((parsed.request, parsed.status, parsed.bytes), (&escaped[..], &b"404"[..], &b"17"[..]));
    assert_eq!((parsed.referer, parsed.agent), (&b"-"[..], &b"x"[..]));
}

/// A line that a very strict reader accepts is also accepted here, with the same text.
fn json(line: &[u8]) {
    let names = |name: &str| vec![name.to_owned()];
    let mut row = Row::new(None);
    let columns = jsonl::JsonColumns { time: names("t"), key: names("a.b"), cost: None, others: Vec::new() };
    let read = columns.extract(line, &mut row);
    let _ = jsonl::fields(line);
    let Ok(tree) = flat_object(line) else { return };
    let text = |value: &Tree| match value {
        Tree::Text(text) => Some(text.clone()),
        Tree::Other => None,
        Tree::Object(_) => None,
    };
    let Tree::Object(fields) = &tree else {
        assert!(read.is_err());
        return;
    };
    let last = |fields: &[(String, Tree)], name: &str| {
        fields.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let (Some(time), Some(key)) = (last(fields, "t"), last(fields, "a.b")) else { return };
    if let (Some(time), Some(key)) = (text(&time), text(&key)) {
        read.unwrap_or_else(|reason| panic!("{reason}"));
        assert_eq!(row.time(), time.as_bytes());
        assert_eq!(row.key().ok(), (!key.is_empty()).then_some(key.as_bytes()));
    }
}

/// A JSON value, as detailed as the comparison needs: strings, objects in order, and all other values as one case.
#[derive(Clone)]
enum Tree {
    Text(String),
    Object(Vec<(String, Tree)>),
    Other,
}

fn flat_object(line: &[u8]) -> Result<Tree, ()> {
    // The reader under test uses serde_json, so the oracle does not. The oracle reads flat objects of strings and
    // nulls, without blanks.
    let text = str::from_utf8(line).map_err(drop)?;
    let mut rest = text.trim_matches([' ', '\t', '\r', '\n']).strip_prefix('{').ok_or(())?;
    let mut fields = Vec::new();
    let string = |rest: &mut &str| -> Result<String, ()> {
        let inner = rest.strip_prefix('"').ok_or(())?;
        let end = inner.find('"').ok_or(())?;
        let content = &inner[..end];
        if content.contains('\\') || content.chars().any(|c| c < ' ') {
            return Err(());
        }
        *rest = &inner[end + 1..];
        Ok(content.to_owned())
    };
    if rest == "}" {
        return Ok(Tree::Object(fields));
    }
    loop {
        let name = string(&mut rest)?;
        rest = rest.strip_prefix(':').ok_or(())?;
        if let Some(after) = rest.strip_prefix("null") {
            fields.push((name, Tree::Other));
            rest = after;
        } else {
            let value = string(&mut rest)?;
            fields.push((name, Tree::Text(value)));
        }
        if rest == "}" {
            return Ok(Tree::Object(fields));
        }
        rest = rest.strip_prefix(',').ok_or(())?;
    }
}

/// Columns equal those of a plain split.
fn tsv(line: &[u8]) {
    if line.is_empty() || line.iter().any(|b| matches!(b, b'\n' | b'\r')) {
        return;
    }
    let text = [b"k\tx\tt\n", line].concat();
    let mut reader = delimited::reader(&*text, Delimiter::TAB, false);
    let header = reader.byte_headers().map(|header| delimited::header(header.iter()));
    let sample = Sample::of_header(&header.unwrap_or_else(|error| panic!("{error}")));
    let chosen = ChosenFields { time: vec!["t".to_owned()], key: vec!["k".to_owned()], cost: None };
    let columns = Columns::new(&chosen, &[], |name| sample.column(name))
        .unwrap_or_else(|name| panic!("the header has no column {name}"));
    let mut row = Row::new(Some(Clients::default()));
    let record = reader.byte_records().flatten().next().unwrap_or_default();
    let field = |column| record.get(column);
    let read = delimited::extract(&columns, &sample.names(), field, record.len(), &mut row);
    let split: Vec<&[u8]> = line.split(|&b| b == b'\t').collect();
    assert_eq!(read.is_ok(), split.len() >= 3);
    if read.is_ok() {
        assert_eq!(row.time(), split[2]);
        assert!(row.key().is_err() || !split[0].is_empty());
    }
}

/// After an automatic format has settled, it reads the same text as the same time again.
fn time(format: u8, text: &[u8]) {
    let formats =
        ["auto", "rfc3339", "clf", "s", "ms", "us", "ns", "%Y-%m-%d %H:%M:%S%.f", "%d/%b/%Y %z", "%s"];
    let format: TimeFormat =
        formats[usize::from(format) % formats.len()].parse().unwrap_or_else(|error| panic!("{error}"));
    let mut parser = TimeParser::new(format, &[]);
    if let Ok(first) = parser.parse(text) {
        assert_eq!(parser.parse(text), Ok(first));
        assert_ne!(*parser.format(), TimeFormat::Auto);
    }
}

/// Compares decimals with integer arithmetic.
fn number(whole: u32, fraction: u16, power: u8) {
    let text = format!("{whole}.{fraction:05}");
    let digits = u128::from(whole) * 100_000 + u128::from(fraction);
    let value = match power.checked_sub(5) {
        Some(more) => digits * 10_u128.pow(u32::from(more)),
        None => digits / 10_u128.pow(5 - u32::from(power)),
    };
    match decimal::scaled(text.as_bytes(), i32::from(power)) {
        Ok(scaled) => assert_eq!(u128::from(scaled.value), value),
        Err(error) => assert!(error == DecimalError::TooLarge && value > u128::from(u64::MAX)),
    }
}

/// A file of random bytes, compressed or not, is read or rejected; each record has a key.
fn file(format: u8, named: bool, bytes: Vec<u8>) {
    let formats = [Format::Auto, Format::Clf, Format::Jsonl, Format::Csv, Format::Tsv];
    let name = |name: &str| named.then(|| FieldList(vec![name.to_owned()]));
    let selection = Selection {
        files: Vec::new(),
        format: formats[usize::from(format) % formats.len()],
        log_format: None,
        inner: None,
        time: name("t"),
        time_format: TimeFormat::Auto,
        key: name("k"),
        cost: None,
        delimiter: None,
        clients: Clients { ipv6_prefix: Some(48), proxies: 1 },
        strict: false,
        allow_skipped: false,
        no_sort: false,
    };
    let mut trace = Trace::default();
    if let Ok(source) = InputSource::from_reader("input", Box::new(Cursor::new(bytes))) {
        let _ = load_source(source, &selection, &mut trace);
    }
    assert!(trace.records.iter().all(|record| (record.key as usize) < trace.keys.len() && record.cost == 1));
    let counted: u64 = trace.skipped.reasons().iter().map(|reason| reason.lines).sum();
    assert!(counted <= trace.skipped.lines());
    drop(trace.skipped.shown());
}
