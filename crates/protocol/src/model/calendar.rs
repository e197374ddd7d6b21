//! Windows of a calendar.

use super::batches::UsedUntil;
use super::{Now, StoredState, View};
use crate::kinds::CalendarPeriods;

pub(super) struct CalendarView {
    periods: CalendarPeriods,
    pub(super) count: UsedUntil,
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
        let view = Self { periods, count: UsedUntil { ends_us, used: units } };
        View::new(periods.limit.saturating_sub(units), healed, Now::Calendar(view))
    }

    /// Takes back units of the present period.
    pub(super) fn refund(&mut self, units: u64, at_us: u64) -> u64 {
        if self.periods.period_us(at_us)[1] == self.count.ends_us { self.count.refund(units) } else { 0 }
    }
}
