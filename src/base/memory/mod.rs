//! Lazily zeroed arrays of atomic words, aligned to cache lines; and `prefetch`, which requests a cache line in
//! advance.
//!
//! The operating system provides large arrays as untouched pages of zeros, so a table uses memory only as it fills. If
//! a zeroed allocation has an alignment above 16, the standard allocator writes zeros to every page, which touches it.
//! This module therefore requests a larger allocation with alignment 16, and aligns the array itself.

pub(crate) mod prefetch;

use crate::base::sync::Ordering::{Relaxed, Release};

/// The size of two cache lines, in bytes: no bucket and no sketch line crosses such a boundary.
#[cfg(not(tollgate_loom))]
const ALIGN: usize = 128;

/// A value that is an atomic integer, for which zero bytes are the value 0.
///
/// # Safety
/// A value whose bytes are all zero must be valid, and dropping a value must do nothing.
pub(crate) unsafe trait Zeroed: Send + Sync {
    /// Returns the value 0.
    #[cfg(tollgate_loom)]
    fn zero() -> Self;

    /// Sets the value to 0. Reads first, so that untouched memory stays untouched.
    ///
    /// Ordering: Release, as for every other write of a word: a thread that sees the zero sees the earlier writes.
    fn clear(&self);
}

macro_rules! zeroed {
    ($($atomic:ident),*) => {$(
        // SAFETY: an atomic integer has the layout of the integer, and no destructor.
        unsafe impl Zeroed for crate::base::sync::$atomic {
            #[cfg(tollgate_loom)]
            fn zero() -> Self {
                Self::new(0)
            }

            fn clear(&self) {
                if self.load(Relaxed) != 0 {
                    self.store(0, Release);
                }
            }
        }
    )*};
}

zeroed!(AtomicU16, AtomicU32, AtomicU64);

// SAFETY: an array is its elements in order, without gaps.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {
    #[cfg(tollgate_loom)]
    fn zero() -> Self {
        core::array::from_fn(|_| T::zero())
    }

    fn clear(&self) {
        self.iter().for_each(T::clear);
    }
}

#[cfg(not(tollgate_loom))]
pub(crate) use self::raw::Array;

#[cfg(not(tollgate_loom))]
mod raw {
    use alloc::alloc::{Layout, alloc_zeroed, dealloc};
    use core::ops::Deref;
    use core::ptr::NonNull;

    use super::{ALIGN, Zeroed};
    use crate::base::multiply_high;

    /// A fixed array of words that start as zeros.
    pub(crate) struct Array<T: Zeroed> {
        words: NonNull<T>,
        len: usize,
        allocation: NonNull<u8>,
        layout: Layout,
    }

    // SAFETY: the array owns its words as a box would; `Zeroed` types are `Send`.
    unsafe impl<T: Zeroed> Send for Array<T> {}
    // SAFETY: the array gives out only shared references to its words; `Zeroed` types are `Sync`.
    unsafe impl<T: Zeroed> Sync for Array<T> {}

    impl<T: Zeroed> Array<T> {
        /// Returns the layout of `len` words, or `None` if it is larger than an allocation can be.
        fn layout(len: usize) -> Option<Layout> {
            // At least one word: see `scaled`.
            let bytes = len.max(1).checked_mul(size_of::<T>())?.checked_add(ALIGN)?;
            Layout::from_size_align(bytes, 16).ok()
        }

        /// Allocates `len` zeroed words, or returns `None` if there is not enough memory.
        pub(crate) fn zeroed(len: usize) -> Option<Self> {
            let layout = Self::layout(len)?;
            // SAFETY: the layout's size is not zero, since it includes the alignment.
            let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
            let offset = allocation.align_offset(ALIGN);
            // SAFETY: the offset is below ALIGN, and the allocation is ALIGN bytes longer than the words.
            let words: NonNull<T> = unsafe { allocation.add(offset) }.cast();
            super::ask_for_huge_pages(words.cast(), len * size_of::<T>());
            Some(Self { words, len, allocation, layout })
        }

        /// Returns the word at the index that the top bits of `hash` choose.
        #[inline(always)]
        pub(crate) fn scaled(&self, hash: u64) -> &T {
            #[expect(clippy::cast_possible_truncation, reason = "below the length")]
            let index = multiply_high(hash, self.len as u64) as usize;
            // SAFETY: 1. the index is below the length, or zero, and there is memory for at least one word (`layout`);
            // 2. zero bytes are valid words (`Zeroed`); 3. the allocation lives as long as self.
            unsafe { self.words.add(index).as_ref() }
        }
    }

    impl<T: Zeroed> Deref for Array<T> {
        type Target = [T];

        #[inline(always)]
        fn deref(&self) -> &[T] {
            // SAFETY: 1. the allocation holds `len` aligned words from `words` on (`zeroed`); 2. zero bytes are valid
            // words (`Zeroed`); 3. the allocation lives as long as self.
            unsafe { core::slice::from_raw_parts(self.words.as_ptr(), self.len) }
        }
    }

    impl<T: Zeroed> Drop for Array<T> {
        fn drop(&mut self) {
            // SAFETY: allocated with this layout in `zeroed`; the words have no destructors (`Zeroed`).
            unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
        }
    }
}

/// Arrays of at least this size ask for huge pages. With 40,000 small pages, the translation of an address costs about
/// as much as the load of the cache line. Smaller arrays gain little, and huge pages would make their memory grow in
/// larger steps.
#[cfg(not(tollgate_loom))]
const HUGE_FROM: usize = 16 << 20;

/// Tells the kernel that all of an area will be used, so that the kernel may use huge pages. This is only a hint, so a
/// failure is ignored.
#[cfg(all(feature = "std", target_os = "linux", not(tollgate_loom), not(miri)))]
fn ask_for_huge_pages(start: core::ptr::NonNull<u8>, bytes: usize) {
    use core::ffi::{c_int, c_void};

    /// From Linux's `mman-common.h`, the same on every architecture that has huge pages.
    const MADV_HUGEPAGE: c_int = 14;
    /// Huge pages begin at multiples of this size, on x86-64 and on aarch64 with pages of 4 KiB.
    const HUGE: usize = 2 << 20;

    // On Linux the standard library already links the C library; without `std` the crate must not link it.
    unsafe extern "C" {
        fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    }

    let offset = start.align_offset(HUGE);
    if bytes < HUGE_FROM || offset >= bytes {
        return;
    }
    let whole = (bytes - offset) & !(HUGE - 1);
    // SAFETY: 1. the area lies within an allocation of this module (`offset + whole <= bytes`) and begins on a page;
    // 2. this advice changes neither the contents of the area nor the access to it.
    unsafe {
        let _ = madvise(start.as_ptr().add(offset).cast(), whole, MADV_HUGEPAGE);
    }
}

#[cfg(all(any(not(feature = "std"), not(target_os = "linux"), miri), not(tollgate_loom)))]
fn ask_for_huge_pages(_start: core::ptr::NonNull<u8>, _bytes: usize) {}

/// A loom atomic has state of its own, so zero bytes are not a valid value. The models build each atomic separately.
#[cfg(tollgate_loom)]
pub(crate) struct Array<T>(Box<[T]>);

#[cfg(tollgate_loom)]
impl<T: Zeroed> Array<T> {
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        Some(Self((0..len).map(|_| T::zero()).collect()))
    }

    pub(crate) fn scaled(&self, hash: u64) -> &T {
        #[expect(clippy::cast_possible_truncation, reason = "below the length")]
        let index = crate::base::multiply_high(hash, self.0.len() as u64) as usize;
        &self.0[index]
    }
}

#[cfg(tollgate_loom)]
impl<T> core::ops::Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Zeroed> core::fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Array").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::{AtomicU16, AtomicU64, Ordering};

    #[test]
    fn array_words_are_zero_and_aligned() {
        for len in [0, 1, 7, 1 << 16] {
            let words = Array::<AtomicU64>::zeroed(len).unwrap();
            assert_eq!(words.len(), len);
            assert_eq!(words.as_ptr().addr() % ALIGN, 0);
            for (value, word) in (0..).zip(words.iter()) {
                assert_eq!(word.swap(value, Ordering::Relaxed), 0);
            }
            assert!((0..).zip(words.iter()).all(|(value, word)| word.load(Ordering::Relaxed) == value));
        }
        assert_eq!(Array::<AtomicU16>::zeroed(3).unwrap().len(), 3);
    }

    #[test]
    fn array_beyond_address_space_is_none() {
        assert!(Array::<AtomicU64>::zeroed(usize::MAX / 8).is_none());
        assert!(Array::<AtomicU64>::zeroed(usize::MAX).is_none());
    }
}
