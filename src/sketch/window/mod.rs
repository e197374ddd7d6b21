//! Sketches that count in windows of time. No thread needs to clear an old window.
//!
//! ```text
//! word = [ tag | payload ]        tag: the index of the payload's window, modulo 2^bits
//! ```
//! Time is divided into windows of equal length, aligned to the Unix epoch. A word works in these steps:
//!
//! 1. A writer raises the *newest window* ([`Newest`]) to its own window before it writes the word.
//! 2. It writes the payload and the tag of its window in one exchange.
//! 3. A caller in the same window reads the payload.
//! 4. A caller in a later window takes the word as empty. Its next write replaces payload and tag in one exchange.
//! 5. A caller in an earlier window is *late*. It starts again in the word's window.
//!
//! So no code clears or swaps memory, and no call is slow because a new window begins. If the previous window counts
//! too, words come in pairs: one for even windows and one for odd windows.
//!
//! | part | a word's payload |
//! |---|---|
//! | [`WindowCounters`] | as many counters as fit: a count-min sketch with conservative update |
//! | [`WindowedBloom`] | bits: a register-blocked Bloom filter that detects the first request of a key in a window |
//!
//! # Threads that lag, and clocks that differ
//! A late caller starts again in the later window. So it never takes the counts of a later window for those of a past
//! window. A tag alone cannot distinguish a later window from an old window whose tag value has repeated. The newest
//! window decides: if the tag stands for a window up to the newest window, the caller is late. Otherwise the word is
//! old.
//!
//! Suppose that no thread writes a word for exactly as many windows as there are tag values. Then the word seems to
//! belong to the current window for one window, and its old counts are charged to the keys that share it. There are
//! enough tag values for three months, if the payload leaves room ([`tag_bits`]).

mod counters;
#[cfg(all(test, tollgate_loom))]
mod models;
mod windowed_bloom;

pub(crate) use self::counters::{Commit, Lines, Rows, WindowCounters};
pub(crate) use self::windowed_bloom::{Insert, Known, Probe, WindowedBloom};
use crate::algorithm::compact::ticks::TickRate;
use crate::base::check_time::{CheckTime, Newest};

/// The fewest and the most bits of a tag.
const TAG_BITS: std::ops::RangeInclusive<u32> = 16..=24;
/// The time after which tags should repeat at the earliest, unless the tag already has the most bits: three months.
const ROUND_NS: u64 = 90 * 86_400 * 1_000_000_000;

/// Returns the number of tag bits for windows of this length.
pub(crate) fn tag_bits(window_ns: u64) -> u32 {
    let windows = ROUND_NS / window_ns.max(1);
    (u64::BITS - windows.leading_zeros()).clamp(*TAG_BITS.start(), *TAG_BITS.end())
}

/// Windows of time, and the tags of their words.
#[derive(Debug)]
pub(crate) struct Windows {
    rate: TickRate,
    window_ns: u64,
    /// The number of bits that a tag leaves.
    payload_bits: u32,
    /// A mask of the payload bits.
    payload_mask: u64,
    /// The newest window of any write. All callers read it; it is written once per window.
    newest: Newest,
    /// A word that is ahead of a caller by more windows than this has a wrong time, and counts as an old word.
    trusted: u64,
}

/// The error of a late caller: another thread's word belongs to this later window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Late {
    pub(crate) window: u64,
}

/// A clock reading, and the window in which it counts. This window is later than the window of the clock reading if the
/// caller is late.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) now_ns: u64,
    pub(crate) window: u64,
    /// The time from `now_ns` to the end of the window.
    pub(crate) to_end_ns: u64,
}

/// Returns the number of the word that belongs to a window. If words come in pairs (`odd` is 1), the number is 0 for
/// even windows and 1 for odd windows. Otherwise it is 0.
#[inline(always)]
fn parity(window: u64, odd: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "one bit, or none")]
    let parity = window as usize & odd;
    parity
}

/// The window of a word, relative to the caller's window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum WordAge {
    /// The word belongs to the caller's window.
    Now,
    /// The word belongs to the window before.
    Last,
    /// The word belongs to an older window, or was never written.
    Past,
}

impl Windows {
    /// Creates windows of `window_ns` nanoseconds, which is not zero.
    ///
    /// If a caller's window is behind the newest by more than `lag`, or by more than a quarter of the tag values, the
    /// caller counts as that far behind.
    pub(crate) fn new(window_ns: u64, tag_bits: u32, lag: u64) -> Self {
        let newest = Newest::new(0, lag.min(1 << (tag_bits - 2)), 1_000_000_000_u64.div_ceil(window_ns));
        let payload_bits = u64::BITS - tag_bits;
        let payload_mask = u64::MAX >> tag_bits;
        let rate = TickRate::new(1, window_ns);
        Self { rate, window_ns, payload_bits, payload_mask, newest, trusted: u64::MAX }
    }

    /// The same windows, but callers are late only for words that are ahead by at most a second, or by one window if that
    /// is longer. A word further ahead has a wrong time. It counts as an old word, so that this time binds no other key
    /// of the word.
    pub(crate) fn trusting_a_second(mut self) -> Self {
        self.trusted = 1_000_000_000_u64.div_ceil(self.window_ns);
        self
    }

    /// Whether a caller whose own window is `own` counts in the later window of a word.
    pub(crate) const fn trusts(&self, own: u64, late: Late) -> bool {
        late.window.saturating_sub(own) <= self.trusted
    }

    /// Returns a clock reading with its own window. In most cases this is the newest window, which needs no division.
    #[inline(always)]
    pub(crate) fn moment(&self, now_ns: u64) -> Moment {
        // A prediction, which the clock reading confirms.
        let window = self.newest.newest();
        let passed_ns = window.checked_mul(self.window_ns).and_then(|start_ns| now_ns.checked_sub(start_ns));
        match passed_ns {
            Some(passed_ns) if passed_ns < self.window_ns => {
                Moment { now_ns, window, to_end_ns: self.window_ns - passed_ns }
            }
            _ => self.moment_in(self.index(now_ns), now_ns),
        }
    }

    /// Moves the moment of a late caller to the later window.
    #[cold]
    pub(crate) fn catch_up(&self, moment: Moment, late: Late) -> Moment {
        self.moment_in(late.window.max(self.index(moment.now_ns)), moment.now_ns)
    }

    /// Returns the time at which a caller counts in a window: its own, or the window's start if the caller is late. Also
    /// returns the time between the two.
    #[inline]
    pub(crate) fn caught_up(&self, window: u64, at: CheckTime) -> (CheckTime, u64) {
        let when_ns = self.start_ns(window).max(at.ns());
        (CheckTime::from_ns(when_ns), when_ns - at.ns())
    }

    /// Returns a clock reading with its own window or a later one.
    fn moment_in(&self, window: u64, now_ns: u64) -> Moment {
        let end_ns = (u128::from(window) + 1) * u128::from(self.window_ns);
        let to_end_ns = u64::try_from(end_ns - u128::from(now_ns)).unwrap_or(u64::MAX);
        Moment { now_ns, window, to_end_ns }
    }

    /// Returns an empty word of a window, which replaces an older word.
    #[cold]
    fn renewed(&self, window: u64) -> u64 {
        self.begin(window);
        self.empty(window)
    }

    /// Announces a window. A writer calls it before it writes a word of this window.
    pub(crate) fn begin(&self, window: u64) {
        self.newest.raise(window, |window| window);
    }

    /// Returns the index of the window that contains a time.
    #[inline]
    pub(crate) fn index(&self, now_ns: u64) -> u64 {
        self.rate.floor(now_ns)
    }

    /// Returns whether a moment is in the last eighth of its window.
    #[inline(always)]
    pub(crate) fn is_ending(&self, moment: &Moment) -> bool {
        moment.to_end_ns <= self.window_ns / 8
    }

    /// Returns the newest window that any word was written for.
    #[inline(always)]
    pub(crate) fn newest(&self) -> u64 {
        self.newest.newest()
    }

    /// Returns the first nanosecond of a window; saturates at `u64::MAX`.
    pub(crate) fn start_ns(&self, window: u64) -> u64 {
        window.saturating_mul(self.window_ns)
    }

    pub(crate) fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// Returns the number of bits that a tag leaves.
    #[inline(always)]
    pub(crate) fn payload_bits(&self) -> u32 {
        self.payload_bits
    }

    /// Returns a mask of the payload bits.
    #[inline(always)]
    pub(crate) fn payload_mask(&self) -> u64 {
        self.payload_mask
    }

    /// Returns the shortest allowed window if this window is shorter. Half the tag values must take at least a second,
    /// because a thread may be preempted for that long.
    pub(crate) fn too_short(&self) -> Option<u64> {
        let half = 1 << (u64::BITS - self.payload_bits - 1);
        let min_ns = 1_000_000_000_u64.div_ceil(half);
        (self.window_ns < min_ns).then_some(min_ns)
    }

    /// Returns an empty word of a window.
    #[inline(always)]
    fn empty(&self, window: u64) -> u64 {
        window << self.payload_bits
    }

    /// Returns the age of a word relative to the caller's window. The caller has loaded the word with Acquire. (A
    /// word that was never written may match the window by chance. It holds nothing, and its first writer announces
    /// the window.)
    #[inline(always)]
    fn age(&self, word: u64, window: u64) -> Result<WordAge, Late> {
        let is_of = word ^ self.empty(window) <= self.payload_mask;
        if is_of { Ok(WordAge::Now) } else { self.apart(word, window) }
    }

    /// Returns the age of a word that does not belong to the window. This happens once for each word and window.
    #[inline(never)]
    fn apart(&self, word: u64, window: u64) -> Result<WordAge, Late> {
        self.check_lag(window)?;
        self.stand(word, window)
    }

    /// Checks words that do not all belong to the caller's window. It returns an error if a word belongs to a later
    /// window.
    #[cold]
    #[inline(never)]
    fn check_older<const N: usize>(&self, words: [u64; N], window: u64) -> Result<(), Late> {
        for word in words {
            if word ^ self.empty(window) > self.payload_mask {
                self.check_lag(window)?;
                self.stand(word, window)?;
            }
        }
        Ok(())
    }

    /// Checks that a window is not too far behind the newest. The caller must have loaded the word before.
    #[inline(always)]
    fn check_lag(&self, window: u64) -> Result<(), Late> {
        if window < self.newest.low() {
            let late = Late { window: self.newest.as_of(window) };
            if late.window > window && self.trusts(window, late) {
                return Err(late);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn stand(&self, word: u64, window: u64) -> Result<WordAge, Late> {
        // The word was never written, so its tag means nothing.
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
            // The writer raised the newest window before it wrote the word.
            Some(later) if later <= self.newest.newest() && ahead <= self.trusted => {
                Err(Late { window: later })
            }
            // The tag value has repeated, or the word has a wrong time.
            _ => Ok(WordAge::Past),
        }
    }

    /// Resets the newest window, for sketches that were cleared.
    pub(crate) fn clear(&self) {
        self.newest.clear();
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const BITS: u32 = 16;

    #[test]
    fn word_age_follows_its_window() {
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
    fn later_window_differs_from_repeated_tag() {
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

    /// At first, a caller counts as being behind the newest window by the allowed lag. After a second of such windows,
    /// the wrong newest window is dropped, and callers count in their own windows.
    // G40
    #[test]
    fn wrong_newest_window_is_given_up() {
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

    /// Regression test. The end of the last window is past `u64::MAX` nanoseconds. Times near zero were once taken to
    /// be in that window.
    #[test]
    fn moment_is_in_window_of_its_time() {
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
    fn tag_bits_cover_months_if_possible() {
        assert_eq!(tag_bits(u64::MAX), 16);
        assert_eq!(tag_bits(60_000_000_000), 17);
        assert_eq!(tag_bits(1_000_000_000), 23);
        assert_eq!((tag_bits(1), tag_bits(0)), (24, 24));
    }
}
