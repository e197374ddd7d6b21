//! Detects loads that would remove the rules of a domain in use.

use super::domain::RuleFiles;
use super::{Config, Problem};
use crate::matching::Position;

/// Whether none of the files of a domain is left.
pub(crate) fn are_files_gone(configs: &[Config], before: &RuleFiles) -> bool {
    !before.names().any(|file| configs.iter().any(|config| &*config.file == file))
}

/// Returns the problem with files that lack a domain in use, or that leave a domain without rules if it had some
/// before. `before` lists the domain's previous files.
pub(crate) fn removed(
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
        // The author probably renamed the domain.
        let message = format!("this file now has the domain {:?} instead", &*other.domain);
        (&*other.file, other.domain_at, "domain", message)
    } else {
        let file = before.names().next().unwrap_or_default();
        (file, Position::default(), "", "no file has rules for it any more".to_owned())
    };
    let message = format!("the domain {name:?} is in use, and {message}");
    let remedy = "put its rules back, or allow such loads with RulesBuilder::allow_removals";
    Some(Problem::new(file, at, path, message, remedy))
}
