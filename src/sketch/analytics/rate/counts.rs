//! Counting in the window that the time lies in.
//!
//! Even windows have counters of their own, and odd ones. Their words are exchanged from exactly what was read
//! ([`WindowCounters`]): no two events of a key are counted from the same count. At a window's turn
//! nothing is cleared and nobody waits: the first event of a key replaces what its words held two windows before.
//!
//! # Threads that lag
//! A thread that lags by a window counts in the one that it read on its clock, which is the last one then.
//! One that lags by more finds words of a later window. Or it finds words of its own window, which is over,
//! that no thread has replaced yet. If it finds later ones it is *late*: it begins again as of that window, and its event
//! is counted there. What it raised by then in the old window stays, against the key, as another key's events would.
//!
//! # The present window is guessed
//! Where a key's words are depends on the window, and so on the clock. Reading the clock takes longer than all
//! the rest except the exchanges. So the newest window is only compared with the time. The processor predicts
//! that they agree, and loads the words meanwhile. (Measured: 40 to 34 ns an event of 1,000 keys.) The same guess
//! requests the lines for writing. A line that is loaded before it is exchanged comes from
//! another core twice (164 to 126 ns on two threads far from each other, 58 to 49 on near ones).
//!
//! # Before a turn
//! A key's first event of a window would find lines that no thread touched for a window. So each event in the
//! last eighth of a window requests the next window's lines too, which costs about 1 ns an event. Of the events right after a
//! turn, one in a hundred took 340 ns and more before, and takes 70 now. One in ten thousand took 750, and takes 480 now
//! (290 at other times).

use super::super::error::{SketchError, SketchReason};
use crate::base::check_time::CheckTime;
use crate::base::memory::prefetch::PrefetchToWrite;
use crate::sketch::window::{Commit, Lines, Rows, WindowCounters, Windows};

/// The shortest time until a tag is used again, and twice as long as a thread may be held up: a minute.
const ROUND_NS: u64 = 60 * 1_000_000_000;
/// The fewest bits of a tag. With windows of a second, a tag is used again after 18 hours, and there is room for two counters of
/// 24 bits.
const LEAST_TAG_BITS: u32 = 16;

/// The counts of a [`Rate`](super::Rate).
#[derive(Debug)]
pub(super) struct RateCounters {
    windows: Windows,
    /// Of even windows, and of odd.
    counters: [WindowCounters; 2],
    /// There if the processor has the hint.
    prefetch: Option<PrefetchToWrite>,
}

/// A key's count after an event, and the window that it is of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Observed {
    pub(super) window: u64,
    pub(super) count: u64,
}

/// A key's counts at a time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct LastTwoWindows {
    pub(super) previous: u64,
    pub(super) current: u64,
    /// How much of the present window has passed.
    pub(super) passed_ns: u64,
}

/// The bits of a tag beside counters up to `largest`: enough for [`ROUND_NS`], and what the counters leave.
fn tag_bits(window_ns: u64, largest: u64) -> Result<u32, SketchError> {
    let windows = ROUND_NS / window_ns;
    // 36 at most, for windows of a nanosecond.
    let least = (u64::BITS - windows.leading_zeros()).max(LEAST_TAG_BITS);
    let room = u64::BITS - least;
    let bits = u64::BITS - largest.leading_zeros();
    if bits > room {
        return Err(SketchReason::Largest { got: largest, max: (1 << room) - 1 }.into());
    }
    Ok(u64::BITS - room / bits * bits)
}

impl RateCounters {
    pub(super) fn new(window_ns: u64, largest: u64, bytes: usize) -> Result<Self, SketchError> {
        if window_ns == 0 {
            return Err(SketchReason::ZeroWindow.into());
        }
        if largest == 0 {
            return Err(SketchReason::ZeroLargest.into());
        }
        if bytes < 2 * WindowCounters::LEAST_BYTES {
            return Err(
                SketchReason::TooFewBytes { got: bytes, least: 2 * WindowCounters::LEAST_BYTES }.into()
            );
        }
        // A wrong time is given up soon, since keys share words. Nothing is admitted by these counts.
        let lag = 1_000_000_000_u64.div_ceil(window_ns).max(2);
        let windows = Windows::new(window_ns, tag_bits(window_ns, largest)?, lag);
        let refused = || SketchError::from(SketchReason::Memory { bytes: bytes as u128 });
        let half = || WindowCounters::new(bytes / 2, largest, false, &windows).ok_or_else(refused);
        let counters = [half()?, half()?];
        Ok(Self { windows, counters, prefetch: PrefetchToWrite::detect() })
    }

    /// Counts events of a key.
    #[inline]
    pub(super) fn observe(&self, hash: u64, time: impl FnOnce() -> CheckTime, events: u64) -> Observed {
        let counters = &self.counters[0];
        let lines = counters.lines(hash);
        if let Some(hint) = self.prefetch {
            self.of(self.windows.newest()).approach_to_write(hint, &lines);
        }
        if counters.is_together() {
            self.observe_in::<2, 2>(&lines, time, events)
        } else {
            self.observe_in::<4, 1>(&lines, time, events)
        }
    }

    #[inline(always)]
    fn observe_in<const N: usize, const PER: usize>(
        &self,
        lines: &Lines,
        time: impl FnOnce() -> CheckTime,
        events: u64,
    ) -> Observed {
        let rows: Rows<N, PER> = self.counters[0].rows(lines);
        let now_ns = time().ns();
        let mut moment = self.windows.moment(now_ns);
        if let Some(hint) = self.prefetch
            && self.windows.is_ending(&moment)
        {
            self.of(moment.window.wrapping_add(1)).approach_to_write(hint, lines);
        }
        loop {
            let window = moment.window;
            let counters = self.of(window);
            let attempt = || {
                let read = counters.read(&self.windows, &rows, window)?;
                let count = read.least.saturating_add(events).min(counters.most());
                if count == read.least {
                    return Ok(Some(count));
                }
                let commit = counters.charge(&self.windows, &read, (window, count));
                Ok((commit == Commit::Done).then_some(count))
            };
            match attempt() {
                Ok(Some(count)) => return Observed { window, count },
                Ok(None) => {}
                Err(late) => moment = self.windows.catch_up(moment, late),
            }
        }
    }

    /// A key's counts in the last window and the present one.
    pub(super) fn look(&self, hash: u64, time: CheckTime) -> LastTwoWindows {
        let counters = &self.counters[0];
        let lines = counters.lines(hash);
        if counters.is_together() {
            self.look_in::<2, 2>(&counters.rows(&lines), time)
        } else {
            self.look_in::<4, 1>(&counters.rows(&lines), time)
        }
    }

    fn look_in<const N: usize, const PER: usize>(
        &self,
        rows: &Rows<N, PER>,
        time: CheckTime,
    ) -> LastTwoWindows {
        let windows = &self.windows;
        let mut moment = self.windows.moment(time.ns());
        loop {
            let look = || {
                // The word of a later window in place of the last one's says that it is late.
                let last = |window| self.of(window).last(windows, rows, moment.window);
                let previous = moment.window.checked_sub(1).map_or(Ok(0), last)?;
                let current = self.of(moment.window).estimate(windows, rows, moment.window)?;
                let passed_ns = moment.now_ns.saturating_sub(windows.start_ns(moment.window));
                Ok(LastTwoWindows { previous, current, passed_ns })
            };
            match look() {
                Ok(seen) => return seen,
                Err(late) => moment = self.windows.catch_up(moment, late),
            }
        }
    }

    /// The counters of a window.
    #[inline(always)]
    fn of(&self, window: u64) -> &WindowCounters {
        &self.counters[usize::from(window & 1 == 1)]
    }

    pub(super) fn window_ns(&self) -> u64 {
        self.windows.window_ns()
    }

    /// The most that is counted.
    pub(super) fn largest(&self) -> u64 {
        self.counters[0].most()
    }

    pub(super) fn bytes(&self) -> usize {
        self.counters.iter().map(WindowCounters::bytes).sum()
    }

    pub(super) fn clear(&self) {
        self.counters.iter().for_each(WindowCounters::clear);
        self.windows.clear();
    }
}
