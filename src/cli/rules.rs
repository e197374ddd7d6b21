//! `tollgate rules check`: what files of rules say, and what is wrong with them.

use std::path::PathBuf;

use clap::{Arg, Args, Subcommand};
use serde::Serialize;

use super::args::InputArgs;
use super::by_rules;
use super::by_rules::args::{MappingArgs, RulesArgs};
use super::error::Error;
use super::human;
use super::input::row::printable;
use super::report;
use super::storage::Memory;
use crate::edge::rules::{Config, Domain, Limit, Problem, Rule, Shared, Store};

/// `tollgate rules`.
#[derive(Subcommand, Debug)]
pub enum RulesCommand {
    /// Check files of rules, and show what they say
    ///
    /// Reads each file, by its ending as YAML, JSON or TOML, in the language of Envoy's rate limit service and ours beyond it.
    /// Everything that is wrong is told with file, line and column, and what would be right; so is what is allowed but
    /// hardly meant, as a wildcard that is never reached. Files that are right are shown as the rules that a server would load.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
}

const CHECK_EXAMPLES: &str = "\
A file of rules, limits.yaml:
  domain: edge
  descriptors:
    - key: remote_address             # each address apart
      rate_limit: { unit: second, requests_per_unit: 10 }
    - key: remote_address
      value: 198.51.100.20            # but for this one, which has no limit
    - key: path
      value: /login
      descriptors:                    # requests with both entries, in this order
        - key: remote_address
          rate_limit: { unit: minute, requests_per_unit: 5 }

Examples:
  tollgate rules check limits.yaml
  tollgate rules check edge.yaml api.toml --json
  tollgate rules check rules/*.yaml --merge-domains
  tollgate rules check limits.yaml --log access.log --descriptor path=bare_path,remote_address=ip

Exit codes: 0 the files can be used, 1 they cannot, 2 the command line is wrong. Warnings change nothing about that.";

/// `tollgate rules check`.
#[derive(Args, Debug)]
#[command(mut_arg("files", log), mut_arg("key", no_key), mut_args(only_with_log))]
pub struct CheckArgs {
    /// Files of rules, whose names end in .yaml, .yml, .json or .toml
    #[arg(value_name = "FILE", required = true)]
    pub rules: Vec<PathBuf>,

    /// Let several files be of one domain: their descriptors come one after another
    ///
    /// Without it each domain is in one file. Descriptors that occur twice are wrong either way.
    #[arg(long)]
    pub merge_domains: bool,

    /// Print rules, warnings and errors as JSON instead of a table
    ///
    /// Durations are in nanoseconds, shares in millionths of all keys.
    #[arg(long)]
    pub json: bool,

    /// The log.
    #[command(flatten)]
    pub input: InputArgs,

    /// As what its requests are described.
    #[command(flatten)]
    pub mapping: MappingArgs,
}

/// The files of a replay, by a name.
fn log(files: Arg) -> Arg {
    files
        .long("log")
        .num_args(1)
        .help("Log in which to look for rules that apply to no request; repeat it for several files")
        .long_help(
            "Log in which to look for rules that apply to no request; repeat it for several files; - is standard input\n\n\
             Every request is described and decided as by `tollgate replay --rules`. Each rule that applied to none is a \
             warning: its keys or values may be misspelt, or another rule hides it.",
        )
}

/// Rules say what the key is.
fn no_key(key: Arg) -> Arg {
    key.hide(true).conflicts_with("rules")
}

/// What says how to read a log says nothing without one.
fn only_with_log(arg: Arg) -> Arg {
    match arg.get_help_heading() {
        Some("Input" | "Rules") => arg.requires("files"),
        _ => arg,
    }
}

#[derive(Serialize)]
struct CheckJson<'a> {
    domains: Vec<DomainJson<'a>>,
    warnings: Vec<ProblemJson<'a>>,
    errors: Vec<ProblemJson<'a>>,
}

#[derive(Serialize)]
struct DomainJson<'a> {
    domain: &'a str,
    charging: String,
    shadow: bool,
    rules: Vec<RuleJson<'a>>,
}

#[derive(Serialize)]
struct RuleJson<'a> {
    identity: &'a str,
    name: &'a str,
    line: usize,
    #[serde(flatten)]
    says: SaysJson<'a>,
}

/// How a limit is shared between processes.
#[derive(Serialize, Debug)]
struct SharedJson {
    mode: String,
    on_failure: String,
    processes: u32,
    timeout_ms: u64,
}

impl SharedJson {
    fn of(shared: &Shared) -> Self {
        Self {
            mode: shared.mode.to_string(),
            on_failure: shared.on_failure.to_string(),
            processes: shared.processes,
            timeout_ms: u64::try_from(shared.timeout.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// What a rule says.
#[derive(Serialize, Debug)]
pub struct SaysJson<'a> {
    unlimited: bool,
    limit: Option<u64>,
    period_ns: Option<u64>,
    burst: Option<u64>,
    algorithm: Option<String>,
    store: Option<String>,
    memory_bytes: Option<usize>,
    max_keys: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<SharedJson>,
    soft: Option<u64>,
    shadow: bool,
    quota_mode: bool,
    enforced_per_million: u32,
    replaces: Vec<&'a str>,
}

#[derive(Serialize)]
struct ProblemJson<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    path: &'a str,
    message: &'a str,
    remedy: &'a str,
}

impl<'a> ProblemJson<'a> {
    fn all(problems: &'a [Problem]) -> Vec<Self> {
        let one = |problem: &'a Problem| Self {
            file: problem.file(),
            line: problem.line(),
            column: problem.column(),
            path: problem.path(),
            message: problem.message(),
            remedy: problem.remedy(),
        };
        problems.iter().map(one).collect()
    }
}

impl<'a> RuleJson<'a> {
    fn of(rule: &'a Rule) -> Self {
        Self { identity: &rule.identity, name: &rule.name, line: rule.line, says: SaysJson::of(rule) }
    }
}

impl<'a> SaysJson<'a> {
    /// Of a rule.
    #[must_use]
    pub fn of(rule: &'a Rule) -> Self {
        let nanos = |period: std::time::Duration| u64::try_from(period.as_nanos()).ok();
        let mut json = Self {
            unlimited: false,
            limit: None,
            period_ns: None,
            burst: None,
            algorithm: None,
            store: None,
            memory_bytes: None,
            max_keys: None,
            shared: None,
            soft: Some(rule.soft).filter(|&soft| soft < u64::MAX),
            shadow: rule.shadow,
            quota_mode: rule.quota_mode,
            enforced_per_million: rule.enforced_per_million,
            replaces: rule.replaces.iter().map(|name| &**name).collect(),
        };
        match &rule.limit {
            Limit::Unlimited => json.unlimited = true,
            Limit::Blocked { period } => (json.limit, json.period_ns) = (Some(0), nanos(*period)),
            Limit::Quota { quota, algorithm, store } => {
                (json.limit, json.period_ns) = (Some(quota.limit()), nanos(quota.period()));
                json.burst = Some(quota.burst_size());
                json.algorithm = Some(algorithm.to_string());
                json.store = store.map(|store| store.to_string());
                match store {
                    Some(Store::Compact(memory) | Store::Sketch(memory)) => {
                        json.memory_bytes = memory.bytes();
                    }
                    Some(Store::Keyed { max_keys }) => json.max_keys = *max_keys,
                    Some(Store::Redis(shared)) => json.shared = Some(SharedJson::of(shared)),
                    None => {}
                }
            }
        }
        json
    }
}

/// What was found in all files together.
pub(super) struct Checked {
    pub(super) domains: Vec<Domain>,
    pub(super) warnings: Vec<Problem>,
    pub(super) errors: Vec<Problem>,
}

/// Files that were read, what looks wrong in them, and what is.
pub(super) fn read(files: &[PathBuf]) -> (Vec<Config>, Vec<Problem>, Vec<Problem>) {
    let (mut configs, mut warnings, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for file in files {
        match Config::read(file) {
            Ok(config) => {
                warnings.extend_from_slice(config.warnings());
                configs.push(config);
            }
            Err(error) => errors.extend_from_slice(error.problems()),
        }
    }
    (configs, warnings, errors)
}

/// The domains of files that were read, with what was told of them before.
pub(super) fn merge(
    configs: Vec<Config>,
    merge_domains: bool,
    mut warnings: Vec<Problem>,
    mut errors: Vec<Problem>,
) -> Checked {
    let domains = Domain::merge(configs, merge_domains).unwrap_or_else(|error| {
        errors.extend_from_slice(error.problems());
        Vec::new()
    });
    domains.iter().for_each(|domain| warnings.extend_from_slice(domain.warnings()));
    Checked { domains, warnings, errors }
}

/// Runs `tollgate rules`. Problems are said by `say`, the rules are printed.
///
/// # Errors
/// If a file or a log cannot be used.
pub fn run(command: &RulesCommand, say: impl Fn(&str)) -> Result<(), Error> {
    let RulesCommand::Check(args) = command;
    let (configs, warnings, errors) = read(&args.rules);
    let Checked { domains, mut warnings, errors } =
        merge(configs.clone(), args.merge_domains, warnings, errors);
    say_problems(&warnings, &errors, &say);
    if errors.is_empty() && !args.input.files.is_empty() {
        let CheckArgs { rules, mapping, merge_domains, .. } = args;
        let (rules, mapping) = (rules.clone(), mapping.clone());
        let by = RulesArgs { rules, mapping, charging: None, merge_domains: *merge_domains };
        let unmatched = by_rules::unmatched(&by, &args.input, configs)?;
        say_problems(&unmatched, &[], &say);
        warnings.extend(unmatched);
    }
    if args.json {
        let json = CheckJson {
            domains: domains.iter().filter(|_| errors.is_empty()).map(domain_json).collect(),
            warnings: ProblemJson::all(&warnings),
            errors: ProblemJson::all(&errors),
        };
        let text = serde_json::to_string_pretty(&json).map_err(|error| Error::run(error.to_string()))?;
        report::print(format!("{text}\n").as_bytes())?;
    } else if errors.is_empty() {
        let text: Vec<String> = domains.iter().map(table).collect();
        report::print(text.join("\n").as_bytes())?;
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(too_wrong(errors.len(), args.rules.len()))
}

/// Tells problems, each with its place.
pub(super) fn say_problems(warnings: &[Problem], errors: &[Problem], say: impl Fn(&str)) {
    warnings.iter().for_each(|warning| say(&format!("warning: {warning}\n")));
    errors.iter().for_each(|error| say(&format!("error: {error}\n")));
}

/// The end of a run whose files cannot be used, after what is wrong was said.
pub(super) fn too_wrong(errors: usize, files: usize) -> Error {
    let (errors, files) = (human::counted(errors as u64, "problem"), human::counted(files as u64, "file"));
    Error::run(format!("{errors} in {files}; see above"))
}

fn domain_json(domain: &Domain) -> DomainJson<'_> {
    DomainJson {
        domain: domain.name(),
        charging: domain.charging().to_string(),
        shadow: domain.is_shadow(),
        rules: domain.rules().iter().map(RuleJson::of).collect(),
    }
}

fn table(domain: &Domain) -> String {
    let dry = if domain.is_shadow() { ", a dry run" } else { "" };
    let rules = human::counted(domain.rules().len() as u64, "rule");
    let name = printable(domain.name().as_bytes(), 60);
    let head = format!("Domain {name}: {rules}, charged {}{dry}\n", domain.charging());
    if domain.rules().is_empty() {
        return head;
    }
    let mut table = report::plain_table(&["Rule", "Limit", "Algorithm", "Store", "Flags", "Line"]);
    for rule in domain.rules() {
        let (limit, algorithm, store) = match &rule.limit {
            Limit::Unlimited => ("none".to_owned(), String::new(), String::new()),
            Limit::Blocked { .. } => ("refuses all".to_owned(), String::new(), String::new()),
            Limit::Quota { quota, algorithm, store } => {
                (quota.to_string(), algorithm.to_string(), store.as_ref().map_or("default".to_owned(), kept))
            }
        };
        let identity = printable(rule.identity.as_bytes(), 80);
        table.add_row([identity, limit, algorithm, store, flags(rule), rule.line.to_string()]);
    }
    report::align_right(&mut table, 5..6);
    format!("{head}{}\n", super::table::fitted(table, &[]))
}

fn kept(store: &Store) -> String {
    match store {
        Store::Compact(memory) | Store::Sketch(memory) => {
            let size = memory.bytes().and_then(|bytes| bytes.to_string().parse::<Memory>().ok());
            size.map_or_else(|| store.to_string(), |size| format!("{store} {size}"))
        }
        Store::Keyed { max_keys: Some(most) } => format!("keyed, {}", human::counted(*most as u64, "key")),
        Store::Keyed { max_keys: None } => "keyed".to_owned(),
        Store::Redis(shared) => {
            let of = match shared.processes {
                1 => "1 process".to_owned(),
                several => format!("{} processes", human::count(several.into())),
            };
            format!("redis, {}, {of}", shared.mode)
        }
    }
}

fn flags(rule: &Rule) -> String {
    let mut flags = Vec::new();
    if rule.is_named {
        flags.push(format!("named {}", printable(rule.name.as_bytes(), 40)));
    }
    if rule.shadow {
        flags.push("shadow".to_owned());
    }
    if rule.quota_mode {
        flags.push("quota mode".to_owned());
    }
    if rule.enforced_per_million < 1_000_000 {
        flags.push(format!("enforced {}", human::share(u64::from(rule.enforced_per_million), 1_000_000)));
    }
    if rule.soft < u64::MAX {
        flags.push(format!("soft {}", human::count(rule.soft)));
    }
    if !rule.replaces.is_empty() {
        let names: Vec<String> = rule.replaces.iter().map(|name| printable(name.as_bytes(), 40)).collect();
        flags.push(format!("replaces {}", names.join(", ")));
    }
    flags.join("; ")
}
