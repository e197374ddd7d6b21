//! Who comes for the first time in a window: a register-blocked Bloom filter, whose words know their window.
//!
//! All bits of a key are in one word, so one exchange both asks and puts in, and of threads that put one key in at once
//! exactly one is told that it was the first. *No* is certain; *yes* is not: a key may find its bits set by others.

use super::{Late, Standing, Windows};
use crate::memory::Array;
use crate::sketch::scale;
use crate::store::prefetch::prefetch;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire};

/// An odd constant (of the golden ratio), so that the words of a key have nothing to do with its counters' lines.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Seen {
    words: Array<AtomicU64>,
    /// Words for one place: two if even and odd windows have their own.
    parities: usize,
}

/// A key's word, and its bits there.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Mark {
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

impl Seen {
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
    pub(crate) fn mark(&self, windows: &Windows, hash: u64) -> Mark {
        let hash = hash.wrapping_mul(SPREAD);
        let hash = hash ^ (hash >> 32);
        let len = u64::from(windows.payload_bits());
        // Ten bits of the hash each, scaled; the top ones choose the word.
        let bit = |shift: u32| 1 << ((((hash >> shift) & 0x3FF) * len) >> 10);
        let index = scale(hash, self.words.len() / self.parities) * self.parities;
        Mark { index, bits: bit(0) | bit(10) | bit(20) }
    }

    /// Asks for a key's word.
    #[inline]
    pub(crate) fn approach(&self, mark: &Mark) {
        prefetch(&raw const self.words[mark.index]);
    }

    #[inline]
    fn word(&self, mark: &Mark, window: u64) -> &AtomicU64 {
        let parity = if self.parities == 2 { usize::from(window & 1 == 1) } else { 0 };
        &self.words[mark.index + parity]
    }

    /// Whether a key seems to have been put in in this window.
    #[inline]
    pub(crate) fn contains(
        &self,
        windows: &Windows,
        mark: &Mark,
        window: u64,
        latest: &impl Fn() -> u64,
    ) -> Result<bool, Late> {
        // Ordering: Acquire; pairs with `insert`: what was counted before it is seen by whoever sees its bits.
        let word = self.word(mark, window).load(Acquire);
        let standing = windows.standing(word, window, latest)?;
        Ok(standing == Standing::Now && word & mark.bits == mark.bits)
    }

    /// Whether a key seems to have been put in in the window before this one.
    #[inline]
    pub(crate) fn contained(
        &self,
        windows: &Windows,
        mark: &Mark,
        window: u64,
        latest: &impl Fn() -> u64,
    ) -> Result<bool, Late> {
        // Ordering: Acquire, as in `contains`.
        let word = self.word(mark, window.wrapping_sub(1)).load(Acquire);
        let standing = windows.standing(word, window, latest)?;
        Ok(standing == Standing::Last && word & mark.bits == mark.bits)
    }

    /// Whether a later window than this one has begun where the key's word is.
    #[inline]
    pub(crate) fn has_turned(
        &self,
        windows: &Windows,
        mark: &Mark,
        window: u64,
        latest: &impl Fn() -> u64,
    ) -> Result<(), Late> {
        // Ordering: Acquire; after a fence of the caller's, which pairs with the one of whoever began that window.
        let word = self.word(mark, window.wrapping_add(1)).load(Acquire);
        windows.standing(word, window, latest).map(|_| ())
    }

    /// Puts a key in.
    #[inline]
    pub(crate) fn insert(
        &self,
        windows: &Windows,
        mark: &Mark,
        window: u64,
        latest: &impl Fn() -> u64,
    ) -> Result<Insert, Late> {
        let word = self.word(mark, window);
        let mut seen = word.load(Acquire);
        loop {
            let current = match windows.standing(seen, window, latest)? {
                Standing::Now if seen & mark.bits == mark.bits => return Ok(Insert::Again),
                Standing::Now => seen,
                Standing::Last | Standing::Past => windows.renewed(window),
            };
            // Ordering: AcqRel: Release for what was counted before, Acquire for what the word brought along.
            match word.compare_exchange(seen, current | mark.bits, AcqRel, Acquire) {
                Ok(_) => return Ok(Insert::First),
                Err(other) => seen = other,
            }
        }
    }

    /// The chance that a stranger seems to be known in this window, by up to `most` words.
    pub(crate) fn false_positives(&self, windows: &Windows, window: u64, most: usize) -> f64 {
        let places = self.words.len() / self.parities;
        let step = (places / most.max(1)).max(1);
        let (mut sum, mut looked_at) = (0.0, 0.0);
        for index in (0..places).step_by(step) {
            let mark = Mark { index: index * self.parities, bits: 0 };
            let word = self.word(&mark, window).load(Acquire);
            if let Ok(Standing::Now) = windows.standing(word, window, &|| window) {
                let set = (word & (u64::MAX >> (u64::BITS - windows.payload_bits()))).count_ones();
                sum += (f64::from(set) / f64::from(windows.payload_bits())).powi(3);
            }
            looked_at += 1.0;
        }
        sum / looked_at
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for word in self.words.iter() {
            // A look first, so that untouched memory stays so.
            if word.load(Acquire) != 0 {
                // Ordering: Release, as any other write of a word.
                word.store(0, crate::sync::Ordering::Release);
            }
        }
    }
}
