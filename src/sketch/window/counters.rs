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

use super::{Late, Windows, WordAge, parity};
use crate::base::memory::prefetch::{PrefetchToWrite, prefetch};
use crate::base::memory::{Array, Zeroed};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire};
use crate::sketch::hash::{mix, scale};

/// Words of a cache line; in the models, as few as keep a key's words apart.
const LINE: usize = if cfg!(tollgate_loom) { 2 } else { 8 };
/// Counters in a word, from which on a key has two in one.
const TOGETHER: u32 = 4;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct WindowCounters {
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

/// A key's words as they were read in a window; by field, so that each is in registers.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Read<'a, const N: usize, const PER: usize> {
    words: [&'a AtomicU64; N],
    shifts: [[u32; PER]; N],
    seen: [u64; N],
    counts: [[u64; PER]; N],
    /// Its estimate: at least what was counted for it.
    pub(crate) least: u64,
    /// The word that says so.
    at: usize,
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

impl WindowCounters {
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

    /// Where a key's counters are; two in two words if [`WindowCounters::is_together`], else one in four.
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

    /// Asks for a key's lines, to write them.
    #[inline(always)]
    pub(crate) fn approach_to_write<const N: usize, const PER: usize>(
        &self,
        hint: PrefetchToWrite,
        rows: &Rows<N, PER>,
    ) {
        hint.prefetch(&raw const self.words[rows.0[0].index]);
        hint.prefetch(&raw const self.words[rows.0[N / 2].index]);
    }

    #[inline(always)]
    fn word<const PER: usize>(&self, spot: &Spot<PER>, window: u64) -> &AtomicU64 {
        &self.words[spot.index + parity(window, self.parities)]
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
    fn current(windows: &Windows, word: u64, window: u64) -> Result<u64, Late> {
        match windows.age(word, window)? {
            WordAge::Now => Ok(word),
            WordAge::Last | WordAge::Past => Ok(windows.empty(window)),
        }
    }

    /// A key's estimate in this window; never below what was counted for it.
    #[inline(always)]
    pub(crate) fn read<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        window: u64,
    ) -> Result<Read<'_, N, PER>, Late> {
        let words: [&AtomicU64; N] = std::array::from_fn(|row| self.word(&rows.0[row], window));
        let shifts = std::array::from_fn(|row| rows.0[row].shifts);
        let (mut seen, mut counts) = ([0; N], [[0; PER]; N]);
        let (mut least, mut at) = (u64::MAX, 0);
        for row in 0..N {
            // Ordering: Acquire; pairs with the Release of raises and commits.
            seen[row] = words[row].load(Acquire);
            let current = Self::current(windows, seen[row], window)?;
            let mut count = u64::MAX;
            for (counted, shift) in counts[row].iter_mut().zip(rows.0[row].shifts) {
                *counted = (current >> shift) & self.most();
                count = count.min(*counted);
            }
            // No branch: which of two shared words is the lesser is not to be predicted.
            let less = count < least;
            least = std::hint::select_unpredictable(less, count, least);
            at = std::hint::select_unpredictable(less, row, at);
        }
        Ok(Read { words, shifts, seen, counts, least, at })
    }

    /// A key's estimate in the window before this one.
    #[inline(always)]
    pub(crate) fn last<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        window: u64,
    ) -> Result<u64, Late> {
        let mut estimate = u64::MAX;
        for spot in &rows.0 {
            // Ordering: Acquire, as in `read`.
            let word = self.word(spot, window.wrapping_sub(1)).load(Acquire);
            let least = match windows.age(word, window)? {
                WordAge::Last => self.least(word, &spot.shifts),
                WordAge::Now | WordAge::Past => 0,
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
    ) -> Result<(), Late> {
        rows.0.iter().try_for_each(|spot| {
            self.raise_word(windows, self.word(spot, window), &spot.shifts, (window, count))
        })
    }

    /// Puts a key whose counters were read at `count`, which is more than its estimate: raise, then commit.
    #[inline(always)]
    pub(crate) fn charge<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        read: &Read<'_, N, PER>,
        (window, count): (u64, u64),
    ) -> Result<Commit, Late> {
        let next = self.next(windows, read, (window, count));
        self.raise_others(windows, read, &next, (window, count))?;
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
        let mut is_first = false;
        let mut all = [0; N];
        for (row, next) in all.iter_mut().enumerate() {
            let is_now = windows.is_of(read.seen[row], window);
            // A word that was never written has the window's tag by chance.
            is_first |= !is_now || read.seen[row] == 0;
            *next = if is_now { read.seen[row] } else { windows.empty(window) };
            for (counted, shift) in read.counts[row].into_iter().zip(read.shifts[row]) {
                *next += count.saturating_sub(counted) << shift;
            }
        }
        if is_first {
            windows.begin(window);
        }
        all
    }

    /// Raises all words but the one that the estimate is from.
    #[inline(always)]
    pub(super) fn raise_others<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        read: &Read<'_, N, PER>,
        next: &[u64; N],
        at: (u64, u64),
    ) -> Result<(), Late> {
        for other in 1..N {
            let row = (read.at + other) % N;
            let word = read.words[row];
            // Ordering: as in `raise_word`.
            if word.compare_exchange(read.seen[row], next[row], AcqRel, Acquire).is_err() {
                self.raise_word(windows, word, &read.shifts[row], at)?;
            }
        }
        Ok(())
    }

    /// Exchanges the word that the estimate is from, if it is as it was read.
    #[inline(always)]
    pub(super) fn commit<const N: usize, const PER: usize>(
        read: &Read<'_, N, PER>,
        next: &[u64; N],
    ) -> Commit {
        let row = read.at % N;
        // Ordering: AcqRel: the raises come before it for whoever sees it.
        match read.words[row].compare_exchange(read.seen[row], next[row], AcqRel, Acquire) {
            Ok(_) => Commit::Done,
            Err(_) => Commit::Lost,
        }
    }

    /// Raises a key's counters in one word. Out of line: on the way of a charge only if another thread was first.
    #[cold]
    #[inline(never)]
    fn raise_word(
        &self,
        windows: &Windows,
        word: &AtomicU64,
        shifts: &[u32],
        (window, count): (u64, u64),
    ) -> Result<(), Late> {
        let mut seen = word.load(Acquire);
        loop {
            let current = Self::current(windows, seen, window)?;
            let next = self.raised(current, shifts, count);
            if next == seen {
                return Ok(());
            }
            if current != seen || seen == 0 {
                windows.begin(window);
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
        for index in (0..places).step_by(places.div_ceil(most.max(1)).max(1)) {
            let word = self.word(&Spot { index: index * self.parities, shifts: [] }, window).load(Acquire);
            let word = Self::current(windows, word, window).unwrap_or(0);
            for counter in 0..self.counters {
                let next = if self.is_together() { (counter + 1) % self.counters } else { counter };
                let shifts = [counter * self.count_bits, next * self.count_bits];
                reached += f64::from(u8::from(self.least(word, &shifts) >= count));
                looked_at += 1.0;
            }
        }
        // A key has two such words, or four.
        let words = if self.is_together() { 2 } else { 4 };
        (reached / looked_at).powi(words)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.words.iter().for_each(Zeroed::clear);
    }
}

#[cfg(all(test, tollgate_loom))]
impl<const N: usize, const PER: usize> Rows<N, PER> {
    /// The words and where the counters are in them, for the models.
    pub(super) fn words(&self) -> impl Iterator<Item = (usize, [u32; PER])> {
        self.0.iter().map(|spot| (spot.index, spot.shifts))
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::collections::HashMap;

    use super::super::tag_bits;
    use super::*;

    const WINDOW_NS: u64 = 1_000_000_000;
    const NOW: u64 = 1_700_000_000;

    /// Evaluates the body with `$rows` bound to where a key's counters are, in either form.
    macro_rules! with_rows {
        ($counters:expr, $hash:expr, $rows:ident => $body:expr) => {
            if $counters.is_together() {
                let $rows = $counters.rows::<2, 2>($hash);
                $body
            } else {
                let $rows = $counters.rows::<4, 1>($hash);
                $body
            }
        };
    }

    /// Counters and their windows, with nobody later than now.
    struct TestCounters {
        windows: Windows,
        counters: WindowCounters,
        largest: u64,
        last: bool,
    }

    impl TestCounters {
        fn new(bytes: usize, largest: u64, last: bool) -> Option<Self> {
            let windows = Windows::new(WINDOW_NS, tag_bits(WINDOW_NS), u64::MAX);
            let counters = WindowCounters::new(bytes, largest, last, &windows)?;
            Some(Self { windows, counters, largest, last })
        }

        /// Counters of each size, in both forms.
        fn all() -> impl Iterator<Item = Self> {
            let sizes = [0, 1, 3, 100, 127, 128, 1_023, 1_024, 4_095, 65_406, (1 << 33) - 1, (1 << 41) - 1];
            sizes
                .into_iter()
                .flat_map(|largest| [false, true].map(|last| Self::new(4_096, largest, last).unwrap()))
        }

        /// Adds to a key's count; the new one.
        fn charge(&self, hash: u64, (window, cost): (u64, u64)) -> Result<u64, Late> {
            let Self { windows, counters, .. } = self;
            with_rows!(counters, hash, rows => {
                let read = counters.read(windows, &rows, window)?;
                let at = (window, read.least + cost);
                assert_eq!(counters.charge(windows, &read, at), Ok(Commit::Done));
                Ok(at.1)
            })
        }

        fn estimate(&self, hash: u64, window: u64) -> Result<u64, Late> {
            let Self { windows, counters, .. } = self;
            with_rows!(counters, hash, rows => {
                counters.read(windows, &rows, window).map(|read| read.least)
            })
        }

        fn last(&self, hash: u64, window: u64) -> Result<u64, Late> {
            let Self { windows, counters, .. } = self;
            with_rows!(counters, hash, rows => counters.last(windows, &rows, window))
        }

        /// A key's words, and the bits of its counters there.
        fn words(&self, hash: u64) -> Vec<(usize, Vec<u32>)> {
            with_rows!(self.counters, hash, rows => {
                rows.0.iter().map(|spot| (spot.index, spot.shifts.to_vec())).collect()
            })
        }
    }

    #[test]
    fn a_key_has_four_counters_in_two_lines() {
        for held in TestCounters::all() {
            let TestCounters { windows, counters, largest, last } = &held;
            assert!(counters.most() >= *largest && counters.most() / 2 <= (*largest).max(1));
            for hash in (0..2_000).map(mix).chain([0, u64::MAX]) {
                let words = held.words(hash);
                let lines = words.iter().map(|(index, _)| index / LINE);
                assert!(lines.clone().take(words.len() / 2).all(|line| line == words[0].0 / LINE));
                assert_eq!(lines.filter(|line| *line < counters.lines).count(), words.len() / 2);
                let mut all: Vec<(usize, u32)> = Vec::new();
                for (index, shifts) in &words {
                    assert!(*index < counters.words.len() && (!last || index % 2 == 0), "a pair of words");
                    all.extend(shifts.iter().map(|shift| (*index, *shift)));
                }
                assert!(all.iter().all(|(_, shift)| shift + counters.count_bits <= windows.payload_bits()));
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), 4, "{largest}: counters of their own");
            }
        }
    }

    #[test]
    fn sizes_are_whole_lines_and_as_asked() {
        for (bytes, taken) in [(0, 128), (128, 128), (255, 128), (256, 256), (1_000_000, 999_936)] {
            assert_eq!(TestCounters::new(bytes, 100, true).unwrap().counters.bytes(), taken);
        }
        assert!(TestCounters::new(4_096, 1 << 41, false).is_none(), "no room for such a counter");
        assert!(TestCounters::new(usize::MAX, 1, false).is_none(), "no such memory");
    }

    /// Over three windows, with far more keys than counters.
    #[test]
    fn an_estimate_is_what_was_counted_or_more() {
        for held in TestCounters::all() {
            for window in NOW - 2..=NOW {
                let mut counted = HashMap::new();
                for hash in (0..3_000).map(|step| mix(mix(step) % 1_000)) {
                    if held.estimate(hash, window).unwrap() < held.largest {
                        held.charge(hash, (window, 1)).unwrap();
                        *counted.entry(hash).or_insert(0) += 1;
                    }
                }
                for (hash, count) in counted {
                    let estimate = held.estimate(hash, window).unwrap();
                    assert!(estimate >= count, "{} of {}", estimate, held.largest);
                    let later = held.last(hash, window + 1);
                    assert!(!held.last || later == Ok(estimate), "read as the last window");
                }
            }
        }
    }

    #[test]
    fn with_room_an_estimate_is_the_count() {
        for largest in [1, 100, 4_095, (1 << 33) - 1] {
            let held = TestCounters::new(1 << 20, largest, false).unwrap();
            for hash in (0..50).map(mix) {
                assert_eq!(held.charge(hash, (NOW, largest)), Ok(largest));
            }
            assert!((0..50).map(mix).all(|hash| held.estimate(hash, NOW) == Ok(largest)));
            assert!((100..1_000).map(mix).filter(|&hash| held.estimate(hash, NOW) != Ok(0)).count() < 5);
        }
    }

    /// Full counters do not run over, and nothing but a key's own changes.
    #[test]
    fn a_full_counter_leaves_its_neighbours_alone() {
        for held in TestCounters::all() {
            let (key, most) = (mix(5), held.counters.most());
            assert_eq!(held.charge(key, (NOW, most)), Ok(most));
            let mut expected: HashMap<usize, u64> = HashMap::new();
            for (index, shifts) in held.words(key) {
                let odd = usize::from(held.last && NOW % 2 == 1);
                let word = expected.entry(index + odd).or_insert(held.windows.empty(NOW));
                shifts.iter().for_each(|shift| *word |= most << shift);
            }
            for (index, word) in held.counters.words.iter().enumerate() {
                assert_eq!(
                    word.load(Acquire),
                    expected.get(&index).copied().unwrap_or(0),
                    "{}",
                    held.largest
                );
            }
        }
    }

    #[test]
    fn older_windows_read_as_empty_and_are_replaced() {
        for held in TestCounters::all().filter(|held| held.largest > 0) {
            let key = mix(5);
            for past in [1, 2, 3, 1_000, 5_000_000] {
                held.counters.clear();
                held.windows.clear();
                assert_eq!(held.charge(key, (NOW - past, 1)), Ok(1), "{past}");
                assert_eq!(held.estimate(key, NOW), Ok(0), "{past}");
                assert_eq!(held.charge(key, (NOW, 1)), Ok(1), "{past}");
                assert_eq!(held.last(key, NOW), Ok(u64::from(held.last && past == 1)), "{past}");
            }
        }
    }

    #[test]
    fn who_lags_is_told() {
        for held in TestCounters::all().filter(|held| held.largest > 0) {
            let key = mix(5);
            assert_eq!(held.charge(key, (NOW, 1)), Ok(1));
            for back in [2, 4, 4_000_000] {
                // By more than a quarter of the tags it begins again as of that quarter.
                let late = Late { window: if back > 1 << 21 { NOW - (1 << 21) } else { NOW } };
                assert_eq!(held.estimate(key, NOW - back), Err(late), "{back}");
                let TestCounters { windows, counters, .. } = &held;
                let raised = with_rows!(counters, key, rows => {
                    counters.raise(windows, &rows, (NOW - back, 1))
                });
                assert_eq!(raised, Err(late), "{back}");
            }
            // Of the next window, as another's clock may be: in a word of its own, if odd windows have them.
            let next = if held.last { held.last(key, NOW - 1) } else { held.estimate(key, NOW - 1) };
            assert_eq!(next, Err(Late { window: NOW }));
        }
    }

    #[test]
    fn a_commit_is_lost_to_another() {
        for largest in [100, 1 << 40] {
            let held = TestCounters::new(0, largest, false).unwrap();
            let TestCounters { windows, counters, .. } = &held;
            with_rows!(counters, mix(5), rows => {
                let read = || counters.read(windows, &rows, NOW).unwrap();
                let (one, other) = (read(), read());
                assert_eq!(counters.charge(windows, &one, (NOW, 3)), Ok(Commit::Done));
                assert_eq!(counters.charge(windows, &other, (NOW, 2)), Ok(Commit::Lost));
                // The next window has begun meanwhile.
                let third = read();
                assert_eq!(held.charge(mix(5), (NOW + 1, 1)), Ok(1));
                let late = Err(Late { window: NOW + 1 });
                assert_eq!(counters.charge(windows, &third, (NOW, 4)), late);
            });
        }
    }

    #[test]
    fn how_many_are_full_is_known() {
        for held in TestCounters::all().filter(|held| held.largest > 0) {
            let reached = |count| held.counters.reached(&held.windows, NOW, count, 4_096);
            assert!(reached(1) == 0.0);
            let mut keys = (0..).map(mix);
            while reached(1) < 0.4 {
                let strangers = keys.by_ref().filter(|&hash| held.estimate(hash, NOW) == Ok(0));
                strangers.take(20).for_each(|hash| assert_eq!(held.charge(hash, (NOW, 1)), Ok(1)));
            }
            let strangers = (1 << 40..(1 << 40) + 4_000).map(mix);
            let met = strangers.filter(|&hash| held.estimate(hash, NOW) != Ok(0)).count();
            let share = f64::from(u32::try_from(met).unwrap()) / 4_000.0;
            assert!((share - reached(1)).abs() < 0.1, "{share}, and not {}: {}", reached(1), held.largest);
            assert!(reached(2) <= reached(1));
            assert!(held.counters.reached(&held.windows, NOW + 1, 1, 4_096) == 0.0, "a new window");
        }
    }
}
