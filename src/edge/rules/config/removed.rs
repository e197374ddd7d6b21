//! Loads that would take the rules of a domain away from those who use it.

use super::domain::RuleFiles;
use super::{Config, Problem};
use crate::edge::rules::matching::Position;

/// The problem with files that have no domain of this name, which is in use; or no rule in it, if it had rules before. `before`: its files
/// so far.
pub(in crate::edge::rules) fn removed(
    configs: &[Config],
    name: &str,
    before: &RuleFiles,
    had_rules: bool,
) -> Option<Problem> {
    let of_it: Vec<&Config> = configs.iter().filter(|config| &*config.domain == name).collect();
    let was_there = |config: &&Config| before.names().any(|file| file == &*config.file);
    let (file, at, path, message) = if let Some(first) = of_it.first() {
        if !had_rules || of_it.iter().any(|config| !config.rules.is_empty()) {
            return None;
        }
        (&*first.file, first.domain_at, "descriptors", "this load would leave it without any rule".to_owned())
    } else if let Some(other) = configs.iter().find(was_there) {
        // Renamed, most likely.
        let message = format!("this file has {:?} in its place", &*other.domain);
        (&*other.file, other.domain_at, "domain", message)
    } else {
        let file = before.names().next().unwrap_or_default();
        (file, Position::default(), "", "no file has rules of it any more".to_owned())
    };
    let message = format!("the domain {name:?} is in use, and {message}");
    let remedy = "put its rules back, or allow such loads by RulesBuilder::allow_removals";
    Some(Problem::new(file, at, path, message, remedy))
}
