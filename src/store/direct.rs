//! The direct store: one state for all requests, without keys.

use alloc::vec::Vec;
use core::convert::Infallible;
use core::fmt;
use core::hash::BuildHasher;

use super::beyond::BeyondBurst;
use super::snapshot::{SnapshotError, SnapshotReader, SnapshotTimes, put_algorithm};
use super::state::{Action, KeyState};
use super::state_ref::{StateRef, StateTicket};
use crate::algorithm::{Algorithm, Gcra};
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError};
use crate::store::op::{
    CarriedOver, CarryOver, Debt, Debts, Inherit, KeyTrace, Migrate, Operation, Rebuild, Store, StoreBase,
};
use crate::store::present::{CheckWith, readable};

/// One limit for all requests, without keys. The store of [`RateLimiter::direct`](crate::RateLimiter::direct).
///
/// A limiter with GCRA and the default clock takes 80 bytes, and at most 104 with another algorithm. It is not aligned to a
/// cache line, so of the limiters in an array, some share a line with the next one. If two threads charge such neighbours
/// without a pause, a check takes 23 ns instead of 10 (AMD EPYC). Where that matters, put each limiter into a
/// `CachePadded` of the crate `crossbeam-utils`. A limit of each connection needs no limiter of its own: its state takes 8
/// bytes in your own struct ([`LimitState`](crate::LimitState)).
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
    state: KeyState<A::Tail, Infallible>,
    beyond: BeyondBurst,
}

impl<A: Algorithm> Direct<A> {
    pub(crate) fn new(algorithm: A) -> Self {
        Self { state: KeyState::fresh(algorithm.tail_len()), beyond: BeyondBurst::none(), algorithm }
    }

    pub(crate) fn algorithm(&self) -> &A {
        &self.algorithm
    }

    /// The state, with an algorithm that can read it.
    #[inline(always)]
    fn with<'s>(&'s self, algorithm: &'s A) -> StateRef<'s, A> {
        StateRef::new(algorithm, &self.state)
    }

    /// The state with its own algorithm.
    #[inline(always)]
    fn own(&self) -> StateRef<'_, A> {
        self.with(&self.algorithm)
    }

    #[inline(always)]
    pub(crate) fn check(&self, now_ns: u64, cost: u64) -> Decision {
        self.own().check(now_ns, cost)
    }

    pub(crate) fn peek(&self, now_ns: u64, cost: u64) -> Decision {
        self.own().peek(now_ns, cost)
    }

    /// Appends the algorithm, and the state if it owes anything.
    pub(crate) fn save(&self, now_ns: u64, into: &mut Vec<u8>) {
        put_algorithm(&self.algorithm, into);
        let flag = into.len();
        into.push(1);
        if !self.state.save(&self.algorithm, now_ns, into) {
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
                self.beyond.note_debt(owed, self.algorithm.burst(), times.now_ns);
                Ok(state)
            }
            _ => Err(SnapshotError::content("state")),
        }
    }

    /// Takes over the state of a snapshot. Charges that are made during the call may be lost.
    pub(crate) fn set(&self, state: &KeyState<A::Tail, Infallible>) {
        self.state.replace(state);
    }
}

impl<A: Algorithm, Q: ?Sized> Store<Q> for Direct<A> {
    type Prepared<'k>
        = ()
    where
        Q: 'k;

    type Ticket<'s> = StateTicket<'s, A>;

    #[inline(always)]
    fn prepare(&self, _key: &Q) {}

    #[inline(always)]
    fn apply(&self, (): (), operation: Operation, at: CheckTime, cost: u64) -> Decision {
        match operation {
            Operation::Check => self.check(at.ns(), cost),
            rarer => {
                let decision = self.own().act(Action::Apply(rarer), at.ns(), cost);
                self.beyond.after(rarer, decision, &self.algorithm)
            }
        }
    }

    fn peek(&self, (): (), at: CheckTime, cost: u64) -> Decision {
        self.peek(at.ns(), cost)
    }

    #[inline(always)]
    fn decide(&self, (): (), at: CheckTime, cost: u64) -> StateTicket<'_, A> {
        self.own().decide(at.ns(), cost)
    }

    const BLOCKS: bool = A::BLOCKS;

    #[inline(always)]
    fn block(&self, (): (), at: CheckTime, denial: Decision) -> Decision {
        self.own().block(at.ns(), denial)
    }

    fn refund(&self, (): (), at: CheckTime, charge: &Decision, units: u64) -> u64 {
        self.own().refund(at.ns(), Some(charge), units)
    }

    fn give_back(&self, (): (), at: CheckTime, units: u64) -> u64 {
        self.own().refund(at.ns(), None, units)
    }

    fn key_hash(&self, _key: &Q) -> u64 {
        0
    }

    fn refund_traced<B: BuildHasher>(&self, _key: KeyTrace<'_, B>, at: CheckTime, charge: &Decision) -> u64 {
        self.own().refund(at.ns(), Some(charge), charge.charged())
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
        let decision = self.with(readable(&self.algorithm, algorithm)).check(at.ns(), cost);
        self.beyond.note(&decision, &self.algorithm);
        decision
    }

    fn readable_quota(&self, algorithm: &A) -> Option<A> {
        self.algorithm.reading(algorithm)
    }
}

impl<A: Algorithm> Migrate for Direct<A> {
    fn debts(&self) -> &dyn Debts {
        &self.algorithm
    }

    fn carry_all(&self, into: &Self, CarryOver { owed, .. }: CarryOver<'_>) -> CarriedOver {
        let Debt { at_ns, units, block } = owed(&|at| self.peek(at.ns(), 0));
        if self.state.is_used() && units > 0 {
            into.beyond.note_debt(units, into.algorithm.burst(), at_ns);
            let _ = into.own().act(Action::Seed(block), at_ns, units);
        }
        CarriedOver::All
    }

    fn is_known(&self) -> bool {
        !self.state.is_used()
    }

    fn beyond_ns(&self) -> Option<u64> {
        self.beyond.latest_ns()
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

    fn seed(&self, _key: &Q, _when: CheckTime, Debt { at_ns, units, block }: Debt) -> Option<Decision> {
        self.beyond.note_debt(units, self.algorithm.burst(), at_ns);
        let _ = self.own().act(Action::Seed(block), at_ns, units);
        None
    }

    fn forget(&self, _key: &Q) -> bool {
        self.state.forget()
    }

    fn block_for(&self, _key: &Q, when: CheckTime, block_ns: u64) -> bool {
        self.own().act(Action::Block(block_ns), when.ns(), 1).block_ns() > 0
    }
}

impl<A: Algorithm> fmt::Debug for Direct<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}
