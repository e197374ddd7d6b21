//! Counts of windows: a count-min sketch with conservative update, several counters to a word.
//!
//! A key has two cache lines, each in its own half of the sketch, and two counters in each: in one word where a word holds
//! four or more, so that one exchange raises both; else in two words. Its *estimate* is the least of its counters, each of
//! which is at least what was counted for it.
//!
//! *Raise, then commit*, as in [`super::super::tat`]: all other words are raised to the new count first, and then the least is
//! exchanged, from the count that the estimate was. If its word changed, all begins again.
//!
//! Where a key's words are and how many is known to the compiler ([`Rows`]), so that they are in registers.

use super::{Late, Standing, Windows};
use crate::memory::Array;
use crate::sketch::{mix, scale};
use crate::store::prefetch::{prefetch, prefetch_to_write};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire};

/// Words of a cache line; in the models, as few as keep a key's words apart.
const LINE: usize = if cfg!(tollgate_loom) { 2 } else { 8 };
/// Counters in a word, from which on a key has two in one.
const TOGETHER: u32 = 4;

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

/// Where a key's counters are: `PER` in each of `N` words, two in two or one in four.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Rows<const N: usize, const PER: usize>([Spot<PER>; N]);

/// One of a key's words, of even windows if odd ones have their own, and where its counters are in it.
#[derive(Copy, Clone, Debug)]
struct Spot<const PER: usize> {
    index: usize,
    shifts: [u32; PER],
}

/// A key's words as they were read in a window.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Read<'a, const N: usize, const PER: usize> {
    rows: [Row<'a, PER>; N],
    /// Its estimate: at least what was counted for it.
    pub(crate) least: u64,
    /// The word that says so.
    at: usize,
}

/// A word as it was read.
#[derive(Copy, Clone, Debug)]
struct Row<'a, const PER: usize> {
    word: &'a AtomicU64,
    shifts: [u32; PER],
    seen: u64,
    /// The lesser of the key's counters in it.
    count: u64,
}

/// How a commit ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Commit {
    /// The key has the new count.
    Done,
    /// Another thread changed the word first.
    Lost,
}

/// Sixteen bits of a hash, scaled; the top bits choose the line.
#[inline(always)]
fn part(hash: u64, shift: u32, len: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "sixteen bits of an integer")]
    let part = (hash >> shift) as u16;
    // There are at most 64 places or counters.
    (u32::from(part) * len) >> 16
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
    #[inline(always)]
    pub(crate) fn most(&self) -> u64 {
        u64::MAX >> (u64::BITS - self.count_bits)
    }

    /// Whether a key has two words, with two counters in each, or four with one.
    #[inline(always)]
    pub(crate) fn is_together(&self) -> bool {
        self.counters >= TOGETHER
    }

    /// Where a key's counters are; two in two words if [`Counters::is_together`], else one in four.
    #[inline(always)]
    pub(crate) fn rows<const N: usize, const PER: usize>(&self, hash: u64) -> Rows<N, PER> {
        const { assert!((N == 2 && PER == 2) || (N == 4 && PER == 1), "four counters on two lines") };
        let hashes = [hash, mix(hash)];
        Rows(std::array::from_fn(|row| {
            let half = row * 2 / N;
            let hash = hashes[half];
            let mut shifts = [0; PER];
            let place = if PER == 2 {
                let first = self.counter(hash);
                let second = first + 1 + part(hash, 32, self.counters - 1);
                let second = if second < self.counters { second } else { second - self.counters };
                (shifts[0], shifts[PER - 1]) = (first * self.count_bits, second * self.count_bits);
                part(hash, 0, self.places())
            } else if row % 2 == 0 {
                shifts[0] = self.counter(hash) * self.count_bits;
                part(hash, 0, self.places())
            } else {
                shifts[0] = self.counter(hash.rotate_left(8)) * self.count_bits;
                part(hash, 0, self.places()) + 1 + part(hash, 32, self.places().max(2) - 1)
            };
            let line = half * self.lines + scale(hash, self.lines);
            Spot { index: line * LINE + (place & (self.places() - 1)) as usize * self.parities, shifts }
        }))
    }

    /// A line's places, each of one word or of a pair: a power of two.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "eight at most")]
    fn places(&self) -> u32 {
        if self.parities == 2 { LINE as u32 / 2 } else { LINE as u32 }
    }

    /// A hash's counter in a word.
    #[inline(always)]
    fn counter(&self, hash: u64) -> u32 {
        part(hash, 16, self.counters)
    }

    /// Asks for a key's lines.
    #[inline(always)]
    pub(crate) fn approach<const N: usize, const PER: usize>(&self, rows: &Rows<N, PER>) {
        prefetch(&raw const self.words[rows.0[0].index]);
        prefetch(&raw const self.words[rows.0[N / 2].index]);
    }

    /// Asks for a key's lines, to write them; see [`prefetch_to_write`].
    #[inline(always)]
    pub(crate) fn approach_to_write<const N: usize, const PER: usize>(&self, rows: &Rows<N, PER>) {
        prefetch_to_write(&raw const self.words[rows.0[0].index]);
        prefetch_to_write(&raw const self.words[rows.0[N / 2].index]);
    }

    #[inline(always)]
    fn word<const PER: usize>(&self, spot: &Spot<PER>, window: u64) -> &AtomicU64 {
        let parity = if self.parities == 2 { usize::from(window & 1 == 1) } else { 0 };
        &self.words[spot.index + parity]
    }

    /// The lesser of a key's counters in a word.
    #[inline(always)]
    fn least(&self, word: u64, shifts: &[u32]) -> u64 {
        shifts.iter().fold(u64::MAX, |least, shift| least.min((word >> shift) & self.most()))
    }

    /// A word with a key's counters at `count` at least.
    #[inline(always)]
    fn raised(&self, mut word: u64, shifts: &[u32], count: u64) -> u64 {
        for shift in shifts {
            let counted = (word >> shift) & self.most();
            word += count.saturating_sub(counted) << shift;
        }
        word
    }

    /// A word of this window as it counts for it: empty if it is older.
    #[inline(always)]
    fn current(windows: &Windows, word: u64, window: u64, latest: &impl Fn() -> u64) -> Result<u64, Late> {
        match windows.standing(word, window, latest)? {
            Standing::Now => Ok(word),
            Standing::Last | Standing::Past => Ok(windows.empty(window)),
        }
    }

    /// A word as it counts for this window, before it is exchanged for one of this window.
    #[inline(always)]
    fn to_write(windows: &Windows, word: u64, window: u64, latest: &impl Fn() -> u64) -> Result<u64, Late> {
        match windows.standing(word, window, latest)? {
            Standing::Now => Ok(word),
            Standing::Last | Standing::Past => Ok(windows.renewed(window)),
        }
    }

    /// A key's estimate in this window; never below what was counted for it.
    #[inline(always)]
    pub(crate) fn read<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        window: u64,
        latest: &impl Fn() -> u64,
    ) -> Result<Read<'_, N, PER>, Late> {
        let row = |row: usize| {
            let word = self.word(&rows.0[row], window);
            // Ordering: Acquire; pairs with the Release of raises and commits.
            let seen = word.load(Acquire);
            let shifts = rows.0[row].shifts;
            let count = self.least(Self::current(windows, seen, window, latest)?, &shifts);
            Ok(Row { word, shifts, seen, count })
        };
        let first = row(0)?;
        let (mut all, mut least, mut at) = ([first; N], first.count, 0);
        for (next, place) in all.iter_mut().enumerate().skip(1) {
            *place = row(next)?;
            // No branch: which of two shared words is the lesser is not to be predicted.
            let less = place.count < least;
            least = std::hint::select_unpredictable(less, place.count, least);
            at = std::hint::select_unpredictable(less, next, at);
        }
        Ok(Read { rows: all, least, at })
    }

    /// A key's estimate in the window before this one.
    #[inline(always)]
    pub(crate) fn last<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        window: u64,
        latest: &impl Fn() -> u64,
    ) -> Result<u64, Late> {
        let mut estimate = u64::MAX;
        for spot in &rows.0 {
            // Ordering: Acquire, as in `read`.
            let word = self.word(spot, window.wrapping_sub(1)).load(Acquire);
            let least = match windows.standing(word, window, latest)? {
                Standing::Last => self.least(word, &spot.shifts),
                Standing::Now | Standing::Past => 0,
            };
            estimate = estimate.min(least);
        }
        Ok(estimate)
    }

    /// Raises a key's counters to `count` at least, without a commit: nothing is admitted by it.
    pub(crate) fn raise<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        (window, count): (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<(), Late> {
        rows.0.iter().try_for_each(|spot| {
            let word = self.word(spot, window);
            self.raise_word(windows, (word, word.load(Acquire)), &spot.shifts, (window, count), latest)
        })
    }

    /// Puts a key whose counters were read at `count`, which is more than its estimate: raise, then commit.
    #[inline(always)]
    pub(crate) fn charge<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        read: &Read<'_, N, PER>,
        (window, count): (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<Commit, Late> {
        let next = self.next(windows, read, (window, count));
        self.raise_others(windows, read, &next, (window, count), latest)?;
        Ok(Self::commit(read, &next))
    }

    /// The words as they are to be, all of them first, so that the exchanges follow each other.
    #[inline(always)]
    pub(super) fn next<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        read: &Read<'_, N, PER>,
        (window, count): (u64, u64),
    ) -> [u64; N] {
        // They were of this window or older ones when they were read.
        if !read.rows.iter().all(|row| windows.is_of(row.seen, window)) {
            windows.begin(window);
        }
        read.rows.map(|row| {
            let current = if windows.is_of(row.seen, window) { row.seen } else { windows.empty(window) };
            self.raised(current, &row.shifts, count)
        })
    }

    /// Raises all words but the one that the estimate is from.
    #[inline(always)]
    pub(super) fn raise_others<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        read: &Read<'_, N, PER>,
        next: &[u64; N],
        at: (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<(), Late> {
        for other in 1..N {
            let (row, next) = (&read.rows[(read.at + other) % N], next[(read.at + other) % N]);
            // Ordering: as in `raise_word`.
            if row.word.compare_exchange(row.seen, next, AcqRel, Acquire).is_err() {
                self.raise_again(windows, row, at, latest)?;
            }
        }
        Ok(())
    }

    /// Another thread was first.
    #[cold]
    #[inline(never)]
    fn raise_again<const PER: usize>(
        &self,
        windows: &Windows,
        row: &Row<'_, PER>,
        at: (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<(), Late> {
        self.raise_word(windows, (row.word, row.word.load(Acquire)), &row.shifts, at, latest)
    }

    /// Exchanges the word that the estimate is from, if it is as it was read.
    #[inline(always)]
    pub(super) fn commit<const N: usize, const PER: usize>(
        read: &Read<'_, N, PER>,
        next: &[u64; N],
    ) -> Commit {
        let row = &read.rows[read.at % N];
        // Ordering: AcqRel: the raises come before it for whoever sees it.
        match row.word.compare_exchange(row.seen, next[read.at % N], AcqRel, Acquire) {
            Ok(_) => Commit::Done,
            Err(_) => Commit::Lost,
        }
    }

    #[inline(always)]
    fn raise_word(
        &self,
        windows: &Windows,
        (word, mut seen): (&AtomicU64, u64),
        shifts: &[u32],
        (window, count): (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<(), Late> {
        loop {
            let current = Self::to_write(windows, seen, window, latest)?;
            let next = self.raised(current, shifts, count);
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

    /// The chance that all counters of some key hold `count` or more in this window, by up to `most` words.
    pub(crate) fn reached(&self, windows: &Windows, window: u64, count: u64, most: usize) -> f64 {
        let places = self.words.len() / self.parities;
        let (mut reached, mut looked_at) = (0.0_f64, 0.0);
        for index in (0..places).step_by((places / most.max(1)).max(1)) {
            let word = self.word(&Spot { index: index * self.parities, shifts: [] }, window).load(Acquire);
            let word = Self::current(windows, word, window, &|| window).unwrap_or(0);
            for counter in 0..self.counters {
                let next = if self.counters >= TOGETHER { (counter + 1) % self.counters } else { counter };
                let shifts = [counter * self.count_bits, next * self.count_bits];
                reached += f64::from(u8::from(self.least(word, &shifts) >= count));
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
impl<const N: usize, const PER: usize> Rows<N, PER> {
    /// The words and where the counters are in them, for the models.
    pub(super) fn words(&self) -> impl Iterator<Item = (usize, [u32; PER])> {
        self.0.iter().map(|spot| (spot.index, spot.shifts))
    }
}
