//! Theoretical arrival times in a count-min sketch: four cells of sixteen bits for a key, and one word of its group.
//!
//! A key's estimate is the least of these five, each of which is at least what the key owes. Cells hold *coarse*
//! states: a state shifted right, rounded up. As they are times, they age by themselves.
//!
//! *Cells wrap.* Sixteen bits hold a few horizons' time. A cell that no thread writes for that long reads as ahead again. So
//! each group of keys has an *end*: the latest time until which any of its keys owes, as a state of 64 bits. An end does
//! not wrap: once it has passed, no key of the group owes anything, whatever its cells hold. Until then no key of the group
//! owes for longer than the end. (64 bits hold 584 years where a tick is a nanosecond or longer, and at least one year for
//! any quota. An end that no thread raises for half of that reads as far ahead; then the cells alone decide.)
//!
//! *Charging: raise, then commit.* All others of the five are first raised to what the admission leads to; then the least
//! one is exchanged for it, from exactly the value that the estimate was; if it changed, all begins again. So at the
//! moment of the exchange all five hold what the key owes, and of two threads that saw the same estimate one finds
//! its word changed: raised by the other, if it was another of those that tied. (Exchanging the least one first, or
//! raising all of them by a maximum, admits twice: see the models.) A charge that has to begin again leaves the others
//! raised, against the clients.
//!
//! *Raising.* A debt that is only recorded, and admits nothing, needs no commit: cells below it are raised to it. With
//! estimates that are a least value this is conservative update: only the cells that would be too low are touched.
//!
//! *Layout.* Two cache lines for a key, each in its own half of the sketch, and two cells in each: half the misses of
//! four rows, at nearly their accuracy (four lines of one cell were no better when measured, in two floods).
//!
//! # Source
//! Cormode and Muthukrishnan 2005 (count-min); Estan and Varghese 2002 (conservative update).

#[cfg(all(test, tollgate_loom))]
mod models;

use alloc::vec::Vec;

use crate::algorithm::compact::slot::{SlotStanding, standing};
use crate::algorithm::compact::{CompactState, TatVariant, TatWord, Verdict};
use crate::base::check_time::Newest;
use crate::base::clock::Timestamp;
use crate::base::decision::{Decision, Outcome};
use crate::base::memory::{Array, Zeroed};
use crate::base::quota::{Quota, QuotaError};
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::base::sync::{AtomicU16, AtomicU64, fence};
use crate::sketch::hash::{mix, places, scale};

const BITS: u32 = u16::BITS;
/// The furthest that a state can be ahead takes 2^this coarse ticks, or up to twice as many: half the range of a cell is
/// then 4 horizons or more, which a thread may lag by. Fewer ticks round debts up by more, each time that a key is
/// evicted: 2^11 gave 2.7 times the wrong denials where memory is tight.
const HORIZON_BITS: u32 = 12;
/// As few in a sketch on its own, where units are whole ticks and nobody turns away a key whose cells came round.
const ALONE_HORIZON_BITS: u32 = 10;
/// Cells in a line of 64 bytes; in the models, as few as keep a key's cells apart.
const LINE: usize = if cfg!(tollgate_loom) { 2 } else { 32 };
const DEPTH: usize = 4;
/// The row after the cells': the end of the key's group.
const END: usize = DEPTH;
/// A cell that was never written.
const UNTOUCHED: u16 = 0;
/// An end that was never written.
const NO_END: u64 = 0;
/// Bytes of a standalone sketch for each end.
const BYTES_FOR_AN_END: usize = 128;

/// How far an end is ahead of a reference; none if it has passed.
#[inline]
pub(crate) const fn left(end: u64, reference: u64) -> u64 {
    let ahead = end.wrapping_sub(reference);
    if end == NO_END || ahead > u64::MAX / 2 { 0 } else { ahead }
}

/// The end that is `ahead` of a reference.
#[inline]
pub(crate) const fn end(ahead: u64, reference: u64) -> u64 {
    let end = reference.wrapping_add(ahead);
    // Zero means that there is none, so an end at zero moves by a tick.
    if end == NO_END { 1 } else { end }
}

/// The cells. What is kept in them is up to the caller: states of one [`CompactState`] algorithm.
#[derive(Debug)]
pub(crate) struct Cells {
    cells: Array<AtomicU16>,
    /// Until when any key of each group owes.
    ends: Array<AtomicU64>,
    /// Lines in each half.
    lines: usize,
    /// A coarse state is a state shifted by this.
    shift: u32,
    /// How far a coarse state can be ahead.
    horizon: u64,
    /// How far one can be ahead of the newest time, which may be out of date by the word's slack.
    slack_horizon: u64,
}

impl Cells {
    /// A line in each half.
    pub(crate) const LEAST_BYTES: usize = 2 * LINE * size_of::<u16>();

    /// Cells in at most `bytes` bytes (at least two lines), and ends, for a word's states.
    ///
    /// States without slack are those of windows. One as far ahead as the horizon would be of a window that has not come, with
    /// little used in it; a cell that says so is of an earlier round.
    pub(crate) fn new<N: CompactState>(bytes: usize, ends: usize, word: &N, shift: u32) -> Option<Self> {
        let lines = (bytes / Self::LEAST_BYTES).max(1);
        // Rounded up by the shift, by the reference's own being rounded down, and past zero.
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

    /// The shift at which the longest horizon takes 2^12 to 2^13 coarse ticks.
    pub(crate) fn shift_for(horizon: u64) -> u32 {
        (u64::BITS - horizon.leading_zeros()).saturating_sub(HORIZON_BITS + 1)
    }

    /// States in half the range of a cell.
    pub(crate) fn half_range(shift: u32) -> u64 {
        1 << (BITS - 1 + shift)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.cells.len() * size_of::<AtomicU16>() + self.ends.len() * size_of::<AtomicU64>()
    }

    /// Cells and ends: what an image can hold.
    pub(crate) fn len(&self) -> usize {
        self.cells.len() + self.ends.len()
    }

    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// How far ahead any state can be that is read from a cell.
    pub(crate) fn horizon(&self) -> u64 {
        (self.horizon + 1) << self.shift
    }

    /// The places of a key's cells; all different.
    #[inline]
    fn places(&self, hash: u64) -> [usize; DEPTH] {
        places::<LINE, 5>(hash, self.lines)
    }

    /// How many coarse ticks a cell is ahead of a reference. `latest` says the reference of the newest time; it is asked only
    /// about a cell that seems too far ahead, which has been loaded by then.
    #[inline]
    fn ahead(&self, cell: u16, reference: u64, latest: &impl Fn() -> u64) -> u64 {
        // Never written; else all such cells would come round together.
        if cell == UNTOUCHED {
            return 0;
        }
        match standing::<BITS>(u64::from(cell), reference >> self.shift, self.horizon) {
            SlotStanding::Idle => 0,
            SlotStanding::Ahead(ahead) => ahead,
            // Further ahead of the newest time than any debt, the cell is of an earlier round.
            SlotStanding::Unsure(ahead) => {
                // Ordering: Acquire; pairs with the exchange that wrote the cell: its writer raised the newest time before.
                fence(Acquire);
                match standing::<BITS>(u64::from(cell), latest() >> self.shift, self.slack_horizon) {
                    SlotStanding::Unsure(_) => 0,
                    SlotStanding::Idle | SlotStanding::Ahead(_) => ahead,
                }
            }
        }
    }

    /// A coarse number of ticks ahead of a reference, as states ahead of it.
    #[inline]
    fn fine(&self, coarse: u64, reference: u64) -> u64 {
        if coarse == 0 {
            return 0;
        }
        (((reference >> self.shift).wrapping_add(coarse)) << self.shift).wrapping_sub(reference)
    }

    /// The least coarse number of ticks that is not below `ahead` states.
    #[inline]
    fn coarse(&self, ahead: u64, reference: u64) -> u64 {
        let round = (1_u64 << self.shift) - 1;
        // Below 2^40 + 2^24 with the low bits of the reference.
        ((reference & round) + ahead + round) >> self.shift
    }

    /// The end of a key's group.
    #[inline]
    fn end(&self, hash: u64) -> &AtomicU64 {
        // By other bits than those that choose lines and cells.
        &self.ends[scale(hash.rotate_left(u32::BITS), self.ends.len())]
    }

    /// At most how far a key is ahead of `reference`; never less than it is.
    #[inline]
    pub(crate) fn estimate(&self, hash: u64, reference: u64, latest: &impl Fn() -> u64) -> u64 {
        // Ordering: Acquire, here and below; pairs with the raise of a debt whose key has been seen to have lost its slot.
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

    /// The cell's value that is `coarse` ticks ahead of a reference.
    #[inline]
    fn cell(&self, coarse: u64, reference: u64) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "modulo 2^16 is what a cell is")]
        let cell = (reference >> self.shift).wrapping_add(coarse) as u16;
        // The one time that means something else is put off by a tick.
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

    /// An end that is `longest` ahead; or, if no debt lasts that long (a clock was wrong when it was written), the latest end
    /// that a debt can have.
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
        // Ordering: Acquire, here and of the exchange that fails: no commit is made from a load that another's commit led to.
        let mut seen = cell.load(Acquire);
        while self.ahead(seen, reference, latest) < coarse {
            // Ordering: Release: who sees this debt, and then the commit or the slot that it was written for, is in
            // order; AcqRel for what the value replaced brought along.
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

    /// Decides on a key by its estimate, and charges it if it is admitted: strict, by raise-then-commit.
    ///
    /// Lock-free: begins again only if another thread's write took effect. `is_near` is asked before anything is written;
    /// `None` if it says no: the time is too far behind.
    pub(crate) fn charge<N: CompactState>(
        &self,
        word: &N,
        hash: u64,
        (now_ns, reference): (u64, u64),
        latest: &impl Fn() -> u64,
        is_near: &impl Fn() -> bool,
        cost: u64,
    ) -> Option<Decision> {
        let places = self.places(hash);
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
            let at = (now_ns, reference);
            let after = match word.judge(ahead, now_ns, cost) {
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
            // Ordering: AcqRel: the raises come before it for whoever sees it.
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

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.cells.iter().for_each(Zeroed::clear);
        self.ends.iter().for_each(Zeroed::clear);
    }

    /// The cells, and after them the ends, that are ahead of a reference, and how many coarse ticks.
    pub(crate) fn image(&self, reference: u64, latest: &impl Fn() -> u64) -> Vec<(u64, u16)> {
        let cells = self.cells.iter().map(|cell| self.ahead(cell.load(Acquire), reference, latest));
        let ends = self.ends.iter().map(|end| match left(end.load(Acquire), reference) {
            0 => 0,
            // Further only after a clock was wrong.
            longest => self.coarse(longest.min(self.slack_horizon << self.shift), reference),
        });
        (0..)
            .zip(cells.chain(ends))
            .filter_map(|(index, ahead)| {
                // At most the horizon, if it was written since the image began.
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "at most the horizon with its slack, below 2^15"
                )]
                let ahead = ahead.min(self.slack_horizon) as u16;
                (ahead > 0).then_some((index, ahead))
            })
            .collect()
    }

    /// Whether an image could be one of these cells.
    pub(crate) fn accepts(&self, image: &[(u64, u16)]) -> bool {
        image.is_sorted_by(|a, b| a.0 < b.0)
            && image.iter().all(|&(index, ahead)| {
                index < self.len() as u64 && (1..=self.slack_horizon).contains(&u64::from(ahead))
            })
    }

    /// Writes an image of `then` at `now`, of which what is paid by now is left out. If no time has `passed`,
    /// `now` is where `then` was.
    pub(crate) fn replace(&self, image: &[(u64, u16)], then: u64, now: u64, passed: bool) {
        let passed = if passed { (now >> self.shift).wrapping_sub(then >> self.shift) } else { 0 };
        for &(index, ahead) in image {
            if let Some(left @ 1..) = u64::from(ahead).checked_sub(passed) {
                #[expect(clippy::cast_possible_truncation, reason = "below the number of both (`accepts`)")]
                let index = index as usize;
                match self.cells.get(index) {
                    Some(cell) => cell.store(self.cell(left, now), Release),
                    None => {
                        let end = end(self.fine(left, now), now);
                        self.ends[index - self.cells.len()].store(end, Release);
                    }
                }
            }
        }
    }
}

/// GCRA for any number of keys in constant memory and without slots: four 16-bit cells for each key, shared.
///
/// Never admits more than GCRA would by a clock of its ticks, under any interleaving; keys that share cells may be denied early, the more of
/// them are busy: about one deserving request in a thousand when a cell is there for two busy keys of few units. The
/// [`Compact`](crate::Compact) store, which has one of these behind its slots, is better in all but
/// the smallest memories.
///
/// A cell that no request writes for 64 bursts' time wraps: it reads as if its old debt were new. This denies a key only
/// while another key of its group owes something, and for no longer than that debt lasts. There is one group for each
/// 128 bytes; a key that is alone in its group is never denied wrongly.
///
/// Time is counted in ticks of about `interval × burst / 1024` (an interval is a whole number of them), and each request
/// is decided as of the tick that its time lies in.
///
/// # Examples
/// ```
/// use tollgate::{Quota, Timestamp};
/// use tollgate::sketch::TatSketch;
///
/// let sketch = TatSketch::try_new(Quota::per_minute(2), 64 * 1024)?;
/// let hash = 0x9E37_79B9_7F4A_7C15; // of a key, by a keyed hasher
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
    /// A sketch for this quota in about `bytes` bytes, at least 136.
    ///
    /// # Errors
    /// If the burst is above 1,024, or half the range of a cell (32 bursts) is less than a second.
    pub fn try_new(quota: Quota, bytes: usize) -> Result<Self, QuotaError> {
        let word = TatWord::coarse("TAT sketch", &quota, ALONE_HORIZON_BITS, TatVariant::Meter)?;
        if word.span_ns(Cells::half_range(0)) < 1_000_000_000 {
            return Err(crate::base::quota::Reason::SpillRange.into());
        }
        let ends = (bytes / BYTES_FOR_AN_END).max(1);
        let cells = Cells::new(bytes.saturating_sub(ends * size_of::<AtomicU64>()), ends, &word, 0);
        // A quarter of a cell's range, not of a word's.
        let (slack_ns, lag_ns) = (word.span_ns(word.slack()), word.span_ns(Cells::half_range(0) / 2));
        let newest = Newest::new(slack_ns, lag_ns, word.span_ns(word.horizon()).max(1_000_000_000));
        let cells =
            cells.ok_or(QuotaError::from(crate::base::quota::Reason::Memory { bytes: bytes as u64 }))?;
        Ok(Self { cells, word, newest })
    }

    /// Checks `cost` units at a time that the caller says, for the key with this hash, and charges all of them or none.
    ///
    /// `hash` must come from a keyed hasher of 64-bit quality: it is all that is known of the key.
    ///
    /// # Complexity
    /// O(1): three cache lines; five exchanges if it is allowed. Lock-free; a denial writes nothing.
    pub fn check_at(&self, hash: u64, cost: u64, now: Timestamp) -> Decision {
        let mut now_ns = now.as_nanos();
        loop {
            // Too far behind the cells to tell debts from cells that came round.
            if now_ns < self.newest.low() {
                now_ns = self.newest.as_of(now_ns);
            }
            let latest = || self.word.reference(self.newest.newest().max(now_ns));
            // Before anything is written, and after the cells were loaded.
            let is_near = || {
                self.newest.raise(now_ns, |now_ns| now_ns);
                now_ns >= self.newest.low()
            };
            let at = (now_ns, self.word.reference(now_ns));
            if let Some(decision) = self.cells.charge(&self.word, mix(hash), at, &latest, &is_near, cost) {
                return decision;
            }
        }
    }

    /// The bytes of its cells.
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
    /// Further than a debt lasts, and than half the range of a cell.
    const FAR: u64 = 100_000;

    /// All keys are one group.
    fn cells() -> Cells {
        let rate = UnitRate { interval: Interval { num: 1, den: 1 }, burst: HORIZON };
        let word = TatWord::with_ticks("test", rate, 1, TatVariant::Meter).unwrap();
        Cells::new(1 << 10, 1, &word, 0).unwrap()
    }

    #[test]
    fn end_is_ahead_until_it_passes() {
        for reference in [0, 1, NOW, u64::MAX / 2, u64::MAX - 5, u64::MAX] {
            assert_eq!(left(NO_END, reference), 0, "none");
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
            assert_eq!(cells.estimate(mix(1), now, &|| now), 0, "paid {round} rounds ago");
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
        // The longest debt that there can be is over.
        assert_eq!(cells.estimate(mix(1), NOW + 3 * HORIZON, &|| NOW + 3 * HORIZON), 0);
        assert_eq!(left(cells.end(0).load(Acquire), NOW + 3 * HORIZON), 0);
    }

    #[test]
    fn lagging_thread_lowers_no_end() {
        let cells = cells();
        cells.raise(mix(1), HORIZON, NOW + FAR, &|| NOW + FAR);
        cells.raise(mix(2), 5, NOW, &|| NOW + FAR);
        assert_eq!(cells.estimate(mix(1), NOW + FAR, &|| NOW + FAR), HORIZON, "its debt is kept");
    }
}
