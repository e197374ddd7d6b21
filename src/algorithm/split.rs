//! A window index and a count in one word.

use crate::base::quota::Reason;

/// A word of two unsigned fields: an index in the upper bits, a count in the lower bits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Split {
    low_bits: u32,
}

impl Split {
    /// Creates a layout for windows of `window_ns`. The index field has room for every window in 64-bit time, and for
    /// two more values: one for "never", and one for a phase. The count gets the other bits. A word of all ones is
    /// [`DEAD`](super::step::DEAD), so the largest count is one below all ones.
    pub(super) const fn for_windows(window_ns: u64) -> Option<Self> {
        let largest = (u64::MAX / window_ns) as u128 + 2;
        let high_bits = u128::BITS - largest.leading_zeros();
        match 64u32.checked_sub(high_bits) {
            None | Some(0) => None,
            Some(low_bits) => Some(Self { low_bits }),
        }
    }

    /// Creates a layout for `periods` periods: the index field has room for one more value, for "never".
    pub(super) const fn for_periods(periods: u32) -> Self {
        Self { low_bits: u32::BITS + periods.leading_zeros() }
    }

    /// Returns the largest count: one below all ones.
    pub(super) const fn max_low(self) -> u64 {
        (1 << self.low_bits) - 2
    }

    #[inline]
    pub(super) const fn pack(self, high: u64, low: u64) -> u64 {
        (high << self.low_bits) | low
    }

    #[inline]
    pub(super) const fn unpack(self, word: u64) -> (u64, u64) {
        (word >> self.low_bits, word & ((1 << self.low_bits) - 1))
    }

    /// Returns the length of the shortest windows whose words have room for this count.
    const fn shortest(limit: u64) -> u64 {
        let low_bits = u64::BITS - limit.saturating_add(1).leading_zeros();
        // The index field has room for `u64::MAX / window_ns + 2`.
        let most = (u64::MAX >> low_bits).saturating_sub(2);
        (u64::MAX / most.saturating_add(1)).saturating_add(1)
    }

    /// Returns an error if the count cannot hold the limit, or if the windows are too short for any count.
    pub(super) const fn holding(
        algorithm: &'static str,
        what: &'static str,
        window_ns: u64,
        limit: u64,
    ) -> Result<Self, Reason> {
        match Self::for_windows(window_ns) {
            Some(split) if limit <= split.max_low() => Ok(split),
            Some(split) => Err(Reason::Word { algorithm, what, got: limit, max: split.max_low() }),
            None => Err(Reason::ShortWindow { algorithm, got_ns: window_ns, min_ns: Self::shortest(limit) }),
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::step::DEAD;
    use super::*;

    #[test]
    fn split_words_round_trip_below_dead() {
        for window_ns in [2, 3, 1_000, 1_000_000_000, 3_600_000_000_000, u64::MAX] {
            let Some(split) = Split::for_windows(window_ns) else {
                assert!(window_ns < 3, "{window_ns}");
                continue;
            };
            for high in [0, 1, u64::MAX / window_ns + 2] {
                for low in [0, 1.min(split.max_low()), split.max_low()] {
                    let word = split.pack(high, low);
                    assert_eq!(split.unpack(word), (high, low), "{window_ns}");
                    assert_ne!(word, DEAD);
                }
            }
        }
    }

    #[test]
    fn words_of_periods_round_trip_below_dead() {
        for periods in [1, 2, 3, 1_634, 49_711, u32::MAX] {
            let split = Split::for_periods(periods);
            for high in [0, 1, u64::from(periods)] {
                for low in [0, 1, split.max_low()] {
                    let word = split.pack(high, low);
                    assert_eq!(split.unpack(word), (high, low), "{periods}");
                    assert_ne!(word, DEAD);
                }
            }
        }
    }

    #[test]
    fn one_nanosecond_window_has_no_count() {
        assert!(Split::for_windows(1).is_none());
        let holding = |window_ns, limit| Split::holding("x", "the limit", window_ns, limit);
        for limit in [1, 2, 3, 1_000, 1 << 30] {
            let Err(Reason::ShortWindow { got_ns: 1, min_ns, .. }) = holding(1, limit) else { panic!() };
            assert!(
                holding(min_ns, limit).is_ok() && holding(min_ns - 1, limit).is_err(),
                "{limit}: {min_ns}"
            );
        }
    }
}
