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
    let (file, at, path, message) = match of_it.first() {
        Some(first) if had_rules && of_it.iter().all(|config| config.rules.is_empty()) => {
            let message =
                format!("the domain {name:?} is in use, and this load would leave it without any rule");
            (&*first.file, first.domain_at, "descriptors", message)
        }
        Some(_) => return None,
        None => {
            let was_there = |config: &&Config| before.names().any(|file| file == &*config.file);
            match configs.iter().find(was_there) {
                // Renamed, most likely.
                Some(other) => {
                    let has = &*other.domain;
                    let message =
                        format!("the domain {name:?} is in use, and this file has {has:?} in its place");
                    (&*other.file, other.domain_at, "domain", message)
                }
                None => {
                    let message =
                        format!("the domain {name:?} is in use, and no file has rules of it any more");
                    (before.names().next().unwrap_or_default(), Position::default(), "", message)
                }
            }
        }
    };
    let remedy = "put its rules back, or allow such loads by RulesBuilder::allow_removals";
    Some(Problem::new(file, at, path, message, remedy))
}
