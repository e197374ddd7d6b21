//! Functions that derive indices in a sketch or a table from a hash.

/// A 64-bit multiplier for linear congruential generators. Its figures of merit in the spectral test fall from 0.96
/// in two dimensions to 0.76 in eight; the best possible figure is 1.
///
/// # Source
/// Steele and Vigna 2021, "Computationally easy, spectrally good multipliers for congruential pseudorandom
/// number generators".
#[cfg(feature = "std")]
pub(crate) const MULTIPLIER: u64 = 0xD134_2543_DE82_EF95;

/// Spreads an identity over all bits, so that the caller can use parts of the result as independent hashes.
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

/// Returns an index below `len`, from the top bits of `hash`.
#[inline]
pub(crate) const fn scale(hash: u64, len: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "below `len`")]
    let index = ((hash as u128 * len as u128) >> 64) as usize;
    index
}

/// A hash, read as a fraction between 0 and 1, from which the caller draws indices. Each draw multiplies the fraction
/// by the range. The integer part is the index, and the fractional part is the fraction for the next draw. So each
/// independent index takes one multiplication, for any range. The product of all ranges must be far below 2^64.
///
/// # Source
/// Brackett-Rozinsky and Lemire 2024, "Batched ranged random integer generation".
#[cfg(feature = "std")]
#[derive(Copy, Clone, Debug)]
pub(crate) struct Fraction(pub(crate) u64);

#[cfg(feature = "std")]
impl Fraction {
    /// Returns an index below `len`, which is not zero.
    #[inline(always)]
    pub(crate) fn draw(&mut self, len: usize) -> usize {
        let product = u128::from(self.0) * len as u128;
        #[expect(clippy::cast_possible_truncation, reason = "the lower half, and an index below `len`")]
        let (rest, index) = (product as u64, (product >> 64) as usize);
        self.0 = rest;
        index
    }
}

/// Returns the indices of a key's four counters. There are `2 * lines` lines of `LINE` counters. A key uses one line
/// in each half, and two different counters in each line. In each line, the lowest bits choose the first counter, and
/// the bits from `SHIFT` on choose the second counter.
#[inline]
pub(crate) fn places<const LINE: usize, const SHIFT: u32>(hash: u64, lines: usize) -> [usize; 4] {
    let other = mix(hash);
    let first = scale(hash, lines) * LINE;
    let second = (lines + scale(other, lines)) * LINE;
    #[expect(clippy::cast_possible_truncation, reason = "fewer bits than a line has counters")]
    let bits = |value: u64, shift: u32| (value >> shift) as usize & (LINE - 1);
    let (a, b) = (bits(hash, 0), bits(other, 0));
    // The second counter is 1 to LINE - 1 places after the first one. The distance is the bits themselves, with 0
    // replaced by 1.
    let apart = |place: usize, distance: usize| (place + distance.max(1)) & (LINE - 1);
    [first + a, first + apart(a, bits(hash, SHIFT)), second + b, second + apart(b, bits(other, SHIFT))]
}
