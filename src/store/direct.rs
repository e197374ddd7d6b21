//! The direct store: one key, one padded word.

use core::fmt;

use crossbeam_utils::CachePadded;

use super::state::{self, Admission, Ask, Dead, State};
use crate::algorithm::{Algorithm, Gcra};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{Quota, QuotaError};
use crate::store::op::{Inherit, Migrate, Operation, Rebuild, Store};

/// One limit for everything: no keys. The store of [`RateLimiter::direct`](crate::RateLimiter::direct).
///
/// # Examples
/// ```
/// use tollgate::{Direct, FixedWindow, Gcra, Quota, RateLimiter};
///
/// struct Upstream {
///     pace: RateLimiter<Direct>, // of GCRA
///     daily: RateLimiter<Direct<FixedWindow>>,
/// }
///
/// let upstream = Upstream {
///     pace: RateLimiter::direct(Gcra::new(Quota::per_second(20))),
///     daily: RateLimiter::direct(FixedWindow::new(Quota::per_day(10_000))),
/// };
/// assert!(tollgate::check_all((upstream.pace.on(), upstream.daily.on())).is_allowed());
/// ```
pub struct Direct<A: Algorithm = Gcra> {
    algorithm: A,
    // Padded: every allowed check writes this line, and whatever shares it would be slowed.
    state: CachePadded<State<A::Tail>>,
}

impl<A: Algorithm> Direct<A> {
    pub(crate) fn new(algorithm: A) -> Self {
        let state = CachePadded::new(State::fresh(algorithm.tail_len()));
        Self { algorithm, state }
    }

    pub(crate) fn algorithm(&self) -> &A {
        &self.algorithm
    }

    #[inline(always)]
    pub(crate) fn charge(&self, algorithm: &A, now_ns: u64, cost: u64) -> Decision {
        match self.state.charge(algorithm, now_ns, cost) {
            Ok(decision) => decision,
            Err(Dead) => unreachable!("nothing kills the state of a direct store"),
        }
    }

    fn by(&self, verb: Operation, now_ns: u64, cost: u64) -> Decision {
        match self.state.act(&Ask { algorithm: &self.algorithm, verb, now_ns, cost }) {
            Ok(decision) => decision,
            Err(Dead) => unreachable!("nothing kills the state of a direct store"),
        }
    }

    pub(crate) fn peek(&self, now_ns: u64, cost: u64) -> Decision {
        match self.state.peek(&self.algorithm, now_ns, cost) {
            Ok(decision) => decision,
            Err(Dead) => unreachable!("nothing kills the state of a direct store"),
        }
    }
}

impl<A: Algorithm, Q: ?Sized> Store<Q> for Direct<A> {
    type Ticket<'s> = Admission;

    type Place = ();

    #[inline(always)]
    fn approach(&self, _key: &Q) {}

    #[inline(always)]
    fn prepare(&self, _key: &Q, (): (), when: CheckTime, cost: u64) -> Admission {
        match self.state.prepare(&self.algorithm, when.ns(), cost) {
            Ok(admission) => admission,
            Err(Dead) => unreachable!("nothing kills the state of a direct store"),
        }
    }

    #[inline(always)]
    fn outcome(ticket: &Admission) -> Outcome {
        ticket.decision.outcome()
    }

    #[inline(always)]
    fn exchange(&self, _when: CheckTime, ticket: &Admission) -> bool {
        self.state.exchange(&self.algorithm, ticket)
    }

    #[inline(always)]
    fn charged(&self, _when: CheckTime, ticket: &Admission, _cost: u64) -> Decision {
        ticket.decision
    }

    #[inline(always)]
    fn uncharged(&self, when: CheckTime, ticket: &Admission, _cost: u64) -> Decision {
        self.state.uncharged(&self.algorithm, ticket, when.ns())
    }

    #[inline]
    fn act(&self, _key: &Q, verb: Operation, when: CheckTime, cost: u64) -> Decision {
        self.by(verb, when.ns(), cost)
    }

    fn look(&self, _key: &Q, when: CheckTime, cost: u64) -> Decision {
        self.peek(when.ns(), cost)
    }

    fn give_back(&self, _key: &Q, when: CheckTime, charge: &Decision, units: u64) -> u64 {
        // A state that is never killed.
        self.state.give_back(&self.algorithm, when.ns(), charge, units).unwrap_or(0)
    }

    fn undoes(&self) -> bool {
        A::UNDOES
    }
}

impl<A: Algorithm> Migrate for Direct<A> {
    fn paid_in_ns(&self, at_ns: u64, units: u64) -> u64 {
        state::paid_in_ns(&self.algorithm, at_ns, units)
    }

    fn left(&self, at_ns: u64, units: u64, now_ns: u64) -> u64 {
        state::left(&self.algorithm, at_ns, units, now_ns)
    }

    fn burst(&self) -> u64 {
        state::burst(&self.algorithm)
    }

    fn carry_all(
        &self,
        into: &Self,
        _when: CheckTime,
        at_ns: u64,
        owed: &dyn Fn(&Decision) -> (u64, u64),
    ) -> bool {
        let (as_of_ns, owed) = owed(&self.peek(at_ns, 0));
        if self.state.is_used() && owed > 0 {
            let _ = into.by(Operation::Seed, as_of_ns, owed);
        }
        true
    }

    fn owed(&self, decision: &Decision) -> u64 {
        self.algorithm.owed(decision)
    }

    fn is_known(&self) -> bool {
        !self.state.is_used()
    }
}

impl<A: Algorithm> Rebuild for Direct<A> {
    fn rebuild(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self::new(self.algorithm.with_quota(quota)?))
    }
}

impl<A: Algorithm, Q: ?Sized> Inherit<Q> for Direct<A> {
    fn holds(&self, _key: &Q) -> bool {
        self.state.is_used()
    }

    fn knew(&self, _key: &Q) -> bool {
        self.state.is_used()
    }

    fn seed(&self, _key: &Q, _when: CheckTime, at_ns: u64, units: u64) -> Option<Decision> {
        let _ = self.by(Operation::Seed, at_ns, units);
        None
    }
}

impl<A: Algorithm> fmt::Debug for Direct<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}
