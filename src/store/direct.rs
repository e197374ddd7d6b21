//! The direct store: one state for all requests, without keys.

use alloc::vec::Vec;
use core::convert::Infallible;
use core::fmt;
use core::hash::BuildHasher;

use crossbeam_utils::CachePadded;

use super::beyond::BeyondBurst;
use super::snapshot::{SnapshotError, SnapshotReader, SnapshotTimes, put_algorithm};
use super::state::{Action, Admission, KeyState, Request};
use crate::algorithm::step::Refund;
use crate::algorithm::{Algorithm, Gcra};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{Quota, QuotaError};
use crate::store::op::{
    CarriedOver, CarryOver, Debt, Debts, Exchange, Inherit, KeyTrace, Migrate, Operation, Rebuild, Store,
    StoreBase, Ticket,
};
use crate::store::present::{CheckWith, readable};

/// One limit for all requests, without keys. The store of [`RateLimiter::direct`](crate::RateLimiter::direct).
///
/// # Examples
/// ```
/// use tollgate::{Direct, FixedWindow, Gcra, Quota, RateLimiter};
///
/// struct Upstream {
///     pace: RateLimiter<Direct>, // with GCRA
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
    // Padded: every admitted check writes this cache line, which would slow down access to other data on the line.
    written: CachePadded<Written<A::Tail>>,
}

/// What checks write.
struct Written<T> {
    state: KeyState<T, Infallible>,
    beyond: BeyondBurst,
}

impl<A: Algorithm> Direct<A> {
    pub(crate) fn new(algorithm: A) -> Self {
        let written = Written { state: KeyState::fresh(algorithm.tail_len()), beyond: BeyondBurst::none() };
        Self { algorithm, written: CachePadded::new(written) }
    }

    pub(crate) fn algorithm(&self) -> &A {
        &self.algorithm
    }

    /// Checks with another algorithm that can read the state of this store's algorithm.
    #[inline(always)]
    pub(crate) fn check_by(&self, algorithm: &A, now_ns: u64, cost: u64) -> Decision {
        let Ok(decision) = self.written.state.charge(algorithm, now_ns, cost);
        decision
    }

    pub(crate) fn peek(&self, now_ns: u64, cost: u64) -> Decision {
        let Ok(decision) = self.written.state.peek(&self.algorithm, now_ns, cost);
        decision
    }

    /// Appends the algorithm, and the state if it owes anything.
    pub(crate) fn save(&self, now_ns: u64, into: &mut Vec<u8>) {
        put_algorithm(&self.algorithm, into);
        let flag = into.len();
        into.push(1);
        if !self.written.state.save(&self.algorithm, now_ns, into) {
            into[flag] = 0;
        }
    }

    /// Reads the state of a snapshot.
    pub(crate) fn read(
        &self,
        reader: &mut SnapshotReader<'_>,
        times: SnapshotTimes,
    ) -> Result<KeyState<A::Tail, Infallible>, SnapshotError> {
        reader.same_algorithm(&self.algorithm)?;
        let fresh = || KeyState::fresh(self.algorithm.tail_len());
        match reader.take()? {
            [0] => Ok(fresh()),
            [1] => {
                let state = KeyState::load(&self.algorithm, reader, times)?.unwrap_or_else(fresh);
                let owed = state.owed(&self.algorithm, times.now_ns);
                self.written.beyond.note_debt(owed, self.algorithm.burst(), times.now_ns);
                Ok(state)
            }
            _ => Err(SnapshotError::content("state")),
        }
    }

    /// Takes over the state of a snapshot. Charges that are made during the call may be lost.
    pub(crate) fn set(&self, state: &KeyState<A::Tail, Infallible>) {
        self.written.state.replace(state);
    }

    fn act(&self, action: Action, now_ns: u64, cost: u64) -> Decision {
        let Ok(decision) =
            self.written.state.apply(&Request { algorithm: &self.algorithm, action, now_ns, cost });
        decision
    }
}

impl<A: Algorithm, Q: ?Sized> Store<Q> for Direct<A> {
    type Prepared<'k>
        = ()
    where
        Q: 'k;

    type Ticket<'s> = DirectTicket<'s, A>;

    #[inline(always)]
    fn prepare(&self, _key: &Q) {}

    #[inline(always)]
    fn apply(&self, (): (), operation: Operation, at: CheckTime, cost: u64) -> Decision {
        match operation {
            Operation::Check => self.check_by(&self.algorithm, at.ns(), cost),
            rarer => {
                let decision = self.act(Action::Apply(rarer), at.ns(), cost);
                self.written.beyond.after(rarer, decision, &self.algorithm)
            }
        }
    }

    fn peek(&self, (): (), at: CheckTime, cost: u64) -> Decision {
        self.peek(at.ns(), cost)
    }

    #[inline(always)]
    fn decide(&self, (): (), at: CheckTime, cost: u64) -> DirectTicket<'_, A> {
        let Ok(admission) = self.written.state.prepare(&self.algorithm, at.ns(), cost);
        DirectTicket { store: self, admission, now_ns: at.ns() }
    }

    const BLOCKS: bool = A::BLOCKS;

    #[inline(always)]
    fn block(&self, (): (), at: CheckTime, denial: Decision) -> Decision {
        if !A::BLOCKS || denial.outcome() != Outcome::Denied {
            return denial;
        }
        let Ok(now) = self.written.state.block(&self.algorithm, at.ns(), denial.cost());
        if now.is_denied() { now } else { denial }
    }

    fn refund(&self, (): (), at: CheckTime, charge: &Decision, units: u64) -> u64 {
        let Ok(units) =
            self.written.state.refund(&self.algorithm, &Refund { charge, units, now_ns: at.ns() });
        units
    }

    fn key_hash(&self, _key: &Q) -> u64 {
        0
    }

    fn refund_traced<B: BuildHasher>(&self, _key: KeyTrace<'_, B>, at: CheckTime, charge: &Decision) -> u64 {
        Store::<Q>::refund(self, (), at, charge, charge.charged())
    }
}

impl<A: Algorithm> StoreBase for Direct<A> {
    #[inline(always)]
    fn can_refund(&self) -> bool {
        A::CAN_REFUND
    }

    fn burst(&self) -> u64 {
        self.algorithm.burst()
    }
}

impl<A: Algorithm, Q: ?Sized> CheckWith<Q> for Direct<A> {
    type Quota = A;

    #[inline(always)]
    fn check_with(&self, (): (), algorithm: &A, at: CheckTime, cost: u64) -> Decision {
        let decision = self.check_by(readable(&self.algorithm, algorithm), at.ns(), cost);
        self.written.beyond.note(&decision, &self.algorithm);
        decision
    }

    fn readable_quota(&self, algorithm: &A) -> Option<A> {
        self.algorithm.reads(algorithm).then(|| algorithm.clone())
    }
}

/// A check that is decided but not yet charged.
#[derive(Debug)]
pub struct DirectTicket<'s, A: Algorithm> {
    store: &'s Direct<A>,
    admission: Admission,
    now_ns: u64,
}

impl<A: Algorithm> Ticket for DirectTicket<'_, A> {
    #[inline(always)]
    fn outcome(&self) -> Outcome {
        self.admission.decision.outcome()
    }

    #[inline(always)]
    fn exchange(&self) -> Exchange {
        self.store.written.state.exchange(&self.store.algorithm, &self.admission)
    }

    #[inline(always)]
    fn charged(&self) -> Decision {
        self.admission.decision
    }

    #[inline(always)]
    fn uncharged(&self) -> Decision {
        self.store.written.state.uncharged(&self.store.algorithm, &self.admission, self.now_ns)
    }
}

impl<A: Algorithm> Migrate for Direct<A> {
    fn debts(&self) -> &dyn Debts {
        &self.algorithm
    }

    fn carry_all(&self, into: &Self, CarryOver { owed, .. }: CarryOver<'_>) -> CarriedOver {
        let Debt { at_ns, units, block } = owed(&|at| self.peek(at.ns(), 0));
        if self.written.state.is_used() && units > 0 {
            into.written.beyond.note_debt(units, into.algorithm.burst(), at_ns);
            let _ = into.act(Action::Seed(block), at_ns, units);
        }
        CarriedOver::All
    }

    fn is_known(&self) -> bool {
        !self.written.state.is_used()
    }

    fn beyond_ns(&self) -> Option<u64> {
        self.written.beyond.latest_ns()
    }
}

impl<A: Algorithm> Rebuild for Direct<A> {
    fn rebuild(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self::new(self.algorithm.with_quota(quota)?))
    }
}

impl<A: Algorithm, Q: ?Sized> Inherit<Q> for Direct<A> {
    fn holds(&self, _key: &Q) -> bool {
        self.written.state.is_used()
    }

    fn knew(&self, _key: &Q) -> bool {
        self.written.state.is_used()
    }

    fn seed(&self, _key: &Q, _when: CheckTime, Debt { at_ns, units, block }: Debt) -> Option<Decision> {
        self.written.beyond.note_debt(units, self.algorithm.burst(), at_ns);
        let _ = self.act(Action::Seed(block), at_ns, units);
        None
    }

    fn forget(&self, _key: &Q) -> bool {
        self.written.state.forget()
    }

    fn block_for(&self, _key: &Q, when: CheckTime, block_ns: u64) -> bool {
        self.act(Action::Block(block_ns), when.ns(), 1).block_ns() > 0
    }
}

impl<A: Algorithm> fmt::Debug for Direct<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}
