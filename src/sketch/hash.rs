//! How a sketch or a table makes places of a hash.

/// A multiplier of 64 bits for linear congruential generators whose figures of merit in the spectral test are
/// 0.96 in two dimensions down to 0.76 in eight, of 1 at most.
///
/// # Source
/// Steele and Vigna 2021, "Computationally easy, spectrally good multipliers for congruential pseudorandom
/// number generators".
#[cfg(feature = "std")]
pub(crate) const MULTIPLIER: u64 = 0xD134_2543_DE82_EF95;

/// Spreads an identity over all bits, so that parts of it can be used as independent hashes.
///
/// # Source
/// The finalizer of MurmurHash3 (A. Appleby), with the constants of D. Stafford's variant 13.
#[inline]
pub(crate) const fn mix(identity: u64) -> u64 {
    let mut hash = identity;
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

/// An index below `len`, by the top bits of `hash`.
#[inline]
pub(crate) const fn scale(hash: u64, len: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "below `len`")]
    let index = ((hash as u128 * len as u128) >> 64) as usize;
    index
}

/// A hash as a fraction of one, from which indices are drawn: each is the whole part of a multiple of the fraction, and what is
/// left is the fraction for the next. So independent indices of any range take a multiplication each, as long as
/// the product of the ranges is far below 2^64.
///
/// # Source
/// Brackett-Rozinsky and Lemire 2024, "Batched ranged random integer generation".
#[cfg(feature = "std")]
#[derive(Copy, Clone, Debug)]
pub(crate) struct Fraction(pub(crate) u64);

#[cfg(feature = "std")]
impl Fraction {
    /// An index below `len` (not zero).
    #[inline(always)]
    pub(crate) fn draw(&mut self, len: usize) -> usize {
        let product = u128::from(self.0) * len as u128;
        #[expect(clippy::cast_possible_truncation, reason = "the lower half, and an index below `len`")]
        let (rest, index) = (product as u64, (product >> 64) as usize);
        self.0 = rest;
        index
    }
}

/// The places of a key's four counters, in two of `2 * lines` lines of `LINE` counters: one in each half, and two different
/// counters in each. The second counter is chosen by the hash's bits from `SHIFT` on.
#[inline]
pub(crate) fn places<const LINE: usize, const SHIFT: u32>(hash: u64, lines: usize) -> [usize; 4] {
    let other = mix(hash);
    let first = scale(hash, lines) * LINE;
    let second = (lines + scale(other, lines)) * LINE;
    #[expect(clippy::cast_possible_truncation, reason = "fewer bits than a line has counters")]
    let bits = |value: u64, shift: u32| (value >> shift) as usize & (LINE - 1);
    let (a, b) = (bits(hash, 0), bits(other, 0));
    // The distance to a line's second counter is 1 to LINE - 1.
    // (Not a remainder of LINE - 1, which is one in the models.)
    let apart = |place: usize, distance: usize| (place + distance.max(1)) & (LINE - 1);
    [first + a, first + apart(a, bits(hash, SHIFT)), second + b, second + apart(b, bits(other, SHIFT))]
}
