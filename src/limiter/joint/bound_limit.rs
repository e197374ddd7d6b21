//! One limit of a request.

use crate::base::check_time::CheckTime;
use crate::base::clock::Clock;
use crate::base::decision::{Decision, Outcome};
use crate::limiter::{RateLimiter, Timed};
use crate::store::op::{Exchange, Peeked, Ticket};
use crate::store::{ManyKeys, Operation, Store};

/// One limit of a request: a limiter, the request's key there, and its cost there. [`RateLimiter::on`] creates it, for
/// [`check_all`](crate::check_all).
///
/// # Examples
/// ```
/// use tollgate::{Gcra, Quota, RateLimiter, check_all};
///
/// let requests = RateLimiter::new(Quota::per_minute(60));
/// let bytes = RateLimiter::direct(Gcra::new(Quota::per_second(1_000_000)));
/// let request = (requests.on("alice").named("requests"), bytes.on().cost(1_500).named("bandwidth"));
/// assert!(check_all(request).is_allowed()); // the limits are `Copy`, so the same request can be checked again
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
    pub(in crate::limiter) const fn new(limiter: &'a RateLimiter<S, C>, key: &'a Q) -> Self {
        Self { limiter, key, cost: 1, name: "" }
    }

    /// Sets the request's cost at this limit. Default: 1.
    pub const fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }

    /// Sets the name that [`JointDecision::denied_by_name`](crate::joint::JointDecision::denied_by_name) returns for this
    /// limit. Default: none.
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }
}

impl<S: ManyKeys, C: Clock> RateLimiter<S, C> {
    /// Returns this limit for `key`, as one of several limits in a [`check_all`](crate::check_all).
    pub const fn on<'a, Q: ?Sized>(&'a self, key: &'a Q) -> BoundLimit<'a, S, C, Q> {
        BoundLimit::new(self, key)
    }
}

/// A limit with any types of store, clock and key. All code except the fast path uses this trait. The trait is public,
/// but in a private module, so users cannot name it.
pub trait ErasedLimit {
    /// Returns the time of this limit's clock, unless the limit is absent.
    fn now(&self) -> Option<CheckTime>;
    /// Decides and charges.
    fn charge(&self, operation: Operation, at: CheckTime) -> Decision;
    /// Makes the decision of [`Operation::CheckOversized`], and charges nothing. Only a charge finds out whether the state can
    /// hold the debt.
    fn peek_oversized(&self, at: CheckTime) -> Decision;
    /// Makes the decision of [`ErasedLimit::charge`], and charges nothing.
    fn decide_uncharged(&self, at: CheckTime) -> Decision;
    /// Starts the block of a denied request, if the limit has blocks.
    fn block(&self, at: CheckTime, denial: Decision) -> Decision;
    /// Decides and charges nothing.
    fn peek(&self, at: CheckTime) -> Decision;
    /// Refunds a charge.
    fn refund(&self, at: CheckTime, charge: &Decision);
    /// Takes back the request's cost, whichever calls charged it.
    fn give_back(&self, at: CheckTime);
    /// Returns whether charges can be refunded.
    fn can_refund(&self) -> bool;
    /// Returns the caller's name for the limit.
    fn name(&self) -> &'static str;
}

impl<S: Store<Q>, C: Clock, Q: ?Sized> ErasedLimit for BoundLimit<'_, S, C, Q> {
    #[inline(always)]
    fn now(&self) -> Option<CheckTime> {
        Some(self.limiter.time())
    }

    fn charge(&self, operation: Operation, at: CheckTime) -> Decision {
        self.limiter.store.apply(self.prepare(), operation, at, self.cost)
    }

    fn peek_oversized(&self, at: CheckTime) -> Decision {
        let asked = self.peek(at);
        if !asked.is_never() || !asked.keeps_debts() {
            return asked;
        }
        self.limiter.store.peek(self.prepare(), at, asked.limit()).for_cost(self.cost)
    }

    fn decide_uncharged(&self, at: CheckTime) -> Decision {
        self.limiter.store.decide(self.prepare(), at, self.cost).uncharged()
    }

    #[inline(always)]
    fn block(&self, at: CheckTime, denial: Decision) -> Decision {
        if S::BLOCKS { self.limiter.store.block(self.prepare(), at, denial) } else { denial }
    }

    fn peek(&self, at: CheckTime) -> Decision {
        self.limiter.store.peek(self.prepare(), at, self.cost)
    }

    fn refund(&self, at: CheckTime, charge: &Decision) {
        self.limiter.store.refund(self.prepare(), at, charge, charge.cost());
    }

    fn give_back(&self, at: CheckTime) {
        self.limiter.store.give_back(self.prepare(), at, self.cost);
    }

    #[inline(always)]
    fn can_refund(&self) -> bool {
        self.limiter.store.can_refund()
    }

    #[inline(always)]
    fn name(&self) -> &'static str {
        self.name
    }
}

/// A limit of a request, or an `Option` of one. `None` admits the request and charges nothing. Public in a private module:
/// sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit of a request",
    note = "`limiter.on(key)` makes one; a limit that some requests do not have is an `Option` of it"
)]
pub trait JointLimit: ErasedLimit {
    /// The key in the form that the store uses.
    type Key: Copy;

    /// A check that is decided but not yet charged.
    type Ticket<'t>: Ticket
    where
        Self: 't;

    /// Finds the key, and prefetches its memory.
    fn prepare(&self) -> Self::Key;

    /// The first part of a decision without a charge; the second is [`Ticket::peek`].
    fn aim(&self, key: Self::Key, at: CheckTime) -> Self::Ticket<'_>;
}

impl<'a, S: Store<Q>, C: Clock, Q: ?Sized> JointLimit for BoundLimit<'a, S, C, Q> {
    type Key = S::Prepared<'a>;

    type Ticket<'t>
        = S::Ticket<'t>
    where
        Self: 't;

    #[inline(always)]
    fn prepare(&self) -> S::Prepared<'a> {
        let store = &self.limiter.store;
        let key = store.prepare(self.key);
        store.prefetch(key);
        key
    }

    #[inline(always)]
    fn aim(&self, key: S::Prepared<'a>, at: CheckTime) -> S::Ticket<'_> {
        self.limiter.store.aim(key, at, self.cost)
    }
}

impl<L: ErasedLimit> ErasedLimit for Option<L> {
    #[inline(always)]
    fn now(&self) -> Option<CheckTime> {
        self.as_ref().and_then(L::now)
    }

    fn charge(&self, operation: Operation, at: CheckTime) -> Decision {
        self.as_ref().map_or(Decision::unlimited(at.ns()), |limit| limit.charge(operation, at))
    }

    fn peek_oversized(&self, at: CheckTime) -> Decision {
        self.as_ref().map_or(Decision::unlimited(at.ns()), |limit| limit.peek_oversized(at))
    }

    fn decide_uncharged(&self, at: CheckTime) -> Decision {
        self.as_ref().map_or(Decision::unlimited(at.ns()), |limit| limit.decide_uncharged(at))
    }

    #[inline(always)]
    fn block(&self, at: CheckTime, denial: Decision) -> Decision {
        self.as_ref().map_or(denial, |limit| limit.block(at, denial))
    }

    fn peek(&self, at: CheckTime) -> Decision {
        self.as_ref().map_or(Decision::unlimited(at.ns()), |limit| limit.peek(at))
    }

    fn refund(&self, at: CheckTime, charge: &Decision) {
        if let Some(limit) = self {
            limit.refund(at, charge);
        }
    }

    fn give_back(&self, at: CheckTime) {
        if let Some(limit) = self {
            limit.give_back(at);
        }
    }

    /// There is nothing to refund of an absent limit.
    #[inline(always)]
    fn can_refund(&self) -> bool {
        self.as_ref().is_none_or(L::can_refund)
    }

    #[inline(always)]
    fn name(&self) -> &'static str {
        self.as_ref().map_or("", L::name)
    }
}

impl<L: JointLimit> JointLimit for Option<L> {
    type Key = Option<L::Key>;

    type Ticket<'t>
        = OptionalTicket<L::Ticket<'t>>
    where
        Self: 't;

    #[inline(always)]
    fn prepare(&self) -> Option<L::Key> {
        self.as_ref().map(L::prepare)
    }

    #[inline(always)]
    fn aim(&self, key: Option<L::Key>, at: CheckTime) -> Self::Ticket<'_> {
        match self.as_ref().zip(key) {
            Some((limit, key)) => OptionalTicket::Of(limit.aim(key, at)),
            None => OptionalTicket::Absent(at),
        }
    }
}

/// The ticket of a limit that may be absent.
#[derive(Debug)]
pub enum OptionalTicket<T> {
    /// The ticket of the limit.
    Of(T),
    /// The time of the request.
    Absent(CheckTime),
}

impl<T: Ticket> Ticket for OptionalTicket<T> {
    #[inline(always)]
    fn peek(&mut self) -> Peeked {
        match self {
            Self::Of(ticket) => ticket.peek(),
            Self::Absent(_) => Peeked::Decided,
        }
    }

    #[inline(always)]
    fn outcome(&self) -> Outcome {
        match self {
            Self::Of(ticket) => ticket.outcome(),
            Self::Absent(_) => Outcome::Allowed,
        }
    }

    #[inline(always)]
    fn exchange(&self) -> Exchange {
        match self {
            Self::Of(ticket) => ticket.exchange(),
            Self::Absent(_) => Exchange::Done,
        }
    }

    #[inline(always)]
    fn charged(&self) -> Decision {
        match self {
            Self::Of(ticket) => ticket.charged(),
            Self::Absent(at) => Decision::unlimited(at.ns()),
        }
    }

    #[inline(always)]
    fn uncharged(&self) -> Decision {
        match self {
            Self::Of(ticket) => ticket.uncharged(),
            Self::Absent(at) => Decision::unlimited(at.ns()),
        }
    }
}
