//! Decides requests on tuples, arrays and slices of limits.

use alloc::vec::Vec;
use core::array::from_fn;

use super::bound_limit::{ErasedLimit, JointLimit};
use super::decision::{JointDecision, worst};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::store::Operation;
use crate::store::op::{Exchange, Peeked, Ticket};

/// The limits of a request: tuples of up to eight [`BoundLimit`](super::BoundLimit)s, or arrays or slices of them. Each of
/// them may also be an `Option`; see [`check_all`](super::check_all). This trait is sealed.
pub trait Limits: LimitSet {}

impl<L: LimitSet + ?Sized> Limits for L {}

/// How [`Limits`] decide. The trait is public, but in a private module, so users cannot name it.
pub trait LimitSet {
    /// A decision for each limit.
    type Decisions: AsRef<[Decision]>;

    /// The limits in order.
    fn each(&self) -> impl Iterator<Item = &dyn ErasedLimit> + Clone;

    /// Collects the answer of each limit, by its index.
    fn answers(&self, answer: impl FnMut(usize, &dyn ErasedLimit) -> Decision) -> Self::Decisions;

    /// Charges all limits or none, at the given time. Without a given time, reads the clock after it prefetches the
    /// keys' memory.
    fn decide(&self, given: Option<CheckTime>) -> JointDecision<Self::Decisions>;

    /// Returns the time of the first present limit's clock. Without limits, returns time 0 and reads no clock.
    #[inline(always)]
    fn now(&self) -> CheckTime {
        self.each().find_map(|limit| limit.now()).unwrap_or(CheckTime::from_ns(0))
    }

    /// The limits' names in order.
    #[inline(always)]
    fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.each().map(|limit| limit.name())
    }

    /// Returns the decision that [`LimitSet::decide`] would make, without a charge.
    fn peek(&self, at: CheckTime) -> JointDecision<Self::Decisions> {
        JointDecision::of(self.names(), self.answers(|_, limit| limit.peek(at)))
    }

    /// Charges all limits or none by [`Operation::CheckOversized`].
    fn decide_oversized(&self, given: Option<CheckTime>) -> JointDecision<Self::Decisions> {
        let at = given.unwrap_or_else(|| self.now());
        let mut each = self.answers(|_, limit| limit.peek_oversized(at));
        if each.as_ref().iter().all(Decision::is_allowed) {
            let mut answers = alloc::vec![None; each.as_ref().len()];
            each = finish(self, &mut answers, at, given.is_some(), Operation::CheckOversized);
        }
        JointDecision::of(self.names(), each)
    }

    /// Takes back each limit's cost.
    fn give_back(&self, at: CheckTime) {
        self.each().for_each(|limit| limit.give_back(at));
    }

    /// Refunds the charges.
    fn refund(&self, at: CheckTime, charges: &[Decision]) {
        for (limit, charge) in self.each().zip(charges) {
            limit.refund(at, charge);
        }
    }
}

/// Finishes a request that could not be charged with one exchange at each limit: a limit has a new key, or an exchange
/// lost a race.
///
/// Charges the limits that are not charged yet. Limits that can refund come first. If a limit denies, refunds all
/// charges of the request.
#[cold]
#[inline(never)]
fn finish<L: LimitSet>(
    limits: L,
    answers: &mut [Option<Decision>],
    at: CheckTime,
    is_given: bool,
    operation: Operation,
) -> L::Decisions {
    let refused = [true, false].into_iter().any(|can_refund| {
        limits.each().zip(&mut *answers).any(|(limit, answer)| {
            if limit.can_refund() == can_refund && answer.is_none() {
                *answer = Some(limit.charge(operation, at));
            }
            answer.is_some_and(|answer| answer.is_denied())
        })
    });
    if refused {
        for (limit, answer) in limits.each().zip(&mut *answers) {
            if let Some(charge) = answer.take_if(|answer| answer.is_allowed()) {
                limit.refund(if is_given { at } else { limit.now().unwrap_or(at).max(at) }, &charge);
            }
        }
    }
    limits.answers(|index, limit| answers[index].unwrap_or_else(|| limit.peek(at)))
}

/// Decides a request that cannot be charged with one exchange at each limit. `answers` has one place for each limit.
#[cold]
#[inline(never)]
fn decide_slowly<L: LimitSet>(
    limits: L,
    answers: &mut [Option<Decision>],
    at: CheckTime,
    is_given: bool,
) -> L::Decisions {
    let each = limits.answers(|_, limit| limit.decide_uncharged(at));
    if each.as_ref().iter().any(Decision::is_denied) {
        return limits.answers(|index, limit| limit.block(at, each.as_ref()[index]));
    }
    finish(limits, answers, at, is_given, Operation::Check)
}

macro_rules! tuples {
    ($($len:literal: $($index:tt $L:ident),+;)+) => {$(
        impl<$($L: JointLimit + Copy),+> LimitSet for ($($L,)+) {
            type Decisions = [Decision; $len];

            #[inline(always)]
            fn each(&self) -> impl Iterator<Item = &dyn ErasedLimit> + Clone {
                let limits: [&dyn ErasedLimit; $len] = [$(&self.$index),+];
                limits.into_iter()
            }

            #[inline(always)]
            fn answers(&self, mut answer: impl FnMut(usize, &dyn ErasedLimit) -> Decision) -> Self::Decisions {
                [$(answer($index, &self.$index)),+]
            }

            #[inline(always)]
            fn decide(&self, given: Option<CheckTime>) -> JointDecision<Self::Decisions> {
                let keys = ($(self.$index.prepare(),)+);
                let at = given.unwrap_or_else(|| self.now());
                let mut tickets = ($(self.$index.aim(keys.$index, at),)+);
                // The slow parts get a copy of the limits, so that the compiler keeps the fast part's copy in
                // registers. The slow parts return only the decisions, because a returned `JointDecision` would be in
                // memory, and would force the fast part's `JointDecision` into memory too.
                let limits = *self;
                let (outcome, each) = 'slow: {
                    if $(tickets.$index.peek() == Peeked::Undecided)||+ {
                        let each = decide_slowly(limits, &mut [None; $len], at, given.is_some());
                        break 'slow (worst(each.iter().map(Decision::outcome)), each);
                    }
                    if $(tickets.$index.outcome() != Outcome::Allowed)||+ {
                        let outcome = worst([$(tickets.$index.outcome()),+].into_iter());
                        break 'slow (outcome, [$(self.$index.block(at, tickets.$index.uncharged())),+]);
                    }
                    // Each limit except the last must be able to refund.
                    let in_order = $((self.$index.can_refund() || $index + 1 == $len))&&+;
                    let mut done = 0;
                    if in_order && $({
                        let exchanged = tickets.$index.exchange() == Exchange::Done;
                        done += usize::from(exchanged);
                        exchanged
                    })&&+ {
                        return JointDecision::allowed([$(tickets.$index.charged()),+]);
                    }
                    let mut answers = [$(($index < done).then(|| tickets.$index.charged())),+];
                    let each = finish(limits, &mut answers, at, given.is_some(), Operation::Check);
                    (worst(each.iter().map(Decision::outcome)), each)
                };
                JointDecision::with_outcome(outcome, limits.names(), each)
            }
        }
    )+};
}

tuples! {
    1: 0 L0;
    2: 0 L0, 1 L1;
    3: 0 L0, 1 L1, 2 L2;
    4: 0 L0, 1 L1, 2 L2, 3 L3;
    5: 0 L0, 1 L1, 2 L2, 3 L3, 4 L4;
    6: 0 L0, 1 L1, 2 L2, 3 L3, 4 L4, 5 L5;
    7: 0 L0, 1 L1, 2 L2, 3 L3, 4 L4, 5 L5, 6 L6;
    8: 0 L0, 1 L1, 2 L2, 3 L3, 4 L4, 5 L5, 6 L6, 7 L7;
}

/// Reads limits of one type, and charges them in order if none denies. `answers` returns one place for each limit, and
/// `block` starts the block of the limit with this index.
#[inline(always)]
fn decide_each<L: LimitSet + ?Sized, B: AsMut<[Option<Decision>]>>(
    limits: &L,
    tickets: &mut [impl Ticket],
    answers: impl FnOnce() -> B,
    block: impl Fn(usize, Decision) -> Decision,
    (at, is_given): (CheckTime, bool),
) -> JointDecision<L::Decisions> {
    if tickets.iter_mut().any(|ticket| ticket.peek() == Peeked::Undecided) {
        return JointDecision::of(limits.names(), decide_slowly(limits, answers().as_mut(), at, is_given));
    }
    let outcome = worst(tickets.iter().map(Ticket::outcome));
    if outcome != Outcome::Allowed {
        let each = limits.answers(|index, _| block(index, tickets[index].uncharged()));
        return JointDecision::with_outcome(outcome, limits.names(), each);
    }
    // Each limit except the last must be able to refund.
    let mut others = limits.each().take(tickets.len().saturating_sub(1));
    let in_order = others.all(|limit| limit.can_refund());
    let lost = |ticket| Ticket::exchange(ticket) == Exchange::Lost;
    let done = if in_order { tickets.iter().position(lost) } else { Some(0) };
    let Some(done) = done else {
        return JointDecision::allowed(limits.answers(|index, _| tickets[index].charged()));
    };
    let mut answers = answers();
    let answers = answers.as_mut();
    for (answer, ticket) in answers.iter_mut().zip(&*tickets).take(done) {
        *answer = Some(ticket.charged());
    }
    JointDecision::of(limits.names(), finish(limits, answers, at, is_given, Operation::Check))
}

impl<L: JointLimit, const N: usize> LimitSet for [L; N] {
    type Decisions = [Decision; N];

    #[inline]
    fn each(&self) -> impl Iterator<Item = &dyn ErasedLimit> + Clone {
        self.as_slice().each()
    }

    #[inline]
    fn answers(&self, mut answer: impl FnMut(usize, &dyn ErasedLimit) -> Decision) -> Self::Decisions {
        from_fn(|index| answer(index, &self[index]))
    }

    #[inline]
    fn decide(&self, given: Option<CheckTime>) -> JointDecision<Self::Decisions> {
        let keys = self.each_ref().map(L::prepare);
        let at = given.unwrap_or_else(|| self.now());
        let mut tickets: [_; N] = from_fn(|index| self[index].aim(keys[index], at));
        let block = |index: usize, denial| self[index].block(at, denial);
        decide_each(self, &mut tickets, || [None; N], block, (at, given.is_some()))
    }
}

impl<L: JointLimit> LimitSet for [L] {
    type Decisions = Vec<Decision>;

    #[inline]
    fn each(&self) -> impl Iterator<Item = &dyn ErasedLimit> + Clone {
        self.iter().map(|limit| limit as &dyn ErasedLimit)
    }

    fn answers(&self, mut answer: impl FnMut(usize, &dyn ErasedLimit) -> Decision) -> Self::Decisions {
        self.iter().enumerate().map(|(index, limit)| answer(index, limit)).collect()
    }

    fn decide(&self, given: Option<CheckTime>) -> JointDecision<Self::Decisions> {
        let at = given.unwrap_or_else(|| self.now());
        let mut tickets: Vec<_> = self.iter().map(|limit| limit.aim(limit.prepare(), at)).collect();
        let block = |index: usize, denial| self[index].block(at, denial);
        decide_each(self, &mut tickets, || alloc::vec![None; self.len()], block, (at, given.is_some()))
    }
}

impl<L: LimitSet + ?Sized> LimitSet for &L {
    type Decisions = L::Decisions;

    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = &dyn ErasedLimit> + Clone {
        (**self).each()
    }

    #[inline(always)]
    fn answers(&self, answer: impl FnMut(usize, &dyn ErasedLimit) -> Decision) -> Self::Decisions {
        (**self).answers(answer)
    }

    #[inline(always)]
    fn decide(&self, given: Option<CheckTime>) -> JointDecision<Self::Decisions> {
        (**self).decide(given)
    }
}
