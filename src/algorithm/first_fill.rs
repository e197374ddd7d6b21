//! New keys that begin with a part of the burst.
//!
//! An absent key, or a head of 0, stands for a key that has spent a part of its burst now. So the first request decides from the
//! head that such a charge leaves, its *start*. If the request is denied, the store writes the start, or the key would begin again at
//! each request and never refill.

use super::step::{BlockRest, Fill, Raise, Refund, Refunded, Step, Stepper};
use super::{Algorithm, Gcra};
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{Quota, QuotaError};

/// An algorithm whose new keys begin with a part of their burst (of their limit, for windows) instead of all of it. Created by
/// [`Builder::first_fill`](crate::Builder::first_fill), and by [`FirstFill::new`] for a [`LimitState`](crate::LimitState).
///
/// A new key has `k` units, and refills at the rate of its quota from its first request on, whether that is admitted or denied. With a
/// [calendar window](crate::CalendarWindow), it has `k` units in the window of its first request, and the whole limit in the next one. A peek, and a
/// request that can never be admitted, begin no key. Nor does a joint request that another limit denies, if this limit would have admitted it.
///
/// # What forgetting means
/// A key that the limiter forgets begins again with `k` units. So `k` is also what a client can gain or lose by being forgotten:
///
/// | store | a key is forgotten |
/// |---|---|
/// | direct, [`LimitState`](crate::LimitState) | never |
/// | keyed | at the earliest when it has its full burst, and has been idle for a second; with [`WhenFull::Forget`](crate::WhenFull::Forget), at the cap; by `reset`, `clear` and `retain_active` |
///
/// A client that waits for its full burst, and is then forgotten, has `k` units. Choose `k` as the most that a client may lose in this way. A
/// change of the quota, and a restored snapshot, keep the keys that owe; the others begin with `k`.
///
/// A keyed limiter inserts a new key also when it denies it, so a flood of new keys that are denied needs memory, as one of admitted keys does: set
/// [`max_keys`](crate::Builder::max_keys).
///
/// # Where it does not work
/// Compact stores and sketches do not compile with it. A slot of a key with a full burst is the same as an unused one, and a sketch knows no
/// keys, so both would give every idle key `k` units. Other windows, logs, and buckets that refill in batches do not either, because the units that a new key has
/// spent would need words of their own.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
///
/// let clock = ManualClock::default();
/// let build = RateLimiter::builder(Gcra::new(Quota::per_minute(60))).clock(clock.clone());
/// let limiter = build.first_fill(2).keyed::<String>();
/// assert!(limiter.check_n("alice", 2).is_allowed());
/// assert!(limiter.check("alice").is_denied());
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(limiter.peek("alice").remaining(), 60); // refilled
/// assert_eq!(limiter.peek("bob").remaining(), 2); // new
/// ```
/// A compact limiter does not compile with it:
/// ```compile_fail
/// # use tollgate::{Gcra, Quota, RateLimiter};
/// let _ = RateLimiter::builder(Gcra::new(Quota::per_minute(60))).first_fill(2).compact();
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirstFill<A = Gcra> {
    algorithm: A,
    units: u64,
}

impl<A: Algorithm<Tail = ()>> FirstFill<A> {
    /// Creates the algorithm: a new key begins with `units`. More than the burst is the burst.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{FirstFill, Gcra, LimitState, Quota, Timestamp};
    ///
    /// // A connection begins with two streams, and may save up ten.
    /// let streams = FirstFill::new(Gcra::new(Quota::per_second(1).burst(10)), 2);
    /// let connection = LimitState::new();
    /// let at = |secs| connection.at(&streams, Timestamp::from_secs(secs));
    /// assert!(at(100).check_n(2).is_allowed() && at(100).check().is_denied());
    /// assert_eq!(at(110).peek().remaining(), 10);
    /// ```
    #[must_use]
    pub const fn new(algorithm: A, units: u64) -> Self {
        Self { algorithm, units }
    }

    /// Returns the units with which a new key begins. More than the burst is the burst.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Returns the algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> &A {
        &self.algorithm
    }

    /// The head from which a request decides.
    #[inline]
    fn start(&self, head: u64, now_ns: u64) -> u64 {
        if head == 0 { self.first(now_ns) } else { head }
    }

    /// The head of a new key.
    #[cold]
    fn first(&self, now_ns: u64) -> u64 {
        let fresh = self.algorithm.step(0, |_| 0, now_ns, 0);
        let (Step::Deny(decision) | Step::Admit { decision, .. }) = fresh else { return 0 };
        match self.algorithm.force(0, |_| 0, now_ns, decision.limit().saturating_sub(self.units)) {
            Step::Admit { next, .. } => next,
            Step::Deny(_) | Step::Help(_) => 0,
        }
    }
}

impl<A: Algorithm<Tail = ()>> Stepper for FirstFill<A> {
    type Tail = ();

    #[inline]
    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        self.algorithm.step(self.start(head, now_ns), read, now_ns, cost)
    }

    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        self.algorithm.force(self.start(head, now_ns), read, now_ns, cost)
    }

    /// A key with a debt from another state is not new.
    fn seed(&self, now_ns: u64, units: u64) -> Step {
        self.algorithm.seed(now_ns, units)
    }

    fn owed(&self, decision: &Decision) -> u64 {
        self.algorithm.owed(decision)
    }

    fn reserve(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64, wait_ns: u64) -> Step {
        self.algorithm.reserve(self.start(head, now_ns), read, now_ns, cost, wait_ns)
    }

    /// A denied joint check begins its new keys, as it blocks keys.
    const BLOCKS: bool = true;

    #[inline(always)]
    fn block(&self, head: u64, step: Step) -> Step {
        match step {
            Step::Deny(decision) => self.algorithm.block(self.start(head, decision.at_ns()), step),
            admitted => admitted,
        }
    }

    const HAS_FIRST_FILL: bool = true;

    #[inline(always)]
    fn begin(&self, head: u64, step: Step) -> Step {
        match step {
            // A request that can never be admitted begins no key.
            Step::Deny(decision) if head == 0 && decision.outcome() == Outcome::Denied => {
                Step::admit(decision, self.first(decision.at_ns()))
            }
            other => other,
        }
    }

    fn resume(&self, seeded: Step, block: BlockRest) -> Step {
        self.algorithm.resume(seeded, block)
    }

    fn block_for(&self, head: u64, now_ns: u64, block_ns: u64) -> Option<Step> {
        self.algorithm.block_for(self.start(head, now_ns), now_ns, block_ns)
    }

    fn longest_block_ns(&self) -> u64 {
        self.algorithm.longest_block_ns()
    }

    const CAN_REFUND: bool = A::CAN_REFUND;

    fn refund(&self, head: u64, read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        self.algorithm.refund(head, read, refund)
    }

    /// A full key means more than an absent one, and may still be forgotten: see the type.
    fn is_idle(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        self.algorithm.is_idle(head, read, now_ns)
    }

    #[inline]
    fn until_idle(&self, head: u64, read: impl Fn(usize) -> u64 + Copy, now_ns: u64) -> u64 {
        self.algorithm.until_idle(head, read, now_ns)
    }

    fn reads(&self, other: &Self) -> bool {
        self.algorithm.reads(&other.algorithm)
    }

    fn filled(&self, fill: Fill, raise: impl FnMut(Raise)) {
        self.algorithm.filled(fill, raise);
    }

    fn accepts(&self, head: u64, read: impl Fn(usize) -> u64) -> bool {
        self.algorithm.accepts(head, read)
    }
}

impl<A: Algorithm<Tail = ()>> Algorithm for FirstFill<A> {
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self { algorithm: self.algorithm.requota(quota)?, units: self.units })
    }

    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self { algorithm: self.algorithm.with_quota(quota)?, units: self.units })
    }

    fn reading(&self, other: &Self) -> Option<Self> {
        Some(Self { algorithm: self.algorithm.reading(&other.algorithm)?, units: other.units })
    }
}
