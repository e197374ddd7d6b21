//! `tollgate serve`: the rate limit service that gateways ask, as a library. `tollgate ctl` is the client of operators.
//!
//! | file | does |
//! |---|---|
//! | `flags/`, `arguments`, `variables`, `duration` | the command line; the variables of Envoy's Go service, as flags; durations |
//! | `load`, `redis`, `outage` | rules: files, folders, the built-in example; the client of the Redis server, and whether the server can be used |
//! | `xds/` | rules from a control plane |
//! | `proto/`, `answer/` | the messages; from a request to its answer |
//! | `grpc/`, `http/`, `debug/`, `admin/` | the endpoints, each with the same files: `listen`, `read`, `answer`, `write` |
//! | `ctl/` | the client of operators |
//! | `health`, `metrics`, `recorder` | the health of all endpoints; the page of metrics; the series on it |
//! | `read_twice` | changes of files that are read again |
//! | `endpoint`, `endpoints` | what an endpoint is, also for other packages; the list of all |
//! | `listen`, `tls`, `connections`, `peer`, `secret` | from a listener to requests, and who sends them |
//! | `run` | the order of the start and of the end |
//! | `state` | the file from which the next process takes the usage over |
//! | `stats`, `log`, `denials` | counts, log lines, denials in the log |
//! | `process`, `traces` | health checks of containers, systemd, metrics of the process; spans |
//!
//! # Threads
//! The gRPC and HTTP endpoints, and those that a program adds, run on one runtime with a thread for each core. The debug and metrics endpoints, and the reading of
//! certificates, have a thread of their own, so they never delay an answer. Rules are loaded by their watcher's thread, or
//! at SIGHUP by a thread for that. On Linux, these threads have a lower priority than those that answer. Log lines are
//! written by one more.

#![allow(
    clippy::len_without_is_empty,
    missing_debug_implementations,
    missing_docs,
    rustdoc::private_intra_doc_links,
    unreachable_pub,
    reason = "`pub` is for programs and their endpoints, and for tests, fuzz targets and benches"
)]

pub mod admin;
pub mod answer;
mod arguments;
mod connections;
pub mod ctl;
pub mod debug;
mod denials;
pub mod duration;
pub mod endpoint;
mod endpoints;
#[expect(rustdoc::broken_intra_doc_links, reason = "brackets in a text of `--help`")]
pub mod flags;
pub mod grpc;
mod health;
pub mod http;
mod listen;
mod load;
pub mod log;
mod metrics;
mod outage;
mod peer;
mod process;
pub mod proto;
mod read_twice;
pub mod recorder;
mod redis;
mod run;
mod secret;
mod state;
mod stats;
pub mod tls;
#[cfg_attr(not(feature = "otlp"), path = "no_traces.rs")]
mod traces;
pub mod variables;
pub mod xds;

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use tokio::runtime::Builder;

use self::ctl::flags::CtlCommand;
use self::endpoint::{EndpointFlags, ShortHelp};
use self::flags::{NoFlags, SHORT_HELP, ServeArgs, ServeRules};
use self::variables::Translation;
use tollgate_report::error::Error;
use tollgate_report::files::{RuleFiles, in_folder};
use tollgate_report::human;
use tollgate_report::line::line;
use tollgate_report::output::{print, say_error};

/// The commands of the service, with the flags `E` of endpoints that a program adds.
#[derive(Subcommand, Debug)]
pub enum Command<E: Args + EndpointFlags = NoFlags> {
    /// Answer the questions of gateways: the rate limit service of Envoy's protocol
    #[command(help_template = flags::TEMPLATE, after_help = short_help(E::short_help()), after_long_help = flags::EXAMPLES)]
    Serve(Box<ServeArgs<E>>),
    /// Inspect and change single keys of a running service: reset, grant, block, unblock
    #[command(arg_required_else_help = true, after_help = ctl::flags::EXAMPLES)]
    Ctl {
        /// What the operator wants.
        #[command(subcommand)]
        command: Box<CtlCommand>,
    },
}

/// The service alone, as a program, with the flags `E` of endpoints that it adds. `tollgate` has the same commands, beside others.
#[derive(Parser, Debug)]
#[command(
    name = "tollgate",
    bin_name = "tollgate",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    max_term_width = 80
)]
pub struct Program<E: Args + EndpointFlags = NoFlags> {
    /// The command.
    #[command(subcommand)]
    pub command: Command<E>,
}

/// Serves until the service is stopped, or asks a service that runs.
///
/// # Errors
/// If a flag, a file or an address cannot be used, or if connections were cut off at the end.
pub fn run<E: Args + EndpointFlags>(command: &Command<E>) -> Result<(), Error> {
    match command {
        Command::Serve(_) => {
            let ended = start::<E>();
            log::flush();
            ended
        }
        Command::Ctl { command } => ctl::run(command),
    }
}

/// Returns the short help, with the lines of added flags.
fn short_help(added: ShortHelp) -> String {
    SHORT_HELP.replace("{endpoints}", added.endpoints).replace("{security}", added.security)
}

fn start<E: Args + EndpointFlags>() -> Result<(), Error> {
    let (args, taken) = arguments::read::<E>(line())?;
    let (added, args) = args.split();
    if args.rules.explain_env {
        return arguments::explain(&taken);
    }
    if args.process.healthcheck {
        return process::check_health(http::address(&args));
    }
    log::set(args.logs.log, args.logs.log_format);
    // The connections to Redis servers take the process's provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    taken.warnings.iter().for_each(log::warn);
    if args.rules.check {
        return check(&args, &added, &taken);
    }
    warn_of_rules(&args.rules);
    run::run(&args, &added, &taken)
}

/// Returns the files that a load reads: each file once, even if it is reached in several ways.
fn files_of(rules: &ServeRules) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = rules.paths.iter().flat_map(in_folder).collect();
    let mut seen = HashSet::new();
    files.retain(|file| seen.insert(fs::canonicalize(file).unwrap_or_else(|_| file.clone())));
    files
}

/// Writes the warnings about the files of rules to the log.
fn warn_of_rules(rules: &ServeRules) {
    let files = RuleFiles::read_silently(&files_of(rules), rules.merge_domains);
    // Errors end the start, or are in the log.
    if files.errors.is_empty() {
        files.warnings.iter().for_each(log::warn);
    }
}

/// Checks everything that the start would use, and prints all problems.
fn check(args: &ServeArgs, added: &dyn EndpointFlags, taken: &Translation) -> Result<(), Error> {
    let paths = files_of(&args.rules);
    let files = RuleFiles::read(&paths, args.rules.merge_domains);
    let tls = run::tls(args);
    let mut checks = vec![
        arguments::settings(args).map(drop),
        endpoints::asked(args, added, tls.as_ref().ok().and_then(Option::as_ref), taken, &Arc::default())
            .map(drop),
        tls.map(drop),
        traces::check(&args.process).map(drop),
        xds::prepare(args, None, &mut None).map(drop),
        state::check(&args.state),
        files.usable(),
    ];
    // A load reports the errors of files again.
    if files.errors.is_empty() {
        // Rules in Redis need a runtime.
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::run(format!("cannot start a runtime: {error}")))?;
        checks.push(runtime.block_on(async {
            load::load(&args.rules, redis::client(&args.rules)?, args.endpoints.kuadrant, None).map(drop)
        }));
    }
    let mut errors: Vec<Error> = checks.into_iter().filter_map(Result::err).collect();
    if let Some(last) = errors.pop() {
        errors.iter().for_each(say_error);
        return Err(last);
    }
    if args.rules.paths.is_empty() {
        return print(match &args.xds.xds {
            Some(_) => b"the flags can be used; the control plane was not asked for its rules\n",
            None => b"the flags can be used; name a file or folder to check your own rules\n",
        });
    }
    let rules = files.domains.iter().map(|domain| domain.rules().len() as u64).sum();
    let rules = human::counted(rules, "rule");
    let domains = human::counted(files.domains.len() as u64, "domain");
    print(format!("{rules} of {domains} and the flags can be used\n").as_bytes())
}
