//! Blocks of zeroed memory.
//!
//! A table must use memory only as it fills. Large blocks are therefore mapped from the operating system, which provides
//! each page when it is first used. Allocators do not promise this. For example, after one free of a large block, glibc
//! takes later blocks of that size from its heap and writes zeros to them, which touches every page.
//!
//! Small blocks come from the allocator. So do large ones without `std`, on systems other than Unix, under Miri, and if
//! the system refuses a mapping.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::ptr::NonNull;

use self::map::Map;

/// The alignment of blocks, in bytes: two cache lines. No bucket and no sketch line crosses such a boundary.
pub(super) const ALIGN: usize = 128;

/// Blocks of at least this size are mapped. A mapping takes whole pages and two system calls, which is little for such a
/// block. The smallest part of a rule's default store has this size.
const MAPPED_FROM: usize = 16 << 10;

/// Blocks of at least this size ask for huge pages. With 40,000 small pages, the translation of an address costs about as
/// much as the load of the cache line. And a small page costs two faults, because it is read before it is written: about a
/// fifth of the first check of each key. The memory of smaller blocks must not grow in such large steps.
const HUGE_FROM: usize = 8 << 20;

/// The bytes of a huge page on most systems.
#[cfg(feature = "std")]
const HUGE_PAGE: usize = 2 << 20;

/// Memory that starts as zeros.
#[derive(Debug)]
pub(super) struct Block {
    start: NonNull<u8>,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    /// Mapped from the operating system.
    System {
        #[cfg_attr(not(feature = "std"), expect(dead_code, reason = "the value is only dropped"))]
        map: Map,
    },
    Allocator {
        allocation: NonNull<u8>,
        layout: Layout,
    },
}

impl Block {
    /// Returns `bytes` zero bytes, aligned to [`ALIGN`], or `None` if there is not enough memory.
    pub(super) fn zeroed(bytes: usize) -> Option<Self> {
        if bytes >= MAPPED_FROM
            && let Some((start, map)) = map::zeroed(bytes, HUGE_FROM)
        {
            return Some(Self { start, origin: Origin::System { map } });
        }
        Self::allocated(bytes)
    }

    /// Returns `bytes` zero bytes at the start of a page, which ask for huge pages and can be discarded, or `None` if the block is
    /// smaller than such a page, or the system has no such blocks.
    #[cfg(feature = "std")]
    pub(super) fn huge(bytes: usize) -> Option<Self> {
        let is_possible = cfg!(target_os = "linux") && bytes >= HUGE_PAGE;
        let (start, map) = if is_possible { map::zeroed(bytes, HUGE_PAGE) } else { None }?;
        Some(Self { start, origin: Origin::System { map } })
    }

    /// Gives the pages of a part back to the system, as far as they lie wholly in this part. They are provided again when they are
    /// used again.
    ///
    /// # Safety
    /// No thread uses the content of this part any more, or accesses it during this call.
    #[cfg(feature = "std")]
    pub(super) unsafe fn discard(&self, part: core::ops::Range<usize>) {
        if let Origin::System { map } = &self.origin {
            // SAFETY: guaranteed by the caller.
            unsafe { map::discard(map, part) };
        }
    }

    /// If a zeroed allocation has an alignment above 16, the standard allocator writes zeros to every page. So this
    /// requests a larger allocation with alignment 16, and aligns the block itself.
    fn allocated(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.checked_add(ALIGN)?, 16).ok()?;
        // SAFETY: the layout's size is not zero, since it includes the alignment.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let offset = allocation.align_offset(ALIGN);
        // SAFETY: the offset is below ALIGN, and the allocation is ALIGN bytes longer than the block.
        let start = unsafe { allocation.add(offset) };
        Some(Self { start, origin: Origin::Allocator { allocation, layout } })
    }

    /// The first byte. The bytes stay in place as long as the block exists.
    pub(super) const fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Origin::Allocator { allocation, layout } = self.origin {
            // SAFETY: allocated with this layout in `allocated`.
            unsafe { dealloc(allocation.as_ptr(), layout) }
        }
    }
}

#[cfg(all(feature = "std", unix, not(miri)))]
mod map {
    use core::ptr::NonNull;

    #[cfg(target_os = "linux")]
    use super::HUGE_PAGE;

    pub(super) type Map = memmap2::MmapMut;

    /// Maps `bytes` zero bytes at the start of a page, or returns `None` if the system refuses. The mapping asks for huge pages if it
    /// has `huge_from` bytes or more.
    pub(super) fn zeroed(bytes: usize, huge_from: usize) -> Option<(NonNull<u8>, Map)> {
        let mut map = Map::map_anon(bytes).ok()?;
        advise(&map, bytes, huge_from);
        Some((NonNull::new(map.as_mut_ptr())?, map))
    }

    /// Tells the kernel whether to use huge pages. This is only a hint, so a failure is ignored.
    ///
    /// Blocks below the size of a huge page refuse huge pages. The kernel joins neighbouring mappings. If it uses huge pages
    /// everywhere, a write to one block could make a part of many blocks resident.
    #[cfg(target_os = "linux")]
    fn advise(map: &Map, bytes: usize, huge_from: usize) {
        let advice = match bytes {
            _ if bytes >= huge_from => memmap2::Advice::HugePage,
            ..HUGE_PAGE => memmap2::Advice::NoHugePage,
            _ => return,
        };
        let _ = map.advise(advice);
    }

    #[cfg(not(target_os = "linux"))]
    fn advise(_map: &Map, _bytes: usize, _huge_from: usize) {}

    /// Gives the pages in a part of the mapping back.
    ///
    /// # Safety
    /// As for [`Block::discard`](super::Block::discard).
    #[cfg(target_os = "linux")]
    pub(super) unsafe fn discard(map: &Map, part: core::ops::Range<usize>) {
        // SAFETY: the call only reads a constant of the system.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Some(page) = usize::try_from(page).ok().filter(|page| page.is_power_of_two()) else { return };
        // A mapping begins with a page.
        let (start, end) = (part.start.next_multiple_of(page), part.end & !(page - 1));
        if start < end {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the caller guarantees that the content is not used, and the range has only whole pages of it. A failure
            // leaves the pages as they are.
            let _ = unsafe { map.unchecked_advise_range(advice, start, end - start) };
        }
    }

    /// Does nothing: other systems have no blocks of huge pages.
    ///
    /// # Safety
    /// None.
    #[cfg(not(target_os = "linux"))]
    pub(super) unsafe fn discard(_map: &Map, _part: core::ops::Range<usize>) {}
}

#[cfg(not(all(feature = "std", unix, not(miri))))]
mod map {
    use core::ptr::NonNull;

    /// There are no mappings.
    #[derive(Debug)]
    pub(super) enum Map {}

    pub(super) fn zeroed(_bytes: usize, _huge_from: usize) -> Option<(NonNull<u8>, Map)> {
        None
    }

    /// # Safety
    /// None: there are no mappings.
    #[cfg(feature = "std")]
    pub(super) unsafe fn discard(map: &Map, _part: core::ops::Range<usize>) {
        match *map {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // G31
    #[test]
    fn blocks_of_both_sources_are_zero_and_aligned() {
        for bytes in [0, 1, MAPPED_FROM - 1, MAPPED_FROM, 3 << 20, 20 << 20] {
            for block in [Block::zeroed(bytes).unwrap(), Block::allocated(bytes).unwrap()] {
                assert_eq!(block.start().addr().get() % ALIGN, 0, "{bytes}");
                // SAFETY: the block has this many bytes, and no other reference to them.
                let bytes = unsafe { core::slice::from_raw_parts_mut(block.start().as_ptr(), bytes) };
                assert!(bytes.iter().step_by(4_096).chain(bytes.last()).all(|&byte| byte == 0));
                bytes.iter_mut().step_by(4_096).for_each(|byte| *byte = 1);
            }
        }
    }

    #[test]
    fn block_beyond_address_space_is_none() {
        for bytes in [1 << 62, usize::MAX / 2, usize::MAX - ALIGN, usize::MAX] {
            assert!(Block::zeroed(bytes).is_none(), "{bytes}");
        }
    }
}
