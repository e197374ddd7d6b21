//! An allocator that counts each thread's allocations and the bytes that the thread holds. It is the only allocator
//! of a program that includes it.
#![allow(dead_code, reason = "each test program uses a part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with counts for each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// The bytes that this thread holds, and their maximum since the last reset. A thread that frees blocks of other
    /// threads can be below zero.
    static HELD: Cell<[isize; 2]> = const { Cell::new([0; 2]) };
}

fn count(size: usize) {
    // A thread that is shutting down no longer counts.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    let _ = HELD.try_with(|held| {
        let [now, most] = held.get();
        let now = now.wrapping_add(size.cast_signed());
        held.set([now, most.max(now)]);
    });
}

fn release(size: usize) {
    let _ = HELD.try_with(|held| {
        let [now, most] = held.get();
        held.set([now.wrapping_sub(size.cast_signed()), most]);
    });
}

// SAFETY: every call goes to `System` unchanged, which keeps the contract; the counter is a thread-local without a
// destructor and does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Counts the new size only, because the system remaps large blocks instead of copying them.
        release(layout.size());
        count(size);
        // SAFETY: as above; `block` came from `System`, like every block here.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        release(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns how often this thread has allocated.
pub(crate) fn allocated() -> u64 {
    ALLOCATIONS.get()
}

/// Returns the bytes that this thread holds: allocated minus freed.
pub(crate) fn held() -> isize {
    HELD.get()[0]
}

/// Returns how often `work` allocates.
pub(crate) fn allocations(work: impl FnOnce()) -> u64 {
    let before = allocated();
    work();
    allocated() - before
}

/// Returns the most bytes that `work` held at once, in addition to those held before.
pub(crate) fn peak_bytes(work: impl FnOnce()) -> usize {
    let before = held();
    HELD.set([before; 2]);
    work();
    usize::try_from(HELD.get()[1] - before).expect("the maximum is at least the first value")
}

/// Returns the heap bytes that the result of `work` holds.
pub(crate) fn bytes_held<T>(work: impl FnOnce() -> T) -> usize {
    let before = held();
    let made = work();
    let after = held();
    drop(made);
    usize::try_from(after - before).expect("work frees no more than it allocates")
}
