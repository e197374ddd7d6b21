//! From reports to JSON.

use serde_json::{Value, json};
use tollgate_rules::{KeyFigures, KeyReport};

use tollgate_report::human::nanos;

/// Returns the answer to an operation.
pub fn reports(action: &str, domain: &str, who: &str, reports: &[KeyReport]) -> Value {
    json!({
        "act": action,
        "domain": domain,
        "who": who,
        "rules": reports.iter().map(report).collect::<Vec<_>>(),
    })
}

fn report(one: &KeyReport) -> Value {
    json!({
        "descriptor": one.descriptor,
        "rule": one.identity,
        "name": one.name,
        "file": one.file,
        "line": one.line,
        "key": one.key,
        "part": one.role,
        "shared": one.is_shared,
        "state": one.figures.as_ref().map(figures),
        "done": one.result.is_ok(),
        "units": one.result.as_ref().ok(),
        "refusal": one.result.as_ref().err().map(|refusal| refusal.name()),
        "why_not": one.result.as_ref().err().map(ToString::to_string),
    })
}

fn figures(figures: &KeyFigures) -> Value {
    json!({
        "limit": figures.limit,
        "used": figures.used,
        "remaining": figures.remaining,
        "reset_after_ns": nanos(figures.reset_after),
        "blocked_for_ns": figures.blocked_for.map(nanos),
        "held": figures.held,
        "held_until_ns": figures.held_until.map(|(first, last)| [nanos(first), nanos(last)]),
    })
}

/// Returns the answer to a request that was not done.
pub fn problem(message: &str) -> Value {
    json!({ "error": message })
}
