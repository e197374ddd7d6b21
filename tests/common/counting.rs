//! An allocator that counts what each thread asks of it, and the bytes that it holds. A program with it has no other allocator.
#![allow(dead_code, reason = "each test program uses a part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting this thread's requests.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// The bytes that it holds, and the most that it ever held since the last reset. Below zero if it freed other threads' blocks.
    static HELD: Cell<[isize; 2]> = const { Cell::new([0; 2]) };
}

fn count(size: usize) {
    // A thread that is being torn down no longer counts.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    let _ = HELD.try_with(|held| {
        let [now, most] = held.get();
        let now = now + size.cast_signed();
        held.set([now, most.max(now)]);
    });
}

fn release(size: usize) {
    let _ = HELD.try_with(|held| {
        let [now, most] = held.get();
        held.set([now - size.cast_signed(), most]);
    });
}

// SAFETY: every call is handed on to `System` unchanged, which keeps the contract; the counter is a thread-local
// without a destructor and does not allocate.
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
        // Large blocks are remapped, not copied.
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

/// How often this thread has allocated.
pub(crate) fn allocated() -> u64 {
    ALLOCATIONS.get()
}

/// The bytes that this thread holds: what it allocated, less what it freed.
pub(crate) fn held() -> isize {
    HELD.get()[0]
}

/// How often `work` allocates.
pub(crate) fn allocations(work: impl FnOnce()) -> u64 {
    let before = allocated();
    work();
    allocated() - before
}

/// The most bytes that `work` held at once, beyond those that were held before.
pub(crate) fn peak_bytes(work: impl FnOnce()) -> usize {
    let before = held();
    HELD.set([before; 2]);
    work();
    usize::try_from(HELD.get()[1] - before).expect("the most is no less than the first")
}

/// How many bytes what `work` makes holds on the heap.
pub(crate) fn bytes_held<T>(work: impl FnOnce() -> T) -> usize {
    let before = held();
    let made = work();
    let after = held();
    drop(made);
    usize::try_from(after - before).expect("work frees no more than it allocates")
}
