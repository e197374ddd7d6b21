//! What the server of a region stores and answers, in Rust. `region.lua` does the same on a server; tests compare the
//! two.
//!
//! *News.* A share is renewed when every other region has answered an exchange that was claimed after the last renewal.
//! The number of an exchange is the time of its claim, made larger where the clock stepped back. So an answer that is
//! late or repeated does not renew, and only the own clock is compared with itself.
//!
//! *Windows* follow the own server's time. A total belongs to the window that it names:
//!
//! - a total for the next window, from a server whose clock is ahead, is kept for that window;
//! - a total that is further ahead is ignored, and an old total is dropped.
//!
//! *Sliding windows.* The weight of the window before declines, so the share grows with time. At the start of a window
//! the final totals of the others may be unknown. Until the first renewal in the window, the region therefore also
//! stays below its share of the limit with its own units alone: in a partition the others can do the same, and the sum
//! is the limit.

use std::collections::BTreeMap;

use super::totals::Totals;
use crate::call::{Question, Reply};
use crate::exact::{EXACT, LAST_US, MAX_DEBT};
use crate::plan::Windows;
use crate::terms::{RegionPolicy, RegionScope, RegionTerms, RegionUse};

/// The stored data of one limit of one key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RegionState {
    windows: Option<OwnWindows>,
    /// The totals that the processes of this region posted.
    posts: BTreeMap<u64, Totals>,
    others: BTreeMap<Box<str>, Other>,
}

/// The region's own windows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct OwnWindows {
    index: u64,
    /// The current window, and the window before.
    own: [OwnTotal; 2],
    /// The own total at the last renewal in this window.
    base: u64,
    /// Whether the share was renewed in this window.
    is_renewed: bool,
    /// The time of the last renewal, as the number of an exchange.
    renewed: u64,
    /// The number of the last exchange.
    round: u64,
    /// When the next exchange may be claimed.
    next_us: u64,
}

/// The region's own total in one window.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
struct OwnTotal {
    /// The units that its processes posted.
    counted: u64,
    /// The total that another region knows. It is larger after the server lost its data.
    floor: u64,
}

impl OwnTotal {
    fn units(self) -> u64 {
        self.counted.max(self.floor)
    }
}

/// The total of a window. A later window is larger.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct KnownTotal {
    index: u64,
    units: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
struct Other {
    totals: Totals,
    /// The number of the last exchange that this region answered.
    heard: u64,
    /// What it knows of the own total.
    acked: KnownTotal,
}

/// What counts in the current window.
#[derive(Copy, Clone, Debug)]
struct WindowUse {
    own: u64,
    /// The units of the other regions.
    known: u64,
    /// The weighted units of the window before: of all regions, and of this region.
    weighed: u64,
    own_weighed: u64,
    /// The own total that every other region knows.
    acked: u64,
}

impl OwnWindows {
    const fn new(index: u64, now_us: u64) -> Self {
        let none = OwnTotal { counted: 0, floor: 0 };
        Self { index, own: [none; 2], base: 0, is_renewed: false, renewed: now_us, round: 0, next_us: 0 }
    }

    /// Moves to the window of this time. Returns whether the state came from too far in the future.
    fn turn(&mut self, present: u64, now_us: u64) -> bool {
        if self.index > present.saturating_add(1) {
            // The clock stepped back. The counts stay.
            self.index = present;
            self.next_us = 0;
            return true;
        }
        if self.index < present {
            let is_next = self.index + 1 == present;
            let before = if is_next { self.own[0] } else { OwnTotal::default() };
            let renewed = self.renewed.max(self.round).max(now_us);
            let (round, next_us) = (self.round, self.next_us);
            *self = Self {
                own: [OwnTotal::default(), before],
                renewed,
                round,
                next_us,
                ..Self::new(present, now_us)
            };
        }
        false
    }

    /// The own total of this window, if it is one of the two that count.
    fn own_of(&mut self, index: u64) -> Option<&mut OwnTotal> {
        let age = usize::try_from(self.index.checked_sub(index)?).ok()?;
        self.own.get_mut(age)
    }

    /// Raises the own totals to those that another region knows, of this window and of the window before it.
    fn raise_floor(&mut self, index: u64, floor: [u64; 2]) {
        for (age, floor) in (0..).zip(floor) {
            if let Some(own) = index.checked_sub(age).and_then(|of| self.own_of(of)) {
                own.floor = own.floor.max(floor.min(MAX_DEBT));
            }
        }
    }

    /// The units that the region may admit now.
    fn room(&self, terms: &RegionTerms, tally: &WindowUse) -> u64 {
        let RegionTerms { windows: Windows { limit, slides, .. }, policy, portion, .. } = *terms;
        let left = limit.saturating_sub(tally.used());
        if policy == RegionPolicy::AsLastKnown {
            return left;
        }
        // News of the others makes the share smaller at once. Only a renewal makes it larger.
        let rest = limit.saturating_sub(self.base + tally.known + tally.weighed);
        let share = (self.base + portion.part(rest)).saturating_sub(tally.own);
        let alone = portion.part(limit).saturating_sub(tally.own + tally.own_weighed);
        if slides && !self.is_renewed { left.min(share).min(alone) } else { left.min(share) }
    }

    /// Claims an exchange, if one is due. Returns its number, or 0.
    fn claim(
        &mut self,
        terms: &RegionTerms,
        tally: &WindowUse,
        room: u64,
        now_us: u64,
        pause_us: u64,
    ) -> u64 {
        let quantum = terms.quantum();
        let grew = tally.own.saturating_sub(tally.acked);
        let is_worth = grew >= quantum || (grew > 0 && (tally.acked == 0 || room < quantum));
        // Without units, the region needs news to renew its share.
        let is_hungry = room == 0 && tally.used() < terms.windows.limit;
        // A time far in the future comes from before a step back of the clock.
        let is_time =
            now_us >= self.next_us || self.next_us > now_us.saturating_add(pause_us.saturating_mul(2));
        if terms.others.is_empty() || !is_time || !(is_worth || is_hungry) {
            return 0;
        }
        self.round = now_us.max(self.round + 1).max(self.renewed + 1);
        self.next_us = now_us.saturating_add(pause_us);
        self.round
    }
}

impl WindowUse {
    const fn used(&self) -> u64 {
        self.own + self.known + self.weighed
    }
}

impl RegionState {
    /// Answers a question. If the reply contains a claim, the next claim is due after the pause of the scope.
    pub fn answer(&mut self, ask: &Question, scope: &RegionScope, now_us: u64) -> Reply {
        let RegionScope { terms, pause_us, from } = scope;
        let from = from.as_deref().unwrap_or("");
        let now_us = now_us.min(LAST_US);
        let Windows { period_us, slides, .. } = terms.windows;
        let present = now_us / period_us;
        let mut windows = self.windows.unwrap_or(OwnWindows::new(present, now_us));
        let mut writes = windows.turn(present, now_us);
        let index = windows.index;
        let mut granted = 0;
        let mut found = RegionUse { index, ..RegionUse::default() };
        let mut is_exchange = false;
        match *ask {
            Question::Check { cost } => {
                let tally = self.tally(&windows, terms, now_us);
                if cost <= windows.room(terms, &tally) {
                    granted = cost;
                    windows.own[0].counted += cost;
                }
            }
            Question::Post { process, epoch, total } => {
                granted = self.post(&mut windows, slides, process, [epoch, total]);
            }
            Question::Tell { index: of, totals } => {
                let other = self.hear(from, index, of, totals);
                found.known = [other.of(of), other.of(of.saturating_sub(1))];
                is_exchange = true;
            }
            Question::Hear { round, index: of, totals, of: own_index, floor } => {
                self.hear(from, index, of, totals);
                windows.raise_floor(own_index, floor);
                // A larger round comes from before the server lost its data.
                if let Some(other) = self.others.get_mut(from).filter(|_| round <= windows.round) {
                    other.heard = other.heard.max(round);
                    other.acked = other.acked.max(KnownTotal { index: own_index, units: floor[0] });
                }
                is_exchange = true;
                self.renew(&mut windows, terms, now_us);
            }
            // The others, except a peek, are not asked of a region.
            _ => {}
        }
        let tally = self.tally(&windows, terms, now_us);
        found.room = windows.room(terms, &tally);
        if is_exchange {
            writes = true;
        } else {
            found.round = windows.claim(terms, &tally, found.room, now_us, *pause_us);
        }
        found.own = windows.own.map(OwnTotal::units);
        found.used = tally.used();
        if writes || granted > 0 || found.round > 0 {
            self.windows = Some(windows);
        }
        Reply::of_region(granted, now_us, terms, found)
    }

    /// Counts the total that a process reports of a window. Returns the units that it adds.
    fn post(&mut self, windows: &mut OwnWindows, slides: bool, process: u64, report: [u64; 2]) -> u64 {
        let [epoch, total] = report.map(|number| number.min(EXACT - 1));
        let index = windows.index;
        let counts = epoch == index || (slides && epoch + 1 == index);
        if !counts || total == 0 {
            return 0;
        }
        if !self.posts.contains_key(&process) {
            // Processes come and go.
            self.posts.retain(|_, posts| posts.of(index) + posts.of(index.saturating_sub(1)) > 0);
        }
        let grown = self.posts.entry(process).or_default().report(epoch, total);
        let Some(own) = windows.own_of(epoch) else { return 0 };
        let granted = grown.min(MAX_DEBT.saturating_sub(own.counted));
        own.counted += granted;
        granted
    }

    /// Renews the share if every other region has answered an exchange that began after the last renewal.
    fn renew(&self, windows: &mut OwnWindows, terms: &RegionTerms, now_us: u64) {
        let is_news = |name: &str| self.others.get(name).is_some_and(|other| other.heard > windows.renewed);
        if terms.others.iter().all(|name| is_news(name)) {
            windows.base = self.tally(windows, terms, now_us).own;
            windows.is_renewed = true;
            windows.renewed = windows.round.max(now_us);
        }
    }

    /// Returns whether no window counts any more.
    pub(crate) fn is_over(&self, period_us: u64, now_us: u64) -> bool {
        self.windows.is_none_or(|windows| windows.index.saturating_add(3) <= now_us / period_us.max(1))
    }

    /// Returns what is known of a region's total in this window.
    pub fn known_of(&self, name: &str, index: u64) -> u64 {
        self.others.get(name).map_or(0, |other| other.totals.of(index))
    }

    /// Merges the totals that a region reported, if they are not too far in the future. Returns what is known of it.
    fn hear(&mut self, from: &str, present: u64, index: u64, totals: [u64; 2]) -> Totals {
        let totals = totals.map(|units| units.min(MAX_DEBT));
        if index > present.saturating_add(1) {
            return self.others.get(from).map(|other| other.totals).unwrap_or_default();
        }
        if !self.others.contains_key(from) {
            self.others.insert(from.into(), Other::default());
        }
        let Some(other) = self.others.get_mut(from) else { return Totals::default() };
        other.totals.merge(&Totals::new(index, [totals[0], if index > 0 { totals[1] } else { 0 }, 0]));
        other.totals
    }

    fn tally(&self, windows: &OwnWindows, terms: &RegionTerms, now_us: u64) -> WindowUse {
        let others = || terms.others.iter().filter_map(|name| self.others.get(name));
        let known = |index: u64| others().map(|other| other.totals.of(index)).sum::<u64>();
        let index = windows.index;
        let own = windows.own.map(OwnTotal::units);
        let Windows { period_us, slides, .. } = terms.windows;
        let into_us = if index == now_us / period_us { now_us % period_us } else { 0 };
        let weigh = |units: u64| {
            if slides && index > 0 { terms.windows.weighed(units, period_us - into_us) } else { 0 }
        };
        let before = own[1].saturating_add(known(index.saturating_sub(1)));
        let acked = |name: &str| {
            self.others
                .get(name)
                .filter(|other| other.acked.index == index)
                .map_or(0, |other| other.acked.units)
        };
        WindowUse {
            own: own[0],
            known: known(index),
            weighed: weigh(before),
            own_weighed: weigh(own[1]),
            acked: terms.others.iter().map(|name| acked(name)).min().unwrap_or(0),
        }
    }
}
