//! What inserts and removals of one shard write beside its index.

use super::GRACE_NS;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};

/// The counts of a shard, the position of its sweeps, and the time of its growth. None of them decides which keys the
/// store has.
// Ordering: Relaxed everywhere. The counts only decide growth and inform users, the position only divides the work among
// threads, and the time only delays sweeps.
pub(super) struct ShardCounts {
    counts: AtomicU64,
    /// The position of the next sweep.
    hand: AtomicU32,
    /// The time at which the index grew, as [`rest_time`].
    grown: AtomicU32,
}

/// The counts of a shard in one word, so that one addition counts an insert. Both are signed: a node is published before
/// it is counted, and may be removed in between.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) live: i32,
    /// Filled words and tombstones of the index.
    pub(super) used: i32,
}

impl Counts {
    /// The word. The sum of two words is the word of the sums.
    pub(super) const fn pack(self) -> u64 {
        ((self.live as i64) << 32).wrapping_add(self.used as i64).cast_unsigned()
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes the word apart")]
    pub(super) const fn unpack(word: u64) -> Self {
        let used = word as i32;
        Self { live: (word.cast_signed().wrapping_sub(used as i64) >> 32) as i32, used }
    }
}

/// A time in units of 2^20 ns. It wraps after 52 days. Then a shard may rest once more, for one grace period.
fn rest_time(now_ns: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "wraps on purpose")]
    let units = (now_ns >> 20) as u32;
    units
}

impl ShardCounts {
    pub(super) fn new() -> Self {
        Self { counts: AtomicU64::new(0), hand: AtomicU32::new(0), grown: AtomicU32::new(0) }
    }

    pub(super) fn get(&self) -> Counts {
        Counts::unpack(self.counts.load(Ordering::Relaxed))
    }

    /// Adds to the counts, and returns the sums.
    pub(super) fn add(&self, live: i32, used: i32) -> Counts {
        let more = Counts { live, used }.pack();
        Counts::unpack(self.counts.fetch_add(more, Ordering::Relaxed).wrapping_add(more))
    }

    /// Returns the position, and moves it by this number of words.
    pub(super) fn advance(&self, words: u32) -> usize {
        self.hand.fetch_add(words, Ordering::Relaxed) as usize
    }

    /// Records that the index grew at `now_ns`.
    pub(super) fn grew(&self, now_ns: u64) {
        self.grown.store(rest_time(now_ns), Ordering::Relaxed);
    }

    /// Whether the index grew less than a grace period ago.
    pub(super) fn rests(&self, now_ns: u64) -> bool {
        rest_time(now_ns).wrapping_sub(self.grown.load(Ordering::Relaxed)) <= rest_time(GRACE_NS)
    }
}
