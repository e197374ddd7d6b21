//! Lazily zeroed arrays of atomic words, aligned to cache lines; and `prefetch`, which requests a cache line in
//! advance.
//!
//! The memory of a large array is resident only as far as it is used; see `block`.

#[cfg(feature = "std")]
pub(crate) mod arena;
#[cfg(not(tollgate_loom))]
mod block;
pub(crate) mod prefetch;

use crate::base::sync::Ordering::{Relaxed, Release};

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
    use core::ops::Deref;
    use core::ptr::NonNull;

    use super::Zeroed;
    use super::block::Block;
    use crate::base::multiply_high;

    /// A fixed array of words that start as zeros.
    pub(crate) struct Array<T: Zeroed> {
        words: NonNull<T>,
        len: usize,
        /// The memory of the words.
        _block: Block,
    }

    // SAFETY: the array owns its words as a box would; `Zeroed` types are `Send`.
    unsafe impl<T: Zeroed> Send for Array<T> {}
    // SAFETY: the array gives out only shared references to its words; `Zeroed` types are `Sync`.
    unsafe impl<T: Zeroed> Sync for Array<T> {}

    impl<T: Zeroed> Array<T> {
        /// Allocates `len` zeroed words, or returns `None` if there is not enough memory.
        pub(crate) fn zeroed(len: usize) -> Option<Self> {
            const { assert!(align_of::<T>() <= super::block::ALIGN, "a block is aligned for its words") };
            // At least one word: see `scaled`.
            let block = Block::zeroed(len.max(1).checked_mul(size_of::<T>())?)?;
            Some(Self { words: block.start().cast(), len, _block: block })
        }

        /// Returns the word at the index that the top bits of `hash` choose.
        #[inline(always)]
        pub(crate) fn scaled(&self, hash: u64) -> &T {
            #[expect(clippy::cast_possible_truncation, reason = "below the length")]
            let index = multiply_high(hash, self.len as u64) as usize;
            // SAFETY: 1. the index is below the length, or zero, and there is memory for at least one word (`zeroed`);
            // 2. zero bytes are valid words (`Zeroed`); 3. the block lives as long as self.
            unsafe { self.words.add(index).as_ref() }
        }
    }

    impl<T: Zeroed> Deref for Array<T> {
        type Target = [T];

        #[inline(always)]
        fn deref(&self) -> &[T] {
            // SAFETY: 1. the block holds `len` aligned words from `words` on (`zeroed`); 2. zero bytes are valid words
            // (`Zeroed`), and words have no destructors; 3. the block lives as long as self.
            unsafe { core::slice::from_raw_parts(self.words.as_ptr(), self.len) }
        }
    }
}

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

    // G31
    #[test]
    fn array_words_are_zero_and_aligned() {
        for len in [0, 1, 7, 1 << 16] {
            let words = Array::<AtomicU64>::zeroed(len).unwrap();
            assert_eq!(words.len(), len);
            assert_eq!(words.as_ptr().addr() % 128, 0);
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
