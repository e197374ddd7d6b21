//! What a replay prints: tables for people, JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tollgate::Quota;

use super::accuracy::{self, Accuracy};
use super::ledger::Differences;
use super::{AlgorithmReplay, AlikeReplays, merge_alike, top};
use crate::input::Trace;
use crate::output::about::input_json;
use crate::store::Storage;
use tollgate_report::human::{self, nanos};
use tollgate_report::output::merged;
use tollgate_report::output::table::table;
use tollgate_report::text::printable;

/// One limit.
pub fn limit_json(quota: &Quota) -> Value {
    json!({ "limit": quota.limit(), "period_ns": nanos(quota.period()), "burst": quota.burst_size() })
}

/// The whole JSON of a replay. New fields may be added; these fields keep their names and meaning.
pub fn json(trace: &Trace, replays: &[AlgorithmReplay], storage: &Storage, most: usize) -> Value {
    let result = |replay: &AlgorithmReplay| {
        let AlgorithmReplay { algorithm, tally, .. } = replay;
        let key = |(id, denied)| json!({ "key": trace.keys.name(id), "denied": denied });
        // The requests that the limit denied; if several limits deny a request, the one with the longest wait counts.
        let limit = |(quota, refused)| merged([limit_json(quota), json!({ "refused": refused })]);
        let result = json!({
            "algorithm": algorithm.name(),
            "store": storage.store.to_string(),
            "limits": replay.quotas.iter().zip(&tally.refused).map(limit).collect::<Vec<_>>(),
            "admitted": tally.decisions.admitted(),
            "denied": tally.decisions.denials.denied,
            "never": tally.decisions.denials.never,
            "keys_denied": tally.keys_denied(),
            "longest_wait_ns": nanos(tally.decisions.denials.longest_wait),
            "top_denied": tally.top_denied(most).into_iter().map(key).collect::<Vec<_>>(),
            "state_bytes": tally.state_bytes,
            // Decisions that differ from an exact sliding log's; not counted if times step back.
            "against_log": replay.against_log.map(|Differences { wrongly_admitted, wrongly_denied }| {
                json!({ "wrongly_admitted": wrongly_admitted, "wrongly_denied": wrongly_denied })
            }),
        });
        merged([result, accuracy::json(storage, *algorithm, &replay.figures)])
    };
    json!({ "input": input_json(trace), "results": replays.iter().map(result).collect::<Vec<_>>() })
}

/// Limits as one text.
pub fn all_limits(quotas: &[Quota]) -> String {
    quotas.iter().map(Quota::to_string).collect::<Vec<_>>().join(" and ")
}

/// The limits in one line.
pub fn limits_line(quotas: &[Quota]) -> String {
    let all = if quotas.len() > 1 { ", and all of them must admit" } else { "" };
    format!("Limit    {} for each key{all}\n", all_limits(quotas))
}

/// The comparison of algorithms, then the most denied keys.
pub fn tables(trace: &Trace, replays: &[AlgorithmReplay], storage: &Storage, most: usize) -> String {
    let row = |(AlgorithmReplay { tally, .. }, alike): &(&AlgorithmReplay, AlikeReplays<'_>)| {
        let worst = match tally.top_denied(1)[..] {
            [(id, denied)] => format!("{} ({})", shortened(trace, id), human::count(denied)),
            _ => "-".to_owned(),
        };
        vec![
            alike.names.clone(),
            human::count(tally.decisions.admitted()),
            human::count(tally.decisions.denials.denied),
            human::share(tally.decisions.denials.denied, tally.decisions.bytes.len() as u64),
            human::count(tally.keys_denied()),
            tally.decisions.denials.wait_text(),
            alike.memory_text(),
            worst,
        ]
    };
    let header = "Algorithm|Admitted|Denied|Share|Keys denied|Longest wait|State|Most denied key";
    let mut text = format!(
        "{}\n{ABOUT_RESULTS}\n",
        table(header, 1..7, merge_alike(replays).iter().map(row), &[7, 6, 5])
    );
    if let Some(table) = denials_by_limit(replays) {
        let about = "Denied requests by limit (if several deny, the one with the longest wait)";
        let _ = write!(text, "\n{about}\n{table}\n");
    }
    if let Some(table) = log_table(replays) {
        let _ = write!(
            text,
            "\nCompared with an exact sliding log, which admits the limit in any period\n{table}\n{ABOUT_LOG}\n"
        );
    }
    let results = replays.iter().map(|AlgorithmReplay { algorithm, tally, figures, .. }| {
        let (admitted, denied) = (tally.decisions.admitted(), tally.decisions.denials.denied);
        Accuracy { algorithm: *algorithm, admitted, denied, figures }
    });
    if let Some(table) = accuracy::table(storage, &results.collect::<Vec<_>>()) {
        let _ = write!(text, "\n{table}");
    }
    if let Some(table) = top_table(trace, replays, most) {
        let _ = write!(text, "\nMost denied keys\n{table}\n");
    }
    text
}

const ABOUT_RESULTS: &str = "\
Keys denied: keys with a denied request. Longest wait: the longest wait of all
denied requests; never: a request costs more than the limit. State: the most
memory that the limiter's states used.";

const ABOUT_LOG: &str = "\
Differs: the share of decisions that differ from those of the log. A difference
is no error: gcra, token-bucket and leaky-bucket admit a burst and, in the same
period, what refills; a fixed window admits up to twice the limit around a
boundary. The log holds what the algorithm itself admitted, so each decision is
compared on its own.";

/// Writes how many decisions differ from an exact sliding log's; nothing if times step back.
fn log_table(replays: &[AlgorithmReplay]) -> Option<String> {
    let row = |(AlgorithmReplay { tally, against_log, .. }, alike): (&AlgorithmReplay, AlikeReplays<'_>)| {
        let Differences { wrongly_admitted, wrongly_denied } = (*against_log)?;
        Some(vec![
            alike.names,
            human::share(wrongly_admitted + wrongly_denied, tally.decisions.bytes.len() as u64),
            human::count(wrongly_admitted),
            human::count(wrongly_denied),
        ])
    };
    let rows: Vec<_> = merge_alike(replays).into_iter().map(row).collect::<Option<_>>()?;
    Some(table("Algorithm|Differs|Admitted, log denies|Denied, log admits", 1..4, rows, &[]))
}

/// Writes how many requests each limit denied; nothing for a single limit.
fn denials_by_limit(replays: &[AlgorithmReplay]) -> Option<String> {
    let quotas = replays.first().map(|replay| &replay.quotas).filter(|quotas| quotas.len() > 1)?;
    let header = quotas.iter().fold("Algorithm".to_owned(), |header, quota| format!("{header}|{quota}"));
    // With several limits, algorithms can decide alike and name different limits.
    let row = |AlgorithmReplay { algorithm, tally, .. }: &AlgorithmReplay| {
        let refused = tally.refused.iter().map(|&refused| human::count(refused));
        [algorithm.name().to_owned()].into_iter().chain(refused).collect()
    };
    Some(table(&header, 1..1 + quotas.len(), replays.iter().map(row), &[]))
}

/// Lists the most denied keys of all algorithms together, and the result of each algorithm for them.
fn top_table(trace: &Trace, replays: &[AlgorithmReplay], most: usize) -> Option<String> {
    let mut requests = vec![0_u64; trace.keys.len()];
    trace.records.iter().for_each(|record| requests[record.key as usize] += 1);
    let denied = |key: usize| replays.iter().map(move |replay| replay.tally.denied_by_key[key]);
    let keys = top((0..trace.keys.len()).map(|key| denied(key).sum()), most);
    if keys.is_empty() {
        return None;
    }
    let groups = merge_alike(replays);
    let header = groups
        .iter()
        .fold("Key|Requests".to_owned(), |header, (_, alike)| format!("{header}|{}", alike.names));
    let rows = keys.into_iter().map(|(id, _)| {
        let row = [shortened(trace, id), human::count(requests[id as usize])];
        let denied = groups.iter().map(|(replay, _)| human::count(replay.tally.denied_by_key[id as usize]));
        row.into_iter().chain(denied).collect()
    });
    let droppable: Vec<usize> = (3..2 + groups.len()).rev().collect();
    Some(table(&header, 1..2 + groups.len(), rows, &droppable))
}

fn shortened(trace: &Trace, key: u32) -> String {
    printable(trace.keys.name(key).as_bytes(), 40)
}
