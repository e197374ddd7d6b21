//! The sections of a page about a replay with limits.

use tollgate::{Quota, StoreKind};

use super::ledger::Differences;
use super::{AlgorithmReplay, AlikeReplays, merge_alike, top};
use crate::input::Trace;
use crate::output::axis::TimeAxis;
use crate::output::chart::alike;
use crate::output::page::{Cell, HtmlTable, MOST_KEYS, Section, to_second};
use crate::store::Storage;
use crate::suggest::Suggestion;
use tollgate_report::error::Error;
use tollgate_report::human;
use tollgate_report::text::printable;

/// The most characters of a key.
const LONGEST_KEY: usize = 120;
/// The bars of each key's denials over time.
const KEY_BARS: u64 = 96;

/// The smallest limits of some algorithms that decide alike, or the reason why there are none.
pub struct FoundLimits {
    pub names: String,
    pub outcome: Result<Suggestion, Error>,
}

/// The results of each algorithm.
pub fn summary(replays: &[AlgorithmReplay], storage: &Storage) -> Section {
    let with_store = storage.store != StoreKind::Keyed;
    let with_log = replays.iter().all(|replay| replay.against_log.is_some());
    let row = |(replay, alike): &(&AlgorithmReplay, AlikeReplays<'_>)| {
        let AlgorithmReplay { tally, figures, against_log, .. } = replay;
        let (decisions, requests) = (&tally.decisions, tally.decisions.bytes.len() as u64);
        let differing =
            |found: Differences| human::share(found.wrongly_admitted + found.wrongly_denied, requests);
        let cells = [
            alike.names.clone(),
            human::count(decisions.admitted()),
            human::count(decisions.denials.denied),
            human::share(decisions.denials.denied, requests),
            human::count(tally.keys_denied()),
            decisions.denials.wait_text(),
            alike.memory_text(),
        ];
        let log = against_log.filter(|_| with_log).map(differing);
        let store = with_store.then(|| differing(figures.differences));
        cells.into_iter().chain(log).chain(store).map(Cell::from).collect()
    };
    let mut header = "Algorithm|Admitted|Denied|Share denied|Keys denied|Longest wait|Memory".to_owned();
    let mut texts = vec![verdict(replays)];
    if with_log {
        header += "|Differs from log";
        texts.push(
            "Differs from log: the share of decisions that differ from those of an exact sliding log with the same limits, \
             which admits the limit in any period. A difference is no error."
                .to_owned(),
        );
    }
    if with_store {
        header += "|Differs from keyed";
        texts.push(format!(
            "Differs from keyed: the share of decisions of the {} store that differ from those of a store without a fixed size.",
            storage.store
        ));
    }
    let results = HtmlTable {
        caption: "Results by algorithm".to_owned(),
        numbers: 1..header.split('|').count(),
        header,
        rows: merge_alike(replays).iter().map(row).collect(),
    };
    Section {
        heading: "Summary".to_owned(),
        texts,
        tables: std::iter::once(results).chain(by_limit(replays)).collect(),
    }
}

/// What the limits would have done, in a sentence or two: how many requests were denied, and whether that is more than 1 %.
fn verdict(replays: &[AlgorithmReplay]) -> String {
    let denied = |replay: &AlgorithmReplay| replay.tally.decisions.denials.denied;
    let ends = (replays.iter().min_by_key(|one| denied(one)), replays.iter().max_by_key(|one| denied(one)));
    let (Some(least), Some(most)) = ends else { return String::new() };
    if denied(most) == 0 {
        return "No request would have been denied.".to_owned();
    }
    let (requests, keys) = (most.tally.decisions.bytes.len() as u64, most.tally.denied_by_key.len() as u64);
    let figures = |replay: &AlgorithmReplay| {
        format!("{} ({})", human::count(denied(replay)), human::share(denied(replay), requests))
    };
    let by = |replay: &AlgorithmReplay| format!("{} with {}", figures(replay), replay.algorithm.name());
    let range = match denied(least) == denied(most) {
        true => figures(most),
        false => format!("{} to {}", by(least), by(most)),
    };
    let fits = |replay: &&AlgorithmReplay| denied(replay).saturating_mul(100) <= requests;
    let fitting = replays.iter().filter(fits).map(|replay| replay.algorithm.name()).collect::<Vec<_>>();
    let one_percent = match fitting.len() {
        0 => "This is more than 1 %; the table at the end has the smallest limits for 1 %.".to_owned(),
        all if all == replays.len() => "This is not more than 1 %.".to_owned(),
        _ => format!("This is not more than 1 % only with {}.", fitting.join(", ")),
    };
    let keys_denied = human::count(replays.iter().map(|one| one.tally.keys_denied()).max().unwrap_or(0));
    format!(
        "Of {}, {range} would have been denied, from at most {keys_denied} of {}. {one_percent}",
        human::counted(requests, "request"),
        human::counted(keys, "key"),
    )
}

/// The requests that each limit denied; nothing for a single limit.
fn by_limit(replays: &[AlgorithmReplay]) -> Option<HtmlTable> {
    let quotas = replays.first().map(|replay| &replay.quotas).filter(|quotas| quotas.len() > 1)?;
    let row = |AlgorithmReplay { algorithm, tally, .. }: &AlgorithmReplay| {
        let refused = tally.refused.iter().map(|&refused| human::count(refused));
        std::iter::once(algorithm.name().to_owned()).chain(refused).map(Cell::from).collect()
    };
    Some(HtmlTable {
        caption: "Denied requests by limit; if several deny a request, by the one with the longest wait"
            .to_owned(),
        header: quotas.iter().fold("Algorithm".to_owned(), |header, quota| format!("{header}|{quota}")),
        numbers: 1..1 + quotas.len(),
        rows: replays.iter().map(row).collect(),
    })
}

/// The denials of one key, by any of the algorithms.
#[derive(Clone)]
struct KeyDenials {
    requests: u64,
    /// The first and the last time.
    span: Option<(u64, u64)>,
    bars: Vec<u64>,
}

/// The most denied keys of all algorithms together, each with its times.
pub fn clients(trace: &Trace, replays: &[AlgorithmReplay], most: usize) -> Section {
    let denied = |key: usize| replays.iter().map(move |replay| replay.tally.denied_by_key[key]);
    let keys = top((0..trace.keys.len()).map(|key| denied(key).sum()), most.min(MOST_KEYS));
    let series: Vec<_> = replays
        .iter()
        .map(|replay| (replay.algorithm.name().to_owned(), &replay.tally.decisions.bytes[..]))
        .collect();
    let groups = alike(&series);
    let axis = TimeAxis::new(trace.records.iter().map(|record| record.at).collect(), KEY_BARS);
    let bars = vec![0; usize::try_from(axis.columns).unwrap_or(0)];
    let mut found = vec![KeyDenials { requests: 0, span: None, bars }; keys.len()];
    let mut places = vec![None; trace.keys.len()];
    for (place, &(key, _)) in keys.iter().enumerate() {
        places[key as usize] = Some(place);
    }
    for (number, record) in trace.records.iter().enumerate() {
        let Some(place) = places[record.key as usize] else { continue };
        let key = &mut found[place];
        key.requests += 1;
        if groups.iter().any(|(_, decisions)| decisions[number] == b'0') {
            let (first, last) = key.span.unwrap_or((record.at, record.at));
            key.span = Some((first.min(record.at), last.max(record.at)));
            key.bars[axis.column_of(record.at)] += 1;
        }
    }
    let row = |(&(id, _), key): (&(u32, u64), &KeyDenials)| {
        let name = Cell::Foreign(printable(trace.keys.name(id).as_bytes(), LONGEST_KEY));
        let by_group = groups.iter().map(|(names, _)| {
            let first = names.split(',').next().unwrap_or_default();
            let replay = replays.iter().find(|replay| replay.algorithm.name() == first);
            human::count(replay.map_or(0, |replay| replay.tally.denied_by_key[id as usize]))
        });
        let (first, last) = key.span.unwrap_or_default();
        let busiest = key.bars.iter().enumerate().rev().max_by_key(|&(_, count)| count);
        let busiest = busiest.and_then(|(bar, &count)| Some((axis.start_of(bar as u64)?, count)));
        let most = busiest.map_or(String::new(), |(at, count)| {
            format!(
                "most from {}: {}{} in {}",
                to_second(at),
                human::count(count),
                if groups.len() > 1 { " by any" } else { "" },
                human::duration(axis.column())
            )
        });
        [name, human::count(key.requests).into()]
            .into_iter()
            .chain(by_group.map(Cell::from))
            .chain([
                Cell::Time(to_second(first)),
                Cell::Time(to_second(last)),
                Cell::Bars(key.bars.clone(), most),
            ])
            .collect()
    };
    let titles: String = groups.iter().map(|(names, _)| format!("|{names}")).collect();
    let mut caption =
        "Most denied keys: their requests, the denials by algorithm, and the times (UTC) of the denials"
            .to_owned();
    let mut over_time = "Denials over time";
    if groups.len() > 1 {
        // The bars have more denials than any column.
        caption += ". Times and bars count each request that at least one of the algorithms denied";
        over_time = "Denied by any, over time";
    }
    let table = HtmlTable {
        caption,
        header: format!("Key|Requests{titles}|First denied|Last denied|{over_time}"),
        numbers: 1..2 + groups.len(),
        rows: keys.iter().zip(&found).map(row).collect(),
    };
    let heading = "Most denied keys".to_owned();
    if keys.is_empty() {
        let text = if most == 0 { "The keys were left out (--top 0)." } else { "No request was denied." };
        return Section { heading, texts: vec![text.to_owned()], tables: Vec::new() };
    }
    Section { heading, texts: Vec::new(), tables: vec![table] }
}

/// The smallest limits that would have denied at most one request in a hundred.
pub fn one_percent(trace: &Trace, found: &[FoundLimits]) -> Section {
    let (records, keys) = (trace.records.len() as u64, trace.keys.len() as u64);
    let mut texts = vec![
        "The smallest limit with the same period that would have denied at most 1 % of the requests. \
         `tollgate suggest` finds limits for other goals."
            .to_owned(),
    ];
    let mut rows = Vec::new();
    for FoundLimits { names, outcome } in found {
        match outcome {
            Ok(Suggestion { limits, trial, monotone, .. }) => {
                let limits: Vec<Quota> = limits.iter().map(|limit| limit.quota).collect();
                let cells = [
                    names.clone(),
                    super::output::all_limits(&limits),
                    human::count(trial.denied),
                    human::share(trial.denied, records),
                    human::count(trial.keys_denied),
                    human::share(trial.keys_denied, keys),
                ];
                rows.push(cells.map(Cell::from).to_vec());
                if !monotone {
                    texts.push(format!(
                        "With {names}, a higher limit can deny more here, so a smaller limit may also meet the goal."
                    ));
                }
            }
            Err(error) => texts.push(error.to_string()),
        }
    }
    let table = HtmlTable {
        caption: "Limits that would have denied 1 % of the requests".to_owned(),
        header: "Algorithm|Limit|Denied|Share denied|Keys denied|Share of keys".to_owned(),
        numbers: 2..6,
        rows,
    };
    let tables = if table.rows.is_empty() { Vec::new() } else { vec![table] };
    Section { heading: "The limit for 1 %".to_owned(), texts, tables }
}
