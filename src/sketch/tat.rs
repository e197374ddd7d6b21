//! Theoretical arrival times in a count-min sketch: sixteen bits a cell, four cells a key, no rotation.
//!
//! A key's estimate is the least of its four cells, each of which is at least what the key owes. Cells hold *coarse*
//! states: a state shifted right, rounded up. As they are times, they age by themselves.
//!
//! *Charging: raise, then commit.* All other cells are first raised to what the admission leads to; then the least
//! one is exchanged for it, from exactly the value that the estimate was; if it changed, all begins again. So at the
//! moment of the exchange all cells hold what the key owes, and of two threads that saw the same estimate one finds
//! its cell changed: raised by the other, if it was another of the cells that tied. (Exchanging the least cell first, or
//! raising all of them by a maximum, admits twice: see the models.) A charge that has to begin again leaves the other
//! cells raised, against the clients.
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

use super::{mix, scale};
use crate::algorithm::narrow::{Narrow, TatKind, TatWord, Verdict};
use crate::clock::Timestamp;
use crate::decision::{Decision, Outcome};
use crate::latest::Latest;
use crate::memory::{Array, Zeroed};
use crate::quota::{Quota, QuotaError};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::{AtomicU16, fence};
use crate::word::{Standing, standing};

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
/// A cell that was never written.
const UNTOUCHED: u16 = 0;

/// The cells. What is kept in them is up to the caller: states of one [`Narrow`] algorithm.
#[derive(Debug)]
pub(crate) struct Cells {
    cells: Array<AtomicU16>,
    /// Lines in each half.
    lines: usize,
    /// A coarse state is a state shifted by this.
    shift: u32,
    /// How far a coarse state can be ahead.
    horizon: u64,
    /// How far one can be ahead of the latest time, which may be behind by a quarter of a horizon.
    slack_horizon: u64,
}

impl Cells {
    /// A line in each half.
    pub(crate) const LEAST_BYTES: usize = 2 * LINE * size_of::<u16>();

    /// Cells in at most `bytes` bytes (at least two lines) for states up to `horizon` ahead. If `windows`, a state as far
    /// ahead as the horizon would be one of a window that has not come, with little used in it; a cell that says so has come
    /// round, and is not believed.
    pub(crate) fn new(bytes: usize, horizon: u64, shift: u32, windows: bool) -> Option<Self> {
        let lines = (bytes / Self::LEAST_BYTES).max(1);
        // Rounded up by the shift, by the reference's own being rounded down, and past zero.
        let (horizon, slack_horizon) = if windows {
            ((horizon >> shift) - 1, (horizon >> shift) - 1)
        } else {
            ((horizon >> shift) + 3, 2 * ((horizon >> shift) + 3))
        };
        let cells = Array::zeroed(2 * lines * LINE)?;
        Some(Self { cells, lines, shift, horizon, slack_horizon })
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
        self.cells.len() * size_of::<AtomicU16>()
    }

    pub(crate) fn cells(&self) -> &[AtomicU16] {
        &self.cells
    }

    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// The places of a key's cells; all different.
    #[inline]
    fn places(&self, hash: u64) -> [usize; DEPTH] {
        let first = scale(hash, self.lines) * LINE;
        let other = mix(hash);
        let second = (self.lines + scale(other, self.lines)) * LINE;
        #[expect(clippy::cast_possible_truncation, reason = "five bits each")]
        let bits = |value: u64, shift: u32| (value >> shift) as usize & (LINE - 1);
        let (a, b) = (bits(hash, 0), bits(other, 0));
        // The distance to a line's second cell is 1 to 31.
        // (Not a remainder of LINE - 1, which is one in the models.)
        let apart = |place: usize, distance: usize| (place + distance.max(1)) & (LINE - 1);
        [first + a, first + apart(a, bits(hash, 5)), second + b, second + apart(b, bits(other, 5))]
    }

    /// How many coarse ticks a cell is ahead of a reference. `latest` says the latest reference there is; it is asked only
    /// about a cell that seems too far ahead, which has been loaded by then.
    #[inline]
    fn ahead(&self, cell: u16, reference: u64, latest: &impl Fn() -> u64) -> u64 {
        // Never written; else all such cells would come round together.
        if cell == UNTOUCHED {
            return 0;
        }
        match standing::<BITS>(u64::from(cell), reference >> self.shift, self.horizon) {
            Standing::Idle => 0,
            Standing::Ahead(ahead) => ahead,
            // The latest time may be behind by a quarter of a horizon. Further ahead of it, the cell has come round.
            Standing::Unsure(ahead) => {
                // Ordering: Acquire; pairs with the exchange that wrote the cell: its writer had its time before.
                fence(Acquire);
                match standing::<BITS>(u64::from(cell), latest() >> self.shift, self.slack_horizon) {
                    Standing::Unsure(_) => 0,
                    Standing::Idle | Standing::Ahead(_) => ahead,
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

    /// At most how far a key is ahead of `reference`; never less than it is.
    #[inline]
    pub(crate) fn estimate(&self, hash: u64, reference: u64, latest: &impl Fn() -> u64) -> u64 {
        let mut least = u64::MAX;
        for place in self.places(hash) {
            // Ordering: Acquire; pairs with the raise of a debt whose key has been seen to have lost its slot.
            least = least.min(self.ahead(self.cells[place].load(Acquire), reference, latest));
        }
        self.fine(least, reference)
    }

    /// The cell's value that is `coarse` ticks ahead of a reference.
    #[inline]
    fn cell(&self, coarse: u64, reference: u64) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "modulo 2^16 is what a cell is")]
        let cell = (reference >> self.shift).wrapping_add(coarse) as u16;
        // The one time that means something else is put off by a tick.
        if cell == UNTOUCHED { 1 } else { cell }
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
        let coarse = self.coarse(ahead, reference);
        for place in self.places(hash) {
            self.raise_cell(place, coarse, reference, latest);
        }
    }

    /// Decides on a key by its estimate, and charges it if it is admitted: strict, by raise-then-commit.
    ///
    /// Lock-free: begins again only if another thread's write took effect.
    pub(crate) fn charge<N: Narrow>(
        &self,
        word: &N,
        hash: u64,
        (now_ns, reference): (u64, u64),
        latest: &impl Fn() -> u64,
        cost: u64,
    ) -> Decision {
        let places = self.places(hash);
        loop {
            let mut least = (u64::MAX, 0, 0);
            for (row, &place) in places.iter().enumerate() {
                // Ordering: Acquire; pairs with the Release of raises and commits.
                let cell = self.cells[place].load(Acquire);
                let ahead = self.ahead(cell, reference, latest);
                if ahead < least.0 {
                    least = (ahead, row, cell);
                }
            }
            let (ahead, row, cell) = least;
            let ahead = self.fine(ahead, reference);
            let decide =
                |outcome, ahead, charged| word.decision(outcome, ahead, charged, (now_ns, reference), cost);
            let after = match word.judge(ahead, now_ns, cost) {
                Verdict::Deny => return decide(Outcome::Denied, ahead, false),
                Verdict::Never => return decide(Outcome::Never, ahead, false),
                Verdict::Admit(after) if after == ahead => return decide(Outcome::Allowed, ahead, false),
                Verdict::Admit(after) => after,
            };
            let coarse = self.coarse(after, reference);
            for (other, &place) in places.iter().enumerate() {
                if other != row {
                    self.raise_cell(place, coarse, reference, latest);
                }
            }
            // Ordering: AcqRel: the raises come before it for whoever sees it.
            let next = self.cell(coarse, reference);
            if self.cells[places[row]].compare_exchange(cell, next, AcqRel, Relaxed).is_ok() {
                return decide(Outcome::Allowed, after, true);
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.cells.iter().for_each(Zeroed::clear);
    }

    /// The cells that are ahead of a reference, and how far.
    pub(crate) fn image(&self, reference: u64, latest: &impl Fn() -> u64) -> Vec<(u64, u16)> {
        (0..)
            .zip(self.cells.iter())
            .filter_map(|(index, cell)| {
                // At most the horizon, if it was written since the image began.
                let ahead = self.ahead(cell.load(Acquire), reference, latest).min(self.horizon);
                #[expect(clippy::cast_possible_truncation, reason = "at most the horizon, below 2^14")]
                let ahead = ahead as u16;
                (ahead > 0).then_some((index, ahead))
            })
            .collect()
    }

    /// Whether an image could be one of these cells.
    pub(crate) fn accepts(&self, image: &[(u64, u16)]) -> bool {
        image.is_sorted_by(|a, b| a.0 < b.0)
            && image.iter().all(|&(index, ahead)| {
                index < self.cells.len() as u64 && (1..=self.horizon).contains(&u64::from(ahead))
            })
    }

    /// Writes an image of `then` at `now`, of which cells that are paid by now are left out. If no time has `passed`,
    /// `now` is where `then` was.
    pub(crate) fn replace(&self, image: &[(u64, u16)], then: u64, now: u64, passed: bool) {
        let passed = if passed { (now >> self.shift).wrapping_sub(then >> self.shift) } else { 0 };
        for &(index, ahead) in image {
            if let Some(left @ 1..) = u64::from(ahead).checked_sub(passed) {
                #[expect(clippy::cast_possible_truncation, reason = "below the number of cells (`accepts`)")]
                self.cells[index as usize].store(self.cell(left, now), Release);
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
    /// The latest time that any call brought, in nanoseconds, now and then.
    latest: Latest,
}

impl TatSketch {
    /// A sketch for this quota in about `bytes` bytes, at least 128.
    ///
    /// # Errors
    /// If the burst is above 1,024, or half the range of a cell (32 bursts) is less than a second.
    pub fn try_new(quota: Quota, bytes: usize) -> Result<Self, QuotaError> {
        let word = TatWord::coarse("TAT sketch", &quota, ALONE_HORIZON_BITS, TatKind::Meter)?;
        if word.span_ns(Cells::half_range(0)) < 1_000_000_000 {
            return Err(crate::quota::Reason::SpillRange.into());
        }
        let cells = Cells::new(bytes, word.horizon(), 0, false);
        let cells = cells.ok_or(QuotaError::from(crate::quota::Reason::Memory { bytes: bytes as u64 }))?;
        Ok(Self { cells, word, latest: Latest::new(&word) })
    }

    /// Checks `cost` units at a time that the caller says, for the key with this hash, and charges all of them or none.
    ///
    /// `hash` must come from a keyed hasher of 64-bit quality: it is all that is known of the key.
    ///
    /// # Complexity
    /// O(1): two cache lines; four exchanges if it is allowed. Lock-free; a denial writes nothing.
    pub fn check_at(&self, hash: u64, cost: u64, now: Timestamp) -> Decision {
        let now_ns = now.as_nanos();
        let reference = self.word.reference(now_ns);
        self.latest.note(now_ns);
        let latest = || self.word.reference(self.latest.at(now_ns));
        self.cells.charge(&self.word, mix(hash), (now_ns, reference), &latest, cost)
    }

    /// The bytes of its cells.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.cells.bytes()
    }
}
