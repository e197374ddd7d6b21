//! An allocator with a stretch of memory of its own, which takes no lock and can be made read-only.
//!
//! What a thread allocates [`inside`] lies there, one block after the other, and is never given out again. So a thread that is stopped
//! in the middle of allocating holds up nobody, and a limiter that was made inside, all of it, can be watched for [`writes`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Addresses, of which pages are taken as they are touched.
const RESERVED: usize = 8 << 30;
/// Protection goes by pages, and a huge one has so many bytes.
const PAGE: usize = 2 << 20;

/// Where the stretch begins; 0 before there is one.
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

// SAFETY: blocks of the arena are apart, aligned, within memory that was mapped for all of the process's life, and zero, since none
// is given out twice; all others are the system's, and only those go back to it.
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
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_ours(block.addr()) {
            // SAFETY: as above; blocks that are not the arena's came from `System`.
            unsafe { System.dealloc(block, layout) }
        }
    }
}

/// Does `work` with all that this thread allocates meanwhile in the arena.
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
    // SAFETY: an anonymous mapping at an address of the system's choice touches no other memory.
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
    assert!(begin != libc::MAP_FAILED, "no addresses");
    let begin = begin.expose_provenance().next_multiple_of(PAGE);
    NEXT.store(begin, Ordering::Relaxed);
    BEGIN.store(begin, Ordering::Relaxed);
}

/// The pages of all that `make` allocates, and what it makes. One thread at a time.
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

/// Makes the pages writable again, and remembers that somebody wrote.
extern "C" fn fault(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the system hands over a valid `siginfo_t`, which has an address for this signal.
    let address = unsafe { (*info).si_addr() }.addr();
    if is_ours(address) {
        FAULTS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: this page and the one after it are the arena's, whose mapping is a page longer than it.
        let _ = unsafe {
            protect(
                &(address / PAGE * PAGE..address / PAGE * PAGE + PAGE),
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
    } else {
        // SAFETY: resetting a signal is always allowed: the next such fault ends the process, as it should.
        let _ = unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    }
}

/// # Safety
/// The pages must be the arena's.
unsafe fn protect(pages: &Range<usize>, protection: libc::c_int) -> libc::c_int {
    // SAFETY: the caller's promise; nothing is unmapped.
    unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(pages.start), pages.len(), protection) }
}

/// How many pages of these are written to while `work` runs. One thread at a time. An exchange that fails is a write as well.
pub(crate) fn writes(pages: &Range<usize>, work: impl FnOnce()) -> usize {
    // SAFETY: zero bytes are a valid `sigaction`, to which a handler of the right form for these flags is put.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = fault;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()), 0);
    }
    FAULTS.store(0, Ordering::Relaxed);
    // SAFETY: `pages_of` made them.
    assert_eq!(unsafe { protect(pages, libc::PROT_READ) }, 0, "the arena's pages can be protected");
    work();
    // SAFETY: as above.
    assert_eq!(unsafe { protect(pages, libc::PROT_READ | libc::PROT_WRITE) }, 0);
    FAULTS.load(Ordering::Relaxed)
}
