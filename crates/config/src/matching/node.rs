//! The parts of a tree: its nodes, and its levels.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::affixes::NONE;
use super::branch::AddressKind;
use super::same::are_same;
use super::{Branch, BranchRules, Wildcards};

/// A node. It fills two cache lines next to each other, because a search among many nodes waits for each other memory. What most
/// searches read comes first, and ends in the first line, unless the value has more than 19 bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct TreeNode {
    /// A key of the level below of which all values have the same rules for all tiers, with these rules. A search for the key ends
    /// here.
    pub(super) alike_below: Option<(Arc<str>, FoundRules)>,
    /// All nodes with this key share the text.
    pub(super) key: Arc<str>,
    /// The level of the node.
    pub(super) level: u32,
    /// The value, if it is short. A search compares it here.
    short_value: ShortText,
    /// The level of the node's children.
    pub(super) below: u32,
    pub(super) own: FoundRules,
    pub(super) value: Option<Box<str>>,
    pub(super) tiers: Box<[NodeTier]>,
}

const _: () = assert!(size_of::<TreeNode>() == 128, "two lines");

/// A text without memory of its own.
#[derive(Debug)]
#[repr(C)]
struct ShortText {
    /// [`NOT_SHORT`] without a text, and for a longer one.
    len: u8,
    bytes: [u8; LONGEST_SHORT],
}

const LONGEST_SHORT: usize = 36;
const NOT_SHORT: u8 = u8::MAX;

impl ShortText {
    fn new(text: Option<&str>) -> Self {
        let mut bytes = [0; LONGEST_SHORT];
        let text = text.unwrap_or_default();
        let len = match bytes.get_mut(..text.len()) {
            Some(place) if !text.is_empty() => {
                place.copy_from_slice(text.as_bytes());
                u8::try_from(text.len()).unwrap_or(NOT_SHORT)
            }
            _ => NOT_SHORT,
        };
        Self { len, bytes }
    }

    fn get(&self) -> Option<&[u8]> {
        self.bytes.get(..usize::from(self.len))
    }
}

/// A tier of a node.
#[derive(Debug)]
pub(super) struct NodeTier {
    pub(super) name: Box<str>,
    pub(super) rules: FoundRules,
    /// Whether values belong to it.
    pub(super) has_members: bool,
}

#[derive(Debug, Default)]
pub(super) struct TreeLevel {
    pub(super) has_exact: bool,
    pub(super) has_bare: bool,
    /// The keys of the level, if they are few: comparing a request's key with them is faster than hashing it. Most levels have
    /// one key, which then stands here.
    pub(super) listed_keys: Option<SmallVec<[LevelKey; 1]>>,
    pub(super) wild: Option<Box<Wildcards>>,
}

/// A key on a level.
#[derive(Debug)]
pub(super) struct LevelKey {
    pub(super) key: Arc<str>,
    /// The hash of the level and the key, from which that of a node with a value is made.
    pub(super) hash: u64,
    /// Its nodes with a value.
    pub(super) exact: Exact,
    /// Its node without a value.
    pub(super) bare: Option<u32>,
}

/// The nodes with a value, for one key of a level.
#[derive(Debug)]
pub(super) enum Exact {
    /// There are none.
    None,
    /// The nodes with their values: comparing a request's value with them is faster than hashing it.
    Listed(Vec<(Box<str>, u32)>),
    /// The nodes are in the table of the whole tree.
    InTable,
}

/// A branch that reads addresses, with its node.
#[derive(Copy, Clone, Debug)]
pub(super) struct ReadingBranch<'b> {
    pub(super) branch: &'b Branch,
    /// The index of the file's first rule.
    pub(super) offset: usize,
    pub(super) node: u32,
    pub(super) level: u32,
}

impl TreeNode {
    /// Whether it has this value.
    #[inline]
    pub(super) fn has_value(&self, value: &str) -> bool {
        match self.short_value.get() {
            Some(own) => are_same(own, value.as_bytes()),
            None => self.value.as_deref() == Some(value),
        }
    }

    /// Whether it has a limit for some requests: its own, or that of a tier.
    pub(super) fn limits(&self) -> bool {
        !self.own.rules().is_empty() || !self.tiers.is_empty()
    }

    /// Creates the node of a branch for one kind of values, with these rules as its own. `None`: the node has the rules for
    /// all kinds.
    pub(super) fn new(
        (level, key, value): (u32, Arc<str>, Option<Box<str>>),
        (branch, offset): (&Branch, usize),
        own: &BranchRules,
        kind: Option<AddressKind>,
        below: u32,
    ) -> Self {
        let rules = |rules: &BranchRules| {
            let range = kind.map_or_else(|| rules.all(), |kind| rules.of(kind));
            FoundRules::of(&range, offset)
        };
        Self {
            short_value: ShortText::new(value.as_deref()),
            alike_below: None,
            level,
            key,
            value,
            own: rules(own),
            tiers: branch
                .tiers
                .iter()
                .map(|tier| NodeTier {
                    name: tier.name.clone(),
                    rules: rules(&tier.rules),
                    has_members: !tier.members.is_empty(),
                })
                .collect(),
            below,
        }
    }

    /// Returns this node for one kind of values, with these rules as its own.
    pub(super) fn form(&self, of: &ReadingBranch<'_>, own: &BranchRules, kind: AddressKind) -> Self {
        let named = (self.level, Arc::clone(&self.key), of.branch.value.clone());
        Self::new(named, (of.branch, of.offset), own, Some(kind), self.below)
    }
}

/// The maximum number of keys, or of values of a key, that are compared in order instead of hashed.
const LONGEST_LIST: usize = 4;

impl TreeLevel {
    /// Creates a level without nodes. `text` returns the shared text of a key, and its hash on this level.
    pub(super) fn new(branches: &[(&Branch, usize)], text: impl FnMut(&str) -> (Arc<str>, u64)) -> Self {
        let mut keys: Vec<&str> = branches.iter().map(|(branch, _)| &*branch.key).collect();
        keys.sort_unstable();
        keys.dedup();
        let of = |(key, hash)| LevelKey { key, hash, exact: Exact::None, bare: None };
        let listed_keys = (keys.len() <= LONGEST_LIST).then(|| keys.into_iter().map(text).map(of).collect());
        Self { listed_keys, ..Self::default() }
    }

    /// Adds a node.
    pub(super) fn add(&mut self, number: u32, node: &TreeNode) {
        let keys = self.listed_keys.iter_mut().flatten();
        let key = keys.into_iter().find(|one| one.key == node.key);
        if let Some(value) = &node.value {
            self.has_exact = true;
            let Some(key) = key else { return };
            match &mut key.exact {
                exact @ Exact::None => *exact = Exact::Listed(vec![(value.clone(), number)]),
                Exact::Listed(list) if list.len() < LONGEST_LIST => list.push((value.clone(), number)),
                exact => *exact = Exact::InTable,
            }
        } else {
            self.has_bare = true;
            key.into_iter().for_each(|key| key.bare = key.bare.or(Some(number)));
        }
    }
}

/// The rules that limit a request: a range of the domain's rules. An empty range means that nothing limits the request.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FoundRules {
    first: u32,
    end: u32,
}

impl FoundRules {
    pub(super) fn of(rules: &Range<usize>, offset: usize) -> Self {
        let index = |at: usize| u32::try_from(at.saturating_add(offset)).unwrap_or(NONE);
        Self { first: index(rules.start), end: index(rules.end) }
    }

    /// Returns the rules before and after some of these rules. `None` if those are not among these.
    pub(super) fn around(self, some: Self) -> Option<[Self; 2]> {
        let contains = self.first <= some.first && some.first < some.end && some.end <= self.end;
        contains.then_some([Self { end: some.first, ..self }, Self { first: some.end, ..self }])
    }

    /// Returns their numbers.
    #[inline]
    pub fn numbers(self) -> Range<u32> {
        self.first..self.end
    }

    /// Returns their indices in the domain's rules.
    #[inline]
    pub fn rules(self) -> Range<usize> {
        self.first as usize..self.end as usize
    }
}
