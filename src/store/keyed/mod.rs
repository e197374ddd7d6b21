//! The keyed store: every key has its own state, which the store keeps until the key is idle.
//!
//! | part | contents |
//! |---|---|
//! | `nodes` | memory for nodes: each holds a key and its state |
//! | `table` | shards with indices that find the nodes; growth, removal and the sweep for idle keys |
//! | `carry` | the debts of all keys, for a change of the quota |
//! | `lookup` | the forms in which a caller may give a key |
//! | `saved` | the keys and their states in a snapshot |
//! | `room` | the cap, and the room of one key under it |
//! | this file | hashing, first sight of a key |
//!
//! 1. A check of a known key takes one hash, one cache line of an index, one node and one exchange. It takes no lock,
//!    and the only shared memory that it writes is the word of the key.
//! 2. The first admitted check of a key (*first sight*) creates a node. The state of this node already holds the charge.
//! 3. One exchange publishes the node. So a charge by another thread can only come after the first charge.
//! 4. A key that is idle may be removed: by an insert, by a search for room under the cap, or by the caller. The
//!    removing thread first marks the state of the node *dead*. A check that finds a dead node searches again.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the keyed store requires 64-bit pointers");

mod carry;
mod lookup;
#[cfg(all(test, tollgate_loom))]
mod models;
mod nodes;
mod room;
pub(super) mod saved;
mod table;
mod ticket;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

pub use self::lookup::Lookup;
use self::nodes::KeyNode;
use self::room::{Cap, Room};
use self::table::{Filling, GRACE_NS, NodeTable, Occupied, Vacant};
use self::ticket::KeyedTicket;
use super::beyond::BeyondBurst;
use super::state::{Action, Admission, Dead, KeyState, Kill, Request, peek_fresh};
use crate::algorithm::step::Refund;
use crate::algorithm::{Algorithm, Gcra};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::reclaim::{self, Pinned};
use crate::base::sync::{AtomicU64, AtomicUsize, Ordering, processors};
use crate::store::op::{BATCH, Debts as _, KeyTrace, ManyKeys, Operation, Store, StoreBase};
use crate::store::present::{CheckWith, PresentStore, States, readable};

/// What a full keyed store does with a new key when it finds no idle key to remove.
///
/// A full store looks at some of its keys for each new key: at 6 to [forget](WhenFull::Forget) one, and at 12 with the
/// other policies, or at all of them if its cap is 256 or less. The new key's hash chooses them, so different keys look at
/// different ones. The time chooses them too if the key may be denied, so later attempts of one key look at others. A new key at the
/// cap costs more than a check. If another thread inserts the same key at the same moment, this policy may still apply to it.
///
/// # Examples
/// ```
/// use tollgate::{Gcra, Quota, RateLimiter, WhenFull};
///
/// let limiter = |when_full| {
///     let limiter = RateLimiter::builder(Gcra::new(Quota::per_hour(10))).max_keys(2, when_full).keyed::<u8>();
///     for key in [1, 2] {
///         assert!(limiter.check(&key).is_allowed());
///     }
///     limiter
/// };
/// assert!(limiter(WhenFull::Deny).check(&3).is_denied());
/// assert!(limiter(WhenFull::Admit).check(&3).is_allowed());
/// let forgetful = limiter(WhenFull::Forget);
/// assert!(forgetful.check(&3).is_allowed());
/// assert!(forgetful.contains(&3) && forgetful.len() == 2);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WhenFull {
    /// Denies the new key.
    ///
    /// This policy never over-admits. A flood of fresh keys can shut out new keys until held keys become idle. The
    /// retry time is an estimate: it is the time at which the first of the searched keys becomes idle.
    Deny,
    /// Admits the new key and does not count it. A deserving new key is never denied. Keys beyond the cap are not
    /// limited.
    Admit,
    /// Removes the key that becomes idle first among the keys of a short search.
    ///
    /// The removed key loses its debt, so it may be admitted the amount of that debt again. A new key is denied only while other
    /// threads replace every key of the store, so that there is none to remove. It may come again at once.
    Forget,
}

/// One state for each key, stored with the key. The store of [`RateLimiter::keyed`](crate::RateLimiter::keyed).
///
/// Every path is lock-free: known keys, first sight, growth and removal.
///
/// A key is *idle* when its state means the same as an absent key. When the table fills up, inserts remove
/// keys that have been idle for a second. So memory follows the active keys, not all keys ever seen.
/// [`RateLimiter::retain_active`](crate::RateLimiter::retain_active) removes all idle keys at once.
///
/// A removed key is dropped some time later, by any thread that uses a keyed store. So a panic in its `Drop` is caught
/// and does not reach any caller. The panic hook runs, and all other keys are still dropped.
///
/// # Complexity
/// A check is O(1) expected. A keyed hasher computes the hashes, so clients cannot choose keys that collide.
///
/// # Examples
/// ```
/// use tollgate::{Keyed, Quota, RateLimiter, SlidingLog};
///
/// struct Logins {
///     by_account: RateLimiter<Keyed<String, SlidingLog>>,
/// }
///
/// let by_account = RateLimiter::keyed(SlidingLog::new(Quota::per_hour(5)));
/// let logins = Logins { by_account };
/// assert_eq!(logins.by_account.check("alice").remaining(), 4);
/// assert_eq!(logins.by_account.len(), 1);
/// ```
pub struct Keyed<K, A: Algorithm = Gcra, H = ahash::RandomState> {
    algorithm: A,
    hasher: H,
    table: NodeTable<K, A::Tail>,
    cap: Option<Cap>,
    // Padded: charges beyond the burst write this cache line, and every check reads the other fields.
    beyond: CachePadded<BeyondBurst>,
}

/// The settings of a builder for a keyed store.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct KeyedLayout {
    pub(crate) capacity: usize,
    pub(crate) cap: Option<(usize, WhenFull)>,
}

impl<K, A, H> Keyed<K, A, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
{
    pub(crate) fn new(algorithm: A, hasher: H, layout: KeyedLayout) -> Self {
        let keys = layout.cap.map_or(layout.capacity, |(max, _)| layout.capacity.min(max));
        Self {
            algorithm,
            hasher,
            table: NodeTable::new(keys, layout.cap.map(|(max, _)| max), processors().unwrap_or(4).min(64)),
            cap: layout.cap.map(|(max, when_full)| Cap {
                max,
                when_full,
                held: CachePadded::new(AtomicUsize::new(0)),
            }),
            beyond: CachePadded::new(BeyondBurst::none()),
        }
    }

    /// Returns the settings of this store, with room for its keys.
    fn layout(&self) -> KeyedLayout {
        let cap = self.cap.as_ref().map(|cap| (cap.max, cap.when_full));
        KeyedLayout { capacity: self.len(), cap }
    }

    pub(crate) fn algorithm(&self) -> &A {
        &self.algorithm
    }

    /// The hash of a key, as the table expects it.
    #[inline(always)]
    fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        self.table.hash(self.hasher.hash_one(key))
    }

    /// Returns the live node of a key.
    #[inline]
    fn live<'g, Q>(&'g self, key: &Q, hash: u64, guard: &'g Pinned) -> Option<&'g KeyNode<K, A::Tail>>
    where
        Q: Lookup<K> + ?Sized,
    {
        let node = self.table.get(hash, guard, |held| key.is(held)).ok()?;
        if node.state.is_dead() { self.occupied(key, hash, guard).map(|held| held.node) } else { Some(node) }
    }

    /// Returns the live node of a key, with its word in the table.
    fn occupied<'g, Q>(&'g self, key: &Q, hash: u64, guard: &'g Pinned) -> Option<Occupied<'g, K, A::Tail>>
    where
        Q: Lookup<K> + ?Sized,
    {
        self.table.find(hash, guard, |held| key.is(held)).ok()
    }

    /// Checks with another algorithm that can read the states of this store's algorithm.
    // Always inlined, like `KeyState::charge`.
    #[inline(always)]
    pub(super) fn check_by<Q>(
        &self,
        algorithm: &A,
        (key, hash): (&Q, u64),
        now_ns: u64,
        cost: u64,
    ) -> Decision
    where
        Q: Lookup<K> + ?Sized,
    {
        self.charge_hashed(algorithm, key, hash, now_ns, cost, &reclaim::pin())
    }

    #[inline(always)]
    fn charge_hashed<Q>(
        &self,
        algorithm: &A,
        key: &Q,
        hash: u64,
        now_ns: u64,
        cost: u64,
        guard: &Pinned,
    ) -> Decision
    where
        Q: Lookup<K> + ?Sized,
    {
        let slot = match self.table.get(hash, guard, |held| key.is(held)) {
            Ok(node) => match node.state.charge(algorithm, now_ns, cost) {
                Ok(decision) => return decision,
                // First sight searches past the dead node.
                Err(Dead) => None,
            },
            Err(slot) => slot,
        };
        let action = Action::Apply(Operation::Check);
        self.first_sight(&Request { algorithm, action, now_ns, cost }, &Absent { key, hash, slot, guard })
    }

    /// Does what is rarer than a check.
    fn act_rarely<Q>(&self, key: &Q, hash: u64, action: Action, now_ns: u64, cost: u64) -> Decision
    where
        Q: Lookup<K> + ?Sized,
    {
        let guard = reclaim::pin();
        let ask = Request { algorithm: &self.algorithm, action, now_ns, cost };
        let slot = match self.table.get(hash, &guard, |held| key.is(held)) {
            Ok(node) => match node.state.apply(&ask) {
                Ok(decision) => return decision,
                Err(Dead) => None,
            },
            Err(slot) => slot,
        };
        self.first_sight(&ask, &Absent { key, hash, slot, guard: &guard })
    }

    fn take_back<Q>(&self, (key, hash): (&Q, u64), refund: Refund<'_>) -> u64
    where
        Q: Lookup<K> + ?Sized,
    {
        let guard = reclaim::pin();
        let node = self.live(key, hash, &guard);
        node.and_then(|node| node.state.refund(&self.algorithm, &refund).ok()).unwrap_or(0)
    }

    /// Decides for a key that was not found, and inserts the key if it was charged.
    #[cold]
    #[inline(never)]
    fn first_sight<Q>(&self, ask: &Request<'_, A>, absent: &Absent<'_, Q>) -> Decision
    where
        Q: Lookup<K> + ?Sized,
    {
        self.first_sight_at(ask.now_ns, ask, absent)
    }

    /// Like [`Keyed::first_sight`], but searches for idle keys as of `now_ns`.
    fn first_sight_at<Q>(&self, now_ns: u64, ask: &Request<'_, A>, absent: &Absent<'_, Q>) -> Decision
    where
        Q: Lookup<K> + ?Sized,
    {
        let first = ask.fresh();
        if first.next == 0 {
            // A new key has nothing to insert. But another thread may have inserted the key in the meantime.
            return match self.live(absent.key, absent.hash, absent.guard) {
                Some(node) => node.state.apply(ask).unwrap_or(first.decision),
                None => first.decision,
            };
        }
        self.table.prefetch_insertion(absent.hash, absent.slot);
        loop {
            let soonest = match self.make_room(absent.hash, now_ns, absent.guard) {
                Ok(room) => return self.insert(ask, absent, &first, room),
                Err(soonest) => soonest,
            };
            let (Some(victim), Some(cap @ Cap { when_full: WhenFull::Forget, .. })) = (soonest, &self.cap)
            else {
                return self.beyond_cap(now_ns, ask, absent, &first, soonest);
            };
            if absent.key.is(&victim.node.key) {
                // Another thread has inserted this same key, and its charge counts.
                if let Ok(decision) = victim.node.state.apply(ask) {
                    return decision;
                }
            } else if victim.node.state.kill() == Kill::Done {
                // The room passes from the removed node to this call. The count stays the same.
                let replaced = Some(self.table.replace(victim, absent.guard));
                return self.insert(ask, absent, &first, Room { cap: Some(cap), replaced });
            }
        }
    }

    /// Inserts a key that has room under the cap, with its first charge.
    fn insert<Q>(
        &self,
        ask: &Request<'_, A>,
        absent: &Absent<'_, Q>,
        first: &Admission,
        mut room: Room<'_, K, A::Tail>,
    ) -> Decision
    where
        Q: Lookup<K> + ?Sized,
    {
        let &Absent { key, hash, slot, guard } = absent;
        let mut place = match slot
            .map_or_else(|| self.vacancy(ask, absent), |slot| Ok(self.table.vacant(hash, slot, guard)))
        {
            Ok(place) => place,
            Err(decision) => return decision,
        };
        let state = KeyState::admitted(ask.algorithm, self.algorithm.tail_len(), first);
        let mut node = self.table.place(KeyNode { state, key: key.to_key() }, guard);
        // The table does not fill up if the new key replaces another one.
        let fills = room.replaced.is_none();
        let filling = loop {
            if let Some(filling) = place.fill(&mut node, ask.now_ns, &mut room.replaced) {
                break filling;
            }
            place = match self.vacancy(ask, absent) {
                Ok(place) => place,
                // No other thread has seen the node.
                Err(decision) => return decision,
            };
        };
        room.taken();
        if fills && filling == Filling::Yes {
            let while_ago = ask.now_ns.saturating_sub(GRACE_NS);
            self.table.sweep(hash, guard, |node| {
                node.state.kill_if_idle(&self.algorithm, while_ago) == Kill::Done && self.release()
            });
        }
        first.decision
    }

    /// Returns the place of a key that is not in the table, or the decision if another thread has inserted the key first.
    #[cold]
    fn vacancy<'g, Q>(
        &'g self,
        ask: &Request<'_, A>,
        &Absent { key, hash, guard, .. }: &Absent<'g, Q>,
    ) -> Result<Vacant<'g, K, A::Tail>, Decision>
    where
        Q: Lookup<K> + ?Sized,
    {
        loop {
            match self.table.find(hash, guard, |held| key.is(held)) {
                Ok(other) => {
                    if let Ok(decision) = other.node.state.apply(ask) {
                        return Err(decision);
                    }
                }
                Err(place) => return Ok(place),
            }
        }
    }

    /// Gives back the room of one key. Always returns `true`, for use in conditions.
    fn release(&self) -> bool {
        if let Some(cap) = &self.cap {
            cap.held.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }

    pub(crate) fn contains<Q>(&self, key: &Q) -> bool
    where
        Q: Lookup<K> + ?Sized,
    {
        let hash = self.hash(key);
        self.live(key, hash, &reclaim::pin()).is_some()
    }

    pub(crate) fn remove<Q>(&self, key: &Q) -> bool
    where
        Q: Lookup<K> + ?Sized,
    {
        let hash = self.hash(key);
        let guard = reclaim::pin();
        let Some(held) = self.occupied(key, hash, &guard) else {
            return false;
        };
        let removed = held.node.state.kill() == Kill::Done;
        if removed {
            self.table.unlink(held, &guard);
            self.release();
        }
        removed
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn for_each(&self, now_ns: u64, mut visit: impl FnMut(&K, Decision)) {
        self.table.for_each(|node| {
            if let Ok(decision) = node.state.peek(&self.algorithm, now_ns, 0) {
                visit(&node.key, decision);
            }
            false
        });
    }

    pub(crate) fn retain_active(&self, now_ns: u64) {
        self.remove_if(|node| node.state.kill_if_idle(&self.algorithm, now_ns) == Kill::Done);
    }

    fn remove_if(&self, mut kill: impl FnMut(&KeyNode<K, A::Tail>) -> bool) {
        self.table.for_each(|node| kill(node) && self.release());
    }
}

impl<K, A: Algorithm, H> ManyKeys for Keyed<K, A, H> {}

impl<K, A, H, Q> Store<Q> for Keyed<K, A, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
    Q: Lookup<K> + ?Sized,
{
    /// The key and its hash.
    type Prepared<'k>
        = (&'k Q, u64)
    where
        Q: 'k;

    type Ticket<'s>
        = KeyedTicket<'s, K, A>
    where
        Self: 's;

    #[inline(always)]
    fn prepare<'k>(&self, key: &'k Q) -> (&'k Q, u64) {
        (key, self.hash(key))
    }

    #[inline(always)]
    fn prefetch(&self, (_, hash): (&Q, u64)) {
        // The line arrives from another core while the caller reads the clock and pins, which takes about as long.
        self.table.prefetch_line(hash);
    }

    #[inline(always)]
    fn apply(&self, (key, hash): (&Q, u64), operation: Operation, at: CheckTime, cost: u64) -> Decision {
        match operation {
            Operation::Check => self.check_by(&self.algorithm, (key, hash), at.ns(), cost),
            rarer => {
                let decision = self.act_rarely(key, hash, Action::Apply(rarer), at.ns(), cost);
                self.beyond.after(rarer, decision, &self.algorithm)
            }
        }
    }

    fn check_each<'k>(
        &self,
        requests: impl Iterator<Item = ((&'k Q, u64), u64)>,
        at: CheckTime,
        mut decided: impl FnMut(Decision),
    ) where
        Q: 'k,
    {
        let mut guard = reclaim::pin();
        let mut requests = requests.peekable();
        while requests.peek().is_some() {
            let mut batch = [None; BATCH];
            for (place, request) in batch.iter_mut().zip(requests.by_ref()) {
                self.table.prefetch_line(request.0.1);
                *place = Some(request);
            }
            for ((_, hash), _) in batch.iter().flatten() {
                self.table.prefetch_node(*hash, &guard);
            }
            for ((key, hash), cost) in batch.into_iter().flatten() {
                decided(self.charge_hashed(&self.algorithm, key, hash, at.ns(), cost, &guard));
            }
            guard.repin();
        }
    }

    fn peek(&self, (key, hash): (&Q, u64), at: CheckTime, cost: u64) -> Decision {
        let guard = reclaim::pin();
        self.live(key, hash, &guard)
            .and_then(|node| node.state.peek(&self.algorithm, at.ns(), cost).ok())
            .unwrap_or_else(|| peek_fresh(&self.algorithm, at.ns(), cost))
    }

    #[inline(always)]
    fn decide(&self, (key, hash): (&Q, u64), at: CheckTime, cost: u64) -> KeyedTicket<'_, K, A> {
        let guard = reclaim::pin();
        let found = self.table.get(hash, &guard, |held| key.is(held)).ok().and_then(|node| {
            let admission = node.state.prepare(&self.algorithm, at.ns(), cost).ok()?;
            Some((NonNull::from(node), admission))
        });
        let (node, admission) = match found {
            Some((node, admission)) => (Some(node), admission),
            None => (None, Admission::denied(self.peek((key, hash), at, cost))),
        };
        let (algorithm, now_ns) = (&self.algorithm, at.ns());
        KeyedTicket { node, admission, algorithm, now_ns, guard }
    }

    const BLOCKS: bool = A::BLOCKS;

    #[inline(always)]
    fn block(&self, (key, hash): (&Q, u64), at: CheckTime, denial: Decision) -> Decision {
        if !A::BLOCKS || denial.outcome() != Outcome::Denied {
            return denial;
        }
        let guard = reclaim::pin();
        let Some(node) = self.live(key, hash, &guard) else {
            // The key owes nothing by now, or the store denied it because it was full. A new key with a first fill begins now.
            if A::HAS_FIRST_FILL {
                let _ = self.act_rarely(key, hash, Action::Apply(Operation::Force), at.ns(), 0);
            }
            return denial;
        };
        let now = node.state.block(&self.algorithm, at.ns(), denial.cost());
        now.ok().filter(Decision::is_denied).unwrap_or(denial)
    }

    /// Returns 0 for a key that was removed.
    fn refund(&self, key: (&Q, u64), at: CheckTime, charge: &Decision, units: u64) -> u64 {
        self.take_back(key, Refund { charge: Some(charge), units, now_ns: at.ns() })
    }

    /// Returns 0 for a key that was removed.
    fn give_back(&self, key: (&Q, u64), at: CheckTime, units: u64) -> u64 {
        self.take_back(key, Refund { charge: None, units, now_ns: at.ns() })
    }

    fn key_hash(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    fn refund_traced<B: BuildHasher>(&self, key: KeyTrace<'_, B>, at: CheckTime, charge: &Decision) -> u64 {
        let (guard, units) = (reclaim::pin(), charge.charged());
        let refund = Refund { charge: Some(charge), units, now_ns: at.ns() };
        let found = self.table.find(self.table.hash(key.hash), &guard, |held| key.is(held)).ok();
        found.and_then(|held| held.node.state.refund(&self.algorithm, &refund).ok()).unwrap_or(0)
    }
}

impl<K, A: Algorithm, H> StoreBase for Keyed<K, A, H> {
    fn can_refund(&self) -> bool {
        A::CAN_REFUND
    }

    fn burst(&self) -> u64 {
        self.algorithm.burst()
    }
}

impl<K, A, H> States for Keyed<K, A, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
{
    fn clear(&self) {
        self.remove_if(|node| node.state.kill() == Kill::Done);
    }

    /// The bytes kept for the keys: their nodes, their part of the table, and tail words in allocations of their own.
    fn state_bytes(&self) -> usize {
        // Only a tail that is an allocation of its own needs to be dropped.
        let is_boxed = std::mem::needs_drop::<A::Tail>();
        let elsewhere = if is_boxed { self.algorithm.tail_len() * size_of::<u64>() } else { 0 };
        self.table.bytes() + self.len() * elsewhere
    }
}

impl<K, A: Algorithm, H> PresentStore for Keyed<K, A, H> {
    type Store = Self;

    fn present<T>(&self, property: impl FnOnce(&Self) -> T) -> T {
        property(self)
    }
}

impl<K, A, H, Q> CheckWith<Q> for Keyed<K, A, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
    Q: Lookup<K> + ?Sized,
{
    type Quota = A;

    #[inline(always)]
    fn check_with(&self, key: (&Q, u64), algorithm: &A, at: CheckTime, cost: u64) -> Decision {
        let decision = self.check_by(readable(&self.algorithm, algorithm), key, at.ns(), cost);
        self.beyond.note(&decision, &self.algorithm);
        decision
    }

    fn readable_quota(&self, algorithm: &A) -> Option<A> {
        self.algorithm.reading(algorithm)
    }
}

/// A key that a lookup has not found.
struct Absent<'g, Q: ?Sized> {
    key: &'g Q,
    hash: u64,
    /// The empty slot at which the lookup ended, if it ended at one.
    slot: Option<&'g AtomicU64>,
    guard: &'g Pinned,
}

impl<K, A: Algorithm, H> fmt::Debug for Keyed<K, A, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed")
            .field("algorithm", &self.algorithm)
            .field("cap", &self.cap.as_ref().map(|cap| (cap.max, cap.when_full)))
            .finish_non_exhaustive()
    }
}
