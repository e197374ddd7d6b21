//! Which rules apply to a request, and why: as a row of a table, and as JSON.

use std::net::IpAddr;

use serde_json::{Value, json};
use tollgate::Outcome;
use tollgate_rules::{Amount, Answer, Applied, Explained, Explanation, Rule, Verdict};

use crate::descriptor::Entries;
use crate::human::{self, nanos};
use crate::output::merged;
use crate::rule::{limit_texts, names, settings_json};
use crate::text::printable;

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
    merged([place, settings_json(rule)])
}
