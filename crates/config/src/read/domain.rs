//! Builds domains from files: one file each, or several files that are merged.

use std::collections::HashMap;

use super::problem::{ConfigError, Problems};
use super::ranges::same_member;
use super::warnings::merged;
use super::{Config, Problem};
use crate::matching::{Branch, Matched, Tree, keys_of_addresses};
use crate::rule::{Charging, Rule};

/// All rules of one domain. It finds the rules that limit a request.
///
/// # Examples
/// ```
/// use tollgate_config::{Config, Domain};
///
/// let config = Config::from_yaml("limits.yaml", "
/// domain: edge
/// descriptors:
///   - key: remote_address
///     rate_limit: { unit: second, requests_per_unit: 10 }
/// ")?;
/// let domains = Domain::merge([config], false)?;
/// let rules = domains[0].matching(&[("remote_address", "192.0.2.1")], None);
/// assert_eq!(&*rules[0].name, "edge.remote_address");
/// assert!(domains[0].matching(&[("path", "/")], None).is_empty());
/// # Ok::<(), tollgate_config::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Domain {
    parts: DomainParts,
    warnings: Vec<Problem>,
}

/// What a domain consists of. The rules in force have each part in another place.
#[derive(Debug)]
pub struct DomainParts {
    /// The name in requests.
    pub name: Box<str>,
    /// `None` if no file sets it.
    pub charging: Option<Charging>,
    /// Whether the whole domain is a dry run.
    pub shadow: bool,
    /// The rules, in the order of the files.
    pub rules: Vec<Rule>,
    /// Finds the rules that limit a request.
    pub tree: Tree,
    /// The files of the rules.
    pub files: RuleFiles,
}

/// For each file, its name and the number of rules up to its end.
#[derive(Debug)]
pub struct RuleFiles(Vec<(Box<str>, usize)>);

impl RuleFiles {
    /// Returns the file of a rule, by the rule's index in the domain.
    pub fn of(&self, rule: usize) -> &str {
        let file = self.0.partition_point(|&(_, end)| end <= rule);
        self.0.get(file).map_or("", |(file, _)| file)
    }

    /// Returns all files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(file, _)| &**file)
    }
}

impl Domain {
    /// Returns the domains of several files, in the order in which they first occur.
    ///
    /// Several files of the same domain are an error, unless `merge` is set. Then their descriptors follow one another
    /// in the order of the files. Their settings for the whole domain (`charging`, `shadow`) must be the same.
    ///
    /// # Errors
    /// Domains and descriptors that occur twice, with both files and lines.
    pub fn merge(
        configs: impl IntoIterator<Item = Config>,
        merge_domains: bool,
    ) -> Result<Vec<Self>, ConfigError> {
        let mut by_domain: Vec<Vec<Config>> = Vec::new();
        let mut places: HashMap<Box<str>, usize> = HashMap::new();
        let mut problems = Vec::new();
        for config in configs {
            let place = *places.entry(config.domain.clone()).or_insert(by_domain.len());
            let Some(files) = by_domain.get_mut(place) else {
                by_domain.push(vec![config]);
                continue;
            };
            if let (false, Some(first)) = (merge_domains, files.first()) {
                let message = format!("{} already has the domain {:?}", at_domain(first), &*config.domain);
                let remedy = "rename one of them, or merge the files with --merge-domains (RulesBuilder::merge_domains)";
                problems.push(Problem::new(&config.file, config.domain_at, "domain", message, remedy));
            }
            files.push(config);
        }
        if merge_domains {
            by_domain.iter().for_each(|files| problems.extend(clashes(files)));
        }
        if !problems.is_empty() {
            return Err(ConfigError::new(problems));
        }
        Ok(by_domain.into_iter().filter_map(Self::of).collect())
    }

    fn of(files: Vec<Config>) -> Option<Self> {
        let first = files.first()?;
        let (name, shadow) = (first.domain.clone(), first.shadow);
        let charging = files.iter().find_map(|file| file.charging);
        let (mut before, warnings) = (0, merged(&files));
        let tree = Tree::new(files.iter().map(|file| {
            let offset = before;
            before += file.rules.len();
            (&*file.branches, offset)
        }));
        let (mut rules, mut ends) = (Vec::with_capacity(before), Vec::with_capacity(files.len()));
        for file in files {
            rules.extend(file.rules);
            ends.push((file.file, rules.len()));
        }
        let parts = DomainParts { name, charging, shadow, rules, tree, files: RuleFiles(ends) };
        Some(Self { parts, warnings })
    }

    /// Returns the domain's name in requests.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Returns whether denied requests are charged: the files' `charging`, or [`Charging::AllOrNothing`] if no file
    /// sets it.
    #[must_use]
    pub fn charging(&self) -> Charging {
        self.parts.charging.unwrap_or_default()
    }

    /// Whether the whole domain is a dry run: every rule decides and counts, and no request is denied.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.parts.shadow
    }

    /// Returns the rules, in the order of the files.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.parts.rules
    }

    /// Returns warnings about the files of the domain taken together: rules with the same name. [`Config::warnings`]
    /// returns the warnings about a single file.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Returns the rules that limit a request with these entries: keys and values in order. Empty if no rule does.
    ///
    /// Several rules are the limits of one descriptor (`rate_limits`, `prefixes`). The tier that the request names has
    /// precedence. Next is the tier that contains the request's last value, and then the descriptor's own limits.
    ///
    /// # Complexity
    /// Does not allocate. The cost depends on the kind of entry:
    ///
    /// - Exact entries: one hash look-up per level, or two if no entry is exact.
    /// - Ranges of addresses: reads the value as an address, and searches a few blocks of the sorted ranges.
    /// - Wildcards with a plain key: a binary search by their prefix or suffix.
    /// - Wildcards that share their prefix or suffix with many others, that have neither (`*x*`), or that have a `*` in
    ///   the key: a search by a literal that they contain. One automaton reads the key or the value once, in time
    ///   linear in its length. The search then tries the wildcards whose literal occurs, at worst each of them twice.
    ///
    /// One try takes time linear in the lengths of the pattern, the key and the value.
    #[must_use]
    pub fn matching(&self, entries: &[(&str, &str)], tier: Option<&str>) -> &[Rule] {
        let DomainParts { tree, rules, .. } = &self.parts;
        rules.get(tree.find(entries, tier).rules()).unwrap_or_default()
    }

    /// Takes the domain apart. Its warnings are lost.
    #[doc(hidden)]
    #[must_use]
    pub fn into_parts(self) -> DomainParts {
        self.parts
    }
}

fn at_domain(config: &Config) -> String {
    format!("{}:{}", config.file, config.domain_at.line)
}

/// Returns the problems that prevent a merge.
fn clashes(files: &[Config]) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut seen: HashMap<Matched<'_>, (&Config, &Branch)> = HashMap::new();
    let Some(first) = files.first() else { return found };
    // A file can read addresses where another one has only their texts.
    let read = keys_of_addresses(files.iter().flat_map(|file| &file.branches));
    for file in files {
        let mut problems = Problems::of(&file.file);
        for (what, same) in
            [("charging", file.charging() == first.charging()), ("shadow", file.shadow == first.shadow)]
        {
            if !same {
                let path = format!("tollgate.{what}");
                let message = format!("{what} differs from {}, which has the same domain", at_domain(first));
                problems.add(file.domain_at, path, message, "write the same value in both files");
            }
        }
        for branch in &file.branches {
            // One problem is enough for a branch with many ranges.
            let clash = |same: Option<_>, matched| seen.insert(matched, (file, branch)).or(same);
            let is_address = read.contains(&*branch.key);
            if let Some((other, before)) = branch.matched(is_address).fold(None, clash) {
                let place = format!("{}:{}", other.file, before.at.line);
                let message = match before.value == branch.value {
                    true => format!("{} is also in {place}", branch.shown()),
                    false => format!("{} is the same address as the value in {place}", branch.shown()),
                };
                problems.add(branch.at, "descriptors", message, "remove one of them");
            }
            for [message, remedy] in branch.same_members().into_iter().filter(|_| is_address).map(same_member)
            {
                problems.add(branch.at, "descriptors", message, remedy);
            }
        }
        found.extend(problems.into_sorted());
    }
    found
}
