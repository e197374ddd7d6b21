//! Aligned fixed windows in forty bits.

use super::ticks::{STATE_BITS, TickRate};
use super::{CompactState, Verdict};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason};

/// The fewest windows that an index tells apart: half of them are 64.
const MIN_INDEX_BITS: u32 = 7;
/// Half the range of indices must be longer than any thread is preempted for.
const MIN_HALF_RANGE_NS: u128 = 1_000_000_000;

/// Aligned windows by number, and counts of units in them: what the words of windows are made of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CountedWindows {
    /// Which window a time lies in.
    indices: TickRate,
    pub(super) window_ns: u64,
    /// The units that a window has room for.
    pub(super) limit: u64,
    pub(super) count_bits: u32,
}

/// ```text
/// state = [ window index, modulo 2^(40 − bits) | count : bits ]
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WindowWord {
    pub(super) windows: CountedWindows,
}

/// Bits for counts up to `largest`, of which a word has so many, if the index keeps enough of them.
///
/// Counts may be rounded up to 1/1024 of their range (by the spill sketch) without reaching the next window.
fn count_bits(algorithm: &'static str, largest: u64, window_ns: u64, counts: u32) -> Result<u32, QuotaError> {
    let with_margin = u128::from(largest) + u128::from(largest >> 9) + 1;
    let bits = u128::BITS - with_margin.leading_zeros();
    let refused = |max_bits: u32| {
        let what = "the limit, in this store,";
        // The largest that fits with its margin, which is a 512th rounded down: the most m with m + m / 512 <= room.
        let room = (1_u64 << max_bits) - 2;
        let max = room - (room + 1) / 513;
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

impl CountedWindows {
    /// Windows of the quota's period, with room for the limits of `tiers`, and for `overdraft` units above the limit; a word
    /// has so many `counts` beside the index.
    pub(super) fn new(
        algorithm: &'static str,
        quota: &Quota,
        tiers: &[Quota],
        overdraft: u64,
        counts: u32,
    ) -> Result<Self, QuotaError> {
        let (window_ns, limit) = (quota.period_ns(), quota.limit());
        for tier in tiers {
            same_period(algorithm, window_ns, tier)?;
        }
        let largest = tiers.iter().map(Quota::limit).fold(limit.saturating_add(overdraft), u64::max);
        let count_bits = count_bits(algorithm, largest, window_ns, counts)?;
        Ok(Self { indices: TickRate::new(1, window_ns), window_ns, limit, count_bits })
    }

    /// Another limit for single calls.
    pub(super) fn tier(
        &self,
        algorithm: &'static str,
        quota: &Quota,
        counts: u32,
    ) -> Result<Self, QuotaError> {
        same_period(algorithm, self.window_ns, quota)?;
        if count_bits(algorithm, quota.limit(), self.window_ns, counts)? > self.count_bits {
            return Err(Reason::Undeclared { algorithm }.into());
        }
        Ok(Self { limit: quota.limit(), ..*self })
    }

    /// The same with counts as long as those of `other`, if these are shorter.
    pub(super) fn with_room_of(self, other: &Self) -> Self {
        Self { count_bits: self.count_bits.max(other.count_bits), ..self }
    }

    /// The window that a time lies in, modulo 2⁶⁴.
    #[inline]
    pub(super) fn index(&self, now_ns: u64) -> u64 {
        self.indices.floor(now_ns)
    }

    /// The last nanosecond of the window that a time lies in.
    pub(super) fn last_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.ends_in_ns(0, now_ns) - 1)
    }

    /// All ones: the bits of a count.
    #[inline]
    pub(super) const fn mask(&self) -> u64 {
        (1 << self.count_bits) - 1
    }

    /// See [`CompactState::layout`].
    pub(super) fn layout(&self, states: u64) -> [u64; 6] {
        [states, self.limit, self.window_ns, 1, u64::from(self.count_bits), 0]
    }

    /// The most units that a window can be charged, room or not: with the margin for rounding up.
    pub(super) fn most(&self) -> u64 {
        let all = self.mask();
        (all - (all >> 9) - 1).max(self.limit)
    }

    /// From `now_ns` to the end of the window that is `later` windows after its own.
    #[inline]
    pub(super) fn ends_in_ns(&self, later: u64, now_ns: u64) -> u64 {
        let end = (u128::from(self.index(now_ns)) + u128::from(later) + 1) * u128::from(self.window_ns);
        u64::try_from(end.saturating_sub(u128::from(now_ns))).unwrap_or(u64::MAX)
    }

    /// Whether a charge was counted in the window that ends in `to_end_ns`, by the length of its own and the time to its end.
    pub(super) fn counted(
        &self,
        charge: &Decision,
        (length_ns, charge_to_end_ns): (u64, u64),
        (now_ns, to_end_ns): (u64, u64),
    ) -> bool {
        let end = |at_ns: u64, after_ns: u64| u128::from(at_ns) + u128::from(after_ns);
        length_ns == self.window_ns && end(charge.at_ns(), charge_to_end_ns) == end(now_ns, to_end_ns)
    }
}

fn same_period(algorithm: &'static str, window_ns: u64, quota: &Quota) -> Result<(), QuotaError> {
    if quota.period_ns() == window_ns {
        Ok(())
    } else {
        Err(Reason::Layout { algorithm, same: "period" }.into())
    }
}

impl WindowWord {
    /// See [`CountedWindows::new`].
    pub(crate) fn new(
        algorithm: &'static str,
        quota: &Quota,
        tiers: &[Quota],
        overdraft: u64,
    ) -> Result<Self, QuotaError> {
        Ok(Self { windows: CountedWindows::new(algorithm, quota, tiers, overdraft, 1)? })
    }

    /// Another limit for single calls.
    pub(crate) fn tier(&self, algorithm: &'static str, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self { windows: self.windows.tier(algorithm, quota, 1)? })
    }

    /// How many windows after now's a state is, and its count.
    #[inline]
    const fn unpack(&self, ahead: u64) -> (u64, u64) {
        (ahead >> self.windows.count_bits, ahead & self.windows.mask())
    }
}

impl CompactState for WindowWord {
    // Later windows forget earlier ones, and in one window more is more.
    const DOMINATES: bool = true;
    // A count that is rounded up further could reach the next window.
    const COARSEST: u32 = 0;

    #[inline]
    fn reference(&self, now_ns: u64) -> u64 {
        self.windows.index(now_ns) << self.windows.count_bits
    }

    #[inline(always)]
    fn judge(&self, ahead: u64, _now_ns: u64, cost: u64) -> Verdict {
        let (_, used) = self.unpack(ahead);
        let limit = self.windows.limit;
        if cost > limit {
            Verdict::Never
        } else if cost > 0 && cost > limit.saturating_sub(used) {
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
        let (later, used) = self.unpack(ahead);
        let to_boundary_ns = self.windows.ends_in_ns(later, now_ns);
        let CountedWindows { window_ns: period_ns, limit, .. } = self.windows;
        let batch = u64::MAX;
        let facts = Facts::Batch { used, raised: 0, batch, to_boundary_ns, period_ns };
        let decision = Decision::new(outcome, cost, limit, now_ns, facts);
        if charged { decision } else { decision.uncharged() }
    }

    fn force(&self, ahead: u64, _now_ns: u64, cost: u64) -> (u64, u64) {
        let (_, used) = self.unpack(ahead);
        let units = cost.min(self.windows.most().saturating_sub(used));
        (ahead + units, units)
    }

    fn refund(
        &self,
        ahead: u64,
        (now_ns, _): (u64, u64),
        charge: &Decision,
        units: u64,
    ) -> Option<(u64, u64)> {
        let &Facts::Batch { to_boundary_ns, period_ns, .. } = charge.facts() else {
            return None;
        };
        let (later, used) = self.unpack(ahead);
        let here = (now_ns, self.windows.ends_in_ns(later, now_ns));
        let same = self.windows.counted(charge, (period_ns, to_boundary_ns), here);
        let units = units.min(charge.charged()).min(used);
        (same && units > 0).then(|| (ahead - units, units))
    }

    fn horizon(&self) -> u64 {
        1 << self.windows.count_bits
    }

    /// None: the next window's state is another as soon as that window begins.
    fn slack(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn last_ns(&self, now_ns: u64) -> u64 {
        self.windows.last_ns(now_ns)
    }

    fn span_ns(&self, states: u64) -> u64 {
        (states >> self.windows.count_bits).saturating_mul(self.windows.window_ns)
    }

    fn reads(&self, other: &Self) -> bool {
        let same = |word: &Self| (word.windows.window_ns, word.windows.count_bits);
        same(self) == same(other)
    }

    fn layout(&self) -> [u64; 6] {
        self.windows.layout(0)
    }
}
