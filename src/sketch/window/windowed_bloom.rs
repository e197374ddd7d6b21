//! Who comes for the first time in a window: a register-blocked Bloom filter, whose words know their window.
//!
//! All bits of a key are in one word, so one exchange both asks and puts in, and of threads that put one key in at once
//! exactly one is told that it was the first. *No* is certain; *yes* is not: a key may find its bits set by others.

use super::{Late, Windows, WordAge, parity};
use crate::base::memory::prefetch::prefetch;
use crate::base::memory::{Array, Zeroed};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire};
use crate::sketch::hash::scale;

/// An odd constant (of the golden ratio), so that the words of a key have nothing to do with its counters' lines.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct WindowedBloom {
    words: Array<AtomicU64>,
    /// Words for one place: two if even and odd windows have their own.
    parities: usize,
}

/// A key's word, and its bits there.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Probe {
    index: usize,
    bits: u64,
}

/// What a key that was put in is told.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Insert {
    /// It was not there. Nobody else is told so in this window.
    First,
    /// It was there, or seemed to be.
    Again,
}

impl WindowedBloom {
    /// Two words.
    pub(crate) const LEAST_BYTES: usize = 2 * size_of::<u64>();

    /// At most `bytes` bytes, 16 at least; with words for even and odd windows if the `last` one is asked for too.
    pub(crate) fn new(bytes: usize, last: bool) -> Option<Self> {
        let words = (bytes / Self::LEAST_BYTES).max(1).checked_mul(2)?;
        Some(Self { words: Array::zeroed(words)?, parities: 1 + usize::from(last) })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * size_of::<AtomicU64>()
    }

    /// A key's word, and its three bits (or fewer, if they coincide).
    #[inline]
    pub(crate) fn probe(&self, windows: &Windows, hash: u64) -> Probe {
        let hash = hash.wrapping_mul(SPREAD);
        let hash = hash ^ (hash >> 32);
        let len = u64::from(windows.payload_bits());
        // Ten bits of the hash each, scaled; the top ones choose the word.
        let bit = |shift: u32| 1 << ((((hash >> shift) & 0x3FF) * len) >> 10);
        let index = scale(hash, self.words.len() / self.parities) * self.parities;
        Probe { index, bits: bit(0) | bit(10) | bit(20) }
    }

    /// Asks for a key's word.
    #[inline]
    pub(crate) fn approach(&self, probe: &Probe) {
        prefetch(&raw const self.words[probe.index]);
    }

    #[inline]
    fn word(&self, probe: &Probe, window: u64) -> &AtomicU64 {
        &self.words[probe.index + parity(window, self.parities)]
    }

    /// Whether a key seems to have been put in in this window.
    #[inline]
    pub(crate) fn contains(&self, windows: &Windows, probe: &Probe, window: u64) -> Result<bool, Late> {
        Self::has(windows, probe, (self.word(probe, window), WordAge::Now), window)
    }

    /// Whether a key seems to have been put in in the window before this one.
    #[inline]
    pub(crate) fn contained(&self, windows: &Windows, probe: &Probe, window: u64) -> Result<bool, Late> {
        let word = self.word(probe, window.wrapping_sub(1));
        Self::has(windows, probe, (word, WordAge::Last), window)
    }

    /// Whether a key's bits are in a word that stands so to the caller's window.
    #[inline(always)]
    fn has(
        windows: &Windows,
        probe: &Probe,
        (word, wanted): (&AtomicU64, WordAge),
        window: u64,
    ) -> Result<bool, Late> {
        // Ordering: Acquire; pairs with `insert`: what was counted before it is seen by whoever sees its bits.
        let word = word.load(Acquire);
        let age = windows.age(word, window)?;
        Ok(age == wanted && word & probe.bits == probe.bits)
    }

    /// Puts a key in.
    #[inline]
    pub(crate) fn insert(&self, windows: &Windows, probe: &Probe, window: u64) -> Result<Insert, Late> {
        let word = self.word(probe, window);
        let mut seen = word.load(Acquire);
        loop {
            let current = match windows.age(seen, window)? {
                WordAge::Now if seen & probe.bits == probe.bits => return Ok(Insert::Again),
                // Never written: its zero tag is the window's by chance, and the window may not be announced yet.
                WordAge::Now if seen == 0 => windows.renewed(window),
                WordAge::Now => seen,
                WordAge::Last | WordAge::Past => windows.renewed(window),
            };
            // Ordering: AcqRel: Release for what was counted before, Acquire for what the word brought along.
            match word.compare_exchange(seen, current | probe.bits, AcqRel, Acquire) {
                Ok(_) => return Ok(Insert::First),
                Err(other) => seen = other,
            }
        }
    }

    /// The chance that a stranger seems to be known in this window, by up to `most` words.
    pub(crate) fn false_positives(&self, windows: &Windows, window: u64, most: usize) -> f64 {
        let places = self.words.len() / self.parities;
        let step = places.div_ceil(most.max(1)).max(1);
        let (mut sum, mut looked_at) = (0.0, 0.0);
        for index in (0..places).step_by(step) {
            let probe = Probe { index: index * self.parities, bits: 0 };
            let word = self.word(&probe, window).load(Acquire);
            if let Ok(WordAge::Now) = windows.age(word, window) {
                let set = (word & (u64::MAX >> (u64::BITS - windows.payload_bits()))).count_ones();
                sum += (f64::from(set) / f64::from(windows.payload_bits())).powi(3);
            }
            looked_at += 1.0;
        }
        sum / looked_at
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.words.iter().for_each(Zeroed::clear);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::tag_bits;
    use super::*;
    use crate::sketch::hash::mix;

    const WINDOW_NS: u64 = 1_000_000_000;
    const NOW: u64 = 1_700_000_000;

    /// A filter and its windows, with nobody later than now.
    struct TestBloom {
        windows: Windows,
        seen: WindowedBloom,
    }

    impl TestBloom {
        fn new(bytes: usize, last: bool) -> Option<Self> {
            let windows = Windows::new(WINDOW_NS, tag_bits(WINDOW_NS), u64::MAX);
            Some(Self { windows, seen: WindowedBloom::new(bytes, last)? })
        }

        fn probe(&self, key: u64) -> Probe {
            self.seen.probe(&self.windows, mix(key))
        }

        fn insert(&self, key: u64, window: u64) -> Result<Insert, Late> {
            self.seen.insert(&self.windows, &self.probe(key), window)
        }

        fn contains(&self, key: u64, window: u64) -> Result<bool, Late> {
            self.seen.contains(&self.windows, &self.probe(key), window)
        }

        fn contained(&self, key: u64, window: u64) -> Result<bool, Late> {
            self.seen.contained(&self.windows, &self.probe(key), window)
        }
    }

    #[test]
    fn who_was_put_in_is_there_until_the_window_turns() {
        for last in [false, true] {
            let held = TestBloom::new(1 << 12, last).unwrap();
            for window in NOW - 10..=NOW {
                for key in 0..20 {
                    assert_eq!(held.contains(key, window), Ok(false));
                    assert_eq!(held.insert(key, window), Ok(Insert::First));
                    assert_eq!(held.insert(key, window), Ok(Insert::Again));
                    assert_eq!(held.contains(key, window), Ok(true));
                    let before = last && window > NOW - 10;
                    assert_eq!(held.contained(key, window), Ok(before), "the window before");
                }
            }
        }
    }

    #[test]
    fn bits_are_a_words_payload() {
        for window_ns in [1, WINDOW_NS, u64::MAX] {
            let windows = Windows::new(window_ns, tag_bits(window_ns), u64::MAX);
            for last in [false, true] {
                let seen = WindowedBloom::new(1 << 12, last).unwrap();
                let mut all = 0;
                for hash in (0..20_000).map(mix).chain([0, u64::MAX]) {
                    let probe = seen.probe(&windows, hash);
                    assert!((1..=3).contains(&probe.bits.count_ones()));
                    assert!(probe.bits >> windows.payload_bits() == 0, "the tag is none of them");
                    assert!(probe.index < seen.words.len() && probe.index.is_multiple_of(seen.parities));
                    all |= probe.bits;
                }
                assert_eq!(all.count_ones(), windows.payload_bits(), "all bits are used");
            }
        }
    }

    #[test]
    fn sizes_are_whole_words_and_as_asked() {
        for (bytes, taken) in [(0, 16), (16, 16), (31, 16), (1_000, 992)] {
            for last in [false, true] {
                assert_eq!(WindowedBloom::new(bytes, last).unwrap().bytes(), taken);
            }
        }
        assert!(WindowedBloom::new(usize::MAX, true).is_none());
    }

    #[test]
    fn who_lags_is_told_and_changes_nothing() {
        for (last, back) in [(false, 1), (false, 2), (false, 9_999), (true, 2), (true, 10_000)] {
            let held = TestBloom::new(0, last).unwrap();
            assert_eq!(held.insert(1, NOW), Ok(Insert::First));
            let late = Late { window: NOW };
            assert_eq!(held.insert(1, NOW - back), Err(late));
            assert_eq!(held.contains(1, NOW - back), Err(late));
            assert_eq!(held.contains(1, NOW), Ok(true));
        }
        // The windows' words are apart: who asks for the last one meets the next.
        let held = TestBloom::new(0, true).unwrap();
        assert_eq!(held.insert(1, NOW), Ok(Insert::First));
        assert_eq!(held.contained(1, NOW - 1), Err(Late { window: NOW }));
        assert_eq!(held.contained(1, NOW), Ok(false));
    }

    /// Six bits a key: at three of 41, about a fifth of strangers.
    #[test]
    fn strangers_are_mistaken_as_often_as_it_says() {
        for last in [false, true] {
            let held = TestBloom::new(1 << 14, last).unwrap();
            let TestBloom { windows, seen } = &held;
            let keys = (seen.words.len() / seen.parities) as u64 * 41 / 6;
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
            assert!((said - share).abs() < 0.15 * share, "{said} and {share}");
            assert!(share < 0.2, "{share}");
            assert!(seen.false_positives(windows, NOW + 1, 4_096) == 0.0);
            seen.clear();
            assert!(seen.false_positives(windows, NOW, 4_096) == 0.0);
            assert!((0..keys).all(|key| held.contains(key, NOW) == Ok(false)));
        }
    }
}
