//! The operations that a store applies to a key.

use core::array::from_fn;
use core::hash::{BuildHasher, Hash};
#[cfg(feature = "std")]
use core::{cell::OnceCell, ptr::NonNull};

use crate::algorithm::step::BlockRest;
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{Quota, QuotaError};
#[cfg(feature = "std")]
use crate::base::reclaim::Pinned;
#[cfg(feature = "std")]
use crate::base::sync::{AtomicU64, Ordering};

/// How a store handles a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Charges all of the cost if there is room for it now, or nothing.
    Check,
    /// Charges all of the cost if there is room now for the cost and the headroom, or nothing. The figures of a denial
    /// are for the sum of both.
    CheckKeeping {
        /// The units that stay free.
        headroom: u64,
    },
    /// Charges as much of the cost as possible while the headroom stays free. Denies the request if that is nothing.
    TakeKeeping {
        /// The units that stay free.
        headroom: u64,
    },
    /// Charges all of the cost, even if there is no room.
    Force,
    /// Decides like `Check` a cost up to the burst. Charges all of a larger cost if a whole burst is free and the state can
    /// hold the debt, or nothing. A denial starts no block.
    CheckOversized,
    /// Charges as much of the cost as there is room for. Denies the request if that is nothing.
    Take,
    /// Charges all of the cost now, if there is room for it within `wait_ns` nanoseconds.
    Reserve {
        /// The longest wait.
        wait_ns: u64,
    },
}

impl Operation {
    /// Returns the same operation, but its denial starts no block.
    #[allow(dead_code, reason = "only some stores need it")]
    pub(crate) const fn without_block(self) -> Self {
        match self {
            Self::Check => Self::CheckKeeping { headroom: 0 },
            Self::Take => Self::TakeKeeping { headroom: 0 },
            other => other,
        }
    }
}

/// The number of keys whose memory is prefetched before they are checked.
pub(crate) const BATCH: usize = 16;

/// A store that takes keys of type `Q`. Sealed: only this crate can name the types in its methods.
///
/// Code for limiters of any store names it as a bound:
///
/// ```
/// use tollgate::stores::{ManyKeys, Store};
/// use tollgate::{Quota, RateLimiter};
///
/// fn may_log_in<S: ManyKeys + Store<str>>(limiter: &RateLimiter<S>, user: &str) -> bool {
///     limiter.check(user).is_allowed()
/// }
/// assert!(may_log_in(&RateLimiter::new(Quota::per_minute(5)), "alice"));
/// ```
// 1. The caller prepares a key and prefetches its memory.
// 2. The caller reads its clock while the memory arrives.
// 3. The caller applies one operation.
//
// `Direct` treats all keys as the same key.
pub trait Store<Q: ?Sized>: StoreBase {
    /// A key in the form that the store uses for a search.
    #[doc(hidden)]
    type Prepared<'k>: Copy
    where
        Q: 'k;

    /// A check that is decided but not yet charged.
    #[doc(hidden)]
    type Ticket<'s>: Ticket
    where
        Self: 's;

    /// Computes where a key belongs.
    #[doc(hidden)]
    fn prepare<'k>(&self, key: &'k Q) -> Self::Prepared<'k>;

    /// Prefetches the memory of a key.
    #[doc(hidden)]
    #[inline(always)]
    fn prefetch(&self, key: Self::Prepared<'_>) {
        let _ = key;
    }

    /// Decides and charges.
    #[doc(hidden)]
    fn apply(&self, key: Self::Prepared<'_>, operation: Operation, at: CheckTime, cost: u64) -> Decision;

    /// Applies [`Operation::Check`] to each of `requests` (a key and a cost) in order, and passes the decisions to
    /// `decided`.
    #[doc(hidden)]
    #[inline(always)]
    fn check_each<'k>(
        &self,
        requests: impl Iterator<Item = (Self::Prepared<'k>, u64)>,
        at: CheckTime,
        mut decided: impl FnMut(Decision),
    ) where
        Q: 'k,
    {
        in_batches(
            requests,
            |key| self.prefetch(key),
            |key, cost| decided(self.apply(key, Operation::Check, at, cost)),
        );
    }

    /// Returns the decision of [`Operation::Check`], without a charge.
    #[doc(hidden)]
    fn peek(&self, key: Self::Prepared<'_>, at: CheckTime, cost: u64) -> Decision;

    /// Decides as [`Operation::Check`] would, and leaves the charge to the ticket.
    #[doc(hidden)]
    fn decide(&self, key: Self::Prepared<'_>, at: CheckTime, cost: u64) -> Self::Ticket<'_>;

    /// The first part of [`Store::decide`]: returns a ticket. [`Ticket::peek`] then makes the decision.
    #[doc(hidden)]
    #[inline(always)]
    fn aim(&self, key: Self::Prepared<'_>, at: CheckTime, cost: u64) -> Self::Ticket<'_> {
        self.decide(key, at, cost)
    }

    /// Whether a denial can start a block.
    #[doc(hidden)]
    const BLOCKS: bool = false;

    /// Starts the block of a request that a peek has denied, if the algorithm has blocks. Returns the denial afterwards.
    #[doc(hidden)]
    #[inline(always)]
    fn block(&self, key: Self::Prepared<'_>, at: CheckTime, denial: Decision) -> Decision {
        let _ = (key, at);
        denial
    }

    /// Takes back up to `units` of a charge, as far as they are still owed. Returns the number of units taken back.
    #[doc(hidden)]
    fn refund(&self, key: Self::Prepared<'_>, at: CheckTime, charge: &Decision, units: u64) -> u64;

    /// Takes back up to `units` of what the key owes, whichever calls charged them. Returns the number of units taken back.
    #[doc(hidden)]
    fn give_back(&self, key: Self::Prepared<'_>, at: CheckTime, units: u64) -> u64;

    /// The hash by which [`Store::refund_traced`] finds the key.
    #[doc(hidden)]
    fn key_hash(&self, key: &Q) -> u64;

    /// [`Store::refund`] of a whole charge, for a key that the caller does not have any more.
    #[doc(hidden)]
    fn refund_traced<B: BuildHasher>(&self, key: KeyTrace<'_, B>, at: CheckTime, charge: &Decision) -> u64;
}

/// What a caller keeps of a key, so that a store finds the key again. Public in a private module.
#[derive(Copy, Clone, Debug)]
pub struct KeyTrace<'h, B> {
    /// [`Store::key_hash`] of the key.
    pub hash: u64,
    /// The key's hash by `hasher`, which tells it from other keys with the same `hash`.
    pub own: u64,
    /// The caller's hasher.
    pub hasher: &'h B,
}

impl<B: BuildHasher> KeyTrace<'_, B> {
    /// Returns whether this is the key.
    #[allow(dead_code, reason = "only stores of whole keys need it")]
    pub(crate) fn is(&self, key: &impl Hash) -> bool {
        self.hasher.hash_one(key) == self.own
    }
}

/// The part of a [`Store`] that does not depend on the type of the keys. Public in a private module: sealed.
pub trait StoreBase {
    /// Whether a charge can be taken back, even after later charges.
    #[doc(hidden)]
    fn can_refund(&self) -> bool;

    /// The largest number of units that is ever admitted at once.
    #[doc(hidden)]
    fn burst(&self) -> u64;
}

/// A check that is decided but not yet charged. Public in a private module.
pub trait Ticket {
    /// The second part of [`Store::decide`]: loads the key's state and decides.
    #[inline(always)]
    fn peek(&mut self) -> Peeked {
        Peeked::Decided
    }

    /// The outcome of the decision.
    fn outcome(&self) -> Outcome;

    /// Charges the request if the state has not changed since the decision.
    fn exchange(&self) -> Exchange;

    /// The decision after the charge.
    fn charged(&self) -> Decision;

    /// The decision if the request is not charged: the same outcome, with the current figures.
    fn uncharged(&self) -> Decision;

    /// The charge of an admitted request, if it is one exchange and nothing else.
    #[cfg(feature = "std")]
    #[inline(always)]
    fn into_word<'t>(self, _pins: &'t Pins) -> Option<WordTicket<'t>>
    where
        Self: Sized + 't,
    {
        None
    }
}

/// Keeps the nodes of the words of all [`WordTicket`]s of one request.
#[cfg(feature = "std")]
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "a guard has none")]
pub struct Pins(OnceCell<Pinned>);

#[cfg(feature = "std")]
impl Pins {
    /// Keeps a guard. All guards of a thread are one pin, so the first guard also keeps what later ones have found.
    fn keep(&self, guard: Pinned) {
        let _ = self.0.set(guard);
    }
}

/// A charge that is one exchange of one word, in a store of any kind.
#[cfg(feature = "std")]
#[derive(Copy, Clone, Debug)]
pub struct WordTicket<'s> {
    word: &'s AtomicU64,
    seen: u64,
    next: u64,
}

#[cfg(feature = "std")]
impl<'s> WordTicket<'s> {
    /// Exchanges a word of the store, which lives as long as the store.
    #[inline(always)]
    pub(crate) const fn new(word: &'s AtomicU64, seen: u64, next: u64) -> Self {
        Self { word, seen, next }
    }

    /// Exchanges a word of a node.
    ///
    /// # Safety
    /// The node was found under the guard, in a store that lives for `'s`.
    #[inline(always)]
    pub(crate) unsafe fn of_node(
        word: NonNull<AtomicU64>,
        [seen, next]: [u64; 2],
        (guard, pins): (Pinned, &'s Pins),
    ) -> Self {
        pins.keep(guard);
        // SAFETY: a node lives as long as the guard, and `pins` keeps it, or an earlier one of this thread, for `'s`.
        Self { word: unsafe { word.as_ref() }, seen, next }
    }

    /// Charges the request if the word has not changed since the decision.
    #[inline(always)]
    pub fn exchange(&self) -> Exchange {
        // Ordering: AcqRel, as for each exchange that charges a word: see `SlotTable::check` and `KeyState`. Nothing depends on
        // the word of a lost exchange.
        self.word.compare_exchange(self.seen, self.next, Ordering::AcqRel, Ordering::Relaxed).into()
    }
}

/// The ticket of a store that charges by more than one exchange. The caller decides the request again.
impl Ticket for Decision {
    fn outcome(&self) -> Outcome {
        Self::outcome(self)
    }

    fn exchange(&self) -> Exchange {
        Exchange::Lost
    }

    fn charged(&self) -> Decision {
        *self
    }

    fn uncharged(&self) -> Decision {
        *self
    }
}

impl Operation {
    /// Whether the operation may leave a key with a debt beyond the burst.
    pub(crate) const fn goes_beyond(self) -> bool {
        matches!(self, Self::Force | Self::CheckOversized | Self::Reserve { .. })
    }
}

/// The result of [`Ticket::peek`].
#[must_use]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Peeked {
    /// The ticket is decided.
    Decided,
    /// The ticket is not decided, because its charge takes more than one exchange. The caller uses [`Store::decide`]
    /// instead.
    Undecided,
}

/// The result of an exchange.
#[must_use]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Exchange {
    /// The exchange took effect.
    Done,
    /// The word had changed. Nothing was written, and the caller decides again.
    Lost,
}

impl<T, E> From<Result<T, E>> for Exchange {
    #[inline(always)]
    fn from(exchanged: Result<T, E>) -> Self {
        if exchanged.is_ok() { Self::Done } else { Self::Lost }
    }
}

/// Checks requests in order, and prefetches the memory of [`BATCH`] requests at a time.
#[inline(always)]
pub(crate) fn in_batches<P: Copy>(
    requests: impl Iterator<Item = (P, u64)>,
    prefetch: impl Fn(P),
    mut check: impl FnMut(P, u64),
) {
    let mut requests = requests.fuse();
    while let Some(first) = requests.next() {
        let mut len = 0;
        let batch: [(P, u64); BATCH] = from_fn(|index| {
            let request = if index == 0 { Some(first) } else { requests.next() };
            request.map_or(first, |request| {
                prefetch(request.0);
                len += 1;
                request
            })
        });
        for &(key, cost) in &batch[..len] {
            check(key, cost);
        }
    }
}

/// A store that finds keys by a 64-bit hash and does not keep them: [`Compact`](crate::Compact) and
/// [`Sketch`](crate::Sketch). Sealed.
///
/// Such a store prepares keys of all types in the same way: by their hash. So the trait requires only `Store<u64>`.
pub trait HashedStore: Store<u64> + ManyKeys {
    /// The hash of a key.
    #[doc(hidden)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64;

    /// The prepared key for a hash.
    #[doc(hidden)]
    fn prepare_hash(&self, hash: u64) -> Self::Prepared<'static>;
}

/// The debts of keys under one algorithm and quota. Public in a private module.
pub trait Debts {
    /// The time in nanoseconds after which `units` are paid, if they are charged to a new key at `at_ns`.
    fn paid_in_ns(&self, at_ns: u64, units: u64) -> u64;

    /// The units that a new key still owes at `now_ns`, if `units` were charged to it at `at_ns`.
    fn left(&self, at_ns: u64, units: u64, now_ns: u64) -> u64;

    /// The longest time in nanoseconds for which a denial can block a key.
    fn longest_block_ns(&self) -> u64 {
        0
    }

    /// The largest number of units that is ever admitted at once.
    fn burst(&self) -> u64;

    /// The units that a key owes according to a decision of this store.
    fn owed(&self, decision: &Decision) -> u64;
}

/// Returns the decision for one key at a time, without a charge.
pub(crate) type PeekAt<'p> = dyn Fn(CheckTime) -> Decision + 'p;

/// What a key owes, and as of when.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Debt {
    /// The time in nanoseconds.
    pub at_ns: u64,
    /// The units that the key owes at that time.
    pub units: u64,
    /// What is left of the key's blocks at that time. A store without blocks ignores it.
    pub block: BlockRest,
}

/// The way in which the debts of all keys are carried over into another store.
#[derive(Copy, Clone)]
#[cfg_attr(feature = "std", expect(missing_debug_implementations, reason = "a function has none"))]
pub struct CarryOver<'a> {
    /// The time of the call.
    pub when: CheckTime,
    /// The time of the change, in nanoseconds.
    pub at_ns: u64,
    /// Returns the debt of a key in the new store.
    pub owed: &'a dyn Fn(&PeekAt<'_>) -> Debt,
}

impl CarryOver<'_> {
    /// The debt of a key in the new store. `before` is the decision for the key at the time of the change, and `peek`
    /// returns the decision at another time.
    pub(crate) fn debt(&self, before: Decision, peek: impl Fn(CheckTime) -> Decision) -> Debt {
        (self.owed)(&|at| if at.ns() == self.at_ns { before } else { peek(at) })
    }
}

/// Whether the debts of all keys were carried over.
#[must_use]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CarriedOver {
    /// Each key that owes has its debt in the other store.
    All,
    /// The store cannot list its keys, or the other store had no room for some of them.
    NotAll,
}

impl From<bool> for CarriedOver {
    fn from(all: bool) -> Self {
        if all { Self::All } else { Self::NotAll }
    }
}

/// A store that can carry debts over to and from another store. Public in a private module: sealed.
pub trait Migrate: Sized {
    /// The debts of the keys in this store.
    fn debts(&self) -> &dyn Debts;

    /// Whether it is known that no key owes more than the burst.
    fn is_known(&self) -> bool;

    /// A bound of the times of all charges that still owe, if the store has one.
    fn newest_ns(&self) -> u64 {
        u64::MAX
    }

    /// The latest time at which a charge may have left a key with a debt beyond the burst, or `None` if the store had no
    /// such charge.
    fn beyond_ns(&self) -> Option<u64>;

    /// Whether a key owes more than a burst, instead of having been charged later than a change of the quota. The change
    /// asks this about a key whose state is more than a burst ahead, because the state alone does not tell the two causes
    /// apart. The key owes exactly a burst at `owes_burst_ns`. So a later charge was made at that time, and if the store
    /// knows that all of its charges were earlier, only a debt beyond the burst is left. A store that does not know the
    /// time of its charges answers yes if it ever had such a debt.
    fn may_owe_beyond(&self, owes_burst_ns: u64) -> bool {
        let newest_ns = self.newest_ns();
        self.beyond_ns().is_some() && (newest_ns == u64::MAX || owes_burst_ns > newest_ns)
    }

    /// Whether keys can carry debts over from this store and into it.
    fn migrates(&self) -> bool {
        true
    }

    /// Charges the debt of each key to the same key in another store, if the other store does not have it yet.
    fn carry_all(&self, into: &Self, carry: CarryOver<'_>) -> CarriedOver;
}

/// A store whose quota can change while it is in use ([`RateLimiter::adjustable`](crate::RateLimiter::adjustable)).
/// Sealed.
pub trait Rebuild: Migrate + Send + Sync + 'static {
    /// Returns an empty store of the same kind and size with another quota.
    ///
    /// # Errors
    /// Returns an error if the store cannot hold the quota.
    #[doc(hidden)]
    fn rebuild(&self, quota: &Quota) -> Result<Self, QuotaError>;

    /// Returns the same store, but with the counts of this one if both can share them.
    ///
    /// # Errors
    /// The same as for [`Rebuild::rebuild`].
    #[doc(hidden)]
    fn rebuild_shared(&self, quota: &Quota) -> Result<Self, QuotaError> {
        self.rebuild(quota)
    }
}

/// A store that can take over a key by its debt. Public in a private module: sealed.
pub trait Inherit<Q: ?Sized>: Store<Q> {
    /// Whether the key has a state in this store.
    fn holds(&self, key: &Q) -> bool;

    /// Whether the key was ever charged in this store, as far as the store can determine.
    fn knew(&self, key: &Q) -> bool;

    /// Charges a debt to a key, if the key has no state here. Returns a denial if there is no room for the key, unless the
    /// store admits such keys without a state.
    fn seed(&self, key: &Q, when: CheckTime, debt: Debt) -> Option<Decision>;

    /// [`Inherit::seed`]. Returns whether the debt is now in this store.
    #[allow(dead_code, reason = "only some stores need it")]
    fn is_seeded(&self, key: &Q, when: CheckTime, debt: Debt) -> bool {
        debt.units == 0 || (self.seed(key, when, debt).is_none() && self.holds(key))
    }

    /// Forgets all that a key owes, and its block. Returns `false` if the store cannot.
    fn forget(&self, key: &Q) -> bool;

    /// Blocks a key for this number of nanoseconds, and at least as long as it is blocked already. Returns `false` if the
    /// store has no blocks, or no room for the key.
    fn block_for(&self, key: &Q, when: CheckTime, block_ns: u64) -> bool;
}

/// A store of many keys: all but [`Direct`](crate::Direct) and leases. See [`Store`].
pub trait ManyKeys {}
