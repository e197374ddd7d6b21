//! `tollgate rules check`: what files of rules say, and what is wrong with them.

use serde::Serialize;
use tollgate::rules::{Domain, Limit, Problem, Rule, Shared, Store};

use super::files::{RuleFiles, say_warnings};
use super::replay;
use crate::args::rules::{CheckArgs, RulesArgs};
use crate::error::Error;
use crate::human;
use crate::input::row::printable;
use crate::output::{print, table, to_json};
use crate::store::Memory;

/// Runs the check. Problems are said, the rules are printed.
///
/// # Errors
/// If a file or a log cannot be used.
pub fn run(args: &CheckArgs) -> Result<(), Error> {
    let mut files = RuleFiles::read(&args.rules, args.merge_domains);
    if files.errors.is_empty() && !args.input.files.is_empty() {
        let CheckArgs { rules, mapping, merge_domains, .. } = args;
        let (rules, mapping) = (rules.clone(), mapping.clone());
        let by = RulesArgs { rules, mapping, charging: None, merge_domains: *merge_domains };
        let unmatched = replay::unmatched(&by, &args.input, &files)?;
        say_warnings(&unmatched);
        files.warnings.extend(unmatched);
    }
    let RuleFiles { domains, warnings, errors, .. } = &files;
    if args.json {
        let text = to_json(&CheckJson {
            domains: domains.iter().filter(|_| errors.is_empty()).map(domain_json).collect(),
            warnings: ProblemJson::all(warnings),
            errors: ProblemJson::all(errors),
        });
        print(text?.as_bytes())?;
    } else if errors.is_empty() {
        let text: Vec<String> = domains.iter().map(rules_table).collect();
        print(text.join("\n").as_bytes())?;
    }
    files.usable(&args.rules)
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
    rules: Vec<CheckedRuleJson<'a>>,
}

#[derive(Serialize)]
struct CheckedRuleJson<'a> {
    identity: &'a str,
    name: &'a str,
    line: usize,
    #[serde(flatten)]
    says: SaysJson<'a>,
}

/// How a limit is shared between processes.
#[derive(Serialize)]
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
#[derive(Default, Serialize)]
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

impl<'a> CheckedRuleJson<'a> {
    fn of(rule: &'a Rule) -> Self {
        Self { identity: &rule.identity, name: &rule.name, line: rule.line, says: SaysJson::of(rule) }
    }
}

impl<'a> SaysJson<'a> {
    /// Of a rule.
    pub fn of(rule: &'a Rule) -> Self {
        let nanos = |period: std::time::Duration| u64::try_from(period.as_nanos()).ok();
        let mut json = Self {
            soft: Some(rule.soft).filter(|&soft| soft < u64::MAX),
            shadow: rule.shadow,
            quota_mode: rule.quota_mode,
            enforced_per_million: rule.enforced_per_million,
            replaces: rule.replaces.iter().map(|name| &**name).collect(),
            ..Self::default()
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
                    Some(_) | None => {}
                }
            }
            _ => {}
        }
        json
    }
}

fn domain_json(domain: &Domain) -> DomainJson<'_> {
    DomainJson {
        domain: domain.name(),
        charging: domain.charging().to_string(),
        shadow: domain.is_shadow(),
        rules: domain.rules().iter().map(CheckedRuleJson::of).collect(),
    }
}

fn rules_table(domain: &Domain) -> String {
    let dry = if domain.is_shadow() { ", a dry run" } else { "" };
    let rules = human::counted(domain.rules().len() as u64, "rule");
    let name = printable(domain.name().as_bytes(), 60);
    let head = format!("Domain {name}: {rules}, charged {}{dry}\n", domain.charging());
    if domain.rules().is_empty() {
        return head;
    }
    let row = |rule: &Rule| {
        let (limit, algorithm, store) = match &rule.limit {
            Limit::Unlimited => ("none".to_owned(), String::new(), String::new()),
            Limit::Blocked { .. } => ("refuses all".to_owned(), String::new(), String::new()),
            Limit::Quota { quota, algorithm, store } => {
                (quota.to_string(), algorithm.to_string(), store.as_ref().map_or("default".to_owned(), kept))
            }
            _ => ("?".to_owned(), String::new(), String::new()),
        };
        let identity = printable(rule.identity.as_bytes(), 80);
        vec![identity, limit, algorithm, store, flags(rule), rule.line.to_string()]
    };
    let rows = domain.rules().iter().map(row);
    format!("{head}{}\n", table::table("Rule|Limit|Algorithm|Store|Flags|Line", 5..6, rows, &[]))
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
        _ => store.to_string(),
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
