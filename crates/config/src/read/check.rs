//! Converts a file's nodes to rules. Reports all problems, and rejects the file if there are any.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Config;
use super::checker::{Checker, FileSettings};
use super::classes::ClassDraft;
use super::foreign::foreign;
use super::identity::{LevelFlags, LimitLabel, RulePath};
use super::keys::{FieldPath, MapFields, MapKind};
use super::limit::{Draft, Labelled};
use super::never;
use super::node::{FileNode, SMALL, Value, quoted};
use super::problem::{ConfigError, Problems};
use super::ranges::MatchedValues;
use crate::matching::{Branch, BranchRules, Pattern, Position, Tier};
use crate::rule::{Metadata, Rule, RuleClass};

/// The maximum depth of descriptors: a rule has 32 bits, one for each level.
const MAX_LEVELS: usize = 32;
/// The maximum size of all identities and names, in bytes for each byte of the file. Deep rules with long values repeat
/// the values of the levels above.
const MAX_REPEATED: usize = 4;

impl Branch {
    /// The name of this limit in a message.
    pub(super) fn shown(&self) -> String {
        match (&self.value, &*self.ranges) {
            (Some(value), _) => format!("key {}, value {}", quoted(&self.key), quoted(value)),
            (None, [range, ..]) => format!("key {}, range {range}", quoted(&self.key)),
            (None, []) => format!("key {} without a value", quoted(&self.key)),
        }
    }
}

/// Checks the nodes of a text.
pub(super) fn check(
    file: &str,
    root: FileNode,
    text: &str,
    problems: Problems,
) -> Result<Config, ConfigError> {
    let mut context = Checker {
        problems,
        warnings: Problems::of(file),
        extended: false,
        settings: FileSettings::DEFAULT,
        domain: Box::default(),
        rules: Vec::new(),
        texts: text.len().saturating_mul(MAX_REPEATED).saturating_add(SMALL),
    };
    let read = context.root(&root);
    // The result takes the same amount of memory again.
    drop(root);
    let Checker { problems, mut warnings, settings, domain, rules, .. } = context;
    let Some((domain_at, branches)) = read.filter(|_| problems.is_empty()) else {
        return Err(problems.into_error(|problem| never::fill_in(problem, text)));
    };
    super::warnings::find((&domain, domain_at), &branches, &rules, &mut warnings);
    Ok(Config {
        file: file.into(),
        domain,
        domain_at,
        charging: settings.charging,
        shadow: settings.shadow,
        branches,
        hash: super::hash(text.as_bytes()),
        rules,
        warnings: warnings.into_sorted(),
    })
}

/// The descriptor or tier whose limits are being read, with its other settings.
#[derive(Copy, Clone, Debug)]
pub(super) struct RulePlace<'p> {
    pub(super) tier: Option<&'p str>,
    pub(super) values: &'p MatchedValues,
    /// Whether all values share one counter.
    pub(super) shares: bool,
    /// The leading bits that count, if the rule is of `prefixes`.
    pub(super) prefix: Option<u8>,
    pub(super) shadow: bool,
    pub(super) quota_mode: bool,
    pub(super) detailed: bool,
    pub(super) metadata: Option<&'p Arc<Metadata>>,
    pub(super) line: usize,
}

impl Checker {
    fn root(&mut self, root: &FileNode) -> Option<(Position, Vec<Branch>)> {
        let path = FieldPath::Root;
        if matches!(root.kind, Value::Null) {
            let remedy = "write a domain and its descriptors";
            self.problems.add(root.at, path, "the file is empty", remedy);
            return None;
        }
        if let Some(bad) = foreign(root) {
            self.problems.add(root.at, path, bad.message, bad.remedy);
            return None;
        }
        // The key `tollgate` enables the extensions, even with an empty map and at any place in the top-level map.
        if let Value::Map(entries) = &root.kind {
            self.extended = entries.iter().any(|(key, _)| key.as_key() == Some("tollgate"));
        }
        let fields = self.fields(root, MapKind::ROOT, &path)?;
        if let Some(node) = fields.get("tollgate") {
            self.settings = self.settings(node, &path.key("tollgate"));
        }
        let domain = self.read(&fields, "domain", FileNode::text);
        if domain.map_or(!fields.has("domain"), str::is_empty) {
            let remedy = "write the domain of the requests that these rules limit, such as `domain: edge`";
            self.wrong(&fields, "domain", "the domain is missing", remedy);
        }
        let domain = domain.unwrap_or_default();
        self.domain = domain.into();
        let mut way = RulePath::new(domain);
        let branches = self.descriptors(&fields, &mut way);
        if let Some(node) = fields.get("tollgate") {
            // The file sets how limits are shared, but no limit is shared.
            if self.problems.is_empty() && !self.rules.iter().any(Rule::is_shared) {
                self.reject_unused_shared_settings(node, &path.key("tollgate"));
            }
        }
        Some((fields.at("domain"), branches))
    }

    /// Reads the `descriptors` of the file or of a descriptor. Returns their branches.
    fn descriptors(&mut self, fields: &MapFields<'_, '_>, way: &mut RulePath) -> Vec<Branch> {
        let items = self.read(fields, "descriptors", FileNode::list).unwrap_or_default();
        let path = &fields.path.key("descriptors");
        // An item without a key has no branch. A branch takes more memory than such an item may.
        let most = items.iter().filter(|item| item.has_key("key")).count();
        let mut branches = Vec::with_capacity(most);
        // For each branch, its index among the items.
        let mut places: Vec<(u32, u32)> = Vec::with_capacity(most);
        if way.levels() == MAX_LEVELS && !items.is_empty() {
            let message = format!("descriptors may be at most {MAX_LEVELS} levels deep");
            self.wrong(fields, "descriptors", message, "use fewer levels");
            return branches;
        }
        for (index, item) in items.iter().enumerate() {
            let path = path.index(index);
            // The size limit of files keeps the number of rules below the maximum.
            let place = |at| u32::try_from(at).unwrap_or(u32::MAX);
            for branch in self.descriptor(item, &path, way) {
                places.push((place(branches.len()), place(index)));
                branches.push(branch);
            }
        }
        self.report_duplicates(&branches, places, path);
        self.report_same_ranges(&branches, path);
        self.report_same_addresses(&branches, path);
        branches
    }

    /// Reports branches of one level with the same key and value.
    fn report_duplicates(&mut self, branches: &[Branch], mut places: Vec<(u32, u32)>, path: &FieldPath<'_>) {
        let branch = |&(place, _): &(u32, u32)| &branches[place as usize];
        places.sort_by(|one, other| branch(one).parts().cmp(&branch(other).parts()));
        for (one, other) in places.iter().zip(places.iter().skip(1)) {
            let (first, second) = (branch(one), branch(other));
            if first.parts() == second.parts() && first.ranges.is_empty() {
                let message = format!("the descriptor with {} occurs twice", second.shown());
                let mut remedy = format!("remove it here or in line {}", first.at.line);
                if self.extended {
                    remedy += "; to set two limits, write rate_limits";
                }
                self.problems.add(second.at, path.index(other.1 as usize), message, remedy);
            }
        }
    }

    /// Reads a descriptor. Returns its branch, or one for each of its classes.
    fn descriptor(&mut self, node: &FileNode, path: &FieldPath<'_>, way: &mut RulePath) -> Vec<Branch> {
        let Some(fields) = self.fields(node, MapKind::DESCRIPTOR, path) else { return Vec::new() };
        let key = self.read(&fields, "key", FileNode::text);
        if key.is_none_or(str::is_empty) && fields.get("key").is_none_or(|node| node.as_key().is_some()) {
            let remedy = "write the key of the request's entry, such as `key: remote_address`";
            self.wrong(&fields, "key", "the key is missing", remedy);
        }
        let value = self.read(&fields, "value", FileNode::only_text).filter(|value| !value.is_empty());
        let wildcard =
            key.is_some_and(|key| key.contains('*')) || value.is_some_and(|value| value.contains('*'));
        let ranges = self.own_ranges(&fields, key.unwrap_or_default(), value);
        let share_threshold = self.share_threshold(&fields, wildcard || !ranges.is_empty());
        let value_to_metric = self.flag(&fields, "value_to_metric");
        let values = match value {
            Some(value) => Pattern::new(value).map_or(MatchedValues::One, MatchedValues::Like),
            None if fields.has("ranges") => MatchedValues::of_ranges(&ranges),
            None => MatchedValues::All,
        };
        let metadata = self.read(&fields, "metadata", |node| {
            node.map("write a map, or remove it").map(|_| Arc::new(node.metadata()))
        });
        let place = RulePlace {
            tier: None,
            values: &values,
            shares: share_threshold,
            prefix: None,
            shadow: self.flag(&fields, "shadow_mode"),
            quota_mode: self.flag(&fields, "quota_mode"),
            detailed: self.flag(&fields, "detailed_metric"),
            metadata: metadata.as_ref(),
            line: node.at.line as usize,
        };
        let classes = self.classes(&fields, key);
        if let (Some(key), false) = (key, classes.is_empty()) {
            return self.class_branches(&fields, (key, classes), way, place);
        }
        let flags = LevelFlags { wildcard, share_threshold, value_to_metric };
        way.push(key.unwrap_or_default(), value, ranges.first(), flags);
        let own = self.limits(&fields, way, place);
        let tiers = self.tiers(&fields, way, place).into();
        if let Some(node) = fields.entry("rate_limit").filter(|node| matches!(node.kind, Value::Null)) {
            let message = "this is empty, so there is no limit";
            let remedy = "indent its lines further than rate_limit, or remove it";
            self.warnings.add(node.at, path.key("rate_limit"), message, remedy);
        }
        let children = self.descriptors(&fields, way);
        way.pop();
        let branch = key.map(|key| {
            let (key, value) = (key.into(), value.map(Box::from));
            Branch { key, value, ranges, at: node.at, own, tiers, children }
        });
        branch.into_iter().collect()
    }

    /// Reads `share_threshold` of a descriptor that can share a counter or not.
    fn share_threshold(&mut self, fields: &MapFields<'_, '_>, can_share: bool) -> bool {
        let share_threshold = self.flag(fields, "share_threshold");
        if share_threshold && !can_share {
            let [with, write] =
                if self.extended { [" or with ranges", ", or write ranges"] } else { [""; 2] };
            let message = format!("only descriptors with a `*`{with} can share a counter");
            let remedy = format!("remove it, or write a `*` in the value or the key{write}");
            self.wrong(fields, "share_threshold", message, remedy);
        }
        share_threshold
    }

    /// Reads the limits of a descriptor with classes. Returns a branch for each class, with its own rules.
    fn class_branches(
        &mut self,
        fields: &MapFields<'_, '_>,
        (key, classes): (&str, Vec<ClassDraft<'_>>),
        way: &mut RulePath,
        place: RulePlace<'_>,
    ) -> Vec<Branch> {
        let limits = self.drafts(fields);
        self.check_shares(fields, &classes, &limits);
        // Like a value that shares its counter with others.
        let flags = LevelFlags { wildcard: false, share_threshold: true, value_to_metric: false };
        way.push(key, None, None, flags);
        let counter = |label: Option<&LimitLabel>| format!("{}#classes", way.identity(None, label)).into();
        limits.iter().for_each(|(draft, _)| self.check_distinct(draft, way, &place, true));
        let counters: Vec<Box<str>> = limits.iter().map(|(_, label)| counter(label.as_ref())).collect();
        way.pop();
        let branches = classes.iter().map(|one| {
            way.push(key, one.value, None, flags);
            let start = self.rules.len();
            for ((draft, label), counter) in limits.iter().zip(&counters) {
                let (name, counter) = (one.name().into(), counter.clone());
                let class = RuleClass { name, share: one.class, counter };
                self.rule(draft.clone(), way, place, label.as_ref(), Some(Box::new(class)));
            }
            way.pop();
            Branch {
                key: key.into(),
                value: one.value.map(Box::from),
                ranges: Box::default(),
                at: one.at,
                own: BranchRules::new(start..self.rules.len(), None),
                tiers: Box::default(),
                children: Vec::new(),
            }
        });
        branches.collect()
    }

    /// Reads `rate_limit`, `rate_limits` or `prefixes` of a descriptor or of a tier.
    fn limits(&mut self, fields: &MapFields<'_, '_>, way: &RulePath, place: RulePlace<'_>) -> BranchRules {
        let start = self.rules.len();
        let drafts = self.drafts(fields);
        self.rules.reserve(drafts.len());
        for (draft, label) in drafts {
            self.check_distinct(&draft, way, &place, false);
            self.rule(draft, way, place, label.as_ref(), None);
        }
        let ipv4_from = self.prefixes(fields, way, place);
        BranchRules::new(start..self.rules.len(), ipv4_from)
    }

    /// Reads `rate_limit` or `rate_limits`.
    fn drafts(&mut self, fields: &MapFields<'_, '_>) -> Vec<Labelled> {
        let path = fields.path.key("rate_limit");
        let only = fields.get("rate_limit").and_then(|node| self.limit(node, &path));
        let mut drafts: Vec<Labelled> = only.map(|draft| (draft, None)).into_iter().collect();
        if fields.has("rate_limit") && fields.has("rate_limits") {
            let message = "rate_limit and rate_limits cannot be used together";
            self.wrong(fields, "rate_limits", message, "move rate_limit into the list");
        }
        let items = self.read(fields, "rate_limits", FileNode::list).unwrap_or_default();
        let path = fields.path.key("rate_limits");
        let mut seen: HashSet<LimitLabel> = HashSet::new();
        // A list that grows takes up to three times its memory.
        drafts.reserve_exact(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = path.index(index);
            let Some(draft) = self.limit(item, &path) else { continue };
            let label = draft.label.clone();
            if !seen.insert(label.clone()) {
                let (same, remedy) = match &label {
                    LimitLabel { kind: "name", text } => {
                        (format!("are named {}", quoted(text)), "give one of them another name")
                    }
                    LimitLabel { text, .. } => (format!("have the same unit, {text}"), "give each a name"),
                };
                self.problems.add(item.at, path, format!("two limits here {same}"), remedy);
            }
            drafts.push((draft, Some(label)));
        }
        drafts
    }

    pub(super) fn rule(
        &mut self,
        draft: Draft,
        way: &RulePath,
        place: RulePlace<'_>,
        label: Option<&LimitLabel>,
        class: Option<Box<RuleClass>>,
    ) {
        // The file is already rejected, so no more rules are created.
        if self.texts == 0 {
            return;
        }
        let Draft { rule, .. } = draft;
        let last = if rule.distinct { way.last_bit() } else { 0 };
        let RulePlace { tier, prefix, shadow, quota_mode, detailed, metadata, line, .. } = place;
        if quota_mode && rule.limit.blocks_on_server() {
            let message = "quota_mode cannot be used with a block and store: redis: the server would block the key although \
                           another limit admits the request";
            let remedy = "remove quota_mode or the block, or write store: keyed";
            self.problems.add(Position::new(rule.line, 1), "", message, remedy);
        }
        let identity = way.identity(tier, label);
        let metric = way.metric(detailed, tier, label);
        let name: Box<str> = match (rule.is_named, &class) {
            (true, Some(class)) => format!("{}.{}", rule.name, class.name).into(),
            (true, None) => rule.name,
            (false, _) => metric.name(&self.domain, &[]).into(),
        };
        // A few bytes of a file can be many rules of classes.
        let own_bytes = if class.is_some() { size_of::<Rule>() } else { 0 };
        self.texts = self.texts.saturating_sub(identity.len() + name.len() + own_bytes);
        if self.texts == 0 {
            let message = "the names of the rules up to this line are too long in total";
            let remedy = "shorten the keys and values, or write fewer descriptors below them";
            self.problems.add(Position::new(line, 1), "", message, remedy);
            return;
        }
        self.rules.push(Rule {
            identity,
            name,
            shadow,
            quota_mode,
            class,
            counted_by: way.counted_by() & !last,
            counted_by_key: way.counted_by_key(),
            prefix,
            shares_counters: way.shares() || prefix.is_some() || rule.distinct,
            metric,
            metadata: metadata.cloned(),
            ..rule
        });
    }

    /// Reads `tiers`.
    fn tiers(&mut self, fields: &MapFields<'_, '_>, way: &RulePath, place: RulePlace<'_>) -> Vec<Tier> {
        let remedy = "write a map from the names of tiers to their limits";
        let entries = self.read(fields, "tiers", |node| node.map(remedy)).unwrap_or_default();
        let path = fields.path.key("tiers");
        let mut tiers = Vec::with_capacity(entries.len());
        let mut whose: HashMap<&str, &str> = HashMap::new();
        for (key, value) in entries {
            let Some(name) = self.take(key, &path, key.text()).filter(|name| !name.is_empty()) else {
                let remedy = "write the tier's name as its key in the map";
                self.problems.add(key.at, path, "this tier has no name", remedy);
                continue;
            };
            let path = path.key(name);
            let Some(fields) = self.fields(value, MapKind::TIER, &path) else { continue };
            let rules = self.limits(&fields, way, RulePlace { tier: Some(name), ..place });
            if !["rate_limit", "rate_limits", "prefixes"].iter().any(|key| fields.has(key)) {
                let remedy =
                    "write rate_limit or rate_limits; to set no limit, write rate_limit: { unlimited: true }";
                self.problems.add(key.at, path, "this tier has no limit", remedy);
            }
            let items = self.read(&fields, "members", FileNode::list).unwrap_or_default();
            let path = path.key("members");
            let mut members = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                let path = path.index(index);
                let Some(member) = self.take(item, &path, item.text()) else { continue };
                self.take(item, &path, place.values.check_member(member));
                if let Some(other) = whose.insert(member, name) {
                    let message = format!("{} is already a member of {}", quoted(member), quoted(other));
                    self.problems.add(item.at, path, message, "remove it from one of them");
                }
                members.push(member.into());
            }
            let ranges = self.member_ranges(&fields, place.values);
            tiers.push(Tier { name: name.into(), members, ranges, rules });
        }
        tiers
    }
}
