//! The debug pages: what is in force, what was counted, and the most-denied keys. Each page is also JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tollgate::telemetry::MeterCounts;
use tollgate_rules::{Amount, Rule};

use super::super::answer::unit_of;
use super::super::stats::{XdsStats, samples_of};
use super::read::PageName;
use crate::endpoint::Backend;
use tollgate_report::human;
use tollgate_report::output::merged;
use tollgate_report::rule::{limit_texts, settings_json};
use tollgate_report::text::{printable, printable_lines};

/// How many of the most-denied keys are kept and shown.
pub const TOP: usize = 100;

/// The longest part of a key that is shown, in characters.
pub(super) const KEY: usize = 120;

/// A page, as a text and as JSON.
pub(super) type Page = (fn(&Backend) -> String, fn(&Backend) -> Value);

/// Returns a page of figures.
pub(super) const fn pages(name: PageName) -> Page {
    match name {
        PageName::Home => (home, home_json),
        PageName::Rules => (config, config_json),
        PageName::Counts => (counts, counts_json),
        PageName::Top => (top, top_json),
    }
}

fn home(backend: &Backend) -> String {
    let counts = backend.rules.reloads();
    let state = if backend.health.is_serving() { "serving" } else { "not serving" };
    let xds = backend.stats.xds.get();
    format!(
        "tollgate {}, {state}, {}\n{}{}{}\n\
         /rlconfig   the rules in force\n\
         /stats      what was counted\n\
         /top        the most-denied keys\n\
         /why        the rules that apply to a request, such as /why?domain=edge&descriptor=remote_address=192.0.2.1\n\
         /page       all of this as a page for a browser\n\
         Add ?format=json to a page for JSON.\n",
        env!("CARGO_PKG_VERSION"),
        human::counted(counts.rules, "rule"),
        xds.map(|xds| format!("{}: {}\n", xds.name, xds.state())).unwrap_or_default(),
        outage(backend).map(|problem| format!("{problem}\n")).unwrap_or_default(),
        problem(backend).map(|problem| format!("\n{problem}\n")).unwrap_or_default(),
    )
}

fn home_json(backend: &Backend) -> Value {
    let counts = backend.rules.reloads();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "serving": backend.health.is_serving(),
        "rules": counts.rules,
        "loads": counts.successes,
        "control_plane": backend.stats.xds.get().map(XdsStats::state),
        "redis_problem": outage(backend),
        "failed_loads": counts.errors,
        "last_error": backend.rules.last_error().map(|error| error.to_string()),
        "pages": ["/rlconfig", "/stats", "/top", "/why", "/page"],
    })
}

/// Says why the Redis server cannot be used, if it cannot.
pub(super) fn outage(backend: &Backend) -> Option<String> {
    backend.stats.redis.get().and_then(|redis| redis.problem())
}

/// Returns why the files are not in force, if they are not.
fn problem(backend: &Backend) -> Option<String> {
    backend.rules.last_error().map(|error| {
        let error = printable_lines(&error.to_string()).replace('\n', "\n# ");
        let what = match backend.rules.reloads().successes {
            0 => "There are no rules yet, so all answers are UNAVAILABLE",
            _ => "The last load failed, and the earlier rules are in force",
        };
        format!("# {what}:\n# {error}")
    })
}

fn config(backend: &Backend) -> String {
    let mut page = problem(backend).map(|problem| problem + "\n").unwrap_or_default();
    backend.rules.for_each(|domain, rule, _| {
        let [limit, algorithm, store] = limit_texts(rule);
        let _ = writeln!(
            page,
            "{}: {}, shadow_mode: {}, quota_mode: {}, limit: {limit}, algorithm: {algorithm}, store: {store}, \
             identity: {}",
            printable(path(domain, rule).as_bytes(), 1_000),
            envoy_limit(&rule.limit),
            rule.shadow,
            rule.quota_mode,
            printable(rule.identity.as_bytes(), 1_000),
        );
    });
    page
}

fn config_json(backend: &Backend) -> Value {
    let mut rules = Vec::new();
    backend.rules.for_each(|domain, rule, _| {
        let place = json!({
            "domain": domain,
            "path": path(domain, rule),
            "identity": rule.identity,
            "name": rule.is_named.then_some(&rule.name),
            "line": rule.line,
        });
        rules.push(merged([place, settings_json(rule)]));
    });
    json!({ "rules": rules, "last_error": backend.rules.last_error().map(|error| error.to_string()) })
}

/// Lists the counts, each with its name.
fn list(backend: &Backend) -> Vec<(String, u64)> {
    let counts = backend.answerer.meters().read();
    let answers = samples_of(&counts, &backend.answerer.requests(&counts));
    let samples = backend.stats.samples().into_iter().chain(answers);
    let mut list: Vec<(String, u64)> = samples.map(|sample| (sample.full_name(), sample.value)).collect();
    let loads = backend.rules.reloads();
    list.extend([
        ("tollgate_reload_total{result=\"success\"}".to_owned(), loads.successes),
        ("tollgate_reload_total{result=\"error\"}".to_owned(), loads.errors),
        ("tollgate_rules".to_owned(), loads.rules),
        ("tollgate_domain_not_found_total".to_owned(), loads.unknown_domains),
    ]);
    backend.rules.for_each(|domain, rule, counts| {
        let name = format!("ratelimit.service.rate_limit.{}", path(domain, rule));
        list.extend(go_counts(rule, &counts).map(|(count, value)| (format!("{name}.{count}"), value)));
    });
    list
}

fn counts(backend: &Backend) -> String {
    list(backend).iter().fold(String::new(), |mut page, (name, value)| {
        let _ = writeln!(page, "{}: {value}", printable(name.as_bytes(), 1_000));
        page
    })
}

fn counts_json(backend: &Backend) -> Value {
    list(backend).into_iter().map(|(name, value)| (name, Value::from(value))).collect()
}

fn top(backend: &Backend) -> String {
    let mut page = "denials  rule  key\n".to_owned();
    for entry in backend.rules.top_denied(TOP) {
        let [rule, key] = [&entry.rule, &entry.key].map(|text| printable(text.as_bytes(), KEY));
        let _ = writeln!(page, "{:7}  {rule}  {key}", entry.count);
    }
    page
}

fn top_json(backend: &Backend) -> Value {
    let of = |entry: &tollgate::telemetry::DeniedKey| {
        let key = printable(entry.key.as_bytes(), KEY);
        json!({ "rule": entry.rule, "key": key, "count": entry.count, "error": entry.error })
    };
    json!({ "denied": backend.rules.top_denied(TOP).iter().map(of).collect::<Vec<_>>() })
}

/// Returns a rule's counts under the names that the Go service has for them. Like that service, they count units, and count all
/// units of a request that exceeds the limit as over it. Denials by a dry run of all rules do not count as the rule's own shadow
/// denials, and a rule without a limit counts nothing.
pub fn go_counts(rule: &Rule, counts: &MeterCounts) -> [(&'static str, u64); 5] {
    let MeterCounts { hits, over_limit, near_limit, denied_hits, shadow_denied_hits, .. } = *counts;
    let hits = if rule.limit == Amount::Unlimited { 0 } else { hits };
    let has_shadow = rule.shadow || rule.enforced_per_million < 1_000_000;
    [
        ("total_hits", hits),
        ("over_limit", over_limit),
        ("near_limit", near_limit),
        ("within_limit", hits.saturating_sub(denied_hits).saturating_sub(shadow_denied_hits)),
        ("shadow_mode", if has_shadow { shadow_denied_hits } else { 0 }),
    ]
}

/// Returns a rule's path, as the Go service writes it.
fn path(domain: &str, rule: &Rule) -> String {
    [domain].into_iter().chain(rule.metric.levels.iter().map(|level| &**level)).collect::<Vec<_>>().join(".")
}

/// Writes a limit as the Go service does.
fn envoy_limit(amount: &Amount) -> String {
    let (units, period) = match amount {
        Amount::Limited { limit, .. } => (limit.quota().limit(), limit.quota().period()),
        Amount::Blocked { period } => (0, *period),
        Amount::InProgress { most, .. } => return format!("in_progress={most}"),
        Amount::Unlimited => return "unlimited: true".to_owned(),
    };
    format!("unit={} requests_per_unit={units}", unit_of(period).as_str_name())
}
