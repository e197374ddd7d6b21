//! The table that finds the node of a key.
//!
//! The top bits of a hash choose a *shard*: one of 512, or fewer if the store has a small cap. A shard is one word: the address of its *index*, with the size of the index
//! in the low bits of that address. An index is an array of words in lines of eight. It is filled to about three
//! quarters:
//!
//! ```text
//! empty       0
//! frozen      1: an empty word that no insertion fills any more
//! tombstone   the node was removed
//! filled      28 bits of the hash (the tag) | 1 | the node's number | 0
//! ```
//! The first bits of a tag are the line number of a key. The line has four pairs of slots, and the last bits of the tag but one are
//! the pair where a search begins. A search visits all pairs of that line, then all of the next line, and ends at an empty slot. So
//! in almost all cases it reads one line and one node. A processor cannot predict in which slot of a pair a key is, so
//! a check compares both without a branch: see [`over`].
//!
//! *Insertion* exchanges the first empty slot of a key's search for the word of the node. A filled slot never becomes
//! empty again. So two threads that insert the same key exchange the same slot. One of them fails, looks at the slot
//! again, and finds the node of the other thread.
//!
//! *Removal* takes four steps:
//!
//! 1. A thread exchanges the state of the node for dead. Only one thread wins this exchange. After it, no charge can
//!    land on the node, and searches for its key pass it.
//! 2. The winner stores a tombstone in the place of the word. No other thread changes this word.
//! 3. After a fence, it reads the shard's word. If the index is another one by now, or is marked as *growing*, a copy may
//!    have the word. The thread then completes the growth itself, looks for the word in the current index, and begins again at
//!    step 2 if the word is there.
//! 4. The winner retires the node.
//!
//! *Growth* replaces an index by a copy of another size, to make room or to remove tombstones. An insertion starts it when it
//! has filled the index to more than three quarters, by the shard's count of used words. That count misses the words that others
//! count while a thread is interrupted in its own counting, so an insertion that finds no empty slot starts the growth too:
//!
//! 1. A thread marks the index as growing, in the shard's word, and passes a fence.
//! 2. It exchanges each empty word for a frozen one. So no word can be inserted any more. Filled words can still become tombstones.
//! 3. It makes a new index from the filled words. A word contains its own home, so the thread reads no node.
//! 4. One exchange of the shard's word publishes the new index. The thread retires the old one.
//!
//! A thread that finds a frozen word where it must insert does all of these steps itself, and then begins again in the current index.
//! One of several such threads publishes its copy, so no thread waits for a thread that is preempted. Charges and
//! lookups continue during the growth, because the filled words stay where they are.
//!
//! *Why these races are safe:*
//! - Every copy of an index has the words of all nodes that are not being removed, so it does not matter which thread's
//!   copy is published.
//! - A copy may have the word of a node that is being removed, if the copying thread has read the word before the tombstone. Then
//!   the copying thread has marked the index before it read the word. The removing thread reads the mark, or
//!   a later index, after it stored the tombstone. Of two threads that each write, pass a fence and read, at least one sees the
//!   other's write. So the removing thread looks in the index that is published.
//! - A word that is in no slot of the current index is in no later index either, because a copy is made from the current index, and
//!   only a copy of the current index is published. So a thread that pins after the node is retired does not find it.
//! - A copy of an index that is not current any more is not published. The old address cannot be used again while the
//!   copying thread is pinned.
//! - A lookup may search an index that was replaced in the meantime, and miss a key that was inserted after the lookup
//!   began. Only an insertion needs to see such a key, and it searches the current index. In an older index it finds no
//!   empty slot that is not frozen.
//!
//! *Sweeping.* While a shard is more than half full, up to four of its words are looked at for each insert, in a circular order,
//! and nodes are removed that have been idle for a grace period ([`GRACE_NS`]). So each word is looked at about once before
//! the shard is rebuilt, or as many nodes are removed as were inserted. However long new keys arrive, the number of idle nodes
//! stays in proportion to the keys in use.
//! Sweeping needs no thread of its own, and only inserts pay for it. The grace period exists because a key that returns
//! is more expensive to create again than to keep.
//!
//! One insert of eight does this for all eight, so it looks at 16 words, and at the next 16 if it has removed fewer than
//! eight nodes. A flood of new keys in a store of idle ones so pays for two removals a key, and not for four. The nodes of idle
//! keys come from memory, or from the cache of another thread that inserts. The insert first asks for all of them, and then
//! visits them, so it waits for about one of them. And the lines of the shard go from thread to thread once for eight inserts. A
//! shard with a small index takes fewer inserts together.
//!
//! After an index has grown, its shard *rests* from sweeps for one grace period. No key that was inserted or charged
//! in this time can have been idle for a grace period. So a rest delays the removal of idle nodes by one grace period,
//! and in a store that grows fast, inserts read no other nodes.

#[cfg(all(test, tollgate_loom))]
pub(super) mod broken;
mod counts;
mod index;
mod memory;
mod removal;
mod search;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::sync::{Arc, OnceLock};

use self::counts::ShardCounts;
use self::index::{
    EMPTY, FILLED, FROZEN, Index, Line, SLOTS, TAG_BITS, copy, freeze, has_tag, is_filled, number, over,
    search, slot_of, tag_of, word_of,
};
use self::memory::IndexMemory;
pub(super) use self::removal::Replaced;
use self::search::swept_together;
use super::nodes::{KeyNode, NewNode, Nodes};
use crate::algorithm::step::Tail;
use crate::base::memory::prefetch::{PrefetchToWrite, prefetch};
use crate::base::reclaim::{self, Pinned};
use crate::base::sync::{AtomicPtr, AtomicU64, Ordering, fence_after_rmw};

/// The time that a key must be idle before a sweep removes it.
/// To create the key again costs more than a check, so this must happen at most once per second.
pub(super) const GRACE_NS: u64 = 1_000_000_000;

/// With this number of shards, a rebuild at ten million keys takes well below a millisecond.
pub(super) const SHARD_BITS: u32 = if cfg!(tollgate_loom) { 1 } else { 9 };
pub(super) const SHARDS: usize = 1 << SHARD_BITS;
/// The number of keys of a shard, if the store has a cap and uses fewer shards.
const KEYS_OF_SHARD: usize = 32;
/// The maximum number of lines of a shard's first index. With this limit, the insert that creates the index takes no
/// longer than an insert that rebuilds one.
const MAX_FIRST_LINES: usize = 1 << 12;

/// The number of shards of a store that never has more than this number of keys: a power of two. A search for room finds
/// [`KEYS_OF_SHARD`] keys or more in one shard, and a rebuild of an index is shared by as many insertions.
fn shards_for(keys: usize) -> usize {
    if cfg!(tollgate_loom) { SHARDS } else { (keys / KEYS_OF_SHARD).clamp(1, SHARDS).next_power_of_two() }
}

pub(super) struct NodeTable<K, T> {
    /// Every check reads this array. A write happens only when an index is replaced.
    shards: Box<[AtomicPtr<Line>; SHARDS]>,
    counts: Box<[ShardCounts; SHARDS]>,
    /// The initial index of every shard.
    vacant: AtomicPtr<Line>,
    memory: Arc<IndexMemory>,
    /// The number of lines of the smallest index.
    least: usize,
    /// The bits of a hash that are used. A store for few keys uses fewer shards, so that a shard has several keys.
    used_bits: u64,
    nodes: Nodes<K, T>,
    /// `Some` if the processor has a prefetch-to-write instruction.
    to_write: Option<PrefetchToWrite>,
}

/// A live node, with its word in the index, and the slot in which a search found the word.
pub(super) struct Occupied<'g, K, T> {
    pub(super) node: &'g KeyNode<K, T>,
    shard: usize,
    word: u64,
    slot: &'g AtomicU64,
}

impl<K, T> Clone for Occupied<'_, K, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, T> Copy for Occupied<'_, K, T> {}

/// The place for a key that is not in the table.
pub(super) struct Vacant<'g, K, T> {
    table: &'g NodeTable<K, T>,
    guard: &'g Pinned,
    hash: u64,
    /// The index that was searched, or `None` after [`NodeTable::get`], which does not tell.
    index: Option<(Index, &'g [Line])>,
    /// `None` if the index is full.
    slot: Option<&'g AtomicU64>,
}

/// Whether the insertion filled the shard so far that a sweep is due.
#[must_use]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Filling {
    Yes,
    No,
}

impl<K, T: Tail> NodeTable<K, T> {
    /// An empty table that does not grow up to `keys` keys, for `threads` threads that insert at the same time. It never has more
    /// than `most` keys, if this is known.
    pub(super) fn new(keys: usize, most: Option<usize>, threads: usize) -> Self {
        // The processor is asked once, because a virtual machine may take long to answer.
        static TO_WRITE: OnceLock<Option<PrefetchToWrite>> = OnceLock::new();
        // At most half full, because hashes are not spread perfectly evenly.
        let shards = most.map_or(SHARDS, shards_for);
        let slots = (keys.min(1 << 40) / shards * 2).max(SLOTS).next_power_of_two();
        let vacant = Index::vacant();
        Self {
            shards: Box::new(std::array::from_fn(|_| AtomicPtr::new(vacant.0))),
            counts: Box::new(std::array::from_fn(|_| ShardCounts::new())),
            vacant: AtomicPtr::new(vacant.0),
            memory: IndexMemory::new(),
            least: (slots / SLOTS).min(MAX_FIRST_LINES),
            // The first bits of a shard's number, so that the words of used shards are far apart.
            used_bits: !(((SHARDS / shards - 1) as u64) << (64 - SHARD_BITS)),
            nodes: Nodes::new(threads),
            to_write: *TO_WRITE.get_or_init(PrefetchToWrite::detect),
        }
    }

    /// The number of keys, including idle ones.
    pub(super) fn len(&self) -> usize {
        self.counts.iter().map(|counts| counts.live() as isize).sum::<isize>().max(0).cast_unsigned()
    }

    /// The bytes of the nodes and of the words that find them.
    pub(super) fn bytes(&self) -> usize {
        // One word for each slot. The slots are between three eighths and three quarters full.
        Nodes::<K, T>::bytes(self.len()) + self.len() * 2 * size_of::<u64>()
    }

    /// Clears the bits of a hash that this table does not use. The other functions expect such a hash, because a check computes
    /// the shard of its key twice.
    #[inline(always)]
    pub(super) fn hash(&self, hash: u64) -> u64 {
        hash & self.used_bits
    }

    #[inline(always)]
    fn shard(&self, hash: u64) -> usize {
        debug_assert_eq!(hash, self.hash(hash), "the hash was not prepared");
        (hash >> (64 - SHARD_BITS)) as usize
    }

    #[inline(always)]
    fn index(&self, shard: usize) -> Index {
        // Ordering: Acquire pairs with `rebuild`: the words are visible.
        Index(self.shards[shard].load(Ordering::Acquire))
    }

    /// The current index of a shard, and its lines.
    fn lines<'g>(&self, shard: usize, _guard: &'g Pinned) -> (Index, &'g [Line]) {
        let index = self.index(shard);
        // SAFETY: it was the shard's index under the guard, so it is not freed.
        (index, unsafe { index.lines() })
    }

    /// The pairs of slots that a search for a tag begins with, in order, with their words.
    #[inline(always)]
    fn home<'g>(
        &self,
        hash: u64,
        _guard: &'g Pinned,
    ) -> impl Iterator<Item = [(&'g AtomicU64, u64); 2]> + use<'g, K, T> {
        let tag = tag_of(hash);
        let index = self.index(self.shard(hash));
        // SAFETY: as in `lines`. A tag's home is in bounds, because tags have TAG_BITS bits.
        let Line(line) = unsafe { &*index.home(tag) };
        (0..SLOTS).step_by(2).map(move |step| {
            let first = slot_of(tag, step);
            [first, first | 1].map(|slot| {
                let slot = &line[slot % SLOTS];
                // Ordering: Acquire pairs with `fill`: the node is written.
                (slot, slot.load(Ordering::Acquire))
            })
        })
    }

    /// Returns the first node of this key, or the empty slot where the key belongs, if there is one. The node may be
    /// dead. Then [`NodeTable::find`] searches for others.
    #[inline(always)]
    pub(super) fn get<'g>(
        &'g self,
        hash: u64,
        guard: &'g Pinned,
        mut is_key: impl FnMut(&K) -> bool,
    ) -> Result<&'g KeyNode<K, T>, Option<&'g AtomicU64>> {
        let tag = tag_of(hash);
        for pair in self.home(hash, guard) {
            let [first, second] = pair.map(|(_, word)| over(word, tag));
            // If both words have the tag, it does not matter which node is looked at.
            let over = first.min(second);
            if over < FILLED {
                let node = self.node(over | FILLED, guard);
                if is_key(&node.key) {
                    return Ok(node);
                }
                // Another key with this tag is rare, so the way to its next one is not inlined.
                break;
            }
            if let Some((slot, _)) = pair.into_iter().find(|(_, word)| word & !FROZEN == EMPTY) {
                return Err(Some(slot));
            }
        }
        self.find(hash, guard, is_key).map(|held| held.node).map_err(|vacant| vacant.slot)
    }

    /// Returns the live node of a key, or the place where the key belongs.
    #[cold]
    #[inline(never)]
    pub(super) fn find<'g>(
        &'g self,
        hash: u64,
        guard: &'g Pinned,
        mut is_key: impl FnMut(&K) -> bool,
    ) -> Result<Occupied<'g, K, T>, Vacant<'g, K, T>> {
        let (shard, tag) = (self.shard(hash), tag_of(hash));
        let (index, lines) = self.lines(shard, guard);
        let vacant = |slot| Vacant { table: self, guard, hash, index: Some((index, lines)), slot };
        for slot in search(lines, tag) {
            let word = slot.load(Ordering::Acquire);
            if has_tag(word, tag) {
                let node = self.node(word, guard);
                if is_key(&node.key) && !node.state.is_dead() {
                    return Ok(Occupied { node, shard, word, slot });
                }
            } else if word & !FROZEN == EMPTY {
                return Err(vacant(Some(slot)));
            }
        }
        Err(vacant(None))
    }

    /// The node of a filled word. Callers must have read the word under this guard, from the index that was the
    /// shard's.
    #[inline(always)]
    fn node<'g>(&'g self, word: u64, guard: &'g Pinned) -> &'g KeyNode<K, T> {
        debug_assert!(is_filled(word));
        // SAFETY: all callers, here and in `search`, have read the word in this way.
        unsafe { self.nodes.get(number(word), guard) }
    }

    /// Returns the live node of a word, if it has one.
    fn occupied<'g>(
        &'g self,
        shard: usize,
        slot: &'g AtomicU64,
        guard: &'g Pinned,
    ) -> Option<Occupied<'g, K, T>> {
        let word = slot.load(Ordering::Acquire);
        let node = is_filled(word).then(|| self.node(word, guard))?;
        (!node.state.is_dead()).then_some(Occupied { node, shard, word, slot })
    }

    /// Replaces an index by a copy with the size that its filled words need. The first thread to finish publishes its
    /// copy. Returns after the shard has another index.
    #[cold]
    fn rebuild(&self, shard: usize, (old, lines): (Index, &[Line]), guard: &Pinned) {
        let (unmarked, growing) = (old.unmarked(), old.growing());
        // Ordering: Relaxed. A thread that reads the mark gets the index from the exchange that published it. The fence pairs with
        // the one in `retire`.
        let marked =
            self.shards[shard].compare_exchange(unmarked.0, growing.0, Ordering::Relaxed, Ordering::Relaxed);
        if marked.is_err_and(|current| current != growing.0) {
            return;
        }
        fence_after_rmw();
        let filled = freeze(lines);
        // At most four ninths full, so that enough inserts share the cost before the next rebuild.
        let len =
            (2 * filled + filled / 4).div_ceil(SLOTS).next_power_of_two().clamp(self.least, 1 << TAG_BITS);
        let new = self.memory.new_index(shard, len);
        // SAFETY: no other thread has seen the index.
        let copied = copy(lines, unsafe { new.lines() });
        self.publish(shard, growing, new, copied, guard);
    }

    /// Exchanges a shard's index if it is still the old one, and frees the unused index. The new index has `copied` words.
    fn publish(&self, shard: usize, old: Index, new: Index, copied: usize, guard: &Pinned) {
        // Ordering: Release publishes the words, and the nodes that `freeze` has acquired.
        let published =
            self.shards[shard].compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if published {
            self.counts[shard].renew_used(copied);
        }
        let unused = if published { old } else { new };
        if !unused.is_vacant() {
            // SAFETY: either the old index is not the shard's any more, after exactly one exchange, or the new one was
            // never published.
            unsafe { self.memory.retire(unused, guard) };
        }
    }

    /// Visits every live node, and unlinks those for which `kill` returns true.
    ///
    /// It pins once for each shard, so that nodes can be freed during a long visit.
    pub(super) fn for_each(&self, mut kill: impl FnMut(&KeyNode<K, T>) -> bool) {
        for shard in 0..SHARDS {
            let guard = &reclaim::pin();
            for slot in self.lines(shard, guard).1.iter().flat_map(|line| &line.0) {
                if let Some(held) = self.occupied(shard, slot, guard)
                    && kill(held.node)
                {
                    self.unlink(held, guard);
                }
            }
            let (index, lines) = self.lines(shard, guard);
            let live = self.counts[shard].live().max(0);
            // A rebuild gives memory back.
            if lines.len() > self.least && live.cast_unsigned() as usize * 8 < lines.len() * SLOTS {
                self.rebuild(shard, (index, lines), guard);
            }
        }
    }

    /// Visits the live nodes of a shard, as its index is now.
    pub(super) fn visit_shard(&self, shard: usize, mut visit: impl FnMut(&KeyNode<K, T>)) {
        let guard = &reclaim::pin();
        let slots = self.lines(shard, guard).1.iter().flat_map(|line| &line.0);
        slots.filter_map(|slot| self.occupied(shard, slot, guard)).for_each(|held| visit(held.node));
    }

    /// Prefetches the cache line that a check of this hash reads.
    #[inline(always)]
    pub(super) fn prefetch_line(&self, hash: u64) {
        prefetch(self.index(self.shard(hash)).home(tag_of(hash)));
    }

    /// Prefetches the node that is probably the one of this hash's key.
    #[inline]
    pub(super) fn prefetch_node(&self, hash: u64, guard: &Pinned) {
        let mut words = self.home(hash, guard).flatten().map(|(_, word)| word);
        let word = words.find(|word| has_tag(*word, tag_of(hash)) || word & !FROZEN == EMPTY);
        if let Some(word) = word.filter(|word| is_filled(*word)) {
            prefetch(self.node(word, guard));
        }
    }

    /// Prefetches what the insertion of a key writes, to write it. Another thread may have written each of these lines last.
    /// Then they arrive at the same time, and each is transferred once: the lookup has only read the slot.
    #[inline]
    pub(super) fn prefetch_insertion(&self, hash: u64, slot: Option<&AtomicU64>) {
        if let Some(hint) = self.to_write {
            hint.prefetch(&raw const self.counts[self.shard(hash)]);
            if let Some(slot) = slot {
                hint.prefetch(slot);
            }
        }
    }

    /// The place of an empty slot that [`NodeTable::get`] has returned under this guard.
    pub(super) fn vacant<'g>(
        &'g self,
        hash: u64,
        slot: &'g AtomicU64,
        guard: &'g Pinned,
    ) -> Vacant<'g, K, T> {
        Vacant { table: self, guard, hash, index: None, slot: Some(slot) }
    }

    /// Writes a node into memory.
    pub(super) fn place<'g>(&'g self, node: KeyNode<K, T>, guard: &'g Pinned) -> NewNode<'g, K, T> {
        self.nodes.place(node, guard)
    }
}

impl<'g, K, T: Tail> Vacant<'g, K, T> {
    /// Publishes a node in this place at `now_ns`, if the place is still empty. Otherwise the caller must search again. A key
    /// that the node replaces is counted until then.
    // The node stays where it is. If it were moved, it would be copied with wide loads, which wait for the stores of its words.
    pub(super) fn fill(
        self,
        node: &mut NewNode<'g, K, T>,
        now_ns: u64,
        replaced: &mut Option<Replaced<'_, K, T>>,
    ) -> Option<Filling> {
        let Self { table, guard, hash, index, slot } = self;
        let shard = table.shard(hash);
        let word = word_of(hash, node.number());
        // Ordering: Release publishes the node.
        let exchange =
            |slot: &AtomicU64| slot.compare_exchange(EMPTY, word, Ordering::Release, Ordering::Relaxed);
        match slot.map(exchange) {
            Some(Ok(_)) => {}
            // Another thread filled the slot.
            Some(Err(other)) if other & FROZEN == 0 => return None,
            _ => {
                if let Some(index) = index {
                    table.rebuild(shard, index, guard);
                }
                return None;
            }
        }
        node.published();
        let counts = &table.counts[shard];
        if !replaced.take().is_some_and(|replaced| replaced.passes_to(shard)) {
            counts.add(1);
        }
        let used = counts.use_word() as usize;
        let (index, lines) = table.lines(shard, guard);
        let slots = lines.len() * SLOTS;
        if 4 * used > 3 * slots {
            table.rebuild(shard, (index, lines), guard);
            if table.index(shard).len() > lines.len() {
                counts.grew(now_ns);
            }
        }
        // The number of inserts that are swept together is a power of two, like the number of lines.
        let is_turn = used & (swept_together(lines.len()) - 1) == 0;
        Some(if is_turn && 2 * used > slots && !counts.rests(now_ns) { Filling::Yes } else { Filling::No })
    }
}

impl<K, T> Drop for NodeTable<K, T> {
    fn drop(&mut self) {
        let index = |place: &AtomicPtr<Line>| Index(place.load(Ordering::Relaxed));
        let indices = self.shards.iter().map(index).filter(|index| !index.is_vacant());
        for index in indices.chain([index(&self.vacant)]) {
            // One pin for each shard, so that the blocks of its nodes can be freed meanwhile.
            let guard = &reclaim::pin();
            // SAFETY: no other thread uses the table any more, so this is the last use of the index and of the nodes of its
            // words. Nodes that were unlinked have no words.
            unsafe {
                for slot in index.lines().iter().flat_map(|line| &line.0) {
                    let word = slot.load(Ordering::Relaxed);
                    if is_filled(word) {
                        drop(self.nodes.own(number(word), guard));
                    }
                }
                self.memory.free(index, guard);
            }
        }
    }
}
