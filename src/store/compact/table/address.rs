//! Where a key belongs.

use crate::algorithm::compact::STATE_BITS;
use crate::algorithm::compact::slot::{FINGERPRINT_BITS, SlotWord, distance};

/// Where a key belongs: its bucket by the top bits of its hash, a fingerprint by the lowest, and a home by those next to them.
///
/// One word. Each part is computed where it is needed, which takes fewer instructions than keeping the parts.
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
            // Zero is for empty slots: 1 has two keys' share.
            0 => 1,
            fingerprint => fingerprint,
        }
    }

    #[inline(always)]
    pub(super) const fn home<const WAYS: usize>(self) -> usize {
        (self.hash >> FINGERPRINT_BITS) as usize & (WAYS - 1)
    }

    /// The word of this key in a state, whose low 40 bits are kept.
    #[inline(always)]
    pub(super) const fn word(self, state: u64) -> u64 {
        SlotWord::pack(self.fingerprint(), state)
    }

    /// Whether a word is this key's.
    #[inline(always)]
    pub(super) const fn owns(self, word: u64) -> bool {
        distance(word, self.fingerprint()).is_some()
    }
}
