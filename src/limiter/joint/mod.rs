//! Several limits on one request: all are charged, or none.
//!
//! ```text
//! prepare  look at each limit: the word as it stands, and what would be exchanged for it
//! refused  by any: the answer, and nothing was written
//! commit   exchange word after word
//! lost     a word changed meanwhile: that limit decides anew, and if it now refuses,
//! undo     the charges made so far are given back
//! ```
//! A limit is only ever charged by its own exchange, on its own decision; so none is over-admitted, whatever the others do. What
//! the loser of a race has charged and not given back yet can deny others: at most its cost, between its first exchange and
//! its last refund. Limits whose charges cannot be taken back are charged last, so that only a second one of them can be
//! left with a charge of a request that was refused.

#[cfg(all(test, tollgate_loom))]
mod models;

mod decision;
mod limit_set;

pub use self::decision::JointDecision;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::limiter::RateLimiter;
use crate::store::op::Ticket;
use crate::store::{ManyKeys, Operation, Store};

/// One limit of a request: a limiter, the key that the request has there, and what it costs there. Made by
/// [`RateLimiter::on`], for [`check_all`].
///
/// # Examples
/// ```
/// use tollgate::{Gcra, Quota, RateLimiter, check_all};
///
/// let requests = RateLimiter::new(Quota::per_minute(60));
/// let bytes = RateLimiter::direct(Gcra::new(Quota::per_second(1_000_000)));
/// let request = (requests.on("alice").named("requests"), bytes.on().cost(1_500).named("bandwidth"));
/// assert!(check_all(request).is_allowed()); // may be copied, and asked again
/// assert!(check_all(request).is_allowed());
/// ```
#[derive(Debug)]
#[must_use = "a limit of a request does nothing until it is checked"]
pub struct BoundLimit<'a, S, C, Q: ?Sized> {
    limiter: &'a RateLimiter<S, C>,
    key: &'a Q,
    cost: u64,
    name: &'static str,
}

impl<S, C, Q: ?Sized> Clone for BoundLimit<'_, S, C, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, C, Q: ?Sized> Copy for BoundLimit<'_, S, C, Q> {}

impl<'a, S, C, Q: ?Sized> BoundLimit<'a, S, C, Q> {
    pub(super) const fn new(limiter: &'a RateLimiter<S, C>, key: &'a Q) -> Self {
        Self { limiter, key, cost: 1, name: "" }
    }

    /// What the request costs here. Default: 1.
    pub const fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }

    /// What [`JointDecision::refused_by_name`] calls this limit. Default: nothing.
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }
}

impl<S: ManyKeys, C: Clock> RateLimiter<S, C> {
    /// This limit for `key`, to be checked together with others by [`check_all`](crate::check_all).
    pub const fn on<'a, Q: ?Sized>(&'a self, key: &'a Q) -> BoundLimit<'a, S, C, Q> {
        BoundLimit::new(self, key)
    }
}

/// A limit of a request, as [`check_all`] sees it. Public in a private module.
pub trait RequestLimit {
    /// See [`Store`].
    type Prepared: Copy;

    /// See [`Store`].
    type Ticket<'t>: Ticket
    where
        Self: 't;

    /// The time by this limit's clock.
    fn now(&self) -> CheckTime;
    /// Finds the key, and asks for its memory.
    fn prepare(&self) -> Self::Prepared;
    /// Decides without charging.
    fn decide(&self, key: Self::Prepared, at: CheckTime) -> Self::Ticket<'_>;
    /// Decides and charges.
    fn check(&self, at: CheckTime) -> Decision;
    /// How things stand.
    fn peek(&self, at: CheckTime) -> Decision;
    /// Takes back a charge.
    fn refund(&self, at: CheckTime, charge: &Decision);
    /// Whether charges can be taken back.
    fn can_refund(&self) -> bool;
    /// What it is called.
    fn name(&self) -> &'static str;
}

impl<'a, S: Store<Q>, C: Clock, Q: ?Sized> RequestLimit for BoundLimit<'a, S, C, Q> {
    type Prepared = S::Prepared<'a>;
    type Ticket<'t>
        = S::Ticket<'t>
    where
        Self: 't;

    #[inline(always)]
    fn now(&self) -> CheckTime {
        CheckTime::read(self.limiter.clock())
    }

    #[inline(always)]
    fn prepare(&self) -> S::Prepared<'a> {
        let store = self.limiter.store();
        let key = store.prepare(self.key);
        store.prefetch(key);
        key
    }

    #[inline(always)]
    fn decide(&self, key: S::Prepared<'a>, at: CheckTime) -> S::Ticket<'_> {
        self.limiter.store().decide(key, at, self.cost)
    }

    fn check(&self, at: CheckTime) -> Decision {
        self.limiter.store().apply(self.prepare(), Operation::Check, at, self.cost)
    }

    fn peek(&self, at: CheckTime) -> Decision {
        self.limiter.store().peek(self.prepare(), at, self.cost)
    }

    fn refund(&self, at: CheckTime, charge: &Decision) {
        self.limiter.store().refund(self.prepare(), at, charge, charge.cost());
    }

    #[inline(always)]
    fn can_refund(&self) -> bool {
        self.limiter.store().can_refund()
    }

    #[inline(always)]
    fn name(&self) -> &'static str {
        self.name
    }
}

/// The limits of a request: tuples of up to eight, arrays, and slices of [`BoundLimit`]. Sealed.
pub trait Limits: LimitSet {}

impl<L: LimitSet + ?Sized> Limits for L {}

/// How [`Limits`] decide. Public in a private module.
pub trait LimitSet {
    /// A decision for each.
    type Decisions: AsRef<[Decision]>;

    /// The time by the first limit's clock.
    fn now(&self) -> CheckTime;
    /// All or nothing, at the time that is given, or else read once the keys' memory is asked for.
    fn decide(&self, given: Option<CheckTime>) -> JointDecision<Self::Decisions>;
    /// What that would be, uncharged.
    fn peek(&self, at: CheckTime) -> JointDecision<Self::Decisions>;
    /// Takes the charges back.
    fn refund(&self, at: CheckTime, charges: &[Decision]);
    /// What a limit is called.
    fn name(&self, index: usize) -> &'static str;
    /// Whether any has a name.
    fn is_named(&self) -> bool;
}

/// Checks several limits now: charges all of them, or none.
///
/// Each limit has its own limiter, of any algorithm and store, its own key and its own cost. A request that one of them refuses
/// is charged to none; the [answer](JointDecision) says which, when to come back, and how each limit stands.
///
/// The clock of the first limiter is read once, for all: use one clock (or clones of one) for limiters that are checked together.
/// [`check_all_at`] takes a time. Checking the empty slice of limits allows.
///
/// # Consistency
/// No limit ever admits more than its own bound, whatever is charged elsewhere at the same time. If a limit refuses after others
/// have been charged, since another thread was first, those charges are given back at once; for that instant they may deny
/// others, by at most this request's cost at each limit. Logs, sketches, queues (but for the last in them) and compact stores with
/// [`Overflow::Inherit`](crate::Overflow::Inherit) cannot give back and are charged last: a request with two of them may leave its
/// charge in the first when it loses such a race for the second, against the client. So may, in that instant, a window that turns
/// and a quota that changes; and a compact store that has evicted the key, or has spilled its debt or another's that looks alike.
/// A thread that is held up between its charge and giving it back gives back what time has not paid of it by then.
///
/// A limiter that is named twice with one key is charged twice, or not at all; but each is looked at by itself, so the answer's
/// figures are those of one, and if it cannot give back it is left with one charge when there is room for one only.
///
/// # Complexity
/// The sum of the single checks, less all but one clock reading. Never allocates for tuples and arrays.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, MinimumSpacing, Quota, RateLimiter, check_all};
///
/// // Ten a minute, and two seconds between requests.
/// let per_minute = RateLimiter::new(Quota::per_minute(10));
/// let spacing = RateLimiter::builder(MinimumSpacing::new(Duration::from_secs(2))).compact()?;
///
/// assert!(check_all((per_minute.on("alice"), spacing.on("alice"))).is_allowed());
/// let decision = check_all((per_minute.on("alice"), spacing.on("alice")));
/// assert_eq!(decision.refused_by(), Some(1)); // too soon; and the minute was not charged:
/// assert_eq!(per_minute.peek("alice").remaining(), 9);
///
/// // Different keys of one request, and costs of their own.
/// let by_route = RateLimiter::new(Quota::per_second(1_000));
/// let bytes = RateLimiter::direct(Gcra::new(Quota::per_second(1_000_000)));
/// let decision = check_all((per_minute.on("bob"), by_route.on("GET /"), bytes.on().cost(1_500)));
/// assert!(decision.is_allowed());
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[inline(always)]
#[must_use = "a decision that nobody reads limits nothing"]
pub fn check_all<L: Limits>(limits: L) -> JointDecision<L::Decisions> {
    limits.decide(None)
}

/// [`check_all`] at a time that the caller says.
#[inline]
#[must_use = "a decision that nobody reads limits nothing"]
pub fn check_all_at<L: Limits>(limits: L, now: Timestamp) -> JointDecision<L::Decisions> {
    limits.decide(Some(CheckTime::given(now)))
}

/// What [`check_all`] would decide now, uncharged.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter, peek_all};
///
/// let (minute, day) = (RateLimiter::new(Quota::per_minute(10)), RateLimiter::new(Quota::per_day(100)));
/// let limits = (minute.on("alice"), day.on("alice"));
/// assert_eq!(peek_all(limits).remaining(), 10);
/// assert_eq!(peek_all(limits).remaining(), 10);
/// ```
#[must_use = "a decision that nobody reads limits nothing"]
pub fn peek_all<L: Limits>(limits: L) -> JointDecision<L::Decisions> {
    limits.peek(limits.now())
}

/// [`peek_all`] at a time that the caller says.
#[must_use = "a decision that nobody reads limits nothing"]
pub fn peek_all_at<L: Limits>(limits: L, now: Timestamp) -> JointDecision<L::Decisions> {
    limits.peek(CheckTime::given(now))
}

/// [`refund_all`] at a time that the caller says.
pub fn refund_all_at<L: Limits>(limits: L, charge: &JointDecision<L::Decisions>, now: Timestamp) {
    if charge.is_allowed() {
        limits.refund(CheckTime::given(now), charge.each());
    }
}

/// Takes back all charges of a joint decision, on the same limits, as [`RateLimiter::refund`] does each.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter, check_all, refund_all};
///
/// let minute = RateLimiter::new(Quota::per_minute(10));
/// let day = RateLimiter::new(Quota::per_day(100));
/// let limits = (minute.on("alice"), day.on("alice"));
/// let charge = check_all(limits);
/// refund_all(limits, &charge); // the backend was down
/// assert_eq!(check_all(limits).remaining(), 9);
/// ```
pub fn refund_all<L: Limits>(limits: L, charge: &JointDecision<L::Decisions>) {
    if charge.is_allowed() {
        limits.refund(limits.now(), charge.each());
    }
}
