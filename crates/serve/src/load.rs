//! Rules: where they come from, loads, and the built-in example.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tollgate::telemetry::TopDenied;
use tollgate_redis::Client;
use tollgate_rules::{
    ChangeKind, Charging, Config, LoadReport, Rules, RulesBuilder, RulesError, RulesSnapshot,
};

use super::debug::TOP;
use super::{log, process};
use crate::flags::ServeRules;
use tollgate_report::error::Error;

/// The rules of `tollgate serve` without a file.
const EXAMPLE: &str = "\
domain: example
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 5 }
";

/// Loads the rules of the files and folders, and writes what is suspicious about them to the log. Without any paths,
/// loads the example. `redis` is the client of the Redis server. `hold_all`: see [`RulesBuilder::hold_all`]. The rules take the usage
/// of the snapshot over.
///
/// # Errors
/// If the rules cannot be loaded.
pub fn load(
    args: &ServeRules,
    redis: Option<Client>,
    hold_all: bool,
    snapshot: Option<RulesSnapshot>,
) -> Result<Arc<Rules>, Error> {
    let failed = |error: RulesError| Error::run(error.to_string());
    let builder = builder(args, redis, hold_all, snapshot)?;
    if args.paths.is_empty() {
        let config = Config::from_yaml("example", EXAMPLE).map_err(|error| Error::run(error.to_string()))?;
        return Ok(Arc::new(builder.load([config]).map_err(failed)?));
    }
    let rules = builder.read(&args.paths).map_err(failed)?;
    match rules.last_error() {
        Some(error) => log::warn(format_args!("{NEVER_LOADED}: {error}")),
        None => warn_of_no_rules(&rules),
    }
    Ok(Arc::new(rules))
}

/// The most changes of a load that the log lists.
const CHANGES: usize = 20;

const NEVER_LOADED: &str = "no rules yet, so all answers are UNAVAILABLE";

/// Writes the result of a later load to the log.
pub fn note(loaded: &Result<LoadReport, RulesError>, rules: &Rules) {
    match loaded {
        Ok(report) => {
            // The text of 10,000 changes takes a while.
            if log::has_info() {
                log::info(format_args!("the rules changed: {}", shortened(&report.to_string())));
            }
            for removed in report.of_kind(ChangeKind::Removed).filter(|change| change.rule().is_none()) {
                log::warn(format_args!("the domain {:?} has no rules any more", removed.domain()));
            }
            for domain in report.lost() {
                log::warn(format_args!(
                    "no rule is left that the requests of domain {domain:?} matched, so they have no limits now; compare \
                     the keys of the rules with those of the requests"
                ));
            }
            warn_of_no_rules(rules);
        }
        Err(error) if rules.reloads().successes == 0 => log::warn(format_args!("{NEVER_LOADED}: {error}")),
        Err(error) => log::warn(format_args!("the earlier rules stay in force: {error}")),
    }
}

/// Returns the first lines of a report. A file may have thousands of rules.
fn shortened(report: &str) -> String {
    let (shown, more) = (report.lines().take(1 + CHANGES), report.lines().skip(1 + CHANGES).count());
    let mut text = shown.collect::<Vec<_>>().join("\n");
    if more > 0 {
        text.push_str(&format!("\n  and {more} more; `tollgate rules diff` lists all changes"));
    }
    text
}

/// Writes a warning if a load found no rules. By the protocol, an unknown domain has no limits.
fn warn_of_no_rules(rules: &Rules) {
    if rules.reloads().rules == 0 {
        log::warn(
            "no rules are in force, so every request passes; with --unhealthy-without-rules, health checks would fail",
        );
    }
}

/// Starts the thread that frees the rules that loads replace. It runs after each load, until the sender is dropped.
///
/// Loads give way, and this thread does not. glibc frees memory under a lock of the thread that allocated it, and the first request
/// of a rule allocates its store. Symptom: the thread that loads lost its core while it held that lock, and an answer waited for it.
///
/// # Errors
/// If the system cannot start the thread.
pub fn free_replaced(rules: &Arc<Rules>) -> Result<mpsc::Sender<()>, Error> {
    let (loaded, loads) = mpsc::channel();
    let rules = Arc::downgrade(rules);
    let run = move || {
        let mut are_left = false;
        loop {
            let loaded = match are_left {
                true => loads.recv_timeout(AGAIN),
                false => loads.recv().map_err(RecvTimeoutError::from),
            };
            if loaded == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            let Some(rules) = rules.upgrade() else { return };
            are_left = rules.free_replaced();
        }
    };
    process::spawn_equal("tollgate-free", run).map(|_| loaded)
}

/// How long answers may take that use replaced rules, until these are looked at again.
const AGAIN: Duration = Duration::from_secs(1);

/// Writes the result of a load to the log, and wakes what waits for it.
pub type NoteLoad = Arc<dyn Fn(&Result<LoadReport, RulesError>) + Send + Sync>;

/// Returns how rules are loaded.
///
/// # Errors
/// If the settings of the list of denied keys cannot be used.
pub fn builder(
    args: &ServeRules,
    redis: Option<Client>,
    hold_all: bool,
    snapshot: Option<RulesSnapshot>,
) -> Result<RulesBuilder, Error> {
    let top = TopDenied::try_new(TOP, 1).map_err(|error| Error::run(error.to_string()))?;
    let mut builder = Rules::builder()
        .merge_domains(args.merge_domains)
        .allow_file_removals(true)
        .start_without_rules(args.start_without_rules)
        .default_charging(Charging::CountDenials)
        .near_limit(args.near_limit)
        .shadow(args.shadow)
        .quota(args.quota)
        .hold_all(hold_all)
        .keep_replaced(true)
        .top_denied(top);
    if let Some(charging) = args.charging {
        builder = builder.charging(charging.into());
    }
    if let Some(client) = redis {
        builder = builder.shared(client);
    }
    if let Some(prefix) = &args.connection.redis_prefix {
        builder = builder.shared_prefix(prefix);
    }
    if let Some(snapshot) = snapshot {
        builder = builder.restore(snapshot);
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reports_are_shortened() {
        let report = |lines: usize| {
            (0..lines).fold("0 added".to_owned(), |report, line| format!("{report}\n  changed rule {line}"))
        };
        assert_eq!(shortened(&report(20)), report(20));
        let long = shortened(&report(10_000));
        assert_eq!(long.lines().count(), 22);
        assert!(long.starts_with(&report(20)) && long.contains("\n  and 9980 more;"), "{long}");
    }
}
