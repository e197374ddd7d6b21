//! The sliding-window counter of two windows in forty bits.

use super::window::CountedWindows;
use super::{CompactState, Verdict};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError};

/// ```text
/// state = [ window index, modulo 2^(40 − 2·bits) | previous count : bits | count : bits ]
/// ```
/// The index is that of the newest window in which anything was admitted; its count is zero only if all of that was given
/// back. Grows by index, and within a window by count.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SlidingWord {
    pub(super) windows: CountedWindows,
    strict: bool,
}

impl SlidingWord {
    /// See [`CountedWindows::new`].
    pub(crate) fn new(
        algorithm: &'static str,
        quota: &Quota,
        tiers: &[Quota],
        overdraft: u64,
        strict: bool,
    ) -> Result<Self, QuotaError> {
        Ok(Self { windows: CountedWindows::new(algorithm, quota, tiers, overdraft, 2)?, strict })
    }

    /// Another limit for single calls.
    pub(crate) fn tier(&self, algorithm: &'static str, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self { windows: self.windows.tier(algorithm, quota, 2)?, ..*self })
    }
}

/// A state as the window that counts sees it.
struct SlidingView {
    /// How many windows it is after now's: more than none for a time that stepped back.
    later: u64,
    previous: u64,
    current: u64,
    /// To the end of that window.
    to_end_ns: u64,
    /// Of the window, as far as the previous count weighs; a time before the window is taken as its beginning.
    left_ns: u64,
}

impl SlidingWord {
    #[inline]
    fn view(&self, ahead: u64, now_ns: u64) -> SlidingView {
        let Self { windows, .. } = self;
        let (count_bits, mask) = (windows.count_bits, windows.mask());
        let (stored, previous, current) =
            (ahead >> (2 * count_bits), (ahead >> count_bits) & mask, ahead & mask);
        // Relative to the last window: 0 is the last one, 1 is now's, more is a time that stepped back.
        let (later, previous, current) = match stored {
            0 => (0, current, 0),
            stored => (stored - 1, previous, current),
        };
        let to_end_ns = windows.ends_in_ns(later, now_ns);
        SlidingView { later, previous, current, to_end_ns, left_ns: to_end_ns.min(windows.window_ns) }
    }
}

impl CompactState for SlidingWord {
    // More in this window may be less of the last one.
    const DOMINATES: bool = false;
    // A count that is rounded up further could reach the next window.
    const COARSEST: u32 = 0;

    /// The window before now's: a state of that window still counts.
    #[inline]
    fn reference(&self, now_ns: u64) -> u64 {
        self.windows.index(now_ns).wrapping_sub(1) << (2 * self.windows.count_bits)
    }

    #[inline]
    fn judge(&self, ahead: u64, now_ns: u64, cost: u64) -> Verdict {
        if cost == 0 {
            return Verdict::Admit(ahead);
        }
        let CountedWindows { window_ns, limit, count_bits, .. } = self.windows;
        if cost > limit {
            return Verdict::Never;
        }
        let SlidingView { later, previous, current, left_ns, .. } = self.view(ahead, now_ns);
        let admitted = match limit.saturating_sub(current).checked_sub(cost) {
            None => false,
            Some(_) if previous == 0 => true,
            Some(room) => {
                // As in the wide form: floor(p·left/W) <= room, or ceil.
                let room = u128::from(room) * u128::from(window_ns);
                let weighted = u128::from(previous) * u128::from(left_ns);
                if self.strict { weighted <= room } else { weighted < room + u128::from(window_ns) }
            }
        };
        if !admitted {
            return Verdict::Deny;
        }
        Verdict::Admit(((later + 1) << (2 * count_bits)) | (previous << count_bits) | (current + cost))
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
        let SlidingView { previous, current, left_ns, to_end_ns, .. } = self.view(ahead, now_ns);
        let Self { windows: CountedWindows { window_ns, limit, .. }, strict: ceil } = *self;
        let facts = Facts::Blend { previous, current, left_ns, to_end_ns, window_ns, ceil };
        let decision = Decision::new(outcome, cost, limit, now_ns, facts);
        if charged { decision } else { decision.uncharged() }
    }

    fn force(&self, ahead: u64, now_ns: u64, cost: u64) -> (u64, u64) {
        if cost == 0 {
            return (ahead, 0);
        }
        let SlidingView { later, previous, current, .. } = self.view(ahead, now_ns);
        let (units, count_bits) =
            (cost.min(self.windows.most().saturating_sub(current)), self.windows.count_bits);
        (((later + 1) << (2 * count_bits)) | (previous << count_bits) | (current + units), units)
    }

    fn refund(
        &self,
        ahead: u64,
        (now_ns, _): (u64, u64),
        charge: &Decision,
        units: u64,
    ) -> Option<(u64, u64)> {
        let &Facts::Blend { to_end_ns, window_ns, .. } = charge.facts() else {
            return None;
        };
        let view = self.view(ahead, now_ns);
        let same = self.windows.counted(charge, (window_ns, to_end_ns), (now_ns, view.to_end_ns));
        let units = units.min(charge.charged()).min(view.current);
        (same && units > 0).then(|| (ahead - units, units))
    }

    fn horizon(&self) -> u64 {
        2 << (2 * self.windows.count_bits)
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
        (states >> (2 * self.windows.count_bits)).saturating_mul(self.windows.window_ns)
    }

    fn reads(&self, other: &Self) -> bool {
        let same = |word: &Self| (word.windows.window_ns, word.windows.count_bits, word.strict);
        same(self) == same(other)
    }

    fn layout(&self) -> [u64; 6] {
        self.windows.layout(if self.strict { 2 } else { 1 })
    }
}
