//! Several limits on one request: a call charges all of them, or none.
//!
//! 1. *Prepare.* At each limit, the call reads the current word, and computes the word that would replace it.
//! 2. *Deny.* If any limit denies, the call returns the answer. It has written nothing.
//! 3. *Commit.* The call exchanges one word after another.
//! 4. *Lost race.* If a word changed in between, that limit decides again.
//! 5. *Undo.* If that limit now denies, the call refunds the charges that it has made so far.
//!
//! Each limit is charged only by its own exchange, after its own decision. No limit is therefore over-admitted,
//! whatever happens at the other limits.
//!
//! A call that loses a race may have charged some limits already. Between its first exchange and its last refund, these
//! charges can deny other requests. At each limit they are at most the request's cost.
//!
//! The call charges limits that cannot refund last. A denied request can therefore leave a charge behind only if it has
//! two such limits.

#[cfg(all(test, tollgate_loom))]
mod models;

mod bound_limit;
mod decision;
mod limit_set;

pub use self::bound_limit::BoundLimit;
pub use self::decision::JointDecision;
pub use self::limit_set::Limits;
use crate::base::check_time::CheckTime;
use crate::base::clock::Timestamp;

/// Checks several limits now: charges all of them, or none.
///
/// Each limit has its own limiter with any algorithm and store, its own key and its own cost. If one limit denies a
/// request, no limit is charged. The [answer](JointDecision) contains the limit that denied, the time to retry, and
/// the state of each limit.
///
/// All limits use one reading of the first limiter's clock. Use one clock, or clones of one clock, for limiters that
/// are checked together. [`AllOf::at`] takes a time. An empty slice of limits admits every request.
///
/// # Consistency
/// No limit ever admits more than its own bound, whatever other threads charge at the same time.
///
/// If another thread charges a limit first, and that limit then denies, this call at once refunds the limits that it
/// has charged. Until then, these charges may deny other requests. They are at most this request's cost at each limit.
///
/// Logs, sketches, queues (except the last request in them) and compact stores with
/// [`Overflow::Inherit`](crate::Overflow::Inherit) cannot refund, so they are charged last. If a request has two such
/// limits and loses a race at the second, its charge stays in the first, to the client's disadvantage.
///
/// A charge can also stay if one of these events happens between the charge and its refund:
/// - A window ends or a quota changes.
/// - A compact store has evicted the key.
/// - A compact store has spilled the key's debt, or that of another key that looks the same to the store.
///
/// If a thread is delayed between its charge and its refund, it refunds only the units that time has not paid by then.
///
/// A limiter that appears twice with one key is charged twice, or not at all. Each appearance is checked separately,
/// so the answer's figures are those of a single check. If such a limiter cannot refund and has capacity for only one
/// charge, the request is denied and one charge stays.
///
/// # Limits that some requests do not have
/// An `Option` of a limit is a limit. `None` admits every request and charges nothing. Its place stays: `denied_by` returns the
/// position in the tuple, and the decision at the place of `None` [is unlimited](crate::Decision::is_unlimited). The clock is
/// that of the first limit that is present.
///
/// ```
/// use tollgate::{Quota, RateLimiter, check_all};
///
/// let total = RateLimiter::new(Quota::per_minute(100));
/// let by_identity = RateLimiter::new(Quota::per_minute(1));
/// let check = |identity: Option<&str>| check_all((identity.map(|it| by_identity.on(it)), total.on("total")));
/// assert!(check(None).is_allowed() && check(Some("web")).is_allowed());
/// assert_eq!(check(Some("web")).denied_by(), Some(0));
/// assert!(check(None).each()[0].is_unlimited());
/// assert_eq!(total.peek("total").remaining(), 97);
/// ```
/// A limiter that a configuration may leave out is an `Option` of a limiter. `as_ref` makes a limit of it for each request:
///
/// ```
/// use tollgate::{Gcra, Quota, RateLimiter, check_all};
///
/// struct Limits {
///     by_user: RateLimiter,
///     daily: Option<RateLimiter<tollgate::Direct>>,
/// }
///
/// let daily = RateLimiter::direct(Gcra::new(Quota::per_day(1)));
/// let limits = Limits { by_user: RateLimiter::new(Quota::per_second(5)), daily: Some(daily) };
/// let check = |user| check_all((limits.by_user.on(user), limits.daily.as_ref().map(|daily| daily.on())));
/// assert!(check("alice").is_allowed());
/// assert_eq!(check("bob").denied_by(), Some(1));
/// ```
///
/// # Complexity
/// The sum of the single checks, with one clock reading in all. Never allocates for tuples and arrays.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, MinimumSpacing, Quota, RateLimiter, check_all};
///
/// // Ten per minute, with at least two seconds between requests.
/// let per_minute = RateLimiter::new(Quota::per_minute(10));
/// let spacing = RateLimiter::builder(MinimumSpacing::new(Duration::from_secs(2))).compact()?;
///
/// assert!(check_all((per_minute.on("alice"), spacing.on("alice"))).is_allowed());
/// let decision = check_all((per_minute.on("alice"), spacing.on("alice")));
/// assert_eq!(decision.denied_by(), Some(1)); // too soon: denied by the spacing, and the minute was not charged
/// assert_eq!(per_minute.peek("alice").remaining(), 9);
///
/// // Each limit can have its own key and its own cost.
/// let by_route = RateLimiter::new(Quota::per_second(1_000));
/// let bytes = RateLimiter::direct(Gcra::new(Quota::per_second(1_000_000)));
/// let decision = check_all((per_minute.on("bob"), by_route.on("GET /"), bytes.on().cost(1_500)));
/// assert!(decision.is_allowed());
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[inline(always)]
#[must_use = "the limiter does not stop the request: the caller must read the decision"]
pub fn check_all<L: Limits>(limits: L) -> JointDecision<L::Decisions> {
    limits.decide(None)
}

/// The limits of a request, to check, peek at and refund together. [`check_all`] is the short form of
/// [`check`](Self::check).
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter, joint::AllOf};
///
/// let minute = RateLimiter::new(Quota::per_minute(10));
/// let day = RateLimiter::new(Quota::per_day(100));
/// let limits = AllOf::new((minute.on("alice"), day.on("alice")));
/// let charge = limits.check();
/// assert_eq!(limits.peek().remaining(), 9);
/// limits.refund(&charge); // the backend was down
/// assert_eq!(limits.peek().remaining(), 10);
/// ```
#[derive(Copy, Clone, Debug)]
#[must_use = "the limits do nothing until they are checked"]
pub struct AllOf<L> {
    limits: L,
    given: Option<Timestamp>,
}

impl<L: Limits> AllOf<L> {
    /// Creates a set of limits.
    pub const fn new(limits: L) -> Self {
        Self { limits, given: None }
    }

    /// Returns this set at the time `now`: its methods read no clock.
    pub const fn at(mut self, now: Timestamp) -> Self {
        self.given = Some(now);
        self
    }

    /// Charges all limits, or none: see [`check_all`].
    #[inline]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check(self) -> JointDecision<L::Decisions> {
        self.limits.decide(self.given.map(CheckTime::given))
    }

    /// Charges all limits, or none, as [`AllOf::check`] does, but a cost above the burst of its limit is admitted if that
    /// limit owes nothing: see [`RateLimiter::check_oversized`](crate::RateLimiter::check_oversized). A denial starts no
    /// block.
    ///
    /// # Complexity
    /// The sum of the single checks and of as many peeks. Allocates.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter, joint::AllOf};
    ///
    /// let connection = RateLimiter::keyed::<u64, _>(Gcra::new(Quota::per_hour(64)));
    /// let all = RateLimiter::direct(Gcra::new(Quota::per_hour(64_000)));
    /// let message = AllOf::new((connection.on(&7).cost(1_000), all.on().cost(1_000)));
    /// assert!(message.check_oversized().is_allowed());
    /// assert_eq!(message.check_oversized().denied_by(), Some(0)); // this connection owes 936 units
    /// assert_eq!(all.peek().remaining(), 63_000);
    /// ```
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_oversized(self) -> JointDecision<L::Decisions> {
        self.limits.decide_oversized(self.given.map(CheckTime::given))
    }

    /// Returns the decision that [`AllOf::check`] would make, without a charge.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn peek(self) -> JointDecision<L::Decisions> {
        self.limits.peek(self.time())
    }

    /// Refunds all charges of a decision of the same limits, as [`RateLimiter::refund`](crate::RateLimiter::refund)
    /// does for each.
    pub fn refund(self, charge: &JointDecision<L::Decisions>) {
        if charge.is_allowed() {
            self.limits.refund(self.time(), charge.each());
        }
    }

    /// Takes back the cost of each limit, without the decision of a check, as
    /// [`RateLimiter::give_back`](crate::RateLimiter::give_back) does for each: up to what each key owes.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter, joint::AllOf};
    ///
    /// let (requests, bytes) = (RateLimiter::new(Quota::per_hour(10)), RateLimiter::new(Quota::per_hour(10_000)));
    /// let limits = AllOf::new((requests.on("alice"), bytes.on("alice").cost(1_500)));
    /// assert!(limits.check().is_allowed());
    /// limits.give_back(); // the request was not sent
    /// assert_eq!((requests.peek("alice").remaining(), bytes.peek("alice").remaining()), (10, 10_000));
    /// ```
    pub fn give_back(self) {
        self.limits.give_back(self.time());
    }

    fn time(&self) -> CheckTime {
        self.given.map_or_else(|| self.limits.now(), CheckTime::given)
    }
}
