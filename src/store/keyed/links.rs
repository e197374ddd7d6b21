//! Arrays of buckets: null links, zeroed by the allocator, aligned so that their address has bits to spare.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use super::list::Link;
use crate::base::sync::AtomicPtr;

/// The alignment: a cache line, so that no bucket straddles two and six bits of the address are zero.
pub(super) const ALIGN: usize = 64;

/// What lies before the links: room to align them, and the allocation's own address just before them.
const BEFORE: usize = ALIGN + size_of::<*mut u8>();

/// Larger alignments than the allocator's own would cost a pass of zeroes over the memory, which a table that
/// doubles would pay for in one request. So the array is aligned by hand, within an allocation of small alignment.
fn layout<K, T>(len: usize) -> Layout {
    let bytes = len.checked_mul(size_of::<Link<K, T>>()).and_then(|bytes| bytes.checked_add(BEFORE));
    match bytes.map(|bytes| Layout::from_size_align(bytes, align_of::<Link<K, T>>())) {
        Some(Ok(layout)) => layout,
        _ => panic!("a table of {len} buckets is larger than memory can be"),
    }
}

/// `len` null links.
pub(super) fn alloc<K, T>(len: usize) -> *mut Link<K, T> {
    let layout = layout::<K, T>(len);
    // SAFETY: the size is not zero.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        handle_alloc_error(layout);
    }
    let offset = (start.addr() + BEFORE) / ALIGN * ALIGN - start.addr();
    // SAFETY: the offset is at most `BEFORE`, and at least the size of a pointer, so both places lie within the
    // allocation, and are aligned for what they hold.
    unsafe {
        let links = start.add(offset).cast::<Link<K, T>>();
        links.cast::<*mut u8>().sub(1).write(start);
        // An `AtomicPtr` is as a pointer in memory, of which all zeros is the null pointer; loom's is not.
        if cfg!(tollgate_loom) {
            for index in 0..len {
                links.add(index).write(AtomicPtr::new(std::ptr::null_mut()));
            }
        }
        links
    }
}

/// Frees links.
///
/// # Safety
/// `links` came from [`alloc`] with the same `len`, and is used no more.
pub(super) unsafe fn free<K, T>(links: *mut Link<K, T>, len: usize) {
    // SAFETY: `alloc` wrote the start there, and allocated with this layout.
    unsafe {
        if cfg!(tollgate_loom) {
            std::ptr::slice_from_raw_parts_mut(links, len).drop_in_place();
        }
        let start = links.cast::<*mut u8>().sub(1).read();
        dealloc(start, layout::<K, T>(len));
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::Ordering;

    #[test]
    fn links_are_null_aligned_and_freed() {
        for len in [1, 2, 3, 1_000, 1 << 20] {
            let links = alloc::<u64, ()>(len);
            assert_eq!(links.addr() % ALIGN, 0);
            for index in [0, len - 1] {
                // SAFETY: within the array just made.
                assert!(unsafe { &*links.add(index) }.load(Ordering::Relaxed).is_null());
            }
            // SAFETY: made above, used no more.
            unsafe { free(links, len) };
        }
    }
}
