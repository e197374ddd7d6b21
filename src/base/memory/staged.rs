//! An array in two stages: a small one at first, and the whole one once the small one is full.
//!
//! A check needs the start of an array and its length. If it read them from two words that threads change, it could read
//! one of each array. So both arrays are described once, and one pointer tells which description is in force.

#[cfg(not(tollgate_loom))]
pub(crate) use self::raw::Staged;

#[cfg(not(tollgate_loom))]
mod raw {
    use core::ptr::NonNull;

    use crate::base::memory::Zeroed;
    use crate::base::memory::block::{ALIGN, Block};
    use crate::base::multiply_high;
    use crate::base::sync::AtomicPtr;
    use crate::base::sync::Ordering::{Acquire, Relaxed, Release};

    /// See the module's documentation.
    pub(crate) struct Staged<T: Zeroed> {
        /// The description of the array in use: one of `stages`.
        current: AtomicPtr<Stage<T>>,
        /// The descriptions of both arrays, in front of the words of the small one.
        stages: NonNull<[Stage<T>; 2]>,
        /// The memory of the descriptions and of the small array.
        _first: Block,
        /// The memory of the whole array.
        _whole: Block,
    }

    /// Words that start as zeros.
    struct Stage<T> {
        words: NonNull<T>,
        len: usize,
    }

    impl<T: Zeroed> Stage<T> {
        /// Returns the word at the index that the top bits of `hash` choose. There must be at least one word.
        #[inline(always)]
        fn scaled(&self, hash: u64) -> &T {
            #[expect(clippy::cast_possible_truncation, reason = "below the length")]
            let index = multiply_high(hash, self.len as u64) as usize;
            // SAFETY: 1. the index is below the length, or zero, and there is memory for one word (`Staged::zeroed`); 2. zero
            // bytes are valid words (`Zeroed`); 3. the memory lives as long as the stage.
            unsafe { self.words.add(index).as_ref() }
        }

        fn words(&self) -> &[T] {
            // SAFETY: 1. there are `len` aligned words from `words` on, as long as the stage exists (`Staged::zeroed`); 2. zero
            // bytes are valid words (`Zeroed`), and words have no destructors.
            unsafe { core::slice::from_raw_parts(self.words.as_ptr(), self.len) }
        }
    }

    // SAFETY: the arrays own their words as a box would; `Zeroed` types are `Send`.
    unsafe impl<T: Zeroed> Send for Staged<T> {}
    // SAFETY: the arrays give out only shared references to their words; `Zeroed` types are `Sync`.
    unsafe impl<T: Zeroed> Sync for Staged<T> {}

    impl<T: Zeroed> Staged<T> {
        /// Allocates both arrays. With `small` of 0, the whole one is in use from the start. `None` if there is not enough
        /// memory.
        pub(crate) fn zeroed(small: usize, whole: usize) -> Option<Self> {
            const {
                assert!(
                    align_of::<T>() <= ALIGN && size_of::<[Stage<T>; 2]>() <= ALIGN,
                    "both fit in front of the words"
                );
            }
            let bytes = |len: usize| len.checked_mul(size_of::<T>());
            let first = Block::zeroed(bytes(small)?.checked_add(ALIGN)?)?;
            // At least one word: see `scaled`.
            let of_whole = Block::zeroed(bytes(whole.max(1))?)?;
            let stages = first.start().cast::<[Stage<T>; 2]>();
            // SAFETY: the block begins with `ALIGN` bytes in front of the words.
            let words = unsafe { first.start().byte_add(ALIGN) }.cast();
            let both = [Stage { words, len: small }, Stage { words: of_whole.start().cast(), len: whole }];
            // SAFETY: the descriptions fit in these bytes, to which there is no other reference.
            unsafe { stages.write(both) };
            let staged = Self { current: AtomicPtr::default(), stages, _first: first, _whole: of_whole };
            let current = &raw const staged.stages()[usize::from(small == 0)];
            staged.current.store(current.cast_mut(), Release);
            Some(staged)
        }

        fn stages(&self) -> &[Stage<T>; 2] {
            // SAFETY: `zeroed` has written them, nothing changes them, and the block lives as long as self.
            unsafe { self.stages.as_ref() }
        }

        /// Returns the word of the array in use at the index that the top bits of `hash` choose.
        #[inline(always)]
        pub(crate) fn scaled(&self, hash: u64) -> &T {
            // Ordering: Relaxed. Both arrays existed before this value was shared. What a word says is published by the
            // exchange that wrote it.
            // SAFETY: the pointer is that of one of `stages`, which nothing changes, and which live as long as self.
            unsafe { &*self.current.load(Relaxed) }.scaled(hash)
        }

        /// Returns the word of the small array, or that of the whole one if there is no small one.
        pub(crate) fn first_scaled(&self, hash: u64) -> &T {
            let [small, whole] = self.stages();
            if small.len > 0 { small.scaled(hash) } else { whole.scaled(hash) }
        }

        pub(crate) fn whole_scaled(&self, hash: u64) -> &T {
            self.stages()[1].scaled(hash)
        }

        /// Returns the small array while it is in use.
        #[inline]
        pub(crate) fn small(&self) -> Option<&[T]> {
            let [small, _] = self.stages();
            // Ordering: Acquire; pairs with `grow`.
            core::ptr::eq(self.current.load(Acquire), small).then(|| small.words())
        }

        /// Returns the small array, in use or not.
        pub(crate) fn first(&self) -> &[T] {
            self.stages()[0].words()
        }

        pub(crate) fn whole(&self) -> &[T] {
            self.stages()[1].words()
        }

        /// Puts the whole array in use.
        pub(crate) fn grow(&self) {
            let whole = &raw const self.stages()[1];
            // Ordering: Release; pairs with `small`.
            self.current.store(whole.cast_mut(), Release);
        }
    }
}

/// A loom atomic has state of its own, so zero bytes are not a valid value. The models build each atomic separately.
#[cfg(tollgate_loom)]
pub(crate) struct Staged<T> {
    is_whole: crate::base::sync::AtomicU32,
    small: Box<[T]>,
    whole: Box<[T]>,
}

#[cfg(tollgate_loom)]
#[expect(clippy::cast_possible_truncation, reason = "below the length")]
fn index(hash: u64, len: usize) -> usize {
    crate::base::multiply_high(hash, len as u64) as usize
}

#[cfg(tollgate_loom)]
impl<T: super::Zeroed> Staged<T> {
    pub(crate) fn zeroed(small: usize, whole: usize) -> Option<Self> {
        let zeros = |len| (0..len).map(|_| T::zero()).collect();
        let is_whole = crate::base::sync::AtomicU32::new(u32::from(small == 0));
        Some(Self { is_whole, small: zeros(small), whole: zeros(whole) })
    }

    pub(crate) fn scaled(&self, hash: u64) -> &T {
        let is_whole = self.is_whole.load(crate::base::sync::Ordering::Relaxed) == 1;
        if is_whole { self.whole_scaled(hash) } else { self.first_scaled(hash) }
    }

    pub(crate) fn first_scaled(&self, hash: u64) -> &T {
        &self.small[index(hash, self.small.len())]
    }

    pub(crate) fn whole_scaled(&self, hash: u64) -> &T {
        &self.whole[index(hash, self.whole.len())]
    }

    pub(crate) fn small(&self) -> Option<&[T]> {
        let is_whole = self.is_whole.load(crate::base::sync::Ordering::Acquire) == 1;
        (!is_whole).then_some(&self.small)
    }

    pub(crate) fn first(&self) -> &[T] {
        &self.small
    }

    pub(crate) fn whole(&self) -> &[T] {
        &self.whole
    }

    pub(crate) fn grow(&self) {
        self.is_whole.store(1, crate::base::sync::Ordering::Release);
    }
}

impl<T: super::Zeroed> core::fmt::Debug for Staged<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (small, whole) = (self.first().len(), self.whole().len());
        f.debug_struct("Staged").field("small", &small).field("whole", &whole).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::{AtomicU64, Ordering::Relaxed};

    // G31
    #[test]
    fn both_stages_are_zero_and_apart() {
        for (small, whole) in [(0, 1), (1, 7), (32, 1 << 16)] {
            let staged = Staged::<AtomicU64>::zeroed(small, whole).unwrap();
            assert_eq!((staged.first().len(), staged.whole().len()), (small, whole));
            assert_eq!(staged.small().is_some(), small > 0);
            for words in [staged.first(), staged.whole()] {
                assert!(words.is_empty() || words.as_ptr().addr() % 128 == 0);
                assert!(words.iter().all(|word| word.swap(1, Relaxed) == 0));
            }
            for hash in [0, 1 << 63, u64::MAX] {
                let words = staged.small().unwrap_or(staged.whole());
                assert!(words.as_ptr_range().contains(&std::ptr::from_ref(staged.scaled(hash))));
            }
            staged.grow();
            assert!(staged.small().is_none());
            let last = staged.whole().last().unwrap();
            assert!(std::ptr::eq(staged.scaled(u64::MAX), last));
        }
    }
}
