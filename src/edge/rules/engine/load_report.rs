//! What a load has changed.

use std::collections::HashSet;
use std::fmt;

use super::rule_set::{ActiveDomain, RuleSet};
use crate::edge::rules::rule::{Limit, Rule, Store};

/// What a load has changed: the domains and rules that it added, changed and removed. Rules that stay as they were are not in it.
///
/// As a text it has a line for the numbers, and one for each change.
///
/// # Examples
/// ```
/// use tollgate::rules::{ChangeKind, Config, Rules};
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
///   changed rule \"shop|user\": limit 100/d to 200/d
///   added rule \"shop|remote_adress\": 10/s, fixed-window
///   removed rule \"shop|remote_address\": 10/s, fixed-window"
/// );
/// let removed = report.of_kind(ChangeKind::Removed).next().unwrap();
/// assert_eq!((removed.domain(), removed.rule()), ("shop", Some("shop|remote_address")));
/// # Ok::<(), tollgate::rules::RulesError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoadReport {
    changes: Vec<Change>,
}

/// What happened to a domain or a rule in a load.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is there as before, and says something else.
    Changed,
    /// It is gone.
    Removed,
}

/// A domain or a rule that a load has added, changed or removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    kind: ChangeKind,
    domain: Box<str>,
    rule: Option<Box<str>>,
    /// What it limits, if it was added or removed.
    says: String,
    differences: Vec<Difference>,
}

/// One thing that a domain or a rule says otherwise than before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    what: &'static str,
    before: String,
    after: String,
}

impl LoadReport {
    pub(super) fn between(before: &RuleSet, after: &RuleSet) -> Self {
        let mut changes = Vec::new();
        for now in &after.domains {
            match before.domain(&now.name) {
                Some(then) => compare_domains(then, now, &mut changes),
                None => whole(ChangeKind::Added, now, &mut changes),
            }
        }
        for then in before.domains.iter().filter(|then| after.domain(&then.name).is_none()) {
            whole(ChangeKind::Removed, then, &mut changes);
        }
        Self { changes }
    }

    /// All changes: domain by domain those that were added or changed, in the order of the files, then what was removed.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Those of one kind.
    pub fn of_kind(&self, kind: ChangeKind) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.kind == kind)
    }

    /// Whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Change {
    fn new(kind: ChangeKind, domain: &str, rule: Option<&Rule>, differences: Vec<Difference>) -> Self {
        let says = rule.filter(|_| kind != ChangeKind::Changed).map(says).unwrap_or_default();
        Self { kind, domain: domain.into(), rule: rule.map(|rule| rule.identity.clone()), says, differences }
    }

    /// What happened.
    #[must_use]
    pub const fn kind(&self) -> ChangeKind {
        self.kind
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The rule's path, which is its [identity](Rule::identity); `None` if it is the domain itself that was added, changed or removed.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// What it says otherwise than before; nothing of what was added or removed.
    #[must_use]
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }
}

impl Difference {
    /// What it is, as `limit` or `shadow`.
    #[must_use]
    pub const fn what(&self) -> &'static str {
        self.what
    }

    /// What it was.
    #[must_use]
    pub fn before(&self) -> &str {
        &self.before
    }

    /// What it is now.
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
        self.changes.iter().try_for_each(|change| write!(f, "\n  {change}"))
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
    /// `changed rule "shop|user": limit 100/d to 200/d`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            Some(rule) => write!(f, "{} rule {rule:?}", self.kind)?,
            None => write!(f, "{} domain {:?}", self.kind, self.domain)?,
        }
        if !self.says.is_empty() {
            write!(f, ": {}", self.says)?;
        }
        for (index, difference) in self.differences.iter().enumerate() {
            write!(f, "{} {difference}", if index == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    /// `limit 100/d to 200/d`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} to {}", self.what, self.before, self.after)
    }
}

/// A domain that is new or gone, and each of its rules.
fn whole(kind: ChangeKind, domain: &ActiveDomain, changes: &mut Vec<Change>) {
    changes.push(Change::new(kind, &domain.name, None, Vec::new()));
    let rules = domain.rules.iter().map(|active| &active.rule);
    changes.extend(rules.map(|rule| Change::new(kind, &domain.name, Some(rule), Vec::new())));
}

fn compare_domains(then: &ActiveDomain, now: &ActiveDomain, changes: &mut Vec<Change>) {
    let mut change = |kind, rule, differences| changes.push(Change::new(kind, &now.name, rule, differences));
    let of_domain = [
        ("charging", then.charging.to_string(), now.charging.to_string()),
        ("shadow", then.shadow.to_string(), now.shadow.to_string()),
    ];
    let of_domain: Vec<_> = of_domain.into_iter().filter_map(difference).collect();
    if !of_domain.is_empty() {
        change(ChangeKind::Changed, None, of_domain);
    }
    for active in &now.rules {
        let rule = &active.rule;
        match then.by_identity(&rule.identity) {
            None => change(ChangeKind::Added, Some(rule), Vec::new()),
            Some(before) => {
                let differences = compare(&before.rule, rule);
                if !differences.is_empty() {
                    change(ChangeKind::Changed, Some(rule), differences);
                }
            }
        }
    }
    let stay: HashSet<&str> = now.rules.iter().map(|active| &*active.rule.identity).collect();
    let gone = then.rules.iter().filter(|active| !stay.contains(&*active.rule.identity));
    gone.for_each(|active| change(ChangeKind::Removed, Some(&active.rule), Vec::new()));
}

fn difference((what, before, after): (&'static str, String, String)) -> Option<Difference> {
    (before != after).then_some(Difference { what, before, after })
}

type Says = fn(&Rule) -> String;

/// What a rule says, without its keys and values.
const SAYS: [(&str, Says); 11] = [
    ("limit", limit),
    ("algorithm", algorithm),
    ("store", store),
    ("soft", |rule| if rule.soft == u64::MAX { "none".to_owned() } else { rule.soft.to_string() }),
    ("shadow", |rule| rule.shadow.to_string()),
    ("quota_mode", |rule| rule.quota_mode.to_string()),
    ("enforced per million", |rule| rule.enforced_per_million.to_string()),
    ("replaces", |rule| format!("{:?}", rule.replaces)),
    ("name", |rule| format!("{:?}", rule.name)),
    ("counted by", |rule| format!("{:?}", counted_by(rule))),
    ("metric", |rule| format!("{:?} {:b}", rule.metric.levels, rule.metric.with_value)),
];

fn compare(before: &Rule, after: &Rule) -> Vec<Difference> {
    // Where it stands is nothing that it says.
    if (Rule { line: after.line, ..before.clone() }) == *after {
        return Vec::new();
    }
    let each = SAYS.iter().map(|(what, says)| (*what, says(before), says(after)));
    let mut differences: Vec<Difference> = each.filter_map(difference).collect();
    if differences.is_empty() {
        // A setting that is not listed above.
        let (before, after) = (format!("{before:?}"), format!("{after:?}"));
        differences.push(Difference { what: "settings", before, after });
    }
    differences
}

/// `10/s burst 30, gcra`
fn says(rule: &Rule) -> String {
    match &rule.limit {
        Limit::Quota { quota, algorithm, .. } => format!("{quota}, {algorithm}"),
        Limit::Unlimited | Limit::Blocked { .. } => limit(rule),
    }
}

const NONE: &str = "none";

fn limit(rule: &Rule) -> String {
    match &rule.limit {
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::Blocked { .. } => "refuses all".to_owned(),
        Limit::Quota { quota, .. } => quota.to_string(),
    }
}

fn algorithm(rule: &Rule) -> String {
    match &rule.limit {
        Limit::Quota { algorithm, .. } => algorithm.to_string(),
        Limit::Unlimited | Limit::Blocked { .. } => NONE.to_owned(),
    }
}

fn store(rule: &Rule) -> String {
    let Limit::Quota { store, .. } = &rule.limit else { return NONE.to_owned() };
    match store {
        None => "default".to_owned(),
        Some(named @ (Store::Compact(memory) | Store::Sketch(memory))) => match memory.bytes() {
            Some(bytes) => format!("{named} of {bytes} bytes"),
            None => named.to_string(),
        },
        Some(named @ Store::Keyed { max_keys: Some(most) }) => format!("{named} of {most} keys"),
        Some(named @ Store::Keyed { max_keys: None }) => named.to_string(),
        Some(named @ Store::Redis(shared)) => format!(
            "{named} (mode {}, on_failure {}, processes {}, timeout {:?})",
            shared.mode, shared.on_failure, shared.processes, shared.timeout
        ),
    }
}

/// The entries that count apart, from 1.
fn counted_by(rule: &Rule) -> Vec<u32> {
    (0..u32::BITS).filter(|bit| rule.counted_by >> bit & 1 == 1).map(|bit| bit + 1).collect()
}
