//! Runs a trace through rules, in the trace's own time, and adds up what they say.

use std::collections::HashMap;

use ahash::RandomState;
use indicatif::ProgressBar;
use serde::Serialize;
use smallvec::SmallVec;

use tollgate::rules::{Answer, Applied, Descriptor, Rules, Verdict};
use tollgate::{ManualClock, Timestamp};

use super::mapping::{Mapping, ValueSource};
use crate::input::wanted::Fields;
use crate::input::{Record, Trace};
use crate::replay::{Denials, STRIDE};

/// What is known of one rule beside what it counts itself.
#[derive(Clone, Debug, Default)]
pub struct ByRule {
    /// Descriptors of requests that it applied to.
    pub matched: u64,
    /// Of those that it refused.
    pub denials: Denials,
    /// Keys that it refused.
    pub keys_denied: u64,
    /// Keys that it would have refused, did it not only report.
    pub keys_shadow_denied: u64,
}

/// What one rule did to one key.
#[derive(Clone, Debug)]
pub struct RuleDeniedKey {
    /// The rule, by its place in all domains together.
    pub rule: usize,
    /// What it counts by: the keys' names, and a text for each value that counts.
    names: u32,
    values: Values,
    /// Requests refused.
    pub denied: u64,
    /// Requests that a rule which only reports would have refused.
    pub shadow_denied: u64,
}

type Values = SmallVec<[u32; 4]>;

/// The decisions, and what they add up to.
#[derive(Debug, Default)]
pub struct RulesTally {
    /// A byte a record, in the order of replay: `1` admitted, `0` denied.
    pub decisions: Vec<u8>,
    /// All that were denied.
    pub denials: Denials,
    /// Requests by what else became of them.
    pub requests: RequestCounts,
    /// For each rule, the domains one after the other.
    pub by_rule: Vec<ByRule>,
    /// For each descriptor, how many requests had it, and for how many a rule applied to it.
    pub by_descriptor: Vec<(u64, u64)>,
    /// Keys that were refused, most first; of equals the one seen first.
    pub denied_keys: Vec<RuleDeniedKey>,
}

/// Requests, by what became of them besides a denial.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RequestCounts {
    /// Requests that were admitted, but only because a rule or a domain merely reports.
    pub shadow_denied: u64,
    /// Requests that were admitted above a soft limit.
    pub soft_limited: u64,
    /// Requests that no rule of their domain applied to.
    pub unmatched: u64,
    /// Of them, those that lacked a field for each descriptor.
    pub undescribed: u64,
    /// Requests of a domain without rules.
    pub unknown_domain: u64,
}

impl RulesTally {
    /// Requests admitted.
    pub fn admitted(&self) -> u64 {
        self.decisions.len() as u64 - self.denials.denied
    }
}

/// Replays a trace with fields through rules, of which each domain has so many.
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
    // Where each domain's rules begin among all.
    let mut offsets = Vec::with_capacity(sizes.len());
    let mut all = 0;
    for size in sizes {
        offsets.push(all);
        all += size;
    }
    let mut run = RulesRun {
        fields,
        mapping,
        offsets,
        names: names(mapping),
        keys: HashMap::default(),
        tally: RulesTally {
            decisions: Vec::with_capacity(trace.records.len()),
            by_rule: vec![ByRule::default(); all],
            by_descriptor: vec![(0, 0); mapping.descriptors.len()],
            ..RulesTally::default()
        },
    };
    let (mut entries, mut present) = (Vec::new(), Vec::new());
    for records in trace.records.chunks(STRIDE) {
        for record in records {
            run.describe(record, &mut entries, &mut present);
            let tier = mapping.tier.and_then(|field| fields.value(record.key, field));
            let descriptors: SmallVec<[Descriptor<'_>; 4]> = present
                .iter()
                .scan(0, |begin, &(_, end)| {
                    let descriptor = Descriptor::new(&entries[*begin..end]);
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
            let answer = rules.check_at(domain, &descriptors, record.cost, at);
            run.count(record, &answer, &present);
        }
        progress.inc(records.len() as u64);
    }
    let mut tally = run.tally;
    tally.denied_keys.sort_by_key(|key| std::cmp::Reverse((key.denied, key.shadow_denied)));
    tally
}

/// A number for each descriptor's keys, the same for the same ones.
fn names(mapping: &Mapping) -> Vec<u32> {
    let keys = |descriptor: &[(String, ValueSource)]| {
        descriptor.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>()
    };
    let all: Vec<Vec<String>> = mapping.descriptors.iter().map(|descriptor| keys(descriptor)).collect();
    let first = |keys| all.iter().position(|known| known == keys).and_then(|at| u32::try_from(at).ok());
    all.iter().map(|keys| first(keys).unwrap_or(0)).collect()
}

struct RulesRun<'t> {
    fields: &'t Fields,
    mapping: &'t Mapping,
    offsets: Vec<usize>,
    names: Vec<u32>,
    /// Places in the tally's denied keys.
    keys: HashMap<(usize, u32, Values), usize, RandomState>,
    tally: RulesTally,
}

impl<'t> RulesRun<'t> {
    /// The entries of those descriptors that a record has; and which they are, with their ends.
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

    fn count(&mut self, record: &Record, answer: &Answer, present: &[(usize, usize)]) {
        let is_denied = answer.is_denied();
        self.tally.decisions.push(if is_denied { b'0' } else { b'1' });
        if is_denied {
            self.tally.denials.add(answer.retry_after());
        }
        let Some(domain) = answer.domain_index() else {
            self.tally.requests.unknown_domain += 1;
            return;
        };
        let offset = self.offsets.get(domain).copied().unwrap_or(usize::MAX);
        let (mut matched, mut shadow, mut soft) = (false, false, false);
        let mut last_descriptor = None;
        for applied in answer.limits() {
            let rule = offset.saturating_add(applied.index());
            let descriptor = present.get(applied.descriptor()).map(|&(number, _)| number);
            matched = true;
            if let Some(number) = descriptor.filter(|_| last_descriptor != descriptor) {
                self.tally.by_descriptor[number].1 += 1;
                last_descriptor = descriptor;
            }
            soft |= applied.verdict() == Verdict::SoftLimited;
            let Some(by_rule) = self.tally.by_rule.get_mut(rule) else { continue };
            by_rule.matched += 1;
            // One of several that refuse only together refuses nobody if they do not.
            let refuses = match applied.verdict() {
                Verdict::Denied => is_denied,
                Verdict::ShadowDenied => false,
                _ => continue,
            };
            if refuses {
                by_rule.denials.add(applied.decision().and_then(|decision| decision.retry_after()));
            }
            shadow |= !refuses;
            // A look is nothing that a rule counts.
            if let Some(number) = descriptor.filter(|_| record.cost > 0) {
                self.count_key(record, rule, &applied, number, refuses);
            }
        }
        let requests = &mut self.tally.requests;
        requests.unmatched += u64::from(!matched);
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
        let counted_by = applied.rule().counted_by;
        let entries = self.mapping.descriptors.get(descriptor).map_or(&[][..], Vec::as_slice);
        let values: Values = (0..u32::BITS)
            .zip(entries)
            .filter(|(bit, _)| counted_by >> bit & 1 == 1)
            .filter_map(|(_, &(_, source))| value(self.fields, record, source))
            .collect();
        let names = self.names.get(descriptor).copied().unwrap_or(0);
        let RulesTally { denied_keys, by_rule, .. } = &mut self.tally;
        let place = *self.keys.entry((rule, names, values)).or_insert_with_key(|(_, _, values)| {
            denied_keys.push(RuleDeniedKey {
                rule,
                names,
                values: values.clone(),
                denied: 0,
                shadow_denied: 0,
            });
            denied_keys.len() - 1
        });
        let key = &mut denied_keys[place];
        let count = if refuses { &mut key.denied } else { &mut key.shadow_denied };
        *count += 1;
        if *count == 1 {
            let by_rule = &mut by_rule[rule];
            *(if refuses { &mut by_rule.keys_denied } else { &mut by_rule.keys_shadow_denied }) += 1;
        }
    }
}

fn value(fields: &Fields, record: &Record, source: ValueSource) -> Option<u32> {
    match source {
        ValueSource::Field(field) => fields.value(record.key, field),
        ValueSource::Text(text) => Some(text),
    }
}

impl RuleDeniedKey {
    /// What the rule counts by: one value, or several with their keys; nothing if all requests share one counter.
    pub fn text(&self, counted_by: u32, mapping: &Mapping, fields: &Fields) -> String {
        let text = |&value: &u32| fields.text(value);
        if let [value] = &self.values[..] {
            return text(value).to_owned();
        }
        let entries = mapping.descriptors.get(self.names as usize).map_or(&[][..], Vec::as_slice);
        let counted = (0..u32::BITS).zip(entries).filter(|(bit, _)| counted_by >> bit & 1 == 1);
        let pairs: Vec<String> = counted
            .zip(&self.values)
            .map(|((_, (key, _)), value)| format!("{key}={}", text(value)))
            .collect();
        pairs.join(",")
    }
}
