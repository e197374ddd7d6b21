//! Why the search of a [`Tree`] finds the rules of one descriptor and not those of others.
//!
//! The search itself chooses the way. The rules that are listed are those that fail at its last step: the descriptors
//! beside the last one that was found, those below it, and those that it passed on its way.

use super::pattern::Pattern;
use super::tree::{FoundRules, Tree, TreeNode};

/// Why the rules of a descriptor of the file do not apply.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Miss {
    /// The limits of another tier apply.
    Tier,
    /// The request's entry also matches the node `by`, which comes first.
    Hidden { entry: u32, by: u32 },
    /// The request has no entry for this descriptor.
    Missing,
    /// The request has a further entry.
    Deeper { entry: u32 },
    /// The value of the request's entry is another one.
    Value { entry: u32 },
    /// The key of the request's entry is another one.
    Key { entry: u32 },
}

/// Rules that do not apply, all for the same reason.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Missed {
    /// The descriptor at which they fail.
    pub(crate) node: u32,
    pub(crate) rules: FoundRules,
    pub(crate) miss: Miss,
}

/// The nodes of a tree by level.
struct Levels<'t> {
    tree: &'t Tree,
    nodes: Vec<Vec<u32>>,
}

impl<'t> Levels<'t> {
    fn of(tree: &'t Tree) -> Self {
        let mut nodes = vec![Vec::new(); tree.levels.len()];
        for (at, node) in (0..).zip(&tree.nodes) {
            if let Some(level) = nodes.get_mut(node.level as usize) {
                level.push(at);
            }
        }
        Self { tree, nodes }
    }

    fn at(&self, level: u32) -> impl Iterator<Item = (u32, &'t TreeNode)> {
        let nodes = self.nodes.get(level as usize).into_iter().flatten();
        nodes.filter_map(|&at| Some((at, self.tree.nodes.get(at as usize)?)))
    }

    /// Adds all rules of a node and of the nodes below it.
    fn add_all(&self, (at, node): (u32, &TreeNode), miss: Miss, to: &mut Vec<Missed>) {
        // A file has a bounded number of levels.
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            to.extend(rules_of(node).map(|rules| Missed { node: at, rules, miss }));
            let below = waiting.len();
            waiting.extend(self.at(node.below).map(|(_, node)| node));
            // The first child is next.
            waiting[below..].reverse();
        }
    }
}

/// Returns the limits of a node: its own, and those of its tiers.
fn rules_of(node: &TreeNode) -> impl Iterator<Item = FoundRules> {
    std::iter::once(node.own).chain(node.tiers.iter().map(|(_, rules)| *rules))
}

impl Tree {
    /// Returns the rules that fail at the last step of a search, those first that fail latest.
    ///
    /// # Complexity
    /// O(nodes).
    pub(crate) fn missed(&self, entries: &[(&str, &str)], tier: Option<&str>) -> Vec<Missed> {
        let mut missed = Vec::new();
        let Some(end) = entries.len().checked_sub(1) else { return missed };
        let levels = Levels::of(self);
        let mut level = 0;
        for (index, (entry, &(key, value))) in (0..).zip(entries).enumerate() {
            let found = self.step(level, key, value);
            if let Some((at, node)) = found
                && index < end
            {
                let miss = Miss::Deeper { entry: entry + 1 };
                missed.extend(rules_of(node).map(|rules| Missed { node: at, rules, miss }));
                if self.levels.get(node.below as usize).is_some() {
                    level = node.below;
                    continue;
                }
            }
            if let Some((at, node)) = found
                && index == end
            {
                let applies = self.find(entries, tier);
                let others = rules_of(node).filter(|rules| *rules != applies);
                missed.extend(others.map(|rules| Missed { node: at, rules, miss: Miss::Tier }));
                levels.at(node.below).for_each(|child| levels.add_all(child, Miss::Missing, &mut missed));
            }
            for (at, node) in levels.at(level).filter(|(at, _)| found.is_none_or(|(found, _)| found != *at)) {
                let miss = match found {
                    _ if !fits(&node.key, key) => Miss::Key { entry },
                    _ if !node.value.as_ref().is_none_or(|wanted| fits(wanted, value)) => {
                        Miss::Value { entry }
                    }
                    Some((by, _)) => Miss::Hidden { entry, by },
                    // The search finds a descriptor if one matches.
                    None => Miss::Value { entry },
                };
                levels.add_all((at, node), miss, &mut missed);
            }
            break;
        }
        missed.retain(|missed| !missed.rules.rules().is_empty());
        missed.sort_by_key(|missed| missed.miss);
        missed
    }

    /// Returns the key and the value of a node.
    pub(crate) fn pair(&self, node: u32) -> (&str, Option<&str>) {
        self.nodes.get(node as usize).map_or(("", None), |node| (&node.key, node.value.as_deref()))
    }
}

/// Whether a key or a value of the file matches a text.
fn fits(wanted: &str, text: &str) -> bool {
    Pattern::new(wanted).map_or(wanted == text, |pattern| pattern.matches(text))
}
