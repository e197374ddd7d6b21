//! Limits of shared limiters.

use crate::base::quota::Quota;

/// A quota, and the algorithm that enforces it in the shared state.
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate::redis::Limit;
///
/// let api = Limit::gcra(Quota::per_second(100).burst(200));
/// let daily = Limit::fixed_window(Quota::per_day(10_000));
/// assert_eq!(api.quota().limit(), 100);
/// # let _ = daily;
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

    /// Makes a sliding window strict: see [`SlidingWindow::strict`](crate::SlidingWindow::strict). Other algorithms do
    /// not change.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        if let LimitKind::SlidingWindow { strict } = &mut self.kind {
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

    /// Returns the largest cost that can be admitted at once: the burst, or the limit of a window.
    #[must_use]
    pub const fn most(&self) -> u64 {
        match self.kind {
            LimitKind::Gcra => self.quota.burst_size(),
            LimitKind::FixedWindow | LimitKind::SlidingWindow { .. } => self.quota.limit(),
        }
    }
}
