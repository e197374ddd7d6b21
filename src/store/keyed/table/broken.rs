//! Operations with a fault, for the controls of the models.

use super::index::TOMBSTONE;
use super::removal::bury;
use super::*;

impl<K, T: Tail> NodeTable<K, T> {
    /// The number of filled words in all current indices.
    pub(in super::super) fn filled(&self, guard: &Pinned) -> usize {
        let filled = |slot: &&AtomicU64| is_filled(slot.load(Ordering::Acquire));
        let words = |shard| self.lines(shard, guard).1.iter().flat_map(|line| &line.0).filter(filled).count();
        (0..SHARDS).map(words).sum()
    }

    /// Copies an index without a freeze, so its words may change during the copy.
    pub(in super::super) fn rebuild_unfrozen(&self, hash: u64, guard: &Pinned) {
        let shard = self.shard(hash);
        let (old, lines) = self.lines(shard, guard);
        let new = self.memory.new_index(shard, 2 * lines.len());
        // SAFETY: no other thread has seen the index.
        let copied = copy(lines, unsafe { new.lines() });
        self.publish(shard, old, new, copied, guard);
    }

    /// Copies an index without a mark in the shard's word, so a removal does not look for its word in the copy.
    pub(in super::super) fn rebuild_unmarked(&self, hash: u64, guard: &Pinned) {
        freeze(self.lines(self.shard(hash), guard).1);
        self.rebuild_unfrozen(hash, guard);
    }

    /// Runs a complete rebuild.
    pub(in super::super) fn rebuild_now(&self, hash: u64, guard: &Pinned) {
        let shard = self.shard(hash);
        self.rebuild(shard, self.lines(shard, guard), guard);
    }

    /// Stores a tombstone, and does not look for copies of the word.
    pub(in super::super) fn unlink_once(&self, held: &Occupied<'_, K, T>) {
        self.counts[held.shard].add(-1);
        bury(held.slot);
    }

    /// Publishes a node in the place of a tombstone, if there is one.
    pub(in super::super) fn fill_tombstone<'g>(
        &self,
        hash: u64,
        node: &mut NewNode<'g, K, T>,
        guard: &'g Pinned,
    ) -> bool {
        let word = word_of(hash, node.number());
        let fill = |slot: &AtomicU64| {
            slot.compare_exchange(TOMBSTONE, word, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        let shard = self.shard(hash);
        let filled = self.lines(shard, guard).1.iter().flat_map(|line| &line.0).any(fill);
        if filled {
            node.published();
            self.counts[shard].add(1);
        }
        filled
    }

    /// Frees the node while other threads may still look at it.
    pub(in super::super) fn free_at_once(&self, held: &Occupied<'_, K, T>, guard: &Pinned) {
        self.unlink_once(held);
        // SAFETY: violated on purpose. The control exists to show this error.
        drop(unsafe { self.nodes.own(number(held.word), guard) });
    }
}

impl<'g, K, T: Tail> Vacant<'g, K, T> {
    /// Whether the index has no empty slot for the key.
    pub(in super::super) fn is_in_full_index(&self) -> bool {
        self.slot.is_none()
    }

    /// Stores the word of the node where another thread may have stored its own.
    pub(in super::super) fn store(self, mut node: NewNode<'g, K, T>) {
        let word = word_of(self.hash, node.number());
        self.slot.unwrap().store(word, Ordering::Release);
        node.published();
        self.table.counts[self.table.shard(self.hash)].add(1);
    }
}
