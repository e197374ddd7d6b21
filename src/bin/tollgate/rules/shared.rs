//! `tollgate rules push`, `pull` and `diff`: rules on a server.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate::rules::{Config, Domain, Format, LoadReport, PushedRules, RedisRules, RulesError};

use super::files::RuleFiles;
use crate::args::shared::{DiffArgs, PullArgs, PushArgs};
use crate::error::{Error, plain};
use crate::human;
use crate::output::{print, say};

/// Checks a file, and writes it to the server.
///
/// # Errors
/// Returns an error if the file or the server cannot be used, or if the server has another version than expected.
pub fn push(args: &PushArgs) -> Result<(), Error> {
    let server = open(args.to.to.as_deref(), &args.to.name)?;
    let (config, format, text) = read(&args.file)?;
    let present = match server.pull() {
        Ok(present) => present,
        // Damaged rules can be replaced. If the server cannot be reached, the push fails too.
        Err(error) if args.force => {
            say(&format!("warning: {error}\n"));
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
        return print(
            format!("{} has this text already; nothing is written\n", present.version()).as_bytes(),
        );
    }
    let user = || ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
    let by = args.by.clone().or_else(user).unwrap_or_else(|| "unknown".to_owned());
    let report = report(present.as_ref(), config);
    let version = server.push(format, &text, &by, seen).map_err(|error| failed(&error))?;
    print(format!("version {version} is written: {report}\n").as_bytes())
}

/// Prints the rules that a push of a file would add, change and remove.
///
/// # Errors
/// Returns an error if the file or the server cannot be used.
pub fn diff(args: &DiffArgs) -> Result<(), Error> {
    let server = open(args.to.to.as_deref(), &args.to.name)?;
    let (config, ..) = read(&args.file)?;
    let present = server.pull().map_err(|error| failed(&error))?;
    let about = present.as_ref().map_or_else(|| "there are no rules yet".to_owned(), about);
    let report = report(present.as_ref(), config);
    print(format!("{about}\n{report}\n").as_bytes())
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
    let variable = || std::env::var("TOLLGATE_REDIS_URL").ok();
    let Some(url) = url.map(str::to_owned).or_else(variable) else {
        return Err(Error::usage(
            "no server: set --to (for pull --from) or the variable TOLLGATE_REDIS_URL to redis://[[user]:password@]host[:port]",
        ));
    };
    RedisRules::open(&url, name).map_err(|error| Error::usage(error.to_string()))
}

/// Reads and checks a file. Prints its problems and warnings.
fn read(file: &Path) -> Result<(Config, Format, String), Error> {
    let files: [PathBuf; 1] = [file.to_owned()];
    RuleFiles::read(&files, false).usable(&files)?;
    let text = fs::read(file)
        .map_err(|error| Error::run(format!("cannot read {}: {}", file.display(), plain(&error))))?;
    let format = Format::of_path(file).unwrap_or_default();
    // The file may have changed since the check.
    let config = Config::from_bytes(&file.display().to_string(), format, &*text)
        .map_err(|error| Error::run(error.to_string()))?;
    Ok((config, format, String::from_utf8_lossy(&text).into_owned()))
}

/// Writes `version 7 of 1,234 bytes of yaml, by "ann", at 2026-11-23T10:00:00Z`.
fn about(pushed: &PushedRules) -> String {
    let length = human::counted(pushed.text().len() as u64, "byte");
    let at = jiff::Timestamp::try_from(pushed.pushed_at())
        .map_or_else(|_| "an unknown time".to_owned(), |at| at.to_string());
    format!("{}: {length} of {}, pushed by {:?} at {at}", pushed.version(), pushed.format(), pushed.by())
}

/// Returns what would change from the present rules to these.
fn report(present: Option<&PushedRules>, config: Config) -> String {
    let before = present
        .map(|present| Config::from_bytes(&present.version().to_string(), present.format(), present.text()));
    let domains = |config: Option<Config>| Domain::merge(config, false);
    let change = before
        .transpose()
        .and_then(|before| Ok(LoadReport::between_domains(&domains(before)?, &domains(Some(config))?)));
    change.map_or_else(
        |error| format!("the changes are unknown, because the rules cannot be compared: {error}"),
        |report| report.to_string(),
    )
}
