//! A large part of the address space, divided into equal places.
//!
//! A store of many keys has its memory in thousands of parts, which are used and freed one by one. If an allocator provides
//! them, they lie in small pages, and at a million keys each access waits for the translation of its address. An arena has
//! the parts side by side in huge pages. The system provides pages when they are first used, and takes back the pages of a
//! place that is released. A huge page that is not full is memory all the same. A kernel with `khugepaged` may join the pages
//! around released ones to a huge page again, so an arena can have the memory of places that no one uses.
//!
//! A place has a bit, which is set while the place is taken:
//!
//! ```text
//! free ──► taken: one exchange sets the bit, and its thread has the memory alone
//!   ◄──── the pages are given back, and then the bit is cleared
//! ```
//! A thread that finds the bit set takes memory from the allocator instead, so no thread waits.

#[cfg(all(test, tollgate_loom))]
mod models;

#[cfg(not(tollgate_loom))]
pub(crate) use self::mapped::Arena;
#[cfg(tollgate_loom)]
pub(crate) use self::modelled::Arena;
use crate::base::sync::{AtomicU64, Ordering};

/// Which places are taken.
struct PlaceBits {
    taken: Box<[AtomicU64]>,
}

impl PlaceBits {
    fn new(places: usize) -> Self {
        Self { taken: (0..places.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Takes a place, unless it is taken.
    #[must_use]
    fn claim(&self, place: usize) -> bool {
        let bit = 1 << (place % 64);
        // Ordering: Acquire pairs with `release`: all uses of the place come before.
        self.taken[place / 64].fetch_or(bit, Ordering::Acquire) & bit == 0
    }

    /// Ends the use of a place that the caller has taken.
    fn release(&self, place: usize) {
        // Ordering: Release; see `claim`.
        self.taken[place / 64].fetch_and(!(1 << (place % 64)), Ordering::Release);
    }
}

#[cfg(not(tollgate_loom))]
mod mapped {
    use core::ptr::NonNull;

    use super::PlaceBits;
    use crate::base::memory::block::Block;

    /// See the module's documentation.
    pub(crate) struct Arena {
        block: Block,
        place_bytes: usize,
        /// The bytes of all places.
        bytes: usize,
        places: PlaceBits,
    }

    // SAFETY: the arena only passes its memory on, and to one thread at a time.
    unsafe impl Send for Arena {}
    // SAFETY: as above.
    unsafe impl Sync for Arena {}

    impl Arena {
        /// Returns `None` if these places have no use for huge pages, or if the system does not provide the memory.
        pub(crate) fn new(places: usize, place_bytes: usize) -> Option<Self> {
            let bytes = places.checked_mul(place_bytes)?;
            Some(Self { block: Block::huge(bytes)?, place_bytes, bytes, places: PlaceBits::new(places) })
        }

        /// Takes a place, unless it is taken, and returns its memory. The first place begins with a page, and the others
        /// follow without gaps. The content can be anything.
        pub(crate) fn claim(&self, place: usize) -> Option<NonNull<u8>> {
            let offset = self.offset(place);
            // SAFETY: `offset` has checked that the place is in the block.
            self.places.claim(place).then(|| unsafe { self.block.start().add(offset) })
        }

        /// The place that begins at an address, if the address is in this arena.
        pub(crate) fn place<T>(&self, address: *const T) -> Option<usize> {
            let offset = address.addr().checked_sub(self.block.start().addr().get())?;
            (offset < self.bytes).then(|| offset / self.place_bytes)
        }

        /// Gives back the memory of a place.
        ///
        /// # Safety
        /// The caller has taken the place, and no thread uses its memory any more.
        pub(crate) unsafe fn release(&self, place: usize) {
            let offset = self.offset(place);
            // SAFETY: guaranteed by the caller, and no other thread takes the place before `release`.
            unsafe { self.block.discard(offset..offset + self.place_bytes) };
            self.places.release(place);
        }

        fn offset(&self, place: usize) -> usize {
            let offset = place * self.place_bytes;
            assert!(offset < self.bytes, "a place of the arena");
            offset
        }
    }
}

#[cfg(tollgate_loom)]
mod modelled {
    use core::convert::Infallible;
    use core::ptr::NonNull;

    /// In models, all memory is from the allocator, because an atomic of loom has a state of its own.
    pub(crate) struct Arena(Infallible);

    impl Arena {
        pub(crate) fn new(_places: usize, _place_bytes: usize) -> Option<Self> {
            None
        }

        pub(crate) fn claim(&self, _place: usize) -> Option<NonNull<u8>> {
            match self.0 {}
        }

        pub(crate) fn place<T>(&self, _address: *const T) -> Option<usize> {
            match self.0 {}
        }

        /// # Safety
        /// None: there is no arena.
        pub(crate) unsafe fn release(&self, _place: usize) {
            match self.0 {}
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri), not(tollgate_loom)))]
mod tests {
    use super::*;

    const PLACES: usize = 200;
    const BYTES: usize = 48 << 10;

    #[test]
    fn places_are_apart_and_one_claim_has_each() {
        assert!(Arena::new(1, 1 << 20).is_none() && Arena::new(usize::MAX, 2).is_none());
        let arena = Arena::new(PLACES, BYTES).expect("there is memory");
        let claim = |place| arena.claim(place).map(|memory| memory.as_ptr());
        for place in 0..PLACES {
            let memory = claim(place).expect("the place is free");
            assert_eq!((arena.place(memory), claim(place)), (Some(place), None));
            // SAFETY: the claim has this memory alone.
            unsafe { memory.write_bytes(u8::try_from(place).expect("less than 256"), BYTES) };
        }
        // SAFETY: the place is taken, and not used afterwards.
        unsafe { arena.release(7) };
        let memory = claim(7).expect("the place is free again");
        // SAFETY: as above.
        unsafe { memory.write_bytes(255, BYTES) };
        for place in 0..PLACES {
            let expected = if place == 7 { 255 } else { u8::try_from(place).expect("less than 256") };
            let first = memory.wrapping_sub(7 * BYTES).wrapping_add(place * BYTES);
            // SAFETY: all places are taken by this test, and written.
            let bytes = unsafe { core::slice::from_raw_parts(first, BYTES) };
            assert!(bytes.iter().all(|&byte| byte == expected), "{place}");
        }
        assert_eq!(arena.place(&raw const arena), None);
    }

    // G34
    #[test]
    fn released_place_has_no_memory() {
        let arena = Arena::new(PLACES, BYTES).expect("there is memory");
        let memory = arena.claim(3).expect("the place is free").as_ptr();
        // SAFETY: the claim has this memory alone. The bytes are read back from the mapping, which exists.
        unsafe {
            memory.write_bytes(1, BYTES);
            arena.release(3);
            assert!(core::slice::from_raw_parts(memory, BYTES).iter().all(|&byte| byte == 0));
        }
    }
}
