//! Reads the shared request traces: the common normalized form, and each source form with its own parser.
//!
//! The traces are not part of the package. `TOLLGATE_TRACES` names their directory; the default is `../shared/traces`
//! beside the repository.

use super::SEC;
use super::skipped::skip;
use flate2::read::MultiGzDecoder;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The traces, and the file type of each source.
pub const TRACES: [(&str, &str); 5] = [
    ("honeynet_httpd_2004", "log"),
    ("aws_honeypot_2013", "csv"),
    ("github_events_2015", "jsonl"),
    ("sec_edgar_2017", "csv"),
    ("zeek_conn_2022", "tsv"),
];

/// Requests in file order. Clients are numbered in order of appearance.
#[derive(Debug, Default)]
pub struct Trace {
    pub records: Vec<Record>,
    pub clients: Vec<String>,
    numbers: HashMap<String, u32>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub at_ns: u64,
    pub client: u32,
}

impl Trace {
    fn push(&mut self, at_ns: u64, client: &str) {
        let client = match self.numbers.get(client) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.clients.len()).expect("fewer than four billion clients");
                self.clients.push(client.to_owned());
                self.numbers.insert(client.to_owned(), number);
                number
            }
        };
        self.records.push(Record { at_ns, client });
    }

    pub fn client(&self, record: &Record) -> &str {
        &self.clients[record.client as usize]
    }

    /// Sorts the records by time. Records with equal times keep their order.
    pub fn sort(&mut self) {
        self.records.sort_by_key(|record| record.at_ns);
    }

    /// Returns the same requests with the client numbers of the other trace.
    pub fn renumbered_as(&self, other: &Trace) -> Vec<Record> {
        let number = |record: &Record| other.numbers[self.client(record)];
        self.records.iter().map(|record| Record { client: number(record), ..*record }).collect()
    }
}

/// Returns the directory of the traces. Without one, reports that the test skips and returns `None`.
#[track_caller]
pub fn directory() -> Option<PathBuf> {
    let directory = match std::env::var_os("TOLLGATE_TRACES") {
        Some(named) => PathBuf::from(named),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
    };
    if directory.join("normalized").is_dir() {
        return Some(directory);
    }
    skip(&format!("no request traces in {}; set TOLLGATE_TRACES to their directory", directory.display()));
    None
}

/// Reads a trace in the common form: `ts_ns client resource status`, in time order.
pub fn normalized(directory: &Path, name: &str) -> Trace {
    let mut trace = Trace::default();
    for (number, line) in lines(&directory.join(format!("normalized/{name}.tsv.gz"))).enumerate() {
        let line = text(&line);
        let fields: Vec<&str> = line.split('\t').collect();
        if number == 0 {
            assert_eq!(fields, ["ts_ns", "client", "resource", "status"]);
        } else {
            trace.push(fields[0].parse().expect("nanoseconds"), fields[1]);
        }
    }
    trace
}

/// Reads a trace as its source wrote it, in the order of the source.
pub fn source(directory: &Path, name: &str, extension: &str) -> Trace {
    let mut trace = Trace::default();
    let lines = lines(&directory.join(format!("{name}.{extension}.gz")));
    match name {
        "honeynet_httpd_2004" => lines.for_each(|line| common_log(&mut trace, &line)),
        "github_events_2015" => lines.for_each(|line| json_event(&mut trace, &line)),
        "aws_honeypot_2013" => table(lines, b',', ["datetime", "src"], |[datetime, src]| {
            let (date, time) = datetime.split_once(' ').expect("a date and a time");
            let address = std::net::Ipv4Addr::from(src.parse::<u32>().expect("an address as a number"));
            trace.push(date_time(date, time), &address.to_string());
        }),
        "sec_edgar_2017" => table(lines, b',', ["ip", "date", "time"], |[ip, date, time]| {
            trace.push(date_time(date, time), ip);
        }),
        "zeek_conn_2022" => table(lines, b'\t', ["ts", "id.orig_h"], |[ts, client]| {
            let (secs, micros) = ts.split_once('.').expect("seconds and microseconds");
            assert_eq!(micros.len(), 6);
            let micros: u64 = micros.parse().expect("microseconds");
            trace.push(secs.parse::<u64>().expect("seconds") * SEC + micros * 1_000, client);
        }),
        _ => panic!("no source form is known for {name}"),
    }
    trace
}

/// Calls `row` with the named columns of each line after the header.
fn table<const N: usize>(
    mut lines: impl Iterator<Item = Vec<u8>>,
    separator: u8,
    columns: [&str; N],
    mut row: impl FnMut([&str; N]),
) {
    let separator = char::from(separator);
    let header = lines.next().expect("a header line");
    let header: Vec<&str> = text(&header).split(separator).collect();
    let places = columns.map(|column| header.iter().position(|name| *name == column).expect("the column"));
    for line in lines {
        let fields: Vec<&str> = text(&line).split(separator).collect();
        row(places.map(|place| fields[place]));
    }
}

/// Reads a line such as `client - - [21/Apr/2004:10:56:07 -0400] "…`. Any bytes may follow the time.
fn common_log(trace: &mut Trace, line: &[u8]) {
    let open = line.iter().position(|byte| *byte == b'[').expect("a time in brackets");
    let client = text(&line[..open]).split(' ').next().expect("a client");
    let stamp = text(&line[open + 1..open + 27]);
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|month| *month == &stamp[3..6]).expect("a month") + 1;
    let local = civil(number(&stamp[7..11]), month as u64, number(&stamp[..2])) + clock_time(&stamp[12..20]);
    assert_eq!(&stamp[21..], "-0400");
    trace.push((local + 4 * 3_600) * SEC, client);
}

fn json_event(trace: &mut Trace, line: &[u8]) {
    let event: serde_json::Value = serde_json::from_slice(line).expect("an object");
    let stamp = event["dt"].as_str().expect("a time");
    let (date, time) = stamp.trim_end_matches('Z').split_once('T').expect("a date and a time");
    trace.push(date_time(date, time), event["actor"].as_str().expect("an actor"));
}

fn date_time(date: &str, time: &str) -> u64 {
    (civil(number(&date[..4]), number(&date[5..7]), number(&date[8..10])) + clock_time(time)) * SEC
}

fn clock_time(time: &str) -> u64 {
    number(&time[..2]) * 3_600 + number(&time[3..5]) * 60 + number(&time[6..8])
}

/// Returns the seconds from the Unix epoch to the start of a day.
fn civil(year: u64, month: u64, day: u64) -> u64 {
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let years: u64 = (1970..year).map(|year| 365 + u64::from(leap(year))).sum();
    let lengths = DAYS.into_iter().zip(1..month);
    let months: u64 = lengths.map(|(days, month)| days + u64::from(month == 2 && leap(year))).sum();
    (years + months + day - 1) * 86_400
}

fn number(digits: &str) -> u64 {
    digits.parse().expect("digits")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("this part is UTF-8")
}

fn lines(path: &Path) -> impl Iterator<Item = Vec<u8>> + use<> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reader = BufReader::new(MultiGzDecoder::new(file));
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line).expect("a whole gzip file");
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        (read > 0).then_some(line)
    })
}
