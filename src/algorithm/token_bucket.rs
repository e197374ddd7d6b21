//! The token bucket, with three ways to refill it.

use super::batch::{Batch, Returns};
use super::pace::Pace;
use super::step::{Algorithm, Refund, Refunded, Step, Stepper};
use crate::algorithm::compact::{IntoCompact, TatWord};
use crate::base::clock::Timestamp;
use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError, Reason, or_panic};
use crate::base::sync::AtomicU64;

/// The token bucket: holds `burst` tokens, and refills with `limit` tokens per period.
///
/// A request is admitted if the bucket holds as many tokens as the request costs. A bucket starts full.
///
/// | refill | tokens come | made by |
/// |---|---|---|
/// | greedy | one by one, spread evenly over the period | [`TokenBucket::new`] |
/// | interval | `limit` at once at the end of each period; the first use of a full bucket starts a period | [`TokenBucket::interval`] |
/// | aligned | `limit` at once at `t₀ + k × period`, the same for all keys | [`TokenBucket::aligned`] |
///
/// Greedy refill makes the same decisions as [`Gcra`](crate::Gcra) and keeps the same word. In any interval of length
/// `t`, greedy refill admits at most `burst + limit × t / period` units. Interval and aligned refill admit at most
/// `burst + limit × (⌊t / period⌋ + 1)` units.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, Quota, RateLimiter, TokenBucket};
///
/// // Five tokens, three more every ten minutes, all three at once.
/// let clock = ManualClock::default();
/// let quota = Quota::new(3, Duration::from_secs(600)).burst(5);
/// let limiter = RateLimiter::builder(TokenBucket::interval(quota)).clock(clock.clone()).direct();
/// assert!(limiter.check_n(5).is_allowed());
/// clock.advance(Duration::from_secs(599));
/// assert!(limiter.check().is_denied());
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(limiter.check().remaining(), 2);
/// ```
/// # Source
/// S. Shenker, C. Partridge and R. Guérin, RFC 2212 §3 (greedy); Bucket4j's refill kinds (interval and aligned).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    refill: Refill,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Refill {
    Greedy(Pace<false>),
    Batch(Batch),
}

const NAME: &str = "token bucket";

/// Evaluates an expression with the engine of the bucket's refill.
macro_rules! with_engine {
    ($self:ident, $engine:ident => $call:expr) => {
        match &$self.refill {
            Refill::Greedy($engine) => $call,
            Refill::Batch($engine) => $call,
        }
    };
}

impl TokenBucket {
    /// Creates a bucket with greedy refill: one token per `period / limit`. Accepts every quota.
    #[must_use]
    pub const fn new(quota: Quota) -> Self {
        Self { refill: Refill::Greedy(Pace::new(&quota)) }
    }

    /// Creates a bucket with interval refill: `limit` tokens at the end of each period.
    ///
    /// A key's periods start at the first use of its full bucket. When the bucket is full again, its old periods no
    /// longer matter: the next use starts new periods. A client can therefore never empty a full bucket just before a
    /// refill.
    ///
    /// # Panics
    /// Panics if the burst is above 2³² − 2. [`TokenBucket::try_interval`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn interval(quota: Quota) -> Self {
        or_panic(Self::from_first_use(&quota))
    }

    /// Creates a bucket with interval refill, like [`TokenBucket::interval`].
    ///
    /// # Errors
    /// Returns an error if the burst is above 2³² − 2.
    pub fn try_interval(quota: Quota) -> Result<Self, QuotaError> {
        Ok(Self::from_first_use(&quota)?)
    }

    /// Creates a bucket with aligned refill: `limit` tokens at `at`, and at every whole number of periods before or
    /// after `at`, for all keys.
    ///
    /// # Panics
    /// Panics if a 64-bit word has no room for both the burst and the index of the period.
    /// [`TokenBucket::try_aligned`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn aligned(quota: Quota, at: Timestamp) -> Self {
        or_panic(Self::in_batches(&quota, at, false))
    }

    /// Creates a bucket with aligned refill, like [`TokenBucket::aligned`].
    ///
    /// # Errors
    /// Returns an error if a 64-bit word has no room for both the burst and the index of the period. The error states
    /// the maximum.
    pub fn try_aligned(quota: Quota, at: Timestamp) -> Result<Self, QuotaError> {
        Ok(Self::in_batches(&quota, at, false)?)
    }

    /// Creates a bucket with aligned refill and an adaptive start: a key's first, partial period gives a share of a
    /// batch.
    ///
    /// A new key starts with `burst − limit` tokens (none if that is negative) plus `limit × time to the next refill /
    /// period`, rounded down. It starts with at most the burst. (If burst and limit are both 1, a key therefore starts
    /// with its token only if its first use is exactly at a refill.)
    ///
    /// Keys of a limiter with an adaptive start are never idle, because a removed key would get a new start. A keyed
    /// store therefore keeps them. Set its maximum number of keys, or remove keys yourself.
    ///
    /// # Panics
    /// The same as for [`TokenBucket::aligned`].
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, ManualClock, RateLimiter, Timestamp, TokenBucket};
    ///
    /// // 400 tokens per hour; the first customer comes 20 minutes past the hour.
    /// let bucket = TokenBucket::aligned_adaptive(Quota::per_hour(400), Timestamp::ZERO);
    /// let clock = ManualClock::new(Timestamp::from_secs(20 * 60));
    /// let limiter = RateLimiter::builder(bucket).clock(clock).direct();
    /// assert_eq!(limiter.peek().remaining(), 266);
    /// ```
    #[must_use]
    #[track_caller]
    pub const fn aligned_adaptive(quota: Quota, at: Timestamp) -> Self {
        or_panic(Self::in_batches(&quota, at, true))
    }

    /// Creates a bucket with an adaptive start, like [`TokenBucket::aligned_adaptive`].
    ///
    /// # Errors
    /// The same as for [`TokenBucket::try_aligned`].
    pub fn try_aligned_adaptive(quota: Quota, at: Timestamp) -> Result<Self, QuotaError> {
        Ok(Self::in_batches(&quota, at, true)?)
    }

    /// Returns the quota, and when the units return.
    pub(crate) fn quota(&self) -> (Quota, Returns) {
        match &self.refill {
            Refill::Greedy(pace) => (pace.quota(), Returns::Continuously),
            Refill::Batch(batch) => batch.quota(),
        }
    }

    pub(super) const fn from_first_use(quota: &Quota) -> Result<Self, Reason> {
        Self::of(Batch::from_first_use(NAME, quota, [quota.burst_size(), quota.limit()]))
    }

    pub(super) const fn in_batches(quota: &Quota, at: Timestamp, adaptive: bool) -> Result<Self, Reason> {
        let units = [quota.burst_size(), quota.limit()];
        Self::of(Batch::aligned(NAME, quota, units, at.as_nanos(), adaptive))
    }

    const fn of(batch: Result<Batch, Reason>) -> Result<Self, Reason> {
        match batch {
            Ok(batch) => Ok(Self { refill: Refill::Batch(batch) }),
            Err(reason) => Err(reason),
        }
    }
}

impl Stepper for TokenBucket {
    type Tail = [AtomicU64; 2];

    #[inline]
    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        with_engine!(self, engine => engine.step(head, read, now_ns, cost))
    }

    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        with_engine!(self, engine => engine.force(head, read, now_ns, cost))
    }

    fn reserve(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64, wait_ns: u64) -> Step {
        with_engine!(self, engine => engine.reserve(head, read, now_ns, cost, wait_ns))
    }

    fn seed(&self, now_ns: u64, units: u64) -> Step {
        with_engine!(self, engine => engine.seed(now_ns, units))
    }

    fn owed(&self, decision: &Decision) -> u64 {
        with_engine!(self, engine => engine.owed(decision))
    }

    const CAN_REFUND: bool = true;

    fn refund(&self, head: u64, read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        with_engine!(self, engine => engine.refund(head, read, refund))
    }

    fn reads(&self, other: &Self) -> bool {
        match (&self.refill, &other.refill) {
            (Refill::Greedy(own), Refill::Greedy(other)) => own.reads(other),
            (Refill::Batch(own), Refill::Batch(other)) => own.reads(other),
            _ => false,
        }
    }

    #[inline]
    fn is_idle(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        with_engine!(self, engine => engine.is_idle(head, read, now_ns))
    }

    #[inline]
    fn until_idle(&self, head: u64, read: impl Fn(usize) -> u64 + Copy, now_ns: u64) -> u64 {
        with_engine!(self, engine => engine.until_idle(head, read, now_ns))
    }
}

impl IntoCompact for TokenBucket {
    type CompactState = TatWord;

    fn compact(&self, tiers: &[Quota], overdraft: u64) -> Result<TatWord, QuotaError> {
        match &self.refill {
            Refill::Greedy(pace) => pace.compact(NAME, tiers, overdraft),
            Refill::Batch(_) => {
                let instead =
                    "greedy refill (TokenBucket::new), or FixedWindow if each refill fills the bucket";
                Err(Reason::NoCompactForm { algorithm: NAME, instead }.into())
            }
        }
    }

    fn tier(&self, own: &TatWord, quota: &Quota) -> Result<TatWord, QuotaError> {
        own.tier(NAME, Pace::<false>::new(quota).rate())
    }
}

impl Algorithm for TokenBucket {
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        let refill = match &self.refill {
            Refill::Greedy(pace) => Refill::Greedy(pace.requota(NAME, quota)?),
            Refill::Batch(batch) => {
                Refill::Batch(batch.requota(NAME, quota, [quota.burst_size(), quota.limit()])?)
            }
        };
        Ok(Self { refill })
    }

    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        let refill = match &self.refill {
            Refill::Greedy(_) => Refill::Greedy(Pace::new(quota)),
            Refill::Batch(batch) => {
                Refill::Batch(batch.with_quota(NAME, quota, [quota.burst_size(), quota.limit()])?)
            }
        };
        Ok(Self { refill })
    }

    fn reading(&self, other: &Self) -> Option<Self> {
        match (&self.refill, &other.refill) {
            (Refill::Greedy(own), Refill::Greedy(other)) => {
                Some(Self { refill: Refill::Greedy(own.reading(other)?) })
            }
            _ => self.reads(other).then_some(*other),
        }
    }
}
