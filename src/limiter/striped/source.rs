//! Sources of leases.

use std::time::Duration;

use crate::algorithm::{
    Algorithm, FixedWindow, Gcra, LeakyBucketMeter, SlidingLog, SlidingWindow, SubWindow, TokenBucket,
};
use crate::base::clock::{Timestamp, saturating_nanos};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::store::Direct;

/// A source of leases: blocks of units that are charged before they are spent.
///
/// [`Striped`](crate::leases::Striped) limiters lease from a state in the same process. Your own implementation can lease from
/// elsewhere, for example from a counter that processes share. [`Leases::builder`](super::Leases::builder)
/// builds a limiter with it.
///
/// Granted units are charged, whether they are spent or not. A limiter never returns units to the source.
///
/// # Sources that are filled from outside
/// If the units are on a distant server, a check must not wait for them:
///
/// 1. The source denies, and records the wanted units.
/// 2. A task fetches that number, or [`Leases::wanted`](super::Leases::wanted) if it is larger.
/// 3. The task adds the units with [`Leases::deposit`](super::Leases::deposit).
///
/// Checks never wait for the task: they spend the units that the limiter already holds.
///
/// A lease's life begins at its request. [`lease_life`](crate::Builder::lease_life) must therefore exceed the time
/// from one check to the next plus the round trip, with a sixteenth to spare. Otherwise the units fetched after one
/// check have expired at the next check, and every check is denied. The default of 10 ms is for states in this
/// process. For a distant source, about a second is better.
///
/// # Examples
/// ```
/// use std::sync::Mutex;
/// use std::time::Duration;
/// use tollgate::leases::{Lease, LeaseRequest, LeaseSource, Leases};
/// use tollgate::{Clock, Decision, ManualClock};
///
/// /// A source whose units come from a counter that processes share.
/// #[derive(Default)]
/// struct Elsewhere {
///     /// The most units that a check was missing since the task last looked.
///     noted: Mutex<u64>,
/// }
///
/// impl LeaseSource for Elsewhere {
///     fn limit(&self) -> u64 {
///         1_000
///     }
///     fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision> {
///         // A stripe has run out of units. A real program would also wake the task here.
///         let mut noted = self.noted.lock().unwrap();
///         *noted = request.wanted.max(*noted);
///         let retry_after = Duration::from_millis(5);
///         Err(Decision::denied(request.least, self.limit(), 0, retry_after, request.now))
///     }
/// }
///
/// let (clock, life) = (ManualClock::default(), Duration::from_secs(1));
/// let limiter = Leases::builder(Elsewhere::default()).clock(clock.clone()).lease_life(life).leases();
/// let mut left_elsewhere = 1_000;
/// let mut admitted = 0;
/// for _ in 0..100 {
///     // The program: 20 checks in 10 ms.
///     admitted += (0..20).filter(|_| limiter.check().is_allowed()).count();
///     clock.advance(Duration::from_millis(10));
///
///     // The task: fetches the wanted units.
///     let noted = std::mem::take(&mut *limiter.leases().source().noted.lock().unwrap());
///     let wanted = limiter.leases().wanted(clock.now()).max(noted);
///     if wanted > 0 {
///         let asked = clock.now();
///         let granted = wanted.min(left_elsewhere); // a real task would send a request and wait
///         left_elsewhere -= granted;
///         clock.advance(Duration::from_millis(2));
///         let kept = limiter.leases().deposit(Lease::new(granted, life), asked, clock.now());
///         assert_eq!(kept, granted);
///     }
/// }
/// // Blocks began with one unit, and grew with use. In the end all units were spent.
/// assert_eq!((admitted, left_elsewhere), (1_000, 0));
/// ```
pub trait LeaseSource {
    /// Returns the most units that can ever be admitted at once. For a higher cost, the decision is
    /// [`never`](Decision::is_never), and the limiter asks for no lease. The limiter calls this method once, when it
    /// is created.
    fn limit(&self) -> u64;

    /// Charges a block of units: at least `request.least`, or nothing at all.
    ///
    /// The thread whose stripe has too few units calls this method, so it should not wait long. A source that cannot
    /// answer in time denies, and units are [deposited](super::Leases::deposit) later. Granted units beyond the
    /// wanted ones are lost if the stripe's word has no room for them. A word holds at most one unit for each 512 to
    /// 1,024 ns of [`lease_life`](crate::Builder::lease_life).
    ///
    /// # Errors
    /// Returns a denial of `request.least` units ([`Decision::denied`]). The limiter passes it on unless other stripes
    /// hold enough units. Its [`remaining`](Decision::remaining) counts towards the total, up to one less than the
    /// denied units. Its wait should not be zero, because the limiter passes it on. With an error, the source must not
    /// have charged anything.
    fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision>;

    /// Denies `cost` units (at most the limit) at `now` without a lease, if the source already knows that it has too
    /// few units.
    ///
    /// The limiter calls this method before [`lease`](Self::lease), so that denials are fast while no units are left.
    /// `None` means that the source does not know.
    ///
    /// Default: `None`, so that `lease` sees each check that finds too few units.
    fn deny(&self, cost: u64, now: Timestamp) -> Option<Decision> {
        let _ = (cost, now);
        None
    }

    /// Returns the state for `cost` units at `now`, without a charge and without the units that are already leased.
    ///
    /// If stripes hold a part of a denied cost, this wait applies to the denial when it is longer than the wait for
    /// the denied rest. If this decision is [never](Decision::is_never), the denial is too.
    ///
    /// Default: zero units remain, with a wait of one millisecond, for sources that would have to ask elsewhere.
    fn peek(&self, cost: u64, now: Timestamp) -> Decision {
        Decision::denied(cost, self.limit(), 0, Duration::from_millis(1), now)
    }
}

/// A limiter's request to its [`LeaseSource`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct LeaseRequest {
    /// The fewest useful units: the units that the check is missing. Not 0.
    pub least: u64,
    /// The wanted units: enough for the stripe for half of a lease's life to a whole life. At least `least`.
    pub wanted: u64,
    /// The number of stripes that lease from this source. A source with few units left should grant each stripe at
    /// most a fair share. Otherwise one stripe holds the units that the other stripes lack. They can take these units,
    /// but must search for them.
    pub holders: u64,
    /// The time of the check, by the limiter's clock. The lease's life begins here.
    pub now: Timestamp,
}

/// A block of units that were charged at a [`LeaseSource`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "the units of a lease are charged, and lost if the lease is not used"]
pub struct Lease {
    units: u64,
    pub(super) life_ns: u64,
    /// The source's state after the charge, if the source reports it.
    pub(super) standing: Option<Decision>,
}

impl Lease {
    /// Creates a lease of `units` that have been charged. They may be spent for `life` from the time of the request,
    /// and at most for the limiter's own [`lease_life`](crate::Builder::lease_life).
    pub const fn new(units: u64, life: Duration) -> Self {
        Self { units, life_ns: saturating_nanos(life), standing: None }
    }

    /// Returns the units of an admitted decision.
    const fn charged(decision: Decision) -> Self {
        Self { units: decision.cost(), life_ns: u64::MAX, standing: Some(decision) }
    }

    /// Returns the units.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Returns how long the units may be spent.
    #[must_use]
    pub const fn life(&self) -> Duration {
        Duration::from_nanos(self.life_ns)
    }
}

impl Decision {
    /// Creates a denial at `now`, for sources of leases. At most `limit` units can ever go at once, `remaining` units
    /// could go now, and a request for `cost` units could be admitted after `retry_after`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Decision, Timestamp};
    ///
    /// let decision = Decision::denied(5, 100, 3, Duration::from_secs(2), Timestamp::from_secs(9));
    /// assert!(decision.is_denied() && !decision.is_never());
    /// assert_eq!((decision.cost(), decision.limit(), decision.remaining()), (5, 100, 3));
    /// assert_eq!(decision.retry_after(), Some(Duration::from_secs(2)));
    /// ```
    pub const fn denied(
        cost: u64,
        limit: u64,
        remaining: u64,
        retry_after: Duration,
        now: Timestamp,
    ) -> Self {
        let retry_ns = saturating_nanos(retry_after);
        let facts = Facts::Plain { remaining, retry_ns, reset_ns: retry_ns, delay_ns: 0 };
        Self::new(Outcome::Denied, cost, limit, now.as_nanos(), facts)
    }
}

/// An [`Algorithm`] whose units can be charged before they are spent. Sealed.
///
/// All algorithms except two: [`MinimumSpacing`](crate::MinimumSpacing) admits requests regardless of their cost, and
/// [`LeakyBucketQueue`](crate::LeakyBucketQueue) returns when each request may go.
pub trait LeaseAlgorithm: Algorithm {}

impl LeaseAlgorithm for Gcra {}
impl LeaseAlgorithm for TokenBucket {}
impl LeaseAlgorithm for LeakyBucketMeter {}
impl LeaseAlgorithm for FixedWindow {}
impl LeaseAlgorithm for SlidingWindow {}
impl LeaseAlgorithm for SubWindow {}
impl LeaseAlgorithm for SlidingLog {}

/// Grants the wanted units, up to the stripe's share of half of the remaining units. All stripes together therefore
/// never hold more than half of the available units.
impl<A: LeaseAlgorithm> LeaseSource for Direct<A> {
    fn limit(&self) -> u64 {
        self.peek(0, 0).limit()
    }

    fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision> {
        let &LeaseRequest { least, wanted, holders, now } = request;
        let now_ns = now.as_nanos();
        if wanted > least {
            let share = self.peek(now_ns, 1).remaining() / holders.saturating_mul(2).max(1);
            let units = wanted.min(share);
            if units > least {
                // If this check is denied, another thread has just taken most of the units.
                let decision = self.check(now_ns, units);
                if decision.is_allowed() {
                    return Ok(Lease::charged(decision));
                }
            }
        }
        let decision = self.check(now_ns, least);
        if decision.is_allowed() { Ok(Lease::charged(decision)) } else { Err(decision) }
    }

    #[inline(always)]
    fn deny(&self, cost: u64, now: Timestamp) -> Option<Decision> {
        let decision = self.peek(now.as_nanos(), cost);
        decision.is_denied().then_some(decision)
    }

    fn peek(&self, cost: u64, now: Timestamp) -> Decision {
        self.peek(now.as_nanos(), cost)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::base::quota::Quota;

    // G52
    #[test]
    fn direct_source_grants_share_of_half() {
        for (limit, holders) in [(1_000, 1), (1_000, 4), (1_000, 64), (7, 2), (1, 1)] {
            let source = Direct::new(Gcra::new(Quota::per_day(limit)));
            assert_eq!(LeaseSource::limit(&source), limit);
            let now = Timestamp::from_secs(9);
            let request = LeaseRequest { least: 1, wanted: u64::MAX, holders, now };
            let share = (limit / (2 * holders)).max(1);
            assert_eq!(source.lease(&request).unwrap().units(), share);
            let less = LeaseRequest { wanted: 3, ..request };
            let left = source.peek(now.as_nanos(), 1).remaining();
            let lease = source.lease(&less);
            if left == 0 {
                assert!(lease.unwrap_err().is_denied());
            } else {
                let lease = lease.unwrap();
                assert_eq!(lease.units(), 3.min((left / (2 * holders)).max(1)));
                assert_eq!(lease.standing.unwrap().remaining(), left - lease.units());
            }
        }
    }

    #[test]
    fn direct_source_grants_least_or_nothing() {
        let source = Direct::new(Gcra::new(Quota::per_day(10)));
        let request = LeaseRequest { least: 6, wanted: 100, holders: 2, now: Timestamp::ZERO };
        assert_eq!(source.lease(&request).unwrap().units(), 6);
        let refused = source.lease(&request).unwrap_err();
        assert_eq!((refused.cost(), refused.remaining()), (6, 4));
        assert!(source.lease(&LeaseRequest { least: u64::MAX, wanted: u64::MAX, ..request }).is_err());
        assert_eq!(source.lease(&LeaseRequest { least: 4, ..request }).unwrap().units(), 4);
    }
}
