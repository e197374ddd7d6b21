//! A store that its first charge creates.
//!
//! ```text
//! plan  the algorithm, the words and the sizes: all that can be wrong about a store
//!   │   the first charge, or a debt from the store before
//!   ▼
//! store
//! ```
//! A limiter without requests has only its plan, which takes a few hundred bytes. Until the first charge, all keys
//! are idle, so the plan answers peeks. If there is not enough memory for the store, each charge is denied, and the next
//! one tries again.
//!
//! A large store is created with its limiter, so that the caller learns at once if it asks for more memory than there
//! is. Its pages are not resident before they are used. Compact stores are in [`late_compact`](super::late_compact).

use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::algorithm::{Algorithm, WindowAlgorithm};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::lazy::Lazy;
use crate::base::quota::QuotaError;
use crate::store::keyed::KeyedLayout;
use crate::store::op::{Debt, Debts, Inherit, KeyTrace, Migrate, Operation, Store};
use crate::store::sketch::SketchPlan;
use crate::store::state::peek_fresh;
use crate::store::{Direct, Keyed, Sketch};

/// A store of more bytes is created with its limiter.
pub(super) const LARGE: u64 = 16 << 20;

/// How long a client should wait if there is not enough memory for a store.
const NO_MEMORY_RETRY_NS: u64 = 1_000_000_000;

/// All of a store but its states.
pub(super) trait Plan<S, H>: fmt::Debug {
    /// Creates the store.
    fn make(&self, hasher: &H) -> Result<S, QuotaError>;

    /// The bytes that the store takes from the start.
    fn bytes(&self) -> u64 {
        0
    }

    fn debts(&self) -> &dyn Debts;

    fn can_refund(&self) -> bool;

    /// The decision of [`Operation::Check`] in a store that holds nothing, without a charge.
    fn peek(&self, at: CheckTime, cost: u64) -> Decision;
}

/// See the module's documentation.
// The store comes first, so that it is in one line with what a generation of rules reads before.
#[repr(C)]
pub(super) struct LateStore<P, S, H> {
    store: Lazy<S>,
    pub(super) plan: P,
    pub(super) hasher: H,
}

impl<P: Plan<S, H>, S, H: Clone> LateStore<P, S, H> {
    /// # Errors
    /// Returns an error if the store is large and there is not enough memory for it.
    pub(super) fn new(plan: P, hasher: &H) -> Result<Self, QuotaError> {
        let late = Self { plan, store: Lazy::default(), hasher: hasher.clone() };
        if late.plan.bytes() > LARGE {
            late.make()?;
        }
        Ok(late)
    }

    /// A store with its plan.
    pub(super) fn of(plan: P, store: S, hasher: &H) -> Self {
        Self { plan, store: Lazy::of(store), hasher: hasher.clone() }
    }
}

impl<P: Plan<S, H>, S, H> LateStore<P, S, H> {
    /// Returns the store, if it exists.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<&S> {
        self.store.get()
    }

    /// Returns the store, and creates it if it does not exist.
    #[inline]
    pub(super) fn make(&self) -> Result<&S, QuotaError> {
        match self.get() {
            Some(store) => Ok(store),
            None => self.store.get_or_make(|| self.plan.make(&self.hasher)),
        }
    }

    /// Decides and charges.
    #[inline(always)]
    pub(super) fn apply<Q: ?Sized>(&self, key: &Q, operation: Operation, at: CheckTime, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        match self.get() {
            Some(store) => apply(store, key, operation, at, cost),
            None => self.apply_first(key, operation, at, cost),
        }
    }

    /// The first charge.
    #[cold]
    #[inline(never)]
    fn apply_first<Q: ?Sized>(&self, key: &Q, operation: Operation, at: CheckTime, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        match self.make() {
            Ok(store) => apply(store, key, operation, at, cost),
            Err(_) => self.denied(at, cost),
        }
    }

    fn denied(&self, at: CheckTime, cost: u64) -> Decision {
        denied(self.plan.peek(at, cost), at, cost)
    }

    #[inline(always)]
    pub(super) fn peek<Q: ?Sized>(&self, key: &Q, at: CheckTime, cost: u64) -> Decision
    where
        S: Store<Q>,
    {
        match self.get() {
            Some(store) => store.peek(store.prepare(key), at, cost),
            None => self.peek_planned(at, cost),
        }
    }

    #[cold]
    #[inline(never)]
    fn peek_planned(&self, at: CheckTime, cost: u64) -> Decision {
        self.plan.peek(at, cost)
    }

    pub(super) fn block<Q: ?Sized>(&self, key: &Q, at: CheckTime, denial: Decision) -> Decision
    where
        S: Store<Q>,
    {
        self.get().map_or(denial, |store| store.block(store.prepare(key), at, denial))
    }

    /// Before the first charge, there is nothing to refund.
    pub(super) fn refund<Q: ?Sized>(&self, key: &Q, at: CheckTime, charge: &Decision, units: u64) -> u64
    where
        S: Store<Q>,
    {
        self.get().map_or(0, |store| store.refund(store.prepare(key), at, charge, units))
    }

    /// Before the first charge, no key owes anything.
    pub(super) fn give_back<Q: ?Sized>(&self, key: &Q, at: CheckTime, units: u64) -> u64
    where
        S: Store<Q>,
    {
        self.get().map_or(0, |store| store.give_back(store.prepare(key), at, units))
    }

    pub(super) fn key_hash<Q: ?Sized>(&self, key: &Q) -> u64
    where
        S: Store<Q>,
    {
        self.get().map_or(0, |store| store.key_hash(key))
    }

    pub(super) fn refund_traced<Q: ?Sized, B: BuildHasher>(
        &self,
        key: KeyTrace<'_, B>,
        at: CheckTime,
        charge: &Decision,
    ) -> u64
    where
        S: Store<Q>,
    {
        self.get().map_or(0, |store| store.refund_traced(key, at, charge))
    }

    pub(super) fn can_refund(&self) -> bool {
        self.plan.can_refund()
    }

    pub(super) fn debts(&self) -> &dyn Debts {
        self.plan.debts()
    }

    pub(super) fn is_known(&self) -> bool
    where
        S: Migrate,
    {
        self.get().is_none_or(Migrate::is_known)
    }

    pub(super) fn newest_ns(&self) -> u64
    where
        S: Migrate,
    {
        self.get().map_or(0, Migrate::newest_ns)
    }

    pub(super) fn beyond_ns(&self) -> Option<u64>
    where
        S: Migrate,
    {
        self.get().and_then(Migrate::beyond_ns)
    }

    pub(super) fn holds<Q: ?Sized>(&self, key: &Q) -> bool
    where
        S: Inherit<Q>,
    {
        self.get().is_some_and(|store| store.holds(key))
    }

    pub(super) fn knew<Q: ?Sized>(&self, key: &Q) -> bool
    where
        S: Inherit<Q>,
    {
        self.get().is_some_and(|store| store.knew(key))
    }

    pub(super) fn seed<Q: ?Sized>(&self, key: &Q, when: CheckTime, debt: Debt) -> Option<Decision>
    where
        S: Inherit<Q>,
    {
        match self.make() {
            Ok(store) => store.seed(key, when, debt),
            Err(_) => Some(self.denied(when, 1)),
        }
    }

    pub(super) fn forget<Q: ?Sized>(&self, key: &Q) -> bool
    where
        S: Inherit<Q>,
    {
        self.get().is_none_or(|store| store.forget(key))
    }

    pub(super) fn block_for<Q: ?Sized>(&self, key: &Q, when: CheckTime, block_ns: u64) -> bool
    where
        S: Inherit<Q>,
    {
        self.make().is_ok_and(|store| store.block_for(key, when, block_ns))
    }
}

/// The denial of a charge because there is not enough memory for the store. `fresh` is the decision for a key that owes nothing.
pub(super) fn denied(fresh: Decision, at: CheckTime, cost: u64) -> Decision {
    if fresh.is_denied() {
        return fresh;
    }
    let (retry_ns, reset_ns) = (NO_MEMORY_RETRY_NS, NO_MEMORY_RETRY_NS);
    let facts = Facts::Plain { remaining: 0, retry_ns, reset_ns, delay_ns: 0 };
    Decision::new(Outcome::Denied, cost, fresh.limit(), at.ns(), facts)
}

#[inline]
fn apply<Q: ?Sized>(
    store: &impl Store<Q>,
    key: &Q,
    operation: Operation,
    at: CheckTime,
    cost: u64,
) -> Decision {
    let key = store.prepare(key);
    store.prefetch(key);
    store.apply(key, operation, at, cost)
}

impl<P: fmt::Debug, S: fmt::Debug, H> fmt::Debug for LateStore<P, S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.store.get() {
            Some(store) => store.fmt(f),
            None => self.plan.fmt(f),
        }
    }
}

/// One state for all keys.
#[derive(Clone, Debug)]
pub(super) struct DirectPlan<A>(pub(super) A);

impl<A: Algorithm, H> Plan<Direct<A>, H> for DirectPlan<A> {
    fn make(&self, _hasher: &H) -> Result<Direct<A>, QuotaError> {
        Ok(Direct::new(self.0.clone()))
    }

    fn debts(&self) -> &dyn Debts {
        &self.0
    }

    fn can_refund(&self) -> bool {
        A::CAN_REFUND
    }

    fn peek(&self, at: CheckTime, cost: u64) -> Decision {
        peek_fresh(&self.0, at.ns(), cost)
    }
}

/// One state for each key.
#[derive(Clone, Debug)]
pub(super) struct KeyedPlan<A> {
    pub(super) algorithm: A,
    pub(super) layout: KeyedLayout,
}

impl<A, K, H> Plan<Keyed<K, A, H>, H> for KeyedPlan<A>
where
    A: Algorithm,
    K: Hash + Eq + Send + Sync + 'static,
    H: BuildHasher + Clone,
{
    fn make(&self, hasher: &H) -> Result<Keyed<K, A, H>, QuotaError> {
        Ok(Keyed::new(self.algorithm.clone(), hasher.clone(), self.layout))
    }

    fn debts(&self) -> &dyn Debts {
        &self.algorithm
    }

    fn can_refund(&self) -> bool {
        A::CAN_REFUND
    }

    fn peek(&self, at: CheckTime, cost: u64) -> Decision {
        peek_fresh(&self.algorithm, at.ns(), cost)
    }
}

impl<A: WindowAlgorithm, H: BuildHasher + Clone> Plan<Sketch<A, H>, H> for SketchPlan<A> {
    fn make(&self, hasher: &H) -> Result<Sketch<A, H>, QuotaError> {
        Sketch::new(self.clone(), hasher.clone())
    }

    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn debts(&self) -> &dyn Debts {
        self
    }

    fn can_refund(&self) -> bool {
        false
    }

    fn peek(&self, at: CheckTime, cost: u64) -> Decision {
        self.peek(at, cost)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::base::quota::Quota;
    use crate::store::Capacity;

    const AT: CheckTime = CheckTime::from_ns(1_700_000_000_000_000_000);

    /// More bytes than any process can have.
    const HUGE: Capacity = Capacity::memory(usize::MAX);

    type Hasher = ahash::RandomState;

    fn without_memory<P: Plan<S, Hasher>, S: Store<str> + fmt::Debug>(plan: P) {
        let hasher = Hasher::with_seeds(1, 2, 3, 4);
        let late = LateStore { plan, store: Lazy::default(), hasher: hasher.clone() };
        assert!(late.peek("x", AT, 1).is_allowed());
        for _ in 0..2 {
            let denied = late.apply("x", Operation::Check, AT, 1);
            assert!(denied.is_denied() && !denied.is_never() && denied.charged() == 0, "{denied:?}");
            assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
            assert_eq!((denied.limit(), denied.remaining()), (10, 0));
        }
        assert!(late.apply("x", Operation::Check, AT, 11).is_never());
        assert!(late.get().is_none());
        let again = LateStore::<P, S, Hasher>::new(late.plan, &hasher);
        assert!(again.is_err(), "a load creates a large store at once");
    }

    // G68
    #[test]
    fn charge_without_memory_is_denied() {
        let quota = Quota::per_minute(10);
        without_memory::<_, Sketch<_, _>>(SketchPlan::new(FixedWindow::new(quota), HUGE).unwrap());
    }
}
