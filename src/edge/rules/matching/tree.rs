//! The tree of one domain's descriptors.

use std::ops::Range;

use ahash::RandomState;
use hashbrown::HashTable;

use super::affixes::NONE;
use super::{Branch, Wildcards};

/// The entries of the file, for finding the entry of a request.
#[derive(Debug)]
pub(crate) struct Tree {
    hasher: RandomState,
    pub(super) nodes: Vec<TreeNode>,
    pub(super) levels: Vec<TreeLevel>,
    /// The nodes by level, key and value; nodes without a value by level and key.
    by_entry: HashTable<u32>,
    /// The values that belong to a tier, by node.
    members: HashTable<Member>,
}

#[derive(Debug)]
struct Member {
    node: u32,
    value: Box<str>,
    rules: FoundRules,
}

#[derive(Debug)]
pub(super) struct TreeNode {
    /// The level of the node.
    pub(super) level: u32,
    pub(super) key: Box<str>,
    pub(super) value: Option<Box<str>>,
    pub(super) own: FoundRules,
    pub(super) tiers: Box<[(Box<str>, FoundRules)]>,
    has_members: bool,
    /// The level of the node's children.
    pub(super) below: u32,
}

#[derive(Debug, Default)]
pub(super) struct TreeLevel {
    has_exact: bool,
    has_bare: bool,
    /// The keys of the level, if they are few: comparing a request's key with them is faster than hashing it.
    few_keys: Option<Vec<LevelKey>>,
    wild: Option<Box<Wildcards>>,
}

/// A key on a level.
#[derive(Debug)]
struct LevelKey {
    key: Box<str>,
    /// Its nodes with a value.
    exact: Exact,
    /// Its node without a value.
    bare: Option<u32>,
}

/// The nodes with a value, for one key of a level.
#[derive(Debug)]
enum Exact {
    /// The nodes with their values: comparing a request's value with them is faster than hashing it.
    Few(Vec<(Box<str>, u32)>),
    /// The nodes are in the table of the whole tree.
    Many,
}

/// The maximum number of keys, or of values of a key, that are compared in order instead of hashed.
const FEW: usize = 4;

impl TreeLevel {
    fn new(branches: &[(&Branch, usize)]) -> Self {
        let mut keys: Vec<&str> = branches.iter().map(|(branch, _)| &*branch.key).collect();
        keys.sort_unstable();
        keys.dedup();
        let of = |key: &str| LevelKey { key: key.into(), exact: Exact::Few(Vec::new()), bare: None };
        let few_keys = (keys.len() <= FEW).then(|| keys.into_iter().map(of).collect());
        Self { few_keys, ..Self::default() }
    }

    /// Adds a node.
    fn add(&mut self, number: u32, node: &TreeNode) {
        let keys = self.few_keys.iter_mut().flatten();
        let key = keys.into_iter().find(|one| one.key == node.key);
        if let Some(value) = &node.value {
            self.has_exact = true;
            let Some(key) = key else { return };
            match &mut key.exact {
                Exact::Few(few) if few.len() < FEW => few.push((value.clone(), number)),
                exact => *exact = Exact::Many,
            }
        } else {
            self.has_bare = true;
            key.into_iter().for_each(|key| key.bare = key.bare.or(Some(number)));
        }
    }
}

/// The rules that limit a request: a range of the domain's rules. An empty range means that nothing limits the request.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FoundRules {
    first: u32,
    end: u32,
}

impl FoundRules {
    fn of(rules: &Range<usize>, offset: usize) -> Self {
        let index = |at: usize| u32::try_from(at.saturating_add(offset)).unwrap_or(NONE);
        Self { first: index(rules.start), end: index(rules.end) }
    }

    /// Returns their indices in the domain's rules.
    #[inline]
    pub(crate) fn rules(self) -> Range<usize> {
        self.first as usize..self.end as usize
    }
}

impl Tree {
    /// Builds a tree from the entries of several files. Each file comes with the index of its first rule in the
    /// domain's rules.
    pub(crate) fn new<'b>(files: impl IntoIterator<Item = (&'b [Branch], usize)>) -> Self {
        let mut tree = Self {
            hasher: RandomState::new(),
            nodes: Vec::new(),
            levels: Vec::new(),
            by_entry: HashTable::new(),
            members: HashTable::new(),
        };
        let of_file =
            |(branches, offset): (&'b [Branch], usize)| branches.iter().map(move |branch| (branch, offset));
        tree.fill(&files.into_iter().flat_map(of_file).collect::<Vec<_>>());
        tree
    }

    /// Adds a level with these branches, and returns its number.
    fn fill(&mut self, branches: &[(&Branch, usize)]) -> u32 {
        let level = u32::try_from(self.levels.len()).unwrap_or(NONE);
        self.levels.push(TreeLevel::new(branches));
        let mut wild = Vec::new();
        let mut nodes = Vec::with_capacity(branches.len());
        for &(branch, offset) in branches {
            let node = self.add(level, branch, offset);
            nodes.push(node);
            if branch.is_wildcard() {
                wild.push((&*branch.key, branch.value.as_deref(), node));
            }
        }
        if let Some(here) = self.levels.get_mut(level as usize).filter(|_| !wild.is_empty()) {
            here.wild = Some(Box::new(Wildcards::new(wild)));
        }
        for (&(branch, offset), node) in branches.iter().zip(nodes) {
            if !branch.children.is_empty() {
                let children: Vec<_> = branch.children.iter().map(|child| (child, offset)).collect();
                self.nodes[node as usize].below = self.fill(&children);
            }
        }
        level
    }

    fn add(&mut self, level: u32, branch: &Branch, offset: usize) -> u32 {
        let number = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        let mut tiers = Vec::with_capacity(branch.tiers.len());
        for tier in &branch.tiers {
            let rules = FoundRules::of(&tier.rules, offset);
            tiers.push((tier.name.clone(), rules));
            for value in &tier.members {
                let hash = self.hasher.hash_one((number, &**value));
                let again = |member: &Member| self.hasher.hash_one((member.node, &*member.value));
                self.members.insert_unique(hash, Member { node: number, value: value.clone(), rules }, again);
            }
        }
        self.nodes.push(TreeNode {
            level,
            key: branch.key.clone(),
            value: branch.value.clone(),
            own: FoundRules::of(&branch.own, offset),
            tiers: tiers.into(),
            has_members: branch.tiers.iter().any(|tier| !tier.members.is_empty()),
            below: NONE,
        });
        let (hasher, nodes) = (&self.hasher, &self.nodes);
        let hash = |node: &TreeNode| hash_of(hasher, node.level, &node.key, node.value.as_deref());
        if let (Some(here), Some(node)) = (self.levels.get_mut(level as usize), nodes.last()) {
            // A text equal to the wildcard itself also finds it here, because the first look-up compares texts only.
            here.add(number, node);
            self.by_entry.insert_unique(hash(node), number, |&at| hash(&nodes[at as usize]));
        }
        number
    }

    /// Returns the rules for a request's entries, in order. Does not allocate.
    ///
    /// The tier that the request names comes first, if the entry has it. Next comes a tier that contains the value, and
    /// then the entry's own limit.
    pub(crate) fn find(&self, entries: &[(&str, &str)], tier: Option<&str>) -> FoundRules {
        let Some((&(key, value), before)) = entries.split_last() else { return FoundRules::default() };
        let level = if before.is_empty() { Some(0) } else { self.level_below(before) };
        let Some(level) = level else { return FoundRules::default() };
        match self.step(level, key, value) {
            Some((at, node)) if tier.is_some() || node.has_members => self.of_tier(at, node, value, tier),
            Some((_, node)) => node.own,
            None => FoundRules::default(),
        }
    }

    /// Returns the level that entries lead to. It is a separate function, so that a search of one entry saves no
    /// registers for the loop.
    #[inline(never)]
    fn level_below(&self, entries: &[(&str, &str)]) -> Option<u32> {
        let mut level = 0;
        for &(key, value) in entries {
            level = self.step(level, key, value)?.1.below;
        }
        Some(level)
    }

    #[inline(never)]
    fn of_tier(&self, at: u32, node: &TreeNode, value: &str, tier: Option<&str>) -> FoundRules {
        let named = tier.and_then(|tier| node.tiers.iter().find(|(name, _)| **name == *tier));
        if let Some(&(_, rules)) = named {
            return rules;
        }
        let of_member = if node.has_members { self.of_member(at, value) } else { None };
        of_member.unwrap_or(node.own)
    }

    /// Returns the rules of the tier that contains a value.
    fn of_member(&self, node: u32, value: &str) -> Option<FoundRules> {
        let same = |one: &Member| one.node == node && *one.value == *value;
        self.members.find(self.hasher.hash_one((node, value)), same).map(|member| member.rules)
    }

    /// Returns the node that an entry leads to.
    #[inline(always)]
    pub(super) fn step(&self, level: u32, key: &str, value: &str) -> Option<(u32, &TreeNode)> {
        let here = self.levels.get(level as usize)?;
        let at = match &here.few_keys {
            Some(keys) => {
                let found = keys.iter().find(|one| *one.key == *key);
                let bare = found.and_then(|one| one.bare);
                let exact = match found.map(|one| &one.exact) {
                    Some(Exact::Few(few)) => few.iter().find(|(one, _)| **one == *value).map(|&(_, at)| at),
                    Some(Exact::Many) => self.declared(level, key, Some(value)),
                    None => None,
                };
                match (exact, &here.wild) {
                    (None, Some(wild)) => wild.first(key, value).or(bare)?,
                    _ => exact.or(bare)?,
                }
            }
            None => self
                .valued(here, level, key, value)
                .or_else(|| here.has_bare.then(|| self.declared(level, key, None)).flatten())?,
        };
        Some((at, self.nodes.get(at as usize)?))
    }

    /// Returns the node with this exact key and value, or the first declared wildcard that matches them.
    #[inline(never)]
    fn valued(&self, here: &TreeLevel, level: u32, key: &str, value: &str) -> Option<u32> {
        let exact = here.has_exact.then(|| self.declared(level, key, Some(value))).flatten();
        exact.or_else(|| here.wild.as_ref()?.first(key, value))
    }

    /// Returns the node with this exact key and value.
    #[inline(never)]
    fn declared(&self, level: u32, key: &str, value: Option<&str>) -> Option<u32> {
        let same = |&at: &u32| {
            let node = &self.nodes[at as usize];
            node.level == level && node.value.as_deref() == value && *node.key == *key
        };
        self.by_entry.find(hash_of(&self.hasher, level, key, value), same).copied()
    }
}

#[inline]
fn hash_of(hasher: &RandomState, level: u32, key: &str, value: Option<&str>) -> u64 {
    match value {
        Some(value) => hasher.hash_one((level, key, value)),
        None => hasher.hash_one((level, key)),
    }
}
