//! Detects loads that would remove the rules of a domain in use.

use tollgate_config::internals::RuleFiles;
use tollgate_config::{Config, Problem};

/// Whether none of the files of a domain is left.
pub(super) fn are_files_gone(configs: &[Config], before: &RuleFiles) -> bool {
    !before.names().any(|file| configs.iter().any(|config| config.file() == file))
}

/// Returns the problem with files that lack a domain in use, or that leave a domain without rules if it had some
/// before. `before` lists the domain's previous files.
pub(super) fn removed(
    configs: &[Config],
    name: &str,
    before: &RuleFiles,
    had_rules: bool,
) -> Option<Problem> {
    let of_it: Vec<&Config> = configs.iter().filter(|config| config.domain() == name).collect();
    let was_there = |config: &&Config| before.names().any(|file| file == config.file());
    let remedy = "put its rules back, or allow such loads with RulesBuilder::allow_removals";
    let in_use = |what: &str| format!("the domain {name:?} is in use, and {what}");
    if let Some(first) = of_it.first() {
        if !had_rules || of_it.iter().any(|config| !config.rules().is_empty()) {
            return None;
        }
        let message = in_use("this load would leave it without any rule");
        return Some(first.problem_of_domain("descriptors", &message, remedy));
    }
    if let Some(other) = configs.iter().find(was_there) {
        // The author probably renamed the domain.
        let message = in_use(&format!("this file now has the domain {:?} instead", other.domain()));
        return Some(other.problem_of_domain("domain", &message, remedy));
    }
    let file = before.names().next().unwrap_or_default();
    Some(Problem::of_line(file, 0, &in_use("no file has rules for it any more"), remedy))
}
