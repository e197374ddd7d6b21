//! The tree of one domain's descriptors.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::Arc;

use ahash::RandomState;
use hashbrown::HashTable;
use ipnet::IpNet;
use tollgate::internals::prefetch;

use super::address::{AddressText, address_of, canonical, pattern_in_lower_case};
use super::affixes::NONE;
use super::branch::keys_of_addresses;
use super::by_address::ByAddress;
use super::node::{Exact, FoundRules, LevelKey, ReadingBranch, TreeLevel, TreeNode};
use super::same::{SHORT, is_same_if_short};
use super::{Branch, Wildcards, is_same};

/// The entries of the file, for finding the entry of a request.
#[derive(Debug)]
pub struct Tree {
    hasher: RandomState,
    /// The keys of all nodes, each once.
    keys: HashSet<Arc<str>, RandomState>,
    pub(super) nodes: Vec<TreeNode>,
    /// The keys of the first level of which all values have the same rules for all tiers, with these rules. A request with one entry often
    /// ends here, without a look at a node.
    alike: Box<[(Arc<str>, FoundRules)]>,
    /// The same by the hash of the key, if the level has too many keys for a list.
    many_alike: HashTable<(Arc<str>, FoundRules)>,
    /// Empty if the tree reads addresses.
    levels: Vec<TreeLevel>,
    /// The levels of a tree that reads addresses. They are apart, so that a search in other trees does not ask for
    /// addresses.
    by_address: Option<Box<ByAddress>>,
    /// The nodes by level, key and value; nodes without a value by level and key.
    by_entry: HashTable<NodeEntry>,
    rule_lines: RuleLines,
    /// The values that belong to a tier, by node.
    members: HashTable<Member>,
    /// The entries that are read as addresses, for each rule below such an entry.
    addresses: HashMap<u32, u32, RandomState>,
}

/// A node in the table of all nodes.
#[derive(Copy, Clone, Debug)]
struct NodeEntry {
    node: u32,
    /// The first rule to which the node probably leads: its own, or that below it.
    rule: u32,
}

/// Where the rules of a domain are in memory, once they are in force. With thousands of them, a search waits for a node, and a
/// check then waits for the rule that was found. So the search requests both at the same time.
#[derive(Copy, Clone, Default, Debug)]
struct RuleLines {
    /// The address of the first rule, or 0.
    first: usize,
    size: usize,
}

impl RuleLines {
    /// Requests the memory of a rule in advance.
    #[inline(always)]
    fn prefetch(self, NodeEntry { rule, .. }: NodeEntry) {
        if self.first != 0 {
            // Also if there is no such rule: any address is allowed.
            let offset = self.size.wrapping_mul(rule as usize);
            prefetch(ptr::without_provenance::<u8>(self.first.wrapping_add(offset)));
        }
    }
}

#[derive(Debug)]
struct Member {
    node: u32,
    value: Box<str>,
    rules: FoundRules,
}

impl Tree {
    /// Builds a tree from the entries of several files. Each file comes with the index of its first rule in the
    /// domain's rules.
    pub(crate) fn new<'b>(files: impl IntoIterator<Item = (&'b [Branch], usize)>) -> Self {
        let mut tree = Self {
            hasher: RandomState::new(),
            keys: HashSet::default(),
            nodes: Vec::new(),
            alike: Box::default(),
            many_alike: HashTable::new(),
            levels: Vec::new(),
            by_address: None,
            by_entry: HashTable::new(),
            rule_lines: RuleLines::default(),
            members: HashTable::new(),
            addresses: HashMap::default(),
        };
        let of_file =
            |(branches, offset): (&'b [Branch], usize)| branches.iter().map(move |branch| (branch, offset));
        let mut reading = Vec::new();
        tree.fill(&files.into_iter().flat_map(of_file).collect::<Vec<_>>(), (1, 0), &mut reading);
        if !reading.is_empty() {
            let levels = std::mem::take(&mut tree.levels);
            tree.by_address = Some(Box::new(ByAddress::new(levels, &mut tree.nodes, &reading)));
        }
        tree.alike = tree.keys_alike(0).collect();
        tree.many_alike = tree.many_alike();
        for node in 0..tree.nodes.len() {
            let below = tree.nodes[node].below;
            let alike = tree.keys_alike(below).next();
            tree.nodes[node].alike_below = alike;
        }
        let Self { nodes, by_entry, .. } = &mut tree;
        for entry in by_entry.iter_mut() {
            let node = &nodes[entry.node as usize];
            let below = node.alike_below.as_ref().map(|(_, found)| *found);
            entry.rule = below.filter(|_| node.own.rules().is_empty()).unwrap_or(node.own).numbers().start;
        }
        tree
    }

    /// Makes searches request the memory of these rules in advance. They have the order of the tree's rules, and stay where they are.
    pub fn prefetch_among<R>(&mut self, rules: &[R]) {
        self.rule_lines = RuleLines { first: rules.as_ptr().addr(), size: size_of::<R>() };
    }

    /// Returns the keys of a level of which all values have the same rules. None if the tree reads addresses.
    fn keys_alike(&self, level: u32) -> impl Iterator<Item = (Arc<str>, FoundRules)> {
        let level = self.levels.get(level as usize).filter(|level| level.wild.is_none());
        let keys = level.and_then(|level| level.listed_keys.as_deref()).unwrap_or_default();
        let rules_of = move |key: &LevelKey| match (&key.exact, self.nodes.get(key.bare? as usize)?) {
            (Exact::None, node) if node.tiers.is_empty() => Some((Arc::clone(&key.key), node.own)),
            _ => None,
        };
        keys.iter().filter_map(rules_of)
    }

    /// Returns the keys of the first level of which all values have the same rules, if the level does not list its keys, and no key
    /// has values or wildcards.
    fn many_alike(&self) -> HashTable<(Arc<str>, FoundRules)> {
        let mut alike = HashTable::new();
        let is_bare =
            |level: &TreeLevel| level.listed_keys.is_none() && !level.has_exact && level.wild.is_none();
        if self.levels.first().is_some_and(is_bare) {
            for node in self.nodes.iter().filter(|node| node.level == 0 && node.tiers.is_empty()) {
                let hash = |(key, _): &(Arc<str>, FoundRules)| self.hasher.hash_one(&**key);
                let entry = (Arc::clone(&node.key), node.own);
                alike.insert_unique(hash(&entry), entry, hash);
            }
        }
        alike
    }

    /// Adds a level with these branches, and returns its number. Adds the branches that read addresses to `reading`.
    /// `entry` is the bit of the request's entry, and `above` has the bits of those above it that are read as addresses.
    fn fill<'b>(
        &mut self,
        branches: &[(&'b Branch, usize)],
        (entry, above): (u32, u32),
        reading: &mut Vec<ReadingBranch<'b>>,
    ) -> u32 {
        let read = keys_of_addresses(branches.iter().map(|(branch, _)| *branch));
        let addresses = |branch: &Branch| if read.contains(&*branch.key) { above | entry } else { above };
        let level = u32::try_from(self.levels.len()).unwrap_or(NONE);
        let here = TreeLevel::new(branches, |key| (self.key(key), hash_of_key(&self.hasher, level, key)));
        self.levels.push(here);
        let mut wild = Vec::new();
        let mut nodes = Vec::with_capacity(branches.len());
        for &(branch, offset) in branches {
            let node = self.add(level, branch, offset, addresses(branch) & entry != 0);
            nodes.push(node);
            self.note_addresses(branch, offset, addresses(branch));
            if branch.is_wildcard() {
                let value = branch.value.as_deref();
                wild.push((&*branch.key, value.map(Cow::Borrowed), node));
                let in_lower_case =
                    value.filter(|_| read.contains(&*branch.key)).and_then(pattern_in_lower_case);
                wild.extend(in_lower_case.map(|value| (&*branch.key, Some(Cow::Owned(value)), node)));
            }
            if branch.reads_addresses() {
                reading.push(ReadingBranch { branch, offset, node, level });
            }
        }
        if let Some(here) = self.levels.get_mut(level as usize).filter(|_| !wild.is_empty()) {
            let entries = wild.iter().map(|(key, value, node)| (*key, value.as_deref(), *node));
            here.wild = Some(Box::new(Wildcards::new(entries)));
        }
        for (&(branch, offset), node) in branches.iter().zip(nodes) {
            if !branch.children.is_empty() {
                let children: Vec<_> = branch.children.iter().map(|child| (child, offset)).collect();
                let below = (entry.wrapping_shl(1), addresses(branch));
                self.nodes[node as usize].below = self.fill(&children, below, reading);
            }
        }
        level
    }

    /// Notes which entries the rules of a descriptor read as addresses.
    fn note_addresses(&mut self, branch: &Branch, offset: usize, addresses: u32) {
        if addresses == 0 {
            return;
        }
        for rules in std::iter::once(&branch.own).chain(branch.tiers.iter().map(|tier| &tier.rules)) {
            self.addresses
                .extend(FoundRules::of(&rules.all(), offset).numbers().map(|rule| (rule, addresses)));
        }
    }

    /// Returns the entries that a rule reads as addresses, one bit for each.
    pub fn addresses(&self, rule: u32) -> u32 {
        self.addresses.get(&rule).copied().unwrap_or_default()
    }

    /// Returns the text of a key, which all its nodes share.
    fn key(&mut self, key: &str) -> Arc<str> {
        if let Some(known) = self.keys.get(key) {
            return Arc::clone(known);
        }
        let new: Arc<str> = key.into();
        self.keys.insert(Arc::clone(&new));
        new
    }

    /// Adds a descriptor. `is_address`: values of its key are read as addresses.
    fn add(&mut self, level: u32, branch: &Branch, offset: usize, is_address: bool) -> u32 {
        let number = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        let text = |value: &str| if is_address { canonical(value).into() } else { Box::from(value) };
        for tier in &branch.tiers {
            for value in &tier.members {
                let rules = FoundRules::of(&tier.rules.of_value(value), offset);
                let value: Box<str> = text(value);
                let hash = self.hasher.hash_one((number, &*value));
                let again = |member: &Member| self.hasher.hash_one((member.node, &*member.value));
                self.members.insert_unique(hash, Member { node: number, value, rules }, again);
            }
        }
        let named = (level, self.key(&branch.key), branch.value.as_deref().map(text));
        self.nodes.push(TreeNode::new(named, (branch, offset), &branch.own, None, NONE));
        let (hasher, nodes) = (&self.hasher, &self.nodes);
        let hash = |node: &TreeNode| hash_of(hasher, node.level, &node.key, node.value.as_deref());
        // A search finds the ranges of a branch by the address alone.
        if branch.ranges.is_empty()
            && let (Some(here), Some(node)) = (self.levels.get_mut(level as usize), nodes.last())
        {
            // A text equal to the wildcard itself also finds it here, because the first look-up compares texts only.
            here.add(number, node);
            let entry = NodeEntry { node: number, rule: NONE };
            self.by_entry.insert_unique(hash(node), entry, |at| hash(&nodes[at.node as usize]));
        }
        number
    }

    /// Returns the nodes of the file's descriptors, without their forms. They have the rules for all kinds of values.
    pub(super) fn descriptors(&self) -> &[TreeNode] {
        let forms_from = self.by_address.as_ref().map(|by_address| by_address.forms_from);
        forms_from.and_then(|end| self.nodes.get(..end)).unwrap_or(&self.nodes)
    }

    /// Returns the ranges of a descriptor.
    pub(super) fn ranges_of(&self, node: u32) -> &[IpNet] {
        self.by_address.as_deref().map(|by_address| by_address.ranges_of(node)).unwrap_or_default()
    }

    /// Returns the rules for a request's entries, in order. Does not allocate.
    ///
    /// The tier that the request names comes first, if the entry has it. Next comes a tier that contains the value, and
    /// then the entry's own limit.
    #[inline(always)]
    pub fn find(&self, entries: &[(&str, &str)], tier: Option<&str>) -> FoundRules {
        if let &[(key, value)] = entries {
            // A long key is found below, because its comparison is a call.
            for (one, found) in &self.alike {
                if is_same_if_short(one, key) {
                    return *found;
                }
            }
            return self.search_one(key, value, tier);
        }
        self.search_several(entries, tier)
    }

    /// Returns the rules for a request's only entry.
    #[inline(never)]
    fn search_one(&self, key: &str, value: &str, tier: Option<&str>) -> FoundRules {
        let same = |(one, _): &(Arc<str>, FoundRules)| is_same(one, key);
        if !self.many_alike.is_empty()
            && let Some((_, found)) = self.many_alike.find(self.hasher.hash_one(key), same)
        {
            return *found;
        }
        self.rules_at(0, key, value, tier)
    }

    /// Returns the rules for a request's entries, of any number.
    #[inline(never)]
    fn search_several(&self, entries: &[(&str, &str)], tier: Option<&str>) -> FoundRules {
        let Some((&(key, value), before)) = entries.split_last() else { return FoundRules::default() };
        let node = match before {
            // Most requests of several entries have two.
            &[(key, value)] => self.step(0, key, value).map(|(_, node)| node),
            _ => self.node_before(before),
        };
        match node.map(|node| (&node.alike_below, node.below)) {
            Some((Some((one, found)), _)) if is_same(one, key) => *found,
            Some((_, level)) => self.rules_at(level, key, value, tier),
            None => FoundRules::default(),
        }
    }

    /// Returns the rules for the last entry of a request.
    #[inline(always)]
    fn rules_at(&self, level: u32, key: &str, value: &str, tier: Option<&str>) -> FoundRules {
        match self.step(level, key, value) {
            Some((at, node)) if !node.tiers.is_empty() => self.of_tier(at, node, value, tier),
            Some((_, node)) => node.own,
            None => FoundRules::default(),
        }
    }

    /// Whether a descriptor of the file matches these entries and exempts them: it has no limit, no tiers and no further
    /// descriptors.
    pub fn exempts(&self, entries: &[(&str, &str)]) -> bool {
        self.node_of(entries).is_some_and(|node| !node.limits() && node.below == NONE)
    }

    /// Whether a descriptor of the file matches these entries, and limits or exempts them.
    pub fn matches(&self, entries: &[(&str, &str)]) -> bool {
        self.node_of(entries).is_some_and(|node| node.limits() || node.below == NONE)
    }

    fn node_of(&self, entries: &[(&str, &str)]) -> Option<&TreeNode> {
        let (&(key, value), before) = entries.split_last()?;
        let level = if before.is_empty() { 0 } else { self.node_before(before)?.below };
        self.step(level, key, value).map(|(_, node)| node)
    }

    /// Returns the node that entries lead to. It is a separate function, so that a search of one entry saves no registers for
    /// the loop.
    #[inline(never)]
    fn node_before(&self, entries: &[(&str, &str)]) -> Option<&TreeNode> {
        let (mut level, mut last) = (0, None);
        for &(key, value) in entries {
            let (_, node) = self.step(level, key, value)?;
            (level, last) = (node.below, Some(node));
        }
        last
    }

    #[inline(never)]
    fn of_tier(&self, at: u32, node: &TreeNode, value: &str, tier: Option<&str>) -> FoundRules {
        let named = tier.and_then(|tier| node.tiers.iter().find(|one| *one.name == *tier));
        if let Some(named) = named {
            return named.rules;
        }
        let of_member = if node.tiers.iter().any(|one| one.has_members) {
            let text = self.text_instead_of(node.level, &node.key, value);
            self.of_member(at, text.as_ref().map_or(value, AddressText::as_str))
        } else {
            None
        };
        of_member.unwrap_or(node.own)
    }

    /// Returns the text that a search of this key reads instead of a value: that of an address in another spelling.
    pub(super) fn text_instead_of(&self, level: u32, key: &str, value: &str) -> Option<AddressText> {
        if self.reads_addresses(level, key) { AddressText::instead_of(value) } else { None }
    }

    /// Whether the values of a key are read as addresses.
    pub(super) fn reads_addresses(&self, level: u32, key: &str) -> bool {
        self.by_address.as_deref().is_some_and(|by_address| by_address.ranges(level, key).is_some())
    }

    /// Returns the rules of the tier that contains a value.
    fn of_member(&self, node: u32, value: &str) -> Option<FoundRules> {
        let same = |one: &Member| one.node == node && *one.value == *value;
        self.members.find(self.hasher.hash_one((node, value)), same).map(|member| member.rules)
    }

    /// Returns the node that an entry leads to.
    #[inline(always)]
    pub(super) fn step(&self, level: u32, key: &str, value: &str) -> Option<(u32, &TreeNode)> {
        let Some(here) = self.levels.get(level as usize) else {
            return self.step_by_address(level, key, value);
        };
        let at = self.entry(here, level, key, value)?;
        Some((at, self.nodes.get(at as usize)?))
    }

    /// Returns the node that an entry leads to, in a tree that reads addresses.
    #[inline(never)]
    fn step_by_address(&self, level: u32, key: &str, value: &str) -> Option<(u32, &TreeNode)> {
        let by_address = self.by_address.as_deref()?;
        let here = by_address.level(level)?;
        let Some(ranges) = by_address.ranges(level, key) else {
            let at = self.entry(here, level, key, value)?;
            return Some((at, self.nodes.get(by_address.form(at, || address_of(value)) as usize)?));
        };
        let address = address_of(value);
        // The client chose the spelling, and the exact value may have another one.
        let text = if here.has_exact || here.wild.is_some() { AddressText::instead_of(value) } else { None };
        let value = text.as_ref().map_or(value, AddressText::as_str);
        let exact = if here.has_exact { self.declared(level, key, value) } else { None };
        let ranged = exact.or_else(|| ranges.find(address?));
        let at = ranged.or_else(|| self.entry(here, level, key, value))?;
        Some((at, self.nodes.get(by_address.form(at, || address) as usize)?))
    }

    /// Returns the number of the node that an entry leads to, whatever its address is.
    #[inline(always)]
    fn entry(&self, here: &TreeLevel, level: u32, key: &str, value: &str) -> Option<u32> {
        let Some(keys) = &here.listed_keys else {
            let has_values = here.has_exact || here.wild.is_some();
            let valued = if has_values { self.valued(here, level, key, value) } else { None };
            return valued.or_else(|| if here.has_bare { self.bare(level, key) } else { None });
        };
        let found = if key.len() > SHORT { long_key(keys, key) } else { short_key(keys, key) };
        match (found, &here.wild) {
            (Some(LevelKey { exact: Exact::None, bare, .. }), None) => *bare,
            (None, None) => None,
            _ => self.listed(here, found, (level, key, value)),
        }
    }

    /// Returns the node that an entry leads to, on a level that lists its keys and has values or wildcards. Not inlined, because a search
    /// without them would save more registers.
    #[inline(never)]
    fn listed(
        &self,
        here: &TreeLevel,
        found: Option<&LevelKey>,
        (level, key, value): (u32, &str, &str),
    ) -> Option<u32> {
        let exact = match found.map(|one| &one.exact) {
            Some(Exact::Listed(list)) => list.iter().find(|(one, _)| is_same(one, value)).map(|&(_, at)| at),
            Some(Exact::InTable) => found.and_then(|one| self.declared_under(level, one, value)),
            Some(Exact::None) | None => None,
        };
        let bare = found.and_then(|one| one.bare);
        match (exact, &here.wild) {
            (None, Some(wild)) => wild.first(key, value).or(bare),
            _ => exact.or(bare),
        }
    }

    /// Returns the node with this exact key and value, or the first declared wildcard that matches them.
    #[inline(never)]
    fn valued(&self, here: &TreeLevel, level: u32, key: &str, value: &str) -> Option<u32> {
        let exact = here.has_exact.then(|| self.declared(level, key, value)).flatten();
        exact.or_else(|| here.wild.as_ref()?.first(key, value))
    }

    /// Returns the node with a key of a level that lists its keys, and with this exact value.
    #[inline(always)]
    fn declared_under(&self, level: u32, one: &LevelKey, value: &str) -> Option<u32> {
        self.node_with(with_value(&self.hasher, one.hash, value), |node| {
            node.level == level && Arc::ptr_eq(&node.key, &one.key) && node.has_value(value)
        })
    }

    /// Returns the node with this exact key and value.
    #[inline(never)]
    fn declared(&self, level: u32, key: &str, value: &str) -> Option<u32> {
        self.node_with(hash_of(&self.hasher, level, key, Some(value)), |node| {
            node.level == level && node.has_value(value) && is_same(&node.key, key)
        })
    }

    /// Returns the node of this key without a value.
    #[inline(never)]
    fn bare(&self, level: u32, key: &str) -> Option<u32> {
        self.node_with(hash_of(&self.hasher, level, key, None), |node| {
            node.level == level && node.value.is_none() && is_same(&node.key, key)
        })
    }

    /// Returns the node that has this hash and satisfies a condition, and requests the memory of its rule meanwhile.
    #[inline(always)]
    fn node_with(&self, hash: u64, is_it: impl Fn(&TreeNode) -> bool) -> Option<u32> {
        let same = |&entry: &NodeEntry| {
            self.rule_lines.prefetch(entry);
            is_it(&self.nodes[entry.node as usize])
        };
        self.by_entry.find(hash, same).map(|entry| entry.node)
    }
}

/// Returns the entry of a key with at most [`SHORT`] bytes.
#[inline(always)]
#[expect(clippy::manual_find, reason = "the closure of `find` becomes a function, which each search calls")]
fn short_key<'k>(keys: &'k [LevelKey], key: &str) -> Option<&'k LevelKey> {
    for one in keys {
        if is_same_if_short(&one.key, key) {
            return Some(one);
        }
    }
    None
}

/// Returns the entry of a longer key.
#[inline(never)]
fn long_key<'k>(keys: &'k [LevelKey], key: &str) -> Option<&'k LevelKey> {
    keys.iter().find(|one| *one.key == *key)
}

/// The hash of a node. The value is hashed alone, because a level that lists its keys has the hash of the rest.
#[inline]
fn hash_of(hasher: &RandomState, level: u32, key: &str, value: Option<&str>) -> u64 {
    let hash = hash_of_key(hasher, level, key);
    value.map_or(hash, |value| with_value(hasher, hash, value))
}

#[inline]
fn hash_of_key(hasher: &RandomState, level: u32, key: &str) -> u64 {
    hasher.hash_one((level, key))
}

#[inline]
fn with_value(hasher: &RandomState, of_key: u64, value: &str) -> u64 {
    of_key ^ hasher.hash_one(value)
}

#[cfg(test)]
mod tests {
    use crate::{Config, Domain};

    /// A search requests the rule that the table names, so another one would only cost time.
    #[test]
    fn table_names_the_rule_of_each_node() {
        let mut yaml = "domain: test\ndescriptors:\n".to_owned();
        for tenant in 0..10 {
            let limit = "rate_limit: { unit: second, requests_per_unit: 10 }";
            yaml += &format!("  - {{ key: tenant, value: t{tenant}, {limit} }}\n");
            yaml += &format!(
                "  - {{ key: group, value: g{tenant}, descriptors: [ {{ key: client, {limit} }} ] }}\n"
            );
        }
        let config = Config::from_yaml("test.yaml", &yaml).unwrap();
        let domain = Domain::merge([config], false).unwrap().remove(0);
        let tree = domain.into_parts().tree;
        let mut seen = 0;
        for entry in &tree.by_entry {
            let node = &tree.nodes[entry.node as usize];
            let value = node.value.as_deref().unwrap_or_default();
            let found = match &*node.key {
                "tenant" => tree.find(&[("tenant", value)], None),
                "group" => tree.find(&[("group", value), ("client", "x")], None),
                _ => continue,
            };
            assert_eq!(found.numbers(), entry.rule..entry.rule + 1, "{} {value}", node.key);
            seen += 1;
        }
        assert_eq!(seen, 20);
    }
}
