//! Windows of a calendar.
//!
//! A script has no table, so the end of the period goes into the call. The caller sends the beginnings of its own period and
//! of the next two, and the server's time selects the period. A caller whose clock is behind by more than a period gets an
//! error; one whose clock is ahead by more than a period makes a new key's period longer.

use tollgate::{Calendar, Quota, QuotaError, Timestamp};

use crate::exact::{LAST_US, MOST, at_most};

/// A limit in each period of a calendar.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct CalendarPeriods {
    pub(crate) calendar: Calendar,
    pub(crate) limit: u64,
}

impl CalendarPeriods {
    pub(crate) fn new(calendar: Calendar, quota: &Quota) -> Result<Self, QuotaError> {
        at_most("calendar window", quota, "limit", MOST, quota.limit())?;
        Ok(Self { calendar, limit: quota.limit() })
    }

    /// The beginning and the end of the period that contains a time.
    pub(crate) fn period_us(&self, at_us: u64) -> [u64; 2] {
        let period = self.calendar.period_at(Timestamp::from_nanos(at_us.saturating_mul(1_000)));
        [period.start, period.end].map(|at| (at.as_nanos() / 1_000).min(LAST_US))
    }

    /// The length of the period that ends at this time.
    pub(crate) fn length_us(&self, ends_us: u64) -> u64 {
        let [start_us, _] = self.period_us(ends_us.saturating_sub(1));
        ends_us.saturating_sub(start_us)
    }

    /// The beginnings of the period that contains a time, and of the next two.
    pub(crate) fn starts_us(&self, at_us: u64) -> [u64; 3] {
        let [start, end] = self.period_us(at_us);
        [start, end, self.period_us(end)[1]]
    }
}
