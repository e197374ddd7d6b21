//! The word of one slot, and how its state compares with a reference.
//!
//! ```text
//! word = [ state : 40 | fingerprint : 24 ]        0 = empty
//! ```
//! The state is in the upper bits, so that it wraps without a mask. One subtraction tells whether a word belongs to a
//! key, and how far its state is ahead.

use crate::algorithm::compact::STATE_BITS;

/// Bits of the key's hash that a slot keeps.
pub(crate) const FINGERPRINT_BITS: u32 = u64::BITS - STATE_BITS;
/// The word of a slot that was never used.
pub(crate) const EMPTY: u64 = 0;
const FINGERPRINT_MASK: u64 = (1 << FINGERPRINT_BITS) - 1;

/// A slot's word: the key's fingerprint and state. Never [`EMPTY`], since no fingerprint is zero.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct SlotWord {
    pub(crate) fingerprint: u64,
    pub(crate) state: u64,
}

impl SlotWord {
    /// Packs a word. `fingerprint` has 24 bits; only the low 40 bits of the state are kept.
    #[inline]
    pub(crate) const fn pack(fingerprint: u64, state: u64) -> u64 {
        (state << FINGERPRINT_BITS) | fingerprint
    }

    #[inline]
    pub(crate) const fn unpack(word: u64) -> Self {
        Self { fingerprint: word & FINGERPRINT_MASK, state: word >> FINGERPRINT_BITS }
    }
}

/// The position of a state relative to a reference, in a range of 2^`BITS` that wraps.
///
/// ```text
///      reference        + horizon                    + half the range
/// ---------+----------------+------------------------------+-------------------------------> state
///  Idle    |  Ahead         |  Unsure: the reader's clock  |  Idle: the state is behind
///          |                |  lags, or the word is from   |  by up to half the range
///          |                |  an earlier round            |
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SlotStanding {
    /// At the reference or behind it: the same as absent.
    Idle,
    /// Ahead by this distance.
    Ahead(u64),
    /// Ahead by this distance, which is more than the horizon. No writer whose clock agrees with the reader's can set
    /// such a state.
    Unsure(u64),
}

/// Returns how far `word` is ahead of `from`, modulo 2^40, or 2^40 or more if their fingerprints differ. So one comparison with a horizon
/// also compares the fingerprints.
#[inline(always)]
pub(crate) const fn distance(word: u64, from: u64) -> u64 {
    // The fingerprints' difference, which becomes the top bits, is zero only if they are equal; then the states' difference has no
    // borrow.
    word.wrapping_sub(from).rotate_right(FINGERPRINT_BITS)
}

/// Returns whether a [`distance`] means that the fingerprints are equal.
#[inline(always)]
pub(crate) const fn is_own(distance: u64) -> bool {
    distance >> STATE_BITS == 0
}

/// Returns whether a [`distance`] means that the fingerprints are equal, and that the state is behind.
#[inline(always)]
pub(crate) const fn is_own_and_behind(distance: u64) -> bool {
    distance >> (STATE_BITS - 1) == 1
}

/// Returns whether a distance modulo 2^`BITS` means that the state is behind, by up to half the range.
#[inline(always)]
pub(crate) const fn is_behind<const BITS: u32>(distance: u64) -> bool {
    distance >> (BITS - 1) != 0
}

/// Returns the standing of `state` relative to `reference`, both modulo 2^`BITS`.
#[inline(always)]
pub(crate) const fn standing<const BITS: u32>(state: u64, reference: u64, horizon: u64) -> SlotStanding {
    let ahead = state.wrapping_sub(reference) & (u64::MAX >> (u64::BITS - BITS));
    // One comparison for the common case: a distance of zero wraps to the maximum.
    if ahead.wrapping_sub(1) < horizon {
        SlotStanding::Ahead(ahead)
    } else if ahead == 0 || is_behind::<BITS>(ahead) {
        SlotStanding::Idle
    } else {
        SlotStanding::Unsure(ahead)
    }
}

/// Returns how far `state` is ahead of `reference` (negative if behind), both modulo 2^`BITS`, idle or not. Stores
/// order states by this number.
#[inline]
pub(crate) const fn order<const BITS: u32>(state: u64, reference: u64) -> i64 {
    let unused = u64::BITS - BITS;
    (state.wrapping_sub(reference) << unused).cast_signed() >> unused
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn slot_words_round_trip() {
        for fingerprint in [1, 2, (1 << FINGERPRINT_BITS) - 1] {
            for state in [0, 1, u64::MAX >> FINGERPRINT_BITS] {
                let word = SlotWord::pack(fingerprint, state);
                assert_ne!(word, EMPTY);
                assert_eq!(SlotWord::unpack(word), SlotWord { fingerprint, state });
                assert_eq!(SlotWord::pack(fingerprint, state | (7 << STATE_BITS)), word);
            }
        }
    }

    #[test]
    fn slot_distance_wraps() {
        let most = u64::MAX >> FINGERPRINT_BITS;
        for (state, from, ahead) in [(5, 3, 2), (3, 5, most - 1), (0, most, 1), (most, 0, most), (7, 7, 0)] {
            for fingerprint in [1, 2, (1 << FINGERPRINT_BITS) - 1] {
                let from = |fingerprint| SlotWord::pack(fingerprint, from);
                let word = SlotWord::pack(fingerprint, state);
                let own = distance(word, from(fingerprint));
                assert_eq!((own, is_own_and_behind(own)), (ahead, ahead > most / 2));
                for other in [distance(word, from(fingerprint ^ 1)), distance(EMPTY, from(fingerprint))] {
                    assert!(!is_own(other) && !is_own_and_behind(other) && other > most);
                }
            }
        }
    }

    /// Compares every state with every reference of four bits, and checks the results against whole numbers.
    #[test]
    fn four_bit_standings_match_whole_numbers() {
        const HORIZON: u64 = 2;
        for reference in 100..132_u64 {
            for distance in -8..8_i64 {
                let state = reference.checked_add_signed(distance).unwrap() & 15;
                let expected = match distance {
                    ..=0 => SlotStanding::Idle,
                    1..=2 => SlotStanding::Ahead(distance.unsigned_abs()),
                    _ => SlotStanding::Unsure(distance.unsigned_abs()),
                };
                assert_eq!(standing::<4>(state, reference, HORIZON), expected, "{distance}");
                assert_eq!(order::<4>(state, reference), distance, "{state} against {reference}");
            }
        }
    }
}
