//! Theoretical arrival times (TATs) in a count-min sketch: four 16-bit cells for each key, and one 64-bit word for each
//! group of keys.
//!
//! ```text
//! cells of a key   [ 12 ] [ 40 ]   one line    each cell is a time, shared by several keys
//!                  [ 12 ] [ 95 ]   one line
//! end of its group [ 63 ]                      the latest time at which a key of the group has a debt
//! estimate = the smallest of the five = 12
//! ```
//! Each of the five values is at least the key's debt, so the estimate is never too low. A cell holds a *coarse*
//! state: a state shifted right and rounded up. Cells hold times, so they age without any work.
//!
//! *Cells wrap.* A 16-bit cell covers a few times the longest debt. If no thread writes a cell for that long, the old
//! value reads as a time in the future again. So each group of keys has an *end*: the latest time at which any of its
//! keys still has a debt, as a 64-bit state. Once the end has passed, no key of the group has a debt, whatever its
//! cells hold. Before that, no debt in the group lasts longer than the end.
//!
//! An end wraps too, but much later. 64 bits hold 584 years if a tick is a nanosecond or longer, and at least one year
//! for any quota. An end that no thread raises for half of that time reads as a time in the future. Then the cells
//! alone decide.
//!
//! *Charging: raise, then commit.* A charge works in these steps:
//!
//! 1. Read the four cells and the end. The smallest of the five values is the estimate.
//! 2. Raise each of the other four to the new state, if it is lower.
//! 3. Replace the smallest value by the new state with a compare-exchange, which expects exactly the value that was
//!    read. This step is the commit. If the value has changed, start again at step 1.
//!
//! So after the commit, all five values are at least the key's debt. Why two threads do not both commit from the same
//! estimate:
//!
//! - If both commit in the same word, one of them finds that the word has changed.
//! - If two words tie for the smallest value, the threads may commit in different words. Each thread raises the
//!   other's word before its own commit. So at least one of them finds its word raised. (`CountMin` has the proof.)
//!
//! A charge that starts again leaves the other values raised, which can only deny more. Two simpler schemes admit
//! twice, which the models show. The first exchanges the smallest value and then raises the others. The second raises
//! all values with an atomic maximum.
//!
//! *Recording.* A debt that is only recorded (for an evicted key) admits nothing, so it needs no commit. Each value
//! below the debt is raised to it. This is conservative update: only values that would be too low are changed.
//!
//! *Layout.* A key has two cache lines, one in each half of the sketch, and two cells in each line. This causes half
//! the cache misses of four rows, at nearly the same accuracy. (Four lines with one cell each were no better in
//! measurements of two floods.)
//!
//! # Source
//! Cormode and Muthukrishnan 2005 (count-min); Estan and Varghese 2002 (conservative update).

#[cfg(all(test, tollgate_loom))]
mod models;

use alloc::vec::Vec;

use crate::algorithm::compact::slot::{SlotStanding, standing};
use crate::algorithm::compact::{CompactState, Moment, TatVariant, TatWord, Verdict};
use crate::algorithm::pace::Pace;
use crate::base::check_time::Newest;
use crate::base::clock::Timestamp;
use crate::base::decision::{Decision, Outcome};
use crate::base::memory::{Array, Zeroed};
use crate::base::quota::{Quota, QuotaError};
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::base::sync::{AtomicU16, AtomicU64, fence};
use crate::sketch::hash::{mix, places, scale};

const BITS: u32 = u16::BITS;
/// The largest debt takes between 2^`HORIZON_BITS` coarse ticks and twice that number. Half the range of a cell is
/// then at least 4 horizons, and a thread may lag by that much. With fewer ticks, each eviction rounds a debt up by
/// more: 2^11 caused 2.7 times as many wrong denials when memory was short.
const HORIZON_BITS: u32 = 12;
/// The same for a standalone sketch. Fewer bits suffice there, because an interval is a whole number of ticks. They also
/// make cells wrap later. This matters more there: a compact store reads its sketch only while a debt is spilled.
const ALONE_HORIZON_BITS: u32 = 10;
/// The number of cells in a line of 64 bytes. In the models, it is the smallest number that keeps a key's cells
/// apart.
const LINE: usize = if cfg!(tollgate_loom) { 2 } else { 32 };
const DEPTH: usize = 4;
/// The row number after those of the cells: the end of the key's group.
const END: usize = DEPTH;
/// The value of a cell that was never written.
const UNTOUCHED: u16 = 0;
/// The value of an end that was never written.
const NO_END: u64 = 0;
/// The bytes of a standalone sketch per end.
const BYTES_FOR_AN_END: usize = 128;

/// Returns how far an end is ahead of a reference, or 0 if the end has passed.
#[inline]
pub(crate) const fn left(end: u64, reference: u64) -> u64 {
    let ahead = end.wrapping_sub(reference);
    if end == NO_END || ahead > u64::MAX / 2 { 0 } else { ahead }
}

/// Returns the end that is `ahead` of a reference.
#[inline]
pub(crate) const fn end(ahead: u64, reference: u64) -> u64 {
    let end = reference.wrapping_add(ahead);
    // Zero means "no end", so an end at zero moves by one tick.
    if end == NO_END { 1 } else { end }
}

/// The cells and the ends. The caller chooses their meaning: they hold states of one [`CompactState`] algorithm.
#[derive(Debug)]
pub(crate) struct Cells {
    cells: Array<AtomicU16>,
    /// For each group, the latest time at which any of its keys has a debt.
    ends: Array<AtomicU64>,
    /// The number of lines in each half.
    lines: usize,
    /// A coarse state is a state shifted right by this number of bits.
    shift: u32,
    /// The largest distance that a coarse state can be ahead.
    horizon: u64,
    /// The largest distance that a coarse state can be ahead of the newest time. The newest time may be out of date by
    /// the word's slack.
    slack_horizon: u64,
}

impl Cells {
    /// The bytes of one line in each half.
    pub(crate) const MIN_BYTES: usize = 2 * LINE * size_of::<u16>();

    /// Creates cells in at most `bytes` bytes (at least two lines), and `ends` ends, for a word's states.
    ///
    /// States without slack belong to windows. No normal window state is as far ahead as the horizon: it would belong
    /// to a future window. So a cell at this distance is from an earlier round of the cell's range.
    pub(crate) fn new<N: CompactState>(bytes: usize, ends: usize, word: &N, shift: u32) -> Option<Self> {
        let lines = (bytes / Self::MIN_BYTES).max(1);
        // The additions of 3 cover three roundings: the state is rounded up, the reference is rounded down, and a
        // cell steps past zero.
        let (horizon, slack) = (word.horizon(), word.slack());
        let (horizon, slack_horizon) = if slack == 0 {
            ((horizon >> shift) - 1, (horizon >> shift) - 1)
        } else {
            ((horizon >> shift) + 3, ((horizon + slack) >> shift) + 3)
        };
        let cells = Array::zeroed(2 * lines * LINE)?;
        let ends = Array::zeroed(ends.max(1))?;
        Some(Self { cells, ends, lines, shift, horizon, slack_horizon })
    }

    /// Returns the shift at which the longest horizon takes 2^12 to 2^13 coarse ticks.
    pub(crate) fn shift_for(horizon: u64) -> u32 {
        (u64::BITS - horizon.leading_zeros()).saturating_sub(HORIZON_BITS + 1)
    }

    /// Returns half the range of a cell, in states.
    pub(crate) fn half_range(shift: u32) -> u64 {
        1 << (BITS - 1 + shift)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.cells.len() * size_of::<AtomicU16>() + self.ends.len() * size_of::<AtomicU64>()
    }

    /// Returns the number of cells and ends, which is the largest length of an image.
    pub(crate) fn len(&self) -> usize {
        self.cells.len() + self.ends.len()
    }

    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// Returns the largest distance that a state read from a cell can be ahead.
    pub(crate) fn horizon(&self) -> u64 {
        (self.horizon + 1) << self.shift
    }

    /// Returns the indices of a key's cells; all are different.
    #[inline]
    fn places(&self, hash: u64) -> [usize; DEPTH] {
        places::<LINE, 5>(hash, self.lines)
    }

    /// Returns how many coarse ticks a cell is ahead of a reference. `latest` returns the reference of the newest
    /// time. It is called only for a cell that seems too far ahead, and after the cell was loaded.
    #[inline]
    fn ahead(&self, cell: u16, reference: u64, latest: &impl Fn() -> u64) -> u64 {
        // The cell was never written. Without this check, all such cells would read as debts at the same time, whenever
        // the reference wraps.
        if cell == UNTOUCHED {
            return 0;
        }
        match standing::<BITS>(u64::from(cell), reference >> self.shift, self.horizon) {
            SlotStanding::Idle => 0,
            SlotStanding::Ahead(ahead) => ahead,
            // A cell that is further ahead of the newest time than any debt is from an earlier round.
            SlotStanding::Unsure(ahead) => {
                // Ordering: Acquire; pairs with the exchange that wrote the cell. The writer raised the newest time
                // before that exchange, so `latest` returns at least the writer's time.
                fence(Acquire);
                match standing::<BITS>(u64::from(cell), latest() >> self.shift, self.slack_horizon) {
                    SlotStanding::Unsure(_) => 0,
                    SlotStanding::Idle | SlotStanding::Ahead(_) => ahead,
                }
            }
        }
    }

    /// Converts coarse ticks ahead of a reference to states ahead of it.
    #[inline]
    fn fine(&self, coarse: u64, reference: u64) -> u64 {
        if coarse == 0 {
            return 0;
        }
        (((reference >> self.shift).wrapping_add(coarse)) << self.shift).wrapping_sub(reference)
    }

    /// Returns the smallest number of coarse ticks that is not below `ahead` states.
    #[inline]
    fn coarse(&self, ahead: u64, reference: u64) -> u64 {
        let round = (1_u64 << self.shift) - 1;
        // The sum is below 2^40 + 2^24, including the low bits of the reference.
        ((reference & round) + ahead + round) >> self.shift
    }

    /// Returns the end of a key's group.
    #[inline]
    fn end(&self, hash: u64) -> &AtomicU64 {
        // The rotation selects other bits of the hash than those that choose lines and cells.
        &self.ends[scale(hash.rotate_left(u32::BITS), self.ends.len())]
    }

    /// Returns an upper bound of how far a key is ahead of `reference`.
    #[inline]
    pub(crate) fn estimate(&self, hash: u64, reference: u64, latest: &impl Fn() -> u64) -> u64 {
        // Ordering: Acquire, here and below; pairs with the Release of raises and commits.
        let longest = left(self.end(hash).load(Acquire), reference);
        if longest == 0 {
            return 0;
        }
        let mut least = u64::MAX;
        for place in self.places(hash) {
            least = least.min(self.ahead(self.cells[place].load(Acquire), reference, latest));
        }
        self.fine(least, reference).min(longest)
    }

    /// Returns the value of a cell that is `coarse` ticks ahead of a reference.
    #[inline]
    fn cell(&self, coarse: u64, reference: u64) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "modulo 2^16 is what a cell is")]
        let cell = (reference >> self.shift).wrapping_add(coarse) as u16;
        // `UNTOUCHED` means that the cell was never written, so a time of this value moves by one tick.
        if cell == UNTOUCHED { 1 } else { cell }
    }

    /// Raises the end of a key's group to at least `ahead`.
    fn raise_end(&self, hash: u64, ahead: u64, reference: u64, latest: &impl Fn() -> u64) {
        let word = self.end(hash);
        let mut seen = word.load(Acquire);
        loop {
            let longest = left(seen, reference);
            let next =
                if longest < ahead { end(ahead, reference) } else { self.credible(seen, longest, latest) };
            if next == seen {
                return;
            }
            // Ordering: as in `raise_cell`.
            match word.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// Returns the end `seen`, which is `longest` ahead of the reference. If no debt can last that long, a clock was
    /// wrong when the end was written. Then the method returns the latest end that a debt can have.
    fn credible(&self, seen: u64, longest: u64, latest: &impl Fn() -> u64) -> u64 {
        let far = Self::half_range(self.shift);
        if longest <= far {
            return seen;
        }
        // Ordering: Acquire, as in `ahead`.
        fence(Acquire);
        let latest = latest();
        let most = (self.slack_horizon + 1) << self.shift;
        if left(seen, latest) > far { end(most, latest) } else { seen }
    }

    /// Raises one cell to at least `coarse` ticks ahead.
    fn raise_cell(&self, place: usize, coarse: u64, reference: u64, latest: &impl Fn() -> u64) {
        let cell = &self.cells[place];
        // Ordering: Acquire, here and for a failed exchange; pairs with the Release below. If another thread has raised
        // the cell high enough, this thread's commit comes after that thread's earlier writes.
        let mut seen = cell.load(Acquire);
        while self.ahead(seen, reference, latest) < coarse {
            // Ordering: AcqRel. Release: a thread that reads this value also sees this thread's earlier writes: its
            // raises, and the newest time (see `ahead`). Acquire: the same for the value that the exchange replaces.
            match cell.compare_exchange(seen, self.cell(coarse, reference), AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// Records that a key is `ahead` of `reference`.
    pub(crate) fn raise(&self, hash: u64, ahead: u64, reference: u64, latest: &impl Fn() -> u64) {
        self.raise_end(hash, ahead, reference, latest);
        let coarse = self.coarse(ahead, reference);
        for place in self.places(hash) {
            self.raise_cell(place, coarse, reference, latest);
        }
    }

    /// Decides on a request from the estimate of its key and charges the request if it is admitted. The limit is
    /// strict, by raise-then-commit.
    ///
    /// Lock-free: it retries only if a write of another thread took effect. It calls `is_near` before it writes
    /// anything, to announce the time. If `is_near` returns false, the time is too far behind the newest time, and the
    /// method returns `None`.
    pub(crate) fn charge<N: CompactState>(
        &self,
        word: &N,
        hash: u64,
        at: Moment,
        latest: &impl Fn() -> u64,
        is_near: &impl Fn() -> bool,
        cost: u64,
    ) -> Option<Decision> {
        let (places, reference) = (self.places(hash), at.reference);
        loop {
            // Ordering: Acquire, here and below; pairs with the Release of raises and commits.
            let seen_end = self.end(hash).load(Acquire);
            let mut least = (u64::MAX, 0, 0);
            for (row, &place) in places.iter().enumerate() {
                let cell = self.cells[place].load(Acquire);
                let ahead = self.ahead(cell, reference, latest);
                if ahead < least.0 {
                    least = (ahead, row, cell);
                }
            }
            let (ahead, row, cell) = least;
            let (ahead, longest) = (self.fine(ahead, reference), left(seen_end, reference));
            let (ahead, row) = if longest < ahead { (longest, END) } else { (ahead, row) };
            let after = match word.judge(ahead, at.now_ns, cost) {
                Verdict::Deny => return Some(word.uncharged(Outcome::Denied, ahead, at, cost)),
                Verdict::Never => return Some(word.uncharged(Outcome::Never, ahead, at, cost)),
                Verdict::Admit(after) if after == ahead => {
                    return Some(word.uncharged(Outcome::Allowed, ahead, at, cost));
                }
                Verdict::Admit(_) if !is_near() => return None,
                Verdict::Admit(after) => after,
            };
            if row != END {
                self.raise_end(hash, after, reference, latest);
            }
            let coarse = self.coarse(after, reference);
            for (other, &place) in places.iter().enumerate() {
                if other != row {
                    self.raise_cell(place, coarse, reference, latest);
                }
            }
            // Ordering: AcqRel. A thread that sees the commit also sees the raises before it.
            let is_done = if row == END {
                let next = end(after, reference);
                self.end(hash).compare_exchange(seen_end, next, AcqRel, Relaxed).is_ok()
            } else {
                let next = self.cell(coarse, reference);
                self.cells[places[row]].compare_exchange(cell, next, AcqRel, Relaxed).is_ok()
            };
            if is_done {
                return Some(word.decision(Outcome::Allowed, after, at, cost));
            }
        }
    }

    /// Resets all cells and ends.
    pub(crate) fn clear(&self) {
        self.cells.iter().for_each(Zeroed::clear);
        self.ends.iter().for_each(Zeroed::clear);
    }

    /// Returns the cells and the ends that are ahead of a reference.
    pub(crate) fn image(&self, reference: u64, latest: &impl Fn() -> u64) -> CellsImage {
        let cells = (0..).zip(self.cells.iter()).filter_map(|(index, cell)| {
            let ahead = self.ahead(cell.load(Acquire), reference, latest);
            // At most the horizon, even if the cell was written after the image began.
            #[expect(
                clippy::cast_possible_truncation,
                reason = "at most the horizon with its slack, below 2^15"
            )]
            let ahead = ahead.min(self.slack_horizon) as u16;
            (ahead > 0).then_some((index, ahead))
        });
        let cells = cells.collect();
        let ends = (0..).zip(self.ends.iter()).filter_map(|(index, end)| {
            // An end is further ahead only if a clock was wrong.
            let longest = left(end.load(Acquire), reference).min(self.longest());
            (longest > 0).then_some((index, longest))
        });
        CellsImage { cells, ends: ends.collect() }
    }

    /// Returns whether an image fits these cells.
    pub(crate) fn accepts(&self, image: &CellsImage) -> bool {
        let CellsImage { cells, ends } = image;
        cells.is_sorted_by(|a, b| a.0 < b.0)
            && cells.iter().all(|&(index, ahead)| {
                index < self.cells.len() as u64 && (1..=self.slack_horizon).contains(&u64::from(ahead))
            })
            && ends.is_sorted_by(|a, b| a.0 < b.0)
            && ends.iter().all(|&(index, ahead)| {
                index < self.ends.len() as u64 && (1..=self.longest()).contains(&ahead)
            })
    }

    /// Returns how far an end can be ahead, in states.
    fn longest(&self) -> u64 {
        self.slack_horizon << self.shift
    }

    /// Writes an image that was taken at the reference `then`, as of the reference `now`. It leaves out the debts that
    /// have been paid since. If `passed` is false, no time has passed, and `now` stands for the same moment as `then`.
    pub(crate) fn replace(&self, image: &CellsImage, then: u64, now: u64, passed: bool) {
        // A cell ends at a whole coarse tick. If `now` is later within its tick than `then` was, one tick more is needed, so
        // that no debt becomes shorter.
        let within = |reference: u64| reference & ((1 << self.shift) - 1);
        let more = u64::from(!passed && within(now) > within(then));
        let (coarse, fine) = match passed {
            true => ((now >> self.shift).wrapping_sub(then >> self.shift), now.wrapping_sub(then)),
            false => (0, 0),
        };
        #[expect(clippy::cast_possible_truncation, reason = "below the number of both (`accepts`)")]
        let place = |index: u64| index as usize;
        for &(index, ahead) in &image.cells {
            if let Some(left @ 1..) = u64::from(ahead).checked_sub(coarse) {
                let left = (left + more).min(self.slack_horizon);
                self.cells[place(index)].store(self.cell(left, now), Release);
            }
        }
        for &(index, ahead) in &image.ends {
            if let Some(left @ 1..) = ahead.checked_sub(fine) {
                self.ends[place(index)].store(end(left, now), Release);
            }
        }
    }
}

/// The cells and the ends that are ahead at one time, in ascending order of their indices.
#[derive(Debug, Default)]
pub(crate) struct CellsImage {
    /// Each with its number of coarse ticks.
    pub(crate) cells: Vec<(u64, u16)>,
    /// Each with its number of states. An end is the exact debt of the key that owes longest in a group, so that key is not
    /// charged for the coarse ticks of its cells.
    pub(crate) ends: Vec<(u64, u64)>,
}

/// GCRA for any number of keys in constant memory and without slots; keys share 16-bit cells, four for each key.
///
/// The sketch never admits more than GCRA with a clock of the same ticks, in any interleaving of threads. Keys that
/// share cells may be denied too early, and more often with more busy keys. For example, with one cell for every two
/// busy keys, each with a debt of few units, about one conforming request in a thousand is denied wrongly. The
/// [`Compact`](crate::Compact) store has such a sketch behind its slots. Prefer that store: it is more accurate in all
/// memory sizes except the smallest.
///
/// If no request writes a cell for the time of 64 bursts, the cell wraps: its old debt reads as a new one. A key is
/// denied because of this only while another key of its group has a debt, and for no longer than that debt lasts.
/// There is one group for each 128 bytes. A key that is alone in its group is never denied wrongly.
///
/// The sketch counts time in ticks of about `interval × burst / 1024`. The emission interval is a whole number of
/// ticks. The sketch decides each request as of the tick that contains the request's time.
///
/// # Examples
/// ```
/// use tollgate::{Quota, Timestamp};
/// use tollgate::sketch::TatSketch;
///
/// let sketch = TatSketch::try_new(Quota::per_minute(2), 64 * 1024)?;
/// let hash = 0x9E37_79B9_7F4A_7C15; // the hash of a key, from a keyed hasher
/// let now = Timestamp::from_secs(1);
/// assert!(sketch.check_at(hash, 2, now).is_allowed());
/// assert!(sketch.check_at(hash, 1, now).is_denied());
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Debug)]
pub struct TatSketch {
    cells: Cells,
    word: TatWord,
    newest: Newest,
}

impl TatSketch {
    /// Creates a sketch for this quota in about `bytes` bytes; the minimum is 136.
    ///
    /// # Errors
    /// If the burst is above 1,024. If half the range of a cell (32 bursts) is shorter than a second. If the memory
    /// cannot be allocated.
    pub fn try_new(quota: Quota, bytes: usize) -> Result<Self, QuotaError> {
        let word = TatWord::coarse(
            "TAT sketch",
            Pace::<false>::new(&quota).rate(),
            ALONE_HORIZON_BITS,
            TatVariant::Meter,
        )?;
        if word.span_ns(Cells::half_range(0)) < 1_000_000_000 {
            return Err(crate::base::quota::Reason::SpillRange.into());
        }
        let ends = (bytes / BYTES_FOR_AN_END).max(1);
        let cells = Cells::new(bytes.saturating_sub(ends * size_of::<AtomicU64>()), ends, &word, 0);
        // The allowed lag is a quarter of a cell's range. (In the tables, it is a quarter of a word's range.)
        let (slack_ns, lag_ns) = (word.span_ns(word.slack()), word.span_ns(Cells::half_range(0) / 2));
        let newest = Newest::new(slack_ns, lag_ns, word.span_ns(word.horizon()).max(1_000_000_000));
        let cells =
            cells.ok_or(QuotaError::from(crate::base::quota::Reason::Memory { bytes: bytes as u64 }))?;
        Ok(Self { cells, word, newest })
    }

    /// Checks `cost` units for the key with this hash, at a time that the caller passes. It charges all of the units
    /// or none.
    ///
    /// `hash` must come from a keyed hasher of 64-bit quality, because the sketch knows nothing else about the key.
    ///
    /// # Complexity
    /// O(1): three cache lines; five exchanges if the request is admitted. Lock-free; a denial writes nothing.
    pub fn check_at(&self, hash: u64, cost: u64, now: Timestamp) -> Decision {
        let mut now_ns = now.as_nanos();
        loop {
            // The time is too far behind the newest time, so the sketch could not distinguish debts from wrapped cells.
            // It decides as of a later time.
            if now_ns < self.newest.low() {
                now_ns = self.newest.as_of(now_ns);
            }
            let latest = || self.word.reference(self.newest.newest().max(now_ns));
            // The charge calls this before it writes anything, and after it has loaded the cells.
            let is_near = || {
                self.newest.raise(now_ns, |now_ns| now_ns);
                now_ns >= self.newest.low()
            };
            let at = self.word.moment(now_ns);
            if let Some(decision) = self.cells.charge(&self.word, mix(hash), at, &latest, &is_near, cost) {
                return decision;
            }
        }
    }

    /// Returns the size of the cells and ends in bytes.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.cells.bytes()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::compact::ticks::{Interval, UnitRate};

    const NOW: u64 = 1 << 50;
    const HORIZON: u64 = 1_000;
    /// Further ahead than any debt, and more than half the range of a cell.
    const FAR: u64 = 100_000;

    /// All keys are in one group.
    fn cells() -> Cells {
        let rate = UnitRate { interval: Interval { num: 1, den: 1 }, burst: HORIZON };
        let word = TatWord::with_ticks("test", rate, 1, TatVariant::Meter).unwrap();
        Cells::new(1 << 10, 1, &word, 0).unwrap()
    }

    #[test]
    fn end_is_ahead_until_it_passes() {
        for reference in [0, 1, NOW, u64::MAX / 2, u64::MAX - 5, u64::MAX] {
            assert_eq!(left(NO_END, reference), 0, "an end that was never written");
            for ahead in [1, 2, 6, HORIZON] {
                let end = end(ahead, reference);
                let put_off = u64::from(reference.wrapping_add(ahead) == NO_END);
                assert_eq!(left(end, reference), ahead + put_off, "{ahead} from {reference}");
                for later in [ahead + put_off, HORIZON + 1, u64::MAX / 2] {
                    assert_eq!(
                        left(end, reference.wrapping_add(later)),
                        0,
                        "{ahead} from {reference}, {later} later"
                    );
                }
            }
        }
    }

    #[test]
    fn wrapped_cell_adds_no_debt() {
        let cells = cells();
        cells.raise(mix(1), HORIZON, NOW, &|| NOW);
        for round in 1..5 {
            let now = NOW + round * (1 << BITS);
            assert_eq!(cells.estimate(mix(1), now, &|| now), 0, "the debt was paid {round} rounds ago");
            cells.raise(mix(1), 7, now, &|| now);
            assert_eq!(cells.estimate(mix(1), now, &|| now), 7, "{round}");
        }
    }

    #[test]
    fn wrong_end_is_lowered_to_the_longest_debt() {
        let cells = cells();
        cells.raise(mix(1), HORIZON, NOW + FAR, &|| NOW + FAR);
        cells.raise(mix(2), HORIZON, NOW, &|| NOW);
        assert_eq!(cells.estimate(mix(2), NOW, &|| NOW), HORIZON);
        // The longest possible debt is paid by then.
        assert_eq!(cells.estimate(mix(1), NOW + 3 * HORIZON, &|| NOW + 3 * HORIZON), 0);
        assert_eq!(left(cells.end(0).load(Acquire), NOW + 3 * HORIZON), 0);
    }

    #[test]
    fn lagging_thread_lowers_no_end() {
        let cells = cells();
        cells.raise(mix(1), HORIZON, NOW + FAR, &|| NOW + FAR);
        cells.raise(mix(2), 5, NOW, &|| NOW + FAR);
        assert_eq!(cells.estimate(mix(1), NOW + FAR, &|| NOW + FAR), HORIZON, "the debt of key 1 is kept");
    }
}
