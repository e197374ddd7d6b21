//! A compact store that creates its table late.
//!
//! ```text
//! plan  ──first charge──►  plan, and a list of the first keys  ──first key without an entry──►  store with a table
//! ```
//! The list takes 192 bytes, and a store with few keys needs no other memory: see [`FirstKeys`]. If there is not enough
//! memory for the table, each charge of a key that is not in the list is denied, and the next one tries again.
//!
//! A large store has its table from the start, so that the caller learns at once if it asks for more memory than there is.

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::io;

use super::late::{LARGE, denied};
use super::{Planned, write_ticket};
use crate::algorithm::CompactAlgorithm;
use crate::algorithm::compact::CompactState;
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::lazy::Lazy;
use crate::base::quota::QuotaError;
use crate::store::compact::{CompactPlan, FirstKeys, NeedsTable};
use crate::store::op::{
    CarriedOver, CarryOver, Debt, Debts, HashedStore as _, Inherit, KeyTrace, Migrate as _, Operation, Pins,
    Store,
};
use crate::store::present::States as _;
use crate::store::{Compact, Gauges};

/// See the module's documentation.
// What each check reads comes first. A check of rules has the hash of its key.
#[repr(C)]
pub(super) struct LateCompact<A: CompactAlgorithm, H> {
    store: Lazy<Compact<A, H>>,
    first: Lazy<FirstKeys>,
    plan: CompactPlan<A>,
    pub(super) hasher: H,
}

impl<A: CompactAlgorithm, H: BuildHasher + Clone> LateCompact<A, H> {
    /// # Errors
    /// Returns an error if the store is large and there is not enough memory for it.
    pub(super) fn new(plan: CompactPlan<A>, hasher: &H) -> Result<Self, QuotaError> {
        let late = Self { store: Lazy::default(), first: Lazy::default(), plan, hasher: hasher.clone() };
        if late.plan.bytes() > LARGE {
            late.make()?;
        }
        Ok(late)
    }

    /// Returns the store with a table, if it exists.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<&Compact<A, H>> {
        self.store.get()
    }

    /// Returns the address of the store with a table, or of the list.
    pub(super) fn states_address(&self) -> Option<usize> {
        let first = || self.first.get().map(|first| std::ptr::from_ref(first).addr());
        self.get().map(|store| std::ptr::from_ref(store).addr()).or_else(first)
    }

    /// Returns the store with a table, and creates it if it does not exist.
    pub(super) fn make(&self) -> Result<&Compact<A, H>, QuotaError> {
        // Also if no key has a state: another thread may be about to charge the first one in the list.
        let first = self.keys();
        self.store.get_or_make(|| Compact::after(first, self.plan.clone(), self.hasher.clone()))
    }

    /// Returns the list of the first keys, and creates it if it does not exist. Never after the table, so that no key is charged there
    /// too late.
    fn keys(&self) -> &FirstKeys {
        match self.first.get() {
            Some(first) => first,
            None => {
                let Ok(first) =
                    self.first.get_or_make(|| Ok::<_, Infallible>(FirstKeys::new(self.plan.word())));
                first
            }
        }
    }

    /// Returns the list, if a key has a state.
    fn used_keys(&self) -> Option<&FirstKeys> {
        self.first.get().filter(|first| !first.is_empty())
    }

    /// Whether a key has a state, or had one.
    pub(super) fn is_used(&self) -> bool {
        self.get().is_some() || self.used_keys().is_some()
    }

    /// [`Operation::Check`], with the decision written to its place; returns its outcome: see [`Compact::check_into`]. A denial
    /// starts no block.
    // One function for each pair, like `check` of `any`.
    #[inline(never)]
    pub(super) fn check_into(
        &self,
        hash: u64,
        at: CheckTime,
        cost: u64,
        decision: &mut Option<Decision>,
    ) -> Outcome {
        if <A::CompactState as CompactState>::BLOCKS {
            let operation = Operation::Check.without_block();
            decision.insert(self.apply_hash(hash, operation, at, cost)).outcome()
        } else if let Some(made) = self.get() {
            made.check_into(made.prepare_hash(hash), at, cost, decision)
        } else {
            let at_home = |first: &FirstKeys| first.check_at_home(self.plan.word(), hash, at, cost);
            match self.first.get().and_then(at_home) {
                Some(decided) => {
                    let outcome = decided.outcome();
                    *decision = Some(decided);
                    outcome
                }
                None => decision.insert(self.check_elsewhere(hash, at, cost)).outcome(),
            }
        }
    }

    #[inline(never)]
    fn check_elsewhere(&self, hash: u64, at: CheckTime, cost: u64) -> Decision {
        match self.keys().check_elsewhere(self.plan.word(), hash, at, cost) {
            Ok(decision) => decision,
            Err(NeedsTable) => self.apply_in_table(hash, Operation::Check, at, cost),
        }
    }

    #[cold]
    #[inline(never)]
    fn apply_in_table(&self, hash: u64, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        match self.make() {
            Ok(store) => Store::<()>::apply(store, store.prepare_hash(hash), operation, at, cost),
            Err(_) => self.denied(at, cost),
        }
    }

    /// Decides and charges.
    #[inline(never)]
    pub(super) fn apply<Q: Hash + ?Sized>(
        &self,
        key: &Q,
        operation: Operation,
        at: CheckTime,
        cost: u64,
    ) -> Decision {
        self.apply_hash(self.hasher.hash_one(key), operation, at, cost)
    }

    #[inline(always)]
    fn apply_hash(&self, hash: u64, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        match (self.get(), operation) {
            (Some(store), _) => Store::<()>::apply(store, store.prepare_hash(hash), operation, at, cost),
            // One exchange, if the key has an entry.
            (None, Operation::Check) => self.check_elsewhere(hash, at, cost),
            (None, _) => self.apply_first(hash, operation, at, cost),
        }
    }

    #[inline(never)]
    fn apply_first(&self, hash: u64, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        match self.keys().apply(self.plan.word(), operation, hash, at, cost) {
            Ok(decision) => decision,
            Err(NeedsTable) => self.apply_in_table(hash, operation, at, cost),
        }
    }

    /// The denial of a charge because there is not enough memory for the table.
    fn denied(&self, at: CheckTime, cost: u64) -> Decision {
        denied(self.plan.peek(at, cost), at, cost)
    }

    /// See [`AnyStore::ticket`](super::AnyStore::ticket).
    #[inline(never)]
    pub(super) fn ticket<'s>(
        &'s self,
        hash: u64,
        at: CheckTime,
        cost: u64,
        pins: &'s Pins,
        (decision, word): Planned<'_, 's>,
    ) -> Outcome {
        if let Some(made) = self.get() {
            let ticket = Store::<()>::aim(made, made.prepare_hash(hash), at, cost);
            if let Some(outcome) = write_ticket(ticket, pins, (&mut *decision, &mut *word)) {
                return outcome;
            }
        } else if let Some(first) = self.first.get()
            && let Some((charged, ticket)) = first.ticket(self.plan.word(), hash, at, cost)
        {
            *decision = Some(charged);
            *word = Some(ticket);
            return Outcome::Allowed;
        }
        decision.insert(self.peek_hash(hash, at, cost)).outcome()
    }

    #[inline(never)]
    pub(super) fn peek<Q: Hash + ?Sized>(&self, key: &Q, at: CheckTime, cost: u64) -> Decision {
        // Without a list, all keys are new, and no hash is needed.
        if self.first.get().is_none() && self.get().is_none() {
            return self.plan.peek(at, cost);
        }
        self.peek_hash(self.hasher.hash_one(key), at, cost)
    }

    #[inline(always)]
    fn peek_hash(&self, hash: u64, at: CheckTime, cost: u64) -> Decision {
        match self.get() {
            Some(store) => Store::<()>::peek(store, store.prepare_hash(hash), at, cost),
            None => match self.first.get() {
                Some(first) => first.peek(self.plan.word(), hash, at, cost),
                None => self.plan.peek(at, cost),
            },
        }
    }

    pub(super) fn block<Q: Hash + ?Sized>(&self, key: &Q, at: CheckTime, denial: Decision) -> Decision {
        let in_table =
            |store: &Compact<A, H>, hash| Store::<()>::block(store, store.prepare_hash(hash), at, denial);
        // A block needs no table that has no room for its memory: the next denial tries again.
        self.change(key, in_table, |hash| match self.first.get() {
            Some(first) => first.block(self.plan.word(), hash, at, denial),
            None => Ok(denial),
        })
        .unwrap_or(denial)
    }

    pub(super) fn refund<Q: Hash + ?Sized>(
        &self,
        key: &Q,
        at: CheckTime,
        charge: &Decision,
        units: u64,
    ) -> u64 {
        self.refund_hash(self.hasher.hash_one(key), at, Some(charge), units)
    }

    pub(super) fn give_back<Q: Hash + ?Sized>(&self, key: &Q, at: CheckTime, units: u64) -> u64 {
        self.refund_hash(self.hasher.hash_one(key), at, None, units)
    }

    fn refund_hash(&self, hash: u64, at: CheckTime, charge: Option<&Decision>, units: u64) -> u64 {
        if !self.plan.refunds() {
            return 0;
        }
        let in_table = |store: &Compact<A, H>| {
            let key = store.prepare_hash(hash);
            match charge {
                Some(charge) => Store::<()>::refund(store, key, at, charge, units),
                None => Store::<()>::give_back(store, key, at, units),
            }
        };
        match self.get() {
            Some(store) => in_table(store),
            None => {
                match self.first.get().map(|first| first.refund(self.plan.word(), hash, at, charge, units)) {
                    Some(Ok(units)) => units,
                    Some(Err(NeedsTable)) => self.make().map_or(0, in_table),
                    None => 0,
                }
            }
        }
    }

    pub(super) fn key_hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Returns the hash of a key that the caller has computed.
    #[inline(always)]
    pub(super) fn given<Q: Hash + ?Sized>(&self, key: &Q, hash: u64) -> u64 {
        debug_assert_eq!(hash, self.key_hash(key), "the caller has the hasher of the store");
        hash
    }

    #[expect(clippy::extra_unused_type_parameters, reason = "the signature of all late stores")]
    pub(super) fn refund_traced<Q: Hash + ?Sized, B: BuildHasher>(
        &self,
        key: KeyTrace<'_, B>,
        at: CheckTime,
        charge: &Decision,
    ) -> u64 {
        self.refund_hash(key.hash, at, Some(charge), charge.charged())
    }

    pub(super) fn can_refund(&self) -> bool {
        self.plan.can_refund()
    }

    pub(super) fn debts(&self) -> &dyn Debts {
        &self.plan
    }

    pub(super) fn is_known(&self) -> bool {
        match self.get() {
            Some(store) => store.is_known(),
            None => self.plan.has_only_bursts() || self.used_keys().is_none(),
        }
    }

    pub(super) fn newest_ns(&self) -> u64 {
        match self.get() {
            Some(store) => store.newest_ns(),
            None => self.used_keys().map_or(0, FirstKeys::high_ns),
        }
    }

    pub(super) fn beyond_ns(&self) -> Option<u64> {
        match self.get() {
            Some(store) => store.beyond_ns(),
            None => self.used_keys().map(|first| first.newest().ns()),
        }
    }

    pub(super) fn holds<Q: Hash + ?Sized>(&self, key: &Q) -> bool {
        match self.get() {
            Some(store) => store.holds(key),
            None => self.first.get().is_some_and(|first| first.holds(self.hasher.hash_one(key))),
        }
    }

    pub(super) fn knew<Q: Hash + ?Sized>(&self, key: &Q) -> bool {
        match self.get() {
            Some(store) => store.knew(key),
            None => self.first.get().is_some_and(|first| first.holds(self.hasher.hash_one(key))),
        }
    }

    pub(super) fn seed<Q: Hash + ?Sized>(&self, key: &Q, when: CheckTime, debt: Debt) -> Option<Decision> {
        self.seed_hash(self.hasher.hash_one(key), when, debt)
    }

    fn seed_hash(&self, hash: u64, when: CheckTime, debt: Debt) -> Option<Decision> {
        if self.get().is_none() && self.keys().seed(self.plan.word(), hash, when, debt).is_ok() {
            return None;
        }
        match self.make() {
            Ok(store) => {
                store.seed_hash(hash, when, debt);
                None
            }
            Err(_) => Some(self.denied(when, 1)),
        }
    }

    pub(super) fn forget<Q: Hash + ?Sized>(&self, key: &Q) -> bool {
        let in_table = |store: &Compact<A, H>, _| store.forget(key);
        let first = |hash| match self.first.get() {
            Some(first) => first.reset(self.plan.word(), hash).map(|()| true),
            None => Ok(true),
        };
        self.change(key, in_table, first).unwrap_or(false)
    }

    pub(super) fn block_for<Q: Hash + ?Sized>(&self, key: &Q, when: CheckTime, block_ns: u64) -> bool {
        let in_table = |store: &Compact<A, H>, _| store.block_for(key, when, block_ns);
        let first = |hash| self.keys().block_for(self.plan.word(), hash, when, block_ns);
        self.change(key, in_table, first).unwrap_or(false)
    }

    /// Changes a key in the list, or in the table if the list cannot. `None` if there is no memory for the table.
    fn change<Q: Hash + ?Sized, R>(
        &self,
        key: &Q,
        in_table: impl Fn(&Compact<A, H>, u64) -> R,
        first: impl Fn(u64) -> Result<R, NeedsTable>,
    ) -> Option<R> {
        let hash = self.hasher.hash_one(key);
        match self.get() {
            Some(store) => Some(in_table(store, hash)),
            None => match first(hash) {
                Ok(result) => Some(result),
                Err(NeedsTable) => self.make().ok().map(|store| in_table(store, hash)),
            },
        }
    }

    /// Charges the debts of all keys to the same keys in another store with the same hasher.
    pub(super) fn carry_into<B: CompactAlgorithm>(
        &self,
        into: &LateCompact<B, H>,
        carry: CarryOver<'_>,
    ) -> CarriedOver {
        if let Some(from) = self.get() {
            return into.make().map_or(CarriedOver::NotAll, |into| from.carry_into(into, carry));
        }
        let mut all = true;
        for hash in self.used_keys().into_iter().flat_map(FirstKeys::hashes) {
            let peek = |at| self.peek_hash(hash, at, 0);
            let debt = carry.debt(peek(CheckTime::from_ns(carry.at_ns)), peek);
            all &= debt.units == 0 || into.seed_hash(hash, carry.when, debt).is_none();
        }
        all.into()
    }

    /// Takes over the times of the store that this store replaces.
    pub(super) fn take_over_times<B: CompactAlgorithm>(
        &self,
        last: &LateCompact<B, H>,
    ) -> Result<(), QuotaError> {
        match last.get() {
            Some(last) => self.make()?.take_over_times(last),
            None => {
                if let Some(last) = last.used_keys() {
                    self.keys().take_over_time(self.plan.word(), last.newest());
                }
            }
        }
        Ok(())
    }

    /// The number of keys that owe.
    pub(super) fn live(&self, time: CheckTime) -> usize {
        match self.get() {
            Some(store) => store.live_slots(time),
            None => self.first.get().map_or(0, |first| first.live(self.plan.word(), time)),
        }
    }

    /// The bytes that the states take.
    pub(super) fn state_bytes(&self) -> usize {
        match self.get() {
            Some(store) => store.state_bytes(),
            None => self.used_keys().map_or(0, |_| FirstKeys::state_bytes()),
        }
    }

    pub(super) fn gauges(&self) -> Gauges {
        self.get().map_or_else(|| self.plan.gauges(), Compact::gauges)
    }

    /// Returns the states as a snapshot of a compact store.
    pub(super) fn snapshot(&self, time: CheckTime) -> io::Result<Vec<u8>> {
        if let Some(store) = self.get() {
            return Ok(store.snapshot(time));
        }
        match Compact::copy_of(self.keys(), self.plan.clone(), self.hasher.clone()) {
            Ok(copy) => Ok(copy.snapshot(time)),
            Err(_) => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }
}

impl<A: CompactAlgorithm, H> fmt::Debug for LateCompact<A, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.store.get() {
            Some(store) => store.fmt(f),
            None => self.plan.fmt(f),
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::Gcra;
    use crate::base::quota::Quota;
    use crate::store::Capacity;
    use crate::store::compact::CompactLayout;

    const AT: CheckTime = CheckTime::from_ns(1_700_000_000_000_000_000);

    fn late(capacity: Capacity) -> LateCompact<Gcra, ahash::RandomState> {
        let layout = CompactLayout { capacity, ..CompactLayout::default() };
        let plan = CompactPlan::new(Gcra::new(Quota::per_hour(10)), layout).unwrap();
        let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
        LateCompact { store: Lazy::default(), first: Lazy::default(), plan, hasher }
    }

    fn check(late: &LateCompact<Gcra, ahash::RandomState>, key: u64) -> Decision {
        let mut decision = None;
        late.check_into(late.key_hash(&key), AT, 1, &mut decision);
        decision.unwrap()
    }

    // G68
    #[test]
    fn key_without_memory_for_table_is_denied() {
        // More bytes than any process can have.
        let late = late(Capacity::memory(usize::MAX));
        let admitted: Vec<u64> = (0..20).filter(|&key| check(&late, key).is_allowed()).collect();
        assert_eq!(admitted, (0..8).collect::<Vec<_>>(), "the keys of the list");
        for _ in 0..2 {
            let denied = check(&late, 100);
            assert!(denied.is_denied() && !denied.is_never() && denied.charged() == 0, "{denied:?}");
            assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
            assert_eq!((denied.limit(), denied.remaining()), (10, 0));
        }
        assert_eq!(check(&late, 3).remaining(), 8, "a failed attempt leaves the list as it was");
        assert!(late.get().is_none());
        let again = LateCompact::new(late.plan, &late.hasher);
        assert!(again.is_err(), "a load creates a large store at once");
    }

    /// Decisions do not tell whether a key is in the list or in the table.
    #[test]
    fn list_and_table_decide_alike() {
        let (late, table) = (late(Capacity::default()), late(Capacity::default()));
        table.make().unwrap();
        for round in 0..12 {
            for key in 0..30_u64 {
                let has_table = late.get().is_some();
                assert_eq!(has_table, (round, key) > (0, 8), "the ninth key creates the table");
                assert_eq!(late.peek(&key, AT, 1), table.peek(&key, AT, 1), "{round} {key}");
                let (one, other) = (check(&late, key), check(&table, key));
                assert_eq!(one, other, "{round} {key}");
                if key % 3 == 0 && round % 2 == 0 {
                    let refunded = [&late, &table].map(|late| late.refund(&key, AT, &one, 1));
                    assert_eq!(refunded, [one.charged(); 2]);
                }
            }
        }
    }
}
