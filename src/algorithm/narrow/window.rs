//! Aligned fixed windows in forty bits.

use super::ticks::{STATE_BITS, TickRate};
use super::{Narrow, Verdict};
use crate::decision::{Decision, Facts, Outcome};
use crate::quota::{Quota, QuotaError, Reason};

/// The fewest windows that an index tells apart: half of them are 64.
const MIN_INDEX_BITS: u32 = 7;
/// Half the range of indices must be longer than any thread is preempted for.
const MIN_HALF_RANGE_NS: u128 = 1_000_000_000;

/// ```text
/// state = [ window index, modulo 2^(40 − bits) | count : bits ]
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WindowWord {
    windows: TickRate,
    pub(super) window_ns: u64,
    pub(super) limit: u64,
    pub(super) count_bits: u32,
}

/// Bits for counts up to `largest`, if the index keeps enough of them.
///
/// Counts may be rounded up to 1/1024 of their range (by the spill sketch) without reaching the next window.
pub(super) fn count_bits(
    algorithm: &'static str,
    largest: u64,
    window_ns: u64,
    counts: u32,
) -> Result<u32, QuotaError> {
    let with_margin = u128::from(largest) + u128::from(largest >> 9) + 1;
    let bits = u128::BITS - with_margin.leading_zeros();
    let refused = |max_bits: u32| {
        let what = "the limit, in this store,";
        // The largest that passes with its margin, which is a 512th.
        let all = (1_u64 << max_bits) - 1;
        let passes = |limit: u64| limit + (limit >> 9) < all;
        let mut max = all - (all >> 9) - 1;
        while passes(max + 1) {
            max += 1;
        }
        Err(Reason::Word { algorithm, what, got: largest, max }.into())
    };
    let by_index = (STATE_BITS - MIN_INDEX_BITS) / counts;
    if bits > by_index {
        return refused(by_index);
    }
    let half_range = u128::from(window_ns) << (STATE_BITS - counts * bits - 1);
    if half_range < MIN_HALF_RANGE_NS {
        let shortest = MIN_HALF_RANGE_NS.div_ceil(1 << (STATE_BITS - counts * bits - 1));
        let min = u64::try_from(shortest).unwrap_or(u64::MAX);
        return Err(Reason::ShortWindow { algorithm, got_ns: window_ns, min_ns: min }.into());
    }
    Ok(bits)
}

/// The most units that are counted in so many bits: with the margin for rounding up.
pub(super) const fn most(count_bits: u32) -> u64 {
    let all = (1 << count_bits) - 1;
    all - (all >> 9) - 1
}

impl WindowWord {
    /// Windows of the quota's period, with room for the limits of `tiers`, and for `overdraft` units above the limit.
    pub(crate) fn new(
        algorithm: &'static str,
        quota: &Quota,
        tiers: &[Quota],
        overdraft: u64,
    ) -> Result<Self, QuotaError> {
        for tier in tiers {
            same_period(algorithm, quota.period_ns(), tier)?;
        }
        let largest = tiers.iter().map(Quota::limit).fold(quota.limit().saturating_add(overdraft), u64::max);
        let window_ns = quota.period_ns();
        let count_bits = count_bits(algorithm, largest, window_ns, 1)?;
        Ok(Self { windows: TickRate::new(1, window_ns), window_ns, limit: quota.limit(), count_bits })
    }

    /// Another limit for single calls.
    pub(crate) fn tier(&self, algorithm: &'static str, quota: &Quota) -> Result<Self, QuotaError> {
        same_period(algorithm, self.window_ns, quota)?;
        if count_bits(algorithm, quota.limit(), self.window_ns, 1)? > self.count_bits {
            return Err(Reason::Undeclared { algorithm }.into());
        }
        Ok(Self { limit: quota.limit(), ..*self })
    }
}

pub(super) fn same_period(algorithm: &'static str, window_ns: u64, quota: &Quota) -> Result<(), QuotaError> {
    if quota.period_ns() == window_ns {
        Ok(())
    } else {
        Err(Reason::Layout { algorithm, same: "period" }.into())
    }
}

/// Whether two times are one, each so long after another.
pub(super) fn same_time((a_ns, after_a_ns): (u64, u64), (b_ns, after_b_ns): (u64, u64)) -> bool {
    u128::from(a_ns) + u128::from(after_a_ns) == u128::from(b_ns) + u128::from(after_b_ns)
}

/// From `now_ns` to the beginning of a window that is `windows` later than the one at `index`.
#[inline]
pub(super) fn until(index: u64, windows: u64, window_ns: u64, now_ns: u64) -> u64 {
    let start = (u128::from(index) + u128::from(windows)) * u128::from(window_ns);
    u64::try_from(start.saturating_sub(u128::from(now_ns))).unwrap_or(u64::MAX)
}

impl Narrow for WindowWord {
    // Later windows forget earlier ones, and in one window more is more.
    const DOMINATES: bool = true;
    // A count that is rounded up further could reach the next window.
    const COARSEST: u32 = 0;

    #[inline]
    fn reference(&self, now_ns: u64) -> u64 {
        self.windows.floor(now_ns) << self.count_bits
    }

    #[inline(always)]
    fn judge(&self, ahead: u64, _now_ns: u64, cost: u64) -> Verdict {
        let used = ahead & ((1 << self.count_bits) - 1);
        if cost > self.limit {
            Verdict::Never
        } else if cost > 0 && cost > self.limit.saturating_sub(used) {
            // Under a quota by call, more may be used than this limit.
            Verdict::Deny
        } else {
            Verdict::Admit(ahead + cost)
        }
    }

    #[inline]
    fn decision(
        &self,
        outcome: Outcome,
        ahead: u64,
        charged: bool,
        (now_ns, _): (u64, u64),
        cost: u64,
    ) -> Decision {
        // A time before the window that counts is taken as its beginning.
        let (later, used) = (ahead >> self.count_bits, ahead & ((1 << self.count_bits) - 1));
        let to_boundary_ns = until(self.windows.floor(now_ns), later + 1, self.window_ns, now_ns);
        let (batch, period_ns) = (u64::MAX, self.window_ns);
        let facts = Facts::Batch { used, raised: 0, batch, to_boundary_ns, period_ns };
        let decision = Decision::new(outcome, cost, self.limit, now_ns, facts);
        if charged { decision } else { decision.uncharged() }
    }

    fn force(&self, ahead: u64, _now_ns: u64, cost: u64) -> (u64, u64) {
        let used = ahead & ((1 << self.count_bits) - 1);
        let units = cost.min(most(self.count_bits).max(self.limit).saturating_sub(used));
        (ahead + units, units)
    }

    fn give_back(
        &self,
        ahead: u64,
        (now_ns, _): (u64, u64),
        charge: &Decision,
        units: u64,
    ) -> Option<(u64, u64)> {
        let &Facts::Batch { to_boundary_ns, period_ns, .. } = charge.facts() else {
            return None;
        };
        let (later, used) = (ahead >> self.count_bits, ahead & ((1 << self.count_bits) - 1));
        let ends = until(self.windows.floor(now_ns), later + 1, self.window_ns, now_ns);
        let same = period_ns == self.window_ns && same_time((charge.at_ns(), to_boundary_ns), (now_ns, ends));
        let units = units.min(charge.charged()).min(used);
        (same && units > 0).then(|| (ahead - units, units))
    }

    fn horizon(&self) -> u64 {
        1 << self.count_bits
    }

    fn span_ns(&self, states: u64) -> u64 {
        (states >> self.count_bits).saturating_mul(self.window_ns)
    }

    fn reads(&self, other: &Self) -> bool {
        (self.window_ns, self.count_bits) == (other.window_ns, other.count_bits)
    }

    fn layout(&self) -> [u64; 3] {
        [self.window_ns, u64::from(self.count_bits), 1]
    }
}
