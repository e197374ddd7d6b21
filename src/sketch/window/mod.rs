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
//! | [`WindowCounters`] | as many counters as fit: a count-min sketch with conservative update |
//! | [`WindowedBloom`] | bits: a register-blocked Bloom filter that knows who comes for the first time |
//!
//! # Threads that lag, and clocks that differ
//! A word of a *later* window than the caller's tells the caller that it is late: it begins again as of that window, and
//! never takes the counts of a window that came after its own for the past. Whether a word is of a later window, or its tag
//! has come round, is told by the newest window that any word was written for ([`Newest`]), which is raised before the word is
//! written.
//!
//! # Tags come round
//! A word that nobody writes for as many windows as there are tags reads as new for one window, and its counts are counted
//! against whoever has them. There are enough tags for three months where that leaves room ([`tag_bits`]).

mod counters;
#[cfg(all(test, tollgate_loom))]
mod models;
mod windowed_bloom;

pub(crate) use self::counters::{Commit, Lines, Rows, WindowCounters};
pub(crate) use self::windowed_bloom::{Insert, Known, Probe, WindowedBloom};
use crate::algorithm::compact::ticks::TickRate;
use crate::base::check_time::Newest;

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
    /// The bits that a tag leaves.
    payload_bits: u32,
    /// All of them set.
    payload_mask: u64,
    /// The newest window that any word was written for: read by all, written once a window.
    newest: Newest,
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
    /// From the time to the window's end.
    pub(crate) to_end_ns: u64,
}

/// Which word of a place is a window's: the only one, or of a pair (`odd` is 1) that of even windows or of odd ones.
#[inline(always)]
fn parity(window: u64, odd: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "one bit, or none")]
    let parity = window as usize & odd;
    parity
}

/// How a word stands to a window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum WordAge {
    /// Of that window.
    Now,
    /// Of the one before.
    Last,
    /// Of one that is over for longer, or never written.
    Past,
}

impl Windows {
    /// Windows of `window_ns` (not zero).
    ///
    /// A caller whose window is behind the newest by more than `lag`, or by more than a quarter of the tags, is decided as of that.
    pub(crate) fn new(window_ns: u64, tag_bits: u32, lag: u64) -> Self {
        let newest = Newest::new(0, lag.min(1 << (tag_bits - 2)), 1_000_000_000_u64.div_ceil(window_ns));
        let payload_bits = u64::BITS - tag_bits;
        let payload_mask = u64::MAX >> tag_bits;
        Self { rate: TickRate::new(1, window_ns), window_ns, payload_bits, payload_mask, newest }
    }

    /// A time in its own window: mostly the newest one, which takes no division.
    #[inline(always)]
    pub(crate) fn moment(&self, now_ns: u64) -> Moment {
        // A guess, which the time confirms.
        let window = self.newest.newest();
        let passed_ns = window.checked_mul(self.window_ns).and_then(|start_ns| now_ns.checked_sub(start_ns));
        match passed_ns {
            Some(passed_ns) if passed_ns < self.window_ns => {
                Moment { now_ns, window, to_end_ns: self.window_ns - passed_ns }
            }
            _ => self.moment_in(self.index(now_ns), now_ns),
        }
    }

    /// A moment once others are in a later window: as of that window.
    #[cold]
    pub(crate) fn catch_up(&self, moment: Moment, late: Late) -> Moment {
        self.moment_in(late.window.max(self.index(moment.now_ns)), moment.now_ns)
    }

    /// A time in its own window or a later one.
    fn moment_in(&self, window: u64, now_ns: u64) -> Moment {
        let end_ns = (u128::from(window) + 1) * u128::from(self.window_ns);
        let to_end_ns = u64::try_from(end_ns - u128::from(now_ns)).unwrap_or(u64::MAX);
        Moment { now_ns, window, to_end_ns }
    }

    /// An empty word of a window, to take the place of an older one.
    #[cold]
    fn renewed(&self, window: u64) -> u64 {
        self.begin(window);
        self.empty(window)
    }

    /// Says that there is a window; before any word is made one of it.
    pub(crate) fn begin(&self, window: u64) {
        self.newest.raise(window, |window| window);
    }

    /// The index of the window that a time lies in.
    #[inline]
    pub(crate) fn index(&self, now_ns: u64) -> u64 {
        self.rate.floor(now_ns)
    }

    /// Whether a moment is in the last eighth of its window.
    #[inline(always)]
    pub(crate) fn is_ending(&self, moment: &Moment) -> bool {
        moment.to_end_ns <= self.window_ns / 8
    }

    /// The newest window that any word was written for.
    #[inline(always)]
    pub(crate) fn newest(&self) -> u64 {
        self.newest.newest()
    }

    /// The first nanosecond of a window, if there is one before time ends.
    pub(crate) fn start_ns(&self, window: u64) -> u64 {
        window.saturating_mul(self.window_ns)
    }

    pub(crate) fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// The bits that a tag leaves.
    #[inline(always)]
    pub(crate) fn payload_bits(&self) -> u32 {
        self.payload_bits
    }

    /// All of them set.
    #[inline(always)]
    pub(crate) fn payload_mask(&self) -> u64 {
        self.payload_mask
    }

    /// How long windows must be at least, if half the tags take less than a second: a thread may be held up for as long.
    pub(crate) fn too_short(&self) -> Option<u64> {
        let half = 1 << (u64::BITS - self.payload_bits - 1);
        let min_ns = 1_000_000_000_u64.div_ceil(half);
        (self.window_ns < min_ns).then_some(min_ns)
    }

    /// An empty word of a window.
    #[inline(always)]
    fn empty(&self, window: u64) -> u64 {
        window << self.payload_bits
    }

    /// How a word, loaded with Acquire, stands to a window, which is the caller's. (One that was never written may be of it by
    /// chance, and holds nothing: its first writer begins the window.)
    #[inline(always)]
    fn age(&self, word: u64, window: u64) -> Result<WordAge, Late> {
        let is_of = word ^ self.empty(window) <= self.payload_mask;
        if is_of { Ok(WordAge::Now) } else { self.apart(word, window) }
    }

    /// How a word stands to a window that it is not of: once for each word and window.
    #[inline(never)]
    fn apart(&self, word: u64, window: u64) -> Result<WordAge, Late> {
        self.keeps_up(window)?;
        self.stand(word, window)
    }

    /// Of words that are not all of a window, which is the caller's, says whether one is of a later one.
    #[cold]
    #[inline(never)]
    fn are_older<const N: usize>(&self, words: [u64; N], window: u64) -> Result<(), Late> {
        for word in words {
            if word ^ self.empty(window) > self.payload_mask {
                self.keeps_up(window)?;
                self.stand(word, window)?;
            }
        }
        Ok(())
    }

    /// Whether a window is not too far behind the newest. To be asked after the word was loaded.
    #[inline(always)]
    fn keeps_up(&self, window: u64) -> Result<(), Late> {
        if window < self.newest.low() {
            let as_of = self.newest.as_of(window);
            if as_of > window {
                return Err(Late { window: as_of });
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn stand(&self, word: u64, window: u64) -> Result<WordAge, Late> {
        // Never written: its tag says nothing.
        if word == 0 {
            return Ok(WordAge::Past);
        }
        let tags = u64::MAX >> self.payload_bits;
        let ahead = (word >> self.payload_bits).wrapping_sub(window) & tags;
        if ahead == tags {
            return Ok(WordAge::Last);
        }
        if ahead > tags / 2 {
            return Ok(WordAge::Past);
        }
        match window.checked_add(ahead) {
            // Its writer raised the newest window before it wrote the word.
            Some(later) if later <= self.newest.newest() => Err(Late { window: later }),
            // The tag has come round.
            _ => Ok(WordAge::Past),
        }
    }

    /// For sketches that hold nothing any more.
    pub(crate) fn clear(&self) {
        self.newest.clear();
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const BITS: u32 = 16;

    #[test]
    fn a_word_is_of_its_window_and_then_old() {
        let windows = Windows::new(1_000, BITS, u64::MAX);
        for window in [0, 1, 7, (1 << BITS) - 1, 1 << BITS, u64::MAX / 1_000 - 1] {
            let word = windows.empty(window) | 1;
            let age = |at| windows.age(word, at);
            assert_eq!(age(window), Ok(WordAge::Now));
            assert_eq!(age(window.wrapping_add(1)), Ok(WordAge::Last));
            for past in [2, 3, 1_000, (1 << (BITS - 1)) - 1, 1 << (BITS - 1)] {
                assert_eq!(age(window.wrapping_add(past)), Ok(WordAge::Past), "{past}");
            }
        }
    }

    #[test]
    fn a_later_window_is_told_from_a_tag_that_came_round() {
        let windows = Windows::new(1_000, BITS, u64::MAX);
        let word = windows.empty(100) | 1;
        assert_eq!(windows.age(word, 99), Ok(WordAge::Past), "no word was written for it");
        windows.begin(100);
        for behind in [1, 2, 10, 100] {
            assert_eq!(windows.age(word, 100 - behind), Err(Late { window: 100 }), "{behind}");
        }
        assert_eq!(windows.age(0, 99), Ok(WordAge::Past));
        // No window comes after the last one.
        let windows = Windows::new(1, BITS, u64::MAX);
        for ahead in 1..5 {
            let word = windows.empty(u64::MAX.wrapping_add(ahead)) | 1;
            assert_eq!(windows.age(word, u64::MAX), Ok(WordAge::Past));
        }
    }

    /// As of as many windows before the newest as it may lag; then, once such windows go on for a second, as of their own.
    #[test]
    fn a_wrong_window_is_given_up() {
        for wrong in [1_010, 1_000_000, u64::MAX / 500_000_000] {
            let windows = Windows::new(500_000_000, BITS, 2);
            windows.begin(wrong);
            let word = windows.empty(wrong) | 1;
            for window in [1_000, 1_001] {
                assert_eq!(windows.age(word, window), Err(Late { window: wrong - 2 }), "{window}");
            }
            assert_eq!(windows.age(word, 1_002), Ok(WordAge::Past));
            assert_eq!(windows.newest(), 1_002);
        }
    }

    /// Times near zero once were in the last window of all, whose end is past the end of time.
    #[test]
    fn the_present_window_is_the_one_that_the_time_is_in() {
        for window_ns in [1_000, 1_000_000_007, 60_000_000_000, u64::MAX / 2, u64::MAX] {
            for newest in [0, 1, 7, u64::MAX / window_ns] {
                let windows = Windows::new(window_ns, BITS, u64::MAX);
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
                    let moment = windows.moment(now);
                    let end = (u128::from(moment.window) + 1) * u128::from(window_ns);
                    assert_eq!(
                        end - u128::from(now),
                        u128::from(moment.to_end_ns),
                        "{window_ns} {newest} {now}"
                    );
                    assert_eq!(moment.window, windows.index(now), "{window_ns} {newest} {now}");
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
