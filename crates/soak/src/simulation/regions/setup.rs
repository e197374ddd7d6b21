//! The settings of a simulation of several regions.

use std::ops::Range;
use std::time::Duration;

use tollgate_redis::{Limit, RegionPolicy};

use crate::simulation::START;
use crate::simulation::setup::nanos;

/// The shortest travel time between a process and the server of its region.
pub(super) const WAY: u64 = 500_000;

/// Which messages between regions are lost during a partition.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Cut {
    /// All.
    All,
    /// Those from and to the first region.
    First,
    /// Those to the first region: its own questions arrive, and their answers are lost.
    OneWay,
}

/// A mistake, to show that the assertions find it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// Regions report the totals of other regions as their own.
    Echo,
    /// Each exchange renews the share, answered or not.
    RenewalWithoutNews,
    /// Each process knows only the calls that it made itself.
    NoReports,
}

/// The settings of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionSetup {
    /// The limit, with windows.
    pub limit: Limit,
    /// What a region may admit.
    pub policy: RegionPolicy,
    /// The requests in a second, for each region.
    pub per_second: Vec<u64>,
    /// The processes in each region.
    pub processes: u32,
    /// The number of keys. The n-th key gets 1/n as many requests as the first.
    pub keys: u32,
    /// The length of the run.
    pub seconds: u64,
    /// The time between two posts of a process.
    pub interval: Duration,
    /// The time between two exchanges of a key.
    pub exchange: Duration,
    /// The shortest travel time of a message between regions. A message takes up to half as much more.
    pub delay: Duration,
    /// The percentage of messages between regions that are lost.
    pub lost: u64,
    /// The start and the end of a partition, in milliseconds.
    pub partition_ms: Option<(u64, u64, Cut)>,
    /// The clock of the n-th region is ahead by n times this time.
    pub skew: Duration,
    /// A mistake.
    pub mistake: Option<Mistake>,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl RegionSetup {
    /// One process in each region and one key, for five minutes. Messages take 100 ms, and none is lost.
    #[must_use]
    pub const fn new(limit: Limit, policy: RegionPolicy, per_second: Vec<u64>) -> Self {
        Self {
            limit,
            policy,
            per_second,
            processes: 1,
            keys: 1,
            seconds: 300,
            interval: Duration::from_secs(1),
            exchange: Duration::from_secs(5),
            delay: Duration::from_millis(100),
            lost: 0,
            partition_ms: None,
            skew: Duration::ZERO,
            mistake: None,
            seed: 7,
        }
    }

    pub(super) fn exchange_ns(&self) -> u64 {
        nanos(self.exchange)
    }

    pub(super) fn delay_ns(&self) -> u64 {
        nanos(self.delay)
    }

    /// The partition, as times of the run.
    pub(super) fn partition_ns(&self) -> Option<Range<u64>> {
        self.partition_ms.map(|(since, until, _)| START + since * 1_000_000..START + until * 1_000_000)
    }

    /// The messages that are lost at this time, if a partition is under way.
    pub(super) fn cut_at(&self, at: u64) -> Option<Cut> {
        let (_, _, cut) = self.partition_ms?;
        self.partition_ns()?.contains(&at).then_some(cut)
    }

    /// The time between two posts, and two round trips inside the region.
    pub(super) fn flush_ns(&self) -> u64 {
        nanos(self.interval) + 8 * WAY
    }

    /// How old the knowledge of another region can be: one exchange, one message, and one post on either side.
    pub(super) fn age_ns(&self, lost: u64) -> u64 {
        self.exchange_ns() * (lost + 1) * 11 / 10 + self.delay_ns() * 3 / 2 + 2 * self.flush_ns()
    }

    /// The time in which regions agree after a partition.
    pub(super) fn agreement_ns(&self) -> u64 {
        self.exchange_ns() * 11 / 10 + 2 * self.delay_ns() * 3 / 2 + 2 * self.flush_ns()
    }
}
