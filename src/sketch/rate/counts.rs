//! Counting in the window that the time lies in.
//!
//! *Raise, then commit* ([`Counters`]): an event is in its window's counts as soon as its commit is made, and no other thread's
//! commit can be made from a count that lacks it. At a window's turn nothing is cleared and nothing waits: a key's even and odd
//! windows have words of their own, and the first event of a window replaces what its words held two windows before.
//!
//! # Threads that lag
//! A thread that lags by a window counts in the one that it read on its clock, which is the last one then. One that lags by
//! more finds words of a later window, or writes words that nobody has replaced yet, of a window that is over. If it finds
//! them it is *late*: it begins again as of the time read again (or of that window, if its time was given), and its event is
//! counted there. It may have raised some words of the old window by then, but not all, and if all: against the key, as
//! another key's events would be.
//!
//! # The latest time
//! Whether a word is ahead or has come round is decided by the latest time: the clock's, or the latest that was given,
//! which is kept to within a quarter of a window so that it is seldom written. So a quarter of a window is added when
//! it is asked for.

use super::super::SketchError;
use super::super::error::Reason;
use super::super::window::{Commit, Counters, Late, Windows};
use crate::clock::Clock;
use crate::store::{Given, Latest, Time};

/// How long it takes at least until a tag comes round, and twice how long a thread may be held up: a minute.
const ROUND_NS: u64 = 60 * 1_000_000_000;
/// The fewest bits of a tag: with windows of a second they come round in 18 hours, and two counters of 24 bits are left room.
const LEAST_TAG_BITS: u32 = 16;

/// The counts of a [`Rate`](super::Rate).
#[derive(Debug)]
pub(super) struct Counts {
    windows: Windows,
    counters: Counters,
    latest: Latest,
    /// How far the latest time that is known may be behind the latest one that was given.
    gap_ns: u64,
}

/// A key's count after an event, and the window that it is of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    pub(super) window: u64,
    pub(super) count: u64,
}

/// A key's counts at a time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) previous: u64,
    pub(super) current: u64,
    /// How much of the present window has passed.
    pub(super) passed_ns: u64,
}

/// A time, and the window that is counted in: a later one than the time's, if others are there.
#[derive(Copy, Clone, Debug)]
struct Moment {
    now_ns: u64,
    window: u64,
}

/// The bits of a tag beside counters of so many bits: enough for [`ROUND_NS`], and what the counters leave.
fn tag_bits(window_ns: u64, largest: u64) -> Result<u32, SketchError> {
    let windows = ROUND_NS / window_ns;
    // 36 at most, for windows of a nanosecond.
    let least = (u64::BITS - windows.leading_zeros()).max(LEAST_TAG_BITS);
    let room = u64::BITS - least;
    let bits = u64::BITS - largest.leading_zeros();
    if bits > room {
        return Err(Reason::Largest { got: largest, max: (1 << room) - 1 }.into());
    }
    Ok(u64::BITS - room / bits * bits)
}

impl Counts {
    pub(super) fn new(window_ns: u64, largest: u64, bytes: usize) -> Result<Self, SketchError> {
        if window_ns == 0 {
            return Err(Reason::ZeroWindow.into());
        }
        if largest == 0 {
            return Err(Reason::ZeroLargest.into());
        }
        if bytes < Counters::LEAST_BYTES {
            return Err(Reason::TooFewBytes { got: bytes, least: Counters::LEAST_BYTES }.into());
        }
        let windows = Windows::new(window_ns, tag_bits(window_ns, largest)?);
        let counters = Counters::new(bytes, largest, true, &windows);
        let counters = counters.ok_or(Reason::Memory { bytes: bytes as u128 })?;
        let gap_ns = window_ns / 4;
        let latest = Latest::within(gap_ns, windows.trust_ns());
        Ok(Self { windows, counters, latest, gap_ns })
    }

    /// A time that the caller says.
    pub(super) fn given<'a, C: Clock>(&'a self, clock: &'a C, now_ns: u64) -> Given<'a, C> {
        Given { now_ns, latest: &self.latest, clock }
    }

    /// Counts events of a key.
    #[inline]
    pub(super) fn observe(&self, hash: u64, time: &impl Time, events: u64) -> Counted {
        let Self { windows, counters, .. } = self;
        let place = counters.place(hash);
        // They come while the clock is read.
        counters.approach(&place);
        let now_ns = time.now();
        if events > 0 {
            time.note(now_ns);
        }
        let mut moment = self.moment(now_ns);
        loop {
            let latest = || self.latest_window(time, moment.now_ns);
            let window = moment.window;
            let attempt = || {
                let read = counters.read(windows, &place, window, &latest)?;
                let count = read.least.saturating_add(events).min(counters.most());
                if count == read.least {
                    return Ok(Some(count));
                }
                counters.raise(windows, &place, Some(&read), (window, count), &latest)?;
                let commit = counters.commit(windows, &place, &read, (window, count), &latest)?;
                Ok((commit == Commit::Done).then_some(count))
            };
            match attempt() {
                Ok(Some(count)) => return Counted { window, count },
                Ok(None) => {}
                Err(late) => moment = self.catch_up(time, moment, late),
            }
        }
    }

    /// A key's counts in the last window and the present one.
    pub(super) fn look(&self, hash: u64, time: &impl Time) -> Seen {
        let Self { windows, counters, .. } = self;
        let place = counters.place(hash);
        counters.approach(&place);
        let mut moment = self.moment(time.now());
        loop {
            let latest = || self.latest_window(time, moment.now_ns);
            let look = || {
                let previous = counters.last(windows, &place, moment.window, &latest)?;
                let current = counters.read(windows, &place, moment.window, &latest)?.least;
                let passed_ns = moment.now_ns.saturating_sub(windows.start_ns(moment.window));
                Ok(Seen { previous, current, passed_ns })
            };
            match look() {
                Ok(seen) => return seen,
                Err(late) => moment = self.catch_up(time, moment, late),
            }
        }
    }

    #[inline]
    fn moment(&self, now_ns: u64) -> Moment {
        Moment { now_ns, window: self.windows.index(now_ns) }
    }

    /// The latest window that a word may be of, for a thread that has loaded one ahead of its time.
    fn latest_window(&self, time: &impl Time, now_ns: u64) -> u64 {
        self.windows.index(time.latest(now_ns).saturating_add(self.gap_ns))
    }

    /// Others are in a later window: as of the time read again, and of that window at least.
    #[cold]
    fn catch_up<T: Time>(&self, time: &T, moment: Moment, late: Late) -> Moment {
        let now_ns = if T::BEGINS_AGAIN { time.now() } else { moment.now_ns };
        Moment { now_ns, window: late.window.max(self.windows.index(now_ns)) }
    }

    pub(super) fn window_ns(&self) -> u64 {
        self.windows.window_ns()
    }

    /// The most that is counted.
    pub(super) fn largest(&self) -> u64 {
        self.counters.most()
    }

    pub(super) fn bytes(&self) -> usize {
        self.counters.bytes()
    }

    pub(super) fn clear(&self) {
        self.counters.clear();
    }
}
