//! What a replay through rules prints.

use std::fmt::Write as _;

use serde::Serialize;

use tollgate::rules::{Limit, Rule};
use tollgate::telemetry::MeterCounts;

use super::check::SaysJson;
use super::mapping::Mapping;
use super::tally::{ByRule, RequestCounts, RuleDeniedKey, RulesTally};
use crate::error::Error;
use crate::human::{self, nanos};
use crate::input::Trace;
use crate::input::row::printable;
use crate::input::wanted::Fields;
use crate::output::about::InputJson;
use crate::output::table::table;
use crate::output::to_json;
use crate::replay::Denials;

/// A rule in force, and what it counted.
#[derive(Clone, Debug)]
pub struct CountedRule {
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
pub struct RulesOutput<'a> {
    /// What was replayed.
    pub trace: &'a Trace,
    /// As what.
    pub mapping: &'a Mapping,
    /// Through which rules.
    pub rules: &'a [CountedRule],
    /// What they said.
    pub tally: &'a RulesTally,
    /// How many of the most denied keys to list.
    pub top: usize,
}

/// The whole JSON. Fields may be added; those here keep their names and meaning.
#[derive(Serialize)]
struct RulesReplayJson<'a> {
    input: InputJson,
    descriptors: Vec<DescriptorJson>,
    rules: Vec<ReplayedRuleJson<'a>>,
    results: RulesResultJson<'a>,
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
struct ReplayedRuleJson<'a> {
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
struct RulesResultJson<'a> {
    admitted: u64,
    denied: u64,
    never: u64,
    #[serde(flatten)]
    requests: RequestCounts,
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

impl<'a> RulesOutput<'a> {
    /// As JSON.
    ///
    /// # Errors
    /// Never in practice: every value is a number or a text.
    pub fn json(&self) -> Result<String, Error> {
        let Self { tally, .. } = *self;
        let rule_key = |key: &RuleDeniedKey| {
            let CountedRule { domain, rule, .. } = self.rules.get(key.rule)?;
            Some(RuleKeyJson { domain, rule: &rule.identity, key: self.key_json(key) })
        };
        let each = self.rules.iter().zip(&tally.by_rule).zip(self.keys_by_rule());
        to_json(&RulesReplayJson {
            input: InputJson::new(self.trace),
            descriptors: self.descriptors(),
            rules: each.map(|((counted, by_rule), keys)| self.rule_json(counted, by_rule, keys)).collect(),
            results: RulesResultJson {
                admitted: tally.admitted(),
                denied: tally.denials.denied,
                never: tally.denials.never,
                requests: tally.requests.clone(),
                longest_wait_ns: nanos(tally.denials.longest_wait),
                top_denied: tally.denied_keys.iter().take(self.top).filter_map(rule_key).collect(),
            },
        })
    }

    /// Of each rule, the keys to be listed.
    fn keys_by_rule(&self) -> Vec<Vec<&'a RuleDeniedKey>> {
        let mut each = vec![Vec::new(); self.rules.len()];
        for key in &self.tally.denied_keys {
            if let Some(keys) = each.get_mut(key.rule).filter(|keys| keys.len() < self.top) {
                keys.push(key);
            }
        }
        each
    }

    fn rule_json(
        &self,
        counted: &'a CountedRule,
        by_rule: &ByRule,
        keys: Vec<&RuleDeniedKey>,
    ) -> ReplayedRuleJson<'a> {
        let CountedRule { domain, rule, file, counts, pressed } = counted;
        ReplayedRuleJson {
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
            never: by_rule.denials.never,
            keys_denied: by_rule.keys_denied,
            keys_shadow_denied: by_rule.keys_shadow_denied,
            evictions: pressed.map(|(evictions, _)| evictions),
            debt_denials: pressed.map(|(_, denials)| denials),
            longest_wait_ns: nanos(by_rule.denials.longest_wait),
            top_denied: keys.into_iter().map(|key| self.key_json(key)).collect(),
        }
    }

    fn key_json(&self, key: &RuleDeniedKey) -> KeyJson {
        KeyJson { key: self.key(key), denied: key.denied, shadow_denied: key.shadow_denied }
    }

    fn key(&self, key: &RuleDeniedKey) -> String {
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
    pub fn tables(&self) -> String {
        let Self { trace, tally, .. } = *self;
        let requests = trace.records.len() as u64;
        let row = vec![
            human::count(requests),
            human::count(tally.admitted()),
            human::count(tally.denials.denied),
            human::share(tally.denials.denied, requests),
            tally.denials.wait_text(),
            human::count(tally.requests.shadow_denied),
            human::count(tally.requests.unmatched),
            human::count(tally.requests.unknown_domain),
        ];
        let header = "Requests|Admitted|Denied|Share|Longest wait|Shadow-denied|No rule|No domain";
        let mut text = format!("{}\n{ABOUT_REQUESTS}\n\n", table(header, 0..8, [row], &[7, 5]));
        let row = |DescriptorJson { descriptor, requests, matched }: DescriptorJson| {
            vec![printable(descriptor.as_bytes(), 80), human::count(requests), human::count(matched)]
        };
        let descriptors = self.descriptors().into_iter().map(row);
        let descriptors = table("Descriptor|Requests|Matched by a rule", 1..3, descriptors, &[]);
        let _ = write!(text, "{descriptors}\n\n{}", self.rules_table());
        let keys = &self.tally.denied_keys;
        if !keys.is_empty() && self.top > 0 {
            let rows = keys.iter().take(self.top).map(|key| self.key_row(key));
            let table = table("Rule|Key|Denied|Shadow", 2..4, rows, &[]);
            let _ = write!(text, "\nMost denied keys, by the rule that denied them\n{table}\n");
        }
        text
    }

    fn rules_table(&self) -> String {
        let row = |(counted, by_rule): (&CountedRule, &ByRule)| {
            let CountedRule { rule, counts, .. } = counted;
            vec![
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
        let rule = self.rules.get(key.rule).map_or("", |counted| &*counted.rule.identity);
        let shown = match &self.key(key)[..] {
            "" => "(all together)".to_owned(),
            shown => printable(shown.as_bytes(), 60),
        };
        let counts = [key.denied, key.shadow_denied].map(human::count);
        [printable(rule.as_bytes(), 80), shown].into_iter().chain(counts).collect()
    }
}

fn limit(rule: &Rule) -> String {
    match &rule.limit {
        Limit::Unlimited => "none".to_owned(),
        Limit::Blocked { .. } => "refuses all".to_owned(),
        Limit::Quota { quota, algorithm, .. } => format!("{quota} {algorithm}"),
        _ => "?".to_owned(),
    }
}
