//! Finds the first declared pattern that matches, among many, by the literal prefix or suffix of each pattern (its
//! affix).
//!
//! 1. The search for the longest affix of a text bisects the affixes' *lengths*. Each hash look-up shows whether a
//!    longer affix may exist. For this, each affix leaves marks at the lengths that the search tries on its way to it,
//!    and each mark stores the longest affix up to it (Waldvogel, Varghese, Turner and Plattner 1997, for routes). One
//!    length needs one look-up; a thousand lengths need ten.
//! 2. From the longest affix, the search follows *parents*: each affix stores the longest other affix that it begins
//!    with.
//! 3. Each affix also stores the first declared pattern that certainly matches by this affix or one of its parents.
//!    Patterns that need a further test are found by following the parents.

use std::collections::HashMap;

use ahash::RandomState;
use hashbrown::HashTable;

use super::pattern::Pattern;

/// Means "no node" or "no affix".
pub(super) const NONE: u32 = u32::MAX;

/// A pattern that may match, and the node that it leads to. Nodes are numbered in the order of declaration.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) node: u32,
    /// `None` if the pattern certainly matches.
    pub(super) pattern: Option<Pattern>,
}

/// Returns the first declared candidate that matches, if it precedes the best so far. The candidates are in the order
/// of declaration.
fn first_of(candidates: &[Candidate], text: &str, best: &mut u32) {
    let mut earlier = candidates.iter().take_while(|candidate| candidate.node < *best);
    let matches = |pattern: &Pattern| pattern.matches(text);
    if let Some(candidate) = earlier.find(|candidate| candidate.pattern.as_ref().is_none_or(matches)) {
        *best = candidate.node;
    }
}

#[derive(Debug)]
struct Affix {
    parent: u32,
    /// The first node that matches every text with this affix.
    certain: u32,
    /// The candidates that need a further test.
    candidates: Box<[Candidate]>,
    /// This affix or its nearest parent that has candidates.
    next: u32,
}

/// A mark on the way to an affix, or an affix.
#[derive(Debug)]
struct Marker {
    text: Box<[u8]>,
    /// The longest affix that this text begins with, or ends in.
    longest: u32,
}

/// Prefixes, or suffixes.
#[derive(Debug)]
pub(super) struct Affixes {
    are_suffixes: bool,
    hasher: RandomState,
    affixes: Vec<Affix>,
    marks: HashTable<Marker>,
    /// The lengths, shortest first.
    lengths: Vec<usize>,
}

impl Affixes {
    /// Builds the table from pairs of an affix and a candidate, in the order of declaration.
    pub(super) fn new(mut all: Vec<(Box<[u8]>, Candidate)>, are_suffixes: bool) -> Self {
        // From here to the marks, all affixes are treated as prefixes.
        if are_suffixes {
            all.iter_mut().for_each(|(text, _)| text.reverse());
        }
        // The sort is stable: candidates of one affix stay in their order.
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (texts, candidates): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let mut candidates = candidates.into_iter();
        let mut lengths: Vec<usize> = texts.iter().map(|text| text.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut affixes: Vec<Affix> = Vec::new();
        // The affixes that the current one begins with, and itself. Each begins with those before it.
        let mut chain: Vec<(&[u8], u32)> = Vec::new();
        let mut marks: HashMap<&[u8], u32> = HashMap::new();
        for same in texts.chunk_by(|one, other| one == other) {
            let text: &[u8] = &same[0];
            let (certain, candidates): (Vec<_>, Vec<_>) =
                candidates.by_ref().take(same.len()).partition(|one| one.pattern.is_none());
            while chain.pop_if(|(above, _)| !text.starts_with(above)).is_some() {}
            let parent = chain.last().map_or(NONE, |&(_, above)| above);
            let above = affixes.get(parent as usize);
            let here = u32::try_from(affixes.len()).unwrap_or(NONE);
            let next = match &candidates[..] {
                [] => above.map_or(NONE, |above| above.next),
                _ => here,
            };
            let certain = certain.first().map_or(NONE, |candidate| candidate.node);
            let certain = above.map_or(certain, |above| above.certain.min(certain));
            affixes.push(Affix { parent, certain, candidates: candidates.into(), next });
            chain.push((text, here));
            bisect(&lengths, |length| {
                let Some(begin) = text.get(..length) else { return false };
                let up_to = chain.partition_point(|(above, _)| above.len() <= length);
                marks.entry(begin).or_insert_with(|| chain[..up_to].last().map_or(NONE, |&(_, above)| above));
                true
            });
        }
        let hasher = RandomState::new();
        let mut made = HashTable::with_capacity(marks.len());
        for (text, longest) in marks {
            let mut text = Box::from(text);
            if are_suffixes {
                <[u8]>::reverse(&mut text);
            }
            let again = |mark: &Marker| hasher.hash_one(&*mark.text);
            made.insert_unique(hasher.hash_one(&*text), Marker { text, longest }, again);
        }
        Self { are_suffixes, hasher, affixes, marks: made, lengths }
    }

    /// Returns the first declared node that matches, if it precedes the best so far.
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

/// Tries lengths, and continues with longer ones after a hit. The order is the same for setting marks and for the
/// search.
#[inline]
fn bisect(lengths: &[usize], mut is_there: impl FnMut(usize) -> bool) {
    let mut left = lengths;
    while let Some(&length) = left.get(left.len() / 2) {
        let (shorter, longer) = left.split_at(left.len() / 2);
        left = if is_there(length) { &longer[1..] } else { shorter };
    }
}
