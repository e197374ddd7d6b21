//! A store whose units can be held: taken now, and settled later.
//!
//! A hold is a charge in the store below, and a note of the charge in a book. The store below has no holds of its own,
//! so every algorithm that can refund has them. The book decides who settles a hold; see `book`.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    rustdoc::private_intra_doc_links,
    reason = "users do not see this module; only packages of this repository use it"
)]

mod book;
mod id;
#[cfg(all(test, tollgate_loom))]
mod models;
pub mod saved;

use core::fmt;
use core::hash::{BuildHasher, Hash};

pub use self::book::{Held, HoldBook, KeyStanding, NotKept};
pub use self::id::HoldId;

use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Facts, Outcome};
use crate::store::op::{KeyTrace, ManyKeys, Operation, Store, StoreBase};

/// A store with [holds](crate::RateLimiter::hold): units that are taken now and settled later. Created by
/// [`RateLimiter::with_holds`](crate::RateLimiter::with_holds).
pub struct Holding<S> {
    store: S,
    book: HoldBook<Charge>,
}

/// The charge of a hold.
#[derive(Copy, Clone, Debug)]
struct Charge {
    decision: Decision,
    /// The hash by which the store finds the key without a caller's key. A request of any key can need the place of the
    /// hold once it has ended.
    key: u64,
}

/// How long a client should wait if there are too many holds.
const FULL_RETRY_NS: u64 = 1_000_000_000;

/// The denial of a request because there are too many holds.
pub fn no_room(cost: u64, limit: u64, now_ns: u64) -> Decision {
    let facts = Facts::Plain { remaining: 0, retry_ns: FULL_RETRY_NS, reset_ns: FULL_RETRY_NS, delay_ns: 0 };
    Decision::new(Outcome::Denied, cost, limit, now_ns, facts).uncharged()
}

/// Begins a request of `units` units with this identity, if the key then has at most `limit` units in progress. Requests
/// whose life has ended do not count. Returns the decision. `release` gives back the units of a hold that lies in the same
/// book, has ended, and makes room.
pub fn enter<C: Default>(
    book: &HoldBook<C>,
    (hash, id): (u64, HoldId),
    units: u64,
    (limit, now_ns): (u64, u64),
    release: impl FnMut(u64, &Held<C>),
) -> Decision {
    book.release_ended(hash, now_ns, |_| {});
    let hold = Held { units, charge: C::default() };
    match book.keep((hash, id), hold, (limit, now_ns), release) {
        Ok(standing) => in_progress(Outcome::Allowed, units, standing, (limit, now_ns)),
        Err(NotKept::KeyFull(standing)) => key_full(units, standing, (limit, now_ns)),
        Err(NotKept::BookFull) => no_room(units, limit, now_ns),
    }
}

/// The denial of a request of `units` units because its key would have more than its limit.
pub fn key_full(units: u64, standing: KeyStanding, (limit, now_ns): (u64, u64)) -> Decision {
    let outcome = if units > limit { Outcome::Never } else { Outcome::Denied };
    in_progress(outcome, units, standing, (limit, now_ns))
}

/// Returns the decision about a request of `units` units if the key has these units in progress.
pub fn in_progress(
    outcome: Outcome,
    units: u64,
    standing: KeyStanding,
    (limit, now_ns): (u64, u64),
) -> Decision {
    let used = u64::try_from(standing.units).unwrap_or(u64::MAX);
    let (first, last) = standing.ends_ns.unwrap_or((now_ns, now_ns));
    let facts = Facts::Plain {
        remaining: limit.saturating_sub(used),
        retry_ns: first.saturating_sub(now_ns),
        reset_ns: last.saturating_sub(now_ns),
        delay_ns: 0,
    };
    Decision::new(outcome, units, limit, now_ns, facts).uncharged()
}

impl<S> Holding<S> {
    pub(crate) fn new(store: S, most: usize) -> Self {
        Self { store, book: HoldBook::new(most) }
    }

    /// Returns the number of holds.
    pub(crate) fn holds(&self) -> usize {
        self.book.len()
    }

    /// Charges `units`, and notes the charge until `end_ns`. Returns the denial if there is no room.
    pub(crate) fn hold<Q: Hash + ?Sized>(
        &self,
        key: &Q,
        at: CheckTime,
        units: u64,
        end_ns: u64,
    ) -> Result<(HoldId, Decision), Decision>
    where
        S: Store<Q>,
    {
        let prepared = self.prepare(key);
        let charge = self.apply(prepared, Operation::Check, at, units);
        if !charge.is_allowed() {
            return Err(charge);
        }
        let id = HoldId::unique(end_ns);
        let noted = Charge { decision: charge, key: self.store.key_hash(key) };
        let hold = Held { units, charge: noted };
        let release = |hash, ended: &Held<Charge>| {
            let trace = KeyTrace { hash: ended.charge.key, hasher: self.book.hasher(), own: hash };
            self.store.refund_traced(trace, at, &ended.charge.decision);
        };
        match self.book.keep((prepared.1, id), hold, (u64::MAX, at.ns()), release) {
            Ok(_) => Ok((id, charge)),
            Err(NotKept::BookFull | NotKept::KeyFull(_)) => {
                self.store.refund(prepared.0, at, &charge, units);
                Err(no_room(units, charge.limit(), at.ns()))
            }
        }
    }

    /// Removes a hold, and returns its charge, which the caller settles. Returns `None` if the hold was settled before, or if
    /// its life has ended: then this call releases it, so that all later decisions find its units.
    pub(crate) fn take<Q: Hash + ?Sized>(&self, key: &Q, id: HoldId, at: CheckTime) -> Option<Decision>
    where
        S: Store<Q>,
    {
        let settle = |id: HoldId, held: Held<Charge>| {
            if at.ns() < id.end_ns() {
                return Some(held.charge.decision);
            }
            self.store.refund(self.store.prepare(key), at, &held.charge.decision, held.units);
            None
        };
        self.book.take(self.book.hash(key), id, settle).flatten()
    }

    /// Releases a hold. Returns the units that were given back.
    pub(crate) fn release<Q: Hash + ?Sized>(&self, key: &Q, id: HoldId, at: CheckTime) -> u64
    where
        S: Store<Q>,
    {
        let refund = |_, held: Held<Charge>| {
            self.store.refund(self.store.prepare(key), at, &held.charge.decision, held.units)
        };
        self.book.take(self.book.hash(key), id, refund).unwrap_or(0)
    }

    /// Asks the store. If it denies, releases the ended holds of the key, and asks again. `ask` also receives whether
    /// this is the last time.
    fn ask<Q: ?Sized>(
        &self,
        (key, hash): (S::Prepared<'_>, u64),
        at: CheckTime,
        ask: impl Fn(S::Prepared<'_>, bool) -> Decision,
    ) -> Decision
    where
        S: Store<Q>,
    {
        // The number is read before the store is asked; see `book`.
        let may_hold = self.book.may_hold(hash);
        let decision = ask(key, !may_hold);
        if decision.outcome() != Outcome::Denied || !may_hold {
            return decision;
        }
        let release = |held: &Held<Charge>| {
            self.store.refund(key, at, &held.charge.decision, held.units);
        };
        // Asked again in any case: another thread may have released them.
        self.book.release_ended(hash, at.ns(), release);
        ask(key, true)
    }
}

impl<S: ManyKeys> ManyKeys for Holding<S> {}

impl<S: StoreBase> StoreBase for Holding<S> {
    fn can_refund(&self) -> bool {
        self.store.can_refund()
    }

    fn burst(&self) -> u64 {
        self.store.burst()
    }
}

impl<S: Store<Q>, Q: Hash + ?Sized> Store<Q> for Holding<S> {
    /// The key, and its hash in the book.
    type Prepared<'k>
        = (S::Prepared<'k>, u64)
    where
        Q: 'k;

    // A denial must look for ended holds, and then decides again.
    type Ticket<'s>
        = Decision
    where
        Self: 's;

    fn prepare<'k>(&self, key: &'k Q) -> Self::Prepared<'k> {
        (self.store.prepare(key), self.book.hash(key))
    }

    fn prefetch(&self, (key, _): Self::Prepared<'_>) {
        self.store.prefetch(key);
    }

    fn apply(&self, key: Self::Prepared<'_>, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        self.ask(key, at, |key, is_last| {
            // Only a denial that stays starts a block.
            let operation = if S::BLOCKS && !is_last { operation.without_block() } else { operation };
            self.store.apply(key, operation, at, cost)
        })
    }

    /// An ended hold is released here, too, so that the decision is that of a check.
    fn peek(&self, key: Self::Prepared<'_>, at: CheckTime, cost: u64) -> Decision {
        self.ask(key, at, |key, _| self.store.peek(key, at, cost))
    }

    fn decide(&self, key: Self::Prepared<'_>, at: CheckTime, cost: u64) -> Decision {
        self.peek(key, at, cost)
    }

    const BLOCKS: bool = S::BLOCKS;

    /// The peek that denied has released the ended holds.
    fn block(&self, (key, _): Self::Prepared<'_>, at: CheckTime, denial: Decision) -> Decision {
        self.store.block(key, at, denial)
    }

    fn refund(&self, key: Self::Prepared<'_>, at: CheckTime, charge: &Decision, units: u64) -> u64 {
        self.store.refund(key.0, at, charge, units)
    }

    /// Leaves the units that are held: their holders settle them.
    fn give_back(&self, (key, hash): Self::Prepared<'_>, at: CheckTime, units: u64) -> u64 {
        // A hold that begins now is charged before it is in the book. Between the two, it counts as used.
        let owed = self.store.peek(key, at, 0).owed();
        let held = u64::try_from(self.book.standing(hash).units).unwrap_or(u64::MAX);
        self.store.give_back(key, at, units.min(owed.saturating_sub(held)))
    }

    fn key_hash(&self, key: &Q) -> u64 {
        self.store.key_hash(key)
    }

    fn refund_traced<B: BuildHasher>(&self, key: KeyTrace<'_, B>, at: CheckTime, charge: &Decision) -> u64 {
        self.store.refund_traced(key, at, charge)
    }
}

impl<S: fmt::Debug> fmt::Debug for Holding<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holding").field("store", &self.store).field("holds", &self.holds()).finish()
    }
}
