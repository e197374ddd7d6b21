//! Memory for nodes: chunks of whole cache lines, carved from blocks.
//!
//! Every charge writes its node, and every look-up that passes by reads it. Nodes from the general allocator are some
//! 48 bytes apart: they straddle lines, and share them with other nodes that other threads write. Here a node begins
//! a line of its own, and costs whole lines: one for keys of up to 32 bytes if the head is all the state (16 if there is a
//! tail), else two.
//!
//! A *block* has 7 chunks, which are given out in order and never given out again, so no thread that still looks at an
//! old node can see a new one in its place. A block counts its chunks in use, and one more while chunks are given out of
//! it; the thread that takes the last count away frees it. Seven bounds what a single long-lived key among many short-lived ones
//! can hold on to: eight times its own chunk.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::base::sync::epoch::Guard;
use crate::base::sync::{AtomicPtr, AtomicUsize, Ordering};

/// With the header's line this makes a block of 512 bytes for small keys.
const CHUNKS: usize = 7;

/// The block that chunks are being given out of; null at first.
pub(super) struct NodeAllocator<N>(AtomicPtr<Block<N>>);

#[repr(C, align(64))]
struct Block<N> {
    /// Chunks given out, and vain attempts.
    given: AtomicUsize,
    /// Chunks in use, and one while an allocator has the block.
    counted: AtomicUsize,
    chunks: [Chunk<N>; CHUNKS],
}

#[repr(C, align(64))]
struct Chunk<N> {
    node: N,
    block: *mut Block<N>,
}

impl<N: Send + 'static> NodeAllocator<N> {
    pub(super) fn empty() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Puts a node into a chunk.
    pub(super) fn place(&self, node: N, guard: &Guard) -> Unlinked<N> {
        // Ordering: Acquire pairs with the exchange below: the block's counts are there.
        let mut block = self.0.load(Ordering::Acquire);
        loop {
            if !block.is_null() {
                // SAFETY: a block is freed when no allocator has had it for an epoch and its chunks are out of use. It was
                // this allocator's under the guard, which is held.
                let counts = unsafe { (&(*block).given, &(*block).counted) };
                // Ordering: Relaxed. Each number goes to one thread; the allocator's own count keeps the block until the
                // guard is dropped, so ours is in time.
                let number = counts.0.fetch_add(1, Ordering::Relaxed);
                if number < CHUNKS {
                    counts.1.fetch_add(1, Ordering::Relaxed);
                    // SAFETY: the chunk was given to this call alone, and never before.
                    return unsafe { Block::fill(block, number, node) };
                }
            }
            let new = Block::new();
            // Ordering: Release publishes the block; Acquire for another thread's.
            match self.0.compare_exchange(block, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(old) => {
                    if !old.is_null() {
                        // SAFETY: the allocator had one count, and gives it up once: as only one exchange away from a
                        // block can succeed. Deferred, for threads that are about to count a chunk of it.
                        unsafe { guard.retire(old, Block::release) };
                    }
                    // SAFETY: `Block::new` counted and gave out the first chunk, to its maker.
                    return unsafe { Block::fill(new, 0, node) };
                }
                Err(other) => {
                    // SAFETY: not published: both of its counts are ours.
                    unsafe {
                        Block::release(new);
                        Block::release(new);
                    }
                    block = other;
                }
            }
        }
    }
}

impl<N> Drop for NodeAllocator<N> {
    fn drop(&mut self) {
        let block = self.0.load(Ordering::Relaxed);
        if !block.is_null() {
            // SAFETY: the allocator's own count. No thread uses the allocator any more.
            unsafe { Block::release(block) };
        }
    }
}

impl<N> Block<N> {
    /// A block whose first chunk is given out to the caller: counted for it, and for the allocator.
    fn new() -> *mut Self {
        let layout = Layout::new::<Self>();
        // SAFETY: the size is not zero.
        let block = unsafe { alloc(layout) }.cast::<Self>();
        if block.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: allocated with the layout of a block just now. Chunks stay unwritten until they are given out.
        unsafe {
            (&raw mut (*block).given).write(AtomicUsize::new(1));
            (&raw mut (*block).counted).write(AtomicUsize::new(2));
        }
        block
    }

    /// # Safety
    /// The chunk of this number was given to the caller, and counted.
    unsafe fn fill(block: *mut Self, number: usize, node: N) -> Unlinked<N> {
        // SAFETY: `number` is below CHUNKS. Pointers are made of the block's own, not of references to its parts, so
        // they are good for all of it.
        unsafe {
            let chunk = (&raw mut (*block).chunks).cast::<Chunk<N>>().add(number);
            chunk.write(Chunk { node, block });
            Unlinked(NonNull::new_unchecked(chunk.cast::<N>()))
        }
    }

    /// Takes one count away.
    ///
    /// # Safety
    /// The count was the caller's.
    unsafe fn release(block: *mut Self) {
        // Ordering: AcqRel. All uses of the block come before the last release, which frees it.
        // SAFETY: not freed yet, since the caller's count was in it.
        if unsafe { (*block).counted.fetch_sub(1, Ordering::AcqRel) } == 1 {
            // SAFETY: allocated by `new` with this layout, and no thread counts it any more. Nodes were dropped before
            // their counts were taken away; the counts themselves need no drop.
            unsafe { dealloc(block.cast(), Layout::new::<Self>()) };
        }
    }
}

/// Drops a node and gives its chunk back.
///
/// A panic of the key's `Drop` ends here, and the panic hook reports it. Otherwise it would come out of some other key's check,
/// whose thread frees this node, and leak the nodes that are freed after it.
///
/// # Safety
/// `node` came from [`Unlinked::into_raw`], by the pointer that it gave, and nothing uses it any more.
pub(super) unsafe fn free<N>(node: *mut N) {
    // SAFETY: a node is the first field of its chunk, and the pointer is good for the whole block. The chunk's count
    // is this node's.
    unsafe {
        let block = (*node.cast::<Chunk<N>>()).block;
        let dropped = catch_unwind(AssertUnwindSafe(|| node.drop_in_place()));
        Block::release(block);
        // Not dropped: a payload may panic as well.
        dropped.unwrap_or_else(forget);
    }
}

/// A node that is in no list, and known to one thread.
pub(super) struct Unlinked<N>(NonNull<N>);

impl<N> Unlinked<N> {
    pub(super) fn get_mut(&mut self) -> &mut N {
        // SAFETY: nobody else knows the node.
        unsafe { self.0.as_mut() }
    }

    /// The pointer to link the node by. Who links it in sees to [`free`].
    pub(super) fn into_raw(self) -> *mut N {
        let pointer = self.0.as_ptr();
        forget(self);
        pointer
    }

    /// # Safety
    /// `node` came from [`Unlinked::into_raw`], and was not linked in.
    pub(super) unsafe fn from_raw(node: *mut N) -> Self {
        // SAFETY: it was not null when it was made.
        Self(unsafe { NonNull::new_unchecked(node) })
    }
}

impl<N> Drop for Unlinked<N> {
    fn drop(&mut self) {
        // SAFETY: by the pointer that it was made with, and nobody else knows it.
        unsafe { free(self.0.as_ptr()) };
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::sync::epoch::pin;

    #[test]
    fn every_node_is_on_a_line_of_its_own_and_is_dropped_once() {
        let witness = Arc::new(());
        let allocator = NodeAllocator::empty();
        let nodes: Vec<_> = (0..100).map(|_| allocator.place(Arc::clone(&witness), &pin())).collect();
        let mut lines: Vec<usize> = nodes.iter().map(|node| node.0.as_ptr().addr()).collect();
        assert!(lines.iter().all(|line| line % 64 == 0));
        lines.dedup();
        assert_eq!(lines.len(), 100);
        assert_eq!(Arc::strong_count(&witness), 101);
        let (kept, dropped): (Vec<_>, Vec<_>) =
            nodes.into_iter().enumerate().partition(|(index, _)| index % 3 == 0);
        drop(dropped);
        drop(allocator);
        assert_eq!(Arc::strong_count(&witness), 1 + kept.len());
        drop(kept);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}
