//! A limit that is chosen at run time: an algorithm with its quota, as a value.

mod kind;
mod text;

pub use self::kind::LimitKind;
use super::{Block, Blocked, MinimumSpacing};
use crate::base::quota::{Quota, QuotaError, Reason, or_panic};

/// An algorithm and its quota, chosen at run time.
///
/// A limit can come from a file, from the command line or from a message, because it reads and writes text. Every
/// algorithm of the crate converts into a limit.
///
/// # Text
/// A text is a quota (see [`Quota`]), with the name of the algorithm before it: `sliding-log 3/10s`. [`LimitKind`] has the
/// names and their options. Without a name, it is GCRA: `100/min burst 20`. After GCRA, `token-bucket` and `leaky-bucket`, a text
/// can have the times of [blocks](Blocked): `5/min block 10min`, `5/min block 10min to 1d`. The second one is the longest.
///
/// [`Display`](core::fmt::Display) writes the shortest such text, and [`FromStr`](core::str::FromStr) reads the same
/// limit from it. For a calendar, it writes a text for people, which nothing reads.
///
/// # Examples
/// ```
/// use tollgate::{Gcra, Limit, LimitKind, Quota, SubWindow};
///
/// let limit: Limit = "100/min burst 20".parse()?;
/// assert_eq!(limit.kind(), LimitKind::Gcra);
/// assert_eq!(limit.quota(), Quota::per_minute(100).burst(20));
///
/// let hourly = Limit::from(SubWindow::new(Quota::per_hour(500), 60).strict());
/// assert_eq!(hourly.to_string(), "sub-window(60, strict) 500/h");
/// assert_eq!(hourly.to_string().parse::<Limit>()?, hourly);
///
/// let error = "sliding-log 3/10s burst 5".parse::<Limit>().unwrap_err();
/// assert!(error.to_string().contains("no burst"));
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
/// # Complexity
/// O(1) for all methods; parsing is linear in the length of the text.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Limit {
    kind: LimitKind,
    quota: Quota,
    block: Option<Block>,
}

impl Limit {
    /// Creates a limit for the generic cell rate algorithm: see [`Gcra`](crate::Gcra). Accepts every quota.
    #[must_use]
    pub const fn gcra(quota: Quota) -> Self {
        Self { kind: LimitKind::Gcra, quota, block: None }
    }

    /// Creates a limit for a token bucket that refills continuously: see [`TokenBucket`](crate::TokenBucket). Accepts every quota.
    #[must_use]
    pub const fn token_bucket(quota: Quota) -> Self {
        Self { kind: LimitKind::TokenBucket, quota, block: None }
    }

    /// Creates a limit for a fixed window that is aligned to the Unix epoch: see [`FixedWindow`](crate::FixedWindow).
    ///
    /// # Panics
    /// Panics if the algorithm cannot hold the quota; in a constant, at compile time. [`Limit::try_new`] returns the
    /// error instead.
    #[must_use]
    #[track_caller]
    pub const fn fixed_window(quota: Quota) -> Self {
        or_panic(Self::checked(LimitKind::FixedWindow, quota))
    }

    /// Creates a limit for a sliding window of two counts: see [`SlidingWindow`](crate::SlidingWindow).
    ///
    /// # Panics
    /// The same as for [`Limit::fixed_window`].
    #[must_use]
    #[track_caller]
    pub const fn sliding_window(quota: Quota) -> Self {
        or_panic(Self::checked(LimitKind::SlidingWindow { strict: false }, quota))
    }

    /// Creates a limit from an algorithm and a quota.
    ///
    /// The limit drops what its algorithm does not use: window algorithms have no burst, so their quota's burst becomes
    /// their limit. [`LimitKind::MinimumSpacing`] contains its spacing, so it ignores the quota.
    ///
    /// # Errors
    /// Returns an error if the algorithm cannot hold the quota or the parameters. The error states the maximum.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Limit, LimitKind, Quota};
    ///
    /// let hourly = Limit::try_new(LimitKind::SubWindow { parts: 60, strict: true }, Quota::per_hour(500))?;
    /// assert_eq!(hourly.most(), 500);
    /// let error = Limit::try_new(LimitKind::SlidingLog, Quota::per_day(1_000_000)).unwrap_err();
    /// assert!(error.to_string().contains("65536"));
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn try_new(kind: LimitKind, quota: Quota) -> Result<Self, QuotaError> {
        Ok(Self::checked(kind, quota)?)
    }

    /// Returns a limit of the same algorithm with another quota. Minimum spacing takes `period / limit`, rounded up to a
    /// nanosecond, as its spacing. With the limit's own quota, the limit does not change.
    ///
    /// # Errors
    /// Returns an error if the algorithm cannot hold the quota. The error states the maximum.
    pub fn with_quota(&self, quota: Quota) -> Result<Self, QuotaError> {
        match self.kind {
            // No quota has the interval of some spacings: zero, or above 2⁶³ ns.
            _ if quota == self.quota => Ok(*self),
            LimitKind::MinimumSpacing { .. } => Ok(MinimumSpacing::from(quota).into()),
            kind => {
                let limit = Self::try_new(kind, quota)?;
                self.block.map_or(Ok(limit), |block| limit.with_block(block))
            }
        }
    }

    /// Returns the same limit with blocks after denials: see [`Blocked`].
    ///
    /// # Errors
    /// Returns an error if the algorithm is not GCRA, a token bucket with continuous refill, or a leaky bucket as a meter,
    /// or if the block does not fit the quota. The error states the maximum.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Block, Limit, Quota};
    ///
    /// let ten_minutes = Block::of(Duration::from_secs(600));
    /// let logins = Limit::gcra(Quota::per_minute(5)).with_block(ten_minutes)?;
    /// assert_eq!(logins.to_string(), "5/min block 10min");
    /// assert!(Limit::fixed_window(Quota::per_minute(5)).with_block(ten_minutes).is_err());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn with_block(self, block: Block) -> Result<Self, QuotaError> {
        Ok(self.blocking(block)?)
    }

    const fn blocking(self, block: Block) -> Result<Self, Reason> {
        if !self.kind.has_blocks() {
            return Err(Reason::NoBlocks { algorithm: self.kind.name() });
        }
        match Blocked::checked(&self.quota, block) {
            Ok(_) => Ok(Self { block: Some(block), ..self }),
            Err(reason) => Err(reason),
        }
    }

    /// Returns how long a denial blocks a key, if it does.
    #[must_use]
    pub const fn block(&self) -> Option<Block> {
        self.block
    }

    /// Returns the same limit with another [`most`](Self::most).
    ///
    /// # Errors
    /// If the algorithm cannot hold that many units.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Limit, Quota};
    ///
    /// let limit = Limit::gcra(Quota::per_minute(60).burst(10));
    /// assert_eq!(limit.with_most(15)?, Limit::gcra(Quota::per_minute(60).burst(15)));
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn with_most(&self, most: u64) -> Result<Self, QuotaError> {
        self.with_quota(match self.kind.has_burst() {
            true => self.quota.try_burst(most)?,
            false => Quota::try_new(most, self.quota.period())?,
        })
    }

    /// Makes a sliding window or a sub-window counter strict: see [`SlidingWindow::strict`](crate::SlidingWindow::strict) and [`SubWindow::strict`](crate::SubWindow::strict).
    /// Other algorithms do not change.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        if let LimitKind::SlidingWindow { strict } | LimitKind::SubWindow { strict, .. } = &mut self.kind {
            *strict = true;
        }
        self
    }

    /// Returns the algorithm, with its parameters.
    #[must_use]
    pub const fn kind(&self) -> LimitKind {
        self.kind
    }

    /// Returns the quota. For algorithms without a burst, its burst is its limit. For minimum spacing, it is one unit per
    /// spacing.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the largest cost that can be admitted at once: the burst, or the limit of a window. Minimum spacing admits
    /// every cost.
    #[must_use]
    pub const fn most(&self) -> u64 {
        match self.kind {
            LimitKind::MinimumSpacing { .. } => u64::MAX,
            kind if kind.has_burst() => self.quota.burst_size(),
            _ => self.quota.limit(),
        }
    }

    /// Returns the limit that stands for all limits with the same decisions.
    #[must_use]
    #[doc(hidden)]
    pub const fn canonical(self) -> Self {
        let kind = match self.kind {
            LimitKind::TokenBucket | LimitKind::LeakyBucketMeter => LimitKind::Gcra,
            LimitKind::SubWindow { parts: 1, strict: false } => LimitKind::FixedWindow,
            other => other,
        };
        Self { kind, ..self }
    }
}

/// The default algorithm, GCRA.
impl From<Quota> for Limit {
    fn from(quota: Quota) -> Self {
        Self::gcra(quota)
    }
}
