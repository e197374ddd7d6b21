//! Finds settings that are allowed but are probably mistakes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::never::{Compared, unfilled, why_never};
use super::node::quoted;
use super::problem::Problems;
use super::{Config, Problem};
use crate::matching::{Branch, Position, Wildcards, keys_of_addresses, pattern_in_lower_case};
use crate::rule::Rule;

/// Returns the warnings about a valid file.
pub(super) fn find(
    (domain, at): (&str, Position),
    branches: &[Branch],
    rules: &[Rule],
    warnings: &mut Problems,
) {
    if let Some([message, remedy]) = unfilled(domain) {
        warnings.add(at, "domain", message, remedy);
    }
    let names: HashSet<&str> = rules.iter().filter(|rule| rule.is_named).map(|rule| &*rule.name).collect();
    let mut reported = HashSet::new();
    for (rule, name) in rules.iter().flat_map(|rule| rule.replaces.iter().map(move |name| (rule, &**name))) {
        if !names.contains(name) && reported.insert(name) {
            let message =
                format!("no rule in this file is named {}, but this rule replaces it", quoted(name));
            let remedy = "correct the name in replaces, or give a rule this name";
            warnings.add(Position::new(rule.line, 1), "", message, remedy);
        }
    }
    same_names(rules, warnings);
    shown_values(rules, warnings);
    level(branches, warnings);
}

/// Warns about rules that metrics, logs and clients cannot distinguish.
fn same_names(rules: &[Rule], warnings: &mut Problems) {
    let mut first: HashMap<&str, &Rule> = HashMap::new();
    for rule in rules {
        let other = *first.entry(&rule.name).or_insert(rule);
        if !std::ptr::eq(other, rule) {
            warn_same_name(rule, &format!("line {}", other.line), warnings);
        }
    }
}

fn warn_same_name(rule: &Rule, other: &str, warnings: &mut Problems) {
    let message = format!(
        "this rule and the rule in {other} are both named {}: metrics add their counts together, and show the gauges of only one of them",
        quoted(&rule.name)
    );
    let at = Position::new(rule.line, 1);
    warnings.add(at, "", message, "give it another name, with `name` in its rate_limit");
}

/// Returns the warnings about merged files, after each file was checked alone. Reports a name once for each file.
pub(super) fn merged(files: &[Config]) -> Vec<Problem> {
    let read = keys_of_addresses(files.iter().flat_map(|file| &file.branches));
    let mut first: HashMap<&str, (&Config, usize)> = HashMap::new();
    let mut found = Vec::new();
    for file in files {
        let mut warnings = Problems::of(&file.file);
        let mut seen = HashSet::new();
        for rule in file.rules.iter().filter(|rule| seen.insert(&rule.name)) {
            let (other, line) = *first.entry(&rule.name).or_insert((file, rule.line));
            if !std::ptr::eq(other, file) {
                warn_same_name(rule, &format!("{}:{line}", other.file), &mut warnings);
            }
        }
        let own = keys_of_addresses(&file.branches);
        // Another file reads the values of these keys as addresses. A warning of the file alone is not repeated.
        for branch in file.branches.iter().filter(|branch| read.contains(&*branch.key)) {
            let value = branch.value.as_deref().filter(|_| !own.contains(&*branch.key));
            let [alone, merged] = [false, true].map(|as_addresses| {
                why_never(&branch.key, value?, Compared { as_addresses, with_patterns: true })
            });
            if let (None, Some([message, remedy])) = (alone, merged) {
                warnings.add(branch.at, "", message, remedy);
            }
        }
        found.extend(warnings.into_sorted());
    }
    found
}

/// Warns about settings that would put values of requests into metric names. Metric labels never contain such values.
/// Warns only once, for any number of rules.
fn shown_values(rules: &[Rule], warnings: &mut Problems) {
    if let Some(rule) = rules.iter().find(|rule| rule.metric.with_value != 0) {
        let message = "value_to_metric and detailed_metric do not change metrics: labels never contain values of requests";
        let remedy = "write one rule for each value that needs its own counter";
        warnings.add(Position::new(rule.line, 1), "", message, remedy);
    }
}

fn level(branches: &[Branch], warnings: &mut Problems) {
    let read = keys_of_addresses(branches);
    unreached(branches, &read, warnings);
    hidden(branches, warnings);
    for branch in branches {
        never_sent(branch, &read, warnings);
        if branch.has_no_limit() && branch.children.is_empty() && branch.matches_any() {
            let message = format!("{} has no limit and no descriptors", branch.shown());
            warnings.add(branch.at, "", message, "add a limit or descriptors, or remove it");
        }
        level(&branch.children, warnings);
    }
}

/// Warns about a key, a value, and members of tiers that no request has. `read`: the keys whose values are read as addresses.
fn never_sent(branch: &Branch, read: &HashSet<&str>, warnings: &mut Problems) {
    let key = &*branch.key;
    let how = Compared { as_addresses: read.contains(key), with_patterns: true };
    let value = branch.value.as_deref().and_then(|value| why_never(key, value, how));
    let members = branch.tiers.iter().flat_map(|tier| tier.members.iter().map(|member| &**member));
    let member = |member| why_never(key, member, Compared { with_patterns: false, ..how });
    for [message, remedy] in unfilled(key).into_iter().chain(value).chain(members.filter_map(member)) {
        warnings.add(branch.at, "", message, remedy);
    }
}

/// Warns about wildcards that an earlier wildcard hides. If a pattern matches the text of another pattern, it matches
/// everything that the other pattern matches, because only a `*` can match the other's `*`.
fn unreached(branches: &[Branch], read: &HashSet<&str>, warnings: &mut Problems) {
    // Patterns of addresses match in any case.
    fn text<'b>(branch: &'b Branch, read: &HashSet<&str>) -> Option<Cow<'b, str>> {
        let value = branch.value.as_deref()?;
        let in_lower_case = read.contains(&*branch.key).then(|| pattern_in_lower_case(value)).flatten();
        Some(in_lower_case.map_or(Cow::Borrowed(value), Cow::Owned))
    }
    let numbered = (0_u32..).zip(branches).filter(|(_, branch)| branch.is_wildcard());
    let texts: Vec<_> = numbered.map(|(at, branch)| (at, branch, text(branch, read))).collect();
    let wild = Wildcards::new(texts.iter().map(|(at, branch, value)| (&*branch.key, value.as_deref(), *at)));
    for (at, branch, value) in texts {
        let first = wild.first(&branch.key, value.as_deref().unwrap_or("*"));
        let Some(first) = first.filter(|&first| first < at) else { continue };
        if let Some(earlier) = branches.get(first as usize) {
            let message = format!(
                "{} is never used: the first matching wildcard wins, and {} in line {} matches the same requests",
                branch.shown(),
                earlier.shown(),
                earlier.at.line
            );
            warnings.add(branch.at, "", message, "move this descriptor before that line");
        }
    }
}

/// Warns about an entry without a limit that hides an entry with one, for the same requests. An entry without
/// descriptors too is meant to admit them.
fn hidden(branches: &[Branch], warnings: &mut Problems) {
    let limited: Vec<&Branch> =
        branches.iter().filter(|branch| branch.matches_any() && !branch.own.all().is_empty()).collect();
    for branch in branches {
        if branch.matches_any() || !branch.has_no_limit() || branch.children.is_empty() {
            continue;
        }
        if let Some(sibling) = limited.iter().find(|sibling| sibling.key == branch.key) {
            let message = format!(
                "requests with only {} have no limit, because the limit in line {} applies to other values only",
                branch.shown(),
                sibling.at.line
            );
            warnings.add(branch.at, "", message, "to limit these requests, write a limit here too");
        }
    }
}
