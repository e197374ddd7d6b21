//! Counts per window: a count-min sketch with conservative update and several counters in a word.
//!
//! A key has two cache lines, one in each half of the sketch, and two counters in each line. If a word holds four or
//! more counters, both counters of a line are in one word, so one exchange raises both. Otherwise they are in two
//! words. The *estimate* of a key is the smallest of its counters. Each of them is at least the key's count.
//!
//! *Charging.* A charge works in these steps:
//!
//! 1. Read all words of the key, and compute the new count from the estimate.
//! 2. Exchange each word whose counters are below the new count. Each exchange expects exactly the word that was
//!    read.
//! 3. If any word has changed, start again at step 1.
//!
//! Why no two charges of a key start from the same estimate: suppose that two charges A and B succeed from the estimate
//! `e`. Let `a` be the word in which A found `e`, and `b` the word in which B found `e`. Counters only grow within a
//! window.
//!
//! - If A read `b` before B's exchange, A also found `e` there, and had to exchange `b` too. Both exchanges expect the
//!   word with the count `e`, so only one of them succeeds. So A read `b` after B's exchange of `b`.
//! - In the same way, B read `a` after A's exchange of `a`.
//! - A charge reads all words before its first exchange. So B's read of `a` came before B's exchange of `b`, which came
//!   before A's read of `b`, which came before A's exchange of `a`, which came before B's read of `a`. This is a
//!   contradiction.
//!
//! A charge that starts again leaves its exchanged words raised, as if another key had counted there.
//!
//! The compiler knows the number of words of a key ([`Rows`]), so it keeps them in registers.

use super::{Late, Windows, WordAge, parity};
use crate::base::memory::prefetch::{PrefetchToWrite, prefetch};
use crate::base::memory::{Array, Zeroed};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire};
use crate::sketch::hash::{Fraction, MULTIPLIER};

/// The number of words in a cache line. In the models, it is the smallest number that keeps a key's words apart.
const LINE: usize = if cfg!(tollgate_loom) { 2 } else { 8 };
/// If a word has at least this many counters, a key has two counters in one word.
const TOGETHER: usize = 4;

/// See the module docs.
#[derive(Debug)]
pub(crate) struct WindowCounters {
    words: Array<AtomicU64>,
    /// The number of words in each half; a whole number of lines.
    half: usize,
    /// 1 if even and odd windows have separate words, otherwise 0.
    odd: usize,
    /// The complement of `odd`.
    even: usize,
    /// The number of places in a line, minus one. A place is a word, or a pair of words for even and odd windows.
    other_places: usize,
    count_bits: u32,
    /// The largest value of a counter.
    most: u64,
    /// The number of counters in a word.
    counters: usize,
}

/// The location of a key's lines: the key's first word in each line, and the rest of the hash, which chooses the
/// counters. If even and odd windows have separate words, the index is that of the word for even windows.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Lines([(usize, Fraction); 2]);

/// The location of a key's counters: `PER` counters in each of `N` words, either two in two words or one in four
/// words.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Rows<const N: usize, const PER: usize>([Spot<PER>; N]);

/// One of a key's words, and the location of the counters in it. If even and odd windows have separate words, the index
/// is that of the word for even windows.
#[derive(Copy, Clone, Debug)]
struct Spot<const PER: usize> {
    index: usize,
    shifts: [u32; PER],
}

/// A key's words as they were read in a window. Each field is an array, so that the values stay in registers.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Read<'a, const N: usize, const PER: usize> {
    words: [&'a AtomicU64; N],
    shifts: [[u32; PER]; N],
    seen: [u64; N],
    /// The same words, but empty if they belong to an older window.
    current: [u64; N],
    counts: [[u64; PER]; N],
    /// Whether any word belongs to an older window, or may never have been written.
    is_older: bool,
    /// The key's estimate: at least its count.
    pub(crate) least: u64,
}

/// The result of a charge.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Commit {
    /// The key has the new count.
    Done,
    /// Another thread changed a word first.
    Lost,
}

impl WindowCounters {
    /// Creates at most about `bytes` bytes of counters up to `largest`. With `keeps_last`, a caller can also read
    /// the previous window: even and odd windows have separate words. Returns `None` if the memory cannot be allocated,
    /// or if a word has no room for such a counter.
    pub(crate) fn new(bytes: usize, largest: u64, keeps_last: bool, windows: &Windows) -> Option<Self> {
        let count_bits = (u64::BITS - largest.leading_zeros()).max(1);
        let counters = (windows.payload_bits() / count_bits) as usize;
        if counters == 0 {
            return None;
        }
        let half = (bytes / Self::MIN_BYTES).max(1).checked_mul(LINE)?;
        let words = Array::zeroed(half.checked_mul(2)?)?;
        let most = u64::MAX >> (u64::BITS - count_bits);
        let odd = usize::from(keeps_last);
        let other_places = (LINE >> odd) - 1;
        Some(Self { words, half, odd, even: !odd, other_places, count_bits, most, counters })
    }

    /// The bytes of one line in each half.
    pub(crate) const MIN_BYTES: usize = 2 * LINE * size_of::<u64>();

    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * size_of::<AtomicU64>()
    }

    /// Returns the largest value of a counter.
    #[inline(always)]
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// Returns true if a key has two words with two counters each, and false if it has four words with one counter
    /// each.
    #[inline(always)]
    pub(crate) fn is_together(&self) -> bool {
        self.counters >= TOGETHER
    }

    /// Returns the location of a key's lines.
    #[inline(always)]
    pub(crate) fn lines(&self, hash: u64) -> Lines {
        let line = |first: usize, hash: u64| {
            let mut rest = Fraction(hash);
            (first + (rest.draw(self.half) & self.even), rest)
        };
        Lines([line(0, hash), line(self.half, hash.wrapping_mul(MULTIPLIER))])
    }

    /// Returns the location of a key's counters: two in two words if [`WindowCounters::is_together`], otherwise one
    /// in four words.
    #[inline(always)]
    pub(crate) fn rows<const N: usize, const PER: usize>(&self, lines: &Lines) -> Rows<N, PER> {
        const { assert!((N == 2 && PER == 2) || (N == 4 && PER == 1), "four counters on two lines") };
        let mut spots = [Spot { index: 0, shifts: [0; PER] }; N];
        for (spots, &(index, mut rest)) in spots.chunks_exact_mut(N / 2).zip(&lines.0) {
            let first = self.shift(rest.draw(self.counters));
            spots[0] = Spot { index, shifts: [first; PER] };
            if PER == 2 {
                // The second counter of the word, at a random distance after the first one, with wrap-around.
                let second = first + self.shift(1 + rest.draw(self.counters - 1));
                let end = self.shift(self.counters);
                spots[0].shifts[PER - 1] = if second < end { second } else { second - end };
            } else {
                let second = self.shift(rest.draw(self.counters));
                // Another place in the line. (In the models, a line may have only one place.)
                let apart = (1 + rest.draw(self.other_places)) & self.other_places;
                spots[N / 2 - 1] = Spot { index: index ^ (apart << self.odd), shifts: [second; PER] };
            }
        }
        Rows(spots)
    }

    /// Returns the number of bits below a counter of a word.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a word has 64 bits")]
    fn shift(&self, counter: usize) -> u32 {
        counter as u32 * self.count_bits
    }

    /// Prefetches a key's lines.
    #[inline(always)]
    pub(crate) fn approach(&self, lines: &Lines) {
        lines.0.iter().for_each(|&(index, _)| prefetch(self.words.as_ptr().wrapping_add(index)));
    }

    /// Prefetches a key's lines for writing.
    #[inline(always)]
    pub(crate) fn prefetch_to_write(&self, hint: PrefetchToWrite, lines: &Lines) {
        lines.0.iter().for_each(|&(index, _)| hint.prefetch(self.words.as_ptr().wrapping_add(index)));
    }

    #[inline(always)]
    fn word(&self, index: usize, window: u64) -> &AtomicU64 {
        &self.words[index | parity(window, self.odd)]
    }

    /// Returns a counter of a word. A rotation moves the counter down like a shift, and needs no check that the
    /// distance is below 64.
    #[inline(always)]
    fn count(&self, word: u64, shift: u32) -> u64 {
        word.rotate_right(shift) & self.most
    }

    /// Returns the smaller of a key's counters in a word.
    #[inline(always)]
    fn least(&self, word: u64, shifts: &[u32]) -> u64 {
        shifts.iter().fold(u64::MAX, |least, shift| least.min(self.count(word, *shift)))
    }

    /// Returns a word with the key's counters raised to at least `count`.
    #[inline(always)]
    fn raised(&self, mut word: u64, shifts: &[u32], count: u64) -> u64 {
        for shift in shifts {
            word += count.saturating_sub(self.count(word, *shift)) << shift;
        }
        word
    }

    /// Returns the word, or an empty word if it belongs to an older window.
    #[inline(always)]
    fn current(windows: &Windows, word: u64, window: u64) -> Result<u64, Late> {
        match windows.age(word, window)? {
            WordAge::Now => Ok(word),
            WordAge::Last | WordAge::Past => Ok(windows.empty(window)),
        }
    }

    /// Returns a key's estimate in this window: at least its count.
    pub(crate) fn estimate<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        window: u64,
    ) -> Result<u64, Late> {
        self.estimate_of(windows, rows, (window, WordAge::Now), window)
    }

    /// Returns a key's estimate in the window `of`. Words of that window have the age `age` in `window`.
    #[inline(always)]
    fn estimate_of<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        (of, age): (u64, WordAge),
        window: u64,
    ) -> Result<u64, Late> {
        let mut estimate = u64::MAX;
        for spot in &rows.0 {
            // Ordering: Acquire; pairs with the Release of the exchanges.
            let word = self.word(spot.index, of).load(Acquire);
            let counts = windows.age(word, window)? == age;
            estimate = estimate.min(if counts { self.least(word, &spot.shifts) } else { 0 });
        }
        Ok(estimate)
    }

    /// Reads a key's words in this window, for a charge.
    #[inline(always)]
    pub(crate) fn read<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        window: u64,
    ) -> Result<Read<'_, N, PER>, Late> {
        let words = rows.0.map(|spot| self.word(spot.index, window));
        let shifts = rows.0.map(|spot| spot.shifts);
        // Ordering: as in `estimate_of`.
        let seen = words.map(|word| word.load(Acquire));
        let (empty, payload) = (windows.empty(window), windows.payload_mask());
        // Checks all tags at once. If the window's tag is zero, a word that was never written may match it.
        let is_older = seen.iter().fold(0, |tags, word| tags | (word ^ empty)) > payload || empty == 0;
        if is_older {
            windows.check_older(seen, window)?;
        }
        let current = seen.map(|word| if word ^ empty <= payload { word } else { empty });
        let (mut counts, mut least) = ([[0; PER]; N], u64::MAX);
        for row in 0..N {
            for (counted, shift) in counts[row].iter_mut().zip(shifts[row]) {
                *counted = self.count(current[row], shift);
                least = least.min(*counted);
            }
        }
        Ok(Read { words, shifts, seen, current, counts, is_older, least })
    }

    /// Returns a key's estimate in the window before this one.
    #[inline(always)]
    pub(crate) fn last<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        window: u64,
    ) -> Result<u64, Late> {
        self.estimate_of(windows, rows, (window.wrapping_sub(1), WordAge::Last), window)
    }

    /// Raises each of a key's counters to at least `count`, word by word. It does not detect other charges, so it is
    /// never the step that admits a request.
    #[inline(never)]
    pub(crate) fn raise<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        (window, count): (u64, u64),
    ) -> Result<(), Late> {
        rows.0.iter().try_for_each(|spot| {
            self.raise_word(windows, self.word(spot.index, window), &spot.shifts, (window, count))
        })
    }

    /// Raises a key's counters to `count`, which is above its estimate, if its words are still as in `read`. See the
    /// module docs.
    #[inline(always)]
    pub(crate) fn charge<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        read: &Read<'_, N, PER>,
        (window, count): (u64, u64),
    ) -> Commit {
        if read.is_older {
            windows.begin(window);
        }
        let exchange = |row| self.exchange(read, row, count);
        // The exchanges are written out, so that the compiler keeps the arrays in registers.
        let is_done = exchange(0) && exchange(1) && (N == 2 || (exchange(2 % N) && exchange(3 % N)));
        if is_done { Commit::Done } else { Commit::Lost }
    }

    /// Exchanges one word so that the key's counters in it are at least `count`. Returns false if the word has
    /// changed since it was read.
    #[inline(always)]
    pub(super) fn exchange<const N: usize, const PER: usize>(
        &self,
        read: &Read<'_, N, PER>,
        row: usize,
        count: u64,
    ) -> bool {
        if PER == 1 && read.counts[row][0] >= count {
            return true;
        }
        let deltas = read.counts[row].iter().zip(read.shifts[row]);
        let delta: u64 =
            deltas.map(|(counted, shift)| count.saturating_sub(*counted).rotate_left(shift)).sum();
        let next = read.current[row] + delta;
        // Ordering: AcqRel. Release publishes what this thread read and exchanged before. Acquire receives what the
        // word's last writer published.
        delta == 0 || read.words[row].compare_exchange(read.seen[row], next, AcqRel, Acquire).is_ok()
    }

    /// Raises a key's counters in one word.
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
            // Ordering: as in `charge`.
            match word.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }

    /// Returns the probability that all counters of a key are at `count` or more in this window. It samples about
    /// `most` words.
    pub(crate) fn reached(&self, windows: &Windows, window: u64, count: u64, most: usize) -> f64 {
        let places = self.words.len() >> self.odd;
        let (mut reached, mut looked_at) = (0.0_f64, 0.0);
        for index in (0..places).step_by(places.div_ceil(most.max(1)).max(1)) {
            let word = self.word(index << self.odd, window).load(Acquire);
            let word = Self::current(windows, word, window).unwrap_or(0);
            for counter in 0..self.counters {
                let next = if self.is_together() { (counter + 1) % self.counters } else { counter };
                let shifts = [counter, next].map(|counter| self.shift(counter));
                reached += f64::from(u8::from(self.least(word, &shifts) >= count));
                looked_at += 1.0;
            }
        }
        // A key has two or four such words, and all of them must be at `count` or more.
        let words = if self.is_together() { 2 } else { 4 };
        (reached / looked_at).powi(words)
    }

    /// Resets all counters.
    pub(crate) fn clear(&self) {
        self.words.iter().for_each(Zeroed::clear);
    }
}

#[cfg(all(test, tollgate_loom))]
impl<const N: usize, const PER: usize> Rows<N, PER> {
    /// Returns the words and the location of the counters in them, for the models.
    pub(super) fn words(&self) -> impl Iterator<Item = (usize, [u32; PER])> {
        self.0.iter().map(|spot| (spot.index, spot.shifts))
    }
}

#[cfg(all(test, tollgate_loom))]
impl<const N: usize, const PER: usize> Read<'_, N, PER> {
    /// Returns the row that holds the estimate, for the models.
    pub(super) fn least_row(&self) -> usize {
        self.counts.iter().position(|counts| counts.contains(&self.least)).unwrap()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::collections::HashMap;

    use super::super::tag_bits;
    use super::*;
    use crate::sketch::hash::mix;

    const WINDOW_NS: u64 = 1_000_000_000;
    const NOW: u64 = 1_700_000_000;

    /// Evaluates the body with `$rows` bound to the location of a key's counters, in either form.
    macro_rules! with_rows {
        ($counters:expr, $hash:expr, $rows:ident => $body:expr) => {
            if $counters.is_together() {
                let $rows = $counters.rows::<2, 2>(&$counters.lines($hash));
                $body
            } else {
                let $rows = $counters.rows::<4, 1>(&$counters.lines($hash));
                $body
            }
        };
    }

    /// Counters and their windows; no thread is later than `NOW`.
    struct TestCounters {
        windows: Windows,
        counters: WindowCounters,
        largest: u64,
        last: bool,
    }

    impl TestCounters {
        fn new(bytes: usize, largest: u64, last: bool) -> Self {
            let windows = Windows::new(WINDOW_NS, tag_bits(WINDOW_NS), u64::MAX);
            let counters = WindowCounters::new(bytes, largest, last, &windows).unwrap();
            Self { windows, counters, largest, last }
        }

        /// Counters of each size, in both forms.
        fn all() -> impl Iterator<Item = Self> {
            let sizes = [0, 1, 3, 100, 127, 128, 1_023, 1_024, 4_095, 65_406, (1 << 33) - 1, (1 << 41) - 1];
            sizes.into_iter().flat_map(|largest| [false, true].map(|last| Self::new(4_096, largest, last)))
        }

        /// Adds to a key's count and returns the new count.
        fn charge(&self, hash: u64, (window, cost): (u64, u64)) -> Result<u64, Late> {
            let Self { windows, counters, .. } = self;
            with_rows!(counters, hash, rows => {
                let read = counters.read(windows, &rows, window)?;
                let at = (window, read.least + cost);
                assert_eq!(counters.charge(windows, &read, at), Commit::Done);
                Ok(at.1)
            })
        }

        fn estimate(&self, hash: u64, window: u64) -> Result<u64, Late> {
            let Self { windows, counters, .. } = self;
            with_rows!(counters, hash, rows => {
                counters.read(windows, &rows, window).map(|read| read.least)
            })
        }

        /// Returns a key's words, and the bit positions of its counters there.
        fn words(&self, hash: u64) -> Vec<(usize, Vec<u32>)> {
            with_rows!(self.counters, hash, rows => {
                rows.0.iter().map(|spot| (spot.index, spot.shifts.to_vec())).collect()
            })
        }
    }

    #[test]
    fn key_has_four_counters_in_two_lines() {
        for held in TestCounters::all() {
            let TestCounters { windows, counters, largest, last } = &held;
            assert!(counters.most() >= *largest && counters.most() / 2 <= (*largest).max(1));
            for hash in (0..2_000).map(mix).chain([0, u64::MAX]) {
                let words = held.words(hash);
                let lines = words.iter().map(|(index, _)| index / LINE);
                assert!(lines.clone().take(words.len() / 2).all(|line| line == words[0].0 / LINE));
                assert_eq!(lines.filter(|line| *line < counters.half / LINE).count(), words.len() / 2);
                let mut all: Vec<(usize, u32)> = Vec::new();
                for (index, shifts) in &words {
                    assert!(*index < counters.words.len() && (!last || index % 2 == 0), "a pair of words");
                    all.extend(shifts.iter().map(|shift| (*index, *shift)));
                }
                assert!(all.iter().all(|(_, shift)| shift + counters.count_bits <= windows.payload_bits()));
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), 4, "{largest}: four different counters");
            }
        }
    }

    /// Full counters do not overflow, and only the key's own counters change.
    #[test]
    fn full_counter_does_not_overflow_into_neighbours() {
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
    fn stale_charge_is_lost() {
        for largest in [100, 1 << 40] {
            let held = TestCounters::new(0, largest, false);
            let TestCounters { windows, counters, .. } = &held;
            with_rows!(counters, mix(5), rows => {
                let read = || counters.read(windows, &rows, NOW).unwrap();
                let (one, other) = (read(), read());
                assert_eq!(counters.charge(windows, &one, (NOW, 3)), Commit::Done);
                assert_eq!(counters.charge(windows, &other, (NOW, 2)), Commit::Lost);
                // The next window has begun in the meantime.
                let third = read();
                assert_eq!(held.charge(mix(5), (NOW + 1, 1)), Ok(1));
                assert_eq!(counters.charge(windows, &third, (NOW, 4)), Commit::Lost);
                assert_eq!(counters.read(windows, &rows, NOW).err(), Some(Late { window: NOW + 1 }));
            });
        }
    }

    // G21
    #[test]
    fn reached_share_matches_measured_share() {
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
            assert!(
                (share - reached(1)).abs() < 0.1,
                "measured {share}, computed {}: {}",
                reached(1),
                held.largest
            );
            assert!(reached(2) <= reached(1));
            assert!(held.counters.reached(&held.windows, NOW + 1, 1, 4_096) == 0.0, "a new window");
        }
    }
}
