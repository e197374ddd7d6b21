//! Algorithms that remember single admissions.

use super::{Oracle, Spec};
use std::collections::VecDeque;

/// A log of all admissions. An admission at time `t` leaves the log at `t + period`.
#[derive(Clone, Debug)]
pub struct Log {
    limit: u64,
    period: u128,
    admissions: VecDeque<(u128, u64)>,
}

impl Log {
    pub fn new(spec: Spec) -> Self {
        Self { limit: spec.limit, period: spec.period_ns.into(), admissions: VecDeque::new() }
    }

    fn units(&self) -> u128 {
        self.admissions.iter().map(|&(_, cost)| u128::from(cost)).sum()
    }
}

impl Oracle for Log {
    fn capacity(&self) -> u64 {
        self.limit
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        let staying = self.admissions.iter().filter(|(at, _)| at + self.period > now);
        let units: u128 = staying.map(|&(_, cost)| u128::from(cost)).sum();
        units + u128::from(cost) <= u128::from(self.limit)
    }

    fn charge(&mut self, now: u128, cost: u64) {
        let newest = self.admissions.back().map_or(0, |&(at, _)| at);
        self.admissions.push_back((now.max(newest), cost));
        // Only the last `limit` units can matter, however far back the clock steps.
        while self.units() - u128::from(self.admissions[0].1) >= u128::from(self.limit) {
            self.admissions.pop_front();
        }
    }

    /// Charges at most the remaining units.
    fn force(&mut self, now: u128, cost: u64) -> u64 {
        let cost = cost.min(self.remaining(super::narrow(now)));
        if cost > 0 {
            self.charge(now, cost);
        }
        cost
    }

    fn most_in(&self, t: u128) -> u128 {
        u128::from(self.limit) * (t / self.period + 1)
    }
}

/// At least `spacing` between two admissions of any cost. `most_in` counts admissions, not units.
#[derive(Clone, Debug)]
pub struct Spacing {
    spacing: u128,
    last: Option<u128>,
}

impl Spacing {
    pub fn new(spacing_ns: u64) -> Self {
        Self { spacing: spacing_ns.into(), last: None }
    }
}

impl Oracle for Spacing {
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn admits(&self, now: u128, _cost: u64) -> bool {
        self.last.is_none_or(|last| now >= last + self.spacing)
    }

    /// Charges at `now` if the event is admitted, and otherwise at its next turn.
    fn charge(&mut self, now: u128, _cost: u64) {
        self.last = Some(self.last.map_or(now, |last| now.max(last + self.spacing)));
    }

    /// Takes back one event for each unit.
    fn give_back(&mut self, now: u128, units: u64) -> u64 {
        let Some(last) = self.last else { return 0 };
        let next = last + self.spacing;
        let back = next.saturating_sub(now).min(self.spacing * u128::from(units));
        self.last = (next - back).checked_sub(self.spacing);
        super::narrow(back.div_ceil(self.spacing))
    }

    fn most_in(&self, t: u128) -> u128 {
        t / self.spacing + 1
    }
}
