//! Finds the first declared wildcard of a level that matches.
//!
//! Wildcards with a plain key are grouped by key. Within a key, the search uses the prefix or the suffix, whichever
//! fewer other wildcards share. If many share both, or if there is neither (`*x*`), the search uses a literal in
//! between. Wildcards with a `*` in their key are found by a literal of the key or of the value.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::affixes::{Affixes, Candidate, NONE};
use super::literals::{LONGEST, Literals, Needing};
use super::pattern::Pattern;

/// The maximum number of patterns with the same affix that are tried in order: up to this number, it is faster than a
/// search for literals.
const FEW: usize = 8;

#[derive(Debug)]
pub(crate) struct Wildcards {
    /// By key.
    plain: Vec<(Box<str>, Group)>,
    any_key: AnyKey,
}

/// The wildcards of one key that has no `*`.
#[derive(Debug)]
struct Group {
    prefixes: Affixes,
    suffixes: Affixes,
    literals: Literals<Pattern>,
    /// The first wildcard that matches every value.
    any: u32,
}

/// The wildcards with a `*` in their key.
#[derive(Debug)]
struct AnyKey {
    /// The wildcards that are found by a literal of the key.
    by_key: Literals<WildKey>,
    /// The wildcards that are found by a literal of the value.
    by_value: Literals<WildKey>,
    /// The first wildcard that matches every key and value.
    any: u32,
}

#[derive(Debug)]
struct WildKey {
    key: Pattern,
    value: WildValue,
}

#[derive(Debug)]
enum WildValue {
    Any,
    Exact(Box<str>),
    Like(Pattern),
}

impl Wildcards {
    /// Builds the search from keys, values and nodes in the order of declaration. Each has a `*` in its key or its
    /// value. An empty value means no value, as in files.
    pub(crate) fn new<'t>(entries: impl IntoIterator<Item = (&'t str, Option<&'t str>, u32)>) -> Self {
        let mut by_key: HashMap<&str, Vec<(Pattern, u32)>> = HashMap::new();
        let mut any_key = Vec::new();
        for (key, value, node) in entries {
            let value = value.filter(|value| !value.is_empty());
            let pattern = value.and_then(Pattern::new);
            let Some(wild_key) = Pattern::new(key) else {
                // An entry without a pattern in its key or value is not a wildcard.
                by_key.entry(key).or_default().extend(pattern.map(|like| (like, node)));
                continue;
            };
            let value = match (pattern, value) {
                (Some(like), _) => WildValue::Like(like),
                (None, Some(exact)) => WildValue::Exact(exact.into()),
                (None, None) => WildValue::Any,
            };
            any_key.push((WildKey { key: wild_key, value }, node));
        }
        let mut plain: Vec<(Box<str>, Group)> =
            by_key.into_iter().map(|(key, patterns)| (key.into(), Group::new(patterns))).collect();
        plain.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self { plain, any_key: AnyKey::new(any_key) }
    }

    /// Returns the node of the first declared wildcard that matches.
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
        self.any_key.first(key, value, &mut best);
        (best != NONE).then_some(best)
    }
}

/// The number of patterns that have a literal, for each of several positions in a pattern.
#[derive(Default)]
struct Shared<'t>(HashMap<(usize, &'t [u8]), usize>);

impl<'t> Shared<'t> {
    fn add(&mut self, place: usize, literals: impl Iterator<Item = &'t [u8]>) {
        literals.for_each(|literal| *self.0.entry((place, literal)).or_default() += 1);
    }

    /// Returns how many patterns have the literal, or the maximum if the literal is empty.
    fn count(&self, place: usize, literal: &[u8]) -> usize {
        let found = self.0.get(&(place, literal)).copied();
        found.filter(|_| !literal.is_empty()).unwrap_or(usize::MAX)
    }

    /// Returns the literal that the fewest patterns have. If several qualify, returns the longest.
    fn rarest(&self, place: usize, literals: impl Iterator<Item = &'t [u8]>) -> Option<(usize, &'t [u8])> {
        let all = literals.map(|literal| (self.count(place, literal), literal));
        all.min_by_key(|&(count, literal)| (count, Reverse(literal.len())))
    }
}

/// Returns the pieces of a literal that can be searched for: the whole literal if it is short.
fn pieces(literal: &[u8]) -> impl Iterator<Item = &[u8]> {
    let last = literal.len().saturating_sub(LONGEST);
    (0..last).step_by(LONGEST).chain([last]).map(move |at| &literal[at..literal.len().min(at + LONGEST)])
}

/// The number of pieces of a pattern from which one is chosen. Each piece takes a place in a map while the search is built.
const CHOSEN_FROM: usize = 16;

/// The pieces of some literals from which one is chosen.
fn choices<'t>(literals: impl Iterator<Item = &'t [u8]>) -> impl Iterator<Item = &'t [u8]> {
    literals.flat_map(pieces).take(CHOSEN_FROM)
}

impl Group {
    fn new(patterns: Vec<(Pattern, u32)>) -> Self {
        const PREFIX: usize = 0;
        const SUFFIX: usize = 1;
        const MIDDLE: usize = 2;
        enum By {
            Prefix,
            Suffix,
            Literal(Box<[u8]>),
            Nothing,
        }
        let mut shared = Shared::default();
        for (pattern, _) in &patterns {
            let [(prefix, _), (suffix, _)] = pattern.affixes();
            shared.add(PREFIX, std::iter::once(prefix.as_bytes()));
            shared.add(SUFFIX, std::iter::once(suffix.as_bytes()));
            shared.add(MIDDLE, choices(pattern.middle()));
        }
        let by = patterns.iter().map(|(pattern, _)| {
            let [(prefix, _), (suffix, _)] = pattern.affixes();
            let prefix = shared.count(PREFIX, prefix.as_bytes());
            let suffix = shared.count(SUFFIX, suffix.as_bytes());
            match shared.rarest(MIDDLE, choices(pattern.middle())) {
                Some((count, literal)) if count.max(FEW) < prefix.min(suffix) => By::Literal(literal.into()),
                _ if prefix == usize::MAX && suffix == usize::MAX => By::Nothing,
                _ if suffix < prefix => By::Suffix,
                _ => By::Prefix,
            }
        });
        let by: Vec<By> = by.collect();
        drop(shared);
        let (mut prefixes, mut suffixes, mut literals, mut any) = (Vec::new(), Vec::new(), Vec::new(), NONE);
        for ((pattern, node), by) in patterns.into_iter().zip(by) {
            let [prefix, suffix] = pattern.affixes();
            let ((affix, certain), affixes) = match by {
                By::Prefix => (prefix, &mut prefixes),
                By::Suffix => (suffix, &mut suffixes),
                By::Literal(literal) => {
                    // `*x*`, whose literal was not cut.
                    let certain = pattern.literals().eq([&*literal]);
                    literals.push(Needing { literal, certain, node, pattern });
                    continue;
                }
                By::Nothing => {
                    any = node.min(any);
                    continue;
                }
            };
            let affix = Box::<[u8]>::from(affix.as_bytes());
            affixes.push((affix, Candidate { node, pattern: (!certain).then_some(pattern) }));
        }
        let (prefixes, suffixes) = (Affixes::new(prefixes, false), Affixes::new(suffixes, true));
        Self { prefixes, suffixes, literals: Literals::new(literals), any }
    }

    fn first(&self, value: &str, best: &mut u32) {
        *best = self.any.min(*best);
        self.prefixes.first(value, best);
        self.suffixes.first(value, best);
        self.literals.first(value, best, |pattern| pattern.matches(value));
    }
}

impl AnyKey {
    fn new(wild: Vec<(WildKey, u32)>) -> Self {
        const KEY: usize = 0;
        const VALUE: usize = 1;
        let mut shared = Shared::default();
        for (one, _) in &wild {
            shared.add(KEY, choices(one.key.literals()));
            shared.add(VALUE, choices(one.value.literals()));
        }
        let chosen = wild.iter().map(|(one, _)| {
            let key = shared.rarest(KEY, choices(one.key.literals()));
            let value = shared.rarest(VALUE, choices(one.value.literals()));
            let count = |literal: Option<(usize, _)>| literal.map_or(usize::MAX, |(count, _)| count);
            let place = if count(value) < count(key) { VALUE } else { KEY };
            let (_, literal) = if place == VALUE { value? } else { key? };
            Some((place, Box::<[u8]>::from(literal)))
        });
        let chosen: Vec<_> = chosen.collect();
        drop(shared);
        let (mut by_key, mut by_value, mut any) = (Vec::new(), Vec::new(), NONE);
        for ((pattern, node), choice) in wild.into_iter().zip(chosen) {
            let Some((place, literal)) = choice else {
                any = node.min(any);
                continue;
            };
            let needing = Needing { literal, certain: false, node, pattern };
            if place == KEY { by_key.push(needing) } else { by_value.push(needing) }
        }
        Self { by_key: Literals::new(by_key), by_value: Literals::new(by_value), any }
    }

    fn first(&self, key: &str, value: &str, best: &mut u32) {
        *best = self.any.min(*best);
        self.by_key.first(key, best, |wild| wild.matches(key, value));
        self.by_value.first(value, best, |wild| wild.matches(key, value));
    }
}

impl WildValue {
    /// See [`Pattern::literals`].
    fn literals(&self) -> impl Iterator<Item = &[u8]> {
        let (exact, like) = match self {
            Self::Any => (None, None),
            Self::Exact(exact) => (Some(exact.as_bytes()), None),
            Self::Like(pattern) => (None, Some(pattern.literals())),
        };
        exact.into_iter().chain(like.into_iter().flatten())
    }
}

impl WildKey {
    fn matches(&self, key: &str, value: &str) -> bool {
        let is_wanted = match &self.value {
            WildValue::Any => true,
            WildValue::Exact(exact) => **exact == *value,
            WildValue::Like(pattern) => pattern.matches(value),
        };
        is_wanted && self.key.matches(key)
    }
}
