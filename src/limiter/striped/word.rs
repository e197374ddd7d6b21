//! The word of a stripe: a lease, and the size of the next block.
//!
//! ```text
//! word = [ expiry : 64 - b | log2 of the block : 5 | units : b - 5 ]        0 = no lease
//! ```
//!
//! The expiry is a time in ticks of 2^b ns, rounded down. The word's upper bits are therefore the clock's upper bits.
//! The expiry is absolute, so it never wraps within the whole range of [`Timestamp`](crate::Timestamp).
//!
//! ```text
//!                 life            life
//!          |<------------->|<------------->|
//! ---------+---------------+---------------+---------------> now
//!   none   |  alive for    |  alive        |  none: expired
//!          |  late times   |               |
//!          |               taken           expiry
//! ```
//!
//! A lease is alive from one life before it was taken until its expiry. A thread that read its clock just before the
//! lease was taken can therefore spend it. For earlier times the lease does not exist, however far the clock steps
//! back.

use crate::base::sync::{AtomicU64, Ordering};

/// Bits of the block's logarithm.
const BLOCK_BITS: u32 = 5;
/// The least number of bits below the expiry. A tick is at least 2^12 ns, about 4 µs, and at least 127 units fit in a
/// word.
const MIN_TICK_BITS: u32 = 12;
/// The longest life of a lease: one hour, in nanoseconds.
const MAX_LIFE_NS: u64 = 3_600_000_000_000;

/// The fields of a word, for one life of leases.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct StripeLayout {
    /// A mask of all bits below the expiry. As a number: a tick less one nanosecond.
    below: u64,
    /// A mask of the bits of the units. As a number: the most units that a word can hold.
    units: u64,
    /// The longest life of a lease, in nanoseconds. At least one tick, or 0 if words hold no units.
    life_ns: u64,
    /// Two lives, in whole ticks.
    span_ns: u64,
}

impl StripeLayout {
    /// Uses ticks of about a sixteenth of the life. A lease can therefore end earlier by less than that.
    pub(super) const fn new(life_ns: u64) -> Self {
        let life_ns = if life_ns < MAX_LIFE_NS { life_ns } else { MAX_LIFE_NS };
        let tick_bits = match (life_ns / 16).checked_ilog2() {
            Some(bits) if bits > MIN_TICK_BITS => bits,
            _ => MIN_TICK_BITS,
        };
        let below = (1 << tick_bits) - 1;
        let life_ns = if life_ns > below { life_ns } else { 0 };
        Self { below, units: below >> BLOCK_BITS, life_ns, span_ns: (2 * life_ns) & !below }
    }

    pub(super) const fn life_ns(&self) -> u64 {
        self.life_ns
    }

    /// Returns the most units that a word can hold.
    pub(super) const fn most(&self) -> u64 {
        self.units
    }

    /// Returns the expiry of units that are taken at `now_ns` for `life_ns`. Returns 0, an expiry that has always
    /// passed, if a word cannot represent the expiry.
    pub(super) const fn expiry(&self, now_ns: u64, life_ns: u64) -> u64 {
        let life_ns = if life_ns < self.life_ns { life_ns } else { self.life_ns };
        match now_ns.checked_add(life_ns) {
            Some(expiry) => expiry & !self.below,
            None => 0,
        }
    }

    /// Packs a lease into a word. Units beyond the word's capacity are lost; deposits are split before this call.
    #[inline]
    pub(super) const fn pack(&self, expiry: u64, block_log2: u32, units: u64) -> u64 {
        let units = if units < self.units { units } else { self.units };
        (expiry & !self.below) | ((block_log2 as u64) << self.units.count_ones()) | units
    }

    #[inline]
    pub(super) const fn expiry_of(&self, word: u64) -> u64 {
        word & !self.below
    }

    pub(super) const fn block_log2(&self, word: u64) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "five bits")]
        let log2 = ((word & self.below) >> self.units.count_ones()) as u32;
        log2
    }

    /// Returns whether a word's lease, or a lease with this expiry, exists at `now_ns`.
    #[inline(always)]
    pub(super) const fn is_alive(&self, word: u64, now_ns: u64) -> bool {
        // The difference counts from the end of the present tick. One comparison is enough: for an expired lease the
        // difference is 0, and wraps.
        word.saturating_sub(now_ns | self.below).wrapping_sub(1) < self.span_ns
    }

    /// Returns the units that can be spent at `now_ns`.
    #[inline(always)]
    pub(super) const fn held(&self, word: u64, now_ns: u64) -> u64 {
        if self.is_alive(word, now_ns) { self.units_of(word) } else { 0 }
    }

    /// Returns the units in a word, alive or expired.
    #[inline(always)]
    pub(super) const fn units_of(&self, word: u64) -> u64 {
        word & self.units
    }

    /// Returns whether the stripe's lease is alive, or was alive within the last life.
    pub(super) const fn is_recent(&self, word: u64, now_ns: u64) -> bool {
        let expiry = self.expiry_of(word);
        // An expiry of 0 means that there was no lease.
        self.is_alive(word, now_ns) || expiry > 0 && expiry <= now_ns && now_ns - expiry < self.life_ns
    }

    /// Returns the logarithm of the next block, if the last block holds too few units at `now_ns`. The block doubles if
    /// the last one was used up in the first half of its life. It halves if the last one expired with units left, and
    /// again for each life that has passed since the expiry.
    pub(super) const fn next_log2(&self, word: u64, now_ns: u64) -> u32 {
        let (log2, expiry) = (self.block_log2(word), self.expiry_of(word));
        if self.is_alive(word, now_ns) {
            return if expiry - now_ns > self.life_ns / 2 { log2 + 1 } else { log2 };
        }
        let lives = match now_ns.checked_sub(expiry) {
            Some(since_ns) if self.life_ns > 0 => since_ns / self.life_ns,
            // The lease was taken at a time far ahead, or a word can hold nothing.
            _ => return 0,
        };
        let lives = if lives < u32::MAX as u64 { lives } else { u32::MAX as u64 };
        #[expect(clippy::cast_possible_truncation, reason = "at most u32::MAX, by the line above")]
        let lives = lives as u32;
        log2.saturating_sub((word & self.units > 0) as u32).saturating_sub(lives)
    }
}

/// The units that one call holds so far. They must be spent before the earliest expiry of their pieces.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Gathered {
    pub(super) units: u64,
    pub(super) expiry: u64,
}

impl Gathered {
    pub(super) const EMPTY: Self = Self { units: 0, expiry: u64::MAX };

    pub(super) fn add(&mut self, piece: Self) {
        if piece.units > 0 {
            self.units = self.units.saturating_add(piece.units);
            self.expiry = self.expiry.min(piece.expiry);
        }
    }
}

/// Exchanges a word if it still equals the word that was read.
#[inline(always)]
pub(super) fn exchange(place: &AtomicU64, word: u64, next: u64) -> bool {
    // Ordering: Relaxed; see the text of `striped`.
    place.compare_exchange(word, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn lease_is_alive_for_one_life() {
        for life_ns in [70_000, MS, 10 * MS, 1_000 * MS, MAX_LIFE_NS] {
            let layout = StripeLayout::new(life_ns);
            let tick = layout.below + 1;
            assert!(tick <= life_ns / 16 || tick == 1 << MIN_TICK_BITS);
            for taken in [0, 1, tick - 1, tick, 1_700_000_000_000 * MS + 12_345, u64::MAX - life_ns] {
                let word = layout.pack(layout.expiry(taken, life_ns), 3, 7);
                assert_eq!(layout.held(word, taken), 7);
                assert_eq!(
                    layout.held(word, taken + life_ns - tick),
                    7,
                    "{taken}: alive one tick before the end"
                );
                assert_eq!(layout.held(word, taken + life_ns), 0, "{taken}: expired after one life");
                assert_eq!(layout.held(word, u64::MAX), 0, "{taken}");
                if let Some(late) = taken.checked_sub(life_ns - tick) {
                    assert_eq!(layout.held(word, late), 7, "alive for a late time");
                }
                if let Some(long_ago) = taken.checked_sub(life_ns + tick) {
                    assert_eq!(layout.held(word, long_ago), 0, "no lease for a much earlier time");
                    assert_eq!(layout.held(word, 0), 0);
                }
            }
        }
    }

    #[test]
    fn unrepresentable_expiry_is_past() {
        for life_ns in [0, 1, (1 << MIN_TICK_BITS) - 1] {
            let layout = StripeLayout::new(life_ns);
            for now in [0, 1, 1 << 40, u64::MAX] {
                let word = layout.pack(layout.expiry(now, u64::MAX), 3, 7);
                assert_eq!(
                    layout.held(word, now),
                    0,
                    "a word holds no units if the life is shorter than a tick"
                );
                assert_eq!(layout.next_log2(word, now), 0);
            }
        }
        let layout = StripeLayout::new(10 * MS);
        assert_eq!(layout.expiry(u64::MAX - 1, u64::MAX), 0, "the expiry would be after the last time");
        assert_eq!(layout.held(layout.pack(0, 31, 9), 0), 0);
        assert_eq!(layout.held(0, 0), 0);
        assert_eq!(StripeLayout::new(u64::MAX), StripeLayout::new(MAX_LIFE_NS));
    }

    #[test]
    fn stripe_fields_do_not_overlap() {
        let layout = StripeLayout::new(10 * MS);
        for (log2, units) in [(0, 0), (31, 0), (0, u64::MAX), (31, 5), (17, layout.most())] {
            let word = layout.pack(layout.expiry(1 << 50, u64::MAX), log2, units);
            assert_eq!(layout.expiry_of(word), layout.expiry(1 << 50, u64::MAX));
            assert_eq!(layout.block_log2(word), log2);
            assert_eq!(layout.held(word, 1 << 50), units.min(layout.most()));
        }
    }

    // G52
    #[test]
    fn blocks_follow_use() {
        let life_ns = 16 << 20;
        let layout = StripeLayout::new(life_ns);
        let taken = 1 << 50;
        let next = |units, after| {
            let word = layout.pack(layout.expiry(taken, life_ns), 5, units);
            layout.next_log2(word, taken + after)
        };
        assert_eq!(next(0, 0), 6, "used up at once");
        assert_eq!(next(2, life_ns / 2 - 1), 6, "too few units left in the first half");
        assert_eq!(next(0, life_ns / 2), 5, "used up in the second half");
        assert_eq!(next(0, life_ns), 5, "used up, and no request until the expiry");
        assert_eq!(next(1, life_ns), 4, "expired with units left");
        assert_eq!(next(1, 3 * life_ns), 2, "expired with units left two lives ago");
        assert_eq!(next(9, 1 << 55), 0);
        assert_eq!(layout.next_log2(0, taken), 0, "never used");
        assert_eq!(layout.next_log2(layout.pack(1 << 60, 5, 9), taken), 0, "taken at a time far ahead");
    }

    #[test]
    fn stripe_is_recent_for_one_life() {
        let layout = StripeLayout::new(16 << 20);
        let word = layout.pack(layout.expiry(1 << 50, u64::MAX), 5, 0);
        let expiry = layout.expiry_of(word);
        assert!(layout.is_recent(word, 1 << 50));
        assert!(layout.is_recent(word, expiry + (16 << 20) - 1));
        assert!(!layout.is_recent(word, expiry + (16 << 20)));
        assert!(!layout.is_recent(0, 1 << 50));
        assert!(!layout.is_recent(0, 0) && !layout.is_recent(0, 1 << 20), "never used");
        let first = layout.pack(layout.expiry(0, u64::MAX), 5, 0);
        assert!(layout.is_recent(first, 0) && layout.is_recent(first, (32 << 20) - 1));
        assert!(!layout.is_recent(word, 0));
    }
}
