//! How tuples, arrays and slices of limits decide.

use alloc::vec::Vec;
use core::array::from_fn;

use super::{JointDecision, LimitSet, RequestLimit};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::store::op::{Exchange, Ticket};

/// A limit in a request that could not be charged by one exchange at each limit: for one of them looked at its key for the
/// first time, or lost a race.
trait Slow {
    /// Charges it, if it belongs to this pass; whether it refuses.
    fn charge(&mut self, can_refund: bool) -> bool;
    /// Takes back what was charged, and says how things stand.
    fn give_up(&mut self);
    /// Its answer.
    fn answer(&self) -> Decision;
}

struct SlowLimit<'l, L> {
    limit: &'l L,
    at: CheckTime,
    /// Whether the caller gave the time: then no clock is read.
    is_given: bool,
    answer: Option<Decision>,
}

impl<L: RequestLimit> Slow for SlowLimit<'_, L> {
    fn charge(&mut self, can_refund: bool) -> bool {
        if self.limit.can_refund() == can_refund && self.answer.is_none() {
            self.answer = Some(self.limit.check(self.at));
        }
        self.answer.is_some_and(|answer| answer.is_denied())
    }

    fn give_up(&mut self) {
        if let Some(charge) = self.answer {
            if charge.is_denied() {
                return;
            }
            let at = if self.is_given { self.at } else { self.limit.now().max(self.at) };
            self.limit.refund(at, &charge);
        }
        self.answer = Some(self.limit.peek(self.at));
    }

    fn answer(&self) -> Decision {
        self.answer.unwrap_or_else(|| self.limit.peek(self.at))
    }
}

/// Charges those that are not yet, the ones that can be refunded first; or if one refuses, refunds all.
#[cold]
#[inline(never)]
fn finish(limits: &mut [&mut dyn Slow]) {
    for can_refund in [true, false] {
        if limits.iter_mut().any(|limit| limit.charge(can_refund)) {
            for limit in limits {
                limit.give_up();
            }
            return;
        }
    }
}

macro_rules! tuples {
    ($($len:literal: $($L:ident $index:tt)+;)+) => {$(
        impl<$($L: RequestLimit),+> LimitSet for ($($L,)+) {
            type Decisions = [Decision; $len];

            #[inline(always)]
            fn now(&self) -> CheckTime {
                self.0.now()
            }

            #[inline(always)]
            fn decide(&self, given: Option<CheckTime>) -> JointDecision<[Decision; $len]> {
                let keys = ($(self.$index.prepare(),)+);
                let at = given.unwrap_or_else(|| self.now());
                let tickets = ($(self.$index.decide(keys.$index, at),)+);
                if $(tickets.$index.outcome() != Outcome::Allowed)||+ {
                    return JointDecision::of(self, [$(tickets.$index.uncharged()),+]);
                }
                // In order, if only the last cannot be refunded.
                let in_order = $((self.$index.can_refund() || $index + 1 == $len))&&+;
                let mut done = 0;
                if in_order && $({
                    let exchanged = tickets.$index.exchange() == Exchange::Done;
                    done += usize::from(exchanged);
                    exchanged
                })&&+ {
                    return JointDecision::allowed([$(tickets.$index.charged()),+]);
                }
                let mut slow = ($(SlowLimit {
                    limit: &self.$index,
                    at,
                    is_given: given.is_some(),
                    answer: ($index < done).then(|| tickets.$index.charged()),
                },)+);
                finish(&mut [$(&mut slow.$index),+]);
                JointDecision::of(self, [$(slow.$index.answer()),+])
            }

            fn peek(&self, at: CheckTime) -> JointDecision<[Decision; $len]> {
                JointDecision::of(self, [$(self.$index.peek(at)),+])
            }

            fn refund(&self, at: CheckTime, charges: &[Decision]) {
                if let [$($L),+] = charges {
                    $(self.$index.refund(at, $L);)+
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
    use super::{
        CheckTime, Decision, Exchange, JointDecision, LimitSet, Outcome, RequestLimit, Slow, SlowLimit,
        Ticket, finish,
    };

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

/// Charges limits of one type as long as nothing has changed since they were decided: how many, in order. `None` if one
/// refuses.
#[inline]
fn exchange_each<L: RequestLimit>(limits: &[L], tickets: &[impl Ticket]) -> Option<usize> {
    if tickets.iter().any(|ticket| ticket.outcome() != Outcome::Allowed) {
        return None;
    }
    // In order, if only the last cannot be refunded.
    if !limits.iter().rev().skip(1).all(L::can_refund) {
        return Some(0);
    }
    Some(tickets.iter().take_while(|ticket| ticket.exchange() == Exchange::Done).count())
}

impl<L: RequestLimit, const N: usize> LimitSet for [L; N] {
    type Decisions = [Decision; N];

    fn now(&self) -> CheckTime {
        self.as_slice().now()
    }

    #[inline]
    fn decide(&self, given: Option<CheckTime>) -> JointDecision<[Decision; N]> {
        let keys = self.each_ref().map(L::prepare);
        let at = given.unwrap_or_else(|| self.now());
        let tickets: [_; N] = from_fn(|index| self[index].decide(keys[index], at));
        let Some(done) = exchange_each(self, &tickets) else {
            return JointDecision::of(self, tickets.map(|ticket| ticket.uncharged()));
        };
        if done == N {
            return JointDecision::allowed(tickets.map(|ticket| ticket.charged()));
        }
        let is_given = given.is_some();
        let slow = |index: usize| {
            let answer = (index < done).then(|| tickets[index].charged());
            SlowLimit { limit: &self[index], at, is_given, answer }
        };
        let mut slow: [SlowLimit<'_, L>; N] = from_fn(slow);
        finish(&mut slow.each_mut().map(|limit| limit as &mut dyn Slow));
        JointDecision::of(self, slow.map(|limit| limit.answer()))
    }

    fn peek(&self, at: CheckTime) -> JointDecision<[Decision; N]> {
        JointDecision::of(self, from_fn(|index| self[index].peek(at)))
    }

    fn refund(&self, at: CheckTime, charges: &[Decision]) {
        self.as_slice().refund(at, charges);
    }

    fn name(&self, index: usize) -> &'static str {
        self.as_slice().name(index)
    }

    fn is_named(&self) -> bool {
        self.as_slice().is_named()
    }
}

impl<L: RequestLimit> LimitSet for [L] {
    type Decisions = Vec<Decision>;

    /// Without a limit no clock is read.
    fn now(&self) -> CheckTime {
        self.first().map_or(CheckTime::from_ns(0), L::now)
    }

    fn decide(&self, given: Option<CheckTime>) -> JointDecision<Vec<Decision>> {
        let at = given.unwrap_or_else(|| self.now());
        let tickets: Vec<_> = self.iter().map(|limit| limit.decide(limit.prepare(), at)).collect();
        let Some(done) = exchange_each(self, &tickets) else {
            return JointDecision::of(self, tickets.iter().map(Ticket::uncharged).collect());
        };
        if done == self.len() {
            return JointDecision::allowed(tickets.iter().map(Ticket::charged).collect());
        }
        let is_given = given.is_some();
        let slow = self.iter().zip(&tickets).enumerate().map(|(index, (limit, ticket))| {
            let answer = (index < done).then(|| ticket.charged());
            SlowLimit { limit, at, is_given, answer }
        });
        let mut slow: Vec<SlowLimit<'_, L>> = slow.collect();
        let mut faces: Vec<&mut dyn Slow> = slow.iter_mut().map(|limit| limit as &mut dyn Slow).collect();
        finish(&mut faces);
        JointDecision::of(self, slow.iter().map(Slow::answer).collect())
    }

    fn peek(&self, at: CheckTime) -> JointDecision<Vec<Decision>> {
        JointDecision::of(self, self.iter().map(|limit| limit.peek(at)).collect())
    }

    fn refund(&self, at: CheckTime, charges: &[Decision]) {
        for (limit, charge) in self.iter().zip(charges) {
            limit.refund(at, charge);
        }
    }

    fn name(&self, index: usize) -> &'static str {
        self.get(index).map_or("", L::name)
    }

    fn is_named(&self) -> bool {
        self.iter().any(|limit| !limit.name().is_empty())
    }
}

impl<L: LimitSet + ?Sized> LimitSet for &L {
    type Decisions = L::Decisions;

    #[inline(always)]
    fn now(&self) -> CheckTime {
        (**self).now()
    }

    #[inline(always)]
    fn decide(&self, given: Option<CheckTime>) -> JointDecision<L::Decisions> {
        (**self).decide(given)
    }

    fn peek(&self, at: CheckTime) -> JointDecision<L::Decisions> {
        (**self).peek(at)
    }

    fn refund(&self, at: CheckTime, charges: &[Decision]) {
        (**self).refund(at, charges);
    }

    fn name(&self, index: usize) -> &'static str {
        (**self).name(index)
    }

    #[inline(always)]
    fn is_named(&self) -> bool {
        (**self).is_named()
    }
}
