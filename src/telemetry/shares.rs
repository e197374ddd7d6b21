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

    /// Whether the line is below the half of every limit. Then more than the units above the half can be near.
    #[inline(always)]
    pub(super) const fn is_below_half(self) -> bool {
        self.0 < MILLION / 2
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
