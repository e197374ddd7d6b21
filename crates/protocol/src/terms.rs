//! What the server of a region must know and answers: the region's part of a limit, its totals, and its links to others.

use std::sync::Arc;

use super::plan::Windows;

/// What a region may admit while it does not know the latest totals of the other regions.
///
/// [`WriteBackLimiter`](https://docs.rs/tollgate-redis/latest/tollgate_redis/struct.WriteBackLimiter.html#several-regions) states the bound of each policy.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
#[non_exhaustive]
pub enum RegionPolicy {
    /// The region may admit its share of the units that were left at the last renewal. Its share is renewed only after
    /// each of the other regions answered. A region that is cut off admits at most its share of the limit in each new
    /// window. This is the default.
    #[default]
    Share,
    /// The region may admit all units that are left, as far as it knows. It never denies a request that the limit
    /// permits, but a region that is cut off admits the whole limit in each new window.
    AsLastKnown,
}

/// A region's part of a number of units. The parts of all regions have the sum of exactly that number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Portion {
    /// The weights of the regions before this region.
    pub from: u64,
    /// The weights of the regions before this region, and its own.
    pub to: u64,
    /// The weights of all regions.
    pub of: u64,
}

impl Portion {
    /// Returns this region's part of this many units.
    pub fn part(&self, units: u64) -> u64 {
        let up_to = |weight: u64| u128::from(units) * u128::from(weight) / u128::from(self.of.max(1));
        u64::try_from(up_to(self.to).saturating_sub(up_to(self.from))).unwrap_or(u64::MAX)
    }
}

/// What a region's server must know about a limit to answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionTerms {
    /// The windows of the limit.
    pub windows: Windows,
    /// What the region may admit without the latest totals of the others.
    pub policy: RegionPolicy,
    /// This region's share.
    pub portion: Portion,
    /// The names of the other regions.
    pub others: Box<[Box<str>]>,
}

/// A call to the server of a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionScope {
    /// The region's part of the limit.
    pub terms: Arc<RegionTerms>,
    /// The time from this claim of an exchange to the next, if the reply contains a claim.
    pub pause_us: u64,
    /// The region whose totals an exchange reports.
    pub from: Option<Arc<str>>,
}

impl RegionTerms {
    /// The growth of the own total that is worth an exchange.
    pub fn quantum(&self) -> u64 {
        quantum(self.windows.limit)
    }
}

/// The growth of a region's total that is worth an exchange: 1/64 of the limit, and at least one unit.
pub fn quantum(limit: u64) -> u64 {
    (limit / 64).max(1)
}

/// What a region's server knows of a limit.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct RegionUse {
    /// The index of the current window.
    pub index: u64,
    /// The own totals in the current window and in the window before.
    pub own: [u64; 2],
    /// All units that count against the limit, as far as the server knows.
    pub used: u64,
    /// The units that the region may admit now.
    pub room: u64,
    /// If the key is due for an exchange, the number of this exchange. Otherwise 0. Rounds are never 0.
    pub round: u64,
    /// After [`Tell`](crate::Question::Tell): the totals that the server knows of the region that asked.
    pub known: [u64; 2],
}

/// How long ago the first failed call, the last failed call and the last answer were, in microseconds. `None` means never.
pub type LinkAges = [Option<u64>; 3];

/// A report of one process about its calls to other regions.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// The key in Redis.
    pub name: Vec<u8>,
    /// How long the server remembers the report.
    pub life_us: u64,
    /// What the process saw of each other region.
    pub links: Vec<(Box<str>, LinkAges)>,
}
