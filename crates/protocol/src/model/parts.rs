//! The sub-window counter.

use std::collections::VecDeque;

use super::{Now, StoredState, View, wanted};
use crate::call::LimitStanding;
use crate::kinds::Parts;
use crate::plan::{Arithmetic, PlannedLimit};

/// The counts of the newest part, and of as many parts before it as the limit has parts, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    index: u64,
    current: u64,
    before: VecDeque<u64>,
}

pub(super) struct PartsView {
    parts: Parts,
    /// The counts of the present parts.
    counts: Counts,
}

impl Counts {
    fn new(parts: &Parts, index: u64, current: u64) -> Self {
        Self { index, current, before: (0..parts.parts).map(|_| 0).collect() }
    }

    /// Returns the counts when `present` is the newest part. A time before the newest part counts as its beginning.
    fn at(&self, parts: &Parts, present: u64) -> Self {
        let gap = present.saturating_sub(self.index);
        if gap > parts.parts {
            return Self::new(parts, present, 0);
        }
        let mut counts = self.clone();
        for _ in 0..gap {
            counts.before.push_front(counts.current);
            counts.before.pop_back();
            (counts.index, counts.current) = (counts.index + 1, 0);
        }
        counts
    }

    fn used(&self, parts: &Parts) -> u64 {
        self.current + self.counted(parts).sum::<u64>()
    }

    /// The counts of the parts before the newest one that count.
    fn counted(&self, parts: &Parts) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator {
        let history = usize::try_from(parts.history()).unwrap_or(usize::MAX);
        self.before.iter().take(history).copied()
    }

    /// Returns when nothing is counted, even by a strict counter.
    pub(super) fn until_us(&self, part: &PlannedLimit) -> u64 {
        let Arithmetic::Parts(parts) = part.kind else { return 0 };
        (self.index + parts.parts + 1) * parts.part_us
    }
}

impl PartsView {
    pub(super) fn view(parts: Parts, state: Option<StoredState>, now_us: u64) -> View {
        let present = now_us / parts.part_us;
        let (mut stored, mut healed) = (Counts::new(&parts, present, 0), false);
        if let Some(StoredState::Parts(counts)) = state {
            stored = counts;
            if stored.index > present + parts.parts {
                stored = Counts::new(&parts, present, stored.used(&parts));
                healed = true;
            }
        }
        let counts = stored.at(&parts, present);
        let view = Self { parts, counts };
        View::new(view.room(), healed, Now::Parts(view))
    }

    fn room(&self) -> u64 {
        self.parts.limit.saturating_sub(self.counts.used(&self.parts))
    }

    pub(super) fn charge(&mut self, units: u64) -> u64 {
        let all = self.counts.current + self.counts.before.iter().sum::<u64>();
        let units = units.min(Parts::MOST.saturating_sub(all));
        self.counts.current += units;
        units
    }

    /// Takes back units of the present part.
    pub(super) fn refund(&mut self, units: u64, at_us: u64) -> u64 {
        if at_us / self.parts.part_us != self.counts.index {
            return 0;
        }
        let back = units.min(self.counts.current);
        self.counts.current -= back;
        back
    }

    pub(super) fn state(&self) -> StoredState {
        StoredState::Parts(self.counts.clone())
    }

    pub(super) fn standing(&self, cost: u64, now_us: u64) -> LimitStanding {
        let (parts, counts, left) = (&self.parts, &self.counts, self.room());
        // The time until a part no longer counts. `back` is its distance from the newest part.
        let until_us = |back: u64| {
            let index = (counts.index + parts.history() + 1).saturating_sub(back);
            (index * parts.part_us).saturating_sub(now_us)
        };
        let used = counts.used(parts);
        let wait_us = match wanted(cost, left, parts.limit) {
            0 => 0,
            units => {
                let excess = used.saturating_add(units).saturating_sub(parts.limit);
                let (mut freed, mut back) = (0_u64, parts.history());
                for count in counts.counted(parts).rev() {
                    freed += count;
                    if freed >= excess {
                        break;
                    }
                    back -= 1;
                }
                until_us(back)
            }
        };
        let newest = match counts.current {
            0 => (1..).zip(counts.counted(parts)).find(|(_, count)| *count > 0).map(|(back, _)| back),
            _ => Some(0),
        };
        LimitStanding::Plain { left, wait_us, reset_us: newest.map_or(0, until_us), delay_us: 0 }
    }
}
