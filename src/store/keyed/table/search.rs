//! Sweeps, and the search for room in a full store: see the page of the table.

use std::hint::select_unpredictable;

use super::index::{EMPTY, Line, Places, SLOTS, is_filled, tag_of};
use super::removal::bury;
use super::{NodeTable, Occupied, SHARD_BITS, SHARDS};
use crate::algorithm::step::Tail;
use crate::base::memory::prefetch::prefetch;
use crate::base::reclaim::Pinned;
use crate::base::sync::{AtomicU64, Ordering};
use crate::store::keyed::nodes::KeyNode;

/// The number of words that are swept for each insert.
pub(super) const SWEPT: usize = PARTS * if cfg!(tollgate_loom) { 1 } else { 2 };
/// The number of parts of a sweep.
const PARTS: usize = 2;
/// The maximum number of inserts whose words one of them sweeps.
const TOGETHER_SWEPT: usize = 8;
/// The maximum number of words in a part of a sweep.
const IN_PART: usize = SWEPT * TOGETHER_SWEPT / PARTS;
/// The number of nodes that a search for room looks at before it asks whether one of them is idle.
pub(super) const RANKED_TOGETHER: usize = 6;
/// The maximum number of lines that a search visits.
const MOST_LINES_SEARCHED: usize = 4 * SHARDS;

/// The number of inserts into an index of this many lines whose words one of them sweeps.
pub(super) fn swept_together(lines: usize) -> usize {
    lines.min(TOGETHER_SWEPT)
}

/// The rank of a node that is passed over.
const NO_RANK: u64 = u64::MAX;

/// The node with the smallest rank among those that were looked at.
struct Ranked<'g> {
    rank: u64,
    slot: &'g AtomicU64,
    word: u64,
    /// The number of live nodes that were looked at.
    nodes: usize,
}

/// A filled word, and its slot.
type FoundWord<'g> = (u64, &'g AtomicU64);

/// The filled words among those that a sweep looks at.
struct Found<'g> {
    words: [FoundWord<'g>; IN_PART],
    len: usize,
}

impl<'g> Found<'g> {
    fn new(lines: &'g [Line]) -> Self {
        Self { words: [(EMPTY, &lines[0].0[0]); IN_PART], len: 0 }
    }

    /// Adds the word of this slot if it is filled. There is no branch, because a processor cannot predict which words are filled.
    #[inline(always)]
    fn look_at(&mut self, slot: &'g AtomicU64) {
        // Ordering: Acquire pairs with `fill`: the node is written.
        let word = slot.load(Ordering::Acquire);
        self.words[self.len] = (word, slot);
        self.len += usize::from(is_filled(word));
    }

    fn words(&self) -> &[FoundWord<'g>] {
        &self.words[..self.len]
    }

    /// Keeps the words that satisfy a condition, and returns their number.
    fn retain(&mut self, mut keeps: impl FnMut(&FoundWord<'g>) -> bool) -> i32 {
        let mut kept = 0;
        for place in 0..self.len {
            if keeps(&self.words[place]) {
                self.words[kept] = self.words[place];
                kept += 1;
            }
        }
        self.len = kept;
        i32::try_from(kept).unwrap_or(0)
    }
}

impl<K, T: Tail> NodeTable<K, T> {
    /// Visits the nodes of the next few words of a hash's shard, and unlinks those for which `kill` returns true. Ends after the
    /// first part if that has unlinked as many as were inserted.
    // Not inlined, because one insert of eight calls it, and the others would have room for its words on their stack.
    #[inline(never)]
    pub(in super::super) fn sweep(
        &self,
        hash: u64,
        guard: &Pinned,
        mut kill: impl FnMut(&KeyNode<K, T>) -> bool,
    ) {
        let shard = self.shard(hash);
        let (_, lines) = self.lines(shard, guard);
        let inserts = swept_together(lines.len());
        for _ in 0..PARTS {
            if self.sweep_part(shard, lines, SWEPT * inserts / PARTS, guard, &mut kill) >= inserts {
                break;
            }
        }
    }

    /// Sweeps this number of words, and returns the number of nodes that it has unlinked.
    fn sweep_part<'g>(
        &'g self,
        shard: usize,
        lines: &'g [Line],
        words: usize,
        guard: &'g Pinned,
        kill: &mut impl FnMut(&KeyNode<K, T>) -> bool,
    ) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "a few")]
        let hand = self.counts[shard].advance(words as u32);
        let mut found = Found::new(lines);
        for place in (0..words).map(|step| hand.wrapping_add(step)) {
            // The number of lines is a power of two.
            found.look_at(&lines[(place / SLOTS) & (lines.len() - 1)].0[place % SLOTS]);
        }
        // The nodes are prefetched, so that they come from memory at the same time.
        for (word, _) in found.words() {
            prefetch(self.node(*word, guard));
        }
        let is_removed = |&(word, slot): &FoundWord<'_>| {
            let node = self.node(word, guard);
            let is_removed = !node.state.is_dead() && kill(node);
            if is_removed {
                bury(slot);
            }
            is_removed
        };
        let removed = found.retain(is_removed);
        if removed > 0 {
            self.counts[shard].add(-removed);
            for &(word, slot) in found.words() {
                self.retire(&Occupied { node: self.node(word, guard), shard, word, slot }, guard);
            }
        }
        found.words().len()
    }

    /// Looks at up to `most` live nodes, and returns the one with the smallest rank, with this rank. The search starts at the
    /// slot where a key of this hash belongs. It ends early when it has found the rank 0, and passes over nodes whose rank is
    /// `None`. It passes over other keys only if other threads insert or remove keys, or if the table is almost empty.
    pub(in super::super) fn search<'g>(
        &'g self,
        hash: u64,
        most: usize,
        guard: &'g Pinned,
        mut rank: impl FnMut(&KeyNode<K, T>) -> Option<u64>,
    ) -> Option<(u64, Occupied<'g, K, T>)> {
        let (first, tag) = (self.shard(hash), tag_of(hash));
        let (mut left, mut passed, mut least) = (most, 0, None::<(u64, Occupied<'_, K, T>)>);
        let shards = 1_usize << self.used_bits.leading_ones().min(SHARD_BITS);
        // The numbers of used shards are multiples of this number.
        let stride = SHARDS / shards;
        for step in 0..2 * shards {
            // A key is counted after it is in the table, so a second round looks at all shards, if the first found nothing.
            if step == shards && left < most {
                break;
            }
            let shard = (first + step * stride) % SHARDS;
            // A small store has keys in few of its shards.
            if step < shards && self.counts[shard].live() <= 0 {
                continue;
            }
            let (index, lines) = self.lines(shard, guard);
            // The number of lines is a power of two, so it is a multiple of the number of lines in a group.
            let grouped = Places::LINES.min(lines.len());
            let home = index.line(tag);
            for group in (home..).step_by(grouped).take(lines.len() / grouped) {
                let start = group & (lines.len() - 1) & !(grouped - 1);
                let seen = self.least(&lines[start..][..grouped], (home, tag), left, guard, &mut rank);
                left -= seen.nodes;
                if seen.rank < least.as_ref().map_or(NO_RANK, |(rank, _)| *rank) {
                    let Ranked { rank, slot, word, .. } = seen;
                    least = Some((rank, Occupied { node: self.node(word, guard), shard, word, slot }));
                    if rank == 0 {
                        return least;
                    }
                }
                passed += grouped;
                if left == 0 || passed >= MOST_LINES_SEARCHED {
                    return least;
                }
            }
        }
        least
    }

    /// Looks at up to `most` live nodes of up to [`Places::LINES`] lines, and returns the smallest rank. It starts at the slot
    /// of the tag, in the line with the number `home` of the index, and visits the slots before it last. So it prefers no
    /// slot to others.
    // There is no branch on a rank, because a processor cannot predict which is the smallest. So the nodes come from memory at
    // the same time. Not inlined, because the loop needs all registers.
    #[inline(never)]
    fn least<'g>(
        &'g self,
        lines: &'g [Line],
        (home, tag): (usize, u64),
        most: usize,
        guard: &'g Pinned,
        rank: &mut impl FnMut(&KeyNode<K, T>) -> Option<u64>,
    ) -> Ranked<'g> {
        let last = lines.len() * SLOTS - 1;
        #[expect(clippy::cast_possible_truncation, reason = "the slot in a line")]
        let first = (home * SLOTS + tag as usize % SLOTS) & last;
        let mut filled = Places::filled(lines, first);
        let mut seen = Ranked { rank: NO_RANK, slot: &lines[0].0[0], word: EMPTY, nodes: 0 };
        while seen.nodes < most && seen.rank != 0 && !filled.is_empty() {
            for place in filled.by_ref().take(RANKED_TOGETHER.min(most - seen.nodes)) {
                let place = (first + place) & last;
                let slot = &lines[place / SLOTS].0[place % SLOTS];
                // Ordering: Acquire pairs with `fill`: the node is written.
                let word = slot.load(Ordering::Acquire);
                // Another thread may have removed the key.
                if !is_filled(word) {
                    continue;
                }
                let rank = rank(self.node(word, guard)).unwrap_or(NO_RANK);
                seen.nodes += usize::from(rank != NO_RANK);
                let is_less = rank < seen.rank;
                seen.rank = select_unpredictable(is_less, rank, seen.rank);
                seen.slot = select_unpredictable(is_less, slot, seen.slot);
                seen.word = select_unpredictable(is_less, word, seen.word);
            }
        }
        seen
    }
}
