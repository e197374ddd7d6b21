//! Sketches of windows of time that turn by themselves.
//!
//! ```text
//! word = [ tag | payload ]        tag: the index of the window that the payload is of, modulo 2^bits
//! ```
//! Time is cut into windows of equal length, aligned to the Unix epoch. Each word knows its window: read for a later one it
//! is empty, and the next write for that window replaces it, payload and tag in one exchange. So nothing is ever cleared,
//! nothing is swapped, and no call pays for a turn. Where the last window counts too, words come in pairs, for even windows
//! and for odd.
//!
//! | part | a word's payload |
//! |---|---|
//! | [`Counters`] | as many counters as fit: a count-min sketch with conservative update |
//! | [`Seen`] | bits: a register-blocked Bloom filter that knows who comes for the first time |
//!
//! # Threads that lag, and clocks that step
//! A word of a *later* window than the caller's tells the caller that it is late: it begins again as of that window, and
//! never takes the counts of a window that came after its own for the past. The next window is believed if it is the newest that
//! any word was written for, since two threads' clocks may differ by a little; any later one if the latest time there is, asked
//! for after the word was read, has come to it. Otherwise the tag has come round, or the clock was wrong when it was written,
//! and the word is old.
//!
//! # Tags come round
//! A word that nobody writes for as many windows as there are tags reads as new for one window, and its counts are counted
//! against whoever has them. There are enough tags for three months where that leaves room ([`tag_bits`]).

mod counters;
#[cfg(all(test, tollgate_loom))]
mod models;
mod seen;

pub(crate) use self::counters::{Commit, Counters, Read, Rows};
pub(crate) use self::seen::{Insert, Mark, Seen};
use crossbeam_utils::CachePadded;

use crate::algorithm::narrow::ticks::TickRate;
use crate::latest::Time;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};

/// The fewest and the most bits of a tag.
const TAG_BITS: std::ops::RangeInclusive<u32> = 16..=24;
/// How long it should take until tags come round, if they have not the most bits by then: three months.
const ROUND_NS: u64 = 90 * 86_400 * 1_000_000_000;

/// The bits of a tag for windows of this length.
pub(crate) fn tag_bits(window_ns: u64) -> u32 {
    let windows = ROUND_NS / window_ns.max(1);
    (u64::BITS - windows.leading_zeros()).clamp(*TAG_BITS.start(), *TAG_BITS.end())
}

/// Windows of time, and the tags of their words.
#[derive(Debug)]
pub(crate) struct Windows {
    rate: TickRate,
    window_ns: u64,
    tag_bits: u32,
    /// The latest window that any word was written for: read by all, written once a window.
    newest: CachePadded<AtomicU64>,
}

/// The window of another thread's word, which is later than the caller's.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Late {
    pub(crate) window: u64,
}

/// A time, and the window that it counts in: a later one than the time's, if others are there.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) now_ns: u64,
    pub(crate) window: u64,
    /// How many windows that is after the time's.
    pub(crate) later: u64,
}

/// Which word of a place is a window's: of one, or of two for even windows and for odd.
#[inline(always)]
fn parity(window: u64, parities: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "one bit, or none")]
    let parity = window as usize & (parities - 1);
    parity
}

/// How a word stands to a window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Standing {
    /// Of that window.
    Now,
    /// Of the one before.
    Last,
    /// Of one that is over for longer, or never written.
    Past,
}

impl Windows {
    /// Windows of `window_ns` (not zero).
    pub(crate) fn new(window_ns: u64, tag_bits: u32) -> Self {
        let newest = CachePadded::new(AtomicU64::new(0));
        Self { rate: TickRate::new(1, window_ns), window_ns, tag_bits, newest }
    }

    /// The window that a time lies in: mostly the newest one, which takes no division.
    #[inline(always)]
    pub(crate) fn present(&self, now_ns: u64) -> u64 {
        // Ordering: Relaxed. A guess, which the time confirms.
        let newest = self.newest.load(Relaxed);
        let passed_ns = newest.checked_mul(self.window_ns).and_then(|start_ns| now_ns.checked_sub(start_ns));
        let is_in = passed_ns.is_some_and(|passed_ns| passed_ns < self.window_ns);
        if is_in { newest } else { self.index(now_ns) }
    }

    /// A time in its own window.
    #[inline(always)]
    pub(crate) fn moment(&self, now_ns: u64) -> Moment {
        Moment { now_ns, window: self.present(now_ns), later: 0 }
    }

    /// A moment once others are in a later window: as of the time read again, and of that window at least.
    #[cold]
    pub(crate) fn catch_up<T: Time>(&self, time: &T, moment: Moment, late: Late) -> Moment {
        let now_ns = if T::BEGINS_AGAIN { time.now() } else { moment.now_ns };
        let own = self.index(now_ns);
        let window = late.window.max(own);
        Moment { now_ns, window, later: window - own }
    }

    /// An empty word of a window, to take the place of an older one.
    #[cold]
    fn renewed(&self, window: u64) -> u64 {
        self.begin(window);
        self.empty(window)
    }

    /// Says that there is a window; before any word is made one of it.
    pub(crate) fn begin(&self, window: u64) {
        // Ordering: Relaxed for the look: if it is outdated, the maximum is taken in vain. Release: before the word.
        if self.newest.load(Relaxed) < window {
            self.newest.fetch_max(window, AcqRel);
        }
    }

    /// The index of the window that a time lies in.
    #[inline]
    pub(crate) fn index(&self, now_ns: u64) -> u64 {
        self.rate.floor(now_ns)
    }

    /// Whether a time is in the last eighth of its window.
    #[inline(always)]
    pub(crate) fn is_ending(&self, now_ns: u64, window: u64) -> bool {
        // Only a hint, should `window` not be the time's own.
        now_ns.wrapping_sub(window.wrapping_mul(self.window_ns)) >= self.window_ns - self.window_ns / 8
    }

    /// The newest window that any word was written for.
    #[inline(always)]
    pub(crate) fn newest(&self) -> u64 {
        // Ordering: Relaxed. A hint.
        self.newest.load(Relaxed)
    }

    /// The first nanosecond of a window, if there is one before time ends.
    pub(crate) fn start_ns(&self, window: u64) -> u64 {
        window.saturating_mul(self.window_ns)
    }

    pub(crate) fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// The bits that a tag leaves.
    pub(crate) fn payload_bits(&self) -> u32 {
        u64::BITS - self.tag_bits
    }

    /// How long windows must be at least, if half the tags take less than a second: a thread may be held up for as long.
    pub(crate) fn too_short(&self) -> Option<u64> {
        let half = 1 << (self.tag_bits - 1);
        let min_ns = 1_000_000_000_u64.div_ceil(half);
        (self.window_ns < min_ns).then_some(min_ns)
    }

    /// How far apart two threads' times may be, to be told from times that came round: half the tags, less some.
    pub(crate) fn trust_ns(&self) -> u64 {
        ((1_u64 << (self.tag_bits - 1)) - 2).saturating_mul(self.window_ns)
    }

    /// An empty word of a window.
    #[inline]
    fn empty(&self, window: u64) -> u64 {
        window << self.payload_bits()
    }

    /// Whether a word is of a window. (One that was never written may be, and holds nothing.)
    #[inline(always)]
    fn is_of(&self, word: u64, window: u64) -> bool {
        word ^ self.empty(window) <= u64::MAX >> self.tag_bits
    }

    /// How a word stands to a window, which is the caller's; `latest` is the latest window there is, and asked for only if
    /// the word seems to be further ahead than a thread's clock can be.
    #[inline(always)]
    fn standing(&self, word: u64, window: u64, latest: &impl Fn() -> u64) -> Result<Standing, Late> {
        if self.is_of(word, window) { Ok(Standing::Now) } else { self.apart(word, window, latest) }
    }

    /// How a word stands to a window that it is not of: once for each word and window.
    #[inline(never)]
    fn apart(&self, word: u64, window: u64, latest: &impl Fn() -> u64) -> Result<Standing, Late> {
        // Never written: its tag says nothing.
        if word == 0 {
            return Ok(Standing::Past);
        }
        let tags = (1_u64 << self.tag_bits) - 1;
        let ahead = (word >> self.payload_bits()).wrapping_sub(window) & tags;
        if ahead == tags {
            return Ok(Standing::Last);
        }
        if ahead > tags / 2 {
            return Ok(Standing::Past);
        }
        match window.checked_add(ahead) {
            // A window after the end of time: the tag has come round.
            None => Ok(Standing::Past),
            Some(window) => self.ahead(window, ahead, latest),
        }
    }

    /// A word that is of a later window, so many ahead, or came round.
    #[cold]
    fn ahead(&self, window: u64, ahead: u64, latest: &impl Fn() -> u64) -> Result<Standing, Late> {
        // By more than one window no thread's clock is ahead of another's; if it was wrong, it is not to be believed.
        // Ordering: Acquire; the word was loaded with Acquire, and its writer said which window it is of before, or read its
        // clock, or noted its time.
        let is_newest = ahead == 1 && self.newest.load(Acquire) == window;
        if is_newest || latest() >= window { Err(Late { window }) } else { Ok(Standing::Past) }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const BITS: u32 = 16;

    #[test]
    fn a_word_is_of_its_window_and_then_old() {
        let windows = Windows::new(1_000, BITS);
        for window in [0, 1, 7, (1 << BITS) - 1, 1 << BITS, u64::MAX / 1_000 - 1] {
            let word = windows.empty(window) | 1;
            let standing = |at| windows.standing(word, at, &|| at);
            assert_eq!(standing(window), Ok(Standing::Now));
            assert_eq!(standing(window.wrapping_add(1)), Ok(Standing::Last));
            for past in [2, 3, 1_000, (1 << (BITS - 1)) - 1, 1 << (BITS - 1)] {
                assert_eq!(standing(window.wrapping_add(past)), Ok(Standing::Past), "{past}");
            }
        }
    }

    #[test]
    fn who_sees_a_later_window_is_late() {
        let windows = Windows::new(1_000, BITS);
        let word = windows.empty(100) | 1;
        // If it is the newest, or the latest time has come to it.
        assert_eq!(windows.standing(word, 99, &|| 99), Ok(Standing::Past));
        assert_eq!(windows.standing(word, 90, &|| 100), Err(Late { window: 100 }));
        assert_eq!(windows.standing(word, 90, &|| 99), Ok(Standing::Past));
        windows.begin(100);
        assert_eq!(windows.standing(word, 99, &|| 99), Err(Late { window: 100 }));
        assert_eq!(windows.standing(word, 98, &|| 98), Ok(Standing::Past), "a wrong clock, set right");
        assert_eq!(windows.standing(0, 99, &|| 100), Ok(Standing::Past));
        // No window comes after the last one.
        let windows = Windows::new(1, BITS);
        for ahead in 1..5 {
            let word = windows.empty(u64::MAX.wrapping_add(ahead)) | 1;
            assert_eq!(windows.standing(word, u64::MAX, &|| u64::MAX), Ok(Standing::Past));
        }
    }

    /// Times near zero once were in the last window of all, whose end is past the end of time.
    #[test]
    fn the_present_window_is_the_one_that_the_time_is_in() {
        for window_ns in [1_000, 1_000_000_007, 60_000_000_000, u64::MAX / 2, u64::MAX] {
            for newest in [0, 1, 7, u64::MAX / window_ns] {
                let windows = Windows::new(window_ns, BITS);
                windows.begin(newest);
                let around = windows.start_ns(newest);
                for now in [
                    0,
                    1,
                    5_000_000_000,
                    around.saturating_sub(1),
                    around,
                    around.saturating_add(1),
                    u64::MAX,
                ] {
                    assert_eq!(windows.present(now), windows.index(now), "{window_ns} {newest} {now}");
                }
            }
        }
    }

    #[test]
    fn tags_come_round_after_months_where_there_is_room() {
        assert_eq!(tag_bits(u64::MAX), 16);
        assert_eq!(tag_bits(60_000_000_000), 17);
        assert_eq!(tag_bits(1_000_000_000), 23);
        assert_eq!((tag_bits(1), tag_bits(0)), (24, 24));
    }
}
