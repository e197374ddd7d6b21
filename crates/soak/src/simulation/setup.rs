//! The settings of a run.

use std::time::Duration;

use tollgate_redis::Limit;

use super::load::Pattern;

/// What decides the requests.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Leases. A request that finds too few units waits for the server.
    Awaited,
    /// Leases. A request never waits: it is denied if too few units are held.
    Lease,
    /// Write-back: processes decide with their share, and post later.
    WriteBack,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Awaited, Self::Lease, Self::WriteBack];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Awaited => "lease",
            Self::Lease => "lease, sync",
            Self::WriteBack => "write-back",
        }
    }
}

/// The travel time of messages, in each direction.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Network {
    /// 0.5 ms, and up to half as much more.
    Lan,
    /// 40 ms, and up to half as much more.
    Regions,
}

impl Network {
    /// The shortest travel time, in nanoseconds.
    #[must_use]
    pub const fn way_ns(self) -> u64 {
        match self {
            Self::Lan => 500_000,
            Self::Regions => 40_000_000,
        }
    }

    /// How long a node waits for an answer, in nanoseconds.
    #[must_use]
    pub const fn timeout_ns(self) -> u64 {
        match self {
            Self::Lan => 40_000_000,
            Self::Regions => 160_000_000,
        }
    }

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lan => "0.5 ms",
            Self::Regions => "40 ms",
        }
    }
}

/// The faults of a run.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// The percentage of answers that are lost. Their calls still take effect.
    pub lost: u64,
    /// The percentage of calls that are lost. They have no effect.
    pub lost_calls: u64,
    /// The start and end, in milliseconds, of a partition in which the first half of the nodes cannot reach the server.
    pub partition_ms: Option<(u64, u64)>,
}

/// The settings of a run.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Setup {
    /// What decides the requests.
    pub mode: Mode,
    /// The limit.
    pub limit: Limit,
    /// The number of processes.
    pub nodes: u32,
    /// The number of keys.
    pub keys: u32,
    /// How requests are distributed.
    pub pattern: Pattern,
    /// Requests in a second, over all processes.
    pub per_second: u64,
    /// The length of the run in seconds.
    pub seconds: u64,
    /// The time between two posts, or the life of units.
    pub interval: Duration,
    /// The maximum number of units of a key that a process holds.
    pub max_block: u64,
    /// The number of stripes in which a process holds units of a key.
    pub stripes: Option<usize>,
    /// The clock of each node is ahead by less than this.
    pub skew: Duration,
    /// The network.
    pub network: Network,
    /// The faults.
    pub faults: Faults,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Setup {
    /// One key, 300 requests a second for half a minute, posts in each second, clocks that differ by 20 ms, and no faults.
    #[must_use]
    pub fn new(mode: Mode, limit: Limit, nodes: u32) -> Self {
        Self {
            mode,
            limit,
            nodes,
            keys: 1,
            pattern: Pattern::Even,
            per_second: 300,
            seconds: 30,
            interval: Duration::from_secs(1),
            max_block: 4_096,
            stripes: None,
            skew: Duration::from_millis(20),
            network: Network::Lan,
            faults: Faults::default(),
            seed: 7,
        }
    }

    pub(super) fn interval_ns(&self) -> u64 {
        nanos(self.interval)
    }

    pub(super) fn window_ns(&self) -> u64 {
        nanos(self.limit.quota().period())
    }
}

/// A time in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
