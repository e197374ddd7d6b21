//! What a replay through rules prints.

use std::fmt::Write as _;

use serde::Serialize;

use super::mapping::Mapping;
use super::tally::{ByRule, DeniedKey, Tally};
use crate::cli::error::Error;
use crate::cli::human;
use crate::cli::input::Trace;
use crate::cli::input::row::printable;
use crate::cli::input::wanted::Fields;
use crate::cli::report::{self, InputJson};
use crate::cli::rules::SaysJson;
use crate::cli::table::fitted;
use crate::edge::rules::{Limit, Rule};
use crate::edge::telemetry::MeterCounts;

/// A rule in force, and what it counted.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Its domain.
    pub domain: String,
    /// The rule.
    pub rule: Rule,
    /// The file that it is from.
    pub file: String,
    /// As its metrics would say.
    pub counts: MeterCounts,
    /// Of a store of fixed size, the keys that gave way to others, and the new keys that were denied for a debt that may not have
    /// been theirs.
    pub pressed: Option<(u64, u64)>,
}

/// All that there is to tell.
#[derive(Debug)]
pub struct Told<'a> {
    /// What was replayed.
    pub trace: &'a Trace,
    /// As what.
    pub mapping: &'a Mapping,
    /// Through which rules.
    pub rules: &'a [Counted],
    /// What they said.
    pub tally: &'a Tally,
    /// How many of the most denied keys to list.
    pub top: usize,
}

/// The whole JSON. Fields may be added; those here keep their names and meaning.
#[derive(Serialize)]
struct Json<'a> {
    input: InputJson,
    descriptors: Vec<DescriptorJson>,
    rules: Vec<RuleJson<'a>>,
    results: ResultJson<'a>,
}

#[derive(Serialize)]
struct DescriptorJson {
    descriptor: String,
    /// Requests that had all its fields.
    requests: u64,
    /// Of them, those that a rule applied to.
    matched: u64,
}

#[derive(Serialize)]
struct RuleJson<'a> {
    domain: &'a str,
    rule: &'a str,
    name: &'a str,
    file: &'a str,
    line: usize,
    #[serde(flatten)]
    says: SaysJson<'a>,
    matched: u64,
    allowed: u64,
    denied: u64,
    shadow_denied: u64,
    unlimited_allowed: u64,
    uncharged: u64,
    hits: u64,
    near_limit: u64,
    over_limit: u64,
    soft_limited: u64,
    never: u64,
    keys_denied: u64,
    keys_shadow_denied: u64,
    evictions: Option<u64>,
    debt_denials: Option<u64>,
    longest_wait_ns: u64,
    top_denied: Vec<KeyJson>,
}

#[derive(Serialize)]
struct KeyJson {
    key: String,
    denied: u64,
    shadow_denied: u64,
}

#[derive(Serialize)]
struct RuleKeyJson<'a> {
    domain: &'a str,
    rule: &'a str,
    #[serde(flatten)]
    key: KeyJson,
}

#[derive(Serialize)]
struct ResultJson<'a> {
    admitted: u64,
    denied: u64,
    never: u64,
    shadow_denied: u64,
    soft_limited: u64,
    unmatched: u64,
    undescribed: u64,
    unknown_domain: u64,
    longest_wait_ns: u64,
    top_denied: Vec<RuleKeyJson<'a>>,
}

const ABOUT_REQUESTS: &str = "\
Shadow-denied: admitted, but only because a rule or its domain merely reports.
No rule: no rule of the domain applied. No domain: the domain has no rules.";

const ABOUT_RULES: &str = "\
Matched: requests that the rule applied to. Shadow: would be denied if it did
not merely report. Uncharged: refused by another rule, replaced by one, or of no
cost. Near and Soft: units above four fifths of the limit, and above a soft one.";

impl<'a> Told<'a> {
    /// As JSON.
    ///
    /// # Errors
    /// Never in practice: every value is a number or a text.
    pub fn json(&self) -> Result<String, Error> {
        let Self { tally, .. } = *self;
        let rule_key = |key: &DeniedKey| {
            let Counted { domain, rule, .. } = self.rules.get(key.rule)?;
            Some(RuleKeyJson { domain, rule: &rule.identity, key: self.key_json(key) })
        };
        let each = self.rules.iter().zip(&tally.by_rule).zip(self.keys_by_rule());
        report::to_json(&Json {
            input: InputJson::new(self.trace),
            descriptors: self.descriptors(),
            rules: each.map(|((counted, by_rule), keys)| self.rule_json(counted, by_rule, keys)).collect(),
            results: ResultJson {
                admitted: tally.admitted(),
                denied: tally.denied,
                never: tally.never,
                shadow_denied: tally.shadow_denied,
                soft_limited: tally.soft_limited,
                unmatched: tally.unmatched,
                undescribed: tally.undescribed,
                unknown_domain: tally.unknown_domain,
                longest_wait_ns: report::nanos(tally.longest_wait),
                top_denied: tally.denied_keys.iter().take(self.top).filter_map(rule_key).collect(),
            },
        })
    }

    /// Of each rule, the keys to be listed.
    fn keys_by_rule(&self) -> Vec<Vec<&'a DeniedKey>> {
        let mut each = vec![Vec::new(); self.rules.len()];
        for key in &self.tally.denied_keys {
            if let Some(keys) = each.get_mut(key.rule).filter(|keys| keys.len() < self.top) {
                keys.push(key);
            }
        }
        each
    }

    fn rule_json(&self, counted: &'a Counted, by_rule: &ByRule, keys: Vec<&DeniedKey>) -> RuleJson<'a> {
        let Counted { domain, rule, file, counts, pressed } = counted;
        RuleJson {
            domain,
            rule: &rule.identity,
            name: &rule.name,
            file,
            line: rule.line,
            says: SaysJson::of(rule),
            matched: by_rule.matched,
            allowed: counts.allowed,
            denied: counts.denied,
            shadow_denied: counts.shadow_denied,
            unlimited_allowed: counts.unlimited,
            uncharged: by_rule.matched.saturating_sub(counts.requests()),
            hits: counts.hits,
            near_limit: counts.near_limit,
            over_limit: counts.over_limit,
            soft_limited: counts.soft_limited,
            never: by_rule.never,
            keys_denied: by_rule.keys_denied,
            keys_shadow_denied: by_rule.keys_shadow_denied,
            evictions: pressed.map(|(evictions, _)| evictions),
            debt_denials: pressed.map(|(_, denials)| denials),
            longest_wait_ns: report::nanos(by_rule.longest_wait),
            top_denied: keys.into_iter().map(|key| self.key_json(key)).collect(),
        }
    }

    fn key_json(&self, key: &DeniedKey) -> KeyJson {
        KeyJson { key: self.key(key), denied: key.denied, shadow_denied: key.shadow_denied }
    }

    fn key(&self, key: &DeniedKey) -> String {
        let counted_by = self.rules.get(key.rule).map_or(0, |counted| counted.rule.counted_by);
        let none = Fields::default();
        let fields = self.trace.fields.as_ref().unwrap_or(&none);
        printable(key.text(counted_by, self.mapping, fields).as_bytes(), 1000)
    }

    fn descriptors(&self) -> Vec<DescriptorJson> {
        let Some(fields) = &self.trace.fields else { return Vec::new() };
        let each = self.tally.by_descriptor.iter().enumerate();
        each.map(|(at, &(requests, matched))| DescriptorJson {
            descriptor: self.mapping.shown(at, fields).0.to_string(),
            requests,
            matched,
        })
        .collect()
    }

    /// As tables.
    #[must_use]
    pub fn tables(&self) -> String {
        let Self { trace, tally, .. } = *self;
        let requests = trace.records.len() as u64;
        let mut table = report::plain_table(&[
            "Requests",
            "Admitted",
            "Denied",
            "Share",
            "Longest wait",
            "Shadow-denied",
            "No rule",
            "No domain",
        ]);
        table.add_row([
            human::count(requests),
            human::count(tally.admitted()),
            human::count(tally.denied),
            human::share(tally.denied, requests),
            wait(tally.denied, tally.never, tally.longest_wait),
            human::count(tally.shadow_denied),
            human::count(tally.unmatched),
            human::count(tally.unknown_domain),
        ]);
        report::align_right(&mut table, 0..8);
        let mut text = format!("{}\n{ABOUT_REQUESTS}\n\n", fitted(table, &[7, 5]));
        let mut table = report::plain_table(&["Descriptor", "Requests", "Matched by a rule"]);
        for DescriptorJson { descriptor, requests, matched } in self.descriptors() {
            let shown = printable(descriptor.as_bytes(), 80);
            table.add_row([shown, human::count(requests), human::count(matched)]);
        }
        report::align_right(&mut table, 1..3);
        let _ = write!(text, "{}\n\n{}", fitted(table, &[]), self.rules_table());
        if let Some(table) = self.keys_table() {
            let table = fitted(table, &[]);
            let _ = write!(text, "\nMost denied keys, by the rule that denied them\n{table}\n");
        }
        text
    }

    fn rules_table(&self) -> String {
        let mut table = report::plain_table(&[
            "Rule",
            "Limit",
            "Matched",
            "Allowed",
            "Denied",
            "Shadow",
            "Uncharged",
            "Near",
            "Soft",
            "Keys denied",
            "Longest wait",
            "Line",
        ]);
        for (Counted { rule, counts, .. }, by_rule) in self.rules.iter().zip(&self.tally.by_rule) {
            table.add_row([
                printable(rule.identity.as_bytes(), 80),
                limit(rule),
                human::count(by_rule.matched),
                human::count(counts.allowed + counts.unlimited),
                human::count(counts.denied),
                human::count(counts.shadow_denied),
                human::count(by_rule.matched.saturating_sub(counts.requests())),
                human::count(counts.near_limit),
                human::count(counts.soft_limited),
                human::count(by_rule.keys_denied),
                wait(counts.denied, by_rule.never, by_rule.longest_wait),
                rule.line.to_string(),
            ]);
        }
        report::align_right(&mut table, 2..12);
        format!("{}\n{ABOUT_RULES}\n", fitted(table, &[8, 7, 6, 11, 5, 10, 9]))
    }

    fn keys_table(&self) -> Option<comfy_table::Table> {
        let keys = &self.tally.denied_keys;
        if keys.is_empty() || self.top == 0 {
            return None;
        }
        let mut table = report::plain_table(&["Rule", "Key", "Denied", "Shadow"]);
        for key in keys.iter().take(self.top) {
            let rule = self.rules.get(key.rule).map_or("", |counted| &*counted.rule.identity);
            let shown = match &self.key(key)[..] {
                "" => "(all together)".to_owned(),
                shown => printable(shown.as_bytes(), 60),
            };
            let shadow = human::count(key.shadow_denied);
            table.add_row([printable(rule.as_bytes(), 80), shown, human::count(key.denied), shadow]);
        }
        report::align_right(&mut table, 2..4);
        Some(table)
    }
}

/// The longest wait of those denied, of which some may never be admitted.
fn wait(denied: u64, never: u64, longest: std::time::Duration) -> String {
    match (denied, never) {
        (0, _) => "-".to_owned(),
        (_, 0) => human::duration(longest),
        (denied, never) if denied == never => "never".to_owned(),
        (_, never) => format!("{}; {} never", human::duration(longest), human::count(never)),
    }
}

fn limit(rule: &Rule) -> String {
    match &rule.limit {
        Limit::Unlimited => "none".to_owned(),
        Limit::Blocked { .. } => "refuses all".to_owned(),
        Limit::Quota { quota, algorithm, .. } => format!("{quota} {algorithm}"),
    }
}
