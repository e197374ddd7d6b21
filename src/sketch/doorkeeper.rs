//! The doorkeeper: a Bloom filter that says of most keys that they were never put in, and forgets by itself.
//!
//! ```text
//! word = [ generation : 8 | bits : 56 ]
//! ```
//! A key has a pair of words, one for even generations of time and one for odd, and three bits in each. It is put in with a
//! time until which it matters, into that time's generation and the one before; asking looks at the present one and the last.
//! A word of an older generation reads as empty, and the next key put in replaces it, so nothing is ever cleared, and no
//! call pays for a turn.
//!
//! *Threads that lag.* A generation is at least twice as long as anything is remembered for, and keys are filed by when
//! they end. Who finds a newer word adds its bits there, where they can only make others ask in vain. Who asks with a clock
//! that lags takes newer words for present ones.
//!
//! The stamps are eight bits of a count that goes on, so a word that nobody renewed reads as new again once in 256
//! generations: its bits then make keys ask in vain, which is what the filter does now and then anyway.

#[cfg(all(test, tollgate_loom))]
mod models;

use crossbeam_utils::CachePadded;

use super::scale;
use crate::memory::{Array, Zeroed};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

const STAMP_SHIFT: u32 = 56;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Doorkeeper {
    words: Array<AtomicU64>,
    /// The latest generation in which anything was put in, and 1: read by all who ask, written once a generation. As long
    /// as nothing is put in, nobody needs to look at a word that is nowhere near.
    newest: CachePadded<AtomicU64>,
    /// A generation is 2^this states: twice as long as anything is put in for, or longer.
    generation_shift: u32,
}

impl Doorkeeper {
    /// One pair of words.
    pub(crate) const LEAST_BYTES: usize = 2 * size_of::<u64>();

    /// At most `words` words, an even number of them; what is put in is remembered for 2^`memory_shift` states of time
    /// at least.
    pub(crate) fn new(words: usize, memory_shift: u32) -> Option<Self> {
        Some(Self {
            words: Array::zeroed((words & !1).max(2))?,
            newest: CachePadded::new(AtomicU64::new(0)),
            generation_shift: memory_shift + 1,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * size_of::<AtomicU64>()
    }

    fn generation(&self, reference: u64) -> u64 {
        reference >> self.generation_shift
    }

    /// The pair of words of a key, and its bits in them.
    #[inline]
    fn place(&self, hash: u64) -> (usize, u64) {
        let pair = scale(hash, self.words.len() / 2);
        // The low bits, of which `scale` uses none in tables below 2^46 words. Six bits give 0 to 63; those past the last of
        // the 56 fold back.
        let bit = |shift: u32| 1_u64 << (((hash >> shift) & 63) % 56);
        (2 * pair, bit(0) | bit(6) | bit(12))
    }

    fn word(&self, pair: usize, generation: u64) -> &AtomicU64 {
        &self.words[pair + usize::from(generation & 1 == 1)]
    }

    /// Puts a key in, to be found until a time, and from a generation before that time on.
    ///
    /// By when it ends, not by when it is put in: a thread that lags files it where others look.
    pub(crate) fn insert(&self, hash: u64, until: u64) {
        let last = self.generation(until);
        // Ordering: Relaxed for the look: if it is outdated, the maximum is taken in vain.
        if self.newest.load(Relaxed) <= last {
            self.newest.fetch_max(last + 1, AcqRel);
        }
        self.insert_in(hash, last.wrapping_sub(1));
        self.insert_in(hash, last);
    }

    fn insert_in(&self, hash: u64, generation: u64) {
        let (pair, bits) = self.place(hash);
        let word = self.word(pair, generation);
        // Ordering: Acquire here and below, since the word that is looked at may be all that is seen of an insert.
        let mut seen = word.load(Acquire);
        loop {
            let next = if behind(seen, generation) { stamp(generation) | bits } else { seen | bits };
            if next == seen {
                return;
            }
            // Ordering: Release: who sees the bits sees what was written before the key was put in.
            match word.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// Whether anything was put in that ends in the last generation or later.
    #[inline]
    pub(crate) fn is_used(&self, reference: u64) -> bool {
        // Ordering: Acquire, as for the words: raised before them.
        self.newest.load(Acquire) >= self.generation(reference)
    }

    /// Whether a key may have been put in, to be found at a time. No is certain, yes is not.
    #[inline]
    pub(crate) fn contains(&self, hash: u64, reference: u64) -> bool {
        let generation = self.generation(reference);
        if !self.is_used(reference) {
            return false;
        }
        let (pair, bits) = self.place(hash);
        [generation, generation.wrapping_sub(1)].into_iter().any(|generation| {
            let word = self.word(pair, generation).load(Acquire);
            word & bits == bits && !behind(word, generation)
        })
    }

    /// Makes every key ask, for two generations.
    pub(crate) fn open(&self, reference: u64) {
        let generation = self.generation(reference);
        self.newest.fetch_max(generation + 2, AcqRel);
        for pair in (0..self.words.len()).step_by(2) {
            for generation in [generation, generation + 1] {
                let all = stamp(generation) | (u64::MAX >> (u64::BITS - STAMP_SHIFT));
                self.word(pair, generation).store(all, Release);
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.words.iter().for_each(Zeroed::clear);
    }
}

const fn stamp(generation: u64) -> u64 {
    (generation & 0xFF) << STAMP_SHIFT
}

/// Whether a word was stamped in an earlier generation, of the 128 before.
#[inline]
const fn behind(word: u64, generation: u64) -> bool {
    let ahead = (word >> STAMP_SHIFT).wrapping_sub(generation) & 0xFF;
    ahead >= 0x80
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::mix;
    use super::*;

    const MEMORY: u32 = 4;
    const GENERATION: u64 = 1 << (MEMORY + 1);

    #[test]
    fn what_was_put_in_is_found_until_its_end_and_then_forgotten() {
        for end in [17, GENERATION, 2 * GENERATION - 1, 255 * GENERATION + 16, 256 * GENERATION + 3] {
            let filter = Doorkeeper::new(64, MEMORY).unwrap();
            filter.insert(mix(1), end);
            for before in 0..=(1 << MEMORY) {
                assert!(filter.contains(mix(1), end - before), "{end} - {before}");
            }
            assert!(!filter.contains(mix(1), end + 3 * GENERATION), "{end}");
        }
    }

    #[test]
    fn a_key_put_in_late_pushes_none_out() {
        let filter = Doorkeeper::new(2, MEMORY).unwrap();
        let now = 10 * GENERATION;
        filter.insert(mix(1), now);
        // One generation behind, two behind (the same word): in, and the newer key stays in.
        for behind in [GENERATION, 2 * GENERATION] {
            filter.insert(mix(2), now - behind);
            assert!(filter.contains(mix(2), now - behind));
            assert!(filter.contains(mix(1), now));
            assert!(filter.contains(mix(1), now - GENERATION + 1));
        }
    }

    #[test]
    fn strangers_are_mostly_turned_away() {
        let filter = Doorkeeper::new(1 << 12, MEMORY).unwrap();
        // Eight bits a key.
        let keys = (1 << 12) / 2 * 7;
        for key in 0..keys {
            filter.insert(mix(key), 0);
        }
        assert!((0..keys).all(|key| filter.contains(mix(key), 0)));
        let wrong = (keys..2 * keys).filter(|&key| filter.contains(mix(key), 0)).count();
        // Register-blocked, three bits of 56 in either word, eight bits a key: about 5 % each.
        assert!(wrong as u64 * 6 < keys, "{wrong} of {keys}");
    }
}
