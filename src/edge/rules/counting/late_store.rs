//! A store that its first charge creates.
//!
//! ```text
//! plan  the algorithm, the words and the sizes: all that can be wrong about a rule
//!   │   the first charge, or a debt from the store before
//!   ▼
//! store
//! ```
//! A rule without requests has only its plan, which takes a few hundred bytes. Until the first charge, all keys
//! are idle, so the plan answers peeks. If there is not enough memory for the store, each charge is denied, and the next
//! one tries again.
//!
//! A large store is created with its rule, so that a load fails if the file gives it more memory than there is. Its pages
//! are not resident before they are used.

use std::fmt;

use super::Hasher;
use crate::algorithm::{Algorithm, CompactAlgorithm, WindowAlgorithm};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::lazy::Lazy;
use crate::base::quota::QuotaError;
use crate::store::compact::CompactPlan;
use crate::store::keyed::KeyedLayout;
use crate::store::op::{Debts, Inherit, Migrate, Operation, Store};
use crate::store::sketch::SketchPlan;
use crate::store::state::peek_fresh;
use crate::store::{Compact, Direct, Keyed, Sketch};

/// A store of more bytes is created with its rule.
const LARGE: u64 = 16 << 20;

/// How long a client should wait if there is not enough memory for a store.
const NO_MEMORY_RETRY_NS: u64 = 1_000_000_000;

/// All of a store but its states.
pub(crate) trait Plan: fmt::Debug {
    type Store: Store<str> + fmt::Debug;

    /// Creates the store.
    fn make(&self, hasher: &Hasher) -> Result<Self::Store, QuotaError>;

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
pub(crate) struct LateStore<P: Plan> {
    pub(super) plan: P,
    store: Lazy<P::Store>,
    hasher: Hasher,
}

impl<P: Plan> LateStore<P> {
    /// # Errors
    /// Returns an error if the store is large and there is not enough memory for it.
    pub(super) fn new(plan: P, hasher: &Hasher) -> Result<Self, QuotaError> {
        let late = Self { plan, store: Lazy::default(), hasher: hasher.clone() };
        if late.plan.bytes() > LARGE {
            late.make()?;
        }
        Ok(late)
    }

    /// A store with its plan.
    pub(super) fn of(plan: P, store: P::Store, hasher: &Hasher) -> Self {
        Self { plan, store: Lazy::of(store), hasher: hasher.clone() }
    }

    /// Returns the store, if it exists.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<&P::Store> {
        self.store.get()
    }

    /// Returns the store, and creates it if it does not exist.
    #[inline]
    pub(super) fn make(&self) -> Result<&P::Store, QuotaError> {
        match self.get() {
            Some(store) => Ok(store),
            None => self.store.get_or_make(|| self.plan.make(&self.hasher)),
        }
    }

    /// Decides and charges.
    #[inline(always)]
    pub(super) fn apply(&self, key: &str, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        match self.get() {
            Some(store) => apply(store, key, operation, at, cost),
            None => self.apply_first(key, operation, at, cost),
        }
    }

    /// The first charge.
    #[cold]
    #[inline(never)]
    fn apply_first(&self, key: &str, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        match self.make() {
            Ok(store) => apply(store, key, operation, at, cost),
            Err(_) => self.denied(at, cost),
        }
    }

    /// The denial of a charge because there is not enough memory for the store.
    fn denied(&self, at: CheckTime, cost: u64) -> Decision {
        let fresh = self.plan.peek(at, cost);
        if fresh.is_denied() {
            return fresh;
        }
        let (retry_ns, reset_ns) = (NO_MEMORY_RETRY_NS, NO_MEMORY_RETRY_NS);
        let facts = Facts::Plain { remaining: 0, retry_ns, reset_ns, delay_ns: 0 };
        Decision::new(Outcome::Denied, cost, fresh.limit(), at.ns(), facts)
    }

    #[inline(always)]
    pub(super) fn peek(&self, key: &str, at: CheckTime, cost: u64) -> Decision {
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

    /// Before the first charge, there is nothing to refund.
    pub(super) fn refund(&self, key: &str, at: CheckTime, charge: &Decision, units: u64) -> u64 {
        self.get().map_or(0, |store| store.refund(store.prepare(key), at, charge, units))
    }

    pub(super) fn is_known(&self) -> bool
    where
        P::Store: Migrate,
    {
        self.get().is_none_or(Migrate::is_known)
    }

    pub(super) fn newest_ns(&self) -> u64
    where
        P::Store: Migrate,
    {
        self.get().map_or(0, Migrate::newest_ns)
    }

    pub(super) fn holds(&self, key: &str) -> bool
    where
        P::Store: Inherit<str>,
    {
        self.get().is_some_and(|store| store.holds(key))
    }

    pub(super) fn knew(&self, key: &str) -> bool
    where
        P::Store: Inherit<str>,
    {
        self.get().is_some_and(|store| store.knew(key))
    }

    pub(super) fn seed(&self, key: &str, when: CheckTime, at_ns: u64, units: u64) -> Option<Decision>
    where
        P::Store: Inherit<str>,
    {
        match self.make() {
            Ok(store) => store.seed(key, when, at_ns, units),
            Err(_) => Some(self.denied(when, 1)),
        }
    }
}

#[inline]
fn apply(store: &impl Store<str>, key: &str, operation: Operation, at: CheckTime, cost: u64) -> Decision {
    let key = store.prepare(key);
    store.prefetch(key);
    store.apply(key, operation, at, cost)
}

impl<P: Plan> fmt::Debug for LateStore<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(store) => store.fmt(f),
            None => self.plan.fmt(f),
        }
    }
}

/// One state for all keys.
#[derive(Clone, Debug)]
pub(crate) struct DirectPlan<A>(pub(super) A);

impl<A: Algorithm> Plan for DirectPlan<A> {
    type Store = Direct<A>;

    fn make(&self, _hasher: &Hasher) -> Result<Direct<A>, QuotaError> {
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
pub(crate) struct KeyedPlan<A> {
    pub(super) algorithm: A,
    pub(super) layout: KeyedLayout,
}

impl<A: Algorithm> Plan for KeyedPlan<A> {
    type Store = Keyed<String, A, Hasher>;

    fn make(&self, hasher: &Hasher) -> Result<Self::Store, QuotaError> {
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

impl<A: CompactAlgorithm> Plan for CompactPlan<A> {
    type Store = Compact<A, Hasher>;

    fn make(&self, hasher: &Hasher) -> Result<Self::Store, QuotaError> {
        Compact::new(self.clone(), hasher.clone())
    }

    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn debts(&self) -> &dyn Debts {
        self
    }

    fn can_refund(&self) -> bool {
        self.can_refund()
    }

    fn peek(&self, at: CheckTime, cost: u64) -> Decision {
        self.peek(at, cost)
    }
}

impl<A: WindowAlgorithm> Plan for SketchPlan<A> {
    type Store = Sketch<A, Hasher>;

    fn make(&self, hasher: &Hasher) -> Result<Self::Store, QuotaError> {
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
    use crate::algorithm::{FixedWindow, Gcra};
    use crate::base::quota::Quota;
    use crate::store::Capacity;
    use crate::store::compact::CompactLayout;

    const AT: CheckTime = CheckTime::from_ns(1_700_000_000_000_000_000);

    /// More bytes than any process can have.
    const HUGE: Capacity = Capacity::memory(usize::MAX);

    fn without_memory<P: Plan>(plan: P) {
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
        assert!(LateStore::new(late.plan, &hasher).is_err(), "a load creates a large store at once");
    }

    #[test]
    fn charge_without_memory_is_denied() {
        let quota = Quota::per_minute(10);
        let layout = CompactLayout { capacity: HUGE, ..CompactLayout::default() };
        without_memory(CompactPlan::new(Gcra::new(quota), layout).unwrap());
        without_memory(SketchPlan::new(FixedWindow::new(quota), HUGE).unwrap());
    }
}
