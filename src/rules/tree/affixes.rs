//! Which of many patterns matches first, found by the literal text that they begin with, or end in.
//!
//! The affixes lie sorted. The longest that a text begins with is the greatest that is not behind the text, or else one that *it*
//! begins with: its parent, its parent's parent, and so on. Each knows the first declared of the patterns that match for certain by
//! it or by one of those above it; patterns that must be looked at further are found from affix to affix.

use std::cmp::Ordering;

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
    let earlier = candidates.iter().take_while(|candidate| candidate.node < *best);
    if let Some(candidate) = earlier.into_iter().find(|candidate| candidate.matches(text)) {
        *best = candidate.node;
    }
}

#[derive(Debug)]
struct Affix {
    text: Box<[u8]>,
    /// The longest other one that this one begins with.
    parent: u32,
    /// One further above, so that a long chain is climbed in a few steps.
    jump: u32,
    depth: u32,
    /// The first node that matches whatever begins with this.
    certain: u32,
    /// To be looked at further.
    candidates: Box<[Candidate]>,
    /// This one or the nearest above that has candidates.
    next: u32,
}

/// Prefixes, or suffixes from their end.
#[derive(Debug, Default)]
pub(super) struct Affixes {
    sorted: Vec<Affix>,
    reversed: bool,
}

impl Affixes {
    /// Of pairs of an affix and a candidate, which come in the order of declaration.
    pub(super) fn new(mut all: Vec<(Box<[u8]>, Candidate)>, reversed: bool) -> Self {
        if reversed {
            all.iter_mut().for_each(|(text, _)| text.reverse());
        }
        // Stable: candidates of one affix stay in their order.
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut sorted: Vec<Affix> = Vec::new();
        let mut gathered: Vec<Candidate> = Vec::new();
        let mut all = all.into_iter().peekable();
        while let Some((text, candidate)) = all.next() {
            gathered.push(candidate);
            if all.peek().is_some_and(|(next, _)| *next == text) {
                continue;
            }
            let (certain, looked_at) =
                std::mem::take(&mut gathered).into_iter().partition::<Vec<_>, _>(|one| one.pattern.is_none());
            let certain = certain.first().map_or(NONE, |candidate| candidate.node);
            push(&mut sorted, text, certain, looked_at.into());
        }
        Self { sorted, reversed }
    }

    /// The first declared node that matches, if it is before the best so far.
    pub(super) fn first(&self, text: &str, best: &mut u32) {
        let bytes = text.as_bytes();
        let behind =
            self.sorted.partition_point(|affix| self.compare(&affix.text, bytes) != Ordering::Greater);
        let Some(mut at) = behind.checked_sub(1) else { return };
        let common = self.common(&self.sorted[at].text, bytes);
        while self.sorted[at].text.len() > common {
            let Affix { parent, jump, .. } = self.sorted[at];
            let over = self.sorted.get(jump as usize).filter(|affix| affix.text.len() > common);
            let above = if over.is_some() { jump } else { parent };
            if above == NONE {
                return;
            }
            at = above as usize;
        }
        *best = self.sorted[at].certain.min(*best);
        let mut next = self.sorted[at].next;
        while let Some(affix) = self.sorted.get(next as usize) {
            first_of(&affix.candidates, text, best);
            next = self.sorted.get(affix.parent as usize).map_or(NONE, |parent| parent.next);
        }
    }

    fn compare(&self, affix: &[u8], text: &[u8]) -> Ordering {
        if self.reversed { affix.iter().cmp(text.iter().rev()) } else { affix.cmp(text) }
    }

    fn common(&self, affix: &[u8], text: &[u8]) -> usize {
        if self.reversed {
            affix.iter().zip(text.iter().rev()).take_while(|(one, other)| one == other).count()
        } else {
            affix.iter().zip(text).take_while(|(one, other)| one == other).count()
        }
    }
}

/// Appends an affix that sorts behind all that are there.
fn push(sorted: &mut Vec<Affix>, text: Box<[u8]>, certain: u32, candidates: Box<[Candidate]>) {
    // The one before, or one that it begins with.
    let mut parent = sorted.len().checked_sub(1);
    while let Some(at) = parent {
        if text.starts_with(&sorted[at].text) {
            break;
        }
        parent = usize::try_from(sorted[at].parent).ok().filter(|&above| above < sorted.len());
    }
    let index = u32::try_from(sorted.len()).unwrap_or(NONE);
    let mut affix = Affix { text, parent: NONE, jump: NONE, depth: 0, certain, candidates, next: NONE };
    if let Some((at, above)) = parent.and_then(|at| Some((u32::try_from(at).ok()?, sorted.get(at)?))) {
        affix.parent = at;
        affix.depth = above.depth + 1;
        affix.certain = certain.min(above.certain);
        affix.next = above.next;
        // Jumps of equal length, one after another, make one of twice the length: any ancestor is a logarithm of steps away.
        let depth = |at: u32| sorted.get(at as usize).map_or(0, |affix| affix.depth);
        let far = sorted.get(above.jump as usize).map_or(NONE, |affix| affix.jump);
        let equal = above.jump != NONE
            && far != NONE
            && above.depth - depth(above.jump) == depth(above.jump) - depth(far);
        affix.jump = if equal { far } else { at };
    }
    if !affix.candidates.is_empty() {
        affix.next = index;
    }
    sorted.push(affix);
}
