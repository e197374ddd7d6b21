//! `tollgate replay` with limits: reads the requests, replays them through each algorithm, and writes the results.

use std::time::Duration;

use indicatif::ProgressBar;
use tollgate::{LimitKind, Quota, StoreKind};

use super::sections::FoundLimits;
use super::{AlgorithmReplay, FinishedReplay, ReplaySetup, log, output, replay, sections, write_results};
use crate::algorithm::{chosen, named};
use crate::args::{ReplayArgs, Share};
use crate::input::Trace;
use crate::load;
use crate::output::page::Section;
use crate::output::{self as files, about, progress};
use crate::store::Storage;
use crate::suggest::{Goal, Search};
use tollgate_report::error::Error;
use tollgate_report::output::say;

/// The share of requests for whose denial the page names a limit.
const ONE_PERCENT: Share = Share { billionths: 10_000_000 };

/// Runs `tollgate replay` with limits.
///
/// # Errors
/// Returns an error if the command line or the input is invalid, or if output fails.
pub fn run(args: &ReplayArgs) -> Result<(), Error> {
    let quotas = args.quotas()?;
    let by_name = args.algorithms.by_name();
    let storage = args.algorithms.stores.storage(quotas.len())?;
    let all: Vec<_> = named().collect();
    let algorithms = chosen(&args.algorithms.algorithm, &all, args.algorithms.windows);
    let (algorithms, mut left_out) = storage.holds(&algorithms, by_name)?;
    if args.decisions.is_some() && algorithms.len() != 1 {
        return Err(Error::usage(format!(
            "--decisions writes one algorithm's decisions, but {} algorithms are selected; choose one with --algorithm",
            algorithms.len()
        )));
    }
    files::writable(args.outputs())?;
    let trace = load::requests(&args.input, args.json.as_deref(), None)?;
    let progress = progress::bar(trace.records.len() as u64 * algorithms.len() as u64, "replaying");
    let setup = ReplaySetup { storage, with_exact_store: storage.store != StoreKind::Keyed };
    let (replays, unfit) = replay_all(&trace, &algorithms, by_name, &quotas, setup, &progress)?;
    left_out.extend(unfit);
    progress.finish_and_clear();

    let mut about = about::input_lines(&trace, args.input.no_sort) + &output::limits_line(&quotas);
    if args.limit.is_empty() {
        about += "         No --limit was given, so this is only an example. Set one with\n         \
                  --limit LIMIT/PERIOD, or let `tollgate suggest` find one.\n";
    }
    if args.algorithms.burst.is_some() && algorithms.iter().any(|algorithm| !algorithm.has_burst()) {
        about += "         The burst applies to gcra, token-bucket and leaky-bucket; window\n         \
                  algorithms ignore it.\n";
    }
    about += &storage.line(quotas.len());
    left_out.iter().for_each(|note| about += &format!("Note     {note}\n"));
    say(&about::skipped_lines(&trace));

    let series =
        replays.iter().map(|replay| (replay.algorithm.name().to_owned(), &replay.tally.decisions.bytes[..]));
    let finished = FinishedReplay {
        trace: &trace,
        limits: format!("{} for each key", output::all_limits(&quotas)),
        series: series.collect(),
        about,
    };
    let pages = || {
        let clients = sections::clients(&trace, &replays, args.top);
        vec![
            sections::summary(&replays, &storage),
            clients,
            one_percent(args, &trace, &quotas, storage, &replays),
        ]
    };
    let json = || output::json(&trace, &replays, &storage, args.top);
    let tables = || {
        let suggested = match trace.mostly_used(args.input.allow_skipped) {
            Ok(()) => suggestion(args, &trace, &quotas, storage, &replays),
            Err(error) => format!("\nNo limit is suggested: {error}\n"),
        };
        output::tables(&trace, &replays, &storage, args.top) + &suggested
    };
    write_results(args, &finished, pages, json, tables)
}

/// Replays through several algorithms, and compares each with an exact sliding log.
///
/// An algorithm that cannot hold the quotas ends the run if the user named it. If it is only one of all algorithms, it
/// is left out with a note.
///
/// # Errors
/// Returns an error if a named algorithm, or every algorithm, cannot hold a quota.
fn replay_all(
    trace: &Trace,
    algorithms: &[LimitKind],
    by_name: bool,
    quotas: &[Quota],
    setup: ReplaySetup,
    progress: &ProgressBar,
) -> Result<(Vec<AlgorithmReplay>, Vec<String>), Error> {
    let mut replays = Vec::new();
    let mut left_out = Vec::new();
    for &algorithm in algorithms {
        let name = algorithm.name();
        let exact = if setup.with_exact_store { ", with an exact store in parallel" } else { "" };
        progress.set_message(format!("{name}{exact}"));
        match replay(trace, algorithm, quotas, setup, progress) {
            Ok(mut replay) => {
                replay.against_log = log::differences(trace, quotas, &replay.tally.decisions.bytes);
                replays.push(replay);
            }
            Err(error) => {
                let why =
                    setup.quota_error_text(&error, algorithm, quotas, |quota| format!("--limit {quota}"));
                if by_name {
                    return Err(Error::usage(format!("{name}: {why}")));
                }
                left_out.push(format!("{name} left out: {why}"));
            }
        }
    }
    if replays.is_empty() {
        return Err(Error::usage(left_out.join("\n")));
    }
    Ok((replays, left_out))
}

/// Returns the periods of these limits, each once.
fn periods_of(quotas: &[Quota]) -> Vec<Duration> {
    let mut periods: Vec<Duration> = Vec::new();
    for quota in quotas {
        if !periods.contains(&quota.period()) {
            periods.push(quota.period());
        }
    }
    periods
}

/// Returns the burst of limits to find: that of a single limit, or that of the command line.
fn burst_of(args: &ReplayArgs, quotas: &[Quota]) -> Option<u64> {
    match quotas {
        [quota] if quota.burst_size() != quota.limit() => Some(quota.burst_size()),
        _ => args.algorithms.burst,
    }
}

/// Returns the answer of `tollgate suggest` for its default goal and the periods of these limits.
fn suggestion(
    args: &ReplayArgs,
    trace: &Trace,
    quotas: &[Quota],
    storage: Storage,
    replays: &[AlgorithmReplay],
) -> String {
    let (periods, progress) = (periods_of(quotas), progress::bar_of_tries());
    let goal = Goal::DEFAULT;
    let search = Search {
        trace,
        goal,
        periods: &periods,
        burst: burst_of(args, quotas),
        storage,
        progress: &progress,
    };
    let default = storage.default_algorithm();
    let mut algorithms = replays.iter().map(|replay| replay.algorithm);
    let algorithm = algorithms.clone().find(|&one| one == default).or_else(|| algorithms.next());
    let found = search.find(algorithm.unwrap_or(default));
    progress.finish_and_clear();
    let answer = found.map_or_else(|error| format!("{error}\n"), |found| search.answer(&found));
    format!("\nTo {} (for other goals: tollgate suggest)\n{answer}", goal.text())
}

/// Returns the section with the smallest limits that would have denied at most one request in a hundred.
fn one_percent(
    args: &ReplayArgs,
    trace: &Trace,
    quotas: &[Quota],
    storage: Storage,
    replays: &[AlgorithmReplay],
) -> Section {
    if let Err(error) = trace.mostly_used(args.input.allow_skipped) {
        return sections::one_percent(trace, &[FoundLimits { names: String::new(), outcome: Err(error) }]);
    }
    let (periods, progress) = (periods_of(quotas), progress::bar_of_tries());
    let goal = Goal { requests: Some(ONE_PERCENT), clients: None };
    let burst = burst_of(args, quotas);
    let search = Search { trace, goal, periods: &periods, burst, storage, progress: &progress };
    let mut found: Vec<(&AlgorithmReplay, FoundLimits)> = Vec::new();
    for replay in replays {
        // Algorithms with a burst decide alike, so one search is enough.
        let same = |(other, _): &&mut (&AlgorithmReplay, _)| {
            let have_bursts = other.algorithm.has_burst() && replay.algorithm.has_burst();
            have_bursts && other.tally.decisions.bytes == replay.tally.decisions.bytes
        };
        let name = replay.algorithm.name();
        match found.iter_mut().find(same) {
            Some((_, found)) => found.names += &format!(", {name}"),
            None => {
                let outcome = search.find(replay.algorithm);
                found.push((replay, FoundLimits { names: name.to_owned(), outcome }));
            }
        }
    }
    progress.finish_and_clear();
    let found: Vec<FoundLimits> = found.into_iter().map(|(_, found)| found).collect();
    sections::one_percent(trace, &found)
}
