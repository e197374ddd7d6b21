//! A summary of the input, in a few lines for people, and in JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::input::Trace;
use crate::input::client::AddressCounts;
use crate::input::skipped::SkipReason;
use tollgate_report::human;

/// The summary in figures.
pub fn input_json(trace: &Trace) -> Value {
    let (first_ns, last_ns) = span(trace);
    json!({
        "records": trace.records.len(),
        "skipped": trace.skipped.lines(),
        // The first reasons, each with its number of lines and the first of them.
        "skipped_for": trace.skipped.reasons().iter().map(reason_json).collect::<Vec<_>>(),
        "keys": trace.distinct(),
        "first_ns": first_ns,
        "last_ns": last_ns,
        "out_of_order": trace.out_of_order,
        // The prefix length by which IPv6 clients are distinguished; `null` for generated requests.
        "ipv6_prefix": trace.clients.map(|clients| clients.ipv6_bits()),
        // Records whose client was taken from a list, and records whose port was cut off.
        "from_lists": trace.seen.lists,
        "ports_cut": trace.seen.ports,
        "virtual_hosts": trace.seen.virtual_hosts,
        "prefixes_cut": trace.prefixes,
        // The field that is the client of each input, and why, if the program chose it.
        "client_from": trace.client_notes,
        "warnings": trace.warnings,
    })
}

fn reason_json(of: &SkipReason) -> Value {
    json!({ "file": of.file, "reason": of.reason, "lines": of.lines, "first": of.first })
}

/// The times of the earliest and the latest record.
fn span(trace: &Trace) -> (u64, u64) {
    let times = || trace.records.iter().map(|record| record.at);
    (times().min().unwrap_or(0), times().max().unwrap_or(0))
}

/// Returns the summary in a few lines.
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
        let _ = writeln!(text, "Order    {old} older than the previous one: {how}");
    }
    for warning in &trace.warnings {
        let _ = writeln!(text, "Warning  {warning}");
    }
    text
}

/// Writes which addresses were one client, and the changes to them.
fn client_lines(trace: &Trace) -> String {
    let Some(clients) = trace.clients else { return String::new() };
    let AddressCounts { networks, ports, lists, virtual_hosts } = trace.seen;
    let records = |n| human::counted(n, "record");
    let by = match clients.ipv6_bits() {
        128 => "each IPv6 address is one client".to_owned(),
        bits => format!("IPv6 addresses are grouped by /{bits} ({})", records(networks)),
    };
    let mut text = String::new();
    for note in &trace.client_notes {
        let _ = writeln!(text, "Client   {note}");
    }
    let _ = writeln!(text, "Client   {by}");
    if virtual_hosts > 0 {
        let _ = writeln!(
            text,
            "         {} with a virtual host: the client is the word after it",
            records(virtual_hosts)
        );
    }
    if trace.prefixes > 0 {
        let lines = human::counted(trace.prefixes, "line");
        let _ = writeln!(text, "         {lines} with the prefix of a collector, which is removed");
    }
    if ports > 0 {
        let _ = writeln!(text, "         {} with a port, which is removed", records(ports));
    }
    if lists > 0 {
        let which = match clients.proxies {
            1 => "the client is the last address, which the nearest proxy wrote; --proxies N trusts more proxies".to_owned(),
            proxies => {
                format!("the client is the address that the first of {proxies} proxies saw (--proxies {proxies})")
            }
        };
        let _ = writeln!(text, "         {} with a list of addresses: {which}", records(lists));
    }
    text
}

/// The lines that did not parse, by the first reasons.
pub fn skipped_lines(trace: &Trace) -> String {
    match trace.skipped.lines() {
        0 => String::new(),
        lines => {
            format!(
                "Skipped {} that did not parse:\n{}",
                human::counted(lines, "line"),
                trace.skipped.shown()
            )
        }
    }
}
