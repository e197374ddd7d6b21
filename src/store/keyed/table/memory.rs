//! Memory for indices. Those of a store of many keys lie in arenas, so that they have huge pages: see `base/memory/arena`. There is
//! one arena for each size of an index, and one place in it for each shard. If a copy has the size of the index that it
//! replaces, it comes from the allocator, as all small indices do.

use std::mem::forget;
use std::sync::Arc;

use super::index::{EMPTY, Index, Line, new_line, new_lines};
use super::{SHARD_BITS, SHARDS};
use crate::base::lazy::Lazy;
use crate::base::memory::arena::Arena;
use crate::base::reclaim::Pinned;

/// The number of lines of the smallest index in an arena, as a power of two. The arena of this size has 8 MB.
const FIRST: u32 = 8;
/// The number of arenas. The largest indices have 2¹⁹ lines, for 1.6 billion keys in a store.
const SIZES: usize = 12;

/// The memory of a table's indices. Each index in an arena keeps it alive.
pub(super) struct IndexMemory {
    arenas: [Lazy<Arena>; SIZES],
}

impl IndexMemory {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { arenas: std::array::from_fn(|_| Lazy::default()) })
    }

    /// Returns an empty index of `len` lines, a power of two, for a shard.
    pub(super) fn new_index(self: &Arc<Self>, shard: usize, len: usize) -> Index {
        let Some(place) = self.arena(len).and_then(|arena| arena.claim(shard)) else {
            return Index::of(Box::into_raw(new_lines(len, EMPTY)).cast(), len);
        };
        forget(Arc::clone(self));
        let base = place.cast::<Line>().as_ptr();
        for line in 0..len {
            // SAFETY: the place has room for `len` lines, is aligned for them, and has no other user.
            unsafe { base.add(line).write(new_line(EMPTY)) };
        }
        Index::of(base, len)
    }

    fn size(len: usize) -> Option<usize> {
        Some(len.ilog2().checked_sub(FIRST)? as usize)
    }

    fn arena(&self, len: usize) -> Option<&Arena> {
        let arena = self.arenas.get(Self::size(len)?)?;
        arena.get_or_make(|| Arena::new(SHARDS, len * size_of::<Line>()).ok_or(())).ok()
    }

    /// The arena of an index, with the index's place in it, if it is in one.
    fn place(&self, base: *const Line, len: usize) -> Option<(&Arena, usize)> {
        let arena = self.arenas.get(Self::size(len)?)?.get()?;
        Some((arena, arena.place(base)?))
    }

    #[cfg(all(test, not(tollgate_loom)))]
    pub(super) fn is_in_arena(&self, index: Index) -> bool {
        self.place(index.base(), index.len()).is_some()
    }

    /// Frees an index once no thread that is pinned now can use it.
    ///
    /// # Safety
    /// The index is from [`IndexMemory::new_index`]. No thread that pins from now on can reach it, and this is called only once for
    /// it.
    pub(super) unsafe fn retire(self: &Arc<Self>, index: Index, guard: &Pinned) {
        let (base, len) = (index.base(), index.len());
        let bytes = len * size_of::<Line>();
        match self.place(base, len) {
            // SAFETY: guaranteed by the caller. The index in the place keeps the memory alive.
            Some((_, place)) => unsafe {
                guard.retire(Arc::as_ptr(self).cast_mut(), part_of(len, place), bytes, free_place);
            },
            // SAFETY: guaranteed by the caller.
            None => unsafe { guard.retire(base, len, bytes, free_box) },
        }
    }

    /// Frees an index now.
    ///
    /// # Safety
    /// The index is from [`IndexMemory::new_index`], or vacant. No thread uses it any more, and this is called only once for it.
    pub(super) unsafe fn free(self: &Arc<Self>, index: Index, guard: &Pinned) {
        let (base, len) = (index.base(), index.len());
        match self.place(base, len) {
            // SAFETY: guaranteed by the caller. The index in the place keeps the memory alive.
            Some((_, place)) => unsafe {
                free_place(Arc::as_ptr(self).cast_mut(), part_of(len, place), guard);
            },
            // SAFETY: guaranteed by the caller.
            None => unsafe { free_box(base, len, guard) },
        }
    }
}

/// The length of an index in an arena, and its place there, in one number.
fn part_of(len: usize, place: usize) -> usize {
    len << SHARD_BITS | place
}

/// # Safety
/// `base` must be the address of an index of `len` lines from the allocator, and no thread may use this index any more.
unsafe fn free_box(base: *mut Line, len: usize, _guard: &Pinned) {
    // SAFETY: the index is such a box, as the caller guarantees.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(base, len)) });
}

/// # Safety
/// `memory` must have an index in an arena, whose length and place are `part`, and no thread may use this index any more.
unsafe fn free_place(memory: *mut IndexMemory, part: usize, _guard: &Pinned) {
    // SAFETY: `new_index` has forgotten this reference. The caller guarantees the rest.
    unsafe {
        let memory = Arc::from_raw(memory.cast_const());
        if let Some(arena) = memory.arena(part >> SHARD_BITS) {
            arena.release(part % SHARDS);
        }
    }
}
