//! Finds settings that are allowed but are probably mistakes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use ipnet::IpNet;

use super::node::quoted;
use super::problem::Problems;
use super::{Config, Problem};
use crate::matching::{
    Branch, Position, Wildcards, is_longer_than_addresses, keys_of_addresses, pattern_in_lower_case,
};
use crate::rule::Rule;

/// Returns the warnings about a valid file.
pub(super) fn find(branches: &[Branch], rules: &[Rule], warnings: &mut Problems) {
    let names: HashSet<&str> = rules.iter().filter(|rule| rule.is_named).map(|rule| &*rule.name).collect();
    let mut reported = HashSet::new();
    for rule in rules {
        for name in rule.replaces.iter().filter(|name| !names.contains(&***name)) {
            if reported.insert(&**name) {
                let at = Position::new(rule.line, 1);
                let message =
                    format!("no rule in this file is named {}, but this rule replaces it", quoted(name));
                let remedy = "correct the name in replaces, or give a rule this name";
                warnings.add(at, "", message, remedy);
            }
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
        let elsewhere = file.branches.iter().filter(|branch| !own.contains(&*branch.key));
        elsewhere.for_each(|branch| pattern_of_addresses(branch, &read, &mut warnings));
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
        text_of_range(branch, warnings);
        pattern_of_addresses(branch, &read, warnings);
        if branch.has_no_limit() && branch.children.is_empty() && branch.matches_any() {
            let message = format!("{} has no limit and no descriptors", branch.shown());
            warnings.add(branch.at, "", message, "add a limit or descriptors, or remove it");
        }
        level(&branch.children, warnings);
    }
}

/// Warns about a range of addresses as the value of a key whose values are single addresses.
fn text_of_range(branch: &Branch, warnings: &mut Problems) {
    let value = branch.value.as_deref().filter(|value| value.parse::<IpNet>().is_ok());
    if let Some(value) = value.filter(|_| &*branch.key == "remote_address") {
        let message =
            format!("{} is compared as a text, and remote_address has single addresses", quoted(value));
        let remedy = format!(
            "to match the addresses in it, write ranges: [\"{value}\"] instead of value; this needs the key `tollgate` at the top of the file"
        );
        warnings.add(branch.at, "", message, remedy);
    }
}

/// Warns about a pattern that addresses do not match in the text that is compared with it. `read`: the keys whose values are
/// read as addresses.
fn pattern_of_addresses(branch: &Branch, read: &HashSet<&str>, warnings: &mut Problems) {
    let value = branch.value.as_deref().filter(|value| is_longer_than_addresses(value));
    if let Some(value) = value.filter(|_| read.contains(&*branch.key)) {
        let message = format!(
            "{} is compared with the shortest text of an address, which has no such part: zeros before a digit are left out, \
             :: stands for zeros, and ::ffff:10.0.0.1 is 10.0.0.1",
            quoted(value)
        );
        let remedy = "write ranges instead of value, such as ranges: [\"2001:db8::/32\"]";
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
