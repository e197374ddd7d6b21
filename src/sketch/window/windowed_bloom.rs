//! Detects the first request of a key in a window: a register-blocked Bloom filter whose words store their window.
//!
//! All bits of a key are in one word, so one compare-and-swap both tests and inserts the key:
//!
//! 1. Load the word. If it belongs to the current window and has all bits of the key, the key may be there.
//! 2. Otherwise set the key's bits: replace the loaded word by a word that also has these bits, with one
//!    compare-and-swap. A word of an older window counts as empty. If another thread has changed the word, start again
//!    at step 1.
//!
//! If several threads insert the same new key at the same time, exactly one of them succeeds in step 2, and gets the
//! answer that it was first. A negative answer is certain. A positive answer is not: other keys may have set all bits
//! of a key.

use super::{Late, Windows, WordAge, parity};
use crate::base::memory::prefetch::prefetch;
use crate::base::memory::{Array, Zeroed};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire, Release};
use crate::sketch::hash::{Fraction, MULTIPLIER};

/// The square of the multiplier that chooses a key's second line of counters. With it, the key's word in this filter is
/// independent of both lines.
const SPREAD: u64 = MULTIPLIER.wrapping_mul(MULTIPLIER);

/// See the module docs.
#[derive(Debug)]
pub(crate) struct WindowedBloom {
    words: Array<AtomicU64>,
    /// 1 if even and odd windows have separate words, otherwise 0.
    odd: usize,
}

/// A key's word and its bits in that word.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Probe {
    index: usize,
    bits: u64,
}

/// A key's word as it was read in a window.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Known<'a> {
    word: &'a AtomicU64,
    bits: u64,
    seen: u64,
    is_in: bool,
}

/// The result of an insert.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Insert {
    /// The key was not in the filter. No other thread gets this answer for the key in this window.
    First,
    /// The key was in the filter, or other keys had set its bits.
    Again,
}

impl WindowedBloom {
    /// The bytes of two words.
    pub(crate) const MIN_BYTES: usize = 2 * size_of::<u64>();

    /// Creates a filter of at most `bytes` bytes; the minimum is 16. With `keeps_last`, the filter also
    /// keeps the previous window: even and odd windows have separate words.
    pub(crate) fn new(bytes: usize, keeps_last: bool) -> Option<Self> {
        let words = (bytes / Self::MIN_BYTES).max(1).checked_mul(2)?;
        Some(Self { words: Array::zeroed(words)?, odd: usize::from(keeps_last) })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * size_of::<AtomicU64>()
    }

    /// Returns a key's word and its three bits (fewer if they coincide).
    #[inline(always)]
    pub(crate) fn probe(&self, windows: &Windows, hash: u64) -> Probe {
        let mut hash = Fraction(hash.wrapping_mul(SPREAD));
        let index = hash.draw(self.words.len()) & !self.odd;
        let len = windows.payload_bits() as usize;
        let bits = (1 << hash.draw(len)) | (1 << hash.draw(len)) | (1 << hash.draw(len));
        Probe { index, bits }
    }

    /// Prefetches a key's word.
    #[inline(always)]
    pub(crate) fn approach(&self, probe: &Probe) {
        prefetch(self.words.as_ptr().wrapping_add(probe.index));
    }

    #[inline]
    fn word(&self, probe: &Probe, window: u64) -> &AtomicU64 {
        &self.words[probe.index | parity(window, self.odd)]
    }

    /// Reads a key's word. The result shows whether the key may have been inserted in this window.
    #[inline(always)]
    pub(crate) fn find(&self, windows: &Windows, probe: &Probe, window: u64) -> Result<Known<'_>, Late> {
        let word = self.word(probe, window);
        // Ordering: Acquire; pairs with the Release of `insert`. A thread that sees a key's bits also sees the counts
        // that were written before the insert.
        let seen = word.load(Acquire);
        let is_in = windows.age(seen, window)? == WordAge::Now && seen & probe.bits == probe.bits;
        Ok(Known { word, bits: probe.bits, seen, is_in })
    }

    /// Returns whether a key may have been inserted in the window before this one.
    #[inline]
    pub(crate) fn contained(&self, windows: &Windows, probe: &Probe, window: u64) -> Result<bool, Late> {
        // Ordering: Acquire, as in `look`.
        let word = self.word(probe, window.wrapping_sub(1)).load(Acquire);
        Ok(windows.age(word, window)? == WordAge::Last && word & probe.bits == probe.bits)
    }

    /// Returns the probability that the filter reports a new key as inserted in this window. It samples at most
    /// `most` words.
    pub(crate) fn false_positives(&self, windows: &Windows, window: u64, most: usize) -> f64 {
        let places = self.words.len() >> self.odd;
        let step = places.div_ceil(most.max(1)).max(1);
        let (mut sum, mut looked_at) = (0.0, 0.0);
        for index in (0..places).step_by(step) {
            let probe = Probe { index: index << self.odd, bits: 0 };
            let word = self.word(&probe, window).load(Acquire);
            if let Ok(WordAge::Now) = windows.age(word, window) {
                let set = (word & windows.payload_mask()).count_ones();
                sum += (f64::from(set) / f64::from(windows.payload_bits())).powi(3);
            }
            looked_at += 1.0;
        }
        sum / looked_at
    }

    /// Returns the words that have keys of this window, with their indices.
    pub(crate) fn words_in(&self, windows: &Windows, window: u64) -> impl Iterator<Item = (usize, u64)> {
        // Ordering: Acquire, as in `find`.
        let words = self.words.iter().map(|word| word.load(Acquire)).enumerate();
        words.filter(move |&(_, word)| is_of(windows, window, word))
    }

    /// Sets a word that has keys of this window.
    pub(crate) fn set_word(&self, windows: &Windows, window: u64, (index, word): (usize, u64)) {
        if let Some(place) = self.words.get(index).filter(|_| is_of(windows, window, word)) {
            // Ordering: Release; pairs with `find`.
            place.store(word, Release);
        }
    }

    /// Removes all keys.
    pub(crate) fn clear(&self) {
        self.words.iter().for_each(Zeroed::clear);
    }
}

/// Whether a word has keys of this window.
fn is_of(windows: &Windows, window: u64, word: u64) -> bool {
    word & windows.payload_mask() != 0 && matches!(windows.age(word, window), Ok(WordAge::Now))
}

impl Known<'_> {
    /// Returns whether the key may have been inserted.
    #[inline(always)]
    pub(crate) fn is_in(&self) -> bool {
        self.is_in
    }

    /// Returns whether more than a third of the word's bits are set. If not, a positive answer is wrong with a
    /// probability of at most (1/3)³.
    pub(crate) fn is_crowded(&self, windows: &Windows) -> bool {
        (self.seen & windows.payload_mask()).count_ones() * 3 > windows.payload_bits()
    }

    /// Returns whether the key was inserted, unless the word is too crowded to say so.
    pub(crate) fn is_known(&self, windows: &Windows) -> bool {
        self.is_in && !self.is_crowded(windows)
    }

    /// Inserts the key.
    #[inline]
    pub(crate) fn insert(&self, windows: &Windows, window: u64) -> Result<Insert, Late> {
        let &Self { word, bits, mut seen, .. } = self;
        loop {
            let current = match windows.age(seen, window)? {
                WordAge::Now if seen & bits == bits => return Ok(Insert::Again),
                // The word was never written. Its zero tag matches the window by chance, and the window may not be
                // announced yet.
                WordAge::Now if seen == 0 => windows.renewed(window),
                WordAge::Now => seen,
                WordAge::Last | WordAge::Past => windows.renewed(window),
            };
            // Ordering: AcqRel. Release publishes the counts that this thread wrote before. Acquire receives the counts
            // that the word's last writer published.
            match word.compare_exchange(seen, current | bits, AcqRel, Acquire) {
                Ok(_) => return Ok(Insert::First),
                Err(other) => seen = other,
            }
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::tag_bits;
    use super::*;
    use crate::sketch::hash::mix;

    const WINDOW_NS: u64 = 1_000_000_000;
    const NOW: u64 = 1_700_000_000;

    /// A filter and its windows; no thread is later than `NOW`.
    struct TestBloom {
        windows: Windows,
        seen: WindowedBloom,
    }

    impl TestBloom {
        fn new(bytes: usize, last: bool) -> Self {
            let windows = Windows::new(WINDOW_NS, tag_bits(WINDOW_NS), u64::MAX);
            Self { windows, seen: WindowedBloom::new(bytes, last).unwrap() }
        }

        fn probe(&self, key: u64) -> Probe {
            self.seen.probe(&self.windows, mix(key))
        }

        fn insert(&self, key: u64, window: u64) -> Result<Insert, Late> {
            self.seen.find(&self.windows, &self.probe(key), window)?.insert(&self.windows, window)
        }

        fn contains(&self, key: u64, window: u64) -> Result<bool, Late> {
            Ok(self.seen.find(&self.windows, &self.probe(key), window)?.is_in())
        }
    }

    #[test]
    fn key_bits_stay_in_payload() {
        for window_ns in [1, WINDOW_NS, u64::MAX] {
            let windows = Windows::new(window_ns, tag_bits(window_ns), u64::MAX);
            for last in [false, true] {
                let seen = WindowedBloom::new(1 << 12, last).unwrap();
                let mut all = 0;
                for hash in (0..20_000).map(mix).chain([0, u64::MAX]) {
                    let probe = seen.probe(&windows, hash);
                    assert!((1..=3).contains(&probe.bits.count_ones()));
                    assert!(probe.bits >> windows.payload_bits() == 0, "no bit is in the tag");
                    assert!(probe.index < seen.words.len() && probe.index.is_multiple_of(1 << seen.odd));
                    all |= probe.bits;
                }
                assert_eq!(all.count_ones(), windows.payload_bits(), "all bits are used");
            }
        }
    }

    /// There are six bits of memory per key, a word has 41 payload bits, and a key has three of them. Then less than a
    /// fifth of the keys that were not inserted are reported as inserted.
    #[test]
    fn false_positives_match_estimate() {
        for last in [false, true] {
            let held = TestBloom::new(1 << 14, last);
            let TestBloom { windows, seen } = &held;
            let keys = (seen.words.len() >> seen.odd) as u64 * 41 / 6;
            let mut firsts = 0;
            for key in 0..keys {
                firsts += u64::from(held.insert(key, NOW) == Ok(Insert::First));
            }
            assert!((0..keys).all(|key| held.contains(key, NOW) == Ok(true)));
            assert!(firsts > keys * 9 / 10, "{firsts} of {keys}");
            let strangers = 1_000_000..1_020_000;
            let mistaken = strangers.filter(|&key| held.contains(key, NOW) == Ok(true)).count();
            let share = f64::from(u32::try_from(mistaken).unwrap()) / 20_000.0;
            let said = seen.false_positives(windows, NOW, 4_096);
            assert!((said - share).abs() < 0.15 * share, "computed {said}, measured {share}");
            assert!(share < 0.2, "{share}");
            assert!(seen.false_positives(windows, NOW + 1, 4_096) == 0.0);
            seen.clear();
            assert!(seen.false_positives(windows, NOW, 4_096) == 0.0);
            assert!((0..keys).all(|key| held.contains(key, NOW) == Ok(false)));
        }
    }
}
