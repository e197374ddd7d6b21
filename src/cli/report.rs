//! What the program prints: tables for people, JSON for programs.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use serde::Serialize;

use super::error::Error;
use super::fared::{self, Fared, FaredJson};
use super::human;
use super::input::Trace;
use super::input::client::Counts;
use super::input::row::printable;
use super::replay::Outcome;
use super::storage::Storage;
use super::stores::Differences;
use super::table::fitted;
use crate::Quota;

/// The whole JSON of a replay. Fields may be added; those here keep their names and meaning.
#[derive(Serialize, Debug)]
struct Json<'a> {
    input: InputJson,
    results: Vec<ResultJson<'a>>,
}

/// What was read.
#[derive(Serialize, Debug)]
pub struct InputJson {
    records: u64,
    skipped: u64,
    keys: u64,
    first_ns: u64,
    last_ns: u64,
    out_of_order: u64,
    /// Bits by which IPv6 clients are told apart; `None` of made-up requests.
    ipv6_prefix: Option<u8>,
    /// Records whose client was taken from a list, and those of which a port was cut off.
    from_lists: u64,
    ports_cut: u64,
    virtual_hosts: u64,
    warnings: Vec<String>,
}

#[derive(Serialize, Debug)]
struct ResultJson<'a> {
    algorithm: &'a str,
    store: &'a str,
    limits: Vec<RefusingJson>,
    admitted: u64,
    denied: u64,
    never: u64,
    keys_denied: u64,
    longest_wait_ns: u64,
    top_denied: Vec<DeniedJson>,
    state_bytes: u64,
    against_log: Option<AgainstLogJson>,
    #[serde(flatten)]
    fared: Option<FaredJson>,
}

/// Decisions that differ from an exact sliding log's; none are counted if times step back.
#[derive(Serialize, Debug)]
struct AgainstLogJson {
    wrongly_admitted: u64,
    wrongly_denied: u64,
}

/// One limit.
#[derive(Serialize, Debug)]
pub struct LimitJson {
    limit: u64,
    period_ns: u64,
    burst: u64,
}

/// One limit of a replay.
#[derive(Serialize, Debug)]
struct RefusingJson {
    #[serde(flatten)]
    limit: LimitJson,
    /// Requests that it denied, of several limits as the one with the longest wait.
    refused: u64,
}

#[derive(Serialize, Debug)]
struct DeniedJson {
    key: String,
    denied: u64,
}

impl InputJson {
    /// The figures of a trace.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let (first_ns, last_ns) = span(trace);
        Self {
            records: trace.records.len() as u64,
            skipped: trace.skipped,
            keys: trace.distinct(),
            first_ns,
            last_ns,
            out_of_order: trace.out_of_order,
            ipv6_prefix: trace.clients.map(|clients| clients.ipv6_prefix),
            from_lists: trace.seen.lists,
            ports_cut: trace.seen.ports,
            virtual_hosts: trace.seen.virtual_hosts,
            warnings: trace.warnings.clone(),
        }
    }
}

impl From<&Quota> for LimitJson {
    fn from(quota: &Quota) -> Self {
        Self { limit: quota.limit(), period_ns: nanos(quota.period()), burst: quota.burst_size() }
    }
}

/// A duration's nanoseconds; periods and waits are below 585 years.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The times of the earliest and the latest record.
fn span(trace: &Trace) -> (u64, u64) {
    let times = || trace.records.iter().map(|record| record.at);
    (times().min().unwrap_or(0), times().max().unwrap_or(0))
}

/// The replay's results as JSON.
///
/// # Errors
/// Never in practice: every value is a number or a text.
pub fn replay_json(
    trace: &Trace,
    outcomes: &[Outcome],
    storage: &Storage,
    top: usize,
) -> Result<String, Error> {
    let result = |outcome| -> ResultJson<'_> {
        let outcome: &Outcome = outcome;
        let tally = &outcome.tally;
        let key = |(id, denied)| DeniedJson { key: trace.keys.name(id), denied };
        let limit = |(quota, &refused)| RefusingJson { limit: LimitJson::from(quota), refused };
        ResultJson {
            algorithm: outcome.kind.as_str(),
            store: storage.as_str(),
            limits: outcome.quotas.iter().zip(&tally.refused).map(limit).collect(),
            admitted: tally.admitted(),
            denied: tally.denied,
            never: tally.never,
            keys_denied: tally.keys_denied(),
            longest_wait_ns: nanos(tally.longest_wait),
            top_denied: tally.top_denied(top).into_iter().map(key).collect(),
            state_bytes: tally.state_bytes,
            against_log: outcome.against_log.map(|Differences { wrongly_admitted, wrongly_denied }| {
                AgainstLogJson { wrongly_admitted, wrongly_denied }
            }),
            fared: FaredJson::new(storage, outcome.kind, &outcome.figures),
        }
    };
    to_json(&Json { input: InputJson::new(trace), results: outcomes.iter().map(result).collect() })
}

/// Any value as indented JSON with a final line end.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn to_json(value: &impl Serialize) -> Result<String, Error> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| Error::run(error.to_string()))?;
    text.push('\n');
    Ok(text)
}

/// What was read, in a few lines.
#[must_use]
pub fn input_lines(trace: &Trace, no_sort: bool) -> String {
    let (first, last) = span(trace);
    let mut text = String::new();
    for note in &trace.notes {
        let _ = writeln!(text, "Input    {note}");
    }
    text += &client_lines(trace);
    let records = human::counted(trace.records.len() as u64, "request");
    let keys = human::counted(trace.distinct(), trace.distinct_what());
    let length = human::duration(Duration::from_nanos(last - first));
    let _ = writeln!(text, "Replayed {records} of {keys}");
    let _ = writeln!(text, "Time     {} to {} UTC ({length})", human::utc(first), human::utc(last));
    if trace.out_of_order > 0 {
        let how = if no_sort { "replayed as they are (--no-sort)" } else { "sorted" };
        let old = human::counted(trace.out_of_order, "request");
        let _ = writeln!(text, "Order    {old} older than the one before: {how}");
    }
    for warning in &trace.warnings {
        let _ = writeln!(text, "Warning  {warning}");
    }
    text
}

/// Which addresses were one client, and what was done to these.
fn client_lines(trace: &Trace) -> String {
    let Some(clients) = trace.clients else { return String::new() };
    let Counts { networks, ports, lists, virtual_hosts } = trace.seen;
    let records = |n| human::counted(n, "record");
    let by = match clients.ipv6_prefix {
        128 => "IPv6 addresses count one by one".to_owned(),
        bits => format!("IPv6 addresses count by /{bits} ({})", records(networks)),
    };
    let mut text = format!("Client   {by}\n");
    if virtual_hosts > 0 {
        let _ = writeln!(
            text,
            "         {} with a virtual host: the client is the word after it",
            records(virtual_hosts)
        );
    }
    if ports > 0 {
        let _ = writeln!(text, "         {} with a port, which is cut off", records(ports));
    }
    if lists > 0 {
        let which = match clients.proxies {
            1 => "the last address counts, which the nearest proxy wrote; --proxies N trusts more".to_owned(),
            proxies => {
                format!("the address that the first of {proxies} proxies saw counts (--proxies {proxies})")
            }
        };
        let _ = writeln!(text, "         {} with a list of addresses: {which}", records(lists));
    }
    text
}

/// The lines that did not parse, the first few in full.
#[must_use]
pub fn skipped_lines(trace: &Trace) -> String {
    if trace.skipped == 0 {
        return String::new();
    }
    let mut text = format!("Skipped {} that did not parse", human::counted(trace.skipped, "line"));
    let shown = trace.bad.len() as u64;
    let _ = match shown == trace.skipped {
        true => writeln!(text, ":"),
        false => writeln!(text, "; the first {shown}:"),
    };
    for bad in &trace.bad {
        let _ = writeln!(text, "  {bad}");
    }
    text
}

/// The limits in one line.
#[must_use]
pub fn limits_line(quotas: &[Quota]) -> String {
    let limits: Vec<String> = quotas.iter().map(Quota::to_string).collect();
    let all = if quotas.len() > 1 { ", all of which must admit" } else { "" };
    format!("Limit    {} for each key{all}\n", limits.join(" and "))
}

/// The comparison of algorithms, then the most denied keys.
#[must_use]
pub fn replay_tables(trace: &Trace, outcomes: &[Outcome], storage: &Storage, top: usize) -> String {
    let mut table = plain_table(&[
        "Algorithm",
        "Admitted",
        "Denied",
        "Share",
        "Keys denied",
        "Longest wait",
        "State",
        "Most denied key",
    ]);
    for outcome in outcomes {
        let tally = &outcome.tally;
        let worst = match tally.top_denied(1)[..] {
            [(id, denied)] => format!("{} ({})", shortened(&trace.keys.name(id)), human::count(denied)),
            _ => "-".to_owned(),
        };
        let wait = match (tally.denied, tally.never) {
            (0, _) => "-".to_owned(),
            (_, 0) => human::duration(tally.longest_wait),
            (denied, never) if denied == never => "never".to_owned(),
            (_, never) => format!("{}; {} never", human::duration(tally.longest_wait), human::count(never)),
        };
        table.add_row([
            outcome.kind.as_str().to_owned(),
            human::count(tally.admitted()),
            human::count(tally.denied),
            human::share(tally.denied, tally.decisions.len() as u64),
            human::count(tally.keys_denied()),
            wait,
            human::bytes(tally.state_bytes),
            worst,
        ]);
    }
    align_right(&mut table, 1..7);
    let mut text = format!("{}\n{ABOUT_RESULTS}\n", fitted(table, &[7, 6, 5]));
    if let Some(table) = refused_table(outcomes) {
        let _ = write!(
            text,
            "\nDenied by which limit; if by several, the one with the longest wait\n{}\n",
            fitted(table, &[])
        );
    }
    if let Some(table) = log_table(outcomes) {
        let _ = write!(text, "\nBeside an exact sliding log\n{}\n{ABOUT_LOG}\n", fitted(table, &[]));
    }
    let fared = outcomes.iter().map(|Outcome { kind, tally, figures, .. }| {
        let (admitted, denied) = (tally.admitted(), tally.denied);
        Fared { kind: *kind, admitted, denied, figures }
    });
    if let Some(table) = fared::table(storage, fared) {
        let _ = write!(text, "\n{table}");
    }
    if let Some(keys) = top_table(trace, outcomes, top) {
        let droppable: Vec<usize> = (3..2 + outcomes.len()).rev().collect();
        let _ = write!(text, "\nMost denied keys\n{}\n", fitted(keys, &droppable));
    }
    text
}

const ABOUT_RESULTS: &str = "\
Keys denied: keys with a denied request. Longest wait: the longest that a denied
request was told to wait; never: it costs more than the limit. State: the most
memory that the limiter's states took.";

const ABOUT_LOG: &str = "\
Differs: the share of decisions that an exact sliding log with the same limits
would have made otherwise. The log holds what the algorithm itself admitted, so
each decision is judged by itself. It has no burst.";

/// How many decisions differ from an exact sliding log's; nothing if times step back.
fn log_table(outcomes: &[Outcome]) -> Option<Table> {
    let mut table = plain_table(&["Algorithm", "Differs", "Wrongly admitted", "Wrongly denied"]);
    for Outcome { kind, tally, against_log, .. } in outcomes {
        let Differences { wrongly_admitted, wrongly_denied } = (*against_log)?;
        table.add_row([
            kind.as_str().to_owned(),
            human::share(wrongly_admitted + wrongly_denied, tally.decisions.len() as u64),
            human::count(wrongly_admitted),
            human::count(wrongly_denied),
        ]);
    }
    align_right(&mut table, 1..4);
    Some(table)
}

/// How many requests each limit denied; nothing about a single one.
fn refused_table(outcomes: &[Outcome]) -> Option<Table> {
    let quotas = outcomes.first().map(|outcome| &outcome.quotas).filter(|quotas| quotas.len() > 1)?;
    let limits: Vec<String> = quotas.iter().map(Quota::to_string).collect();
    let header: Vec<&str> = ["Algorithm"].into_iter().chain(limits.iter().map(String::as_str)).collect();
    let mut table = plain_table(&header);
    for outcome in outcomes {
        let refused = outcome.tally.refused.iter().map(|&refused| human::count(refused));
        table.add_row([outcome.kind.as_str().to_owned()].into_iter().chain(refused));
    }
    align_right(&mut table, 1..1 + quotas.len());
    Some(table)
}

/// The most denied keys of all algorithms together, and how each treats them.
fn top_table(trace: &Trace, outcomes: &[Outcome], top: usize) -> Option<Table> {
    let mut sums = vec![0_u64; trace.keys.len()];
    let mut requests = vec![0_u64; trace.keys.len()];
    trace.records.iter().for_each(|record| requests[record.key as usize] += 1);
    for outcome in outcomes {
        sums.iter_mut().zip(&outcome.tally.denied_by_key).for_each(|(sum, denied)| *sum += denied);
    }
    let ids = 0_u32..;
    let mut keys: Vec<(u32, u64)> = ids.zip(sums).filter(|&(_, sum)| sum > 0).collect();
    keys.sort_by_key(|&(_, sum)| std::cmp::Reverse(sum));
    keys.truncate(top);
    if keys.is_empty() {
        return None;
    }
    let names = outcomes.iter().map(|outcome| outcome.kind.as_str());
    let mut table = plain_table(&["Key", "Requests"].into_iter().chain(names).collect::<Vec<_>>());
    for (id, _) in keys {
        let denied = outcomes.iter().map(|outcome| human::count(outcome.tally.denied_by_key[id as usize]));
        let row = [shortened(&trace.keys.name(id)), human::count(requests[id as usize])];
        table.add_row(row.into_iter().chain(denied));
    }
    align_right(&mut table, 1..2 + outcomes.len());
    Some(table)
}

/// A table without frames, as wide as it needs to be.
#[must_use]
pub fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().header_separator(rule));
    table.set_header(header.iter().copied());
    table
}

/// Aligns columns of numbers.
pub fn align_right(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn shortened(key: &str) -> String {
    printable(key.as_bytes(), 40)
}

/// Writes to a file, or to standard output for `-`.
///
/// # Errors
/// If writing fails; a reader that went away is [`Error::BrokenPipe`].
pub fn write_to(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if path.as_os_str() == "-" {
        return print(bytes);
    }
    fs::write(path, bytes).map_err(|error| Error::writing(&path.display().to_string(), &error))
}

/// That these files can be written, before the work whose results they are to hold; `-` is standard output.
///
/// # Errors
/// With the first that cannot be opened for writing. One that was not there is not there afterwards.
pub fn writable<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), Error> {
    for path in paths.into_iter().filter(|path| path.as_os_str() != "-") {
        let cannot = |error: io::Error| Error::writing(&path.display().to_string(), &error);
        match fs::OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => {
                drop(file);
                fs::remove_file(path).map_err(cannot)?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::OpenOptions::new().write(true).open(path).map_err(cannot)?;
            }
            Err(error) => return Err(cannot(error)),
        }
    }
    Ok(())
}

/// Writes to standard output.
///
/// # Errors
/// As [`write_to`].
pub fn print(bytes: &[u8]) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|error| Error::writing("standard output", &error))
}
