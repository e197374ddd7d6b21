//! Which of many patterns matches first, found by the literal text that they begin with, or end in.
//!
//! The longest affix of a text is found by bisecting the affixes' *lengths*: each look-up by hash says whether there is a longer one
//! to look for. So that it can, each affix leaves marks at the lengths that are tried on the way to its own, and each mark knows the
//! longest affix up to it (Waldvogel, Varghese, Turner and Plattner 1997, for routes). With one length it is one look-up; with a
//! thousand, ten.
//!
//! From the longest affix of a text the others are its *parents*: each affix knows the longest other one that it begins with. It also
//! knows the first declared of the patterns that match for certain by it or by one of those above it; patterns that must be looked at
//! further are found from affix to affix.

use std::cmp::Ordering;
use std::collections::HashMap;

use ahash::RandomState;
use hashbrown::HashTable;

use super::pattern::Pattern;

/// No node, no affix.
pub(super) const NONE: u32 = u32::MAX;

/// A pattern that may match, and the node that it leads to. Nodes are numbered as they are declared.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) node: u32,
    /// `None`: it matches for certain.
    pub(super) pattern: Option<Pattern>,
}

impl Candidate {
    pub(super) fn matches(&self, text: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(text))
    }
}

/// The first declared of the candidates that match, if it is before the best so far; they are in the order of declaration.
pub(super) fn first_of(candidates: &[Candidate], text: &str, best: &mut u32) {
    let mut earlier = candidates.iter().take_while(|candidate| candidate.node < *best);
    if let Some(candidate) = earlier.find(|candidate| candidate.matches(text)) {
        *best = candidate.node;
    }
}

#[derive(Debug)]
struct Affix {
    parent: u32,
    /// The first node that matches whatever begins with this.
    certain: u32,
    /// To be looked at further.
    candidates: Box<[Candidate]>,
    /// This one or the nearest above that has candidates.
    next: u32,
}

/// A text on the way to an affix, or an affix.
#[derive(Debug)]
struct Marker {
    text: Box<[u8]>,
    /// The longest affix that it begins with, or ends in.
    longest: u32,
}

/// Prefixes, or suffixes.
#[derive(Debug)]
pub(super) struct Affixes {
    are_suffixes: bool,
    hasher: RandomState,
    affixes: Vec<Affix>,
    marks: HashTable<Marker>,
    /// From the shortest.
    lengths: Vec<usize>,
}

impl Affixes {
    /// Of pairs of an affix and a candidate, which come in the order of declaration.
    pub(super) fn new(mut all: Vec<(Box<[u8]>, Candidate)>, are_suffixes: bool) -> Self {
        // From here to the marks all are prefixes.
        if are_suffixes {
            all.iter_mut().for_each(|(text, _)| text.reverse());
        }
        // Stable: candidates of one affix stay in their order.
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut chain = Chain::default();
        let mut affixes: Vec<Affix> = Vec::new();
        let mut gathered: Vec<Candidate> = Vec::new();
        let mut all = all.into_iter().peekable();
        while let Some((text, candidate)) = all.next() {
            gathered.push(candidate);
            if all.peek().is_some_and(|(next, _)| *next == text) {
                continue;
            }
            let (certain, candidates): (Vec<_>, Vec<_>) =
                std::mem::take(&mut gathered).into_iter().partition(|one| one.pattern.is_none());
            let parent = chain.push(text);
            let above = affixes.get(parent as usize);
            let certain = certain.first().map_or(NONE, |candidate| candidate.node);
            let next = match &candidates[..] {
                [] => above.map_or(NONE, |above| above.next),
                _ => u32::try_from(affixes.len()).unwrap_or(NONE),
            };
            let certain = above.map_or(certain, |above| above.certain.min(certain));
            affixes.push(Affix { parent, certain, candidates: candidates.into(), next });
        }
        let mut lengths: Vec<usize> = chain.links.iter().map(|link| link.text.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut made =
            Self { are_suffixes, hasher: RandomState::new(), affixes, marks: HashTable::new(), lengths };
        made.mark(&chain);
        made
    }

    fn mark(&mut self, chain: &Chain) {
        let mut texts: HashMap<&[u8], u32> = HashMap::new();
        for ChainLink { text, .. } in &chain.links {
            bisect(&self.lengths, |length| {
                let Some(begin) = text.get(..length) else { return false };
                texts.entry(begin).or_insert_with(|| chain.longest(begin));
                true
            });
        }
        for (text, longest) in texts {
            let mut text = Box::from(text);
            if self.are_suffixes {
                <[u8]>::reverse(&mut text);
            }
            let again = |mark: &Marker| self.hasher.hash_one(&*mark.text);
            self.marks.insert_unique(self.hasher.hash_one(&*text), Marker { text, longest }, again);
        }
    }

    /// The first declared node that matches, if it is before the best so far.
    pub(super) fn first(&self, text: &str, best: &mut u32) {
        let bytes = text.as_bytes();
        let mut longest = NONE;
        bisect(&self.lengths, |length| {
            let part = match bytes.len().checked_sub(length) {
                None => return false,
                Some(rest) if self.are_suffixes => &bytes[rest..],
                Some(_) => &bytes[..length],
            };
            let mark = self.marks.find(self.hasher.hash_one(part), |mark| *mark.text == *part);
            longest = mark.map_or(longest, |mark| mark.longest);
            mark.is_some()
        });
        let Some(affix) = self.affixes.get(longest as usize) else { return };
        *best = affix.certain.min(*best);
        let mut next = affix.next;
        while let Some(affix) = self.affixes.get(next as usize) {
            first_of(&affix.candidates, text, best);
            next = self.affixes.get(affix.parent as usize).map_or(NONE, |parent| parent.next);
        }
    }
}

/// Tries lengths, the longer ones when one was there: in the same order when marks are made and when they are looked for.
#[inline]
fn bisect(lengths: &[usize], mut is_there: impl FnMut(usize) -> bool) {
    let mut left = lengths;
    while let Some(&length) = left.get(left.len() / 2) {
        let (shorter, longer) = left.split_at(left.len() / 2);
        left = if is_there(length) { &longer[1..] } else { shorter };
    }
}

/// Prefixes, sorted, while the marks are made.
#[derive(Debug, Default)]
struct Chain {
    links: Vec<ChainLink>,
}

#[derive(Debug)]
struct ChainLink {
    text: Box<[u8]>,
    /// The longest other one that this one begins with.
    parent: u32,
    /// One further above, so that a long way is climbed in a few steps.
    jump: u32,
    depth: u32,
}

impl Chain {
    /// Appends a prefix that sorts behind all that are there, and says which is its parent.
    fn push(&mut self, text: Box<[u8]>) -> u32 {
        let parent = self.longest(&text);
        let depth = |at: u32| self.links.get(at as usize).map_or(0, |link| link.depth);
        let (jump, depth) = match self.links.get(parent as usize) {
            None => (NONE, 0),
            Some(above) => {
                let far = self.links.get(above.jump as usize).map_or(NONE, |link| link.jump);
                // Jumps of equal length, one after another, make one of twice the length: any ancestor is a logarithm of steps away.
                let equal = above.jump != NONE
                    && far != NONE
                    && above.depth - depth(above.jump) == depth(above.jump) - depth(far);
                (if equal { far } else { parent }, above.depth + 1)
            }
        };
        self.links.push(ChainLink { text, parent, jump, depth });
        parent
    }

    /// The longest that a text begins with: the greatest that is not behind the text, or one that *that* begins with.
    fn longest(&self, text: &[u8]) -> u32 {
        let behind = self.links.partition_point(|link| (*link.text).cmp(text) != Ordering::Greater);
        let Some(mut at) = behind.checked_sub(1) else { return NONE };
        let common = self.links[at].text.iter().zip(text).take_while(|(one, other)| one == other).count();
        while self.links[at].text.len() > common {
            let ChainLink { parent, jump, .. } = self.links[at];
            let is_far = self.links.get(jump as usize).is_some_and(|link| link.text.len() > common);
            let above = if is_far { jump } else { parent };
            if above == NONE {
                return NONE;
            }
            at = above as usize;
        }
        u32::try_from(at).unwrap_or(NONE)
    }
}
