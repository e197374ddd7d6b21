//! Fixed windows.

use super::batch::Batch;
use super::step::{Algorithm, Wrapper};
use crate::algorithm::compact::{FixedWord, IntoCompact};
use crate::base::quota::{Quota, QuotaError, Reason, or_panic};

/// Fixed windows: `limit` units in each window of `period`; the burst is ignored.
///
/// Windows are half-open, `[k × period, (k + 1) × period)`, and either aligned to the Unix epoch ([`FixedWindow::new`];
/// the clock's origin) or opened, for each key, by its first admission after the last window ended
/// ([`FixedWindow::from_first_use`]).
///
/// Around a boundary **twice the limit** can be admitted in a short time: the limit just before it, and again
/// just after. Any interval no longer than the period is bounded by that. If "never more than N in any period" is
/// meant, use [`SlidingLog`](crate::SlidingLog), or [`SubWindow::strict`](crate::SubWindow::strict).
///
/// # Examples
/// ```
/// use tollgate::{FixedWindow, ManualClock, Quota, RateLimiter, Timestamp};
///
/// let window = FixedWindow::new(Quota::per_minute(10));
/// let limiter = RateLimiter::builder(window).clock(ManualClock::default()).direct();
/// assert!(limiter.check_at(10, Timestamp::from_secs(59)).is_allowed());
/// assert!(limiter.check_at(1, Timestamp::from_nanos(59_999_999_999)).is_denied());
/// assert!(limiter.check_at(10, Timestamp::from_secs(60)).is_allowed());
/// ```
/// # Source
/// Common practice; Envoy's rate limit service counts so.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FixedWindow {
    batch: Batch,
}

const NAME: &str = "fixed window";
/// A window that ends gives all of its units back, whatever quota they were used under.
const ALL: u64 = u64::MAX;

impl FixedWindow {
    /// Windows that begin at whole multiples of the period since the clock's origin, the Unix epoch.
    ///
    /// # Panics
    /// If the word has no room: [`FixedWindow::try_new`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(quota: Quota) -> Self {
        Self { batch: or_panic(Batch::aligned(NAME, &quota, [quota.limit(), ALL], 0, false)) }
    }

    /// As [`FixedWindow::new`].
    ///
    /// # Errors
    /// If the word has no room for the limit beside the index of the window: it does up to about half a
    /// unit a nanosecond (a quarter in the worst case), and the error says how much would fit.
    pub fn try_new(quota: Quota) -> Result<Self, QuotaError> {
        Ok(Self { batch: Batch::aligned(NAME, &quota, [quota.limit(), ALL], 0, false)? })
    }

    /// Windows that each key opens for itself, by its first admission after the last one ended.
    ///
    /// # Panics
    /// If the limit is above 2³² − 2: [`FixedWindow::try_from_first_use`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn from_first_use(quota: Quota) -> Self {
        Self { batch: or_panic(Batch::from_first_use(NAME, &quota, [quota.limit(), ALL])) }
    }

    /// As [`FixedWindow::from_first_use`].
    ///
    /// # Errors
    /// If the limit is above 2³² − 2.
    pub fn try_from_first_use(quota: Quota) -> Result<Self, QuotaError> {
        Ok(Self { batch: Batch::from_first_use(NAME, &quota, [quota.limit(), ALL])? })
    }
}

impl Wrapper for FixedWindow {
    type Engine = Batch;

    #[inline]
    fn engine(&self) -> &Batch {
        &self.batch
    }
}

impl IntoCompact for FixedWindow {
    type CompactState = FixedWord;

    fn compact(&self, tiers: &[Quota], overdraft: u64) -> Result<FixedWord, QuotaError> {
        match self.batch.aligned_quota() {
            Some(quota) => FixedWord::new(NAME, &quota, tiers, overdraft, false),
            None => {
                let instead = "windows that are the same for all keys (FixedWindow::new)";
                Err(Reason::NoCompactForm { algorithm: NAME, instead }.into())
            }
        }
    }

    fn tier(&self, own: &FixedWord, quota: &Quota) -> Result<FixedWord, QuotaError> {
        own.tier(NAME, quota)
    }
}

impl Algorithm for FixedWindow {
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self { batch: self.batch.requota(NAME, quota, [quota.limit(), ALL])? })
    }

    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self { batch: self.batch.with_quota(NAME, quota, [quota.limit(), ALL])? })
    }
}
