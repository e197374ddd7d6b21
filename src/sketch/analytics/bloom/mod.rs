//! A register-blocked Bloom filter: all bits of a key are in one word.
//!
//! ```text
//! hash ──× constant──► index of a 64-bit word
//!      └─mix─────────► 1 to 10 bits of that word; six bits of the mix choose each of them
//! ```
//! *Protocol.* A word only gains bits, except in `clear`.
//!
//! 1. A lookup loads the word once. The key may be in the filter if all of its bits are set.
//! 2. An insert does the same lookup first. If a bit is missing, one atomic OR sets all bits of the key.
//! 3. The OR returns the old value of the word, which shows whether the key was already there. If several threads
//!    insert the same key, only the first OR can find a bit missing.
//!
//! *Cost.* Words fill unevenly. So this filter has more false positives than a filter that places a key's bits
//! anywhere, and the difference grows as the share of false positives falls.

#[cfg(all(test, tollgate_loom))]
mod models;
mod share;

use std::fmt;
use std::hash::{BuildHasher, Hash};

use self::share::{best, false_positives, load};
use super::error::{SketchError, SketchReason, share};
use crate::base::memory::{Array, Zeroed};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire};
use crate::sketch::hash::{MULTIPLIER, mix, scale};

const WORD: usize = size_of::<AtomicU64>();
/// The number of bits of a word.
const WORD_BITS: u32 = u64::BITS;
const CHOICE_BITS: u32 = WORD_BITS.ilog2();
/// The largest number of bits that one hash can choose.
const MAX_BITS: u32 = u64::BITS / CHOICE_BITS;

/// A set of keys in constant memory with one-sided errors: it may report a key that was never inserted, but never
/// misses an inserted key.
///
/// `Bloom` is a register-blocked Bloom filter. A key has 1 to 10 bits, all in one 64-bit word. So
/// [`insert`](Self::insert) takes one load and at most one atomic operation, and returns whether the key was already
/// there. This table shows the share of other keys that the filter reports as inserted, for a number of bits of
/// memory per inserted key:
///
/// | bits a key | 8 | 10 | 12 | 16 | 24 | 64 |
/// |---|---|---|---|---|---|---|
/// | computed | 3.35 % | 1.78 % | 1.04 % | 0.405 % | 0.100 % | 0.0029 % |
///
/// # Consistency
/// All methods take `&self`, never wait and can be called from any number of threads. Every call that begins after
/// the insert of a key returned finds the key. If several threads insert the same new key at the same time, at most one
/// of them gets the answer that the key is new. Exactly one gets this answer, unless bits of other keys cover the key.
///
/// # Keys that clients choose
/// The default hasher has a secret. Clients can find keys that the filter mistakes for others only by trial.
///
/// # Examples
/// ```
/// use tollgate::sketch::Bloom;
///
/// // A million keys, with a false positive for one other key in a hundred: 1.5 MB.
/// let seen = Bloom::for_items(1_000_000, 0.01)?;
/// assert!(!seen.insert("203.0.113.7"), "it is new");
/// assert!(seen.insert("203.0.113.7"), "it was there");
/// assert!(seen.contains("203.0.113.7"));
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
///
/// # Source
/// Bloom 1970; Putze, Sanders and Singler 2007 (blocks); Lang, Neumann, Kemper and Boncz 2019 (words).
pub struct Bloom<H = ahash::RandomState> {
    words: Array<AtomicU64>,
    /// The number of bits of a key: 1 to 10. Some of them may coincide.
    bits: u32,
    hasher: H,
}

impl Bloom {
    /// Creates the smallest filter whose share of false positives is at most `false_positives` once it holds `items`
    /// keys.
    ///
    /// # Errors
    /// If `items` is 0. If `false_positives` is not above 0 and below 1 (or is not a number), or is below 0.0000294,
    /// which would take more than 64 bits per key. If the memory cannot be allocated.
    pub fn for_items(items: usize, false_positives: f64) -> Result<Self, SketchError> {
        if items == 0 {
            return Err(SketchReason::ZeroItems.into());
        }
        let share = share("the share of false positives", false_positives)?;
        // At most one word for each key: a larger filter takes more memory than a list of the hashes.
        let (_, least) = best(1.0);
        if share < least {
            return Err(SketchReason::FalsePositives { got: share, least }.into());
        }
        // The share falls as the number of words grows, up to one word for each key.
        let fits = |words: usize| best(load(items, words)).1 <= share;
        let (mut low, mut high) = (0, items);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Self::with_words(high, items)
    }

    /// Creates the filter of at most `bytes` bytes that has the fewest false positives once it holds `items` keys.
    ///
    /// # Errors
    /// If `bytes` is below 8, if `items` is 0, or if the memory cannot be allocated.
    pub fn for_memory(bytes: usize, items: usize) -> Result<Self, SketchError> {
        if items == 0 {
            return Err(SketchReason::ZeroItems.into());
        }
        if bytes < WORD {
            return Err(SketchReason::TooFewBytes { got: bytes, least: WORD }.into());
        }
        Self::with_words(bytes / WORD, items)
    }

    fn with_words(words: usize, items: usize) -> Result<Self, SketchError> {
        let bytes = words as u128 * WORD as u128;
        let (bits, _) = best(load(items, words));
        let words = Array::zeroed(words).ok_or(SketchReason::Memory { bytes })?;
        Ok(Self { words, bits, hasher: ahash::RandomState::new() })
    }
}

impl<H> Bloom<H> {
    /// Returns the same filter with another hasher. Default: ahash with random keys.
    ///
    /// Call it before the first insert. Keys that were inserted with the old hasher stay in the filter, as other
    /// keys.
    ///
    /// The hasher must return 64 bits of good quality. With a hasher that has no secret, clients can choose keys that
    /// the filter mistakes for others.
    #[must_use]
    pub fn with_hasher<I>(self, hasher: I) -> Bloom<I> {
        let Self { words, bits, .. } = self;
        Bloom { words, bits, hasher }
    }

    /// Inserts the key with this hash, like [`Bloom::insert`].
    ///
    /// `hash` must have 64-bit quality, because the filter knows nothing else about the key. [`Bloom::hash`] returns
    /// a suitable hash.
    #[inline]
    pub fn insert_hash(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        // Ordering: Acquire, here and in the OR. It pairs with the Release of the insert that set the bits.
        if word.load(Acquire) & bits == bits {
            return true;
        }
        // Ordering: AcqRel. Release: a thread that finds the key sees every write before the insert.
        word.fetch_or(bits, AcqRel) & bits == bits
    }

    /// Returns whether the key with this hash may have been inserted, like [`Bloom::contains`].
    #[inline]
    #[must_use]
    pub fn contains_hash(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        // Ordering: Acquire, as in `insert_hash`.
        word.load(Acquire) & bits == bits
    }

    /// Returns the word of a key and the key's bits in it.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        // The top bits of the product depend on all bits of the hash.
        let word = &self.words[scale(hash.wrapping_mul(MULTIPLIER), self.words.len())];
        let choices = mix(hash);
        // In each branch, the number of bits is a constant, so the compiler emits no loop. The whole call takes a
        // sixth less time.
        let bits = match self.bits {
            1 => choose::<1>(choices),
            2 => choose::<2>(choices),
            3 => choose::<3>(choices),
            4 => choose::<4>(choices),
            5 => choose::<5>(choices),
            6 => choose::<6>(choices),
            7 => choose::<7>(choices),
            8 => choose::<8>(choices),
            9 => choose::<9>(choices),
            _ => choose::<MAX_BITS>(choices),
        };
        (word, bits)
    }

    /// Computes the share of other keys that the filter reports as inserted once it holds `items` keys. The result is
    /// computed and not measured; it is exact to about 10⁻¹².
    #[must_use]
    pub fn false_positives(&self, items: usize) -> f64 {
        false_positives(load(items, self.words.len()), self.bits)
    }

    /// Removes all keys.
    ///
    /// A key that is inserted at the same time may be removed or kept. A key whose insert begins after `clear`
    /// returned is kept.
    ///
    /// # Complexity
    /// O(bytes) for the caller. Other threads do not wait.
    pub fn clear(&self) {
        self.words.iter().for_each(Zeroed::clear);
    }

    /// Returns the size of the words in bytes.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.words.len() * WORD
    }
}

impl<H: BuildHasher> Bloom<H> {
    /// Inserts a key and returns whether it was already there. `false` is certain; `true` may be a false positive.
    ///
    /// # Complexity
    /// O(1): one load, and one atomic operation if the key is new. Wait-free.
    #[inline]
    pub fn insert<K: Hash + ?Sized>(&self, key: &K) -> bool {
        self.insert_hash(self.hash(key))
    }

    /// Returns whether a key may have been inserted. `false` is certain; `true` may be a false positive.
    ///
    /// # Complexity
    /// O(1): one load. It writes nothing.
    #[inline]
    #[must_use]
    pub fn contains<K: Hash + ?Sized>(&self, key: &K) -> bool {
        self.contains_hash(self.hash(key))
    }

    /// Returns the hash of a key, for [`Bloom::insert_hash`] and [`Bloom::contains_hash`].
    #[inline]
    #[must_use]
    pub fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }
}

impl<H> fmt::Debug for Bloom<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bloom")
            .field("state_bytes", &self.state_bytes())
            .field("bits", &self.bits)
            .finish_non_exhaustive()
    }
}

/// Returns a mask with `BITS` bits of a word; some of them may coincide.
#[inline]
fn choose<const BITS: u32>(choices: u64) -> u64 {
    let bit = |number| 1_u64 << ((choices >> (number * CHOICE_BITS)) % u64::from(WORD_BITS));
    (0..BITS).fold(0, |bits, number| bits | bit(number))
}
