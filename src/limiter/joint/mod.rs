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

/// Takes back all charges of a joint decision, on the same limits, as [`RateLimiter::refund`](crate::RateLimiter::refund) does each.
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
