//! What inserts and removals of one shard write beside its index.

use super::GRACE_NS;
use crate::base::sync::{AtomicU32, Ordering};

/// The counts of a shard, the position of its sweeps, and the time of its growth. None of them decides which keys the
/// store has.
// Ordering: Relaxed everywhere. The counts only decide growth and inform users, the position only divides the work among
// threads, and the time only delays sweeps.
pub(super) struct ShardCounts {
    /// The number of nodes: signed, because a node is published before it is counted, and may be removed in between.
    live: AtomicU32,
    /// About as many as the index has filled words and tombstones. See [`ShardCounts::use_word`].
    used: AtomicU32,
    /// The position of the next sweep.
    hand: AtomicU32,
    /// The time at which the index grew, as [`rest_time`].
    grown: AtomicU32,
}

/// A time in units of 2^20 ns. It wraps after 52 days. Then a shard may rest once more, for one grace period.
fn rest_time(now_ns: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "wraps on purpose")]
    let units = (now_ns >> 20) as u32;
    units
}

impl ShardCounts {
    pub(super) fn new() -> Self {
        let zero = || AtomicU32::new(0);
        Self { live: zero(), used: zero(), hand: zero(), grown: zero() }
    }

    pub(super) fn live(&self) -> i32 {
        self.live.load(Ordering::Relaxed).cast_signed()
    }

    /// Adds to the number of nodes.
    pub(super) fn add(&self, nodes: i32) {
        self.live.fetch_add(nodes.cast_unsigned(), Ordering::Relaxed);
    }

    /// Counts a word that was just filled, and returns the number of used words.
    ///
    /// This is a load and a store, because a key that replaces another one would otherwise take one locked instruction
    /// more. If a thread is interrupted between the two, the words that other threads count meanwhile are missing, so the
    /// index fills up more before it is rebuilt. For a large shard this is a small part of the index, because an interruption
    /// is short. A small shard may become full. An insert that finds no empty slot rebuilds the index in any case. Each
    /// rebuild counts from the beginning.
    pub(super) fn use_word(&self) -> u32 {
        let used = self.used.load(Ordering::Relaxed).wrapping_add(1);
        self.used.store(used, Ordering::Relaxed);
        used
    }

    /// Records that the shard has an index with this number of used words. Words that other threads fill and count at this
    /// moment may be missing, or counted although they are in the earlier index.
    pub(super) fn renew_used(&self, words: usize) {
        self.used.store(u32::try_from(words).unwrap_or(u32::MAX), Ordering::Relaxed);
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
