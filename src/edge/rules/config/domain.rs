//! Files to domains: one each, or several that are merged.

use std::collections::HashMap;

use super::problem::{ConfigError, Problems};
use super::warnings::same_names_in;
use super::{Config, Problem};
use crate::edge::rules::matching::{Branch, FoundRules, Tree};
use crate::edge::rules::rule::{Charging, Rule};

/// All rules of one domain, to be asked which of them limit a request.
///
/// # Examples
/// ```
/// use tollgate::rules::{Config, Domain};
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
/// # Ok::<(), tollgate::rules::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Domain {
    pub(in crate::edge::rules) name: Box<str>,
    pub(in crate::edge::rules) charging: Charging,
    pub(in crate::edge::rules) shadow: bool,
    pub(in crate::edge::rules) rules: Vec<Rule>,
    pub(in crate::edge::rules) tree: Tree,
    pub(in crate::edge::rules) files: RuleFiles,
    warnings: Vec<Problem>,
}

/// Of each file the name, and how many rules there are up to its end.
#[derive(Debug)]
pub(in crate::edge::rules) struct RuleFiles(Vec<(Box<str>, usize)>);

impl RuleFiles {
    /// The file of a rule, by its place among the domain's.
    pub(in crate::edge::rules) fn of(&self, rule: usize) -> &str {
        let file = self.0.partition_point(|&(_, end)| end <= rule);
        self.0.get(file).map_or("", |(file, _)| file)
    }

    /// All of them.
    pub(in crate::edge::rules) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(file, _)| &**file)
    }
}

impl Domain {
    /// The domains of several files, in the order in which they first occur.
    ///
    /// Files of the same domain are an error, unless they are to be merged: then their descriptors come one after another, in the
    /// order of the files. What they say of the whole domain (`charging`, `shadow`) must be the same.
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
            match by_domain.get_mut(place) {
                None => by_domain.push(vec![config]),
                Some(files) => {
                    if let (false, Some(first)) = (merge_domains, files.first()) {
                        let message =
                            format!("the domain {:?} is that of {} too", &*config.domain, at_domain(first));
                        let remedy = "name it otherwise, or merge domains";
                        problems.push(Problem::new(
                            &config.file,
                            config.domain_at,
                            "domain",
                            message,
                            remedy,
                        ));
                    }
                    files.push(config);
                }
            }
        }
        if merge_domains {
            by_domain.iter().for_each(|files| problems.extend(clashes(files)));
        }
        if !problems.is_empty() {
            return Err(ConfigError::of(problems));
        }
        Ok(by_domain.into_iter().filter_map(Self::of).collect())
    }

    fn of(files: Vec<Config>) -> Option<Self> {
        let first = files.first()?;
        let (name, charging, shadow) = (first.domain.clone(), first.charging, first.shadow);
        let (mut before, warnings) = (0, same_names_in(&files));
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
        Some(Self { name, charging, shadow, rules, tree, files: RuleFiles(ends), warnings })
    }

    /// What requests call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What refused requests are charged.
    #[must_use]
    pub fn charging(&self) -> Charging {
        self.charging
    }

    /// Whether all of it is a dry run: every rule decides and counts, and no request is refused.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Its rules, in the order of the files.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What is allowed, but hardly meant, of its files together: rules of one name. What looks wrong in a file by itself is told by
    /// [`Config::warnings`].
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// The rules that limit a request of these entries, keys and values in their order; none if nothing does.
    ///
    /// Several are the limits of one descriptor (`rate_limits`). A tier that the request names comes before one that its last value is
    /// a member of, and that before the descriptor's own limits.
    ///
    /// # Complexity
    /// One look-up by hash a level for exact entries, two where none is exact; wildcards with a plain key by binary search of what
    /// they begin with or end in. Wildcards that many others share this with, that have neither (`*x*`), or with a `*` in the key
    /// are found by a text that they contain: one automaton reads the key or the value once, in time linear in its length, and the
    /// wildcards whose text occurs are tried. At worst each of these wildcards is tried twice. A try takes time linear in the
    /// lengths of the pattern, the key and the value. Nothing is allocated.
    #[must_use]
    pub fn matching(&self, entries: &[(&str, &str)], tier: Option<&str>) -> &[Rule] {
        self.rules.get(self.find(entries, tier).rules()).unwrap_or_default()
    }

    /// The same, as places among the rules.
    pub(crate) fn find(&self, entries: &[(&str, &str)], tier: Option<&str>) -> FoundRules {
        self.tree.find(entries, tier)
    }
}

fn at_domain(config: &Config) -> String {
    format!("{}:{}", config.file, config.domain_at.line)
}

/// What cannot be merged.
fn clashes(files: &[Config]) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut seen: HashMap<(&str, Option<&str>), (&Config, &Branch)> = HashMap::new();
    let Some(first) = files.first() else { return found };
    for file in files {
        let mut problems = Problems::of(&file.file);
        for (what, same) in
            [("charging", file.charging == first.charging), ("shadow", file.shadow == first.shadow)]
        {
            if !same {
                let path = format!("tollgate.{what}");
                let message = format!("{what} is not as in {}, of the same domain", at_domain(first));
                problems.add(file.domain_at, path, message, "write the same in both files");
            }
        }
        for branch in &file.branches {
            let pair = (&*branch.key, branch.value.as_deref());
            if let Some((other, before)) = seen.insert(pair, (file, branch)) {
                let message = format!("{} is in {}:{} too", branch.shown(), other.file, before.at.line);
                problems.add(branch.at, "descriptors", message, "remove one of them");
            }
        }
        found.extend(problems.into_sorted());
    }
    found
}
