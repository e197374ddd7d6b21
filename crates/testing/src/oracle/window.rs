//! Counts in windows. A time before the newest window with a charge is read as the start of that window.

use super::{Oracle, Spec, touched};
use std::collections::BTreeMap;

/// One count per window. Windows follow the clock, or open at the first admission after the last one ended.
#[derive(Clone, Debug)]
pub struct Fixed {
    limit: u128,
    period: u128,
    from_first_use: bool,
    /// The start of the newest window, and its count.
    newest: Option<(u128, u128)>,
}

impl Fixed {
    pub fn new(spec: Spec) -> Self {
        let (limit, period) = (spec.limit.into(), spec.period_ns.into());
        Self { limit, period, from_first_use: false, newest: None }
    }

    pub fn from_first_use(spec: Spec) -> Self {
        Self { from_first_use: true, ..Self::new(spec) }
    }

    /// Decides under this limit from now on.
    pub fn set(&mut self, limit: u64) {
        self.limit = limit.into();
    }

    /// Returns the start of the window at `now`, and its count.
    fn view(&self, now: u128) -> (u128, u128) {
        match self.newest {
            Some((start, count)) if now < start + self.period => (start, count),
            _ if self.from_first_use => (now, 0),
            _ => (now - now % self.period, 0),
        }
    }
}

impl Oracle for Fixed {
    fn capacity(&self) -> u64 {
        super::narrow(self.limit)
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        self.view(now).1 + u128::from(cost) <= self.limit
    }

    fn charge(&mut self, now: u128, cost: u64) {
        let (start, count) = self.view(now);
        self.newest = Some((start, count + u128::from(cost)));
    }

    /// A window from first use ends when it holds nothing any more.
    fn give_back(&mut self, now: u128, units: u64) -> u64 {
        let (start, count) = self.view(now);
        let back = count.min(units.into());
        if back > 0 {
            let left = Some((start, count - back));
            self.newest = left.filter(|_| !self.from_first_use || back < count);
        }
        super::narrow(back)
    }

    fn most_in(&self, t: u128) -> u128 {
        self.limit * touched(t, self.period)
    }
}

/// The current window's count plus the overlapping part of the previous window's, rounded down (if strict, up).
#[derive(Clone, Debug)]
pub struct Sliding {
    limit: u128,
    period: u128,
    strict: bool,
    /// The newest window's index, the count of the window before it, and its own count.
    newest: Option<(u128, u128, u128)>,
}

impl Sliding {
    pub fn new(spec: Spec) -> Self {
        Self { limit: spec.limit.into(), period: spec.period_ns.into(), strict: false, newest: None }
    }

    pub fn strict(spec: Spec) -> Self {
        Self { strict: true, ..Self::new(spec) }
    }

    /// Decides under this limit from now on.
    pub fn set(&mut self, limit: u64) {
        self.limit = limit.into();
    }

    /// Returns the window's index, the previous count, the current count, and the time since the window's start.
    fn view(&self, now: u128) -> (u128, u128, u128, u128) {
        let (index, elapsed) = (now / self.period, now % self.period);
        match self.newest {
            Some((newest, previous, current)) if index < newest => (newest, previous, current, 0),
            Some((newest, previous, current)) if index == newest => (index, previous, current, elapsed),
            Some((newest, _, current)) if index == newest + 1 => (index, current, 0, elapsed),
            _ => (index, 0, 0, elapsed),
        }
    }
}

impl Oracle for Sliding {
    fn capacity(&self) -> u64 {
        super::narrow(self.limit)
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        let (_, previous, current, elapsed) = self.view(now);
        let overlap = previous * (self.period - elapsed);
        let carried = if self.strict { overlap.div_ceil(self.period) } else { overlap / self.period };
        carried + current + u128::from(cost) <= self.limit
    }

    fn charge(&mut self, now: u128, cost: u64) {
        let (index, previous, current, _) = self.view(now);
        self.newest = Some((index, previous, current + u128::from(cost)));
    }

    fn give_back(&mut self, now: u128, units: u64) -> u64 {
        let (index, previous, current, _) = self.view(now);
        let back = current.min(units.into());
        if back > 0 {
            self.newest = Some((index, previous, current - back));
        }
        super::narrow(back)
    }

    fn most_in(&self, t: u128) -> u128 {
        self.limit * touched(t, self.period)
    }
}

/// The sum over the last `parts` sub-windows, the current one included. If strict, the partly expired sub-window
/// counts too.
#[derive(Clone, Debug)]
pub struct Sub {
    limit: u128,
    part: u128,
    summed: u128,
    counts: BTreeMap<u128, u128>,
}

impl Sub {
    pub fn new(spec: Spec, parts: u32) -> Self {
        Self {
            limit: spec.limit.into(),
            part: u128::from(spec.period_ns.div_ceil(parts.into())),
            summed: parts.into(),
            counts: BTreeMap::new(),
        }
    }

    pub fn strict(spec: Spec, parts: u32) -> Self {
        Self { summed: u128::from(parts) + 1, ..Self::new(spec, parts) }
    }

    fn index(&self, now: u128) -> u128 {
        let newest = self.counts.last_key_value().map_or(0, |(index, _)| *index);
        newest.max(now / self.part)
    }

    fn oldest_summed(&self, index: u128) -> u128 {
        (index + 1).saturating_sub(self.summed)
    }
}

impl Oracle for Sub {
    fn capacity(&self) -> u64 {
        super::narrow(self.limit)
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        let index = self.index(now);
        let sum: u128 = self.counts.range(self.oldest_summed(index)..=index).map(|(_, count)| count).sum();
        sum + u128::from(cost) <= self.limit
    }

    fn charge(&mut self, now: u128, cost: u64) {
        let index = self.index(now);
        *self.counts.entry(index).or_default() += u128::from(cost);
        // A time before the newest sub-window is read as part of it, so the removed counts are never summed again.
        self.counts = self.counts.split_off(&self.oldest_summed(index));
    }

    fn give_back(&mut self, now: u128, units: u64) -> u64 {
        let index = self.index(now);
        let Some(count) = self.counts.get_mut(&index) else { return 0 };
        let back = (*count).min(units.into());
        *count -= back;
        super::narrow(back)
    }

    fn most_in(&self, t: u128) -> u128 {
        self.limit * touched(t, self.part).div_ceil(self.summed)
    }
}
