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

/// Memory that starts as zeros.
#[derive(Debug)]
pub(super) struct Block {
    start: NonNull<u8>,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    /// Mapped from the operating system. The value is only dropped.
    System {
        _map: Map,
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
            && let Some((start, map)) = map::zeroed(bytes)
        {
            return Some(Self { start, origin: Origin::System { _map: map } });
        }
        Self::allocated(bytes)
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

    pub(super) type Map = memmap2::MmapMut;

    /// Maps `bytes` zero bytes at the start of a page, or returns `None` if the system refuses.
    pub(super) fn zeroed(bytes: usize) -> Option<(NonNull<u8>, Map)> {
        let mut map = Map::map_anon(bytes).ok()?;
        advise(&map, bytes);
        Some((NonNull::new(map.as_mut_ptr())?, map))
    }

    /// Blocks of at least this size ask for huge pages. With 40,000 small pages, the translation of an address costs
    /// about as much as the load of the cache line. And a small page costs two faults, because it is read before it is
    /// written: about a fifth of the first check of each key. The memory of smaller blocks must not grow in such large
    /// steps.
    #[cfg(target_os = "linux")]
    const HUGE_FROM: usize = 8 << 20;
    /// Blocks below this size, the size of a huge page, refuse huge pages. The kernel joins neighbouring mappings. If it
    /// uses huge pages everywhere, a write to one block could make a part of many blocks resident.
    #[cfg(target_os = "linux")]
    const SMALL_BELOW: usize = 2 << 20;

    /// Tells the kernel whether to use huge pages. This is only a hint, so a failure is ignored.
    #[cfg(target_os = "linux")]
    fn advise(map: &Map, bytes: usize) {
        let advice = match bytes {
            HUGE_FROM.. => memmap2::Advice::HugePage,
            ..SMALL_BELOW => memmap2::Advice::NoHugePage,
            _ => return,
        };
        let _ = map.advise(advice);
    }

    #[cfg(not(target_os = "linux"))]
    fn advise(_map: &Map, _bytes: usize) {}
}

#[cfg(not(all(feature = "std", unix, not(miri))))]
mod map {
    use core::ptr::NonNull;

    /// There are no mappings.
    #[derive(Debug)]
    pub(super) enum Map {}

    pub(super) fn zeroed(_bytes: usize) -> Option<(NonNull<u8>, Map)> {
        None
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
