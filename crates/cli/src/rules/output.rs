//! The output of a replay through rules.

use std::fmt::Write as _;

use serde_json::{Value, json};

use tollgate::telemetry::MeterCounts;
use tollgate_rules::Rule;

use super::mapping::Mapping;
use super::tally::{ByRule, RuleDeniedKey, RulesTally};
use crate::input::Trace;
use crate::input::wanted::Fields;
use crate::output::about::input_json;
use crate::replay::Denials;
use tollgate_report::human::{self, nanos};
use tollgate_report::output::merged;
use tollgate_report::output::table::table;
use tollgate_report::rule::{limit_texts, settings_json};
use tollgate_report::text::printable;

/// A rule in force, and its counts.
#[derive(Clone, Debug)]
pub struct CountedRule {
    /// Its domain.
    pub domain: String,
    /// The rule.
    pub rule: Rule,
    /// The file of the rule.
    pub file: String,
    /// The counts as the rule's metrics report them.
    pub counts: MeterCounts,
    /// For a store of fixed size: the evicted keys, and the new keys that were denied because of a debt that may not
    /// have been theirs.
    pub pressed: Option<(u64, u64)>,
}

/// A log that was replayed through rules.
pub struct RulesReplay {
    /// The requests.
    pub trace: Trace,
    /// The descriptors of the requests.
    pub mapping: Mapping,
    /// The rules.
    pub rules: Vec<CountedRule>,
    /// The results.
    pub tally: RulesTally,
}

const ABOUT_REQUESTS: &str = "\
Shadow-denied: admitted only because a rule or its domain is in shadow mode, or
because the rule's `enforced` share leaves out the key. No rule: no rule of the
domain applied. No domain: the domain has no rules.";

const ABOUT_RULES: &str = "\
Matched: requests that the rule applied to. Shadow: requests that it would deny
if it were enforced. Uncharged: requests that another rule denied or replaced,
or that cost nothing. Near: units above four fifths of the limit. Soft: units
above the soft limit.";

impl RulesReplay {
    /// Returns the whole JSON, with this many of the most denied keys. New fields may be added; these fields keep their
    /// names and meaning.
    pub fn json(&self, most: usize) -> Value {
        let tally = &self.tally;
        let rule_key = |key: &RuleDeniedKey| {
            let CountedRule { domain, rule, .. } = &self.rules[key.rule];
            merged([json!({ "domain": domain, "rule": rule.identity }), self.key_json(key)])
        };
        let descriptor = |(descriptor, requests, matched): (String, u64, u64)| json!({ "descriptor": descriptor, "requests": requests, "matched": matched });
        let each = self.rules.iter().zip(&tally.by_rule).zip(self.keys_by_rule(most));
        let rules = each.map(|((counted, by_rule), keys)| self.rule_json(counted, by_rule, &keys));
        let denials = &tally.decisions.denials;
        let top = tally.denied_keys.iter().take(most).map(rule_key);
        json!({
            "input": input_json(&self.trace),
            "descriptors": self.descriptors().into_iter().map(descriptor).collect::<Vec<_>>(),
            "rules": rules.collect::<Vec<_>>(),
            "results": merged([
                json!({ "admitted": tally.decisions.admitted(), "denied": denials.denied, "never": denials.never }),
                json!(tally.requests),
                json!({ "longest_wait_ns": nanos(denials.longest_wait), "top_denied": top.collect::<Vec<_>>() }),
            ]),
        })
    }

    /// Returns the keys to list for each rule.
    fn keys_by_rule(&self, most: usize) -> Vec<Vec<&RuleDeniedKey>> {
        let mut each = vec![Vec::new(); self.rules.len()];
        for key in &self.tally.denied_keys {
            if each[key.rule].len() < most {
                each[key.rule].push(key);
            }
        }
        each
    }

    fn rule_json(&self, counted: &CountedRule, by_rule: &ByRule, keys: &[&RuleDeniedKey]) -> Value {
        let CountedRule { domain, rule, file, counts, pressed } = counted;
        let place = json!({
            "domain": domain,
            "rule": rule.identity,
            "name": rule.name,
            "file": file,
            "line": rule.line,
        });
        let did = json!({
            "matched": by_rule.matched,
            "allowed": counts.allowed,
            "denied": counts.denied,
            "shadow_denied": counts.shadow_denied,
            "unlimited_allowed": counts.unlimited,
            "uncharged": by_rule.matched.saturating_sub(counts.requests()),
            "hits": counts.hits,
            "near_limit": counts.near_limit,
            "over_limit": counts.over_limit,
            "soft_limited": counts.soft_limited,
            "never": by_rule.denials.never,
            "keys_denied": by_rule.keys_denied,
            "keys_shadow_denied": by_rule.keys_shadow_denied,
            "evictions": pressed.map(|(evictions, _)| evictions),
            "debt_denials": pressed.map(|(_, denials)| denials),
            "longest_wait_ns": nanos(by_rule.denials.longest_wait),
            "top_denied": keys.iter().map(|key| self.key_json(key)).collect::<Vec<_>>(),
        });
        merged([place, settings_json(rule), did])
    }

    fn key_json(&self, key: &RuleDeniedKey) -> Value {
        json!({ "key": self.key(key), "denied": key.denied, "shadow_denied": key.shadow_denied })
    }

    pub fn key(&self, key: &RuleDeniedKey) -> String {
        let counted_by = self.rules[key.rule].rule.counted_by;
        let none = Fields::default();
        let fields = self.trace.fields.as_ref().unwrap_or(&none);
        printable(key.text(counted_by, &self.mapping, fields).as_bytes(), 1000)
    }

    /// Lists the descriptors, with the requests that had all fields and those to which a rule applied.
    fn descriptors(&self) -> Vec<(String, u64, u64)> {
        let Some(fields) = &self.trace.fields else { return Vec::new() };
        let shown = |at| self.mapping.shown(at, fields).0.to_string();
        let each = self.tally.by_descriptor.iter().enumerate();
        each.map(|(at, &(requests, matched))| (shown(at), requests, matched)).collect()
    }

    /// Returns the tables, with this many of the most denied keys.
    pub fn tables(&self, most: usize) -> String {
        let Self { trace, tally, .. } = self;
        let requests = trace.records.len() as u64;
        let row = vec![
            human::count(requests),
            human::count(tally.decisions.admitted()),
            human::count(tally.decisions.denials.denied),
            human::share(tally.decisions.denials.denied, requests),
            tally.decisions.denials.wait_text(),
            human::count(tally.requests.shadow_denied),
            human::count(tally.requests.unmatched),
            human::count(tally.requests.unknown_domain),
        ];
        let header = "Requests|Admitted|Denied|Share|Longest wait|Shadow-denied|No rule|No domain";
        let mut text = format!("{}\n{ABOUT_REQUESTS}\n\n", table(header, 0..8, [row], &[7, 5]));
        let row = |(descriptor, requests, matched): (String, u64, u64)| {
            vec![printable(descriptor.as_bytes(), 80), human::count(requests), human::count(matched)]
        };
        let descriptors = self.descriptors().into_iter().map(row);
        let descriptors = table("Descriptor|Requests|Matched by a rule", 1..3, descriptors, &[]);
        let _ = write!(text, "{descriptors}\n\n{}", self.rules_table());
        let keys = &tally.denied_keys;
        if !keys.is_empty() && most > 0 {
            let rows = keys.iter().take(most).map(|key| self.key_row(key));
            let table = table("Rule|Key|Denied|Shadow", 2..4, rows, &[]);
            let _ = write!(text, "\nMost denied keys, by the rule that denied them\n{table}\n");
        }
        text
    }

    fn rules_table(&self) -> String {
        let row = |(counted, by_rule): (&CountedRule, &ByRule)| {
            let CountedRule { rule, counts, .. } = counted;
            let [limit, algorithm, _] = limit_texts(rule);
            vec![
                printable(rule.identity.as_bytes(), 80),
                format!("{limit} {algorithm}").trim_end().to_owned(),
                human::count(by_rule.matched),
                human::count(counts.allowed + counts.unlimited),
                human::count(counts.denied),
                human::count(counts.shadow_denied),
                human::count(by_rule.matched.saturating_sub(counts.requests())),
                human::count(counts.near_limit),
                human::count(counts.soft_limited),
                human::count(by_rule.keys_denied),
                Denials { denied: counts.denied, ..by_rule.denials }.wait_text(),
                rule.line.to_string(),
            ]
        };
        let header =
            "Rule|Limit|Matched|Allowed|Denied|Shadow|Uncharged|Near|Soft|Keys denied|Longest wait|Line";
        let rows = self.rules.iter().zip(&self.tally.by_rule).map(row);
        format!("{}\n{ABOUT_RULES}\n", table(header, 2..12, rows, &[8, 7, 6, 11, 5, 10, 9]))
    }

    fn key_row(&self, key: &RuleDeniedKey) -> Vec<String> {
        let rule = &self.rules[key.rule].rule.identity;
        let shown = match &self.key(key)[..] {
            "" => "(all together)".to_owned(),
            shown => printable(shown.as_bytes(), 60),
        };
        let counts = [key.denied, key.shadow_denied].map(human::count);
        [printable(rule.as_bytes(), 80), shown].into_iter().chain(counts).collect()
    }
}
