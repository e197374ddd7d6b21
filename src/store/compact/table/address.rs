//! The address of a key in the table.

use crate::algorithm::compact::STATE_BITS;
use crate::algorithm::compact::slot::{FINGERPRINT_BITS, SlotWord, distance, is_own};

/// The address of a key. The top bits of the hash give the bucket, the lowest bits give the fingerprint, and the bits
/// next to them give the home slot.
///
/// The address is one word: the hash. The code computes each part where it is needed. This takes fewer instructions
/// than storing the parts.
#[derive(Copy, Clone, Debug)]
pub struct SlotAddress {
    hash: u64,
}

impl SlotAddress {
    #[inline(always)]
    pub(super) const fn new(hash: u64) -> Self {
        Self { hash }
    }

    #[inline(always)]
    pub(super) const fn hash(self) -> u64 {
        self.hash
    }

    #[inline(always)]
    pub(super) const fn fingerprint(self) -> u64 {
        match self.hash & (u64::MAX >> STATE_BITS) {
            // Zero marks an empty slot, so the keys with fingerprint 0 get fingerprint 1.
            0 => 1,
            fingerprint => fingerprint,
        }
    }

    #[inline(always)]
    pub(super) const fn home<const WAYS: usize>(self) -> usize {
        (self.hash >> FINGERPRINT_BITS) as usize & (WAYS - 1)
    }

    /// The slot that a search visits after `step` others. The home is the first. The slots in its cache line are next.
    #[inline(always)]
    pub(super) const fn nth<const WAYS: usize>(self, step: usize) -> usize {
        self.home::<WAYS>() ^ step
    }

    /// The word of this key with a state. Only the low 40 bits of the state are kept.
    #[inline(always)]
    pub(super) const fn word(self, state: u64) -> u64 {
        SlotWord::pack(self.fingerprint(), state)
    }

    /// Whether a word belongs to this key.
    #[inline(always)]
    pub(super) const fn owns(self, word: u64) -> bool {
        is_own(distance(word, self.fingerprint()))
    }
}
