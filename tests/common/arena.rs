//! An allocator with its own range of memory, the arena. The arena takes no lock and can be made read-only.
//!
//! Allocations within [`inside`] come from the arena, one after the other. The arena never reuses their memory.
//!
//! - A thread that is stopped during an allocation does not block other threads.
//! - A limiter that was created inside lies entirely in the arena, so the tests can detect its [`writes`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of reserved addresses. The system provides each page when it is first touched.
const RESERVED: usize = 8 << 30;
/// Bytes of a huge page. Protection applies to whole pages, and the system may use huge ones.
const PAGE: usize = 2 << 20;

/// The first address of the arena, or 0 before it is mapped.
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static FAULTS: AtomicUsize = AtomicUsize::new(0);

thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });

struct Arena;

#[global_allocator]
static ARENA: Arena = Arena;

fn is_ours(address: usize) -> bool {
    address.wrapping_sub(BEGIN.load(Ordering::Relaxed)) < RESERVED && BEGIN.load(Ordering::Relaxed) != 0
}

fn take(layout: Layout) -> *mut u8 {
    let place = |next: usize| next.next_multiple_of(layout.align());
    let end = BEGIN.load(Ordering::Relaxed) + RESERVED;
    let take = |next| Some(place(next) + layout.size()).filter(|next| *next <= end);
    match NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
        Ok(next) => ptr::with_exposed_provenance_mut(place(next)),
        Err(_) => ptr::null_mut(),
    }
}

// SAFETY: the arena's blocks are disjoint and aligned, and lie in memory that stays mapped until the process ends.
// They are zero, since no block is handed out twice. All other blocks come from the system's allocator, and only
// those return to it, or are leaked.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if INSIDE.try_with(Cell::get).unwrap_or(false) {
            return take(layout);
        }
        // SAFETY: the caller keeps `alloc`'s contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if INSIDE.try_with(Cell::get).unwrap_or(false) {
            return take(layout);
        }
        // SAFETY: the caller keeps `alloc_zeroed`'s contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Inside, a thread leaks the system's blocks, because the system's allocator takes a lock. They are what threads of
        // earlier tests have left to free.
        if !is_ours(block.addr()) && !INSIDE.try_with(Cell::get).unwrap_or(false) {
            // SAFETY: the caller keeps `dealloc`'s contract, and a block outside the arena came from `System`.
            unsafe { System.dealloc(block, layout) }
        }
    }
}

/// Runs `work`. All allocations of this thread during `work` come from the arena.
pub(crate) fn inside<R>(work: impl FnOnce() -> R) -> R {
    struct Outside;
    impl Drop for Outside {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }
    map();
    INSIDE.set(true);
    let _outside = Outside;
    work()
}

fn map() {
    if BEGIN.load(Ordering::Relaxed) != 0 {
        return;
    }
    // SAFETY: an anonymous mapping at an address that the system chooses touches no other memory.
    let begin = unsafe {
        libc::mmap(
            ptr::null_mut(),
            RESERVED + PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert!(begin != libc::MAP_FAILED, "the system cannot reserve the arena's addresses");
    let begin = begin.expose_provenance().next_multiple_of(PAGE);
    NEXT.store(begin, Ordering::Relaxed);
    BEGIN.store(begin, Ordering::Relaxed);
}

/// Runs `make` inside the arena. Returns the pages of its allocations and its result. Only one thread may call this
/// at a time.
pub(crate) fn pages_of<R>(make: impl FnOnce() -> R) -> (Range<usize>, R) {
    let next_page =
        || NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(next.next_multiple_of(PAGE)));
    map();
    let _ = next_page();
    let begin = NEXT.load(Ordering::Relaxed);
    let made = inside(make);
    let _ = next_page();
    (begin..NEXT.load(Ordering::Relaxed), made)
}

/// Handles a write to a protected page: counts it, and makes the page writable again.
extern "C" fn fault(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the system hands over a valid `siginfo_t`, which has an address for this signal.
    let address = unsafe { (*info).si_addr() }.addr();
    if is_ours(address) {
        FAULTS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the page belongs to the arena's mapping, which is one page longer than the arena.
        let _ = unsafe {
            protect(
                &(address / PAGE * PAGE..address / PAGE * PAGE + PAGE),
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
    } else {
        // SAFETY: a signal may always be reset. The next fault of this kind then ends the process, as it should.
        let _ = unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    }
}

/// Sets the protection of `pages`.
///
/// # Safety
/// The pages must belong to the arena.
unsafe fn protect(pages: &Range<usize>, protection: libc::c_int) -> libc::c_int {
    // SAFETY: the caller promises that the pages belong to the arena, and no page is unmapped.
    unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(pages.start), pages.len(), protection) }
}

/// Returns how many of these pages are written to while `work` runs. A failed compare-exchange counts as a write.
/// Only one thread may call this at a time.
pub(crate) fn writes(pages: &Range<usize>, work: impl FnOnce()) -> usize {
    // SAFETY: zero bytes are a valid `sigaction`, and the handler's signature matches these flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = fault;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()), 0);
    }
    FAULTS.store(0, Ordering::Relaxed);
    // SAFETY: the pages come from `pages_of`.
    assert_eq!(unsafe { protect(pages, libc::PROT_READ) }, 0, "the arena's pages can be protected");
    work();
    // SAFETY: the pages come from `pages_of`.
    assert_eq!(unsafe { protect(pages, libc::PROT_READ | libc::PROT_WRITE) }, 0);
    FAULTS.load(Ordering::Relaxed)
}
