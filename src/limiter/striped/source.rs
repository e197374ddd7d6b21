//! Where leases come from.

use std::time::Duration;

use crate::algorithm::{
    Algorithm, FixedWindow, Gcra, LeakyBucketMeter, SlidingLog, SlidingWindow, SubWindow, TokenBucket,
};
use crate::base::clock::{Timestamp, saturating_nanos};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::store::Direct;

/// What grants leases: blocks of units that are charged before they are spent.
///
/// [`Striped`](crate::Striped) limiters lease from a state in the same process. An implementation of your own
/// can lease from elsewhere, say from a counter that processes share;
/// [`RateLimiter::leasing`](crate::RateLimiter::leasing) makes a limiter of it.
///
/// What a source grants is charged, whether it is spent or not: nothing is ever given back to it.
///
/// # Sources that are filled from outside
/// Where units are too far away for a check to wait for them, a source denies and takes note of what was
/// wanted. A task fetches that, or what [`RateLimiter::wanted`](crate::RateLimiter::wanted) says if it is
/// more, and hands it over by [`RateLimiter::deposit`](crate::RateLimiter::deposit). Checks never wait for
/// it: they spend what is there.
///
/// A lease's life begins when it was asked for. So [`lease_life`](crate::Builder::lease_life) must exceed the
/// time from one check to the next and the way there and back, with a sixteenth to spare; else what is
/// fetched after one check has expired at the next, and every check is denied. The 10 ms that it is by
/// default are meant for states in this process; here it is rather a second.
///
/// # Examples
/// ```
/// use std::sync::Mutex;
/// use std::time::Duration;
/// use tollgate::{Clock, Decision, Lease, LeaseRequest, LeaseSource, ManualClock, RateLimiter};
///
/// /// Units come from a counter that processes share.
/// #[derive(Default)]
/// struct Elsewhere {
///     /// What checks have found missing since the task looked.
///     noted: Mutex<u64>,
/// }
///
/// impl LeaseSource for Elsewhere {
///     fn limit(&self) -> u64 {
///         1_000
///     }
///     fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision> {
///         // Somebody has just run out of units. Here the task would be woken, too.
///         let mut noted = self.noted.lock().unwrap();
///         *noted = request.wanted.max(*noted);
///         let retry_after = Duration::from_millis(5);
///         Err(Decision::denied(request.least, self.limit(), 0, retry_after, request.now))
///     }
/// }
///
/// let (clock, life) = (ManualClock::default(), Duration::from_secs(1));
/// let limiter = RateLimiter::leasing(Elsewhere::default()).clock(clock.clone()).lease_life(life).leases();
/// let mut left_elsewhere = 1_000;
/// let mut admitted = 0;
/// for _ in 0..100 {
///     // What the program does, for 10 ms: 20 checks.
///     admitted += (0..20).filter(|_| limiter.check().is_allowed()).count();
///     clock.advance(Duration::from_millis(10));
///
///     // What the task does.
///     let noted = std::mem::take(&mut *limiter.source().noted.lock().unwrap());
///     let wanted = limiter.wanted().max(noted);
///     if wanted > 0 {
///         let asked = clock.now();
///         let granted = wanted.min(left_elsewhere); // asks the counter, and waits for its answer
///         left_elsewhere -= granted;
///         clock.advance(Duration::from_millis(2));
///         let kept = limiter.deposit(Lease::new(granted, life), asked);
///         assert_eq!(kept, granted);
///     }
/// }
/// // Blocks began with one unit, and have grown with use. In the end all was spent that was there.
/// assert_eq!((admitted, left_elsewhere), (1_000, 0));
/// ```
pub trait LeaseSource {
    /// The most that can ever be admitted at once. Costs above it are answered [`never`](Decision::is_never)
    /// without asking for a lease. Asked for once, when the limiter is made.
    fn limit(&self) -> u64;

    /// Charges a block of units: at least `request.least`, or nothing at all.
    ///
    /// Called by the thread whose stripe has too few units left, so it should not wait long. A source that
    /// cannot know in time denies, and has units [deposited](crate::RateLimiter::deposit) later. What it
    /// grants beyond what was wanted is lost where a stripe's word has no room for it: at most a unit for
    /// each 512 to 1,024 ns of [`lease_life`](crate::Builder::lease_life).
    ///
    /// # Errors
    /// A denial of `request.least` units ([`Decision::denied`]), which is passed on unless other stripes hold
    /// enough. Its [`remaining`](Decision::remaining) is believed, up to one less than what was refused: it
    /// counts towards what all together hold. Its wait should not be zero: it is passed on. Nothing may have
    /// been charged.
    fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision>;

    /// Denies `cost` units (at most the limit) at `now` without a lease, if the source knows at once that it has not so many.
    ///
    /// Asked before [`lease`](Self::lease), so that a denial is quick while there are no units anywhere. `None` says nothing.
    ///
    /// Default: `None`, so that `lease` takes note of each check that finds too few units.
    fn refuse(&self, cost: u64, now: Timestamp) -> Option<Decision> {
        let _ = (cost, now);
        None
    }

    /// How things stand for `cost` units at `now`, without charging and without what was leased already.
    ///
    /// It says how long a denial has to wait where stripes hold a part of its cost, if that is longer than
    /// the wait for the rest, which was refused. If it is [never](Decision::is_never), so is that.
    ///
    /// Default: that nothing is known to remain, and a millisecond to wait, for sources that would have to
    /// ask elsewhere.
    fn peek(&self, cost: u64, now: Timestamp) -> Decision {
        Decision::denied(cost, self.limit(), 0, Duration::from_millis(1), now)
    }
}

/// What a limiter asks of its [`LeaseSource`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct LeaseRequest {
    /// The fewest units that are of use: what the request at hand is short of. Not 0.
    pub least: u64,
    /// The units that should last the stripe for about half a lease's life to a whole one. At least `least`.
    pub wanted: u64,
    /// How many stripes lease from this source. A source that has not much left should grant none of them
    /// more than a fair part, or what one holds is missed by the others: they find it, but at the price of
    /// searching.
    pub holders: u64,
    /// The time of the check, by the limiter's clock. The lease's life begins here.
    pub now: Timestamp,
}

/// A block of units that were charged at a [`LeaseSource`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "what a lease holds has been charged"]
pub struct Lease {
    units: u64,
    pub(super) life_ns: u64,
    /// How the source stood after the charge, if it says so.
    pub(super) standing: Option<Decision>,
}

impl Lease {
    /// `units` that have been charged, and may be spent for `life` from the time of the request: for at most
    /// as long as the limiter's own [`lease_life`](crate::Builder::lease_life).
    pub const fn new(units: u64, life: Duration) -> Self {
        Self { units, life_ns: saturating_nanos(life), standing: None }
    }

    /// The units of an allowed decision.
    const fn charged(decision: Decision) -> Self {
        Self { units: decision.cost(), life_ns: u64::MAX, standing: Some(decision) }
    }

    /// The units.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// How long they may be spent.
    #[must_use]
    pub const fn life(&self) -> Duration {
        Duration::from_nanos(self.life_ns)
    }
}

impl Decision {
    /// A denial at `now`, for sources of leases: of `cost` units where at most `limit` can ever go at once,
    /// `remaining` could go now, and the same request could be admitted after `retry_after`.
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
/// All but two: [`MinimumSpacing`](crate::MinimumSpacing) admits requests, whatever they cost, and
/// [`LeakyBucketQueue`](crate::LeakyBucketQueue) says when each is to go.
pub trait LeaseAlgorithm: Algorithm {}

impl LeaseAlgorithm for Gcra {}
impl LeaseAlgorithm for TokenBucket {}
impl LeaseAlgorithm for LeakyBucketMeter {}
impl LeaseAlgorithm for FixedWindow {}
impl LeaseAlgorithm for SlidingWindow {}
impl LeaseAlgorithm for SubWindow {}
impl LeaseAlgorithm for SlidingLog {}

/// Grants what is wanted, or if that is more than its share of half of what remains, that share: so all
/// stripes together never hold more than half of what there was to be had.
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
                // Denied only if somebody else has just taken most of it.
                let decision = self.check_with(self.algorithm(), now_ns, units);
                if decision.is_allowed() {
                    return Ok(Lease::charged(decision));
                }
            }
        }
        let decision = self.check_with(self.algorithm(), now_ns, least);
        if decision.is_allowed() { Ok(Lease::charged(decision)) } else { Err(decision) }
    }

    #[inline(always)]
    fn refuse(&self, cost: u64, now: Timestamp) -> Option<Decision> {
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

    #[test]
    fn a_direct_state_grants_each_holder_its_share_of_half() {
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
    fn a_direct_state_grants_the_least_or_nothing() {
        let source = Direct::new(Gcra::new(Quota::per_day(10)));
        let request = LeaseRequest { least: 6, wanted: 100, holders: 2, now: Timestamp::ZERO };
        assert_eq!(source.lease(&request).unwrap().units(), 6);
        let refused = source.lease(&request).unwrap_err();
        assert_eq!((refused.cost(), refused.remaining()), (6, 4));
        assert!(source.lease(&LeaseRequest { least: u64::MAX, wanted: u64::MAX, ..request }).is_err());
        assert_eq!(source.lease(&LeaseRequest { least: 4, ..request }).unwrap().units(), 4);
    }
}
