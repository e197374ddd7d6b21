//! Token buckets that refill in batches, and windows from first use.
//!
//! A key of a bucket with an adaptive start is new again after it was full for a whole period. So the answers do not
//! depend on when a server removes the key.

use super::{Now, StoredState, View};
use crate::call::LimitStanding;
use crate::exact::MAX_DEBT;
use crate::kinds::Batches;
use crate::plan::{Arithmetic, PlannedLimit};

/// The units that are in use until a period ends.
pub(super) struct UsedUntil {
    pub(super) ends_us: u64,
    pub(super) used: u64,
}

pub(super) struct BatchesView {
    batches: Batches,
    pub(super) count: UsedUntil,
    /// Whether the key is new, and used units are only the missing share of the first batch.
    is_new: bool,
}

impl UsedUntil {
    pub(super) fn charge(&mut self, units: u64) -> u64 {
        let units = units.min(MAX_DEBT.saturating_sub(self.used));
        self.used += units;
        units
    }

    pub(super) fn refund(&mut self, units: u64) -> u64 {
        let back = units.min(self.used);
        self.used -= back;
        back
    }

    pub(super) const fn state(&self) -> StoredState {
        StoredState::Batches { ends_us: self.ends_us, used: self.used }
    }

    pub(super) const fn standing(&self) -> LimitStanding {
        LimitStanding::Batches { ends_us: self.ends_us, used: self.used }
    }
}

impl BatchesView {
    pub(super) fn view(batches: Batches, state: Option<StoredState>, now_us: u64) -> View {
        let (mut ends_us, mut units, mut is_new, mut healed) = (batches.end_us(now_us), 0, true, false);
        if let Some(StoredState::Batches { ends_us: end_us, used }) = state {
            is_new = false;
            if end_us > now_us + 2 * batches.period_us {
                (units, healed) = (used, true);
            } else if now_us < end_us {
                units = used;
                // The next use of a full bucket begins its periods.
                if batches.phase_us.is_some() || used > 0 {
                    ends_us = end_us;
                }
            } else {
                let passed = (now_us - end_us) / batches.period_us + 1;
                let full = batches.periods(used);
                if passed < full {
                    (units, ends_us) = (used - passed * batches.batch, end_us + passed * batches.period_us);
                } else {
                    is_new = passed > full;
                }
            }
        }
        is_new &= batches.adaptive;
        if is_new {
            units = batches.first_used(ends_us, now_us);
        }
        let view = Self { batches, count: UsedUntil { ends_us, used: units }, is_new };
        View::new(batches.capacity.saturating_sub(units), healed, Now::Batches(view))
    }

    /// Takes back units of the present period.
    pub(super) fn refund(&mut self, units: u64, at_us: u64) -> u64 {
        let ends_us = self.count.ends_us;
        let is_present = at_us < ends_us && at_us + self.batches.period_us >= ends_us;
        if self.is_new || !is_present { 0 } else { self.count.refund(units) }
    }

    /// Returns when the state has no effect any more.
    pub(super) fn until_us(part: &PlannedLimit, ends_us: u64, used: u64) -> u64 {
        let Arithmetic::Batches(batches) = part.kind else { return ends_us };
        let periods = batches.periods(used);
        let periods = if batches.adaptive { periods } else { periods.saturating_sub(1) };
        ends_us.saturating_add(periods.saturating_mul(batches.period_us))
    }
}
