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
            let Some(wild_key) = Pattern::new(key) else {
                // Without a pattern either it is no wildcard.
                by_key.entry(key).or_default().extend(pattern.map(|like| (like, node)));
                continue;
            };
            let value = match (pattern, value) {
                (Some(like), _) => WildValue::Like(like),
                (None, Some(exact)) => WildValue::Exact(exact.into()),
                (None, None) => WildValue::Any,
            };
            any_key.push(WildKey { key: wild_key, value, node });
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
        // Of each affix, how many have it: prefixes are 0, and suffixes 1.
        let mut shared: HashMap<(usize, Box<str>), usize> = HashMap::new();
        for (pattern, _) in &patterns {
            for (side, (affix, _)) in pattern.affixes().into_iter().enumerate() {
                *shared.entry((side, affix.into())).or_default() += 1;
            }
        }
        let ([mut prefixes, mut suffixes], mut rest) = ([Vec::new(), Vec::new()], Vec::new());
        for (pattern, node) in patterns {
            let affixes = pattern.affixes();
            let sharing = [0, 1].map(|side: usize| {
                let (affix, _) = affixes[side];
                let found = shared.get(&(side, affix.into())).copied();
                found.filter(|_| !affix.is_empty()).unwrap_or(usize::MAX)
            });
            let is_suffix = sharing[1] < sharing[0];
            let (affix, certain) = affixes[usize::from(is_suffix)];
            let affix = Box::<[u8]>::from(affix.as_bytes());
            let candidate = Candidate { node, pattern: (!certain).then_some(pattern) };
            match is_suffix {
                true => suffixes.push((affix, candidate)),
                false if affix.is_empty() => rest.push(candidate),
                false => prefixes.push((affix, candidate)),
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
