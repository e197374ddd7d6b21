//! Computes which units of a cost are near a limit, and which are above it.

/// The units of a cost that lie above two lines: four fifths of the limit, and the limit.
///
/// # Examples
/// ```
/// use tollgate::telemetry::Shares;
///
/// // The limit is 10, and near means above 8. The cost is the units 7 to 12: two below, two near, two above.
/// assert_eq!(Shares::of(10, 12, 6), Shares { near: 2, over: 2 });
/// ```
///
/// # Source
/// envoyproxy/ratelimit, `src/limiter/base_limiter.go`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Shares {
    /// Units above ⌊0.8 × limit⌋ and not above the limit.
    pub near: u64,
    /// Units above the limit.
    pub over: u64,
}

impl Shares {
    /// Returns the shares of the last `cost` units of `used`. `used` counts all units, including denied ones.
    #[must_use]
    pub const fn of(limit: u64, used: u64, cost: u64) -> Self {
        let before = used.saturating_sub(cost);
        let over = above(limit, before, used);
        Self { near: above(Self::near_line(limit), before, used) - over, over }
    }

    /// Does what [`Shares::of`] does, for another line below the limit.
    #[must_use]
    pub const fn of_line(line: NearLimit, limit: u64, used: u64, cost: u64) -> Self {
        let before = used.saturating_sub(cost);
        let over = above(limit, before, used);
        Self { near: above(line.of(limit), before, used).saturating_sub(over), over }
    }

    /// Returns ⌊0.8 × limit⌋.
    pub(super) const fn near_line(limit: u64) -> u64 {
        limit - limit.div_ceil(5)
    }
}

/// The share of a limit above which units are near it. Default: four fifths.
///
/// # Examples
/// ```
/// use tollgate::telemetry::{NearLimit, Shares};
///
/// let half = NearLimit::per_million(500_000);
/// assert_eq!(Shares::of_line(half, 10, 7, 7), Shares { near: 2, over: 0 });
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct NearLimit(u32);

impl NearLimit {
    /// Sets the share in millionths. More than a million is the limit itself, so no units are near it.
    #[must_use]
    pub const fn per_million(share: u32) -> Self {
        Self(if share > MILLION { MILLION } else { share })
    }

    /// Returns the share of the limit, rounded down.
    const fn of(self, limit: u64) -> u64 {
        if self.0 == FOUR_FIFTHS {
            return Shares::near_line(limit);
        }
        let line = limit as u128 * self.0 as u128 / MILLION as u128;
        #[expect(clippy::cast_possible_truncation, reason = "the share is at most the limit")]
        let line = line as u64;
        line
    }

    /// Whether `used` units may be above the line. This is cheaper than the line itself.
    #[inline(always)]
    pub(super) const fn may_be_near(self, limit: u64, used: u64) -> bool {
        used > limit / 2 || self.0 < MILLION / 2
    }

    #[inline]
    pub(super) const fn is_above(self, limit: u64, used: u64) -> bool {
        used > self.of(limit)
    }
}

impl Default for NearLimit {
    fn default() -> Self {
        Self(FOUR_FIFTHS)
    }
}

const MILLION: u32 = 1_000_000;
const FOUR_FIFTHS: u32 = 800_000;

/// Returns how many of the units after `before` up to `used` are above a line.
const fn above(line: u64, before: u64, used: u64) -> u64 {
    let from = if before > line { before } else { line };
    used.saturating_sub(from)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn near_line_is_four_fifths_rounded_down() {
        for (limit, line) in [(0, 0), (1, 0), (2, 1), (4, 3), (5, 4), (6, 4), (10, 8), (15, 12), (20, 16)] {
            assert_eq!(Shares::near_line(limit), line, "{limit}");
        }
        assert_eq!(u128::from(Shares::near_line(u64::MAX)), u128::from(u64::MAX) * 4 / 5);
    }

    /// The cases are those of the tests of Envoy's service. A cost that crosses a line is split at the line.
    #[test]
    fn cost_is_split_at_the_lines() {
        let of = |limit, used, cost| {
            let Shares { near, over } = Shares::of(limit, used, cost);
            (near, over)
        };
        // One unit at a time, with a limit of 10.
        assert_eq!([8, 9, 10, 11].map(|used| of(10, used, 1)), [(0, 0), (1, 0), (1, 0), (0, 1)]);
        // With a limit of 20: from 13 to 16, to 17, to 20, to 22.
        assert_eq!([16, 17, 20, 22].map(|used| of(20, used, used - 13)), [(0, 0), (1, 0), (4, 0), (4, 2)]);
        // Start inside the near range, and start above the limit.
        assert_eq!((of(20, 21, 3), of(20, 25, 3)), ((2, 1), (0, 3)));
        // Start at zero, and cross both lines.
        assert_eq!(of(20, 47, 47), (4, 27));
    }

    #[test]
    fn each_unit_counts_in_one_share() {
        for limit in 0..12_u64 {
            for used in 0..20 {
                for cost in 0..=used {
                    let one = |unit: u64| unit > Shares::near_line(limit) && unit <= limit;
                    let units = used - cost + 1..=used;
                    let near = units.clone().filter(|unit| one(*unit)).count() as u64;
                    let over = units.filter(|unit| *unit > limit).count() as u64;
                    assert_eq!(Shares::of(limit, used, cost), Shares { near, over }, "{limit} {used} {cost}");
                }
            }
        }
        assert_eq!(Shares::of(u64::MAX, u64::MAX, u64::MAX).over, 0);
        assert_eq!(Shares::of(0, u64::MAX, u64::MAX).over, u64::MAX);
    }
}
