//! `tollgate rules check`: what files of rules say, and what is wrong with them.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::rules::{Domain, Limit, Problem, Rule, Shared, Store};

use super::files::{RuleFiles, say_warnings};
use super::replay;
use crate::args::rules::{CheckArgs, RulesArgs};
use crate::error::Error;
use crate::human;
use crate::input::row::printable;
use crate::output::{merged, print, table, to_json};
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
        let domains = domains.iter().filter(|_| errors.is_empty());
        let text = to_json(&json!({
            "domains": domains.map(domain_json).collect::<Vec<_>>(),
            "warnings": warnings.iter().map(problem_json).collect::<Vec<_>>(),
            "errors": errors.iter().map(problem_json).collect::<Vec<_>>(),
        }));
        print(text.as_bytes())?;
    } else if errors.is_empty() {
        let text: Vec<String> = domains.iter().map(rules_table).collect();
        print(text.join("\n").as_bytes())?;
    }
    files.usable(&args.rules)
}

fn domain_json(domain: &Domain) -> Value {
    let rule = |rule: &Rule| {
        let place = json!({ "identity": rule.identity, "name": rule.name, "line": rule.line });
        merged([place, says(rule)])
    };
    json!({
        "domain": domain.name(),
        "charging": domain.charging().to_string(),
        "shadow": domain.is_shadow(),
        "rules": domain.rules().iter().map(rule).collect::<Vec<_>>(),
    })
}

fn problem_json(problem: &Problem) -> Value {
    json!({
        "file": problem.file(),
        "line": problem.line(),
        "column": problem.column(),
        "path": problem.path(),
        "message": problem.message(),
        "remedy": problem.remedy(),
    })
}

/// How a limit is shared between processes.
fn shared_json(shared: &Shared) -> Value {
    json!({
        "mode": shared.mode.to_string(),
        "on_failure": shared.on_failure.to_string(),
        "processes": shared.processes,
        "timeout_ms": u64::try_from(shared.timeout.as_millis()).unwrap_or(u64::MAX),
    })
}

/// What a rule says.
pub fn says(rule: &Rule) -> Value {
    let nanos = |period: Duration| json!(u64::try_from(period.as_nanos()).ok());
    let mut limit = json!({
        "unlimited": false,
        "limit": null,
        "period_ns": null,
        "burst": null,
        "algorithm": null,
        "store": null,
        "memory_bytes": null,
        "max_keys": null,
    });
    match &rule.limit {
        Limit::Unlimited => limit["unlimited"] = json!(true),
        Limit::Blocked { period } => (limit["limit"], limit["period_ns"]) = (json!(0), nanos(*period)),
        Limit::Quota { quota, algorithm, store } => {
            (limit["limit"], limit["period_ns"]) = (json!(quota.limit()), nanos(quota.period()));
            limit["burst"] = json!(quota.burst_size());
            limit["algorithm"] = json!(algorithm.to_string());
            limit["store"] = json!(store.map(|store| store.to_string()));
            match store {
                Some(Store::Compact(memory) | Store::Sketch(memory)) => {
                    limit["memory_bytes"] = json!(memory.bytes());
                }
                Some(Store::Keyed { max_keys }) => limit["max_keys"] = json!(max_keys),
                Some(Store::Redis(shared)) => limit["shared"] = shared_json(shared),
                Some(_) | None => {}
            }
        }
        _ => {}
    }
    let rest = json!({
        "soft": Some(rule.soft).filter(|&soft| soft < u64::MAX),
        "shadow": rule.shadow,
        "quota_mode": rule.quota_mode,
        "enforced_per_million": rule.enforced_per_million,
        "replaces": rule.replaces,
    });
    merged([limit, rest])
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
    let names = || rule.replaces.iter().map(|name| printable(name.as_bytes(), 40)).collect::<Vec<_>>();
    let enforced = u64::from(rule.enforced_per_million);
    let flags = [
        rule.is_named.then(|| format!("named {}", printable(rule.name.as_bytes(), 40))),
        rule.shadow.then(|| "shadow".to_owned()),
        rule.quota_mode.then(|| "quota mode".to_owned()),
        (enforced < 1_000_000).then(|| format!("enforced {}", human::share(enforced, 1_000_000))),
        (rule.soft < u64::MAX).then(|| format!("soft {}", human::count(rule.soft))),
        (!rule.replaces.is_empty()).then(|| format!("replaces {}", names().join(", "))),
    ];
    flags.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
