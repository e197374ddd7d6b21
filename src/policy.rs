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

use std::array::from_fn;
use std::fmt;
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::clock::{Clock, Timestamp};
use crate::decision::{Decision, Outcome};
use crate::limiter::RateLimiter;
use crate::store::{Adjustable, Direct, ManyKeys, Store, Verb, When};

/// One limit of a request: a limiter, the key that the request has there, and what it costs there. Made by
/// [`RateLimiter::on`], for [`check_all`].
#[derive(Debug)]
#[must_use = "a limit of a request does nothing until it is checked"]
pub struct On<'a, S, C, Q: ?Sized> {
    limiter: &'a RateLimiter<S, C>,
    key: &'a Q,
    cost: u64,
    name: &'static str,
}

impl<S, C, Q: ?Sized> Clone for On<'_, S, C, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, C, Q: ?Sized> Copy for On<'_, S, C, Q> {}

impl<S, C, Q: ?Sized> On<'_, S, C, Q> {
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
    pub const fn on<'a, Q: ?Sized>(&'a self, key: &'a Q) -> On<'a, S, C, Q> {
        On { limiter: self, key, cost: 1, name: "" }
    }
}

macro_rules! without_keys {
    ($store:ty) => {
        impl<A: Algorithm, C: Clock> RateLimiter<$store, C> {
            /// This limit, to be checked together with others by [`check_all`](crate::check_all).
            pub const fn on(&self) -> On<'_, $store, C, ()> {
                On { limiter: self, key: &(), cost: 1, name: "" }
            }
        }
    };
}

without_keys!(Direct<A>);
without_keys!(Adjustable<Direct<A>>);

/// A time for all limits of a request.
#[derive(Copy, Clone, Debug)]
pub struct At {
    now_ns: u64,
    given: bool,
}

/// A limit of a request, as [`check_all`] sees it. Public in a private module.
pub trait Limit {
    /// See [`Store`].
    type Ticket<'t>
    where
        Self: 't;

    /// The time by this limit's clock.
    fn now(&self) -> At;
    /// See [`Store`].
    type Place: Copy;

    /// Asks for the key's memory.
    fn approach(&self) -> Self::Place;
    /// Decides without charging.
    fn prepare(&self, place: Self::Place, at: At) -> Self::Ticket<'_>;
    /// What that would be.
    fn outcome(ticket: &Self::Ticket<'_>) -> Outcome;
    /// Charges what was prepared, if nothing has changed since.
    fn exchange(&self, ticket: &Self::Ticket<'_>, at: At) -> bool;
    /// The answer once that was done.
    fn charged(&self, ticket: &Self::Ticket<'_>, at: At) -> Decision;
    /// The answer if it is not done.
    fn uncharged(&self, ticket: &Self::Ticket<'_>, at: At) -> Decision;
    /// Decides and charges.
    fn charge(&self, at: At) -> Decision;
    /// How things stand.
    fn look(&self, at: At) -> Decision;
    /// Takes back a charge.
    fn undo(&self, at: At, charge: &Decision);
    /// Whether charges can be taken back.
    fn undoes(&self) -> bool;
    /// What it is called.
    fn name(&self) -> &'static str;
}

impl<S, C: Clock, Q: ?Sized> On<'_, S, C, Q> {
    #[inline(always)]
    fn when(&self, At { now_ns, given }: At) -> When<'_, C> {
        When { clock: self.limiter.clock(), now_ns, given }
    }
}

impl<S: Store<Q>, C: Clock, Q: ?Sized> Limit for On<'_, S, C, Q> {
    type Ticket<'t>
        = S::Ticket<'t>
    where
        Self: 't;
    type Place = S::Place;

    #[inline(always)]
    fn now(&self) -> At {
        At { now_ns: self.limiter.clock().now().as_nanos(), given: false }
    }

    #[inline(always)]
    fn approach(&self) -> S::Place {
        self.limiter.store().approach(self.key)
    }

    #[inline(always)]
    fn prepare(&self, place: S::Place, at: At) -> S::Ticket<'_> {
        self.limiter.store().prepare(self.key, place, self.when(at), self.cost)
    }

    #[inline(always)]
    fn outcome(ticket: &S::Ticket<'_>) -> Outcome {
        S::outcome(ticket)
    }

    #[inline(always)]
    fn exchange(&self, ticket: &S::Ticket<'_>, at: At) -> bool {
        self.limiter.store().exchange(self.when(at), ticket)
    }

    #[inline(always)]
    fn charged(&self, ticket: &S::Ticket<'_>, at: At) -> Decision {
        self.limiter.store().charged(self.when(at), ticket, self.cost)
    }

    #[inline(always)]
    fn uncharged(&self, ticket: &S::Ticket<'_>, at: At) -> Decision {
        self.limiter.store().uncharged(self.when(at), ticket, self.cost)
    }

    fn charge(&self, at: At) -> Decision {
        self.limiter.store().act(self.key, Verb::Check, self.when(at), self.cost)
    }

    fn look(&self, at: At) -> Decision {
        self.limiter.store().look(self.key, self.when(at), self.cost)
    }

    fn undo(&self, at: At, charge: &Decision) {
        self.limiter.store().give_back(self.key, self.when(at), charge, charge.cost());
    }

    #[inline(always)]
    fn undoes(&self) -> bool {
        self.limiter.store().gives_back()
    }

    #[inline(always)]
    fn name(&self) -> &'static str {
        self.name
    }
}

/// The limits of a request: tuples of up to eight, arrays, and slices of [`On`]. Sealed.
pub trait Limits: Together {}

impl<L: Together + ?Sized> Limits for L {}

/// How [`Limits`] decide. Public in a private module.
pub trait Together {
    /// A decision for each.
    type Decisions: AsRef<[Decision]>;

    /// The time by the first limit's clock.
    fn now(&self) -> At;
    /// All or nothing, at a time that is asked for once the keys' memory is.
    fn decide(&self, at: impl FnOnce() -> At) -> JointDecision<Self::Decisions>;
    /// What that would be, uncharged.
    fn look(&self, at: At) -> JointDecision<Self::Decisions>;
    /// Takes the charges back.
    fn undo(&self, at: At, charges: &[Decision]);
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
/// others, by at most this request's cost at each limit. Logs, sketches, and compact stores with
/// [`Overflow::Inherit`](crate::Overflow::Inherit) cannot give back and are charged last: a request with two of them may leave its
/// charge in the first when it loses such a race for the second, against the client. So may a window that turns, and a compact
/// store that evicts the key, in that instant.
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
pub fn check_all<L: Limits>(limits: L) -> JointDecision<L::Decisions> {
    limits.decide(|| limits.now())
}

/// [`check_all`] at a time that the caller says.
#[inline]
pub fn check_all_at<L: Limits>(limits: L, now: Timestamp) -> JointDecision<L::Decisions> {
    limits.decide(|| At { now_ns: now.as_nanos(), given: true })
}

/// What [`check_all`] would decide now, uncharged.
pub fn peek_all<L: Limits>(limits: L) -> JointDecision<L::Decisions> {
    limits.look(limits.now())
}

/// [`peek_all`] at a time that the caller says.
pub fn peek_all_at<L: Limits>(limits: L, now: Timestamp) -> JointDecision<L::Decisions> {
    limits.look(At { now_ns: now.as_nanos(), given: true })
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
        limits.undo(limits.now(), charge.each());
    }
}

/// The answer to one request under several limits.
///
/// Its figures are the strictest of all limits'; [`JointDecision::each`] has every limit's own. `D` holds a [`Decision`] for each
/// limit: an array, or a `Vec`.
#[derive(Copy, Clone, PartialEq, Eq)]
#[must_use = "a decision that nobody reads limits nothing"]
pub struct JointDecision<D> {
    outcome: Outcome,
    each: D,
    /// The name of the limit that refused, if it has one.
    refused: &'static str,
}

impl<D: AsRef<[Decision]>> JointDecision<D> {
    fn allowed(each: D) -> Self {
        Self { outcome: Outcome::Allowed, each, refused: "" }
    }

    /// Never, if any limit says so; for others the wait may help.
    #[inline(always)]
    fn of<L: Together + ?Sized>(limits: &L, each: D) -> Self {
        let outcomes = each.as_ref().iter().map(Decision::outcome);
        let outcome = outcomes.fold(Outcome::Allowed, |worst, outcome| match (worst, outcome) {
            (Outcome::Never, _) | (_, Outcome::Never) => Outcome::Never,
            (Outcome::Denied, _) | (_, Outcome::Denied) => Outcome::Denied,
            _ => Outcome::Allowed,
        });
        let mut decision = Self { outcome, each, refused: "" };
        if limits.is_named()
            && let Some(index) = decision.refused_by()
        {
            decision.refused = limits.name(index);
        }
        decision
    }

    /// Whether the request may go, and if not whether it ever can.
    #[inline]
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request may go; it has been charged to every limit.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed)
    }

    /// Whether the request must not go. It was charged to none.
    #[inline]
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Whether some limit can never admit its cost.
    #[inline]
    #[must_use]
    pub const fn is_never(&self) -> bool {
        matches!(self.outcome, Outcome::Never)
    }

    /// Each limit's own answer, in the order that they were named: what it decided, or would have, of a request that another
    /// limit refused.
    #[inline]
    #[must_use]
    pub fn each(&self) -> &[Decision] {
        self.each.as_ref()
    }

    /// The limit that refused, by its place: of several the one that refuses for longest, the first of equals.
    #[must_use]
    pub fn refused_by(&self) -> Option<usize> {
        let wait = |decision: &Decision| decision.retry_after().unwrap_or(Duration::MAX);
        let refusals = self.each().iter().enumerate().filter(|(_, decision)| decision.is_denied());
        refusals.rev().max_by_key(|(_, decision)| wait(decision)).map(|(index, _)| index)
    }

    /// The [name](On::named) of the limit that refused, if it was given one.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter, check_all};
    ///
    /// let (hour, day) = (RateLimiter::new(Quota::per_hour(1)), RateLimiter::new(Quota::per_day(5)));
    /// let ask = || check_all((hour.on("alice").named("hourly"), day.on("alice").named("daily")));
    /// assert_eq!(ask().refused_by_name(), None);
    /// assert_eq!(ask().refused_by_name(), Some("hourly"));
    /// ```
    #[must_use]
    pub fn refused_by_name(&self) -> Option<&'static str> {
        (!self.refused.is_empty()).then_some(self.refused)
    }

    /// How long until the same request could be admitted, if nothing else is until then: the longest of all limits' waits.
    /// Zero if it was allowed, `None` if it can never be.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.each()
            .iter()
            .map(Decision::retry_after)
            .try_fold(Duration::ZERO, |most, wait| Some(most.max(wait?)))
    }

    /// The fewest units that any limit would admit now, after this decision; `u64::MAX` if there is no limit.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.each().iter().map(Decision::remaining).min().unwrap_or(u64::MAX)
    }

    /// How long until all limits are as good as new, if nothing is admitted until then.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.each().iter().map(Decision::reset_after).max().unwrap_or_default()
    }

    /// How long an admitted request has to wait before it goes: as long as the slowest of its limits says.
    #[must_use]
    pub fn delay(&self) -> Duration {
        if self.is_denied() {
            return Duration::ZERO;
        }
        self.each().iter().map(Decision::delay).max().unwrap_or_default()
    }
}

impl<D: AsRef<[Decision]>> fmt::Debug for JointDecision<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointDecision")
            .field("outcome", &self.outcome)
            .field("refused_by", &self.refused_by())
            .field("each", &self.each())
            .finish()
    }
}

/// A limit in a request that could not be charged by one exchange at each limit: for one of them looked at its key for the
/// first time, or lost a race.
trait Slow {
    /// Charges it, if it belongs to this pass; whether it refuses.
    fn charge(&mut self, undoes: bool) -> bool;
    /// Takes back what was charged, and says how things stand.
    fn give_up(&mut self);
    /// Its answer.
    fn answer(&self) -> Decision;
}

struct SlowLimit<'l, L> {
    limit: &'l L,
    at: At,
    answer: Option<Decision>,
}

impl<L: Limit> Slow for SlowLimit<'_, L> {
    fn charge(&mut self, undoes: bool) -> bool {
        if self.limit.undoes() == undoes && self.answer.is_none() {
            self.answer = Some(self.limit.charge(self.at));
        }
        self.answer.is_some_and(|answer| answer.is_denied())
    }

    fn give_up(&mut self) {
        if let Some(charge) = self.answer {
            if charge.is_denied() {
                return;
            }
            self.limit.undo(self.at, &charge);
        }
        self.answer = Some(self.limit.look(self.at));
    }

    fn answer(&self) -> Decision {
        self.answer.unwrap_or_else(|| self.limit.look(self.at))
    }
}

/// Charges those that are not yet, the ones that can be undone first; or if one refuses, undoes all.
#[cold]
#[inline(never)]
fn finish(limits: &mut [&mut dyn Slow]) {
    for undoes in [true, false] {
        if limits.iter_mut().any(|limit| limit.charge(undoes)) {
            for limit in limits {
                limit.give_up();
            }
            return;
        }
    }
}

macro_rules! tuples {
    ($($len:literal: $($L:ident $index:tt)+;)+) => {$(
        impl<$($L: Limit),+> Together for ($($L,)+) {
            type Decisions = [Decision; $len];

            #[inline(always)]
            fn now(&self) -> At {
                self.0.now()
            }

            #[inline(always)]
            fn decide(&self, at: impl FnOnce() -> At) -> JointDecision<[Decision; $len]> {
                let places = ($(self.$index.approach(),)+);
                let at = at();
                let tickets = ($(self.$index.prepare(places.$index, at),)+);
                if $($L::outcome(&tickets.$index) != Outcome::Allowed)||+ {
                    return JointDecision::of(self, [$(self.$index.uncharged(&tickets.$index, at)),+]);
                }
                // In order, if only the last cannot be undone.
                let in_order = $((self.$index.undoes() || $index + 1 == $len))&&+;
                let mut done = 0;
                if in_order && $({
                    let exchanged = self.$index.exchange(&tickets.$index, at);
                    done += usize::from(exchanged);
                    exchanged
                })&&+ {
                    return JointDecision::allowed([$(self.$index.charged(&tickets.$index, at)),+]);
                }
                let mut slow = ($(SlowLimit {
                    limit: &self.$index,
                    at,
                    answer: ($index < done).then(|| self.$index.charged(&tickets.$index, at)),
                },)+);
                finish(&mut [$(&mut slow.$index),+]);
                JointDecision::of(self, [$(slow.$index.answer()),+])
            }

            fn look(&self, at: At) -> JointDecision<[Decision; $len]> {
                JointDecision::of(self, [$(self.$index.look(at)),+])
            }

            fn undo(&self, at: At, charges: &[Decision]) {
                if let [$($L),+] = charges {
                    $(self.$index.undo(at, $L);)+
                }
            }

            fn name(&self, index: usize) -> &'static str {
                match index {
                    $($index => self.$index.name(),)+
                    _ => "",
                }
            }

            #[inline(always)]
            fn is_named(&self) -> bool {
                $(!self.$index.name().is_empty())||+
            }
        }
    )+};
}

#[expect(non_snake_case, reason = "a type parameter and a value of each limit share a name")]
mod tuples {
    use super::{At, Decision, JointDecision, Limit, Outcome, Slow, SlowLimit, Together, finish};

    tuples! {
        1: A 0;
        2: A 0 B 1;
        3: A 0 B 1 C 2;
        4: A 0 B 1 C 2 D 3;
        5: A 0 B 1 C 2 D 3 E 4;
        6: A 0 B 1 C 2 D 3 E 4 F 5;
        7: A 0 B 1 C 2 D 3 E 4 F 5 G 6;
        8: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
    }
}

/// Charges limits of one type as long as nothing has changed since they were prepared: how many, in order. `None` if one
/// refuses.
#[inline]
fn exchange_each<'t, L: Limit>(limits: &'t [L], at: At, tickets: &[L::Ticket<'t>]) -> Option<usize> {
    if tickets.iter().any(|ticket| L::outcome(ticket) != Outcome::Allowed) {
        return None;
    }
    // In order, if only the last cannot be undone.
    if !limits.iter().rev().skip(1).all(L::undoes) {
        return Some(0);
    }
    Some(limits.iter().zip(tickets).take_while(|(limit, ticket)| limit.exchange(ticket, at)).count())
}

impl<L: Limit, const N: usize> Together for [L; N] {
    type Decisions = [Decision; N];

    fn now(&self) -> At {
        self.as_slice().now()
    }

    #[inline]
    fn decide(&self, at: impl FnOnce() -> At) -> JointDecision<[Decision; N]> {
        let places = self.each_ref().map(Limit::approach);
        let at = at();
        let tickets: [_; N] = from_fn(|index| self[index].prepare(places[index], at));
        let Some(done) = exchange_each(self, at, &tickets) else {
            return JointDecision::of(self, from_fn(|index| self[index].uncharged(&tickets[index], at)));
        };
        let charged = |index: usize| self[index].charged(&tickets[index], at);
        if done == N {
            return JointDecision::allowed(from_fn(charged));
        }
        let slow =
            |index| SlowLimit { limit: &self[index], at, answer: (index < done).then(|| charged(index)) };
        let mut slow: [SlowLimit<'_, L>; N] = from_fn(slow);
        finish(&mut slow.each_mut().map(|limit| limit as &mut dyn Slow));
        JointDecision::of(self, slow.map(|limit| limit.answer()))
    }

    fn look(&self, at: At) -> JointDecision<[Decision; N]> {
        JointDecision::of(self, from_fn(|index| self[index].look(at)))
    }

    fn undo(&self, at: At, charges: &[Decision]) {
        self.as_slice().undo(at, charges);
    }

    fn name(&self, index: usize) -> &'static str {
        self.as_slice().name(index)
    }

    fn is_named(&self) -> bool {
        self.as_slice().is_named()
    }
}

impl<L: Limit> Together for [L] {
    type Decisions = Vec<Decision>;

    /// Without a limit no time is asked for.
    fn now(&self) -> At {
        self.first().map_or(At { now_ns: 0, given: true }, Limit::now)
    }

    fn decide(&self, at: impl FnOnce() -> At) -> JointDecision<Vec<Decision>> {
        let at = at();
        let tickets: Vec<_> = self.iter().map(|limit| limit.prepare(limit.approach(), at)).collect();
        let each = || self.iter().zip(&tickets);
        let Some(done) = exchange_each(self, at, &tickets) else {
            return JointDecision::of(
                self,
                each().map(|(limit, ticket)| limit.uncharged(ticket, at)).collect(),
            );
        };
        if done == self.len() {
            return JointDecision::allowed(each().map(|(limit, ticket)| limit.charged(ticket, at)).collect());
        }
        let slow = each().enumerate().map(|(index, (limit, ticket))| {
            let answer = (index < done).then(|| limit.charged(ticket, at));
            SlowLimit { limit, at, answer }
        });
        let mut slow: Vec<SlowLimit<'_, L>> = slow.collect();
        let mut faces: Vec<&mut dyn Slow> = slow.iter_mut().map(|limit| limit as &mut dyn Slow).collect();
        finish(&mut faces);
        JointDecision::of(self, slow.iter().map(Slow::answer).collect())
    }

    fn look(&self, at: At) -> JointDecision<Vec<Decision>> {
        JointDecision::of(self, self.iter().map(|limit| limit.look(at)).collect())
    }

    fn undo(&self, at: At, charges: &[Decision]) {
        for (limit, charge) in self.iter().zip(charges) {
            limit.undo(at, charge);
        }
    }

    fn name(&self, index: usize) -> &'static str {
        self.get(index).map_or("", Limit::name)
    }

    fn is_named(&self) -> bool {
        self.iter().any(|limit| !limit.name().is_empty())
    }
}

impl<L: Together + ?Sized> Together for &L {
    type Decisions = L::Decisions;

    #[inline(always)]
    fn now(&self) -> At {
        (**self).now()
    }

    #[inline(always)]
    fn decide(&self, at: impl FnOnce() -> At) -> JointDecision<L::Decisions> {
        (**self).decide(at)
    }

    fn look(&self, at: At) -> JointDecision<L::Decisions> {
        (**self).look(at)
    }

    fn undo(&self, at: At, charges: &[Decision]) {
        (**self).undo(at, charges);
    }

    fn name(&self, index: usize) -> &'static str {
        (**self).name(index)
    }

    #[inline(always)]
    fn is_named(&self) -> bool {
        (**self).is_named()
    }
}
