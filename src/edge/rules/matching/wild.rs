//! The wildcards of one level: which of those that match was declared first.
//!
//! Wildcards with a plain key are found by it; among them, by what they begin with, or by what they end in, whichever fewer others
//! share. Those that have neither (`*x*`, `*`) are tried one after another, and so are those with a `*` in their key.

use std::collections::HashMap;

use super::affixes::{Affixes, Candidate, NONE, first_of};
use super::pattern::Pattern;

#[derive(Debug)]
pub(crate) struct Wildcards {
    /// By key.
    plain: Vec<(Box<str>, Group)>,
    /// In the order of declaration.
    any_key: Vec<WildKey>,
}

/// Wildcards with the same key, without a `*` in it.
#[derive(Debug)]
struct Group {
    prefixes: Affixes,
    suffixes: Affixes,
    rest: Vec<Candidate>,
}

#[derive(Debug)]
struct WildKey {
    key: Pattern,
    value: WildValue,
    node: u32,
}

#[derive(Debug)]
enum WildValue {
    Any,
    Exact(Box<str>),
    Like(Pattern),
}

impl Wildcards {
    /// Of keys, values and nodes in the order of declaration; in each a `*`, in the key or in the value.
    pub(crate) fn new<'t>(entries: impl IntoIterator<Item = (&'t str, Option<&'t str>, u32)>) -> Self {
        let mut by_key: HashMap<&str, Vec<(Pattern, u32)>> = HashMap::new();
        let mut any_key = Vec::new();
        for (key, value, node) in entries {
            let pattern = value.and_then(Pattern::new);
            match (Pattern::new(key), pattern, value) {
                (Some(key), None, None) => any_key.push(WildKey { key, value: WildValue::Any, node }),
                (Some(key), None, Some(value)) => {
                    any_key.push(WildKey { key, value: WildValue::Exact(value.into()), node });
                }
                (Some(key), Some(like), _) => {
                    any_key.push(WildKey { key, value: WildValue::Like(like), node });
                }
                (None, Some(like), _) => by_key.entry(key).or_default().push((like, node)),
                // No wildcard.
                (None, None, _) => {}
            }
        }
        let mut plain: Vec<(Box<str>, Group)> =
            by_key.into_iter().map(|(key, patterns)| (key.into(), Group::new(patterns))).collect();
        plain.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self { plain, any_key }
    }

    /// The node of the first declared wildcard that matches.
    pub(crate) fn first(&self, key: &str, value: &str) -> Option<u32> {
        let mut best = NONE;
        let group = match &self.plain[..] {
            [(only, group)] => (**only == *key).then_some(group),
            plain => {
                let at = plain.binary_search_by(|(one, _)| (**one).cmp(key)).ok();
                at.and_then(|at| plain.get(at)).map(|(_, group)| group)
            }
        };
        if let Some(group) = group {
            group.first(value, &mut best);
        }
        for wild in self.any_key.iter().take_while(|wild| wild.node < best) {
            let wanted = match &wild.value {
                WildValue::Any => true,
                WildValue::Exact(exact) => **exact == *value,
                WildValue::Like(pattern) => pattern.matches(value),
            };
            if wanted && wild.key.matches(key) {
                best = wild.node;
                break;
            }
        }
        (best != NONE).then_some(best)
    }
}

impl Group {
    fn new(patterns: Vec<(Pattern, u32)>) -> Self {
        let mut shared: HashMap<(bool, Box<str>), usize> = HashMap::new();
        for (pattern, _) in &patterns {
            *shared.entry((false, pattern.prefix().into())).or_default() += 1;
            *shared.entry((true, pattern.suffix().into())).or_default() += 1;
        }
        let (mut prefixes, mut suffixes, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for (pattern, node) in patterns {
            let (prefix, suffix) = (pattern.prefix(), pattern.suffix());
            let count = |is_suffix, text: &str| {
                let found = shared.get(&(is_suffix, text.into())).copied();
                found.filter(|_| !text.is_empty()).unwrap_or(usize::MAX)
            };
            let (starting, ending) = (count(false, prefix), count(true, suffix));
            if starting == usize::MAX && ending == usize::MAX {
                let certain = pattern.is_prefix();
                rest.push(Candidate { node, pattern: (!certain).then_some(pattern) });
            } else if starting <= ending {
                let affix = Box::from(prefix.as_bytes());
                let certain = pattern.is_prefix();
                prefixes.push((affix, Candidate { node, pattern: (!certain).then_some(pattern) }));
            } else {
                let affix = Box::from(suffix.as_bytes());
                let certain = pattern.is_suffix();
                suffixes.push((affix, Candidate { node, pattern: (!certain).then_some(pattern) }));
            }
        }
        let (prefixes, suffixes) = (Affixes::new(prefixes, false), Affixes::new(suffixes, true));
        Self { prefixes, suffixes, rest }
    }

    fn first(&self, value: &str, best: &mut u32) {
        self.prefixes.first(value, best);
        self.suffixes.first(value, best);
        first_of(&self.rest, value, best);
    }
}
