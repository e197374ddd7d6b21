//! Counts of windows: a count-min sketch with conservative update, several counters to a word.
//!
//! A key has two cache lines, each in its own half of the sketch, and two counters in each: in one word where a word holds
//! four or more, so that one exchange raises both; else in two words. Its *estimate* is the least of its counters, each of
//! which is at least what was counted for it.
//!
//! *Raise, then commit*, as in [`super::super::tat`]: all other words are raised to the new count first, and then the least is
//! exchanged, from the count that the estimate was. If it changed, all begins again. (A word in which only a neighbour's
//! counter changed is exchanged again.) Counters of one window only grow, so a count that is the same has not changed.

mod add;

pub(crate) use self::add::Rows;
use super::{Late, Standing, Windows};
use crate::memory::Array;
use crate::sketch::{mix, scale};
use crate::store::prefetch::prefetch;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire};

/// Words of a cache line; in the models, as few as keep a key's words apart.
const LINE: usize = if cfg!(tollgate_loom) { 2 } else { 8 };
/// Counters in a word, from which on a key has two in one.
const TOGETHER: u32 = 4;
/// Words of a key at most.
const MOST: usize = 4;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Counters {
    words: Array<AtomicU64>,
    /// Lines in each half.
    lines: usize,
    /// Words for one place: two if even and odd windows have their own.
    parities: usize,
    count_bits: u32,
    /// Counters in a word.
    counters: u32,
}

/// One of a key's words, and where its counters are in it: twice the same place, if it has only one there.
#[derive(Copy, Clone, Debug, Default)]
struct Spot {
    index: usize,
    shifts: [u32; 2],
}

/// Sixteen bits of a hash, scaled; the top bits choose the line.
#[inline(always)]
fn part(hash: u64, shift: u32, len: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "sixteen bits of an integer")]
    let part = (hash >> shift) as u16;
    // There are at most 64 places or counters.
    (u32::from(part) * len) >> 16
}

/// A key's words.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Place {
    spots: [Spot; MOST],
    len: usize,
}

impl Place {
    fn spots(&self) -> &[Spot] {
        &self.spots[..self.len]
    }
}

/// A key's estimate in a window, and where it was read.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Read {
    pub(crate) least: u64,
    row: usize,
    word: u64,
}

/// How a commit ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Commit {
    /// The key has the new count.
    Done,
    /// Another thread changed its count first.
    Lost,
}

impl Counters {
    /// At most about `bytes` bytes of counters up to `largest`, with a word each for even and odd windows if the `last` one
    /// is asked for too. `None` if there is no such memory, or no room for such a counter.
    pub(crate) fn new(bytes: usize, largest: u64, last: bool, windows: &Windows) -> Option<Self> {
        let count_bits = (u64::BITS - largest.leading_zeros()).max(1);
        let counters = windows.payload_bits() / count_bits;
        if counters == 0 {
            return None;
        }
        let lines = (bytes / Self::LEAST_BYTES).max(1);
        let words = Array::zeroed(lines.checked_mul(2 * LINE)?)?;
        Some(Self { words, lines, parities: 1 + usize::from(last), count_bits, counters })
    }

    /// A line in each half.
    pub(crate) const LEAST_BYTES: usize = 2 * LINE * size_of::<u64>();

    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * size_of::<AtomicU64>()
    }

    /// The most that a counter holds.
    #[inline]
    pub(crate) fn most(&self) -> u64 {
        u64::MAX >> (u64::BITS - self.count_bits)
    }

    /// A key's words and counters.
    #[inline]
    pub(crate) fn place(&self, hash: u64) -> Place {
        let mut place = Place::default();
        let other = mix(hash);
        if self.is_together() {
            (place.spots[0], place.spots[1]) = (self.one_word(0, hash), self.one_word(self.lines, other));
            place.len = 2;
        } else {
            (place.spots[0], place.spots[1]) = self.two_words(0, hash);
            (place.spots[2], place.spots[3]) = self.two_words(self.lines, other);
            place.len = 4;
        }
        place
    }

    /// Whether a key has two counters in a word.
    #[inline(always)]
    pub(crate) fn is_together(&self) -> bool {
        self.counters >= TOGETHER
    }

    /// The word of a half in which a hash has both counters.
    #[inline(always)]
    fn one_word(&self, half: usize, hash: u64) -> Spot {
        let a = self.counter(hash);
        let b = a + 1 + part(hash, 32, self.counters - 1);
        let b = if b < self.counters { b } else { b - self.counters };
        let index = self.index(half, hash, part(hash, 0, self.places()));
        Spot { index, shifts: [a * self.count_bits, b * self.count_bits] }
    }

    /// The words of a half in which a hash has a counter each.
    #[inline(always)]
    fn two_words(&self, half: usize, hash: u64) -> (Spot, Spot) {
        let (places, first) = (self.places(), part(hash, 0, self.places()));
        let second = first + 1 + part(hash, 32, places.max(2) - 1);
        let spot = |place, counter| Spot {
            index: self.index(half, hash, place),
            shifts: [counter * self.count_bits; 2],
        };
        (spot(first, self.counter(hash)), spot(second, self.counter(hash.rotate_left(8))))
    }

    /// A line's places, each of one word or of a pair: a power of two.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "eight at most")]
    fn places(&self) -> u32 {
        if self.parities == 2 { LINE as u32 / 2 } else { LINE as u32 }
    }

    /// A word of the line that a hash has in a half.
    #[inline(always)]
    fn index(&self, half: usize, hash: u64, place: u32) -> usize {
        (half + scale(hash, self.lines)) * LINE + (place & (self.places() - 1)) as usize * self.parities
    }

    /// A hash's counter in a word.
    #[inline(always)]
    fn counter(&self, hash: u64) -> u32 {
        part(hash, 16, self.counters)
    }

    /// Asks for a key's lines.
    #[inline]
    pub(crate) fn approach(&self, place: &Place) {
        for half in place.spots().chunks(place.len / 2) {
            prefetch(&raw const self.words[half[0].index]);
        }
    }

    #[inline]
    fn word(&self, spot: &Spot, window: u64) -> &AtomicU64 {
        let parity = if self.parities == 2 { usize::from(window & 1 == 1) } else { 0 };
        &self.words[spot.index + parity]
    }

    /// The lesser of a key's counters in a word.
    #[inline]
    fn least(&self, word: u64, spot: &Spot) -> u64 {
        let [a, b] = spot.shifts.map(|shift| (word >> shift) & self.most());
        a.min(b)
    }

    /// A word with a key's counters at `count` at least.
    #[inline]
    fn raised(&self, mut word: u64, spot: &Spot, count: u64) -> u64 {
        for shift in spot.shifts {
            let counted = (word >> shift) & self.most();
            word += count.saturating_sub(counted) << shift;
        }
        word
    }

    /// A word of this window as it counts for it: empty if it is older.
    #[inline]
    fn current(windows: &Windows, word: u64, window: u64, latest: &impl Fn() -> u64) -> Result<u64, Late> {
        match windows.standing(word, window, latest)? {
            Standing::Now => Ok(word),
            Standing::Last | Standing::Past => Ok(windows.empty(window)),
        }
    }

    /// A key's estimate in this window; never below what was counted for it.
    #[inline]
    pub(crate) fn read(
        &self,
        windows: &Windows,
        place: &Place,
        window: u64,
        latest: &impl Fn() -> u64,
    ) -> Result<Read, Late> {
        let mut read = Read { least: u64::MAX, row: 0, word: 0 };
        for (row, spot) in place.spots().iter().enumerate() {
            // Ordering: Acquire; pairs with the Release of raises and commits.
            let word = self.word(spot, window).load(Acquire);
            let least = self.least(Self::current(windows, word, window, latest)?, spot);
            if least < read.least {
                read = Read { least, row, word };
            }
        }
        Ok(read)
    }

    /// A key's estimate in the window before this one.
    #[inline]
    pub(crate) fn last(
        &self,
        windows: &Windows,
        place: &Place,
        window: u64,
        latest: &impl Fn() -> u64,
    ) -> Result<u64, Late> {
        let mut estimate = u64::MAX;
        for spot in place.spots() {
            // Ordering: Acquire, as in `read`.
            let word = self.word(spot, window.wrapping_sub(1)).load(Acquire);
            let least = match windows.standing(word, window, latest)? {
                Standing::Last => self.least(word, spot),
                Standing::Now | Standing::Past => 0,
            };
            estimate = estimate.min(least);
        }
        Ok(estimate)
    }

    /// Raises a key's counters to `count` at least, but for those of the word of `but`.
    #[inline]
    pub(crate) fn raise(
        &self,
        windows: &Windows,
        place: &Place,
        but: Option<&Read>,
        (window, count): (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<(), Late> {
        for (row, spot) in place.spots().iter().enumerate() {
            if but.is_none_or(|read| read.row != row) {
                self.raise_word(windows, spot, (window, count), latest)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn raise_word(
        &self,
        windows: &Windows,
        spot: &Spot,
        (window, count): (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<(), Late> {
        self.raise_to(windows, self.word(spot, window), spot, (window, count), latest)
    }

    #[inline]
    fn raise_to(
        &self,
        windows: &Windows,
        word: &AtomicU64,
        spot: &Spot,
        (window, count): (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<(), Late> {
        let mut seen = word.load(Acquire);
        loop {
            let current = Self::current(windows, seen, window, latest)?;
            let next = self.raised(current, spot, count);
            if next == seen {
                return Ok(());
            }
            // Ordering: Release: who sees this count, and then the commit that it was raised for, is in order; AcqRel for
            // what the word replaced brought along.
            match word.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }

    /// Exchanges the word that was read for one with the key at `count`, if its count is as it was read.
    #[inline]
    pub(crate) fn commit(
        &self,
        windows: &Windows,
        place: &Place,
        read: &Read,
        (window, count): (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<Commit, Late> {
        let spot = &place.spots[read.row];
        let word = self.word(spot, window);
        let mut seen = read.word;
        loop {
            let current = Self::current(windows, seen, window, latest)?;
            if self.least(current, spot) != read.least {
                return Ok(Commit::Lost);
            }
            // Ordering: AcqRel: the raises come before it for whoever sees it.
            match word.compare_exchange(seen, self.raised(current, spot, count), AcqRel, Acquire) {
                Ok(_) => return Ok(Commit::Done),
                Err(other) => seen = other,
            }
        }
    }

    /// The chance that all counters of some key hold `count` or more in this window, by up to `most` words.
    pub(crate) fn reached(&self, windows: &Windows, window: u64, count: u64, most: usize) -> f64 {
        let places = self.words.len() / self.parities;
        let (mut reached, mut looked_at) = (0.0_f64, 0.0);
        for index in (0..places).step_by((places / most.max(1)).max(1)) {
            let first = Spot { index: index * self.parities, shifts: [0; 2] };
            let word = self.word(&first, window).load(Acquire);
            let word = Self::current(windows, word, window, &|| window).unwrap_or(0);
            for counter in 0..self.counters {
                let next = if self.counters >= TOGETHER { (counter + 1) % self.counters } else { counter };
                let shifts = [counter * self.count_bits, next * self.count_bits];
                reached += f64::from(u8::from(self.least(word, &Spot { shifts, ..first }) >= count));
                looked_at += 1.0;
            }
        }
        // A key has two such words, or four.
        let words = if self.counters >= TOGETHER { 2 } else { 4 };
        (reached / looked_at).powi(words)
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

#[cfg(all(test, tollgate_loom))]
impl Place {
    /// The words and where the counters are in them, for the models.
    pub(super) fn words(&self) -> Vec<(usize, [u32; 2])> {
        self.spots().iter().map(|spot| (spot.index, spot.shifts)).collect()
    }
}
