//! When exchanges are due, and which pairs of regions are cut off.
//!
//! *Cut off.* A region is cut off from another if no process of it got an answer while calls were sent over three exchange
//! intervals. Since the last answer, the last call that failed was then sent at least two intervals after the first. The
//! next call is due after one more. So a single lost answer is not a cut, however long no key is exchanged after it.
//!
//! *What a region knows.* A claim goes to one process, so each process sees only some of the calls. Once in each interval,
//! every process reports what it saw to the region's own server. The server merges the reports, and answers with what all
//! processes together saw. `links.lua` does this on a server, and [`RegionLinks`] in Rust; tests compare the two.
//!
//! *Clocks.* Reports and answers contain ages, so that the clocks of processes and servers need not agree. A process sends
//! only what it saw itself. If it sent back what it learns, each round trip would make the ages a little smaller.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::terms::{LinkAges, LinkReport};

/// A region is cut off after failed calls over this many exchange intervals.
const SILENT_INTERVALS: u64 = 3;

/// Returns the time to the next exchange of a key: the interval, 10 % more or less. So the exchanges of many keys do
/// not happen at the same time. `random` is any number.
pub fn pause(interval: u64, random: u64) -> u64 {
    let spread = interval / 5;
    let more = u64::try_from((u128::from(random) * u128::from(spread)) >> 64).unwrap_or(spread);
    interval - interval / 10 + more
}

/// The calls from one region to another. The times are of one clock; 0 means never.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
struct LinkCalls {
    /// When the first and the last of the calls were sent that failed since the last answer.
    failed: [u64; 2],
    /// When the last answer arrived.
    answered: u64,
}

impl LinkCalls {
    /// Adds what another process saw. Commutative and idempotent.
    fn merge(&mut self, other: &Self) {
        let answered = self.answered.max(other.answered);
        let after = |[first, last]: [u64; 2]| match (first > answered, last > answered) {
            (true, _) => [first, last],
            (false, true) => [last, last],
            (false, false) => [0, 0],
        };
        let failed = match [after(self.failed), after(other.failed)] {
            [one, [0, _]] => one,
            [[0, _], other] => other,
            [[a, b], [c, d]] => [a.min(c), b.max(d)],
        };
        *self = Self { failed, answered };
    }

    fn is_cut_off(&self, interval: u64) -> bool {
        let [first, last] = self.failed;
        first > 0 && last.saturating_sub(first) >= interval.saturating_mul(SILENT_INTERVALS - 1)
    }

    /// `unit` is the length of a microsecond.
    fn ages(&self, now: u64, unit: u64) -> LinkAges {
        [self.failed[0], self.failed[1], self.answered]
            .map(|at| (at > 0).then(|| now.saturating_sub(at) / unit))
    }

    fn from_ages(ages: LinkAges, now: u64, unit: u64) -> Self {
        let at = |age: u64| now.saturating_sub(age.saturating_mul(unit)).max(1);
        let [first, last, answered] = ages.map(|age| age.map_or(0, at));
        Self { failed: [first, last], answered }
    }
}

/// What a process knows of the way from its region to another.
#[derive(Debug, Default)]
pub struct RegionLink(Mutex<KnownCalls>);

#[derive(Copy, Clone, Default, Debug)]
struct KnownCalls {
    /// What this process saw.
    own: LinkCalls,
    /// What the region's server answered to the last report.
    region: LinkCalls,
}

impl KnownCalls {
    fn all(mut self) -> LinkCalls {
        self.own.merge(&self.region);
        self.own
    }
}

impl RegionLink {
    fn with<R>(&self, work: impl FnOnce(&mut KnownCalls) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a call was not answered. It was sent at this time.
    pub fn failed(&self, sent_ns: u64) {
        let failed = [sent_ns.max(1); 2];
        self.with(|known| known.own.merge(&LinkCalls { failed, answered: 0 }));
    }

    /// Records that a call was answered.
    pub fn answered(&self, now_ns: u64) {
        self.with(|known| known.own.merge(&LinkCalls { failed: [0; 2], answered: now_ns.max(1) }));
    }

    /// Returns what this process saw, for a report to the region's server.
    pub fn report(&self, now_ns: u64) -> LinkAges {
        self.with(|known| known.own.ages(now_ns, 1_000))
    }

    /// Learns what the region knows. The report was sent at this time.
    pub fn learn(&self, ages: LinkAges, sent_ns: u64) {
        self.with(|known| known.region = LinkCalls::from_ages(ages, sent_ns, 1_000));
    }

    /// Returns whether the region is cut off. If no key is exchanged, no call is sent, and the value does not change.
    pub fn is_cut_off(&self, interval_ns: u64) -> bool {
        self.with(|known| known.all().is_cut_off(interval_ns))
    }

    /// The time since the last answer. `None` if no call was answered yet.
    pub fn age_ns(&self, now_ns: u64) -> Option<u64> {
        let answered_ns = self.with(|known| known.all().answered);
        (answered_ns > 0).then(|| now_ns.saturating_sub(answered_ns))
    }
}

/// What a region's server knows of the calls to the other regions. Times are in microseconds.
#[derive(Clone, Default, Debug)]
pub struct RegionLinks {
    calls: BTreeMap<Box<str>, LinkCalls>,
    until_us: u64,
}

impl RegionLinks {
    /// Merges a report. Returns what all processes together saw, in the report's order.
    pub fn merge(&mut self, report: &LinkReport, now_us: u64) -> Vec<LinkAges> {
        if self.until_us <= now_us {
            self.calls.clear();
        }
        self.until_us = now_us.saturating_add(report.life_us);
        let merged = report.links.iter().map(|(name, ages)| {
            let calls = self.calls.entry(name.clone()).or_default();
            calls.merge(&LinkCalls::from_ages(*ages, now_us, 1));
            calls.ages(now_us, 1)
        });
        merged.collect()
    }
}
