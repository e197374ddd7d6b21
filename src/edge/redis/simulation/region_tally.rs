//! What several regions admitted together, and what they may admit.

use std::collections::BTreeMap;
use std::time::Duration;

use super::regions::{RegionSetup, START};
use crate::edge::redis::mode::write_back::over_at_most;
use crate::edge::redis::protocol::Windows;
use crate::edge::redis::region::{RegionBound, quantum};

/// The admissions of each key.
pub(super) struct Admissions {
    windows: Windows,
    skew_ns: u64,
    regions: usize,
    /// For each key: the time and the region of each admission, in order.
    keys: BTreeMap<u32, Vec<(u64, usize)>>,
}

/// The windows of one kind: those in calm, for example.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Worst {
    /// The windows with requests, over all keys.
    pub windows: u64,
    /// The most units that one window admitted beyond the limit.
    pub over: u64,
    /// The largest bound of these windows.
    pub bound: u64,
    /// The windows that admitted more than their bound.
    pub violations: u64,
}

/// What was admitted beyond the limit, by the place of a window relative to the partition.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Phases {
    /// Before and after the partition.
    pub calm: Worst,
    /// The window in which the partition begins.
    pub cut: Worst,
    /// Windows inside the partition.
    pub inside: Worst,
    /// The window in which the partition ends.
    pub healed: Worst,
}

impl Phases {
    /// The windows that admitted more than their bound.
    #[must_use]
    pub const fn violations(&self) -> u64 {
        self.calm.violations + self.cut.violations + self.inside.violations + self.healed.violations
    }
}

impl Worst {
    fn add(&mut self, over: u64, bound: u64) {
        self.windows += 1;
        self.over = self.over.max(over);
        self.bound = self.bound.max(bound);
        self.violations += u64::from(over > bound);
    }
}

/// The admissions of one key in one window.
#[derive(Default)]
struct KeyWindow {
    /// The time and the region of each.
    all: Vec<(u64, usize)>,
    over: u64,
}

impl Admissions {
    pub(super) fn new(windows: Windows, regions: usize, skew: Duration) -> Self {
        let skew_ns = u64::try_from(skew.as_nanos()).unwrap_or(0);
        Self { windows, skew_ns, regions, keys: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, key: u32, region: usize, at: u64) {
        self.keys.entry(key).or_default().push((at, region));
    }

    /// Compares each window with its bound. `age_ns` is the age of a region's knowledge in calm.
    pub(super) fn judge(&self, setup: &RegionSetup, age_ns: u64) -> Phases {
        let mut phases = Phases::default();
        let period_ns = self.windows.period_us * 1_000;
        let limit = self.windows.limit;
        let quantum = quantum(limit);
        let regions = self.regions as u64;
        let bound = RegionBound { policy: setup.policy, limit, regions, quantum };
        // What the write-back mode adds in each region.
        let own = regions * over_at_most(limit, setup.processes.into());
        let cut = setup.partition_ms.map(|(from, until, _)| [from, until].map(|ms| START + ms * 1_000_000));
        for all in self.keys.values() {
            let mut unseen_at_cut = 0;
            for (index, window) in self.windows_of(all) {
                let (begin, end) = (index * period_ns, (index + 1) * period_ns);
                let each = (0..self.regions).map(|region| within(&window.all, region, age_ns));
                let mut each: Vec<u64> = each.collect();
                each.sort_unstable();
                let unseen: u64 = each.iter().skip(1).sum();
                let (phase, most) = match cut {
                    Some([from, until]) if begin < until && from < end => {
                        if from >= begin {
                            let known = from.saturating_sub(age_ns);
                            let seen = window.all.iter().filter(|(at, _)| *at < known).count() as u64;
                            unseen_at_cut = each.iter().sum();
                            (&mut phases.cut, bound.at_cut(seen, unseen_at_cut))
                        } else if until < end {
                            (&mut phases.healed, bound.in_calm(u64::MAX))
                        } else {
                            let counts_cut = self.windows.slides && begin < from + period_ns;
                            let unseen = if counts_cut { unseen_at_cut + regions } else { 0 };
                            (&mut phases.inside, bound.in_partition(unseen))
                        }
                    }
                    _ => (&mut phases.calm, bound.in_calm(unseen)),
                };
                phase.add(window.over, most + own);
            }
        }
        phases
    }

    /// The windows of one key. A fixed window counts by the clock of the region that admitted.
    fn windows_of(&self, all: &[(u64, usize)]) -> BTreeMap<u64, KeyWindow> {
        let Windows { limit, period_us, slides, .. } = self.windows;
        let period_ns = period_us * 1_000;
        let mut windows: BTreeMap<u64, KeyWindow> = BTreeMap::new();
        for &(at, region) in all {
            let local = at + self.skew_ns * region as u64;
            let index = local / period_ns;
            let before = index.checked_sub(1).and_then(|index| windows.get(&index));
            let before = before.map_or(0, |window| window.all.len() as u64);
            let weighed =
                if slides { self.windows.weighed(before, period_us - local % period_ns / 1_000) } else { 0 };
            let window = windows.entry(index).or_default();
            window.all.push((at, region));
            window.over = window.over.max((window.all.len() as u64 + weighed).saturating_sub(limit));
        }
        windows
    }
}

/// The most admissions of a region in any interval of this length.
fn within(all: &[(u64, usize)], region: usize, interval: u64) -> u64 {
    let times: Vec<u64> = all.iter().filter(|(_, of)| *of == region).map(|(at, _)| *at).collect();
    let (mut first, mut most) = (0, 0);
    for (last, at) in times.iter().enumerate() {
        while times[first] + interval < *at {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most as u64
}
