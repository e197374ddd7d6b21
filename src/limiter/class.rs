//! Classes of requests that share one count, each with a share of the burst.

use super::at::Timed;
use super::{At, RateLimiter, StateAt};
use crate::algorithm::Algorithm;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::store::op::StoreBase;
use crate::store::state::Lasting;
use crate::store::{ManyKeys, Operation, Store};

/// The whole burst, in millionths.
const MILLION: u32 = 1_000_000;

/// A class of requests: the share of the burst that all classes together may have in use after a request of this class.
///
/// Several classes of requests share one count. A request of the class with 80 % is denied if more than 80 % of the burst
/// would be in use after it; the units of all classes count. So a class with 100 % always finds the other 20 % as long as it has not
/// used them itself. For windows, the share is one of the limit.
///
/// The share is rounded down to whole units.
///
/// # Examples
/// ```
/// use tollgate::{Class, Quota, RateLimiter};
///
/// const BATCH: Class = Class::percent(50);
/// let limiter = RateLimiter::new(Quota::per_hour(10));
///
/// assert_eq!((0..20).filter(|_| limiter.check_class("alice", 1, BATCH).is_allowed()).count(), 5);
/// let denied = limiter.check_class("alice", 1, BATCH);
/// assert_eq!((denied.limit(), denied.remaining()), (5, 0)); // the figures of the class
/// assert!(limiter.check_n("alice", 5).is_allowed()); // the other half is for other requests
/// ```
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class {
    per_million: u32,
}

impl Class {
    /// The class that may use the whole burst.
    pub const ALL: Self = Self { per_million: MILLION };

    /// Creates a class with a share in per cent. More than 100 is 100.
    #[must_use]
    pub const fn percent(percent: u8) -> Self {
        // The product fits: a byte is at most 255.
        Self::per_million(percent as u32 * 10_000)
    }

    /// Creates a class with a share in millionths. More than a million is a million.
    #[must_use]
    pub const fn per_million(per_million: u32) -> Self {
        Self { per_million: if per_million < MILLION { per_million } else { MILLION } }
    }

    /// Returns the share in millionths.
    #[must_use]
    pub const fn share(self) -> u32 {
        self.per_million
    }

    /// Returns the units of a burst that a request of this class leaves free. The rest is the class's share, rounded down.
    #[must_use]
    pub const fn headroom(self, burst: u64) -> u64 {
        let (whole, part) = (MILLION as u64, self.per_million as u64);
        // `burst * part / whole`, rounded down. Both products fit, and the sum is at most the burst.
        let share = burst / whole * part + burst % whole * part / whole;
        burst - share
    }
}

impl<S: ManyKeys, C: Clock> RateLimiter<S, C> {
    /// Checks `cost` units for `key` now, for a request of a [`Class`]. Charges all of them if at most the class's share of
    /// the burst is in use afterwards, and nothing otherwise.
    ///
    /// All classes share the count of the key, and so do the checks without a class. The figures of the decision are those
    /// of the class: its limit is the share. [`Decision::is_never`] returns true for a cost above the share.
    ///
    /// A denial of a class with a part of the burst starts no [block](crate::Blocked).
    ///
    /// If the limiter's quota changes at the same time, the share is that of the old or of the new burst.
    ///
    /// # Complexity
    /// The same as a check. A denial may read the key's state once more, for the wait.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_class<Q: ?Sized>(&self, key: &Q, cost: u64, class: Class) -> Decision
    where
        S: Store<Q>,
    {
        check_class(self, key, cost, class)
    }
}

impl<S: ManyKeys, C> At<'_, RateLimiter<S, C>> {
    /// [`RateLimiter::check_class`] at this time.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_class<Q: ?Sized>(self, key: &Q, cost: u64, class: Class) -> Decision
    where
        S: Store<Q>,
    {
        check_class(&self, key, cost, class)
    }
}

impl<A: Algorithm, X: Lasting> StateAt<'_, A, X> {
    /// [`RateLimiter::check_class`] at this time.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_class(self, cost: u64, class: Class) -> Decision {
        check_class(&self, &(), cost, class)
    }
}

/// Checks a request of a class.
pub(super) fn check_class<Q: ?Sized, T: Timed>(timed: &T, key: &Q, cost: u64, class: Class) -> Decision
where
    T::Store: Store<Q>,
{
    let store = timed.store();
    let (key, at) = (store.prepare(key), timed.time());
    let headroom = class.headroom(store.burst());
    if headroom == 0 {
        return store.apply(key, Operation::Check, at, cost);
    }
    // A cost of 0 is admitted, whether the headroom is free or not.
    let decision = match cost {
        0 => store.peek(key, at, 0),
        _ => store.apply(key, Operation::CheckKeeping { headroom }, at, cost),
    };
    // Under the lower limit of the class, a block that has ended would look as if it went on.
    let has_ended = <T::Store as Store<Q>>::BLOCKS && decision.block_ns() == 0;
    let decision = if has_ended { decision.with_mark(0) } else { decision };
    let next = || store.peek(key, at, headroom.saturating_add(1));
    decision.for_lower_limit(decision.outcome(), cost, headroom, next)
}
