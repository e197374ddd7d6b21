//! Fixed windows.

use super::batch::Batch;
use super::step::{Algorithm, Wrapper};
use crate::algorithm::compact::{FixedWord, IntoCompact};
use crate::base::quota::{Quota, QuotaError, Reason, or_panic};

/// Fixed windows: at most `limit` units in each window of `period`. The burst is ignored.
///
/// Windows are half-open: `[k × period, (k + 1) × period)`. With [`FixedWindow::new`] they are aligned to the clock's
/// origin, the Unix epoch. With [`FixedWindow::from_first_use`] each key has its own windows: a window begins at the
/// first admission after the key's previous window ended.
///
/// Around a boundary **twice the limit** can be admitted in a short time: the limit just before the boundary, and the
/// limit again just after it. No interval of at most one period admits more than twice the limit. If the requirement is
/// "never more than N in any period", use [`SlidingLog`](crate::SlidingLog) or
/// [`SubWindow::strict`](crate::SubWindow::strict).
///
/// # Examples
/// ```
/// use tollgate::{FixedWindow, ManualClock, Quota, RateLimiter, Timestamp};
///
/// let window = FixedWindow::new(Quota::per_minute(10));
/// let limiter = RateLimiter::builder(window).clock(ManualClock::default()).direct();
/// assert!(limiter.at(Timestamp::from_secs(59)).check_n(10).is_allowed());
/// assert!(limiter.at(Timestamp::from_nanos(59_999_999_999)).check().is_denied());
/// assert!(limiter.at(Timestamp::from_secs(60)).check_n(10).is_allowed());
/// ```
/// # Source
/// Common practice; Envoy's rate limit service counts in this way.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FixedWindow {
    batch: Batch,
}

const NAME: &str = "fixed window";
/// A window that ends returns all its units, including units that were used under another quota.
const ALL: u64 = u64::MAX;

impl FixedWindow {
    /// Creates windows that begin at whole multiples of the period since the clock's origin, the Unix epoch.
    ///
    /// # Panics
    /// Panics if a 64-bit word has no room for both the limit and the index of the window. [`FixedWindow::try_new`]
    /// returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(quota: Quota) -> Self {
        or_panic(Self::aligned(&quota))
    }

    /// Creates windows like [`FixedWindow::new`].
    ///
    /// # Errors
    /// Returns an error if a 64-bit word has no room for both the limit and the index of the window. Rates up to about
    /// half a unit per nanosecond fit (a quarter in the worst case). The error states the maximum.
    pub fn try_new(quota: Quota) -> Result<Self, QuotaError> {
        Ok(Self::aligned(&quota)?)
    }

    /// Creates separate windows for each key. A window begins at the first admission after the key's previous window
    /// ended.
    ///
    /// # Panics
    /// Panics if the limit is above 2³² − 2. [`FixedWindow::try_from_first_use`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn from_first_use(quota: Quota) -> Self {
        or_panic(Self::first_use(&quota))
    }

    /// Creates windows like [`FixedWindow::from_first_use`].
    ///
    /// # Errors
    /// Returns an error if the limit is above 2³² − 2.
    pub fn try_from_first_use(quota: Quota) -> Result<Self, QuotaError> {
        Ok(Self::first_use(&quota)?)
    }

    pub(super) const fn aligned(quota: &Quota) -> Result<Self, Reason> {
        Self::of(Batch::aligned(NAME, quota, [quota.limit(), ALL], 0, false))
    }

    pub(super) const fn first_use(quota: &Quota) -> Result<Self, Reason> {
        Self::of(Batch::from_first_use(NAME, quota, [quota.limit(), ALL]))
    }

    const fn of(batch: Result<Batch, Reason>) -> Result<Self, Reason> {
        match batch {
            Ok(batch) => Ok(Self { batch }),
            Err(reason) => Err(reason),
        }
    }

    /// Returns the quota, and when the units return.
    pub(crate) fn quota(&self) -> (Quota, super::batch::Returns) {
        self.batch.quota()
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
