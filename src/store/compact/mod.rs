//! The compact store: it takes any hashable key, keeps no key, and fixes its memory at creation.
//!
//! | part | contents |
//! |---|---|
//! | [`crate::algorithm::compact::slot`] | the word of one slot, and how its state relates to the current time |
//! | `table` | buckets of slots: search, charge, insert, evict |
//! | `spill` | the sketch that keeps the debts of evicted keys |
//! | `sizes` | the sizes of table and sketch for a capacity |
//! | `gauges` | counts of evictions and other events |
//! | `snapshot` | the state as bytes: save and restore |
//! | `small` | the arithmetic with states of four bits, for the exhaustive checks in `tests/stores` |
//! | this file | hashing, batches, the interface to the limiter |

mod gauges;
mod sizes;
#[cfg(tollgate_simulation)]
pub mod small;
mod snapshot;
mod spill;
mod table;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{BuildHasher, Hash};

pub use self::gauges::Gauges;
use self::sizes::Sizes;
use self::spill::Spill;
#[cfg(feature = "std")]
pub(crate) use self::table::{FirstKeys, NeedsTable};
use self::table::{Full, SlotAddress, SlotTable, SlotTicket};
use crate::algorithm::compact::{CompactState, newest_of};
use crate::algorithm::{CompactAlgorithm, Gcra};
use crate::base::check_time::CheckTime;
use crate::base::clock::saturating_nanos;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason};
use crate::store::capacity::Capacity;
use crate::store::op::{
    CarriedOver, CarryOver, Debt, Debts, HashedStore, Inherit, KeyTrace, ManyKeys, Migrate, Operation,
    Rebuild, Store, StoreBase, in_batches,
};
use crate::store::present::{CheckWith, PresentStore, States};

/// Slots in a bucket. The design text gives the costs and benefits of 16.
pub(crate) const WAYS: usize = 16;

/// What the compact store does with a new key when its bucket is full of keys that still owe.
///
/// See [the guide](https://docs.rs/crate/tollgate/latest/source/docs/overflow.md) for how to choose.
///
/// # Examples
/// ```
/// use tollgate::{Capacity, Gcra, Overflow, Quota, RateLimiter};
///
/// // The table is small, and many keys owe. Each key is new, so it deserves its one request.
/// let denied = |overflow| -> Result<usize, tollgate::QuotaError> {
///     let build = RateLimiter::builder(Gcra::new(Quota::per_hour(1)));
///     let limiter = build.capacity(Capacity::memory(1 << 10)).overflow(overflow).compact()?;
///     Ok((0..5_000).filter(|key| limiter.check(key).is_denied()).count())
/// };
/// assert!(denied(Overflow::Forget)? < 5); // only keys that share a fingerprint; but a forgotten key could be admitted again
/// assert!(denied(Overflow::Spill)? > 0);
/// assert!(denied(Overflow::Inherit)? > 4_000);
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Overflow {
    /// Evicts the key with the smallest debt, and keeps its debt in a sketch. The default.
    ///
    /// The key finds its debt there when it returns. The sketch takes seven sixteenths of the memory. This policy never
    /// over-admits, with one exception: first checks of one key that race in three or more threads. When the table is
    /// full, some keys are denied early.
    Spill,
    /// Evicts the key with the smallest debt, and drops that debt.
    ///
    /// This policy never denies a deserving key. An evicted key may be admitted the amount of its dropped debt again.
    Forget,
    /// Gives the slot with the smallest debt in the bucket to the new key, together with that debt.
    ///
    /// This policy never over-admits. A flood of fresh keys can cause every key to be denied.
    Inherit,
}

impl fmt::Display for Overflow {
    /// Writes the name that flags use, such as `spill`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spill => "spill",
            Self::Forget => "forget",
            Self::Inherit => "inherit",
        })
    }
}

/// Keys as 24-bit fingerprints in a fixed table: the default store.
///
/// A slot takes eight bytes: 24 bits of the key's hash, and the key's state. The table keeps nothing else. When a key
/// owes nothing any more, another key can use its slot, so no thread ever sweeps the table. The memory in use follows
/// the debts: `admitted units per second × seconds per unit` slots, whatever the number of keys.
///
/// With a probability of about 6 × 10⁻⁷, a key shares its limit with another key: both have the same fingerprint (one
/// of 2²⁴) in the same bucket (sixteen slots).
///
/// The store counts time in ticks. A full burst takes about 2²⁰ ticks. If the burst is above 4,096, it takes more,
/// because each unit takes at least 256 ticks. The store decides each request as of the start of the tick that contains
/// the request's time. See the [design text](https://docs.rs/crate/tollgate/latest/source/docs/design.md).
///
/// Times are kept modulo 2⁴⁰ ticks, which is a million bursts (two years at 10/60s). A key that returns after exactly
/// that time has its old debt again, unless another key has used the slot. It must then pay the debt a second time.
///
/// Created by [`RateLimiter::new`](crate::RateLimiter::new) and [`Builder::compact`](crate::Builder::compact).
///
/// # Examples
/// ```
/// use tollgate::{Compact, FixedWindow, Quota, RateLimiter};
///
/// struct Server {
///     by_address: RateLimiter, // the same as `RateLimiter<Compact>`, with GCRA
///     by_minute: RateLimiter<Compact<FixedWindow>>,
/// }
///
/// let server = Server {
///     by_address: RateLimiter::new(Quota::per_second(10)),
///     by_minute: RateLimiter::builder(FixedWindow::new(Quota::per_minute(100))).compact()?,
/// };
/// assert!(server.by_address.check("203.0.113.7").is_allowed());
/// assert!(server.by_minute.check(&("api", 7)).is_allowed());
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
pub struct Compact<A: CompactAlgorithm = Gcra, H = ahash::RandomState> {
    plan: CompactPlan<A>,
    hasher: H,
    table: SlotTable<A::CompactState, WAYS>,
    /// Whether both the table and the algorithm can refund.
    can_refund: bool,
}

/// A compact store without its table and hasher: all that a quota and the builder's settings decide.
// Each check reads the word.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct CompactPlan<A: CompactAlgorithm> {
    word: A::CompactState,
    algorithm: A,
    overflow: Overflow,
    /// The layout from the builder. A rebuild for another quota uses it again.
    layout: CompactLayout,
}

/// A quota for single calls, in the layout of one compact limiter.
///
/// Created by [`RateLimiter::tier`](crate::RateLimiter::tier).
///
/// # Examples
/// ```
/// use tollgate::stores::Tier;
/// use tollgate::{Quota, RateLimiter};
///
/// struct Plans {
///     limiter: RateLimiter,
///     premium: Tier,
/// }
///
/// let limiter = RateLimiter::new(Quota::per_minute(10));
/// let plans = Plans { premium: limiter.tier(&Quota::per_minute(100))?, limiter };
/// assert!(plans.limiter.check_with("alice", 90, &plans.premium).is_allowed());
/// assert_eq!(plans.limiter.check_with("alice", 1, &plans.premium).remaining(), 9);
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Tier<A: CompactAlgorithm = Gcra> {
    word: A::CompactState,
    /// The quota from which the word was made. A change of the limiter's quota can change its words.
    quota: Quota,
}

/// The settings of a builder for a compact store.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompactLayout {
    pub(crate) capacity: Capacity,
    pub(crate) overflow: Option<Overflow>,
    pub(crate) tiers: Vec<Quota>,
    pub(crate) overdraft: u64,
}

impl<A: CompactAlgorithm> CompactPlan<A> {
    /// # Errors
    /// Returns an error if no word can hold the quota, or if the words do not support the overflow policy.
    pub(crate) fn new(algorithm: A, layout: CompactLayout) -> Result<Self, QuotaError> {
        let word = algorithm.compact(&layout.tiers, layout.overdraft)?;
        let overflow = layout.overflow.unwrap_or(if <A::CompactState as CompactState>::DOMINATES {
            Overflow::Spill
        } else {
            Overflow::Forget
        });
        if !<A::CompactState as CompactState>::DOMINATES && overflow != Overflow::Forget {
            return Err(Reason::Overflow.into());
        }
        if overflow == Overflow::Spill {
            Spill::shift(&word)?;
        }
        Ok(Self { algorithm, word, overflow, layout })
    }

    fn sizes(&self) -> Sizes {
        self.layout.capacity.sizes(self.overflow, WAYS)
    }

    /// The bytes of the table and the sketch.
    pub(crate) fn bytes(&self) -> u64 {
        self.sizes().bytes(WAYS)
    }

    pub(crate) fn can_refund(&self) -> bool {
        self.refunds() && self.word.can_refund()
    }

    /// The decision for a key that was never charged, in a store that holds nothing. Charges nothing.
    pub(crate) fn peek(&self, at: CheckTime, cost: u64) -> Decision {
        let outcome = self.word.judge(0, at.ns(), cost).outcome();
        self.word.uncharged(outcome, 0, self.word.moment(at.ns()), cost)
    }

    /// Whether no key can owe more than its burst.
    pub(crate) fn has_only_bursts(&self) -> bool {
        self.layout.overdraft == 0 && self.layout.tiers.is_empty()
    }

    /// Whether the table can refund charges.
    pub(crate) fn refunds(&self) -> bool {
        self.overflow != Overflow::Inherit
    }

    #[cfg(feature = "std")]
    pub(crate) const fn word(&self) -> &A::CompactState {
        &self.word
    }

    /// The gauges of a store that holds nothing.
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges { slots: self.sizes().buckets.saturating_mul(WAYS), ..Gauges::default() }
    }
}

impl<A: CompactAlgorithm, H: BuildHasher> Compact<A, H> {
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub(crate) fn new(plan: CompactPlan<A>, hasher: H) -> Result<Self, QuotaError> {
        let (sizes, word) = (plan.sizes(), &plan.word);
        let full = match plan.overflow {
            Overflow::Forget => Full::Forget,
            Overflow::Inherit => Full::Inherit,
            Overflow::Spill => Full::Spill(Box::new(Spill::new(word, &sizes)?)),
        };
        let refused = || QuotaError::from(Reason::Memory { bytes: sizes.bytes(WAYS) });
        let newest = newest_of(word);
        let table = SlotTable::new(sizes.buckets, word.horizon(), full, newest).ok_or_else(refused)?;
        Ok(Self { can_refund: plan.can_refund(), plan, hasher, table })
    }

    pub(crate) fn algorithm(&self) -> &A {
        &self.plan.algorithm
    }

    pub(crate) fn tier(&self, quota: &Quota) -> Result<Tier<A>, QuotaError> {
        Ok(Tier { word: self.plan.algorithm.tier(&self.plan.word, quota)?, quota: *quota })
    }

    /// Returns the word of a tier if it was made for this layout, or the store's own word if not.
    fn readable<'a>(&'a self, tier: &'a Tier<A>) -> &'a A::CompactState {
        let reads = self.plan.word.reads(&tier.word);
        debug_assert!(reads, "use a tier only with the limiter that created it");
        if reads { &tier.word } else { &self.plan.word }
    }

    /// Forgets the debt of a key. Returns whether it owed anything.
    pub(crate) fn reset(&self, hash: u64, time: CheckTime) -> bool {
        self.table.reset(&self.plan.word, hash, time)
    }

    /// The latest time of any charge, to within the slack.
    pub(crate) fn newest(&self) -> CheckTime {
        self.table.newest()
    }

    pub(crate) fn gauges(&self) -> Gauges {
        self.table.gauges()
    }

    pub(crate) fn live_slots(&self, time: CheckTime) -> usize {
        self.table.live_slots(&self.plan.word, time)
    }

    pub(crate) fn fill(&self, time: CheckTime) -> f64 {
        self.table.fill(&self.plan.word, time)
    }
}

impl<A: CompactAlgorithm, H: BuildHasher> Compact<A, H> {
    /// Charges the debt of each key to the same key in another store with the same hasher.
    ///
    /// The other store may use another algorithm. Some debts are missed if the other store has another size, or if this
    /// store also keeps debts outside its slots.
    pub(crate) fn carry_into<B: CompactAlgorithm>(
        &self,
        into: &Compact<B, H>,
        carry: CarryOver<'_>,
    ) -> CarriedOver {
        let seed = |hash, before: &Decision| {
            let peek = |at| self.table.peek(&self.plan.word, self.table.place(hash), at, 0);
            let debt = carry.debt(*before, peek);
            if debt.units > 0 {
                into.table.seed(&into.plan.word, hash, carry.when, debt);
            }
        };
        let all = self.table.has_addresses_of(&into.table)
            && self.table.for_each(&self.plan.word, CheckTime::from_ns(carry.at_ns), seed);
        all.into()
    }
}

impl<A: CompactAlgorithm, H> Compact<A, H> {
    /// Takes over the times of the store that this store replaces.
    pub(crate) fn take_over_times<B: CompactAlgorithm>(&self, last: &Compact<B, H>) {
        self.table.take_over_times(&self.plan.word, &last.table);
    }
}

#[cfg(feature = "std")]
impl<A: CompactAlgorithm, H: BuildHasher> Compact<A, H> {
    /// Creates the table of a store, and moves its first keys to it.
    pub(crate) fn after(keys: &FirstKeys, plan: CompactPlan<A>, hasher: H) -> Result<Self, QuotaError> {
        let store = Self::new(plan, hasher)?;
        keys.move_to(&store.table);
        Ok(store)
    }

    /// Creates a copy of a store that has no table.
    pub(crate) fn copy_of(keys: &FirstKeys, plan: CompactPlan<A>, hasher: H) -> Result<Self, QuotaError> {
        let store = Self::new(plan, hasher)?;
        keys.copy_to(&store.table);
        Ok(store)
    }

    /// [`Inherit::seed`] of the key with a hash.
    pub(crate) fn seed_hash(&self, hash: u64, when: CheckTime, debt: Debt) {
        self.table.seed(&self.plan.word, hash, when, debt);
    }
}

#[cfg(feature = "std")]
impl<A: CompactAlgorithm, H> Compact<A, H> {
    /// [`Operation::Check`], with the decision written to its place; returns its outcome. The decisions of both branches have memory of their own, so
    /// that the compiler copies none of them in the first branch, which is the common one.
    #[inline(always)]
    pub(crate) fn check_into(
        &self,
        key: SlotAddress,
        at: CheckTime,
        cost: u64,
        decision: &mut Option<Decision>,
    ) -> Outcome {
        let (table, word) = (&self.table, &self.plan.word);
        match table.check_at_home(word, key, word.moment(at.ns()), cost) {
            Some(decided) => {
                let outcome = decided.outcome();
                *decision = Some(decided);
                outcome
            }
            None => decision.insert(table.check_elsewhere(word, key, at.ns(), cost)).outcome(),
        }
    }
}

impl<A: CompactAlgorithm, H> ManyKeys for Compact<A, H> {}

impl<A: CompactAlgorithm, H: BuildHasher, Q: Hash + ?Sized> Store<Q> for Compact<A, H> {
    type Prepared<'k>
        = SlotAddress
    where
        Q: 'k;

    type Ticket<'s>
        = SlotTicket<'s, A::CompactState, WAYS>
    where
        Self: 's;

    #[inline(always)]
    fn prepare(&self, key: &Q) -> SlotAddress {
        self.prepare_hash(self.hash(key))
    }

    #[inline(always)]
    fn prefetch(&self, key: SlotAddress) {
        self.table.prefetch(key);
    }

    // Always inlined, like `KeyState::charge`.
    #[inline(always)]
    fn apply(&self, key: SlotAddress, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        match operation {
            Operation::Check => self.table.check(&self.plan.word, key, self.plan.word.moment(at.ns()), cost),
            rarer => self.table.apply(&self.plan.word, rarer, key, at, cost),
        }
    }

    #[inline(always)]
    fn check_each<'k>(
        &self,
        requests: impl Iterator<Item = (SlotAddress, u64)>,
        at: CheckTime,
        mut decided: impl FnMut(Decision),
    ) where
        Q: 'k,
    {
        // A local copy: the compiler can assume that no other thread writes to it.
        let word = self.plan.word;
        let at = word.moment(at.ns());
        let prefetch = |key| self.table.prefetch(key);
        in_batches(requests, prefetch, |key, cost| decided(self.table.check(&word, key, at, cost)));
    }

    fn peek(&self, key: SlotAddress, at: CheckTime, cost: u64) -> Decision {
        self.table.peek(&self.plan.word, key, at, cost)
    }

    #[inline(always)]
    fn decide(&self, key: SlotAddress, at: CheckTime, cost: u64) -> Self::Ticket<'_> {
        self.table.aim(&self.plan.word, key, at.ns(), cost).decided()
    }

    #[inline(always)]
    fn aim(&self, key: SlotAddress, at: CheckTime, cost: u64) -> Self::Ticket<'_> {
        self.table.aim(&self.plan.word, key, at.ns(), cost)
    }

    const BLOCKS: bool = <A::CompactState as CompactState>::BLOCKS;

    #[inline(always)]
    fn block(&self, key: SlotAddress, at: CheckTime, denial: Decision) -> Decision {
        self.table.block(&self.plan.word, key, at.ns(), denial)
    }

    fn refund(&self, key: SlotAddress, at: CheckTime, charge: &Decision, units: u64) -> u64 {
        self.table.refund(&self.plan.word, key, at, Some(charge), units)
    }

    fn give_back(&self, key: SlotAddress, at: CheckTime, units: u64) -> u64 {
        self.table.refund(&self.plan.word, key, at, None, units)
    }

    fn key_hash(&self, key: &Q) -> u64 {
        self.hash(key)
    }

    fn refund_traced<B: BuildHasher>(&self, key: KeyTrace<'_, B>, at: CheckTime, charge: &Decision) -> u64 {
        Store::<Q>::refund(self, self.prepare_hash(key.hash), at, charge, charge.charged())
    }
}

impl<A: CompactAlgorithm, H> StoreBase for Compact<A, H> {
    #[inline(always)]
    fn can_refund(&self) -> bool {
        self.can_refund
    }

    fn burst(&self) -> u64 {
        self.plan.burst()
    }
}

impl<A: CompactAlgorithm> Debts for CompactPlan<A> {
    fn paid_in_ns(&self, at_ns: u64, units: u64) -> u64 {
        let owed = self.word.seed(at_ns, units);
        let at = self.word.moment(at_ns);
        saturating_nanos(self.word.decision(Outcome::Allowed, owed, at, units).reset_after())
    }

    fn left(&self, at_ns: u64, units: u64, now_ns: u64) -> u64 {
        let now_ns = now_ns.max(at_ns);
        let now = self.word.moment(now_ns);
        let passed = now.reference.wrapping_sub(self.word.reference(at_ns));
        let ahead = self.word.seed(at_ns, units).saturating_sub(passed);
        self.word.uncharged(Outcome::Allowed, ahead, now, 0).owed()
    }

    fn burst(&self) -> u64 {
        self.word.uncharged(Outcome::Allowed, 0, self.word.moment(0), 0).limit()
    }

    fn longest_block_ns(&self) -> u64 {
        self.algorithm.longest_block_ns()
    }

    fn owed(&self, decision: &Decision) -> u64 {
        if decision.block_ns() > 0 { decision.limit() } else { decision.owed() }
    }
}

impl<A: CompactAlgorithm, H: BuildHasher> Migrate for Compact<A, H> {
    fn debts(&self) -> &dyn Debts {
        &self.plan
    }

    fn is_known(&self) -> bool {
        self.plan.has_only_bursts() || self.table.is_new()
    }

    fn newest_ns(&self) -> u64 {
        self.table.high_ns()
    }

    /// The newest time, to within the slack.
    fn beyond_ns(&self) -> Option<u64> {
        Some(self.newest().ns())
    }

    /// Carries the debts over slot by slot.
    fn carry_all(&self, into: &Self, carry: CarryOver<'_>) -> CarriedOver {
        self.carry_into(into, carry)
    }
}

impl<A: CompactAlgorithm, H: BuildHasher + Clone + Send + Sync + 'static> Rebuild for Compact<A, H> {
    fn rebuild(&self, quota: &Quota) -> Result<Self, QuotaError> {
        let plan = CompactPlan::new(self.plan.algorithm.with_quota(quota)?, self.plan.layout.clone())?;
        let next = Self::new(plan, self.hasher.clone())?;
        next.take_over_times(self);
        Ok(next)
    }
}

impl<A: CompactAlgorithm, H: BuildHasher, Q: Hash + ?Sized> Inherit<Q> for Compact<A, H> {
    fn holds(&self, key: &Q) -> bool {
        self.table.holds(self.hash(key))
    }

    /// Of a spilled key, the store has only the debt. So it cannot tell which keys it knew, and every key counts as
    /// known.
    fn knew(&self, _key: &Q) -> bool {
        true
    }

    fn seed(&self, key: &Q, when: CheckTime, debt: Debt) -> Option<Decision> {
        self.table.seed(&self.plan.word, self.hash(key), when, debt);
        None
    }

    fn forget(&self, key: &Q) -> bool {
        self.reset(self.hash(key), self.newest());
        true
    }

    fn block_for(&self, key: &Q, when: CheckTime, block_ns: u64) -> bool {
        self.table.block_for(&self.plan.word, self.hash(key), when, block_ns)
    }
}

impl<A: CompactAlgorithm, H: BuildHasher> HashedStore for Compact<A, H> {
    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline(always)]
    fn prepare_hash(&self, hash: u64) -> SlotAddress {
        self.table.place(hash)
    }
}

impl<A: CompactAlgorithm, H> States for Compact<A, H> {
    fn clear(&self) {
        self.table.clear();
    }

    fn state_bytes(&self) -> usize {
        self.table.state_bytes()
    }
}

impl<A: CompactAlgorithm, H> PresentStore for Compact<A, H> {
    type Store = Self;

    fn present<T>(&self, property: impl FnOnce(&Self) -> T) -> T {
        property(self)
    }
}

impl<A: CompactAlgorithm, H: BuildHasher, Q: Hash + ?Sized> CheckWith<Q> for Compact<A, H> {
    type Quota = Tier<A>;

    #[inline(always)]
    fn check_with(&self, key: SlotAddress, tier: &Tier<A>, at: CheckTime, cost: u64) -> Decision {
        let word = self.readable(tier);
        self.table.check(word, key, word.moment(at.ns()), cost)
    }

    fn readable_quota(&self, tier: &Tier<A>) -> Option<Tier<A>> {
        if self.plan.word.reads(&tier.word) { Some(tier.clone()) } else { self.tier(&tier.quota).ok() }
    }
}

impl<A: CompactAlgorithm, H> fmt::Debug for Compact<A, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compact")
            .field("algorithm", &self.plan.algorithm)
            .field("state_bytes", &self.table.state_bytes())
            .field("gauges", &self.table.gauges())
            .finish_non_exhaustive()
    }
}
