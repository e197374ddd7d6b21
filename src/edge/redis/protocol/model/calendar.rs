//! Windows of a calendar.

use super::{Now, StoredState, View};
use crate::edge::redis::protocol::call::LimitState;
use crate::edge::redis::protocol::exact::MAX_DEBT;
use crate::edge::redis::protocol::kinds::CalendarPeriods;

pub(super) struct CalendarView {
    periods: CalendarPeriods,
    ends_us: u64,
    used: u64,
}

impl CalendarView {
    pub(super) fn view(periods: CalendarPeriods, state: Option<StoredState>, now_us: u64) -> View {
        let [_, own_us, next_us] = periods.starts_us(now_us);
        let (mut ends_us, mut units, mut healed) = (own_us, 0, false);
        if let Some(StoredState::Batches { ends_us: since_us, used }) = state
            && since_us > now_us
        {
            (units, healed) = (used, since_us > next_us);
            if !healed {
                ends_us = since_us;
            }
        }
        let view = Self { periods, ends_us, used: units };
        View::new(periods.limit.saturating_sub(units), healed, Now::Calendar(view))
    }

    pub(super) fn charge(&mut self, units: u64) -> u64 {
        let units = units.min(MAX_DEBT.saturating_sub(self.used));
        self.used += units;
        units
    }

    /// Takes back units of the present period.
    pub(super) fn refund(&mut self, units: u64, at_us: u64) -> u64 {
        if self.periods.period_us(at_us)[1] != self.ends_us {
            return 0;
        }
        let back = units.min(self.used);
        self.used -= back;
        back
    }

    pub(super) const fn state(&self) -> StoredState {
        StoredState::Batches { ends_us: self.ends_us, used: self.used }
    }

    pub(super) const fn standing(&self) -> LimitState {
        LimitState::Batches { ends_us: self.ends_us, used: self.used }
    }
}
