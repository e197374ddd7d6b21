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

/// The first declared of the candidates that match, if it is before the best so far; they are in the order of declaration.
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
        let (texts, candidates): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let mut candidates = candidates.into_iter();
        let mut lengths: Vec<usize> = texts.iter().map(|text| text.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut affixes: Vec<Affix> = Vec::new();
        // The affixes that the present one begins with, and itself: each begins with those before it.
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
