//! Reading, raising and committing in one go, for who counts and does not decide.
//!
//! The protocol of [`super`], with every word loaded once and all of it in registers, and whatever is rare out of line.

use std::hint::select_unpredictable;

use super::super::{Late, Standing, Windows};
use super::{Counters, Spot};
use crate::sketch::mix;
use crate::store::prefetch::prefetch_to_write;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire};

/// Where a key's counters are: `PER` in each of `N` words.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Rows<const N: usize, const PER: usize> {
    indices: [usize; N],
    shifts: [[u32; PER]; N],
}

/// A window, and how its words look.
#[derive(Copy, Clone)]
struct Now {
    /// Without counts.
    empty: u64,
    /// The bits of counters and those that are left over.
    payload: u64,
}

impl Now {
    #[inline(always)]
    fn has(&self, word: u64) -> bool {
        word ^ self.empty <= self.payload
    }

    /// A word that is of this window or an older one, as it counts for this one.
    #[inline(always)]
    fn current(&self, word: u64) -> u64 {
        if self.has(word) { word } else { self.empty }
    }
}

impl Counters {
    /// A key's words, if it has two counters in each.
    #[inline(always)]
    pub(crate) fn two(&self, hash: u64) -> Rows<2, 2> {
        let (a, b) = (self.one_word(0, hash), self.one_word(self.lines, mix(hash)));
        Rows { indices: [a.index, b.index], shifts: [a.shifts, b.shifts] }
    }

    /// A key's words, if it has one counter in each.
    #[inline(always)]
    pub(crate) fn four(&self, hash: u64) -> Rows<4, 1> {
        let ((a, b), (c, d)) = (self.two_words(0, hash), self.two_words(self.lines, mix(hash)));
        Rows {
            indices: [a.index, b.index, c.index, d.index],
            shifts: [[a.shifts[0]], [b.shifts[0]], [c.shifts[0]], [d.shifts[0]]],
        }
    }

    /// Asks for a key's lines, to write them.
    #[inline(always)]
    pub(crate) fn approach_to_write<const N: usize, const PER: usize>(&self, rows: &Rows<N, PER>) {
        prefetch_to_write(&raw const self.words[rows.indices[0]]);
        prefetch_to_write(&raw const self.words[rows.indices[N / 2]]);
    }

    /// Counts `n` for the key of these words in this window, and returns its new estimate; `None` if another thread changed
    /// it first.
    #[inline(always)]
    pub(crate) fn add<const N: usize, const PER: usize>(
        &self,
        windows: &Windows,
        rows: &Rows<N, PER>,
        (window, n): (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<Option<u64>, Late> {
        let now = Now { empty: windows.empty(window), payload: u64::MAX >> windows.tag_bits };
        let most = self.most();
        let words: [&AtomicU64; N] = std::array::from_fn(|row| &self.words[rows.indices[row]]);
        let (mut seen, mut counts) = ([0; N], [[0; PER]; N]);
        let (mut least, mut at) = (u64::MAX, 0);
        for row in 0..N {
            // Ordering: Acquire; pairs with the Release of the exchanges below, and of raises and commits.
            seen[row] = words[row].load(Acquire);
            if !now.has(seen[row]) {
                older(windows, seen[row], window, latest)?;
            }
            let current = now.current(seen[row]);
            let mut count = u64::MAX;
            for (counted, shift) in counts[row].iter_mut().zip(rows.shifts[row]) {
                *counted = (current >> shift) & most;
                count = count.min(*counted);
            }
            let less = count < least;
            (least, at) = (select_unpredictable(less, count, least), select_unpredictable(less, row, at));
        }
        let count = least.saturating_add(n).min(most);
        if count == least {
            return Ok(Some(count));
        }
        let mut next = [0; N];
        for row in 0..N {
            next[row] = now.current(seen[row]);
            for (counted, shift) in counts[row].into_iter().zip(rows.shifts[row]) {
                next[row] += count.saturating_sub(counted) << shift;
            }
        }
        // All but the least, and that last.
        for step in 1..N {
            let row = (at + step) % N;
            // Ordering: AcqRel, as for raises and commits: what is raised comes before what is committed, for whoever sees that.
            if words[row].compare_exchange(seen[row], next[row], AcqRel, Acquire).is_err() {
                self.raise_again(windows, words[row], rows.shifts[row], (window, count), latest)?;
            }
        }
        let done = words[at % N].compare_exchange(seen[at % N], next[at % N], AcqRel, Acquire).is_ok();
        Ok(done.then_some(count))
    }

    /// Another thread was first.
    #[cold]
    fn raise_again<const PER: usize>(
        &self,
        windows: &Windows,
        word: &AtomicU64,
        shifts: [u32; PER],
        at: (u64, u64),
        latest: &impl Fn() -> u64,
    ) -> Result<(), Late> {
        self.raise_to(windows, word, &Spot { index: 0, shifts: [shifts[0], shifts[PER - 1]] }, at, latest)
    }
}

/// Whether a word that is not of this window is of an older one.
#[cold]
fn older(windows: &Windows, word: u64, window: u64, latest: &impl Fn() -> u64) -> Result<(), Late> {
    windows.standing(word, window, latest).map(|_: Standing| ())
}
