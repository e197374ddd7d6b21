//! How tuples, arrays and slices of limits decide.

use alloc::vec::Vec;
use core::array::from_fn;

use super::{At, JointDecision, Limit, Together};
use crate::base::decision::{Decision, Outcome};

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
            self.limit.undo(self.limit.after(self.at), &charge);
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
