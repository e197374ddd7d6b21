//! Fixed and sliding windows.

use super::{Now, StoredState, View};
use crate::plan::Windows;

impl Windows {
    pub(super) fn view(&self, state: Option<StoredState>, now_us: u64) -> View {
        let present = now_us / self.period_us;
        let (mut index, mut current, mut previous, mut healed) = (present, 0, 0, false);
        if let Some(StoredState::Windows { index: of, current: units, previous: before }) = state {
            if of > present + 1 {
                (current, previous, healed) = (units, before, true);
            } else if of >= present {
                (index, current, previous) = (of, units, before);
            } else if of + 1 == present && self.slides {
                previous = units;
            }
        }
        let left_us = if index > present { self.period_us } else { self.period_us - now_us % self.period_us };
        let now = Now::Windows { windows: *self, index, current, previous };
        View::new(self.left(previous, current, left_us), healed, now)
    }
}
