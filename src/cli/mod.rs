//! The `tollgate` program: replays access logs through the library's own limiters, in log time.
//!
//! | file | does |
//! |---|---|
//! | `args` | the command line |
//! | `input/` | files to records: decompression, formats, fields, times, keys |
//! | `synthetic` | the made-up day |
//! | `storage` | which store, and how large |
//! | `algorithms`, `stores`, `replay`, `suggest` | the work |
//! | `by_rules/` | replay through files of rules |
//! | `rules` | files of rules: what they say, and what is wrong |
//! | `exact` | how many decisions differ from an exact sliding log's |
//! | `report`, `table`, `fared`, `compact`, `sketch`, `chart`, `axis`, `human` | what people and programs see of it |
//!
//! It is a module of the library, hidden from its documentation, so that tests and fuzz targets reach the parsers.
//! It is no part of the library's interface.

pub mod algorithms;
pub mod args;
pub mod axis;
pub mod by_rules;
pub mod chart;
pub mod compact;
pub mod decimal;
pub mod error;
pub mod exact;
pub mod fared;
pub mod human;
pub mod input;
pub mod replay;
pub mod report;
pub mod rules;
pub mod sketch;
pub mod storage;
pub mod stores;
pub mod suggest;
pub mod synthetic;
pub mod table;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser as _, ValueEnum as _};
use indicatif::{ProgressBar, ProgressStyle};

use self::algorithms::{Kind, chosen};
use self::args::{Cli, Command, InputArgs, ReplayArgs, Share, SuggestArgs};
use self::error::Error;
use self::input::{Selection, Trace};
use self::replay::Setup;
use self::storage::Storage;
use self::suggest::{Goal, Search};

/// Runs the program on the process's arguments.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Replay(args) => run_replay(&args),
        Command::Suggest(args) => run_suggest(&args),
        Command::Rules { command } => rules::run(&command, say),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, Error::BrokenPipe) {
                say(&format!("error: {error}\n"));
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// To standard error; if that is closed, there is no one to tell.
fn say(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn run_replay(args: &ReplayArgs) -> Result<(), Error> {
    if !args.by_rules.rules.is_empty() {
        return by_rules::run(args);
    }
    let quotas = args.quotas()?;
    let by_name = args.algorithms.by_name();
    let storage = args.algorithms.stores.storage(quotas.len())?;
    let kinds = chosen(&args.algorithms.algorithm, Kind::value_variants());
    let (kinds, mut left_out) = storage.holds(&kinds, by_name)?;
    if args.decisions.is_some() && kinds.len() != 1 {
        return Err(Error::usage(format!(
            "--decisions writes one algorithm's decisions, but there are {}; choose one with --algorithm",
            kinds.len()
        )));
    }
    report::writable(args.outputs())?;
    let trace = read(&args.input, args.json.as_deref())?;
    let progress = bar(trace.records.len() as u64 * kinds.len() as u64, "replaying");
    let setup = Setup { options: args.algorithms.options(), storage, beside: storage != Storage::Keyed };
    let (outcomes, unfit) = replay::replay_all(&trace, &kinds, by_name, &quotas, setup, &progress)?;
    left_out.extend(unfit);
    progress.finish_and_clear();

    let mut about = report::input_lines(&trace, args.input.no_sort) + &report::limits_line(&quotas);
    if args.limit.is_empty() {
        about += "         No --limit was given, so this is only an example. Set one with --limit LIMIT/PERIOD, or\n         \
                  let `tollgate suggest` find one.\n";
    }
    if args.algorithms.burst.is_some() && kinds.iter().any(|kind| !kind.heeds_burst()) {
        about += "         The burst is for gcra, token-bucket and leaky-bucket; windows ignore it.\n";
    }
    about += &storage.line(quotas.len());
    left_out.iter().for_each(|note| about += &format!("Note     {note}\n"));
    say(&report::skipped_lines(&trace));

    // Files first: if standard output is closed early, they are complete. One that fails costs no other result.
    let files = [
        match (&args.decisions, &outcomes[..]) {
            (Some(path), [outcome]) => report::write_to(path, &outcome.tally.decisions),
            _ => Ok(()),
        },
        args.chart.as_ref().map_or(Ok(()), |path| chart::draw(path, &trace, &outcomes)),
    ];
    let json = match &args.json {
        Some(path) => Some((path, report::replay_json(&trace, &outcomes, &storage, args.top)?)),
        None => None,
    };
    finish(files, json, &about, || report::replay_tables(&trace, &outcomes, &storage, args.top))
}

fn run_suggest(args: &SuggestArgs) -> Result<(), Error> {
    let periods = args.periods()?;
    let storage = args.algorithms.stores.storage(periods.len())?;
    let kinds = chosen(&args.algorithms.algorithm, &[storage.favourite()]);
    let (kinds, left_out) = storage.holds(&kinds, args.algorithms.by_name())?;
    let requests = match args.deny_clients {
        None => args.deny_requests.or(Some(Share { billionths: 1_000_000 })),
        Some(_) => args.deny_requests,
    };
    let goal = Goal { requests, clients: args.deny_clients };
    report::writable(&args.json)?;
    let trace = read(&args.input, args.json.as_deref())?;
    let progress = bar_of_tries();
    let search = Search {
        trace: &trace,
        goal,
        periods,
        burst: args.algorithms.burst,
        options: args.algorithms.options(),
        storage,
        progress: &progress,
    };
    let answers = kinds.iter().map(|&kind| search.find(kind)).collect::<Result<Vec<_>, _>>()?;
    progress.finish_and_clear();
    let default = if args.deny_requests.is_none() && args.deny_clients.is_none() {
        " (by default; see --deny-requests and --deny-clients)"
    } else {
        ""
    };
    let mut about = report::input_lines(&trace, args.input.no_sort)
        + &search.lines(default)
        + &storage.line(periods.len());
    left_out.iter().for_each(|note| about += &format!("Note     {note}\n"));
    say(&report::skipped_lines(&trace));
    let json = match &args.json {
        Some(path) => Some((path, suggest::json(&search, &answers)?)),
        None => None,
    };
    finish([], json, &about, || suggest::tables(&search, &answers))
}

/// Prints what was found: JSON alone on standard output, or else the table, and the JSON to its file. Fails after that if a file could
/// not be written.
fn finish(
    files: impl IntoIterator<Item = Result<(), Error>>,
    json: Option<(&std::path::PathBuf, String)>,
    about: &str,
    tables: impl FnOnce() -> String,
) -> Result<(), Error> {
    let mut written: Result<(), Error> = files.into_iter().collect();
    let to_stdout = json.as_ref().is_some_and(|(path, _)| path.as_path() == Path::new("-"));
    if let Some((path, json)) = json {
        written = written.and(report::write_to(path, json.as_bytes()));
    }
    if to_stdout {
        say(about);
    } else {
        report::print(format!("{about}\n{}", tables()).as_bytes())?;
    }
    written
}

/// The requests to work on: those of the files, or the made-up day.
fn read(input: &InputArgs, json: Option<&Path>) -> Result<Trace, Error> {
    if input.files.is_empty() {
        return Ok(synthetic::day());
    }
    with_bar(input, json, input::load)
}

/// Reads files, while a bar shows how far that is.
fn with_bar(
    input: &InputArgs,
    json: Option<&Path>,
    load: impl FnOnce(&Selection, &ProgressBar) -> Result<Trace, Error>,
) -> Result<Trace, Error> {
    let progress = match size(&input.files) {
        Some(size) => bar(size, "reading"),
        None => bar_of_bytes(),
    };
    let trace = load(&input.selection(), &progress);
    progress.finish_and_clear();
    match (trace, &input.files[..]) {
        // `--json out.json` names a second input, which is seldom what was meant.
        (Err(Error::Run(message)), [_, .., last])
            if json == Some(Path::new("-"))
                && last.extension().is_some_and(|extension| extension == "json") =>
        {
            Err(Error::Run(format!(
                "{message}\n(to write JSON to a file, join it by =, as in --json={})",
                last.display()
            )))
        }
        (trace, _) => trace,
    }
}

/// How many bytes files have together; `None` if that is not known, as of standard input and of pipes.
fn size(files: &[std::path::PathBuf]) -> Option<u64> {
    let size = |path: &std::path::PathBuf| {
        let metadata = std::fs::metadata(path).ok().filter(|_| path.as_os_str() != "-")?;
        metadata.is_file().then_some(metadata.len())
    };
    files.iter().map(size).sum()
}

/// For input whose length is not known: how much was read.
fn bar_of_bytes() -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>9} {spinner} {binary_bytes} {msg}");
    ProgressBar::no_length()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        .with_prefix("reading")
}

/// A progress bar on standard error; nothing unless that is a terminal.
fn bar(length: u64, prefix: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>9} {wide_bar} {percent:>3} % {msg}");
    ProgressBar::new(length)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_prefix(prefix)
}

/// For a search, of which no one knows how many replays it takes.
fn bar_of_tries() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} trying {msg}");
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_have_a_size_to_reach() {
        let file: std::path::PathBuf = env!("CARGO_MANIFEST_PATH").into();
        let bytes = std::fs::metadata(&file).unwrap().len();
        assert_eq!(size(&[file.clone(), file.clone()]), Some(2 * bytes));
        assert_eq!(size(&[file, "-".into()]), None);
        assert_eq!(size(&["/dev/null".into()]), None);
        // So there is no part of it to show.
        assert_eq!(bar_of_bytes().length(), None);
        assert_eq!(bar(7, "reading").length(), Some(7));
    }
}
