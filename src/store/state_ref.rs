//! A state and its algorithm, borrowed for one call. [`Direct`](crate::Direct) and [`LimitState`](crate::LimitState) decide
//! through it.

use core::convert::Infallible;
use core::fmt;
use core::hash::BuildHasher;

use super::state::{Action, Admission, KeyState, Lasting, Request, lasting};
use crate::algorithm::Algorithm;
use crate::algorithm::step::Refund;
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::store::op::{Debts, Exchange, KeyTrace, Operation, Store, StoreBase, Ticket};
#[cfg(feature = "std")]
use crate::store::op::{Pins, WordTicket};

/// See the module's documentation.
pub(crate) struct StateRef<'s, A: Algorithm, X: Lasting = Infallible> {
    algorithm: &'s A,
    state: &'s KeyState<A::Tail, X>,
}

impl<'s, A: Algorithm, X: Lasting> StateRef<'s, A, X> {
    #[inline(always)]
    pub(crate) const fn new(algorithm: &'s A, state: &'s KeyState<A::Tail, X>) -> Self {
        Self { algorithm, state }
    }

    #[inline(always)]
    pub(crate) fn check(&self, now_ns: u64, cost: u64) -> Decision {
        lasting(self.state.charge(self.algorithm, now_ns, cost))
    }

    pub(crate) fn peek(&self, now_ns: u64, cost: u64) -> Decision {
        lasting(self.state.peek(self.algorithm, now_ns, cost))
    }

    pub(crate) fn act(&self, action: Action, now_ns: u64, cost: u64) -> Decision {
        lasting(self.state.apply(&Request { algorithm: self.algorithm, action, now_ns, cost }))
    }

    #[inline(always)]
    pub(crate) fn decide(self, now_ns: u64, cost: u64) -> StateTicket<'s, A, X> {
        let admission = lasting(self.state.prepare(self.algorithm, now_ns, cost));
        StateTicket { of: self, admission, now_ns }
    }

    #[inline(always)]
    pub(crate) fn block(&self, now_ns: u64, denial: Decision) -> Decision {
        if !A::BLOCKS || denial.outcome() != Outcome::Denied {
            return denial;
        }
        let now = lasting(self.state.block(self.algorithm, now_ns, denial.cost()));
        if now.is_denied() { now } else { denial }
    }

    /// Takes back units of a charge, or without one, the units that were charged last.
    pub(crate) fn refund(&self, now_ns: u64, charge: Option<&Decision>, units: u64) -> u64 {
        lasting(self.state.refund(self.algorithm, &Refund { charge, units, now_ns }))
    }
}

impl<A: Algorithm, X: Lasting> fmt::Debug for StateRef<'_, A, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateRef").field("algorithm", self.algorithm).finish_non_exhaustive()
    }
}

impl<A: Algorithm, X: Lasting> Store<()> for StateRef<'_, A, X> {
    type Prepared<'k> = ();

    type Ticket<'s>
        = StateTicket<'s, A, X>
    where
        Self: 's;

    #[inline(always)]
    fn prepare(&self, _key: &()) {}

    #[inline(always)]
    fn apply(&self, (): (), operation: Operation, at: CheckTime, cost: u64) -> Decision {
        match operation {
            Operation::Check => self.check(at.ns(), cost),
            rarer => self.act(Action::Apply(rarer), at.ns(), cost),
        }
    }

    fn peek(&self, (): (), at: CheckTime, cost: u64) -> Decision {
        self.peek(at.ns(), cost)
    }

    fn decide(&self, (): (), at: CheckTime, cost: u64) -> StateTicket<'_, A, X> {
        StateRef::new(self.algorithm, self.state).decide(at.ns(), cost)
    }

    const BLOCKS: bool = A::BLOCKS;

    fn block(&self, (): (), at: CheckTime, denial: Decision) -> Decision {
        self.block(at.ns(), denial)
    }

    fn refund(&self, (): (), at: CheckTime, charge: &Decision, units: u64) -> u64 {
        self.refund(at.ns(), Some(charge), units)
    }

    fn give_back(&self, (): (), at: CheckTime, units: u64) -> u64 {
        self.refund(at.ns(), None, units)
    }

    fn key_hash(&self, _key: &()) -> u64 {
        0
    }

    fn refund_traced<B: BuildHasher>(&self, _key: KeyTrace<'_, B>, at: CheckTime, charge: &Decision) -> u64 {
        self.refund(at.ns(), Some(charge), charge.charged())
    }
}

impl<A: Algorithm, X: Lasting> StoreBase for StateRef<'_, A, X> {
    fn can_refund(&self) -> bool {
        A::CAN_REFUND
    }

    fn burst(&self) -> u64 {
        self.algorithm.burst()
    }
}

/// A check that is decided but not yet charged. Public in a private module.
#[derive(Debug)]
pub struct StateTicket<'s, A: Algorithm, X: Lasting = Infallible> {
    of: StateRef<'s, A, X>,
    admission: Admission,
    now_ns: u64,
}

impl<A: Algorithm, X: Lasting> Ticket for StateTicket<'_, A, X> {
    #[inline(always)]
    fn outcome(&self) -> Outcome {
        self.admission.decision.outcome()
    }

    #[inline(always)]
    fn exchange(&self) -> Exchange {
        self.of.state.exchange(self.of.algorithm, &self.admission)
    }

    #[inline(always)]
    fn charged(&self) -> Decision {
        self.admission.decision
    }

    #[inline(always)]
    fn uncharged(&self) -> Decision {
        self.of.state.uncharged(self.of.algorithm, &self.admission, self.now_ns)
    }

    #[cfg(feature = "std")]
    #[inline(always)]
    fn into_word<'t>(self, _pins: &'t Pins) -> Option<WordTicket<'t>>
    where
        Self: 't,
    {
        let (word, [seen, next]) = self.of.state.only_exchange(&self.admission)?;
        Some(WordTicket::new(word, seen, next))
    }
}
