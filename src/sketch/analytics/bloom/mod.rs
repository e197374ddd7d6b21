//! A register-blocked Bloom filter: all bits of a key are in one word.
//!
//! ```text
//! hash ──product──► word
//!      └─mix──────► up to ten bits of its 64, six bits of the mix for each
//! ```
//! So one load answers whether a key is there, and one atomic OR puts it in *and* says whether it was there:
//! the OR returns the word as it was, and of several threads with the same key only the first can find a bit
//! missing. The price is that words fill unevenly: more false positives than in a filter whose bits are
//! anywhere, and the more so the rarer they should be.

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
/// Bits of a word, and how many bits of a hash choose one.
const WORD_BITS: u32 = u64::BITS;
const CHOICE_BITS: u32 = WORD_BITS.ilog2();
/// As many as one hash can choose.
const MAX_BITS: u32 = u64::BITS / CHOICE_BITS;

/// A set of keys in constant memory, that is sometimes wrong about who is in it: says of some keys that were
/// not inserted that they were, and never the other way round.
///
/// A register-blocked Bloom filter: a key has 1 to 10 bits, all in one 64-bit word, so
/// [`insert`](Self::insert) is one load and at most one atomic operation, and tells whether the key was
/// there. The share of other keys that are taken for inserted, by the bits of memory for each inserted key:
///
/// | bits a key | 8 | 10 | 12 | 16 | 24 | 64 |
/// |---|---|---|---|---|---|---|
/// | computed | 3.35 % | 1.78 % | 1.04 % | 0.405 % | 0.100 % | 0.0029 % |
///
/// # Consistency
/// All calls take `&self`, never wait and can be made from any number of threads. A key is found by all calls
/// that begin after its insert returned. Of threads that insert the same new key at once at most one is told
/// that it was new, and exactly one unless other keys' bits cover it.
///
/// # Keys that clients choose
/// The default hasher has a secret, so clients cannot choose keys that are taken for others but by trying
/// them out.
///
/// # Examples
/// ```
/// use tollgate::sketch::Bloom;
///
/// // A million keys, of which one other in a hundred may be taken for one: 1.5 MB.
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
    /// Bits of a key: 1 to 10, some of which may coincide.
    bits: u32,
    hasher: H,
}

impl Bloom {
    /// The smallest filter that takes other keys for inserted ones with this probability at most, once so
    /// many keys are in it.
    ///
    /// # Errors
    /// If `items` is 0; if `false_positives` is not above 0 and below 1 (or not a number), or below
    /// 0.0000294, which would take more than 64 bits a key; or if there is no memory for it.
    pub fn for_items(items: usize, false_positives: f64) -> Result<Self, SketchError> {
        if items == 0 {
            return Err(SketchReason::ZeroItems.into());
        }
        let share = share("the share of false positives", false_positives)?;
        // A word for each key: what takes more is no smaller than the hashes themselves.
        let (_, least) = best(1.0);
        if share < least {
            return Err(SketchReason::FalsePositives { got: share, least }.into());
        }
        // The share falls as the words become more, up to one for each key.
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

    /// The filter of at most `bytes` that takes the fewest other keys for inserted ones once `items` keys are
    /// in it.
    ///
    /// # Errors
    /// If `bytes` is below 8, `items` is 0, or there is no memory for it.
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
    /// The same filter with another hasher. Default: ahash with random keys.
    ///
    /// For a filter into which nothing was inserted yet. What was inserted by the old hasher stays, as other
    /// keys.
    ///
    /// A hasher needs 64 bits of good quality. One without a secret lets clients choose keys that are taken
    /// for others.
    #[must_use]
    pub fn with_hasher<I>(self, hasher: I) -> Bloom<I> {
        let Self { words, bits, .. } = self;
        Bloom { words, bits, hasher }
    }

    /// Inserts the key with this hash, as [`Bloom::insert`].
    ///
    /// `hash` must be of 64-bit quality: it is all that is known of the key. By [`Bloom::hash`] it is that of
    /// the key.
    #[inline]
    pub fn insert_hash(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        // Ordering: Acquire here and below; pairs with the Release of the insert that is found.
        if word.load(Acquire) & bits == bits {
            return true;
        }
        // Ordering: Release: who finds the key sees what was written before it was inserted.
        word.fetch_or(bits, AcqRel) & bits == bits
    }

    /// Whether the key with this hash may have been inserted, as [`Bloom::contains`].
    #[inline]
    #[must_use]
    pub fn contains_hash(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        // Ordering: Acquire, as above.
        word.load(Acquire) & bits == bits
    }

    /// The word of a key, and its bits there.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        // The product, since its top depends on all of the hash.
        let word = &self.words[scale(hash.wrapping_mul(MULTIPLIER), self.words.len())];
        let choices = mix(hash);
        // A number of bits that the compiler knows: without a loop the whole call takes a sixth less.
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

    /// The share of other keys that are taken for inserted ones once `items` keys are in it: computed, not
    /// measured. Exact to about 10⁻¹².
    #[must_use]
    pub fn false_positives(&self, items: usize) -> f64 {
        false_positives(load(items, self.words.len()), self.bits)
    }

    /// Forgets all keys.
    ///
    /// Keys that are inserted at the same time may be forgotten or kept; those whose insert begins after it
    /// returned are kept.
    ///
    /// # Complexity
    /// O(bytes): nobody waits for it, but the caller does.
    pub fn clear(&self) {
        self.words.iter().for_each(Zeroed::clear);
    }

    /// The bytes of its words.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.words.len() * WORD
    }
}

impl<H: BuildHasher> Bloom<H> {
    /// Inserts a key, and says whether it was there already: *no* is certain, *yes* is not.
    ///
    /// # Complexity
    /// O(1): a load, and one atomic operation if the key is new. Wait-free.
    #[inline]
    pub fn insert<K: Hash + ?Sized>(&self, key: &K) -> bool {
        self.insert_hash(self.hash(key))
    }

    /// Whether a key may have been inserted: *no* is certain, *yes* is not.
    ///
    /// # Complexity
    /// O(1): a load. Writes nothing.
    #[inline]
    #[must_use]
    pub fn contains<K: Hash + ?Sized>(&self, key: &K) -> bool {
        self.contains_hash(self.hash(key))
    }

    /// The hash of a key, for [`Bloom::insert_hash`] and [`Bloom::contains_hash`].
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

/// So many bits of a word, some of which may coincide.
#[inline]
fn choose<const BITS: u32>(choices: u64) -> u64 {
    let bit = |number| 1_u64 << ((choices >> (number * CHOICE_BITS)) % u64::from(WORD_BITS));
    (0..BITS).fold(0, |bits, number| bits | bit(number))
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn refused<T>(result: Result<T, SketchError>) -> String {
        result.err().expect("it is refused").to_string()
    }

    #[test]
    fn what_cannot_be_is_refused_with_advice() {
        assert!(refused(Bloom::for_items(0, 0.01)).contains("items is 0"));
        assert!(refused(Bloom::for_memory(8, 0)).contains("items is 0"));
        assert!(refused(Bloom::for_memory(7, 1)).contains("at least 8"));
        for nonsense in [f64::NAN, 0.0, -1.0, 1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(refused(Bloom::for_items(10, nonsense)).contains("false positives"), "{nonsense}");
        }
        for rare in [f64::MIN_POSITIVE, 1e-9, 0.000_029] {
            assert!(refused(Bloom::for_items(10, rare)).contains("no less than 0.0000293"), "{rare}");
        }
        assert!(refused(Bloom::for_memory(usize::MAX, 1)).contains("no memory"));
        assert!(refused(Bloom::for_items(usize::MAX, 0.01)).contains("no memory"));
    }

    #[test]
    fn the_smallest_filter_that_keeps_its_share_is_made() {
        for share in [0.000_03, 0.001, 0.01, 0.3, 0.999] {
            for items in [1, 2, 1_000, 123_456] {
                let filter = Bloom::for_items(items, share).unwrap();
                assert!(filter.false_positives(items) <= share, "{items} {share}");
                let words = filter.words.len();
                assert!(words <= items);
                assert!(words == 1 || best(load(items, words - 1)).1 > share, "{items} {share}: {words}");
            }
        }
    }

    #[test]
    fn a_key_is_new_once() {
        for bytes in [8, 15, 16, 1_000] {
            let filter = Bloom::for_memory(bytes, 1).unwrap();
            assert!(filter.state_bytes() <= bytes);
            assert!(!filter.contains("a"));
            assert!(!filter.insert("a"));
            assert!(filter.insert("a") && filter.contains("a"));
            filter.clear();
            assert!(!filter.contains("a") && !filter.insert("a"));
        }
    }

    #[test]
    fn one_word_fills_up_and_then_holds_everything() {
        let filter = Bloom::for_memory(8, 1).unwrap();
        for key in 0..1_000 {
            filter.insert(&key);
        }
        assert!((0..2_000).all(|key| filter.contains(&key)));
        assert!(filter.false_positives(1_000) > 0.999);
        assert_eq!(filter.false_positives(0), 0.0);
    }
}
