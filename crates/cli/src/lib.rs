//! The program `tollgate`, as a library. It replays access logs through the limiters of the crate `tollgate`, at the times of
//! the log. See `tollgate --help`.
//!
//! | file | does |
//! |---|---|
//! | `args/` | the command line |
//! | `input/` | files to records: decompression, formats, fields, times, keys |
//! | `load`, `synthetic` | the files that the command line names, or the generated day |
//! | `algorithm`, `store` | the algorithms and the stores by name |
//! | `replay/`, `suggest/`, `rules/` | the work of each command, and its output, as tables and as JSON |
//! | `shell` | scripts that complete the command line, and manual pages |
//! | `output/` | charts, pages, files, progress |
//!
//! With the feature `serve`, the package `tollgate-serve` adds the service and the client of operators, and `tollgate-resp` its endpoint for
//! Redis clients. `tollgate-report` writes numbers, errors, tables and rules for all of them.
//!
//! The program uses public names of `tollgate` only. The modules that are public here are those that tests, fuzz targets
//! and benches use. Other crates must not use them, because they change without notice.

#![allow(
    clippy::len_without_is_empty,
    missing_debug_implementations,
    missing_docs,
    rustdoc::private_intra_doc_links,
    unreachable_pub,
    reason = "a program exports nothing: `pub` is for the other modules, and for tests"
)]

mod algorithm;
pub mod args;
pub mod input;
mod load;
pub mod output;
mod replay;
mod rules;
mod shell;
mod store;
mod suggest;
pub mod synthetic;

use std::process::ExitCode;

use tollgate_report::{line, output as terminal};

use self::args::rules::RulesCommand;
use self::args::{Cli, Command};

/// Runs the program with the arguments of this process.
#[must_use]
pub fn run() -> ExitCode {
    terminal::end(match line::read::<Cli>().command {
        Command::Replay(args) if args.by_rules.rules.is_empty() => replay::run::run(&args),
        Command::Replay(args) => rules::replay::run(&args),
        Command::Suggest(args) => suggest::run(&args),
        Command::Rules { command } => match command {
            RulesCommand::Check(args) => rules::check::run(&args),
            RulesCommand::Explain(args) => rules::explain::run(&args),
            RulesCommand::Push(args) => rules::shared::push(&args),
            RulesCommand::Pull(args) => rules::shared::pull(&args),
            RulesCommand::Diff(args) => rules::shared::diff(&args),
        },
        #[cfg(feature = "serve")]
        Command::Service(command) => tollgate_serve::run(&command),
        #[cfg(not(feature = "serve"))]
        Command::Serve { .. } => Err(tollgate_report::error::Error::left_out("the service", "serve")),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { folder } => shell::man(folder.as_deref()),
    })
}
