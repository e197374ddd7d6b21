//! Why the search of a [`Tree`] finds the rules of one descriptor and not those of others.
//!
//! The search itself chooses the way. The rules that are listed are those that fail at its last step: the descriptors
//! beside the last one that was found, those below it, and those that it passed on its way.

use std::fmt;

use ipnet::IpNet;

use super::address::{AddressText, address_of, pattern_in_lower_case};
use super::affixes::NONE;
use super::node::{FoundRules, TreeNode};
use super::pattern::Pattern;
use super::tree::Tree;

/// Why a rule does not apply to a descriptor of a request. `D` names a descriptor of the file. Entries are counted from 0
/// here, and from 1 in the text that [`Display`](fmt::Display) writes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Mismatch<D> {
    /// Another tier of the same descriptor applies, or none.
    Tier,
    /// The rule is a step of `prefixes` for addresses of another kind.
    Family {
        /// The index of the request's entry.
        entry: usize,
        /// Whether the step is for IPv6, and not for IPv4.
        is_ipv6: bool,
    },
    /// Another descriptor matches the entry too, and comes first: it is exact, has the longest range, or is the first
    /// wildcard.
    Hidden {
        /// The index of the request's entry.
        entry: usize,
        /// The other descriptor.
        by: D,
    },
    /// The request has no further entry, but the rule needs one.
    Missing {
        /// The descriptor of that entry.
        wanted: D,
    },
    /// The request has more entries than the rule.
    Deeper {
        /// The index of the request's first entry that the rule does not have.
        entry: usize,
    },
    /// The request's entry has another value, or no address in the rule's ranges.
    Value {
        /// The index of the request's entry.
        entry: usize,
        /// The descriptor with the rule's value or ranges.
        wanted: D,
    },
    /// The request's entry has another key.
    Key {
        /// The index of the request's entry.
        entry: usize,
        /// The descriptor with the rule's key.
        wanted: D,
    },
}

/// A descriptor of a file: its key, and its value or ranges if it has them.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct FileEntry<'a> {
    /// The key.
    pub key: &'a str,
    /// The value or the wildcard.
    pub value: Option<&'a str>,
    /// The ranges of addresses.
    pub ranges: &'a [IpNet],
}

/// Writes the first of several ranges, and the number of the others.
struct RangesText<'a>(&'a [IpNet]);

impl fmt::Display for RangesText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            [only] => write!(f, "the range {only}"),
            [first, others @ ..] => write!(f, "the ranges {first} and {} more", others.len()),
        }
    }
}

impl<D> Mismatch<D> {
    /// Returns the reason in one word, which stays the same in later versions.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tier => "tier",
            Self::Family { .. } => "family",
            Self::Hidden { .. } => "hidden",
            Self::Missing { .. } => "missing",
            Self::Deeper { .. } => "deeper",
            Self::Value { .. } => "value",
            Self::Key { .. } => "key",
        }
    }

    /// Replaces the names of descriptors.
    #[must_use]
    pub fn map<E>(self, name: impl FnOnce(D) -> E) -> Mismatch<E> {
        match self {
            Self::Tier => Mismatch::Tier,
            Self::Family { entry, is_ipv6 } => Mismatch::Family { entry, is_ipv6 },
            Self::Hidden { entry, by } => Mismatch::Hidden { entry, by: name(by) },
            Self::Missing { wanted } => Mismatch::Missing { wanted: name(wanted) },
            Self::Deeper { entry } => Mismatch::Deeper { entry },
            Self::Value { entry, wanted } => Mismatch::Value { entry, wanted: name(wanted) },
            Self::Key { entry, wanted } => Mismatch::Key { entry, wanted: name(wanted) },
        }
    }
}

impl fmt::Display for Mismatch<FileEntry<'_>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tier => f.write_str("another tier applies"),
            Self::Family { entry, is_ipv6 } => {
                let kind = if is_ipv6 { "IPv6" } else { "IPv4" };
                write!(f, "the value of entry {} is not an {kind} address", entry + 1)
            }
            Self::Hidden { entry, by: FileEntry { key, value, ranges } } => {
                write!(f, "entry {} belongs to the descriptor with key {key:?}", entry + 1)?;
                match (value, ranges) {
                    (Some(value), _) => write!(f, " and value {value:?}, which comes first"),
                    (None, []) => f.write_str(", which comes first"),
                    (None, ranges) => write!(f, " and {}, which comes first", RangesText(ranges)),
                }
            }
            Self::Missing { wanted } => {
                write!(f, "the request has no further entry, and the rule needs {:?}", wanted.key)
            }
            Self::Deeper { entry } => {
                write!(f, "the request has more entries: {} is one too many", entry + 1)
            }
            Self::Value { entry, wanted: FileEntry { value: None, ranges, .. } } => {
                write!(f, "the value of entry {} is not in {}", entry + 1, RangesText(ranges))
            }
            Self::Value { entry, wanted } => {
                write!(f, "the value of entry {} is not {:?}", entry + 1, wanted.value.unwrap_or_default())
            }
            Self::Key { entry, wanted } => {
                write!(f, "the key of entry {} is not {:?}", entry + 1, wanted.key)
            }
        }
    }
}

/// Rules that do not apply, all for the same reason.
#[derive(Copy, Clone, Debug)]
pub struct Missed {
    /// The rules.
    pub rules: FoundRules,
    /// The reason, with the numbers of descriptors in the tree.
    pub why: Mismatch<u32>,
}

/// The nodes of a tree by level.
struct Levels<'t> {
    tree: &'t Tree,
    nodes: Vec<Vec<u32>>,
}

impl<'t> Levels<'t> {
    fn of(tree: &'t Tree) -> Self {
        let mut nodes: Vec<Vec<u32>> = Vec::new();
        for (at, node) in (0..).zip(tree.descriptors()) {
            let level = node.level as usize;
            nodes.resize(nodes.len().max(level + 1), Vec::new());
            nodes[level].push(at);
        }
        Self { tree, nodes }
    }

    fn at(&self, level: u32) -> impl Iterator<Item = (u32, &'t TreeNode)> {
        let nodes = self.nodes.get(level as usize).into_iter().flatten();
        nodes.filter_map(|&at| Some((at, self.tree.nodes.get(at as usize)?)))
    }

    /// Adds all rules of a node and of the nodes below it.
    fn add_all(&self, node: &TreeNode, why: Mismatch<u32>, to: &mut Vec<Missed>) {
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            to.extend(rules_of(node).map(|rules| Missed { rules, why }));
            let below = waiting.len();
            waiting.extend(self.at(node.below).map(|(_, node)| node));
            // The first child is next.
            waiting[below..].reverse();
        }
    }
}

/// Returns the limits of a descriptor's node, for all kinds of values: its own, and those of its tiers.
fn rules_of(node: &TreeNode) -> impl Iterator<Item = FoundRules> {
    std::iter::once(node.own).chain(node.tiers.iter().map(|tier| tier.rules))
}

impl Tree {
    /// Returns the rules that fail at the last step of a search, those first that fail latest.
    ///
    /// # Complexity
    /// O(nodes + ranges).
    pub fn missed(&self, entries: &[(&str, &str)], tier: Option<&str>) -> Vec<Missed> {
        let mut missed = Vec::new();
        let Some(end) = entries.len().checked_sub(1) else { return missed };
        let levels = Levels::of(self);
        let mut level = 0;
        for (entry, &(key, value)) in entries.iter().enumerate() {
            let text = self.text_instead_of(level, key, value);
            let value = text.as_ref().map_or(value, AddressText::as_str);
            // The node of the descriptor, and not its form for this address.
            let found = self.step(level, key, value).map(|(at, _)| at);
            let found = found.and_then(|at| Some((at, self.nodes.get(at as usize)?)));
            if let Some((_, node)) = found.filter(|_| entry < end) {
                let why = Mismatch::Deeper { entry: entry + 1 };
                missed.extend(rules_of(node).map(|rules| Missed { rules, why }));
                if node.below != NONE {
                    level = node.below;
                    continue;
                }
            }
            if let Some((_, node)) = found.filter(|_| entry == end) {
                let applies = self.find(entries, tier);
                for rules in rules_of(node) {
                    missed.extend(others(rules, applies, entry));
                }
                for (wanted, child) in levels.at(node.below) {
                    levels.add_all(child, Mismatch::Missing { wanted }, &mut missed);
                }
            }
            let found = found.map(|(found, _)| found);
            for (wanted, node) in levels.at(level).filter(|(at, _)| found != Some(*at)) {
                let is_value = self.accepts(wanted, node, value);
                let why = match found {
                    _ if !fits(&node.key, key) => Mismatch::Key { entry, wanted },
                    Some(by) if is_value => Mismatch::Hidden { entry, by },
                    // If no descriptor was found, none matches.
                    _ => Mismatch::Value { entry, wanted },
                };
                levels.add_all(node, why, &mut missed);
            }
            break;
        }
        missed.retain(|missed| !missed.rules.rules().is_empty());
        missed.sort_by_key(|missed| missed.why);
        missed
    }

    /// Whether a descriptor matches a value.
    fn accepts(&self, at: u32, node: &TreeNode, value: &str) -> bool {
        match (&node.value, self.ranges_of(at)) {
            (Some(wanted), _) => {
                let in_lower_case = || {
                    let wanted =
                        pattern_in_lower_case(wanted).filter(|_| self.reads_addresses(node.level, &node.key));
                    wanted.is_some_and(|wanted| fits(&wanted, value))
                };
                fits(wanted, value) || in_lower_case()
            }
            (None, []) => true,
            (None, ranges) => {
                address_of(value).is_some_and(|address| ranges.iter().any(|range| range.contains(&address)))
            }
        }
    }

    /// Returns the key, and the value or the ranges of a descriptor.
    pub fn file_entry(&self, at: u32) -> FileEntry<'_> {
        let node = self.nodes.get(at as usize);
        node.map_or_else(FileEntry::default, |node| FileEntry {
            key: &node.key,
            value: node.value.as_deref(),
            ranges: self.ranges_of(at),
        })
    }
}

/// Returns the rules that do not apply, among the own rules of a descriptor or of a tier.
fn others(rules: FoundRules, applies: FoundRules, entry: usize) -> impl Iterator<Item = Missed> {
    let each = match rules.around(applies) {
        // Before the rules that apply are steps for IPv6, and after them steps for IPv4.
        Some([ipv6, ipv4]) => [(ipv6, true), (ipv4, false)]
            .map(|(rules, is_ipv6)| Missed { rules, why: Mismatch::Family { entry, is_ipv6 } }),
        None => [rules, FoundRules::default()].map(|rules| Missed { rules, why: Mismatch::Tier }),
    };
    each.into_iter()
}

/// Whether a key or a value of the file matches a text.
fn fits(wanted: &str, text: &str) -> bool {
    Pattern::new(wanted).map_or(wanted == text, |pattern| pattern.matches(text))
}
