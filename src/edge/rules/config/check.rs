//! A file's nodes to its rules. All that is wrong is told, and the file is refused as a whole.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::Config;
use super::identity::{Manner, Way, Which};
use super::keys::{Context, Fields, Path, Room};
use super::limit::Draft;
use super::node::{Kind, Node, Place, SMALL, quoted};
use super::problem::{ConfigError, Problems};
use super::settings::Settings;
use crate::edge::rules::Rule;
use crate::edge::rules::tree::Pattern;

/// Levels of descriptors: what a rule's 32 bits can say of each.
const MAX_LEVELS: usize = 32;
/// Bytes of all identities and names, for each byte of the file: deep rules with long values repeat those of the levels above.
const MAX_REPEATED: usize = 4;

/// One descriptor of the file.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) key: Box<str>,
    pub(crate) value: Option<Box<str>>,
    pub(crate) at: Place,
    /// Its rules among the file's.
    pub(crate) own: Range<usize>,
    pub(crate) tiers: Vec<Tier>,
    pub(crate) children: Vec<Branch>,
}

/// Other limits for some.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) name: Box<str>,
    pub(crate) members: Vec<Box<str>>,
    pub(crate) rules: Range<usize>,
}

impl Branch {
    pub(crate) fn is_wildcard(&self) -> bool {
        self.key.contains('*') || self.value.as_ref().is_some_and(|value| value.contains('*'))
    }

    /// What no other of its level has.
    fn pair(&self) -> (&str, Option<&str>) {
        (&self.key, self.value.as_deref())
    }

    /// As a message calls it.
    pub(super) fn shown(&self) -> String {
        match &self.value {
            Some(value) => format!("key {}, value {}", quoted(&self.key), quoted(value)),
            None => format!("key {} without a value", quoted(&self.key)),
        }
    }
}

/// Reads what the nodes of a text of so many bytes say.
pub(super) fn check(file: &str, root: Node, size: usize, problems: Problems) -> Result<Config, ConfigError> {
    let context = Context { problems, warnings: Problems::of(file), extended: false };
    let mut checker = Checker {
        context,
        settings: Settings::default(),
        domain: Box::default(),
        rules: Vec::new(),
        texts: size.saturating_mul(MAX_REPEATED).saturating_add(SMALL),
    };
    let read = checker.root(&root);
    // What is made of it takes as much again.
    drop(root);
    let Checker { context: Context { problems, mut warnings, .. }, settings, rules, .. } = checker;
    let Some((domain, domain_at, branches)) = read.filter(|_| problems.is_empty()) else {
        return Err(problems.into_error());
    };
    super::warnings::look(&branches, &rules, &mut warnings);
    Ok(Config {
        file: file.into(),
        domain,
        domain_at,
        charging: settings.charging,
        shadow: settings.shadow,
        branches,
        // Of the text, which is not known here.
        hash: 0,
        rules,
        warnings: warnings.into_sorted(),
    })
}

#[derive(Debug)]
struct Checker {
    context: Context,
    settings: Settings,
    domain: Box<str>,
    rules: Vec<Rule>,
    /// The bytes that identities and names may still take.
    texts: usize,
}

/// What a descriptor says beside its limits.
#[derive(Copy, Clone, Debug)]
struct Flags {
    shadow: bool,
    quota_mode: bool,
    detailed: bool,
    line: usize,
}

impl Checker {
    fn root(&mut self, root: &Node) -> Option<(Box<str>, Place, Vec<Branch>)> {
        let path = Path::Root;
        if matches!(root.kind, Kind::Null) {
            let remedy = "write a domain and its descriptors";
            self.context.problems.add(root.at, path, "the file says nothing", remedy);
            return None;
        }
        // Its mere presence asks for our own keys, wherever in the map it stands.
        if let Kind::Map(entries) = &root.kind {
            self.context.extended = entries.iter().any(|(key, _)| key.as_key() == Some("tollgate"));
        }
        let fields = self.context.fields(root, Room::Root, &path)?;
        if let Some(node) = fields.get("tollgate") {
            self.settings = self.context.settings(node, &path.key("tollgate"));
        }
        let at = fields.get("domain").map_or(root.at, |node| node.at);
        let domain = fields.get("domain").and_then(|node| self.context.text(node, &path.key("domain")));
        match (domain, fields.get("domain")) {
            (Some(""), _) | (None, None) => {
                let remedy = "write the name that requests come with, as `domain: edge`";
                self.context.problems.add(at, path.key("domain"), "there is no domain", remedy);
            }
            _ => {}
        }
        let domain = domain.unwrap_or_default();
        let mut way = Way::new(domain);
        self.domain = domain.into();
        let branches = match fields.get("descriptors") {
            Some(node) => self.descriptors(node, &path.key("descriptors"), &mut way),
            None => Vec::new(),
        };
        if let Some(node) = fields.get("tollgate") {
            self.shares_nothing(node, &path.key("tollgate"));
        }
        Some((self.domain.clone(), at, branches))
    }

    /// Says so if the file says how limits are shared, and none is.
    fn shares_nothing(&mut self, node: &Node, path: &Path<'_>) {
        if self.context.problems.is_empty() && !self.rules.iter().any(Rule::is_shared) {
            self.context.unshared_file(node, path);
        }
    }

    fn descriptors(&mut self, node: &Node, path: &Path<'_>, way: &mut Way) -> Vec<Branch> {
        let Some(items) = self.context.list(node, path) else { return Vec::new() };
        let mut branches = Vec::with_capacity(items.len());
        // Of each branch its place among the items.
        let mut places: Vec<(u32, u32)> = Vec::with_capacity(items.len());
        if way.levels() == MAX_LEVELS && !items.is_empty() {
            let message = format!("descriptors lie more than {MAX_LEVELS} levels deep");
            self.context.problems.add(node.at, path, message, "requests with so many entries are not known");
            return branches;
        }
        for (index, item) in items.iter().enumerate() {
            let path = path.index(index);
            let Some(branch) = self.descriptor(item, &path, way) else { continue };
            // A file has fewer bytes than there are such numbers.
            let place = |at| u32::try_from(at).unwrap_or(u32::MAX);
            places.push((place(branches.len()), place(index)));
            branches.push(branch);
        }
        self.twice(&branches, places, path);
        branches
    }

    /// Tells of branches of one level that have the same key and value.
    fn twice(&mut self, branches: &[Branch], mut places: Vec<(u32, u32)>, path: &Path<'_>) {
        let branch = |&(place, _): &(u32, u32)| &branches[place as usize];
        places.sort_by(|one, other| branch(one).pair().cmp(&branch(other).pair()));
        for (one, other) in places.iter().zip(places.iter().skip(1)) {
            let (first, second) = (branch(one), branch(other));
            if first.pair() == second.pair() {
                let message = format!("{} is here twice", second.shown());
                let mut remedy = format!("remove it, or the one in line {}", first.at.line);
                if self.context.extended {
                    remedy += "; for two limits write rate_limits";
                }
                self.context.problems.add(second.at, path.index(other.1 as usize), message, remedy);
            }
        }
    }

    fn descriptor(&mut self, node: &Node, path: &Path<'_>, way: &mut Way) -> Option<Branch> {
        let fields = self.context.fields(node, Room::Descriptor, path)?;
        let key = fields.get("key").and_then(|node| self.context.text(node, &path.key("key")));
        if key.is_none_or(str::is_empty) && fields.get("key").is_none_or(|node| node.as_key().is_some()) {
            let at = fields.get("key").unwrap_or(node).at;
            let remedy = "write the key of the request's entry, as `key: remote_address`";
            self.context.problems.add(at, path.key("key"), "there is no key", remedy);
        }
        let key = key.unwrap_or_default();
        let value = fields.get("value").and_then(|node| self.context.text(node, &path.key("value")));
        let value = value.filter(|value| !value.is_empty());
        let wildcard = key.contains('*') || value.is_some_and(|value| value.contains('*'));
        let share_threshold = self.flag(&fields, path, "share_threshold");
        if share_threshold && !wildcard {
            let at = fields.get("share_threshold").unwrap_or(node).at;
            let remedy = "remove it, or write a value with a `*`";
            let message = "only values that match a `*` can share a counter";
            self.context.problems.add(at, path.key("share_threshold"), message, remedy);
        }
        let value_to_metric = self.flag(&fields, path, "value_to_metric");
        let flags = Flags {
            shadow: self.flag(&fields, path, "shadow_mode"),
            quota_mode: self.flag(&fields, path, "quota_mode"),
            detailed: self.flag(&fields, path, "detailed_metric"),
            line: node.at.line as usize,
        };
        way.push(key, value, Manner { wildcard, share_threshold, value_to_metric });
        if let Some(node) = fields.get("metadata").filter(|node| !matches!(node.kind, Kind::Map(_))) {
            let message = format!("{} is no map", node.shown());
            self.context.problems.add(node.at, path.key("metadata"), message, "write a map, or remove it");
        }
        let own = self.limits(&fields, path, way, None, flags);
        let tiers = match fields.get("tiers") {
            Some(node) => {
                let many = value.is_none_or(|value| value.contains('*'));
                self.tiers(node, &path.key("tiers"), way, many.then(|| value.and_then(Pattern::new)), flags)
            }
            None => Vec::new(),
        };
        if fields.entry("rate_limit").is_some_and(|node| matches!(node.kind, Kind::Null)) {
            let at = fields.entry("rate_limit").unwrap_or(node).at;
            let remedy = "indent what it says deeper than it, or remove it";
            self.context.warnings.add(
                at,
                path.key("rate_limit"),
                "this says nothing, so there is no limit",
                remedy,
            );
        }
        let children = match fields.get("descriptors") {
            Some(node) => self.descriptors(node, &path.key("descriptors"), way),
            None => Vec::new(),
        };
        way.pop();
        Some(Branch { key: key.into(), value: value.map(Box::from), at: node.at, own, tiers, children })
    }

    fn flag(&mut self, fields: &Fields<'_>, path: &Path<'_>, key: &str) -> bool {
        fields.get(key).and_then(|node| self.context.yes(node, &path.key(key))).unwrap_or(false)
    }

    /// `rate_limit` or `rate_limits`, of a descriptor or of a tier of it: its rules among all.
    fn limits(
        &mut self,
        fields: &Fields<'_>,
        path: &Path<'_>,
        way: &Way,
        tier: Option<&str>,
        flags: Flags,
    ) -> Range<usize> {
        let start = self.rules.len();
        let sole = fields.get("rate_limit");
        if let Some(draft) =
            sole.and_then(|node| self.context.limit(node, &path.key("rate_limit"), &self.settings))
        {
            self.rule(draft, way, tier, None, flags);
        }
        if let Some(node) = fields.get("rate_limits") {
            let path = path.key("rate_limits");
            if fields.get("rate_limit").is_some() {
                let message = "rate_limit and rate_limits cannot stand together";
                self.context.problems.add(node.at, path, message, "move the one limit into the list");
            }
            let items = self.context.list(node, &path).unwrap_or_default();
            let mut seen: HashSet<Which> = HashSet::new();
            for (index, item) in items.iter().enumerate() {
                let path = path.index(index);
                let Some(draft) = self.context.limit(item, &path, &self.settings) else { continue };
                let which = draft.which();
                if !seen.insert(which.clone()) {
                    let (message, remedy) = match &which {
                        Which::Name(name) => (
                            format!("two limits here are named {}", quoted(name)),
                            "name one of them otherwise",
                        ),
                        Which::Unit(unit) => (
                            format!("two limits here are of the same unit, {unit}, and cannot be told apart"),
                            "give one of them a name",
                        ),
                    };
                    self.context.problems.add(item.at, path, message, remedy);
                }
                self.rule(draft, way, tier, Some(&which), flags);
            }
        }
        start..self.rules.len()
    }

    fn rule(&mut self, draft: Draft, way: &Way, tier: Option<&str>, which: Option<&Which>, flags: Flags) {
        // Nothing is made of what is refused anyway.
        if self.texts == 0 {
            return;
        }
        let identity = way.identity(tier, which);
        let metric = way.metric(flags.detailed, tier, which);
        let is_named = draft.name.is_some();
        let name = draft.name.unwrap_or_else(|| metric.name(&self.domain, &[]).into());
        self.texts = self.texts.saturating_sub(identity.len() + name.len());
        if self.texts == 0 {
            let at = Place::new(flags.line, 1);
            let message = "the rules up to here repeat too many long keys and values";
            let remedy = "write shorter ones, or fewer descriptors below them";
            self.context.problems.add(at, "", message, remedy);
            return;
        }
        self.rules.push(Rule {
            identity,
            name,
            is_named,
            limit: draft.limit,
            soft: draft.soft,
            shadow: flags.shadow,
            quota_mode: flags.quota_mode,
            enforced_per_million: draft.enforced,
            replaces: draft.replaces,
            counted_by: way.counted_by(),
            counted_by_key: way.counted_by_key(),
            metric,
            line: draft.line,
        });
    }

    /// `tiers`; of an entry for these values, or for one only.
    fn tiers(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        way: &Way,
        values: Option<Option<Pattern>>,
        flags: Flags,
    ) -> Vec<Tier> {
        let Kind::Map(entries) = &node.kind else {
            let message = format!("{} is no map", node.shown());
            self.context.problems.add(
                node.at,
                path,
                message,
                "write a map from tiers' names to their limits",
            );
            return Vec::new();
        };
        let mut tiers = Vec::with_capacity(entries.len());
        let mut whose: HashMap<&str, &str> = HashMap::new();
        for (key, value) in entries {
            let Some(name) = self.context.text(key, path).filter(|name| !name.is_empty()) else {
                self.context.problems.add(
                    key.at,
                    path,
                    "a tier has no name",
                    "write its name before the colon",
                );
                continue;
            };
            let path = path.key(name);
            let Some(fields) = self.context.fields(value, Room::Tier, &path) else { continue };
            let rules = self.limits(&fields, &path, way, Some(name), flags);
            if fields.get("rate_limit").is_none() && fields.get("rate_limits").is_none() {
                let remedy = "write rate_limit or rate_limits; for no limit, rate_limit: { unlimited: true }";
                self.context.problems.add(key.at, path, "this tier has no limit", remedy);
            }
            let mut members = Vec::new();
            if let Some(node) = fields.get("members") {
                let path = path.key("members");
                for (index, item) in self.context.list(node, &path).unwrap_or_default().iter().enumerate() {
                    let path = path.index(index);
                    let Some(member) = self.context.text(item, &path) else { continue };
                    self.member(item, member, &path, values.as_ref());
                    if let Some(other) = whose.insert(member, name) {
                        let message = format!("{} is a member already, of {}", quoted(member), quoted(other));
                        self.context.problems.add(item.at, path, message, "remove it from one of them");
                    }
                    members.push(member.into());
                }
            }
            tiers.push(Tier { name: name.into(), members, rules });
        }
        tiers
    }

    /// Whether a value can be one of this entry's.
    fn member(&mut self, item: &Node, member: &str, path: &Path<'_>, pattern: Option<&Option<Pattern>>) {
        let (message, remedy) = match pattern {
            None => (
                "this entry has one value only".to_owned(),
                "write members where the value is left out or has a `*`",
            ),
            Some(Some(pattern)) if !pattern.matches(member) => (
                format!("{} does not match the entry's value", quoted(member)),
                "remove it, or change the pattern",
            ),
            Some(_) => return,
        };
        self.context.problems.add(item.at, path, message, remedy);
    }
}
