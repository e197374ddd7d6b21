//! Removal of a node that is dead: see the page of the table.

use std::mem::forget;

use super::index::{EMPTY, FROZEN, Index, Line, TOMBSTONE, number, search, tag};
use super::{NodeTable, Occupied};
use crate::algorithm::step::Tail;
use crate::base::reclaim::Pinned;
use crate::base::sync::{AtomicU64, Ordering, fence_after_rmw};

/// A dead node whose word was just replaced by a tombstone, to make room for another key. The node is counted and not retired
/// until this value is dropped. So a key that replaces another one in its shard adds nothing to the number of its nodes, and
/// the exchange that inserts that key is also the one before the fence of the removal.
pub(in super::super) struct Replaced<'g, K, T: Tail> {
    table: &'g NodeTable<K, T>,
    held: Occupied<'g, K, T>,
    guard: &'g Pinned,
}

impl<K, T: Tail> Replaced<'_, K, T> {
    /// Passes the count of the removed key to a key that was just inserted, if that is in the same shard. The caller has
    /// exchanged a word since the removal.
    pub(super) fn passes_to(self, shard: usize) -> bool {
        let is_same = self.held.shard == shard;
        if is_same {
            self.table.retire(&self.held, self.guard);
            forget(self);
        }
        is_same
    }
}

impl<K, T: Tail> Drop for Replaced<'_, K, T> {
    fn drop(&mut self) {
        self.table.counts[self.held.shard].add(-1);
        self.table.retire(&self.held, self.guard);
    }
}

/// Stores a tombstone in the slot of a dead node's word. Only the thread that killed the node calls this.
pub(super) fn bury(slot: &AtomicU64) {
    // Ordering: Relaxed. The node died earlier, by an exchange of its own, and a fence orders the store before the thread's
    // later loads. A store suffices, because no other thread changes the word.
    slot.store(TOMBSTONE, Ordering::Relaxed);
}

/// Whether an index with these lines has this slot.
fn has_slot(lines: &[Line], slot: &AtomicU64) -> bool {
    let lines = lines.as_ptr_range();
    (lines.start.addr()..lines.end.addr()).contains(&std::ptr::from_ref(slot).addr())
}

impl<K, T: Tail> NodeTable<K, T> {
    /// Unpublishes and retires a node. The caller has killed its state.
    pub(in super::super) fn unlink<'g>(&'g self, held: Occupied<'g, K, T>, guard: &'g Pinned) {
        drop(self.replace(held, guard));
    }

    /// Like [`NodeTable::unlink`], for another key to take the node's place.
    pub(in super::super) fn replace<'g>(
        &'g self,
        held: Occupied<'g, K, T>,
        guard: &'g Pinned,
    ) -> Replaced<'g, K, T> {
        bury(held.slot);
        Replaced { table: self, held, guard }
    }

    /// Retires a node whose word was replaced by a tombstone, after it has removed the word from the current index if a copy has
    /// it. The caller has exchanged a word in the meantime: see [`fence_after_rmw`].
    pub(super) fn retire(&self, held: &Occupied<'_, K, T>, guard: &Pinned) {
        let &Occupied { node, shard, word, mut slot } = held;
        loop {
            // The fence pairs with the one in `rebuild`.
            fence_after_rmw();
            let (index, lines) = self.lines(shard, guard);
            if !index.is_growing() && has_slot(lines, slot) {
                break;
            }
            let Some(copied) = self.copied_word(shard, (index, lines), word, guard) else { break };
            slot = copied;
            slot.swap(TOMBSTONE, Ordering::Relaxed);
        }
        // SAFETY: found under the guard. No current or later index has the number. Only one thread killed the node.
        unsafe { self.nodes.retire(number(word), node.state.tail_bytes(), guard) };
    }

    /// Returns the slot that a copy of an index gave to a word of a dead node. First completes the copy.
    #[cold]
    fn copied_word<'g>(
        &self,
        shard: usize,
        (index, lines): (Index, &[Line]),
        word: u64,
        guard: &'g Pinned,
    ) -> Option<&'g AtomicU64> {
        if index.is_growing() {
            self.rebuild(shard, (index, lines), guard);
        }
        // The word is not behind an empty slot of its search.
        let ends = |slot: &&AtomicU64| {
            let other = slot.load(Ordering::Relaxed);
            other == word || other & !FROZEN == EMPTY
        };
        let last = search(self.lines(shard, guard).1, tag(word)).find(ends);
        last.filter(|slot| slot.load(Ordering::Relaxed) == word)
    }
}
