//! What can be asked of a store for a key.

use core::array::from_fn;
use core::hash::Hash;

use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{Quota, QuotaError};

/// How a request is taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// All of the cost if there is room now, or nothing.
    Check,
    /// All of the cost if there is room now for it and the headroom, or nothing. A refusal is of both.
    CheckKeeping {
        /// The units that stay free.
        headroom: u64,
    },
    /// As much of the cost as leaves the headroom free; denied if that is nothing.
    TakeKeeping {
        /// The units that stay free.
        headroom: u64,
    },
    /// All of the cost, room or not.
    Force,
    /// As much of the cost as there is room for; denied if that is nothing.
    Take,
    /// All of the cost if there will be room within so many nanoseconds, charged now.
    Reserve {
        /// The longest wait.
        wait_ns: u64,
    },
}

/// Keys whose memory is fetched before they are checked.
pub(crate) const BATCH: usize = 16;

/// A store that can be asked for keys of type `Q`. Public in a private module: sealed.
///
/// A caller prepares a key, asks for its memory, reads its clock while the memory comes, and then asks for one operation.
/// [`Direct`](crate::Direct) takes any key for the same.
pub trait Store<Q: ?Sized> {
    /// A key as the store finds it.
    type Prepared<'k>: Copy
    where
        Q: 'k;

    /// A check that is decided and not charged yet.
    type Ticket<'s>: Ticket
    where
        Self: 's;

    /// Finds out where a key belongs.
    fn prepare<'k>(&self, key: &'k Q) -> Self::Prepared<'k>;

    /// Asks for a key's memory.
    #[inline(always)]
    fn prefetch(&self, key: Self::Prepared<'_>) {
        let _ = key;
    }

    /// Decides and charges.
    fn apply(&self, key: Self::Prepared<'_>, operation: Operation, at: CheckTime, cost: u64) -> Decision;

    /// Applies [`Operation::Check`] to each of `requests`, a key and a cost, in order, and hands the decisions over.
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

    /// What [`Operation::Check`] would decide, uncharged.
    fn peek(&self, key: Self::Prepared<'_>, at: CheckTime, cost: u64) -> Decision;

    /// Decides what [`Operation::Check`] would, and leaves the charge to the ticket.
    fn decide(&self, key: Self::Prepared<'_>, at: CheckTime, cost: u64) -> Self::Ticket<'_>;

    /// The first part of [`Store::decide`]: a ticket that [`Ticket::look`] decides.
    #[inline(always)]
    fn aim(&self, key: Self::Prepared<'_>, at: CheckTime, cost: u64) -> Self::Ticket<'_> {
        self.decide(key, at, cost)
    }

    /// Takes back what is still owed of up to `units` of a charge: how many units.
    fn refund(&self, key: Self::Prepared<'_>, at: CheckTime, charge: &Decision, units: u64) -> u64;

    /// Whether charges can be taken back whatever was charged since.
    fn can_refund(&self) -> bool;
}

/// A check that is decided and not charged yet. Public in a private module.
pub trait Ticket {
    /// The second part of [`Store::decide`]: loads the key's state and decides.
    #[inline(always)]
    fn look(&mut self) -> Look {
        Look::Decided
    }

    /// What was decided.
    fn outcome(&self) -> Outcome;

    /// Charges it, if nothing has changed since.
    fn exchange(&self) -> Exchange;

    /// The answer once it is charged.
    fn charged(&self) -> Decision;

    /// The answer if it is not charged: what was decided, with the figures as they stand.
    fn uncharged(&self) -> Decision;
}

/// The ticket of a store that charges by more than one exchange: the request is decided again.
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

/// What came of a look at a key.
#[must_use]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// The ticket is decided.
    Decided,
    /// The ticket is not decided, since one exchange would not suffice to charge it. The caller uses [`Store::decide`] instead.
    Elsewhere,
}

/// What came of an exchange.
#[must_use]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Exchange {
    /// It took effect.
    Done,
    /// The word was another one: nothing was written, and the caller decides again.
    Lost,
}

impl<T, E> From<Result<T, E>> for Exchange {
    #[inline(always)]
    fn from(exchanged: Result<T, E>) -> Self {
        if exchanged.is_ok() { Self::Done } else { Self::Lost }
    }
}

/// Checks requests in order, the memory of [`BATCH`] of them asked for at once.
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

/// A store that keeps no keys, but finds them by a 64-bit hash: [`Compact`](crate::Compact) and
/// [`Sketch`](crate::Sketch). Sealed.
///
/// It prepares keys of all types alike, so the trait asks for one of them.
pub trait HashedStore: Store<u64> + ManyKeys {
    /// The hash of a key.
    #[doc(hidden)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64;

    /// The key of a hash.
    #[doc(hidden)]
    fn prepare_hash(&self, hash: u64) -> Self::Prepared<'static>;

    /// Forgets everything.
    #[doc(hidden)]
    fn clear(&self);

    /// The bytes of all states.
    #[doc(hidden)]
    fn state_bytes(&self) -> usize;
}

/// What keys owe by one algorithm and quota. Public in a private module.
pub trait Debts {
    /// The time in which `units`, charged to a new key at `at_ns`, are paid, in nanoseconds.
    fn paid_in_ns(&self, at_ns: u64, units: u64) -> u64;

    /// What a new key owes at `now_ns` of `units` that were charged to it at `at_ns`.
    fn left(&self, at_ns: u64, units: u64, now_ns: u64) -> u64;

    /// The most that is ever admitted at once.
    fn burst(&self) -> u64;

    /// The units that a key owes by an answer of this store.
    fn owed(&self, decision: &Decision) -> u64;
}

/// How the debts of all keys are carried over into another store.
#[derive(Copy, Clone)]
#[cfg_attr(feature = "std", expect(missing_debug_implementations, reason = "a function has none"))]
pub struct CarryOver<'a> {
    /// The time of the call.
    pub when: CheckTime,
    /// The time as of which each key's answer is asked for, in nanoseconds.
    pub at_ns: u64,
    /// As of when a key of such an answer owes, in nanoseconds, and how many units.
    pub owed: &'a dyn Fn(&Decision) -> (u64, u64),
}

/// What came of carrying the debts of all keys over.
#[must_use]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CarriedOver {
    /// Each key that owes has its debt in the other store.
    All,
    /// Keys cannot be listed, or there was no room for some.
    NotAll,
}

impl From<bool> for CarriedOver {
    fn from(all: bool) -> Self {
        if all { Self::All } else { Self::NotAll }
    }
}

/// A store from which, and into which, what keys owe can be carried over. Public in a private module: sealed.
pub trait Migrate: Sized {
    /// What keys owe here.
    fn debts(&self) -> &dyn Debts;

    /// Whether no key owes more than the burst.
    fn is_known(&self) -> bool;

    /// Charges what each key owes to the same key in another store, if that has none of it.
    fn carry_all(&self, into: &Self, carry: CarryOver<'_>) -> CarriedOver;
}

/// A store whose quota can change while it is in use. Public in a private module: sealed.
pub trait Rebuild: Migrate {
    /// An empty store of the same kind and size with another quota.
    ///
    /// # Errors
    /// If it cannot hold the quota.
    fn rebuild(&self, quota: &Quota) -> Result<Self, QuotaError>;
}

/// A store that a key can be taken over into, by what it owes. Public in a private module: sealed.
pub trait Inherit<Q: ?Sized>: Store<Q> {
    /// Whether the key has a state here.
    fn holds(&self, key: &Q) -> bool;

    /// Whether the key was ever charged here, as far as can be told.
    fn knew(&self, key: &Q) -> bool;

    /// Charges `units` as of `at_ns` to a key that has no state here; else nothing. A refusal, if there is no room for the key.
    fn seed(&self, key: &Q, when: CheckTime, at_ns: u64, units: u64) -> Option<Decision>;
}

/// A store of many keys. Public in a private module: sealed.
pub trait ManyKeys {}
