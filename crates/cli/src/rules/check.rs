//! `tollgate rules check`: the contents of rule files, and their errors.

use serde_json::{Value, json};
use tollgate_rules::{Charging, Config, Domain, Problem, Rule};

use super::{replay, shared};
use crate::args::rules::{CheckArgs, RulesArgs};
use tollgate_report::error::Error;
use tollgate_report::files::{RuleFiles, print_warnings};
use tollgate_report::human;
use tollgate_report::output::wrap::for_stdout;
use tollgate_report::output::{merged, print, say_error, table, to_json};
use tollgate_report::rule::{flags, limit_texts, names, settings_json};
use tollgate_report::text::printable;

/// Runs the check. Prints problems, then the rules.
///
/// # Errors
/// Returns an error if a file or a log cannot be used.
pub fn run(args: &CheckArgs) -> Result<(), Error> {
    let mut files = RuleFiles::read(&args.rules, args.merge_domains);
    let uncountable = shared::uncountable(&files.configs);
    uncountable.iter().for_each(say_error);
    files.errors.extend(uncountable);
    let mut used = Ok(());
    if files.errors.is_empty() && !args.input.files.is_empty() {
        let CheckArgs { rules, mapping, merge_domains, .. } = args;
        let (rules, mapping) = (rules.clone(), mapping.clone());
        let by = RulesArgs { rules, mapping, charging: None, merge_domains: *merge_domains };
        let unmatched;
        (unmatched, used) = replay::unmatched(&by, &args.input, &files)?;
        print_warnings(&unmatched);
        files.warnings.extend(unmatched);
    }
    let uncounted = files.configs.iter().filter_map(uncounted_reports).collect::<Vec<_>>();
    print_warnings(&uncounted);
    files.warnings.extend(uncounted);
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
    files.usable()?;
    used
}

/// The words that name units which are known only after the response.
const REPORTED: [&str; 4] = ["token", "tokens", "model", "llm"];
/// The words that name a budget of such units.
const BUDGET: [&str; 7] = ["budget", "budgets", "quota", "quotas", "usage", "used", "cost"];

/// Returns a warning if a file's rules seem to limit units that a gateway reports after the response, such as the
/// tokens of a model, but a report that exceeds the limit is not counted.
fn uncounted_reports(config: &Config) -> Option<Problem> {
    if config.charging() != Charging::AllOrNothing {
        return None;
    }
    let rule = config.rules().iter().find(|rule| limits_reports(rule))?;
    let message = format!(
        "the rule {:?} seems to limit units that are reported after the response, but the file charges a request to all \
         of its rules or to none: a report that exceeds the limit is not counted, so the limit never denies",
        rule.identity
    );
    let remedy = "write `tollgate: { charging: count-denials }` at the top of the file";
    Some(Problem::of_line(config.file(), rule.line, &message, remedy))
}

/// Whether a key, a value or the name of a rule names reported units.
fn limits_reports(rule: &Rule) -> bool {
    let has = |text: &str| {
        let text = text.to_lowercase();
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
        let any = |of: &[&str]| words.iter().any(|word| of.contains(word));
        words.contains(&"tokens") || text == "model_name_override" || (any(&REPORTED) && any(&BUDGET))
    };
    let name = rule.is_named.then_some(&*rule.name);
    rule.identity.split('|').skip(1).chain(name).any(has)
}

fn domain_json(domain: &Domain) -> Value {
    let rule = |rule: &Rule| {
        let place = json!({ "identity": rule.identity, "name": rule.name, "line": rule.line });
        merged([place, settings_json(rule)])
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

fn rules_table(domain: &Domain) -> String {
    let dry = if domain.is_shadow() { ", in shadow mode (denies nothing)" } else { "" };
    let rules = human::counted(domain.rules().len() as u64, "rule");
    let name = printable(domain.name().as_bytes(), 60);
    let head = for_stdout(&format!("Domain {name}: {rules}, charged {}{dry}\n", domain.charging()));
    if domain.rules().is_empty() {
        return head;
    }
    let row = |rule: &Rule| {
        let [limit, algorithm, store] = limit_texts(rule);
        let [identity, name] = names(rule);
        vec![identity, name, limit, algorithm, store, flags(rule), rule.line.to_string()]
    };
    let rows = domain.rules().iter().map(row);
    format!("{head}{}\n", table::table("Rule|Name|Limit|Algorithm|Store|Flags|Line", 6..7, rows, &[]))
}
