//! Reports the changes of a load.

use std::collections::HashMap;
use std::fmt;

use tollgate_config::{Amount, Charging, Domain, IpNet, Problem, Rule};

use crate::engine::state::{ActiveDomain, RuleSet};

/// The changes of a load: the domains and rules that it added, changed and removed. Unchanged rules are not listed.
///
/// Its text has one line with the numbers, and one line for each change.
///
/// # Examples
/// ```
/// use tollgate_rules::{ChangeKind, Config, Rules};
///
/// let text = |key, limit| format!("
/// domain: shop
/// descriptors:
///   - key: user
///     rate_limit: {{ unit: day, requests_per_unit: {limit} }}
///   - key: {key}
///     rate_limit: {{ unit: second, requests_per_unit: 10 }}
/// ");
/// let rules = Rules::from_yaml(&text("remote_address", 100))?;
/// let report = rules.replace([Config::from_yaml("limits.yaml", &text("remote_adress", 200))?])?;
/// assert_eq!(
///     report.to_string(),
///     "1 added, 1 changed, 1 removed
///   changed rule \"shop.user\" (shop|user): limit 100/d to 200/d
///   added rule \"shop.remote_adress\" (shop|remote_adress): 10/s, fixed-window
///   removed rule \"shop.remote_address\" (shop|remote_address): 10/s, fixed-window"
/// );
/// let removed = report.of_kind(ChangeKind::Removed).next().unwrap();
/// assert_eq!((removed.domain(), removed.rule()), ("shop", Some("shop|remote_address")));
/// # Ok::<(), tollgate_rules::RulesError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoadReport {
    changes: Vec<Change>,
    lost: Vec<Box<str>>,
    warnings: Vec<Problem>,
}

/// The kind of a change.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum ChangeKind {
    /// The domain or rule is new.
    Added,
    /// The domain or rule existed before, and its settings changed.
    Changed,
    /// The domain or rule no longer exists.
    Removed,
}

/// A domain or a rule that a load has added, changed or removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    kind: ChangeKind,
    domain: Box<str>,
    rule: Option<Box<str>>,
    /// The name of the rule, and whether the file gives it.
    name: Option<(Box<str>, bool)>,
    /// The limit of the rule, if it was added or removed.
    summary: String,
    differences: Vec<Difference>,
}

/// A setting of a domain or a rule that changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    what: &'static str,
    before: String,
    after: String,
}

impl LoadReport {
    pub(super) fn between(before: &RuleSet, after: &RuleSet, warnings: Vec<Problem>) -> Self {
        let lost = before
            .domains
            .iter()
            .filter(|domain| after.domain(&domain.name).is_some_and(|next| domain.loses_requests_in(next)));
        let lost = lost.map(|domain| domain.name.clone()).collect();
        let report = Self::of([before, after].map(|set| set.domains.iter().map(Listed::of_active).collect()));
        Self { lost, warnings, ..report }
    }

    /// Returns the changes that a load would report, without a load.
    ///
    /// # Complexity
    /// O(rules). Creates no stores.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Config, Domain, LoadReport};
    ///
    /// let domains = |limit| {
    ///     let rule = format!("{{ key: user, rate_limit: {{ unit: day, requests_per_unit: {limit} }} }}");
    ///     let config = Config::from_yaml("limits.yaml", &format!("{{ domain: shop, descriptors: [ {rule} ] }}"))?;
    ///     Domain::merge([config], false)
    /// };
    /// let report = LoadReport::between_domains(&domains(100)?, &domains(200)?);
    /// assert_eq!(report.changes()[0].to_string(), "changed rule \"shop.user\" (shop|user): limit 100/d to 200/d");
    /// # Ok::<(), tollgate_rules::ConfigError>(())
    /// ```
    #[must_use]
    pub fn between_domains(before: &[Domain], after: &[Domain]) -> Self {
        Self::of([before, after].map(|domains| domains.iter().map(Listed::of_domain).collect()))
    }

    fn of([before, after]: [Vec<Listed<'_>>; 2]) -> Self {
        let [then, now] = [&before, &after]
            .map(|all| all.iter().map(|domain| (domain.name, domain)).collect::<HashMap<_, _>>());
        let mut changes = Vec::new();
        for domain in &after {
            match then.get(domain.name) {
                Some(then) => compare_domains(then, domain, &mut changes),
                None => whole(ChangeKind::Added, domain, &mut changes),
            }
        }
        for domain in before.iter().filter(|domain| !now.contains_key(domain.name)) {
            whole(ChangeKind::Removed, domain, &mut changes);
        }
        Self { changes, ..Self::default() }
    }

    /// Returns the domains whose requests probably have no limit any more: rules of the domain applied to requests, and
    /// none of the new rules would apply to them. The usual cause is a key that was renamed in the file, and not in the
    /// program that describes the requests. With the feature `tracing`, each one is logged as a warning. See also
    /// [`RulesBuilder::without_rule`](crate::RulesBuilder::without_rule).
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Config, Descriptor, Rules};
    ///
    /// let text = |key| format!("{{ domain: shop, descriptors: [ {{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: 100 }} }} ] }}");
    /// let rules = Rules::from_yaml(&text("user"))?;
    /// assert!(rules.check("shop", &[Descriptor::new(&[("user", "alice")])]).is_allowed());
    /// let report = rules.replace([Config::from_yaml("limits.yaml", &text("user_id"))?])?;
    /// assert_eq!(report.lost().collect::<Vec<_>>(), ["shop"]);
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    pub fn lost(&self) -> impl Iterator<Item = &str> {
        self.lost.iter().map(|domain| &**domain)
    }

    /// Returns the warnings about the rules that the load put in force, as [`Rules::warnings`](crate::Rules::warnings) does.
    /// Empty for [`LoadReport::between_domains`].
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Returns all changes, domain by domain. Additions and changes come first, in the order of the files, and then the
    /// removals.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the changes of one kind.
    pub fn of_kind(&self, kind: ChangeKind) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.kind == kind)
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Change {
    fn new(kind: ChangeKind, domain: &str, rule: Option<&Rule>, differences: Vec<Difference>) -> Self {
        let summary = rule.filter(|_| kind != ChangeKind::Changed).map(summary).unwrap_or_default();
        let name = rule.map(|rule| (rule.name.as_ref().into(), rule.is_named));
        let rule = rule.map(|rule| rule.identity.clone());
        Self { kind, domain: domain.into(), rule, name, summary, differences }
    }

    /// Returns the kind of the change.
    #[must_use]
    pub const fn kind(&self) -> ChangeKind {
        self.kind
    }

    /// Returns the domain.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the rule's path, which is its [identity](Rule::identity). Returns `None` if the domain itself was added,
    /// changed or removed.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// Returns the rule's name, if the file names the rule. Several rules can have the same name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_ref().filter(|(_, is_given)| *is_given).map(|(name, _)| &**name)
    }

    /// Returns the settings that changed. Empty for an added or a removed rule.
    #[must_use]
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }
}

impl Difference {
    /// Returns the name of the setting, such as `limit` or `shadow`.
    #[must_use]
    pub const fn what(&self) -> &'static str {
        self.what
    }

    /// Returns the previous value.
    #[must_use]
    pub fn before(&self) -> &str {
        &self.before
    }

    /// Returns the new value.
    #[must_use]
    pub fn after(&self) -> &str {
        &self.after
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing has changed");
        }
        let [added, changed, removed] = [ChangeKind::Added, ChangeKind::Changed, ChangeKind::Removed]
            .map(|kind| self.of_kind(kind).count());
        write!(f, "{added} added, {changed} changed, {removed} removed")?;
        for domain in &self.lost {
            write!(f, "\n  warning: no rule is left that the requests of domain {domain:?} matched")?;
        }
        self.changes.iter().try_for_each(|change| write!(f, "\n  {change}"))?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\n  warning: {warning}"))
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        })
    }
}

impl fmt::Display for Change {
    /// Writes `changed rule "shop.user" (shop|user): limit 100/d to 200/d`: the rule's name, which metrics and header fields
    /// have too, and its identity.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.rule, &self.name) {
            (Some(rule), Some((name, _))) => {
                write!(f, "{} rule {name:?} ({})", self.kind, rule.escape_debug())?;
            }
            (Some(rule), None) => write!(f, "{} rule {rule:?}", self.kind)?,
            (None, _) => write!(f, "{} domain {:?}", self.kind, self.domain)?,
        }
        if !self.summary.is_empty() {
            write!(f, ": {}", self.summary)?;
        }
        for (index, difference) in self.differences.iter().enumerate() {
            write!(f, "{} {difference}", if index == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    /// Writes `limit 100/d to 200/d`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} to {}", self.what, self.before, self.after)
    }
}

/// A domain, for a comparison.
struct Listed<'a> {
    name: &'a str,
    charging: Charging,
    shadow: bool,
    rules: Vec<&'a Rule>,
}

impl<'a> Listed<'a> {
    fn of_active(domain: &'a ActiveDomain) -> Self {
        let rules = domain.rules.iter().map(|active| &*active.rule).collect();
        Self { name: &domain.name, charging: domain.charging, shadow: domain.shadow, rules }
    }

    fn of_domain(domain: &'a Domain) -> Self {
        let rules = domain.rules().iter().collect();
        Self { name: domain.name(), charging: domain.charging(), shadow: domain.is_shadow(), rules }
    }

    fn by_identity(&self) -> HashMap<&'a str, &'a Rule> {
        self.rules.iter().map(|rule| (&*rule.identity, *rule)).collect()
    }
}

/// Lists an added or removed domain, and each of its rules.
fn whole(kind: ChangeKind, domain: &Listed<'_>, changes: &mut Vec<Change>) {
    changes.push(Change::new(kind, domain.name, None, Vec::new()));
    let rules = domain.rules.iter();
    changes.extend(rules.map(|rule| Change::new(kind, domain.name, Some(rule), Vec::new())));
}

fn compare_domains(then: &Listed<'_>, now: &Listed<'_>, changes: &mut Vec<Change>) {
    let mut change = |kind, rule, differences| changes.push(Change::new(kind, now.name, rule, differences));
    let of_domain = [
        ("charging", then.charging.to_string(), now.charging.to_string()),
        ("shadow", then.shadow.to_string(), now.shadow.to_string()),
    ];
    let of_domain: Vec<_> = of_domain.into_iter().filter_map(difference).collect();
    if !of_domain.is_empty() {
        change(ChangeKind::Changed, None, of_domain);
    }
    let earlier = then.by_identity();
    for rule in &now.rules {
        match earlier.get(&*rule.identity) {
            None => change(ChangeKind::Added, Some(rule), Vec::new()),
            Some(before) => {
                let differences = compare(before, rule);
                if !differences.is_empty() {
                    change(ChangeKind::Changed, Some(rule), differences);
                }
            }
        }
    }
    let stay = now.by_identity();
    let gone = then.rules.iter().filter(|rule| !stay.contains_key(&*rule.identity));
    gone.for_each(|rule| change(ChangeKind::Removed, Some(rule), Vec::new()));
}

fn difference((what, before, after): (&'static str, String, String)) -> Option<Difference> {
    (before != after).then_some(Difference { what, before, after })
}

fn compare(before: &Rule, after: &Rule) -> Vec<Difference> {
    // The position of a rule is not a setting.
    let mut same = before.clone();
    same.line = after.line;
    if same == *after {
        return Vec::new();
    }
    let each = before.settings().into_iter().zip(after.settings());
    let each = each.map(|((what, before), (_, after))| (what, before.to_string(), after.to_string()));
    let mut differences: Vec<Difference> = each.filter_map(difference).collect();
    if differences.is_empty() {
        // The difference is in a part of a setting that its text does not show.
        let (before, after) = (format!("{before:?}"), format!("{after:?}"));
        differences.push(Difference { what: "settings", before, after });
    }
    differences
}

/// Writes `10/s burst 30, gcra`.
fn summary(rule: &Rule) -> String {
    match &rule.limit {
        Amount::Limited { limit, .. } => format!("{}, {}", rule.limit, limit.kind().name()),
        Amount::Unlimited | Amount::Blocked { .. } | Amount::InProgress { .. } => rule.limit.to_string(),
    }
}

impl ActiveDomain {
    /// Whether requests matched rules of this domain, and the same requests match none of the next one.
    pub(super) fn loses_requests_in(&self, next: &Self) -> bool {
        let mut matched = self.rules.iter().filter(|active| active.has_matched()).peekable();
        matched.peek().is_some() && matched.all(|active| !next.still_matches(&active.rule))
    }

    /// Whether a request to which a rule applied matches something here, as far as the path of the rule shows it.
    fn still_matches(&self, rule: &Rule) -> bool {
        let path = rule.path();
        let samples = path.iter().map(|(key, value)| {
            let value = value.as_deref().unwrap_or_default();
            let address = value.parse::<IpNet>().map(|range| range.addr().to_string());
            (&**key, address.unwrap_or_else(|_| value.to_owned()))
        });
        let samples: Vec<(&str, String)> = samples.collect();
        let entries: Vec<(&str, &str)> = samples.iter().map(|(key, value)| (*key, &**value)).collect();
        self.tree().matches(&entries)
    }
}
