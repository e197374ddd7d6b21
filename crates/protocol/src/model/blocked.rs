//! GCRA with blocks.
//!
//! A state holds the debt without the block, and the rest of the block in microseconds. At the end of the block, one unit is
//! free, unless units were charged without a check, or the denial would have had to wait longer: these are the debt.

use super::{Now, StoredState, View};
use crate::call::LimitStanding;
use crate::exact::MAX_DEBT;
use crate::kinds::Blocks;
use crate::plan::{Arithmetic, PlannedLimit};

pub(super) struct BlockedView {
    blocks: Blocks,
    /// With the block.
    ahead: u64,
    mark: u64,
    /// How much of the block has passed, from the time of the state.
    past_us: u64,
    rest_us: u64,
}

impl BlockedView {
    pub(super) fn view(blocks: Blocks, state: Option<StoredState>, now_us: u64) -> View {
        let mut view = Self { blocks, ahead: 0, mark: 0, past_us: 0, rest_us: 0 };
        let mut healed = false;
        if let Some(StoredState::Blocked { t_us, alone, interval, scale, mark, rest_us }) = state {
            let pace = blocks.pace;
            let same = (interval, scale) == (pace.interval, pace.scale);
            // In a block, a debt is a time, so another interval does not move the end.
            let alone = match mark % 2 {
                _ if same => alone,
                0 => pace.convert(alone, interval),
                _ if scale == pace.scale => alone,
                _ => blocks.ticks(alone.div_ceil(scale)).min(MAX_DEBT),
            };
            let rest_us = rest_us.min(blocks.longest_us);
            let block = if mark % 2 == 1 { blocks.free + blocks.ticks(rest_us) } else { 0 };
            let (ahead, gone_us) = ((alone + block).min(MAX_DEBT), now_us.saturating_sub(t_us));
            let (gone, step) = (blocks.ticks(gone_us), blocks.ticks(t_us.saturating_sub(now_us)));
            healed = step > pace.capacity;
            view.ahead = if healed { ahead } else { (ahead + step).min(MAX_DEBT).saturating_sub(gone) };
            let is_forgotten = view.ahead == 0 && gone - ahead >= blocks.ticks(blocks.quiet_us(mark));
            view.mark = if is_forgotten { 0 } else { mark };
            if view.is_blocked() {
                view.rest_us = rest_us.saturating_sub(gone_us);
                view.past_us = if view.rest_us > 0 { gone_us } else { 0 };
            } else {
                view.mark += view.mark % 2;
            }
        }
        View::new(blocks.pace.left(view.ahead), healed, Now::Blocked(view))
    }

    const fn is_blocked(&self) -> bool {
        self.mark % 2 == 1 && self.ahead > self.blocks.free
    }

    pub(super) fn charge(&mut self, units: u64) -> u64 {
        let interval = self.blocks.pace.interval;
        let units = units.min((MAX_DEBT - self.ahead) / interval);
        self.ahead += units * interval;
        units
    }

    /// A key in a block gets nothing back.
    pub(super) fn refund(&mut self, units: u64, at_us: u64, now_us: u64) -> u64 {
        if self.is_blocked() { 0 } else { self.blocks.pace.refund(&mut self.ahead, units, at_us, now_us) }
    }

    /// Starts the block of a check that was denied, if this limit denies it. Returns whether it does.
    pub(super) fn block(&mut self, cost: u64) -> bool {
        let (blocks, pace) = (self.blocks, self.blocks.pace);
        let is_denied = cost > pace.left(self.ahead) && cost <= pace.capacity / pace.interval;
        if !is_denied || !blocks.starts() || self.is_blocked() {
            return false;
        }
        let level = self.mark / 2;
        let grows = level == 0 || blocks.length_us(level) < blocks.longest_us;
        let level = level + u64::from(grows);
        (self.mark, self.rest_us) = (2 * level - 1, blocks.length_us(level));
        let end = blocks.free + blocks.ticks(self.rest_us);
        // If the wait is longer without the block, the block adds nothing to it.
        if self.ahead > end {
            self.rest_us = 0;
        }
        self.ahead = self.ahead.max(end);
        true
    }

    pub(super) fn state(&self, now_us: u64) -> StoredState {
        let pace = self.blocks.pace;
        let block = if self.mark % 2 == 1 { self.blocks.free + self.blocks.ticks(self.rest_us) } else { 0 };
        // A charge in a block keeps the beginning of the block.
        StoredState::Blocked {
            t_us: now_us - self.past_us,
            alone: self.ahead - block,
            interval: pace.interval,
            scale: pace.scale,
            mark: self.mark,
            rest_us: self.rest_us + self.past_us,
        }
    }

    pub(super) const fn standing(&self) -> LimitStanding {
        LimitStanding::Pace { ahead: self.ahead, is_blocked: self.is_blocked() }
    }

    /// Returns when this state has no effect any more.
    pub(super) fn until_us(part: &PlannedLimit, state: &StoredState, now_us: u64) -> u64 {
        let Arithmetic::Blocked(blocks) = part.kind else { return 0 };
        let &StoredState::Blocked { t_us, alone, scale, mark, rest_us, .. } = state else { return 0 };
        let free = if mark % 2 == 1 { blocks.free } else { 0 };
        let debt_us = alone.div_ceil(scale) + free.div_ceil(blocks.pace.scale);
        let rest_us = rest_us - now_us.saturating_sub(t_us).min(rest_us);
        t_us.max(now_us) + debt_us + rest_us + blocks.quiet_us(mark)
    }
}
