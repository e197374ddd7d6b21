//! The sliding log.

use std::collections::VecDeque;

use super::{Now, StoredState, View, wanted};
use crate::call::LimitStanding;
use crate::kinds::Log;

/// The times of the units, oldest first. A time before the newest is written as the newest.
pub(super) struct LogView {
    log: Log,
    times: VecDeque<u64>,
    /// The number of units that have left. A write forgets them, so they stay forgotten if the clock steps back.
    left: usize,
    healed: bool,
}

impl LogView {
    pub(super) fn view(log: Log, state: Option<StoredState>, now_us: u64) -> View {
        let mut times = match state {
            Some(StoredState::Log(times)) => times,
            _ => VecDeque::new(),
        };
        let left = times.partition_point(|time| time + log.period_us <= now_us);
        let healed = times.back().is_some_and(|newest| *newest > now_us + log.period_us);
        if healed {
            times.iter_mut().skip(left).for_each(|time| *time = now_us);
        }
        let view = Self { log, times, left, healed };
        View::new(view.room(), healed, Now::Log(view))
    }

    fn inside(&self) -> u64 {
        u64::try_from(self.times.len() - self.left).unwrap_or(u64::MAX)
    }

    fn room(&self) -> u64 {
        self.log.limit.saturating_sub(self.inside())
    }

    fn newest(&self) -> u64 {
        self.times.back().copied().unwrap_or(0)
    }

    /// Charges units, as far as there is room.
    pub(super) fn charge(&mut self, units: u64, now_us: u64) -> u64 {
        let (units, time) = (units.min(self.room()), now_us.max(self.newest()));
        self.times.extend((0..units).map(|_| time));
        units
    }

    /// Removes units, if they are the newest. Without them, the other times are still right.
    pub(super) fn refund(&mut self, units: u64, at_us: u64) -> u64 {
        if self.healed || self.newest() != at_us {
            return 0;
        }
        let same = self.times.iter().skip(self.left).rev().take_while(|time| **time == at_us).count();
        let back = usize::try_from(units).unwrap_or(usize::MAX).min(same);
        self.times.truncate(self.times.len() - back);
        u64::try_from(back).unwrap_or(u64::MAX)
    }

    pub(super) fn state(&self) -> StoredState {
        StoredState::Log(self.times.iter().skip(self.left).copied().collect())
    }

    pub(super) fn standing(&self, cost: u64, now_us: u64) -> LimitStanding {
        let (left, period_us) = (self.room(), self.log.period_us);
        let wait_us = match wanted(cost, left, self.log.limit) {
            0 => 0,
            units => {
                // The unit after which fewer than the limit are inside.
                let over = self.inside().saturating_add(units).saturating_sub(self.log.limit + 1);
                let place = self.left.saturating_add(usize::try_from(over).unwrap_or(usize::MAX));
                let came_us = self.times.get(place).copied().unwrap_or(now_us);
                came_us.saturating_add(period_us).saturating_sub(now_us)
            }
        };
        let reset_us = match self.inside() {
            0 => 0,
            _ => self.newest().saturating_add(period_us).saturating_sub(now_us),
        };
        LimitStanding::Plain { left, wait_us, reset_us, delay_us: 0 }
    }
}
