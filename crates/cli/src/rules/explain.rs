//! `tollgate rules explain`: which rules apply to a request, and why.

use std::net::IpAddr;

use serde_json::{Value, json};
use tollgate::rules::{Amount, Answer, Applied, Domain, Explained, Explanation, Rule, Rules, Verdict};
use tollgate::{ManualClock, Outcome};

use super::files::RuleFiles;
use super::rule::{limit_texts, names, says};
use crate::args::descriptor::{Entries, described};
use crate::args::rules::ExplainArgs;
use crate::error::Error;
use crate::human::{self, nanos};
use crate::input::row::printable;
use crate::output::wrap::for_stdout;
use crate::output::{merged, print, table, to_json};

/// Explains what the rules of a file do with a request.
///
/// # Errors
/// Returns an error if the file cannot be used, or has no rules for the domain.
pub fn run(args: &ExplainArgs) -> Result<(), Error> {
    let files = RuleFiles::read(std::slice::from_ref(&args.file), args.merge_domains);
    files.usable()?;
    let Some(domain) = files.domains.iter().find(|domain| domain.name() == args.request.domain) else {
        let known: Vec<String> = files.domains.iter().map(|domain| format!("{:?}", domain.name())).collect();
        return Err(Error::usage(format!(
            "{:?}: the file has no rules for this domain; use {}",
            args.request.domain,
            known.join(" or ")
        )));
    };
    let entries = args.request.descriptors();
    let descriptors = described(&entries, args.request.tier.as_deref());
    // At time 0, all windows begin, so each reset is a whole window.
    let builder =
        Rules::builder().clock(ManualClock::default()).alone(true).merge_domains(args.merge_domains);
    let rules = builder.load(files.configs.clone()).map_err(|error| Error::run(error.to_string()))?;
    let explanation = rules.explain(domain.name(), &descriptors, args.cost);
    if args.json {
        return print(to_json(&whole_json(args, domain, &entries, &explanation)).as_bytes());
    }
    print(text(args, domain, &entries, &explanation).as_bytes())
}

/// Writes entries as on the command line.
fn shown(entries: &[(&str, &str)]) -> String {
    let pairs = entries.iter().map(|(key, value)| format!("{key}={value}"));
    printable(pairs.collect::<Vec<_>>().join(",").as_bytes(), 200)
}

/// Returns what the rule counts the request by.
fn counter(explained: &Explained<'_>, entries: &[(&str, &str)]) -> String {
    explained.key().map_or_else(String::new, |_| counted_by(explained.rule(), entries))
}

/// Returns what a rule counts a request with these entries by.
pub fn counted_by(rule: &Rule, entries: &[(&str, &str)]) -> String {
    if !matches!(rule.limit, Amount::Limited { .. } | Amount::InProgress { .. }) {
        return String::new();
    }
    let is_set = |mask: u32, at: u32| mask.checked_shr(at).is_some_and(|mask| mask & 1 == 1);
    let counted = (0..).zip(entries).filter_map(|(at, (key, value))| match is_set(rule.counted_by, at) {
        true => Some(format!("{key}={value}")),
        false if is_set(rule.counted_by_key, at) => Some((*key).to_owned()),
        false => None,
    });
    let counted: Vec<String> = counted.collect();
    if counted.is_empty() {
        return "all together".to_owned();
    }
    // `prefixes` count by the last value. A value that is not an address counts as it is.
    let is_address = entries.last().is_some_and(|(_, value)| value.parse::<IpAddr>().is_ok());
    let bits = rule.prefix.filter(|_| is_address).map(|bits| format!("/{bits}")).unwrap_or_default();
    printable(format!("{}{bits}", counted.join(",")).as_bytes(), 100)
}

const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Allowed => "admitted",
        Outcome::Denied => "denied",
        Outcome::Never => "never",
    }
}

fn verdict(applied: &Applied<'_>) -> &'static str {
    match applied.verdict() {
        Verdict::Allowed => "allowed",
        Verdict::SoftLimited => "soft-limited",
        Verdict::Denied => "denied",
        Verdict::ShadowDenied => "shadow-denied",
        Verdict::Unlimited => "unlimited",
        Verdict::NotAsked => "not-asked",
        _ => "?",
    }
}

/// Says what happens to the request.
pub fn outcome(answer: &Answer) -> String {
    let outcome = match answer.outcome() {
        Outcome::Never => "never admitted",
        outcome => word(outcome),
    };
    let dry = if answer.is_shadow_denied() { ", but only because the domain is a dry run" } else { "" };
    format!("{outcome}{dry}")
}

fn text(args: &ExplainArgs, domain: &Domain, entries: &[Entries<'_>], explanation: &Explanation) -> String {
    let name = printable(domain.name().as_bytes(), 60);
    let units = human::counted(args.cost, "unit");
    let mut head = format!("Domain   {name}, charged {}\n", domain.charging());
    for (place, entries) in (1..).zip(entries) {
        head += &format!("Request  descriptor {place}: {}\n", shown(entries));
    }
    head += &format!("Answer   a new client's request of {units} is {}\n", outcome(explanation.answer()));
    let rows: Vec<Vec<String>> = explanation.rules().map(|one| row(&one, entries)).collect();
    let applying = explanation.rules().filter(|one| one.reason().applies()).count();
    head += &match applying {
        0 => "Note     no rule applies, so nothing is limited\n".to_owned(),
        _ => String::new(),
    };
    let mut text = for_stdout(&head);
    if !rows.is_empty() {
        text += &format!("\n{}\n", table::table(COLUMNS, 7..9, rows, &[9, 0, 8, 10, 5]));
    }
    match explanation.others() as u64 {
        0 => text,
        others => {
            text + &for_stdout(&format!(
                "\nNot shown: {} that do not match.\n",
                human::counted(others, "other rule")
            ))
        }
    }
}

/// The columns of [`row`]. Available are the units before the request.
pub const COLUMNS: &str = "Descriptor|Rule|Applies|Why|Limit|Counter|Verdict|Available|Reset|Name|Line";

/// Returns a rule's row. `entries` are those of all descriptors.
pub fn row(one: &Explained<'_>, entries: &[Entries<'_>]) -> Vec<String> {
    let own = entries.get(one.descriptor()).map_or(&[][..], Vec::as_slice);
    let applied = one.applied().filter(|_| one.reason().applies());
    let decision = applied.and_then(|applied| applied.decision().copied());
    let [limit, ..] = limit_texts(one.rule());
    let [identity, name] = names(one.rule());
    vec![
        (one.descriptor() + 1).to_string(),
        identity,
        if one.reason().applies() { "yes" } else { "no" }.to_owned(),
        printable(one.reason().to_string().as_bytes(), 200),
        limit,
        counter(one, own),
        applied.map_or(String::new(), |applied| verdict(&applied).to_owned()),
        decision.map_or(String::new(), |decision| human::count(decision.remaining())),
        decision.map_or(String::new(), |decision| human::duration(decision.reset_after())),
        name,
        one.rule().line.to_string(),
    ]
}

fn whole_json(
    args: &ExplainArgs,
    domain: &Domain,
    entries: &[Entries<'_>],
    explanation: &Explanation,
) -> Value {
    let pairs =
        |entries: &Entries<'_>| entries.iter().map(|(key, value)| json!([key, value])).collect::<Vec<_>>();
    let head = json!({
        "domain": domain.name(),
        "charging": domain.charging().to_string(),
        "shadow": domain.is_shadow(),
        "tier": args.request.tier,
        "cost": args.cost,
        "descriptors": entries.iter().map(pairs).collect::<Vec<_>>(),
    });
    merged([head, explanation_json(explanation)])
}

/// The answer, and the rules that apply or nearly apply.
pub fn explanation_json(explanation: &Explanation) -> Value {
    let answer = explanation.answer();
    let wait = answer.retry_after().filter(|_| answer.is_denied());
    json!({
        "outcome": word(answer.outcome()),
        "shadow_denied": answer.is_shadow_denied(),
        "retry_after_ns": wait.map(nanos),
        "rules": explanation.rules().map(|one| rule_json(&one)).collect::<Vec<_>>(),
        "others": explanation.others(),
    })
}

fn rule_json(one: &Explained<'_>) -> Value {
    let (rule, reason) = (one.rule(), one.reason());
    let applied = one.applied().filter(|_| reason.applies());
    let decision = applied.and_then(|applied| applied.decision().copied());
    let place = json!({
        "descriptor": one.descriptor(),
        "rule": rule.identity,
        "name": rule.name,
        "line": rule.line,
        "applies": reason.applies(),
        "reason": reason.name(),
        "why": reason.to_string(),
        "counter": one.key().filter(|_| reason.applies()),
        "verdict": applied.as_ref().map(verdict),
        "quota": decision.map(|decision| decision.limit()),
        "remaining": decision.map(|decision| decision.remaining()),
        "reset_after_ns": decision.map(|decision| nanos(decision.reset_after())),
        "wait_ns": decision.filter(|decision| decision.is_denied()).and_then(|decision| decision.retry_after()).map(nanos),
    });
    merged([place, says(rule)])
}
