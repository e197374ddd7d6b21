//! What several regions admitted together, and what they may admit.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use tollgate_protocol::{Windows, quantum};
use tollgate_redis::internals::over_at_most;

use super::bound::RegionBound;
use super::setup::RegionSetup;
use crate::simulation::bounds::most_within;
use crate::simulation::setup::nanos;

/// The admissions of each key.
pub(super) struct Admissions {
    windows: Windows,
    skew_ns: u64,
    regions: usize,
    /// For each key: the admissions, in order.
    keys: BTreeMap<u32, Vec<Admission>>,
}

/// A unit that a process admitted.
#[derive(Copy, Clone)]
struct Admission {
    at: u64,
    region: usize,
    process: usize,
}

/// The windows of one kind: those in calm, for example.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
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
pub struct Phases {
    /// Before and after the partition.
    pub calm: Worst,
    /// The window in which the partition begins.
    pub cut: Worst,
    /// Windows inside the partition.
    pub inside: Worst,
    /// The window in which the partition ends.
    pub healed: Worst,
    /// Fixed windows in calm, counted by the clock of the first region.
    pub one_clock: Worst,
}

impl Phases {
    /// The windows that admitted more than their bound.
    #[must_use]
    pub const fn violations(&self) -> u64 {
        let Self { calm, cut, inside, healed, one_clock } = self;
        calm.violations + cut.violations + inside.violations + healed.violations + one_clock.violations
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
    all: Vec<Admission>,
    over: u64,
}

impl Admissions {
    pub(super) fn new(windows: Windows, regions: usize, skew: Duration) -> Self {
        let skew_ns = nanos(skew);
        Self { windows, skew_ns, regions, keys: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, key: u32, region: usize, process: usize, at: u64) {
        self.keys.entry(key).or_default().push(Admission { at, region, process });
    }

    /// Compares each window with its bound. `age_ns` is the age of a region's knowledge in calm, and `flush_ns` the time
    /// between two answers to a process.
    pub(super) fn judge(&self, setup: &RegionSetup, age_ns: u64, flush_ns: u64) -> Phases {
        let mut phases = Phases::default();
        let period_ns = self.windows.period_us * 1_000;
        let limit = self.windows.limit;
        let quantum = quantum(limit);
        let regions = self.regions as u64;
        let bound = RegionBound { policy: setup.policy, limit, regions, quantum };
        // What the write-back mode adds in each region.
        let own = regions * over_at_most(limit, setup.processes.into());
        let processes = self.regions * setup.processes.max(1) as usize;
        let cut = setup.partition_ns();
        for all in self.keys.values() {
            let mut unseen_at_cut = 0;
            for (index, window) in self.windows_of(all) {
                let (begin, end) = (index * period_ns, (index + 1) * period_ns);
                let each = |interval| {
                    let each = (0..self.regions)
                        .map(|region| within(&window.all, |one| one.region == region, interval));
                    let mut each: Vec<u64> = each.collect();
                    each.sort_unstable();
                    each
                };
                let unseen = |interval| each(interval).iter().skip(1).sum::<u64>();
                // What processes admit before they learn what the server of their region knows.
                let starts =
                    (0..processes).map(|number| within(&window.all, |one| one.process == number, flush_ns));
                let mut unlearnt: u64 = starts.sum();
                if setup.processes > 1 {
                    unlearnt += each(flush_ns).iter().sum::<u64>();
                }
                let in_calm = bound.in_calm(unseen(age_ns + flush_ns)).saturating_add(unlearnt);
                let in_calm = in_calm.min(bound.in_calm(u64::MAX) + own);
                let (phase, most) = match cut.clone() {
                    Some(Range { start: from, end: until }) if begin < until && from < end => {
                        if from >= begin {
                            let known = from.saturating_sub(age_ns);
                            let seen = window.all.iter().filter(|one| one.at < known).count() as u64;
                            unseen_at_cut = each(age_ns).iter().sum();
                            (&mut phases.cut, bound.at_cut(seen, unseen_at_cut) + own)
                        } else if until < end {
                            (&mut phases.healed, bound.in_calm(u64::MAX) + own)
                        } else {
                            let counts_cut = self.windows.slides && begin < from + period_ns;
                            let unseen = if counts_cut { unseen_at_cut + regions } else { 0 };
                            (&mut phases.inside, bound.in_partition(unseen) + own)
                        }
                    }
                    _ => (&mut phases.calm, in_calm),
                };
                phase.add(window.over, most);
                if cut.is_none() && !self.windows.slides {
                    // The units that other regions count in the next window, by clocks that are ahead.
                    let ahead = (0..self.regions)
                        .map(|region| within(all, |one| one.region == region, self.skew_ns * region as u64));
                    let in_window = all.iter().filter(|one| (begin..end).contains(&one.at)).count() as u64;
                    let ahead = if self.skew_ns > 0 { ahead.sum() } else { 0 };
                    phases.one_clock.add(in_window.saturating_sub(limit), in_calm + ahead);
                }
            }
        }
        phases
    }

    /// The windows of one key. A fixed window counts by the clock of the region that admitted.
    fn windows_of(&self, all: &[Admission]) -> BTreeMap<u64, KeyWindow> {
        let Windows { limit, period_us, slides, .. } = self.windows;
        let period_ns = period_us * 1_000;
        let mut windows: BTreeMap<u64, KeyWindow> = BTreeMap::new();
        for one in all {
            let local = one.at + self.skew_ns * one.region as u64;
            let index = local / period_ns;
            let before = index.checked_sub(1).and_then(|index| windows.get(&index));
            let before = before.map_or(0, |window| window.all.len() as u64);
            let weighed =
                if slides { self.windows.weighed(before, period_us - local % period_ns / 1_000) } else { 0 };
            let window = windows.entry(index).or_default();
            window.all.push(*one);
            window.over = window.over.max((window.all.len() as u64 + weighed).saturating_sub(limit));
        }
        windows
    }
}

/// The most of these admissions in any interval of this length.
fn within(all: &[Admission], is_counted: impl Fn(&Admission) -> bool, interval: u64) -> u64 {
    most_within(all.iter().filter(|one| is_counted(one)).map(|one| one.at), interval)
}
