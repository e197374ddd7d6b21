//! `tollgate rules push`, `pull` and `diff`: rules on a server.

use tollgate_redis::{PushedRules, RedisRules, check_config};
use tollgate_rules::{Config, Domain, LoadReport, Problem, RulesError};

use crate::args::shared::{DiffArgs, PullArgs, PushArgs};
use tollgate_report::error::Error;
use tollgate_report::files::{RULES_URL, RuleFiles};
use tollgate_report::human;
use tollgate_report::output::{print, print_lines, say, say_warning};
use tollgate_report::text::printable_lines;

/// Checks a file, and writes it to the server.
///
/// # Errors
/// Returns an error if the file or the server cannot be used, if the server has another version than expected, or if the
/// push would remove a domain without the flag for that.
pub fn push(args: &PushArgs) -> Result<(), Error> {
    let server = open(args.to.to.as_deref(), &args.to.name)?;
    let (config, format, text) = RuleFiles::read_one(&args.file)?;
    let text = String::from_utf8_lossy(&text);
    let present = match server.pull() {
        Ok(present) => present,
        // Damaged rules can be replaced. If the server cannot be reached, the push fails too.
        Err(error) if args.force => {
            say_warning(error);
            None
        }
        Err(error) => return Err(failed(&error)),
    };
    let number = present.as_ref().map_or(0, |present| present.version().as_number());
    let seen = if args.force { None } else { Some(args.seen.unwrap_or(number)) };
    if let Some(present) = &present
        && present.text() == text
        && present.format() == format
        && seen.is_none_or(|seen| seen == number)
    {
        return print_lines(&format!("{} has this text already; nothing is written\n", present.version()));
    }
    let user = || ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
    let by = args.by.clone().or_else(user).unwrap_or_else(|| "unknown".to_owned());
    let change = ConfigChange::of(present.as_ref(), config);
    if let Some(warning) = change.warning() {
        if !args.allow_removals {
            return Err(Error::run(format!("{warning}; put its rules back, or push with --allow-removals")));
        }
        say_warning(warning);
    }
    let version = server.push(format, &text, &by, seen).map_err(|error| failed(&error))?;
    print_lines(&format!("version {version} is written: {}\n", change.report))
}

/// Prints the rules that a push of a file would add, change and remove.
///
/// # Errors
/// Returns an error if the file or the server cannot be used.
pub fn diff(args: &DiffArgs) -> Result<(), Error> {
    let server = open(args.to.to.as_deref(), &args.to.name)?;
    let (config, ..) = RuleFiles::read_one(&args.file)?;
    let present = server.pull().map_err(|error| failed(&error))?;
    let about = present.as_ref().map_or_else(|| "there are no rules yet".to_owned(), about);
    let change = ConfigChange::of(present.as_ref(), config);
    if let Some(warning) = change.warning() {
        say_warning(warning);
    }
    print_lines(&format!("{about}\n{}\n", printable_lines(&change.report)))
}

/// Prints the text of a version, and to standard error what is known about it.
///
/// # Errors
/// Returns an error if the server cannot be used, or has no such version.
pub fn pull(args: &PullArgs) -> Result<(), Error> {
    let server = open(args.from.as_deref(), &args.name)?;
    let found = match args.version {
        None => server.pull(),
        Some(version) => server.pull_version(version),
    };
    let Some(pushed) = found.map_err(|error| failed(&error))? else {
        let name = &args.name;
        return Err(Error::run(match args.version {
            None => format!("there are no rules named {name:?}; write them with `tollgate rules push`"),
            Some(version) => {
                format!(
                    "there is no version {version} of {name:?}; the server keeps the present one and five before it"
                )
            }
        }));
    };
    say(&format!("{}\n", about(&pushed)));
    print(pushed.text().as_bytes())
}

fn failed(error: &RulesError) -> Error {
    Error::run(error.to_string())
}

fn open(url: Option<&str>, name: &str) -> Result<RedisRules, Error> {
    let no_server = |what: &str| {
        Err(Error::usage(format!(
            "{what}: set --to (for pull --from) or the variable {RULES_URL} to redis://[[user]:password@]host[:port]"
        )))
    };
    let (url, from) = match (url, std::env::var(RULES_URL)) {
        (Some(url), _) => (url.to_owned(), String::new()),
        (None, Ok(url)) if url.is_empty() => return no_server(&format!("the variable {RULES_URL} is empty")),
        (None, Ok(url)) => (url, format!(" (the address is from the variable {RULES_URL})")),
        (None, Err(_)) => return no_server("no server"),
    };
    RedisRules::open(&url, name).map_err(|error| Error::usage(format!("{error}{from}")))
}

/// Returns the problems of the rules that a server cannot count.
pub fn uncountable(configs: &[Config]) -> Vec<Problem> {
    let errors = configs.iter().filter_map(|config| check_config(config).err());
    errors.flat_map(|error| error.problems().to_vec()).collect()
}

/// Writes `version 7 of 1,234 bytes of yaml, by "ann", at 2026-11-23T10:00:00Z`.
fn about(pushed: &PushedRules) -> String {
    let length = human::counted(pushed.text().len() as u64, "byte");
    let at = jiff::Timestamp::try_from(pushed.pushed_at())
        .map_or_else(|_| "an unknown time".to_owned(), |at| at.to_string());
    format!("{}: {length} of {}, pushed by {:?} at {at}", pushed.version(), pushed.format(), pushed.by())
}

/// What would change from the present rules to others.
struct ConfigChange {
    report: String,
    /// A domain that has rules now, and would have none. A name holds the rules of one domain.
    removed: Option<String>,
}

impl ConfigChange {
    fn of(present: Option<&PushedRules>, config: Config) -> Self {
        let before = present.map(|present| {
            Config::from_bytes(&present.version().to_string(), present.format(), present.text())
        });
        let domains = |config: Option<Config>| Domain::merge(config, false);
        let both = before.transpose().and_then(|before| Ok((domains(before)?, domains(Some(config))?)));
        let (before, after) = match both {
            Ok(both) => both,
            Err(error) => {
                let report =
                    format!("the changes are unknown, because the rules cannot be compared: {error}");
                return Self { report, removed: None };
            }
        };
        let has_rules = |domains: &[Domain], name: &str| {
            domains.iter().any(|domain| domain.name() == name && !domain.rules().is_empty())
        };
        let is_removed = |name: &&str| has_rules(&before, name) && !has_rules(&after, name);
        let removed = before.iter().map(Domain::name).find(is_removed).map(str::to_owned);
        Self { report: LoadReport::between_domains(&before, &after).to_string(), removed }
    }

    /// Returns what a push would do if it removes a domain.
    fn warning(&self) -> Option<String> {
        let name = self.removed.as_ref()?;
        Some(format!(
            "the domain {name:?} would have no rules any more: processes in which it is in use refuse such a version \
             and keep its rules, and new processes limit none of its requests"
        ))
    }
}
