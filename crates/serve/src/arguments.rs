//! The command line, the variables that complete it, and the settings that follow from it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::iter;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory as _, Parser as _};
use tollgate_http::Fields;

use super::answer::{LimitHeaders, Names, Settings};
use super::variables::{Translation, is_of_kubernetes};
use crate::endpoint::EndpointFlags;
use crate::flags::{LimitHeadersArg, ServeArgs, StoreAway};
use crate::{Command, Program};
use tollgate_report::error::Error;
use tollgate_report::files::RULES_URL;
use tollgate_report::line::flag_of;
use tollgate_report::output::print;

/// Returns the command line, completed by the variables of the Go service.
///
/// # Errors
/// If a variable cannot be used.
pub fn read<E: Args + EndpointFlags>(mut line: Vec<OsString>) -> Result<(ServeArgs<E>, Translation), Error> {
    let command = Program::<E>::command();
    let matches = command.clone().get_matches_from(&line);
    let given = matches.subcommand_matches("serve");
    let is_set = |id: &str| {
        let source = given.and_then(|given| given.value_source(id));
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let environment: BTreeMap<String, String> = std::env::vars_os().filter_map(text).collect();
    let mut taken = Translation::of(&environment).map_err(Error::usage)?;
    taken.warnings.extend(unknown(&command, &environment));
    let own_paths = std::env::var_os("TOLLGATE_RULES").unwrap_or_default();
    let mut own_paths: Vec<PathBuf> =
        std::env::split_paths(&own_paths).filter(|path| !path.as_os_str().is_empty()).collect();
    // Flags have priority over variables.
    if given.and_then(|given| given.value_source("xds")) == Some(ValueSource::CommandLine) {
        own_paths.clear();
    }
    taken.flags.retain(|flag| match flag.id {
        // One place of rules: the one that is named here.
        "paths" => !is_set("paths") && !is_set("xds") && own_paths.is_empty(),
        id if id.starts_with("xds") => !is_set(id) && !is_set("paths") && own_paths.is_empty(),
        // As for the Go service, a socket replaces the port.
        "grpc" => !is_set("grpc") && !is_set("grpc_socket"),
        id => !is_set(id),
    });
    let (paths, flags): (Vec<_>, Vec<_>) = taken.flags.iter().partition(|flag| flag.id == "paths");
    // The first argument is the command. A flag cannot be the last one: after `--`, it would be a path.
    line.splice(2..2, flags.iter().map(|flag| OsString::from(flag.args.join("="))));
    if !is_set("paths") {
        if !line.contains(&OsString::from("--")) {
            line.push("--".into());
        }
        line.extend(own_paths.into_iter().map(PathBuf::into_os_string));
        line.extend(paths.iter().flat_map(|flag| flag.args.iter().map(OsString::from)));
    }
    let parsed = Program::<E>::try_parse_from(line).map_err(|error| {
        // The lines up to the first empty one have the reason; the others show flags that the user did not type.
        let text = error.to_string();
        let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
        let why = lines.collect::<Vec<_>>().join(" ");
        let all = || Vec::from_iter(taken.taken()).join(", ");
        let from = flag_of(&error).map_or_else(all, |flag| taken.source(flag));
        Error::usage(format!("{} (from {from})", why.trim_start_matches("error: ")))
    })?;
    match parsed.command {
        Command::Serve(args) => Ok((*args, taken)),
        _ => Err(Error::usage("expected the command serve")),
    }
}

/// Returns a warning about variables that begin as those of this program do, but are none of them.
fn unknown(command: &clap::Command, environment: &BTreeMap<String, String>) -> Option<String> {
    // A variable of another command, such as TOLLGATE_AT, has its effect there.
    let commands = command.get_subcommands().flat_map(|one| iter::once(one).chain(one.get_subcommands()));
    let known: Vec<_> =
        commands.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_env).collect();
    let is_unknown = |name: &&str| {
        name.starts_with("TOLLGATE_")
            && !["TOLLGATE_RULES", RULES_URL].contains(name)
            && !is_of_kubernetes(name)
            && !known.iter().any(|known| known.to_str() == Some(*name))
    };
    let names: Vec<&str> = environment.keys().map(String::as_str).filter(is_unknown).collect();
    let names = Some(names.join(", ")).filter(|names| !names.is_empty())?;
    Some(format!("no flag has these variables, so they have no effect: {names}; see tollgate serve --help"))
}

/// Prints the flags that stand for the variables of the Go service.
///
/// # Errors
/// If printing fails.
pub fn explain(taken: &Translation) -> Result<(), Error> {
    let quoted = |arg: &str| {
        let plain = arg.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:=,@%*".contains(&byte));
        if plain { arg.to_owned() } else { format!("'{}'", arg.replace('\'', "'\\''")) }
    };
    let mut text = "tollgate serve".to_owned();
    for flag in &taken.flags {
        text.push_str(" \\\n  ");
        let hidden = flag.shown.iter().map(String::as_str);
        let args = flag.args.iter().map(String::as_str).take(2 - hidden.len()).chain(hidden);
        text.push_str(&args.map(quoted).collect::<Vec<_>>().join(" "));
    }
    text.push('\n');
    for flag in taken.flags.iter().filter(|flag| !flag.from.is_empty()) {
        let _ = writeln!(text, "# {} from {}", quoted(&flag.args[0]), flag.from.join(", "));
    }
    if taken.flags.iter().any(|flag| flag.id == "redis") {
        text.push_str("# only rules with `store: redis` in their file are shared\n");
    }
    if taken.flags.iter().any(|flag| flag.id == "redis" && flag.shown.is_some()) {
        text.push_str(
            "# *** stands for the password, or for an address with one; set the variable\n# TOLLGATE_REDIS to hide it from other users\n",
        );
    }
    for warning in &taken.warnings {
        let _ = writeln!(text, "# {warning}");
    }
    print(text.as_bytes())
}

/// Returns the settings of answers.
///
/// # Errors
/// If the names of header fields cannot be used.
pub fn settings(args: &ServeArgs) -> Result<Settings, Error> {
    let ServeArgs { answers, bounds, .. } = args;
    let three = |names: &String| match <[&str; 3]>::try_from(Vec::from_iter(names.split(','))) {
        Ok(names) => Names::new(names),
        Err(_) => Err("expected three names, separated by commas".to_owned()),
    };
    let names = answers.limit_header_names.as_ref().map_or_else(|| Ok(Names::default()), three);
    let names = names.map_err(|why| Error::usage(format!("--limit-header-names: {why}")))?;
    Ok(Settings {
        limit_headers: match answers.limit_headers {
            LimitHeadersArg::Ratelimit => LimitHeaders::Three(names),
            other => other.dialect().map_or(LimitHeaders::None, |of| LimitHeaders::Dialect(Fields::new(of))),
        },
        retry_after: answers.retry_after,
        dynamic_metadata: answers.dynamic_metadata,
        problem_body: answers.problem_body,
        negative_hits: bounds.allow_negative_hits,
        unavailable_without_store: answers.store_away == StoreAway::Unavailable,
        max_descriptors: bounds.max_descriptors,
        max_entries: bounds.max_entries,
        max_hits: bounds.max_hits.unwrap_or(u64::MAX),
        max_in_flight: bounds.max_in_flight,
        near_limit: args.rules.near_limit,
    })
}
