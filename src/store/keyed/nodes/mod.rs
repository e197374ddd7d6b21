//! Memory for nodes: segments of 63 nodes each, in blocks of up to 64 segments. A directory finds them by number.
//!
//! A node never moves, so a charge needs no index once it has its node. A *number* names a node: its block, the segment
//! in that block, and the place in that segment. The directory has one entry for each block, so it stays in the
//! first-level cache. It grows by levels. Each level is as large as all levels before it together, and no level moves.
//! The first 256 blocks are one segment each, so small stores stay small. They share the first level with 256 large
//! blocks, so a store of up to a million small keys has one level, and a check finds a node by one read of it.
//!
//! One word of a segment has a bit for each of its nodes, which is set while the node is taken. The 64th bit means that
//! a stripe *holds* the segment: the stripe takes new nodes from this segment. Each change of the word is one atomic
//! operation:
//!
//! - A thread takes a node by setting its bit. It returns the node by clearing the bit, after it has dropped the key.
//! - A stripe whose segment is full takes another segment that has room and that no stripe holds, or opens a new one.
//! - A thread that leaves a word without nodes and without a holder *closes* the segment: it sets all bits. No thread
//!   takes a node from a closed segment.
//!
//! One word of a block has a bit for each of its segments, which is set while the segment is open. The rules are the
//! same. To open a segment, a thread sets its bit. A thread that closes a segment clears the segment's bit. A thread
//! that leaves that word empty closes the block. It then removes the block from the directory and retires it.
//!
//! A node is returned, and a block is freed, when all threads that could have seen it have unpinned. Then another key
//! can use the memory of the node. So a store never takes more memory than for its largest number of keys at one time.
//! A block without nodes gives its memory back.
//!
//! The blocks of a store of many keys lie in *arenas*, so that they have huge pages: see `base/memory/arena`. A level has one
//! arena. The first blocks come from the allocator, because an arena gets memory in steps of a huge page.
//!
//! Each charge writes a node. If two hot keys shared a cache line, threads that charge them would wait for each other.
//! So the first nodes (about 200) lie far enough apart that no two of them share a cache line. In a store of many keys,
//! two given keys are rarely charged at the same moment. So further nodes lie close together, and more of them fit into
//! a cache.

#[cfg(all(test, tollgate_loom))]
mod models;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit, forget, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::base::lazy::Lazy;
use crate::base::memory::arena::Arena;
use crate::base::memory::prefetch::prefetch;
use crate::base::reclaim::{self, Pinned};
use crate::base::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, thread_number};
use crate::store::state::KeyState;

/// One key and its state. A node never moves.
pub(super) struct KeyNode<K, T> {
    pub(super) state: KeyState<T>,
    pub(super) key: K,
}

/// The number of bits in a number.
pub(super) const NUMBER_BITS: u32 = 34;
/// In place of a number: an index has the node.
const PUBLISHED: u64 = u64::MAX;
/// The number of nodes in a segment: one for each bit of its word except the last.
const NODES: usize = 63;
/// The low bits of a number, which are the place of the node in its segment.
const PLACE_BITS: u32 = 6;
/// The bits above, which are the place of the segment in its block.
const SEGMENT_BITS: u32 = 6;
/// The number of blocks with one segment, which come first.
const SMALL: u32 = if cfg!(tollgate_loom) { 2 } else { 256 };
/// The number of blocks in the first level.
const FIRST_LEVEL: u32 = 2 * SMALL;
const LEVELS: usize = if cfg!(tollgate_loom) { 3 } else { 14 };
/// The maximum number of blocks.
const BLOCKS: u32 = FIRST_LEVEL << (LEVELS - 1);
/// The number of segments whose nodes have cache lines of their own: about 200 nodes for small keys.
const SPREAD: u32 = 16;
/// The maximum number of bytes in a block with more than one segment.
const BLOCK_BYTES: usize = 1 << 16;
/// The first block in an arena. The blocks before it have 2 to 4 MB, and the words that find their nodes about as much. So a
/// huge page that is not full yet adds a quarter to a half.
const FIRST_IN_ARENA: u32 = SMALL + SMALL / 4;
/// The bytes of a page of most systems, and a part of those of the others.
const PAGE: usize = 1 << 12;
/// A stripe holds the segment, or the segment is closed.
const HELD: u64 = 1 << NODES;
/// The segment or block is closed: no thread takes a node of the segment, or opens a segment of the block.
const CLOSED: u64 = u64::MAX;
/// Marks a retired item as a block. Without this bit it is a node.
const WHOLE: usize = 1 << 63;
/// The number of segments that a stripe searches for room before it opens a new one.
const LOOKED_AT: u32 = 4;
/// The value of a stripe that has no segment yet.
const NONE: u32 = u32::MAX;

/// The first segment of a block. The value is odd after the block was closed.
type Entry<K, T> = AtomicPtr<Segment<K, T>>;

/// The directory of the blocks of a store. Each block keeps it alive.
struct Directory<K, T> {
    /// The address of each level, minus the number of blocks in the levels before it. So the block's number, added to
    /// this address, gives the block's entry.
    levels: [AtomicPtr<Entry<K, T>>; LEVELS],
    /// The memory for the blocks of each level.
    arenas: [Lazy<Arena>; LEVELS],
    /// The number of segments that were ever opened.
    len: AtomicU32,
    nodes: PhantomData<Box<KeyNode<K, T>>>,
}

/// The fields are laid out in source order. So a node of sixteen bytes begins at a multiple of its size and lies in one
/// cache line.
#[repr(C)]
struct Segment<K, T> {
    taken: AtomicU64,
    /// The open segments of the block, if this is its first segment.
    open: AtomicU64,
    nodes: [UnsafeCell<MaybeUninit<KeyNode<K, T>>>; NODES],
}

/// The nodes of a store.
pub(super) struct Nodes<K, T> {
    directory: Arc<Directory<K, T>>,
    /// One stripe for each thread that can insert at the same time, so that threads rarely share the word of a segment.
    stripes: Box<[CachePadded<Stripe>]>,
}

struct Stripe {
    /// The segment from which this stripe takes nodes.
    current: AtomicU32,
    /// The directory position where the next search for a segment with room begins.
    hand: AtomicU32,
}

/// The level of a block, and the first block of that level.
#[inline]
fn level(block: u32) -> (usize, u32) {
    // The common case, without arithmetic.
    if block < FIRST_LEVEL {
        return (0, 0);
    }
    let level = (block | (FIRST_LEVEL - 1)).ilog2() - (FIRST_LEVEL.ilog2() - 1);
    (level as usize, FIRST_LEVEL << (level - 1))
}

/// The number of blocks in a level.
fn level_len(level: usize) -> usize {
    (FIRST_LEVEL as usize) << level.saturating_sub(1)
}

impl<K, T> Directory<K, T> {
    fn new() -> Self {
        let levels = std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()));
        let arenas = std::array::from_fn(|_| Lazy::default());
        Self { levels, arenas, len: AtomicU32::new(0), nodes: PhantomData }
    }

    /// The entry of a block. Allocates the level of this block if necessary.
    #[inline]
    fn entry(&self, block: u32) -> &Entry<K, T> {
        assert!(block < BLOCKS, "a keyed store has at most 2^22 blocks of nodes");
        let (number, first) = level(block);
        // Ordering: Acquire: the entries of the level are null.
        let mut biased = self.levels[number].load(Ordering::Acquire);
        if biased.is_null() {
            biased = self.new_level(number, first);
        }
        // SAFETY: the number of a level determines its length, and a level lives as long as the directory.
        unsafe { &*biased.wrapping_add(block as usize) }
    }

    /// Allocates a level, unless another thread has done so, and returns its address minus the number of its first block.
    #[cold]
    #[inline(never)]
    fn new_level(&self, number: usize, first: u32) -> *mut Entry<K, T> {
        let null = |_| AtomicPtr::new(std::ptr::null_mut());
        let mut new = (0..level_len(number)).map(null).collect::<Box<[Entry<K, T>]>>().into_vec();
        let biased = new.as_mut_ptr().wrapping_sub(first as usize);
        let null = std::ptr::null_mut();
        // Ordering: Acquire, and Release on success, as in `entry`.
        match self.levels[number].compare_exchange(null, biased, Ordering::AcqRel, Ordering::Acquire) {
            // The directory owns the level from now on.
            Ok(_) => {
                forget(new);
                biased
            }
            Err(other) => other,
        }
    }

    /// Returns the segments of a block, if the block exists.
    #[inline]
    fn segments<'g>(&self, block: u32, _guard: &'g Pinned) -> Option<&'g [Segment<K, T>]> {
        // Ordering: Acquire pairs with the exchange that stored the block: its words are written.
        let first = self.entry(block).load(Ordering::Acquire);
        if first.is_null() || first.addr() % 2 == 1 {
            return None;
        }
        // SAFETY: the block has this length. It is freed by epoch after it was closed, and it was not closed under the
        // guard.
        Some(unsafe { std::slice::from_raw_parts(first, Segment::<K, T>::segments_in_block(block)) })
    }

    /// Returns the segment of this number, if its block exists. The segment may be closed.
    #[inline]
    fn segment<'g>(&self, id: u32, guard: &'g Pinned) -> Option<&'g Segment<K, T>> {
        if id >= self.len.load(Ordering::Acquire) {
            return None;
        }
        let (block, place) = Segment::<K, T>::block(id);
        Some(&self.segments(block, guard)?[place])
    }

    /// Opens a closed segment, and holds it.
    #[must_use]
    fn open(self: &Arc<Self>, id: u32, guard: &Pinned) -> bool {
        let (block, place) = Segment::<K, T>::block(id);
        let held = Segment::<K, T>::never(id) | HELD;
        if let Some(segments) = self.segments(block, guard) {
            let unless_open = |open| if open >> place & 1 == 0 { Some(open | 1 << place) } else { None };
            // Ordering: Acquire; pairs with `release`. All uses of the segment's nodes by other threads come before.
            let opened =
                segments[0].open.fetch_update(Ordering::Acquire, Ordering::Relaxed, unless_open).is_ok();
            if opened {
                // Ordering: Release; passes on what was acquired above to the threads that take nodes.
                segments[place].taken.store(held, Ordering::Release);
            }
            return opened;
        }
        let (entry, null) = (self.entry(block), std::ptr::null_mut());
        // A closed block stays in its entry until it is freed.
        if !entry.load(Ordering::Relaxed).is_null() {
            return false;
        }
        let new = self.new_block(block, place, held);
        // Ordering: Release publishes the block.
        let made = entry.compare_exchange(null, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if made {
            // The directory owns the block now. The block keeps the directory alive.
            forget(Arc::clone(self));
        } else {
            // SAFETY: the block is from above, and no other thread has seen it.
            unsafe { self.free_memory(block, new) };
        }
        made
    }

    /// The arena for a block, with the block's place there, if there is one.
    fn arena(&self, block: u32) -> Option<(&Arena, usize)> {
        let (number, first) = level(block);
        let place = block.checked_sub(first.max(FIRST_IN_ARENA))?;
        let places = level_len(number) - (FIRST_IN_ARENA.saturating_sub(first)) as usize;
        let bytes = Segment::<K, T>::PLACE_BYTES?;
        let new = || Arena::new(places, bytes).ok_or(());
        Some((self.arenas[number].get_or_make(new).ok()?, place as usize))
    }

    /// The segments of a new block. All are closed except one, which the caller holds.
    fn new_block(&self, block: u32, open: usize, held: u64) -> *mut Segment<K, T> {
        let len = Segment::<K, T>::segments_in_block(block);
        let first = match self.arena(block).and_then(|(arena, place)| arena.claim(place)) {
            Some(place) => place.as_ptr().cast::<Segment<K, T>>(),
            None => Box::into_raw(Box::<[Segment<K, T>]>::new_uninit_slice(len)).cast(),
        };
        for place in 0..len {
            let taken = if place == open { held } else { CLOSED };
            // SAFETY: the caller has this memory alone, and it is aligned and large enough for the block (`PLACE_BYTES`). Nodes
            // need no write, because they stay uninitialised until a thread takes them.
            unsafe {
                let segment = first.add(place);
                (&raw mut (*segment).taken).write(AtomicU64::new(taken));
                (&raw mut (*segment).open).write(AtomicU64::new(1 << open));
            }
        }
        first
    }

    /// Frees the memory of a block. The nodes in it are not dropped.
    ///
    /// # Safety
    /// [`Directory::new_block`] has made the block, and no thread uses it any more.
    unsafe fn free_memory(&self, block: u32, first: *mut Segment<K, T>) {
        let arena = self.arenas[level(block).0].get();
        match arena.and_then(|arena| Some((arena, arena.place(first)?))) {
            // SAFETY: the place was claimed for this block. The caller guarantees the rest.
            Some((arena, place)) => unsafe { arena.release(place) },
            None => {
                let len = Segment::<K, T>::segments_in_block(block);
                // SAFETY: the box was made with this length. The caller guarantees the rest.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, len)) });
            }
        }
    }

    /// Clears a bit of a segment that the caller owned. Closes the segment if this was the last bit, and then the block
    /// in the same way.
    fn release(self: &Arc<Self>, id: u32, bit: u64, guard: &Pinned) {
        let (block, place) = Segment::<K, T>::block(id);
        let Some(segments) = self.segments(block, guard) else {
            debug_assert!(false, "a block with an open segment is in the directory");
            return;
        };
        self.release_in(segments, (block, place), bit, guard);
    }

    /// Like [`Directory::release`], with the segments of the block.
    fn release_in(
        self: &Arc<Self>,
        segments: &[Segment<K, T>],
        (block, place): (u32, usize),
        bit: u64,
        guard: &Pinned,
    ) {
        let closes = |word: &AtomicU64, bit: u64, empty: u64| {
            // Ordering: AcqRel. All uses of this bit's memory come before the clear. All uses under all bits come
            // before the memory is used again.
            word.fetch_and(!bit, Ordering::AcqRel) & !bit == empty
                // Ordering: Relaxed: the exchange just above has acquired everything that was ever released.
                && word.compare_exchange(empty, CLOSED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let id = Segment::<K, T>::id(block, place);
        if closes(&segments[place].taken, bit, Segment::<K, T>::never(id))
            && closes(&segments[0].open, 1 << place, 0)
        {
            self.leave(block, guard);
        }
    }

    /// Removes a block that was just closed from the directory, and retires it.
    fn leave(self: &Arc<Self>, block: u32, guard: &Pinned) {
        let entry = self.entry(block);
        // Ordering: Relaxed. Only the thread that closed the block changes the entry, and the entry passes nothing else
        // on.
        let first = entry.load(Ordering::Relaxed);
        entry.store(first.map_addr(|address| address | 1), Ordering::Relaxed);
        let directory = Arc::as_ptr(self).cast_mut();
        let bytes = Segment::<K, T>::segments_in_block(block) * size_of::<Segment<K, T>>();
        // SAFETY: a thread that pins from now on cannot reach the block. Only one exchange closes it.
        unsafe { guard.retire(directory, WHOLE | block as usize, bytes, free_block) };
    }
}

impl<K, T> Drop for Directory<K, T> {
    fn drop(&mut self) {
        for (number, level) in self.levels.iter().enumerate() {
            let biased = level.load(Ordering::Relaxed);
            if !biased.is_null() {
                // Each level except the first has as many blocks as all levels before it.
                let first = if number == 0 { 0 } else { level_len(number) };
                let level = std::ptr::slice_from_raw_parts_mut(biased.wrapping_add(first), level_len(number));
                // SAFETY: `entry` made the level with this length. No thread uses the directory any more.
                drop(unsafe { Box::from_raw(level) });
            }
        }
    }
}

impl<K, T> Segment<K, T> {
    /// The number of segments in a large block: a power of two.
    const MANY: usize = match BLOCK_BYTES / size_of::<Self>() {
        _ if cfg!(tollgate_loom) => 2,
        0 => 1,
        fit if fit > 64 => 64,
        fit => 1 << fit.ilog2(),
    };
    /// The bytes of a large block in an arena: whole pages of most systems. `None` if pages are not aligned enough for nodes.
    const PLACE_BYTES: Option<usize> = if align_of::<Self>() > PAGE {
        None
    } else {
        Some((Self::MANY * size_of::<Self>()).next_multiple_of(PAGE))
    };
    /// In segments whose nodes have cache lines of their own, every `STEP`th node is used. With 63 bytes or more
    /// between them, two nodes share no cache line, whatever their alignment.
    const STEP: usize = match 1 + 63_usize.div_ceil(size_of::<KeyNode<K, T>>()) {
        step if step > NODES => NODES,
        step => step,
    };
    /// The bits of nodes that are never used in a segment whose nodes have cache lines of their own.
    const BETWEEN: u64 = {
        let (mut bits, mut place) = (!HELD, 0);
        while place < NODES {
            bits &= !(1 << place);
            place += Self::STEP;
        }
        bits
    };

    /// The block of a segment, and its place in that block.
    #[inline(always)]
    fn block(id: u32) -> (u32, usize) {
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let many = Self::MANY as u32;
        match id.checked_sub(SMALL) {
            None => (id, 0),
            Some(after) => (SMALL + after / many, (after % many) as usize),
        }
    }

    /// The segment at a place of a block: the inverse of [`Segment::block`].
    fn id(block: u32, segment: usize) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let (many, segment) = (Self::MANY as u32, segment as u32);
        block.checked_sub(SMALL).map_or(block, |after| SMALL + after * many + segment)
    }

    /// The number of segments in this block.
    fn segments_in_block(block: u32) -> usize {
        if block < SMALL { 1 } else { Self::MANY }
    }

    /// The bits of nodes that are never used in this segment. A segment without other bits is empty.
    fn never(id: u32) -> u64 {
        if id < SPREAD { Self::BETWEEN } else { 0 }
    }

    /// Takes a node if one is free, and returns its place.
    fn take(&self) -> Option<usize> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let place = (taken | HELD).trailing_ones();
            if place > HELD.ilog2() {
                return None;
            }
            // Ordering: Acquire pairs with `release`: the previous key in this place is dropped.
            match self.taken.compare_exchange(taken, taken | 1 << place, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Some(place as usize),
                Err(newer) => taken = newer,
            }
        }
    }

    /// Prefetches the node that is taken next, if no other thread takes it: it may have been free for a long time.
    fn prefetch_free(&self) {
        let place = (self.taken.load(Ordering::Relaxed) | HELD).trailing_ones() as usize;
        prefetch(self.nodes.as_ptr().wrapping_add(place));
    }

    /// Holds the segment, if no other stripe holds it and at least a quarter of its nodes are free.
    fn hold(&self, id: u32) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        let has_room = 4 * taken.count_zeros() > (!Self::never(id) & !HELD).count_ones();
        taken & HELD == 0
            && has_room
            // Ordering: Relaxed. Threads take nodes by exchanges of their own.
            && self.taken.compare_exchange(taken, taken | HELD, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The memory of a node.
    ///
    /// # Safety
    /// `first` must be the first segment of a block that is not freed, and `segment` and `place` must be in bounds.
    #[inline(always)]
    unsafe fn node(first: *mut Self, segment: usize, place: usize) -> *mut MaybeUninit<KeyNode<K, T>> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            // Small nodes are as large as the words before them. Then the nodes of all segments lie at equal distances.
            if const { offset_of!(Self, nodes) == size_of::<KeyNode<K, T>>() } {
                return first.cast::<MaybeUninit<KeyNode<K, T>>>().add((segment << PLACE_BITS | place) + 1);
            }
            let nodes =
                (&raw const (*first.add(segment)).nodes).cast::<UnsafeCell<MaybeUninit<KeyNode<K, T>>>>();
            UnsafeCell::raw_get(nodes.add(place))
        }
    }
}

impl<K, T> Nodes<K, T> {
    pub(super) fn new(threads: usize) -> Self {
        let stripes = threads.next_power_of_two();
        let stripe = |_| CachePadded::new(Stripe { current: AtomicU32::new(NONE), hand: AtomicU32::new(0) });
        Self { directory: Arc::new(Directory::new()), stripes: (0..stripes).map(stripe).collect() }
    }

    /// The bytes of this number of nodes.
    pub(super) fn bytes(nodes: usize) -> usize {
        let size = size_of::<KeyNode<K, T>>();
        let step = Segment::<K, T>::STEP;
        let spread = nodes.min(SPREAD as usize * NODES.div_ceil(step));
        spread * size * step + (nodes - spread) * size
    }

    /// Returns the node of this number.
    ///
    /// # Safety
    /// `number` must have been read under this guard, from an index of this store that was its shard's index at that
    /// time.
    #[inline(always)]
    pub(super) unsafe fn get<'g>(&'g self, number: u64, _guard: &'g Pinned) -> &'g KeyNode<K, T> {
        let (block, segment, place) = split(number);
        // SAFETY: the node was written before its number was published, and its level, block and entry were made before
        // that. The number was in the index under the guard. So the node is returned, and its block freed, only after
        // the guard is dropped. Places are below NODES. Ordering: Relaxed, because the number was acquired.
        unsafe {
            let first = if block < FIRST_LEVEL {
                // The address of this level does not depend on the number, so it is read early.
                let level = self.directory.levels[0].load(Ordering::Relaxed);
                (*level.wrapping_add(block as usize)).load(Ordering::Relaxed)
            } else {
                self.first_in_higher_level(block)
            };
            let node = Segment::node(first, segment, place);
            (*node).assume_init_ref()
        }
    }

    /// The first segment of a block that is not in the first level.
    ///
    /// # Safety
    /// As for [`Nodes::get`].
    // Out of line, because the compiler would otherwise compute the level of every block, also of those of the first.
    #[inline(never)]
    unsafe fn first_in_higher_level(&self, block: u32) -> *mut Segment<K, T> {
        // SAFETY: guaranteed by the caller. Ordering: Relaxed, as in `get`.
        unsafe {
            let level = self.directory.levels[level(block).0].load(Ordering::Relaxed);
            (*level.wrapping_add(block as usize)).load(Ordering::Relaxed)
        }
    }

    /// Makes the caller the owner of the node of this number.
    ///
    /// # Safety
    /// No other thread may use the node or find it in an index.
    pub(super) unsafe fn own<'s>(&'s self, number: u64, guard: &'s Pinned) -> NewNode<'s, K, T> {
        NewNode { directory: &self.directory, number, guard }
    }

    /// Returns the node of this number to its segment. The node keeps this number of bytes elsewhere.
    ///
    /// # Safety
    /// As for [`Nodes::get`]. In addition, no thread that pins from now on can find the number in an index, and this is
    /// called only once for the number.
    pub(super) unsafe fn retire(&self, number: u64, elsewhere: usize, guard: &Pinned) {
        #[expect(clippy::cast_possible_truncation, reason = "pointers have 64 bits")]
        let part = number as usize;
        let bytes = size_of::<KeyNode<K, T>>().saturating_add(elsewhere);
        // The node is returned with many others, and by then its segment's word is there.
        let (block, segment, _) = split(number);
        if let Some(segments) = self.directory.segments(block, guard) {
            prefetch(&raw const segments[segment].taken);
        }
        // SAFETY: a block with a node is not closed, and it keeps the directory alive. The caller guarantees the rest.
        unsafe { guard.retire(Arc::as_ptr(&self.directory).cast_mut(), part, bytes, free) };
    }

    /// Writes a node into memory.
    pub(super) fn place<'s>(&'s self, node: KeyNode<K, T>, guard: &'s Pinned) -> NewNode<'s, K, T> {
        // Their number is a power of two.
        let stripe = &self.stripes[thread_number() & (self.stripes.len() - 1)];
        loop {
            // Ordering: Acquire, as for the entry of the block that contains this segment.
            let current = stripe.current.load(Ordering::Acquire);
            let segment = self.directory.segment(current, guard);
            if let Some((segment, place)) = segment.and_then(|segment| Some((segment, segment.take()?))) {
                // SAFETY: only this call has taken the place, and the place is below NODES.
                unsafe { (*segment.nodes[place].get()).write(node) };
                segment.prefetch_free();
                let (block, segment) = Segment::<K, T>::block(current);
                let number = (u64::from(block) << SEGMENT_BITS | segment as u64) << PLACE_BITS | place as u64;
                return NewNode { directory: &self.directory, number, guard };
            }
            let next = self.hold_another(stripe, guard);
            let release = match stripe.current.compare_exchange(
                current,
                next,
                // Ordering: Release passes on that the level of the entry exists.
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(old) => old,
                Err(_) => next,
            };
            // A held segment is not closed, so its block is in the directory.
            if release != NONE {
                self.directory.release(release, HELD, guard);
            }
        }
    }

    /// Holds a segment that has room, or opens one.
    // Not inlined, because one node of many needs it.
    #[cold]
    #[inline(never)]
    fn hold_another(&self, stripe: &Stripe, guard: &Pinned) -> u32 {
        // Ordering: AcqRel here and below: a thread that sees that a segment was opened also sees its level.
        let len = self.directory.len.load(Ordering::Acquire);
        let hand = stripe.hand.load(Ordering::Relaxed);
        let mut near = (0..LOOKED_AT.min(len)).map(|step| hand.wrapping_add(step) % len);
        let holds = |id: &u32| self.directory.segment(*id, guard).is_some_and(|segment| segment.hold(*id));
        let found = near.clone().find(holds).or_else(|| near.find(|id| self.directory.open(*id, guard)));
        stripe
            .hand
            .store(found.unwrap_or(hand.wrapping_add(LOOKED_AT - 1)).wrapping_add(1), Ordering::Relaxed);
        found.unwrap_or_else(|| {
            loop {
                let id = self.directory.len.fetch_add(1, Ordering::AcqRel);
                if self.directory.open(id, guard) {
                    return id;
                }
            }
        })
    }
}

impl<K, T> Drop for Nodes<K, T> {
    fn drop(&mut self) {
        let guard = reclaim::pin();
        for stripe in &self.stripes {
            let current = stripe.current.load(Ordering::Relaxed);
            if current != NONE {
                self.directory.release(current, HELD, &guard);
            }
        }
    }
}

/// The block, segment and place of a number.
#[inline(always)]
fn split(number: u64) -> (u32, usize, usize) {
    let (segment, place) =
        (number >> PLACE_BITS & ((1 << SEGMENT_BITS) - 1), number & ((1 << PLACE_BITS) - 1));
    #[expect(clippy::cast_possible_truncation, reason = "22 bits, and twice six")]
    let parts = ((number >> (SEGMENT_BITS + PLACE_BITS)) as u32, segment as usize, place as usize);
    parts
}

/// Drops a node and returns its place.
///
/// This function catches a panic of the key's `Drop`, and the panic hook reports it. Without this, the panic would
/// reach the caller of a check of another key, whose thread frees this node. The nodes after it would not be freed.
///
/// # Safety
/// A thread took the place of the node and wrote it, and no thread uses the node any more. `directory` is from an
/// [`Arc`] that a block keeps.
unsafe fn free<K, T>(directory: *mut Directory<K, T>, number: usize, guard: &Pinned) {
    let (block, segment, place) = split(number as u64);
    // SAFETY: by the caller's guarantee, the block keeps the directory, which is not dropped here. The node is written,
    // and no thread uses it any more.
    unsafe {
        let directory = ManuallyDrop::new(Arc::from_raw(directory.cast_const()));
        // The guard keeps the block, which another thread may close after the bit is cleared.
        let Some(segments) = directory.segments(block, guard) else {
            debug_assert!(false, "a block with a node is in the directory");
            return;
        };
        let node = segments[segment].nodes[place].get();
        let dropped = catch_unwind(AssertUnwindSafe(|| (*node).assume_init_drop()));
        directory.release_in(segments, (block, segment), 1 << place, guard);
        // Not dropped, because the drop of a panic payload may panic too.
        dropped.unwrap_or_else(forget);
    }
}

/// Frees a closed block, and its reference to the directory.
///
/// # Safety
/// The block was closed, no thread uses it any more, and this is called only once for it.
unsafe fn free_block<K, T>(directory: *mut Directory<K, T>, block: usize, _guard: &Pinned) {
    #[expect(clippy::cast_possible_truncation, reason = "drops the bit that marks a block")]
    let block = block as u32;
    // SAFETY: `open` has forgotten this reference, and made this block. The caller guarantees the rest. Nodes are dropped when
    // they are returned, and not here.
    unsafe {
        let directory = Arc::from_raw(directory.cast_const());
        // Ordering: Relaxed, because a null entry refers to nothing.
        let first = directory.entry(block).swap(std::ptr::null_mut(), Ordering::Relaxed);
        directory.free_memory(block, first.map_addr(|address| address & !1));
    }
}

/// A node that only one thread knows, and that is in no index.
pub(super) struct NewNode<'s, K, T> {
    directory: &'s Arc<Directory<K, T>>,
    number: u64,
    guard: &'s Pinned,
}

impl<K, T> NewNode<'_, K, T> {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Records that an index has the number now.
    pub(super) fn published(&mut self) {
        self.number = PUBLISHED;
    }
}

impl<K, T> Drop for NewNode<'_, K, T> {
    fn drop(&mut self) {
        if self.number != PUBLISHED {
            #[expect(clippy::cast_possible_truncation, reason = "pointers have 64 bits")]
            let number = self.number as usize;
            // SAFETY: the node was written when it was placed, and no other thread knows it.
            unsafe { free(Arc::as_ptr(self.directory).cast_mut(), number, self.guard) };
        }
    }
}
