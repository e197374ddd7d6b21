//! Limits of shared limiters.

use std::time::Duration;

use crate::algorithm::Returns;
use crate::algorithm::{
    FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, MinimumSpacing, SlidingLog, SlidingWindow,
    SubWindow, TokenBucket,
};
use crate::base::clock::{Timestamp, saturating_nanos};
use crate::base::quota::Quota;

/// A quota, and the algorithm that enforces it in the shared state.
///
/// Every algorithm of the crate converts into a limit. The methods that take a limit also take the algorithm.
///
/// # Examples
/// ```
/// use tollgate::redis::{InProcess, Limit};
/// use tollgate::{Quota, SlidingLog};
///
/// let api = Limit::gcra(Quota::per_second(100).burst(200));
/// assert_eq!(api.quota().limit(), 100);
///
/// let log = SlidingLog::new(Quota::per_minute(20));
/// let limiter = InProcess::default().limiter("login", log).and(api).atomic()?;
/// # let _ = limiter;
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Limit {
    kind: LimitKind,
    quota: Quota,
}

/// The algorithms that the shared state supports.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LimitKind {
    /// [`Gcra`](crate::Gcra). A token bucket that refills continuously makes the same decisions, and uses this variant.
    Gcra,
    /// [`FixedWindow`](crate::FixedWindow), with windows aligned to the Unix epoch.
    FixedWindow,
    /// [`SlidingWindow`](crate::SlidingWindow): two counts, with the previous count weighted.
    SlidingWindow {
        /// Whether the window is [strict](crate::SlidingWindow::strict).
        strict: bool,
    },
    /// [`SlidingLog`](crate::SlidingLog).
    SlidingLog,
    /// [`SubWindow`](crate::SubWindow) with two or more parts, or a strict one.
    SubWindow {
        /// The number of parts.
        parts: u32,
        /// Whether the counter is [strict](crate::SubWindow::strict).
        strict: bool,
    },
    /// [`MinimumSpacing`](crate::MinimumSpacing). The limit's quota is one unit per spacing.
    MinimumSpacing {
        /// The spacing. Zero cannot be shared.
        spacing: Duration,
    },
    /// [`FixedWindow::from_first_use`](crate::FixedWindow::from_first_use).
    FirstUseWindow,
    /// [`TokenBucket::interval`](crate::TokenBucket::interval).
    IntervalBucket,
    /// [`TokenBucket::aligned`](crate::TokenBucket::aligned) and
    /// [`TokenBucket::aligned_adaptive`](crate::TokenBucket::aligned_adaptive).
    AlignedBucket {
        /// A time at which the bucket refills: the first one at or after the clock's origin.
        at: Timestamp,
        /// Whether a new key starts with a share of a batch.
        adaptive: bool,
    },
    /// [`LeakyBucketQueue`](crate::LeakyBucketQueue).
    LeakyBucketQueue,
}

impl Limit {
    /// Creates a limit for the generic cell rate algorithm: see [`Gcra`](crate::Gcra).
    #[must_use]
    pub const fn gcra(quota: Quota) -> Self {
        Self { kind: LimitKind::Gcra, quota }
    }

    /// Creates a limit for a token bucket that refills continuously: see [`TokenBucket`](crate::TokenBucket). It is the
    /// same as [`gcra`](Self::gcra).
    #[must_use]
    pub const fn token_bucket(quota: Quota) -> Self {
        Self::gcra(quota)
    }

    /// Creates a limit for a fixed window: see [`FixedWindow`](crate::FixedWindow).
    #[must_use]
    pub const fn fixed_window(quota: Quota) -> Self {
        Self { kind: LimitKind::FixedWindow, quota }
    }

    /// Creates a limit for a sliding window of two counts: see [`SlidingWindow`](crate::SlidingWindow).
    #[must_use]
    pub const fn sliding_window(quota: Quota) -> Self {
        Self { kind: LimitKind::SlidingWindow { strict: false }, quota }
    }

    /// Makes a sliding window or a sub-window counter strict: see [`SlidingWindow::strict`](crate::SlidingWindow::strict)
    /// and [`SubWindow::strict`](crate::SubWindow::strict). Other algorithms do not change.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        if let LimitKind::SlidingWindow { strict } | LimitKind::SubWindow { strict, .. } = &mut self.kind {
            *strict = true;
        }
        self
    }

    /// Returns the algorithm.
    #[must_use]
    pub const fn kind(&self) -> LimitKind {
        self.kind
    }

    /// Returns the quota.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the largest cost that can be admitted at once: the burst, or the limit of a window. Minimum spacing admits
    /// every cost.
    #[must_use]
    pub const fn most(&self) -> u64 {
        match self.kind {
            LimitKind::Gcra
            | LimitKind::IntervalBucket
            | LimitKind::AlignedBucket { .. }
            | LimitKind::LeakyBucketQueue => self.quota.burst_size(),
            LimitKind::FixedWindow
            | LimitKind::FirstUseWindow
            | LimitKind::SlidingWindow { .. }
            | LimitKind::SlidingLog
            | LimitKind::SubWindow { .. } => self.quota.limit(),
            LimitKind::MinimumSpacing { .. } => u64::MAX,
        }
    }

    const fn new(kind: LimitKind, quota: Quota) -> Self {
        Self { kind, quota }
    }
}

/// The quota's numbers are those of the algorithm's words: `10/60s` becomes `1/6s burst 10`.
impl From<Gcra> for Limit {
    fn from(algorithm: Gcra) -> Self {
        Self::gcra(algorithm.quota())
    }
}

/// The same limit as that of [`Gcra`], because the decisions are the same.
impl From<LeakyBucketMeter> for Limit {
    fn from(algorithm: LeakyBucketMeter) -> Self {
        Self::gcra(algorithm.quota())
    }
}

impl From<LeakyBucketQueue> for Limit {
    fn from(algorithm: LeakyBucketQueue) -> Self {
        Self::new(LimitKind::LeakyBucketQueue, algorithm.quota())
    }
}

/// A bucket with greedy refill is the same limit as that of [`Gcra`], because the decisions are the same.
impl From<TokenBucket> for Limit {
    fn from(algorithm: TokenBucket) -> Self {
        let (quota, returns) = algorithm.quota();
        let kind = match returns {
            Returns::Continuously => LimitKind::Gcra,
            Returns::FromFirstUse => LimitKind::IntervalBucket,
            Returns::Aligned { at, adaptive } => LimitKind::AlignedBucket { at, adaptive },
        };
        Self::new(kind, quota)
    }
}

impl From<FixedWindow> for Limit {
    fn from(algorithm: FixedWindow) -> Self {
        let (quota, returns) = algorithm.quota();
        let kind = match returns {
            Returns::FromFirstUse => LimitKind::FirstUseWindow,
            Returns::Continuously | Returns::Aligned { .. } => LimitKind::FixedWindow,
        };
        Self::new(kind, quota)
    }
}

impl From<SlidingWindow> for Limit {
    fn from(algorithm: SlidingWindow) -> Self {
        let (quota, strict) = algorithm.quota();
        Self::new(LimitKind::SlidingWindow { strict }, quota)
    }
}

/// A lenient counter of one part is the same limit as that of [`FixedWindow`], because the decisions are the same.
impl From<SubWindow> for Limit {
    fn from(algorithm: SubWindow) -> Self {
        let (quota, parts, strict) = algorithm.quota();
        let kind = match (parts, strict) {
            (1, false) => LimitKind::FixedWindow,
            _ => LimitKind::SubWindow { parts, strict },
        };
        Self::new(kind, quota)
    }
}

impl From<SlidingLog> for Limit {
    fn from(algorithm: SlidingLog) -> Self {
        Self::new(LimitKind::SlidingLog, algorithm.quota())
    }
}

impl From<MinimumSpacing> for Limit {
    fn from(algorithm: MinimumSpacing) -> Self {
        let spacing = algorithm.spacing();
        Self::new(LimitKind::MinimumSpacing { spacing }, Quota::stored(1, saturating_nanos(spacing), 1))
    }
}
