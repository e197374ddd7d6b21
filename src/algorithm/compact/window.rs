//! Aligned windows in 40 bits: a fixed window, or a sliding window over two counts.

use super::ticks::{STATE_BITS, TickRate};
use super::{CompactState, IntoCompact, Moment, Moved, Verdict};
use crate::algorithm::step::{Algorithm, Refund};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason};

/// The fewest bits of a window index. Half the range is then 64 windows.
const MIN_INDEX_BITS: u32 = 7;
/// Half the range of indices must last longer than a thread can be preempted.
const MIN_HALF_RANGE_NS: u128 = 1_000_000_000;

/// An algorithm of aligned windows, which the [`Sketch`](crate::Sketch) store can hold. Sealed.
///
/// It needs only the counts of the current window and of the previous one. These are the fixed window, up to
/// 8,573,190,079 units, and the sliding window of two counts, up to 65,407 units each.
pub trait WindowAlgorithm: Algorithm + IntoCompact<CompactState: WindowState> {}

impl<A: Algorithm + IntoCompact<CompactState: WindowState>> WindowAlgorithm for A {}

/// A compact algorithm whose state is a window and its counts. A store may also keep the counts outside a single word.
pub trait WindowState: CompactState {
    /// Whether the previous window's count matters.
    const LAST: bool;

    /// Returns the length of a window, in nanoseconds.
    fn window_ns(&self) -> u64;

    /// Returns the units that a window has room for.
    fn limit(&self) -> u64;

    /// Decides `cost` units after these counts.
    fn judge_counts(&self, counts: &WindowCounts, cost: u64) -> Outcome;

    /// Returns the decision at `now_ns`, with these counts after it.
    fn answer(&self, outcome: Outcome, counts: &WindowCounts, now_ns: u64, cost: u64) -> Decision;
}

/// The counts that decide a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WindowCounts {
    /// The count of the previous window, if the algorithm uses it.
    pub previous: u64,
    /// The count of the current window.
    pub current: u64,
    /// The time from the decision to the window's end.
    pub to_end_ns: u64,
}

/// A window's index, and one count or two.
///
/// ```text
/// one    state = [ window index, modulo 2^(40 − bits)                         | count : bits ]
/// two    state = [ window index, modulo 2^(40 − 2·bits) | previous count : bits | count : bits ]
/// ```
/// With two counts, the index is that of the newest window in which anything was admitted. Its count is zero only if
/// all of its units were refunded. The state grows by index, and within a window by count.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WindowWord<const COUNTS: u32> {
    /// Converts a time to the index of its window.
    indices: TickRate,
    window_ns: u64,
    /// The units that a window has room for.
    limit: u64,
    count_bits: u32,
    /// Whether the previous window's weighted count is rounded up.
    strict: bool,
}

/// A fixed window.
pub(crate) type FixedWord = WindowWord<1>;
/// A sliding window of two counts.
pub(crate) type SlidingWord = WindowWord<2>;

/// The counts of a state, as seen from the current window.
struct CountsView {
    /// How far ahead the state is. If its window has ended, how far ahead the equivalent state of the current window
    /// is.
    ahead: u64,
    /// How many windows the state is after the current one: above zero only if the clock stepped back.
    later: u64,
    previous: u64,
    current: u64,
}

/// Returns the bits per count for counts up to `largest`, in a word of `counts` counts, if the index keeps enough bits.
///
/// The spill sketch may round a count up by 1/1024 of its range. The result must still be a count of the same window.
fn count_bits(algorithm: &'static str, largest: u64, window_ns: u64, counts: u32) -> Result<u32, QuotaError> {
    let with_margin = u128::from(largest) + u128::from(largest >> 9) + 1;
    let bits = u128::BITS - with_margin.leading_zeros();
    let refused = |max_bits: u32| {
        // The largest limit that fits with its margin of a 512th, rounded down: the greatest m with m + m / 512 <=
        // room.
        let room = (1_u64 << max_bits) - 2;
        let max = room - (room + 1) / 513;
        let (what, store) = ("the limit", "this store");
        Err(Reason::SmallWord { algorithm, what, store, got: largest, max }.into())
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

impl<const COUNTS: u32> WindowWord<COUNTS> {
    /// Creates a word for windows of the quota's period, with room for the limits of `tiers`, and for `overdraft` units
    /// above the limit.
    pub(crate) fn new(
        algorithm: &'static str,
        quota: &Quota,
        tiers: &[Quota],
        overdraft: u64,
        strict: bool,
    ) -> Result<Self, QuotaError> {
        let (window_ns, limit) = (quota.period_ns(), quota.limit());
        for tier in tiers {
            same_period(algorithm, window_ns, tier)?;
        }
        let largest = tiers.iter().map(Quota::limit).fold(limit.saturating_add(overdraft), u64::max);
        let count_bits = count_bits(algorithm, largest, window_ns, COUNTS)?;
        Ok(Self { indices: TickRate::new(1, window_ns), window_ns, limit, count_bits, strict })
    }

    /// Returns another limit, for single calls.
    pub(crate) fn tier(&self, algorithm: &'static str, quota: &Quota) -> Result<Self, QuotaError> {
        same_period(algorithm, self.window_ns, quota)?;
        if count_bits(algorithm, quota.limit(), self.window_ns, COUNTS)? > self.count_bits {
            return Err(Reason::Undeclared { algorithm }.into());
        }
        Ok(Self { limit: quota.limit(), ..*self })
    }

    /// Returns the number of bits below the index.
    #[inline]
    const fn index_shift(&self) -> u32 {
        COUNTS * self.count_bits
    }

    /// Returns a mask of ones with the length of a count.
    #[inline]
    const fn mask(&self) -> u64 {
        (1 << self.count_bits) - 1
    }

    /// Returns the most units that a window can be charged without a check for room, including the margin for rounding
    /// up.
    fn most(&self) -> u64 {
        let all = self.mask();
        (all - (all >> 9) - 1).max(self.limit)
    }

    #[inline(always)]
    fn view(&self, ahead: u64) -> CountsView {
        let (bits, mask) = (self.count_bits, self.mask());
        if COUNTS == 1 {
            return CountsView { ahead, later: ahead >> bits, previous: 0, current: ahead & mask };
        }
        // The reference is the previous window: 0 is that window, 1 is the current one. More means that the clock
        // stepped back.
        let ahead = match ahead >> (2 * bits) {
            0 => (1 << (2 * bits)) | ((ahead & mask) << bits),
            _ => ahead,
        };
        let previous = (ahead >> bits) & mask;
        CountsView { ahead, later: (ahead >> (2 * bits)) - 1, previous, current: ahead & mask }
    }

    /// Decides `cost` units after these counts; calls `to_end_ns` only if the window's end matters.
    #[inline(always)]
    fn outcome(&self, previous: u64, current: u64, to_end_ns: impl FnOnce() -> u64, cost: u64) -> Outcome {
        if cost == 0 {
            return Outcome::Allowed;
        }
        if cost > self.limit {
            return Outcome::Never;
        }
        // With a per-call quota, more units may be used than this limit.
        let is_allowed = match self.limit.saturating_sub(current).checked_sub(cost) {
            None => false,
            Some(_) if COUNTS == 1 || previous == 0 => true,
            Some(room) => {
                // The same rule as in `sliding_window`: floor(p·left/W) <= room, or ceil.
                let window = u128::from(self.window_ns);
                let left_ns = to_end_ns().min(self.window_ns);
                let (room, weighted) =
                    (u128::from(room) * window, u128::from(previous) * u128::from(left_ns));
                if self.strict { weighted <= room } else { weighted < room + window }
            }
        };
        if is_allowed { Outcome::Allowed } else { Outcome::Denied }
    }

    /// Returns the time from `now_ns` to the end of the window that is `later` windows after the window of `now_ns`.
    #[inline]
    fn ends_in_ns(&self, later: u64, now_ns: u64) -> u64 {
        let index = self.indices.floor(now_ns);
        let end = (u128::from(index) + u128::from(later) + 1) * u128::from(self.window_ns);
        u64::try_from(end.saturating_sub(u128::from(now_ns))).unwrap_or(u64::MAX)
    }
}

fn same_period(algorithm: &'static str, window_ns: u64, quota: &Quota) -> Result<(), QuotaError> {
    if quota.period_ns() == window_ns {
        Ok(())
    } else {
        Err(Reason::Layout { algorithm, same: "period" }.into())
    }
}

impl<const COUNTS: u32> CompactState for WindowWord<COUNTS> {
    // In one window, a greater count dominates; a later window replaces earlier ones. But with two counts, a greater
    // current count may come with a smaller previous one.
    const DOMINATES: bool = COUNTS == 1;
    // A count that is rounded up by more could reach the next window.
    const COARSEST: u32 = 0;

    /// The oldest window that counts, with a count of zero.
    #[inline]
    fn reference(&self, now_ns: u64) -> u64 {
        self.indices.floor(now_ns).wrapping_sub(u64::from(COUNTS - 1)) << self.index_shift()
    }

    #[inline(always)]
    fn judge(&self, ahead: u64, now_ns: u64, cost: u64) -> Verdict {
        let CountsView { ahead: of_view, later, previous, current } = self.view(ahead);
        match self.outcome(previous, current, || self.ends_in_ns(later, now_ns), cost) {
            Outcome::Allowed => Verdict::Admit(if cost == 0 { ahead } else { of_view + cost }),
            Outcome::Denied => Verdict::Deny,
            Outcome::Never => Verdict::Never,
        }
    }

    #[inline]
    fn decision(&self, outcome: Outcome, ahead: u64, Moment { now_ns, .. }: Moment, cost: u64) -> Decision {
        let CountsView { later, previous, current, .. } = self.view(ahead);
        let to_end_ns = self.ends_in_ns(later, now_ns);
        self.answer(outcome, &WindowCounts { previous, current, to_end_ns }, now_ns, cost)
    }

    fn force(&self, ahead: u64, _now_ns: u64, cost: u64) -> Moved {
        let view = self.view(ahead);
        let units = cost.min(self.most().saturating_sub(view.current));
        Moved { ahead: if cost == 0 { ahead } else { view.ahead + units }, units }
    }

    fn refund(&self, ahead: u64, _reference: u64, refund: &Refund<'_>) -> Option<Moved> {
        let &Refund { charge, units, now_ns } = refund;
        let view = self.view(ahead);
        let mut units = units.min(view.current);
        if let Some(charge) = charge {
            let (length_ns, charge_to_end_ns) = match *charge.facts() {
                Facts::Batch { to_boundary_ns, period_ns, .. } if COUNTS == 1 => (period_ns, to_boundary_ns),
                Facts::Blend { to_end_ns, window_ns, .. } if COUNTS == 2 => (window_ns, to_end_ns),
                _ => return None,
            };
            // The window that counted the charge ends at the same time as this one.
            let end = |at_ns: u64, after_ns: u64| u128::from(at_ns) + u128::from(after_ns);
            let same = length_ns == self.window_ns
                && end(charge.at_ns(), charge_to_end_ns) == end(now_ns, self.ends_in_ns(view.later, now_ns));
            if !same {
                return None;
            }
            units = units.min(charge.charged());
        }
        (units > 0).then(|| Moved { ahead: ahead - units, units })
    }

    fn horizon(&self) -> u64 {
        u64::from(COUNTS) << self.index_shift()
    }

    /// Zero: the next window has another state as soon as it begins.
    fn slack(&self) -> u64 {
        0
    }

    /// The last nanosecond of the window that contains `now_ns`.
    #[inline(always)]
    fn last_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.ends_in_ns(0, now_ns) - 1)
    }

    fn span_ns(&self, states: u64) -> u64 {
        (states >> self.index_shift()).saturating_mul(self.window_ns)
    }

    fn reads(&self, other: &Self) -> bool {
        let same = |word: &Self| (word.window_ns, word.count_bits, word.strict);
        same(self) == same(other)
    }

    fn layout(&self) -> [u64; 6] {
        let states = if COUNTS == 1 { 0 } else { 1 + u64::from(self.strict) };
        [states, self.limit, self.window_ns, 1, u64::from(self.count_bits), 0]
    }
}

impl<const COUNTS: u32> WindowState for WindowWord<COUNTS> {
    const LAST: bool = COUNTS == 2;

    #[inline]
    fn window_ns(&self) -> u64 {
        self.window_ns
    }

    #[inline]
    fn limit(&self) -> u64 {
        self.limit
    }

    #[inline(always)]
    fn judge_counts(&self, counts: &WindowCounts, cost: u64) -> Outcome {
        self.outcome(counts.previous, counts.current, || counts.to_end_ns, cost)
    }

    #[inline(always)]
    fn answer(&self, outcome: Outcome, counts: &WindowCounts, now_ns: u64, cost: u64) -> Decision {
        let &WindowCounts { previous, current, to_end_ns } = counts;
        let Self { window_ns, limit, strict: ceil, .. } = *self;
        let facts = if COUNTS == 1 {
            let (batch, to_boundary_ns, period_ns) = (u64::MAX, to_end_ns, window_ns);
            Facts::Batch { used: current, raised: 0, batch, to_boundary_ns, period_ns }
        } else {
            // A time before the counting window is taken as the window's beginning.
            let left_ns = to_end_ns.min(window_ns);
            Facts::Blend { previous, current, left_ns, to_end_ns, window_ns, ceil }
        };
        Decision::new(outcome, cost, limit, now_ns, facts)
    }
}
