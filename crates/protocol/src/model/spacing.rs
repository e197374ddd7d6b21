//! Minimum spacing.

use super::{Now, StoredState, View};
use crate::call::LimitStanding;
use crate::exact::EXACT;
use crate::kinds::Spacing;

pub(super) struct SpacingView {
    spacing: Spacing,
    /// The time of the last charge.
    came_us: u64,
    /// The turn of its event.
    turn_us: u64,
    /// The earliest turn of the next event.
    next_us: u64,
    delay_us: u64,
}

impl SpacingView {
    pub(super) fn view(spacing: Spacing, state: Option<StoredState>, now_us: u64) -> View {
        let (mut came_us, mut turn_us, mut next_us) = match state {
            Some(StoredState::Spacing { came_us, turn_us, next_us }) => (came_us, turn_us, next_us),
            _ => (0, 0, 0),
        };
        let healed = came_us > now_us + spacing.spacing_us;
        if healed {
            let moved = |us: u64| now_us + us.saturating_sub(came_us);
            (came_us, turn_us, next_us) = (now_us, moved(turn_us), moved(next_us));
        }
        let left = if next_us <= now_us { u64::MAX } else { 0 };
        let view = Self { spacing, came_us, turn_us, next_us, delay_us: 0 };
        View::new(left, healed, Now::Spacing(view))
    }

    /// Charges one event, if any unit is charged. Its turn is after the last event's.
    pub(super) fn charge(&mut self, units: u64, now_us: u64) -> u64 {
        let turn_us = self.next_us.max(now_us);
        if units == 0 || turn_us + self.spacing.spacing_us >= EXACT {
            return 0;
        }
        (self.came_us, self.turn_us, self.next_us) = (now_us, turn_us, turn_us + self.spacing.spacing_us);
        self.delay_us = turn_us - now_us;
        units
    }

    /// Takes back the last event.
    pub(super) fn refund(&mut self, units: u64, at_us: u64, now_us: u64) -> u64 {
        if units == 0 || self.came_us != at_us || self.next_us <= now_us.max(self.turn_us) {
            return 0;
        }
        self.next_us = self.turn_us;
        units
    }

    pub(super) const fn state(&self) -> StoredState {
        StoredState::Spacing { came_us: self.came_us, turn_us: self.turn_us, next_us: self.next_us }
    }

    pub(super) fn standing(&self, now_us: u64) -> LimitStanding {
        let wait_us = self.next_us.saturating_sub(now_us);
        let left = u64::from(wait_us == 0);
        LimitStanding::Plain { left, wait_us, reset_us: wait_us, delay_us: self.delay_us }
    }
}
