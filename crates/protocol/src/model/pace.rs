//! GCRA, and the algorithms with the same state.

use super::{Now, StoredState, View};
use crate::exact::MAX_DEBT;
use crate::kinds::Pace;

impl Pace {
    pub(super) fn view(&self, state: Option<StoredState>, now_us: u64) -> View {
        let (ahead, healed) = match state {
            Some(StoredState::Pace { t_us, ahead, interval, scale }) => {
                let ahead = if (interval, scale) == (self.interval, self.scale) {
                    ahead
                } else {
                    self.convert(ahead, interval)
                };
                let gone = now_us.saturating_sub(t_us).saturating_mul(self.scale);
                let step = t_us.saturating_sub(now_us).saturating_mul(self.scale);
                if step > self.capacity {
                    (ahead, true)
                } else {
                    ((ahead + step).min(MAX_DEBT).saturating_sub(gone), false)
                }
            }
            _ => (0, false),
        };
        View::new(self.left(ahead), healed, Now::Pace { pace: *self, ahead })
    }

    /// Takes units back, as far as time has not paid for them. Returns their number; a part of a unit counts as one.
    pub(super) fn refund(&self, ahead: &mut u64, units: u64, at_us: u64, now_us: u64) -> u64 {
        let own = units.min(MAX_DEBT / self.interval) * self.interval;
        let paid = now_us.saturating_sub(at_us).saturating_mul(self.scale);
        let back = own.saturating_sub(paid).min(*ahead);
        *ahead -= back;
        back.div_ceil(self.interval)
    }

    /// Returns the debt in ticks of this interval, unit for unit and rounded up. The calculation keeps each product
    /// below 2^53.
    pub(super) fn convert(&self, ahead: u64, interval: u64) -> u64 {
        const SMALL: u64 = 1 << 26;
        let (units, part) = (ahead / interval, ahead % interval);
        let (mut from, mut to) = (1, 1);
        while interval / from >= SMALL {
            from *= 2;
        }
        while self.interval.div_ceil(to) >= SMALL {
            to *= 2;
        }
        let part = (part.div_ceil(from) * self.interval.div_ceil(to)).div_ceil(interval / from) * to;
        (units.min(MAX_DEBT / self.interval) * self.interval + part).min(MAX_DEBT)
    }
}
