//! What a search in the tree needs to read values as addresses: the ranges of a level, and the *forms* of a node.
//!
//! A node has several forms if its rules depend on the address: one for each kind of values if it has `prefixes`, and
//! one more for the addresses in the ranges of each tier. A form is a node of its own, with the rules for these
//! addresses, so the rest of a search does not read addresses.

use std::collections::HashMap;
use std::net::IpAddr;

use ahash::RandomState;
use ipnet::IpNet;

use super::address::Ranges;
use super::branch::AddressKind;
use super::is_same;
use super::node::{ReadingBranch, TreeLevel, TreeNode};

/// The levels of a tree that reads addresses.
#[derive(Debug)]
pub(super) struct ByAddress {
    levels: Vec<TreeLevel>,
    /// The number of nodes before the first form.
    pub(super) forms_from: usize,
    /// For each level, the ranges of each key whose values are read as addresses. Sorted by key.
    ranges: Vec<Vec<(Box<str>, Ranges)>>,
    /// The ranges of each descriptor, by node. Only explanations read them.
    declared: HashMap<u32, Box<[IpNet]>, RandomState>,
    forms: HashMap<u32, Forms, RandomState>,
}

/// The forms of a node.
#[derive(Debug)]
struct Forms {
    /// By kind.
    by_kind: [u32; AddressKind::ALL.len()],
    /// For addresses in the ranges of tiers.
    by_tier: Ranges,
}

impl ByAddress {
    /// Adds the forms of all branches that read addresses to the nodes.
    pub(super) fn new(
        levels: Vec<TreeLevel>,
        nodes: &mut Vec<TreeNode>,
        reading: &[ReadingBranch<'_>],
    ) -> Self {
        let forms_from = nodes.len();
        let mut ranges: HashMap<(u32, &str), Vec<(IpNet, u32)>> = HashMap::new();
        let (mut declared, mut forms) = (HashMap::default(), HashMap::default());
        for of in reading {
            let own = of.branch.ranges.iter().map(|range| (*range, of.node));
            ranges.entry((of.level, &of.branch.key)).or_default().extend(own);
            if !of.branch.ranges.is_empty() {
                declared.insert(of.node, of.branch.ranges.clone());
            }
            if of.branch.has_forms() {
                forms.insert(of.node, Forms::new(of, nodes));
            }
        }
        let mut by_level: Vec<Vec<(Box<str>, Ranges)>> = levels.iter().map(|_| Vec::new()).collect();
        for ((level, key), ranges) in ranges {
            if let Some(keys) = by_level.get_mut(level as usize) {
                keys.push((key.into(), Ranges::new(ranges)));
            }
        }
        by_level.iter_mut().for_each(|keys| keys.sort_by(|(one, _), (other, _)| one.cmp(other)));
        Self { levels, forms_from, ranges: by_level, declared, forms }
    }

    pub(super) fn level(&self, level: u32) -> Option<&TreeLevel> {
        self.levels.get(level as usize)
    }

    /// Returns the ranges of a key, which may be none. `None` if values of the key are not read as addresses.
    pub(super) fn ranges(&self, level: u32, key: &str) -> Option<&Ranges> {
        match &**self.ranges.get(level as usize)? {
            // Most levels with ranges have them for one key.
            [(only, ranges)] => is_same(only, key).then_some(ranges),
            keys => {
                let at = keys.binary_search_by(|(one, _)| (**one).cmp(key)).ok()?;
                keys.get(at).map(|(_, ranges)| ranges)
            }
        }
    }

    /// Returns the ranges of a node's descriptor.
    pub(super) fn ranges_of(&self, node: u32) -> &[IpNet] {
        self.declared.get(&node).map(|ranges| &**ranges).unwrap_or_default()
    }

    /// Returns the form of a node for a value: the node itself if it has no other.
    pub(super) fn form(&self, node: u32, address: impl FnOnce() -> Option<IpAddr>) -> u32 {
        let Some(Forms { by_kind, by_tier }) = self.forms.get(&node) else { return node };
        let address = address();
        let of_kind = || by_kind[AddressKind::of(address) as usize];
        address.and_then(|address| by_tier.find(address)).unwrap_or_else(of_kind)
    }
}

impl Forms {
    fn new(of: &ReadingBranch<'_>, nodes: &mut Vec<TreeNode>) -> Self {
        let ReadingBranch { branch, node, .. } = *of;
        let mut add = |own, kind| {
            let number = u32::try_from(nodes.len()).unwrap_or(node);
            let form = nodes.get(node as usize).map(|base| base.form(of, own, kind));
            nodes.extend(form);
            number
        };
        let by_kind = AddressKind::ALL.map(|kind| add(&branch.own, kind));
        let mut by_tier = Vec::new();
        for tier in branch.tiers.iter().filter(|tier| !tier.ranges.is_empty()) {
            let [ipv4, ipv6] = [AddressKind::Ipv4, AddressKind::Ipv6].map(|kind| add(&tier.rules, kind));
            let of = |range: &IpNet| if matches!(range, IpNet::V4(_)) { ipv4 } else { ipv6 };
            by_tier.extend(tier.ranges.iter().map(|range| (*range, of(range))));
        }
        Self { by_kind, by_tier: Ranges::new(by_tier) }
    }
}
