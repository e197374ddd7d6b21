//! Runs a trace through rules, at the trace's own times, and adds up the results.

use std::collections::HashMap;

use ahash::RandomState;
use indicatif::ProgressBar;
use serde::Serialize;
use smallvec::SmallVec;

use tollgate::{ManualClock, Timestamp};
use tollgate_rules::{Answer, Applied, Descriptor, Rules, Verdict};

use super::mapping::{Mapping, ValueSource};
use crate::input::wanted::Fields;
use crate::input::{Record, Trace};
use crate::replay::{Decisions, Denials, strides};

/// The counts of one rule, in addition to the rule's own counts.
#[derive(Clone, Debug, Default)]
pub struct ByRule {
    /// Descriptors of requests to which the rule applied.
    pub matched: u64,
    /// Descriptors that the rule denied.
    pub denials: Denials,
    /// Keys that the rule denied.
    pub keys_denied: u64,
    /// Keys that the rule would have denied if it were enforced.
    pub keys_shadow_denied: u64,
}

/// The denials of one key by one rule.
#[derive(Clone, Debug)]
pub struct RuleDeniedKey {
    /// The rule, by its index in all domains together.
    pub rule: usize,
    /// The values by which the rule counts: the keys' names, and a text for each value.
    names: usize,
    values: Values,
    /// Requests denied.
    pub denied: u64,
    /// Requests that a report-only rule would have denied.
    pub shadow_denied: u64,
    /// The times of the first and the last of these requests.
    pub span: (u64, u64),
}

type Values = SmallVec<[u32; 4]>;

/// The decisions and their totals.
#[derive(Debug, Default)]
pub struct RulesTally {
    /// All decisions.
    pub decisions: Decisions,
    /// Requests by their other results.
    pub requests: RequestCounts,
    /// The counts of each rule, in the order of the domains.
    pub by_rule: Vec<ByRule>,
    /// For each descriptor, the requests that had it, and those to which a rule applied.
    pub by_descriptor: Vec<(u64, u64)>,
    /// Denied keys, most denials first; among equals, the key seen first.
    pub denied_keys: Vec<RuleDeniedKey>,
}

/// Requests, by results other than a denial.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RequestCounts {
    /// Requests that were admitted only because a rule or a domain is report-only.
    pub shadow_denied: u64,
    /// Requests that were admitted above a soft limit.
    pub soft_limited: u64,
    /// Requests that no rule of their domain applied to.
    pub unmatched: u64,
    /// The requests among them that lacked a field for each descriptor.
    pub undescribed: u64,
    /// Requests of a domain without rules.
    pub unknown_domain: u64,
}

/// Replays a trace with fields through rules, with the number of rules of each domain.
pub fn replay(
    trace: &Trace,
    rules: &Rules<ManualClock>,
    sizes: &[usize],
    domain: &str,
    mapping: &Mapping,
    progress: &ProgressBar,
) -> RulesTally {
    let no_fields = Fields::default();
    let fields = trace.fields.as_ref().unwrap_or(&no_fields);
    let mut run = RulesRun {
        fields,
        mapping,
        offsets: (0..sizes.len()).map(|domain| sizes[..domain].iter().sum()).collect(),
        names: names(mapping),
        keys: HashMap::default(),
        tally: RulesTally {
            decisions: Decisions::with_capacity(trace.records.len()),
            by_rule: vec![ByRule::default(); sizes.iter().sum()],
            by_descriptor: vec![(0, 0); mapping.descriptors.len()],
            ..RulesTally::default()
        },
    };
    let (mut entries, mut counted, mut present) = (Vec::new(), Vec::new(), Vec::new());
    for record in strides(trace, progress).flatten() {
        run.describe(record, &mut entries, &mut present);
        if fields.has_networks() {
            run.count_as(record, &present, &mut counted);
        }
        let tier = mapping.tier.and_then(|field| fields.value(record.key, field));
        let descriptors: SmallVec<[Descriptor<'_>; 4]> = present
            .iter()
            .scan(0, |begin, &(_, end)| {
                let descriptor = Descriptor::new(&entries[*begin..end]);
                let descriptor =
                    counted.get(*begin..end).map_or(descriptor, |as_these| descriptor.counted_as(as_these));
                *begin = end;
                Some(tier.map_or(descriptor, |tier| descriptor.tier(fields.text(tier))))
            })
            .collect();
        let domain = match mapping.domain {
            Some(field) => fields.value(record.key, field).map_or("", |domain| fields.text(domain)),
            None => domain,
        };
        let at = Timestamp::from_nanos(record.at);
        rules.clock().set(at);
        let answer = rules.at(at).check_n(domain, &descriptors, record.cost);
        run.count(record, &answer, &present);
    }
    let mut tally = run.tally;
    for key in &tally.denied_keys {
        let by_rule = &mut tally.by_rule[key.rule];
        by_rule.keys_denied += u64::from(key.denied > 0);
        by_rule.keys_shadow_denied += u64::from(key.shadow_denied > 0);
    }
    tally.denied_keys.sort_by_key(|key| std::cmp::Reverse((key.denied, key.shadow_denied)));
    tally
}

/// Returns a number for each descriptor's keys; equal keys have equal numbers.
fn names(mapping: &Mapping) -> Vec<usize> {
    let all = &mapping.descriptors;
    let alike = |one: &[(String, ValueSource)], other: &[(String, ValueSource)]| {
        one.iter().map(|(key, _)| key).eq(other.iter().map(|(key, _)| key))
    };
    all.iter().map(|keys| all.iter().position(|known| alike(known, keys)).unwrap_or(0)).collect()
}

/// Returns the entries of a descriptor by whose values a rule counts: those whose bit is set.
fn counted(
    mapping: &Mapping,
    descriptor: usize,
    counted_by: u32,
) -> impl Iterator<Item = &(String, ValueSource)> {
    let entries = mapping.descriptors.get(descriptor).into_iter().flatten();
    (0..u32::BITS).zip(entries).filter(move |(bit, _)| counted_by >> bit & 1 == 1).map(|(_, entry)| entry)
}

struct RulesRun<'t> {
    fields: &'t Fields,
    mapping: &'t Mapping,
    /// The first index of each domain's rules among all.
    offsets: Vec<usize>,
    names: Vec<usize>,
    /// Indexes in the tally's denied keys.
    keys: HashMap<(usize, usize, Values), usize, RandomState>,
    tally: RulesTally,
}

impl<'t> RulesRun<'t> {
    /// Lists the entries of all descriptors that the record has. `present` receives the number of each such descriptor and
    /// the end of its entries.
    fn describe(
        &mut self,
        record: &Record,
        entries: &mut Vec<(&'t str, &'t str)>,
        present: &mut Vec<(usize, usize)>,
    ) {
        entries.clear();
        present.clear();
        let Self { fields, mapping, tally, .. } = self;
        for (number, descriptor) in mapping.descriptors.iter().enumerate() {
            let begin = entries.len();
            let mut whole = true;
            for (key, source) in descriptor {
                match value(fields, record, *source) {
                    Some(value) => entries.push((key, fields.text(value))),
                    None => whole = false,
                }
            }
            if whole {
                present.push((number, entries.len()));
                tally.by_descriptor[number].0 += 1;
            } else {
                entries.truncate(begin);
            }
        }
    }

    /// Lists the entries again, with the texts by which they are counted.
    fn count_as(&self, record: &Record, present: &[(usize, usize)], counted: &mut Vec<(&'t str, &'t str)>) {
        counted.clear();
        for &(number, _) in present {
            for (key, source) in &self.mapping.descriptors[number] {
                let text =
                    counted_value(self.fields, record, *source).map_or("", |text| self.fields.text(text));
                counted.push((key, text));
            }
        }
    }

    fn count(&mut self, record: &Record, answer: &Answer, present: &[(usize, usize)]) {
        let is_denied = answer.is_denied();
        self.tally.decisions.add(is_denied.then(|| answer.retry_after()));
        let Some(domain) = answer.domain_index() else {
            self.tally.requests.unknown_domain += 1;
            return;
        };
        let (mut shadow, mut soft) = (false, false);
        let mut last_descriptor = None;
        for applied in answer.limits() {
            let rule = self.offsets[domain] + applied.index();
            let (descriptor, _) = present[applied.descriptor()];
            if last_descriptor.replace(descriptor) != Some(descriptor) {
                self.tally.by_descriptor[descriptor].1 += 1;
            }
            soft |= applied.verdict() == Verdict::SoftLimited;
            let by_rule = &mut self.tally.by_rule[rule];
            by_rule.matched += 1;
            // Rules with `quota_mode` deny nothing if one of them admits.
            let refuses = match applied.verdict() {
                Verdict::Denied => is_denied,
                Verdict::ShadowDenied => false,
                _ => continue,
            };
            if refuses {
                by_rule.denials.add(applied.decision().and_then(|decision| decision.retry_after()));
            }
            shadow |= !refuses;
            // A rule does not count a peek.
            if record.cost > 0 {
                self.count_key(record, rule, &applied, descriptor, refuses);
            }
        }
        let requests = &mut self.tally.requests;
        requests.unmatched += u64::from(last_descriptor.is_none());
        requests.undescribed += u64::from(present.is_empty());
        requests.shadow_denied += u64::from(shadow && !is_denied);
        requests.soft_limited += u64::from(soft && !is_denied);
    }

    fn count_key(
        &mut self,
        record: &Record,
        rule: usize,
        applied: &Applied<'_>,
        descriptor: usize,
        refuses: bool,
    ) {
        let values: Values = counted(self.mapping, descriptor, applied.rule().counted_by)
            .filter_map(|&(_, source)| counted_value(self.fields, record, source))
            .collect();
        let names = self.names[descriptor];
        let denied_keys = &mut self.tally.denied_keys;
        let place = *self.keys.entry((rule, names, values)).or_insert_with_key(|(_, _, values)| {
            let values = values.clone();
            denied_keys.push(RuleDeniedKey {
                rule,
                names,
                values,
                denied: 0,
                shadow_denied: 0,
                span: (record.at, record.at),
            });
            denied_keys.len() - 1
        });
        let key = &mut denied_keys[place];
        key.span = (key.span.0.min(record.at), key.span.1.max(record.at));
        *(if refuses { &mut key.denied } else { &mut key.shadow_denied }) += 1;
    }
}

fn value(fields: &Fields, record: &Record, source: ValueSource) -> Option<u32> {
    match source {
        ValueSource::Field(field) => fields.value(record.key, field),
        ValueSource::Text(text) => Some(text),
    }
}

/// Returns the text by which a value is counted.
fn counted_value(fields: &Fields, record: &Record, source: ValueSource) -> Option<u32> {
    match source {
        ValueSource::Field(field) => fields.counted(record.key, field),
        ValueSource::Text(text) => Some(text),
    }
}

impl RuleDeniedKey {
    /// The values by which the rule counts: one value, or several with their keys; nothing if all requests share one
    /// counter.
    pub fn text(&self, counted_by: u32, mapping: &Mapping, fields: &Fields) -> String {
        let text = |&value: &u32| fields.text(value);
        if let [value] = &self.values[..] {
            return text(value).to_owned();
        }
        let pairs: Vec<String> = counted(mapping, self.names, counted_by)
            .zip(&self.values)
            .map(|((key, _), value)| format!("{key}={}", text(value)))
            .collect();
        pairs.join(",")
    }
}
