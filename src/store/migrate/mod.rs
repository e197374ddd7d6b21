//! A store whose quota can change while it decides requests.
//!
//! ```text
//! Adjustable ──► Generation n: a store under the current quota
//!                   │ from: the debts under the last quota, as of the time of the change
//!                   ▼
//!                Generation n − 1 ──► …
//! ```
//! 1. A quota change creates an empty store for the new quota and publishes it. It moves no keys.
//! 2. When a request comes for a key that is not in the new store yet, the new generation looks the key up in the old
//!    store, as of the time of the change. It *seeds* the key in the new store: it charges the debt that the change
//!    [carries over](Carry).
//! 3. Once the largest possible debt would be paid under the new quota, the new generation does not look keys up in the
//!    old store any more.
//! 4. If the quota changes again before that time, the new store first takes over all keys of the old store. So a chain
//!    of several stores forms in two cases only: a store cannot list all of its debts (a compact store that has spilled
//!    or inherited debts), or the next store has no room for a key.
//!
//! # A charge that is made while the quota changes
//! The charge could land in the old store after another thread has looked its key up there. Then it would be lost. So
//! each charging thread follows the protocol of [`published`]: it asks after the charge whether a change has
//! [closed](latest) its generation. If so, and if the next generation is published, it refunds the charge and decides the
//! request again. A thread that seeds a key has seen the next generation, issues a fence, and then looks the key up. So either
//! the seed contains the charge, or the charge is made again.
//!
//! A charge can be in the seed and also be made again in two cases: another thread looked the key up between the charge
//! and its refund, or the old store cannot refund (queues, logs, [`Overflow::Inherit`](crate::Overflow::Inherit)). The
//! client then loses quota: the request is charged twice, or it is denied because of its own charge. The same holds for a
//! sketch that shares its counts with the next one.
//!
//! # The time of a change
//! A change reads its time after it has closed the generation, and is published later. Charges that count in the old
//! store may be later than this time. So debts are carried over as of the latest charge, if that is later than the
//! change's time. The old store is asked until two bursts after that time.
//!
//! One caller may have a time far ahead, by mistake. Other keys owe nothing as of that time. A key that owes nothing as
//! of the latest charge is therefore looked up as of the change's time too.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    rustdoc::private_intra_doc_links,
    reason = "users do not see this module; only packages of this repository use it"
)]

mod carry;
mod latest;
#[cfg(all(test, tollgate_loom))]
mod models;
mod own_store;
mod present;
mod published;
mod saved;
mod take_over;

use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError};

pub use self::carry::Carry;
use self::latest::{LatestCharge, SLACK_NS};
pub use self::own_store::OwnStore;
pub use self::published::{Numbered, Published, Replaced};
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError, Reason};
use crate::base::sync::{AtomicU64, Mutex, Ordering, RwLock, full_fence};
use crate::store::op::{
    CarriedOver, Inherit, KeyTrace, ManyKeys, Migrate, Operation, Rebuild, Store, StoreBase,
};
use crate::store::present::CheckWith;

/// Callers' times may be behind the time of a change by this much. A caller with times further behind has a clock of its
/// own, and would wait too long for that time.
const MOST_LAG_NS: u64 = 1_000_000_000;

/// The longest chain of pending generations, for a store that cannot list all of its debts.
const MOST_PENDING: u32 = 64;

/// A store under one quota, and the store before it, which knows the older debts.
#[derive(Debug)]
pub struct Generation<S> {
    padded: Arc<PaddedStore<S>>,
    from: Before<S>,
}

/// What a generation does before it asks its store.
#[derive(Debug)]
enum Before<S> {
    Nothing,
    /// Looks a new key up in the store before.
    Past(Past<S>),
    /// Admits the request. The limiter is off.
    Off,
}

/// A store, behind what each check reads: one cache line, for thousands of stores.
#[derive(Debug)]
#[repr(C, align(64))]
struct PaddedStore<S> {
    latest: LatestCharge,
    number: u64,
    /// The time of the change that put the store in force, in nanoseconds.
    since_ns: u64,
    store: S,
    /// The largest debt of any key, if it was larger than the burst of the key; otherwise 0.
    largest_debt: AtomicU64,
}

impl<S> PaddedStore<S> {
    /// See [`Generation::is_open_for`].
    #[inline(always)]
    fn is_open_for(&self, charge: &Decision) -> bool {
        self.latest.is_open_for(charge.at_ns())
    }
}

#[derive(Debug)]
struct Past<S> {
    last: Arc<Generation<S>>,
    carry: Carry,
    /// The time of the change, in nanoseconds.
    at_ns: u64,
    /// The time when all debts that could be carried over are paid, or [`UNKNOWN`] until the first request after the
    /// publication.
    paid_until_ns: AtomicU64,
    /// 1 if all keys for which there was room were taken over at once. Figures do that only once.
    is_listed: AtomicU64,
}

/// The value of `paid_until_ns` before it is computed.
const UNKNOWN: u64 = u64::MAX;

impl<S: Migrate> Past<S> {
    /// The time as of which debts are carried over: the time of the change, or the latest charge if that is later. The
    /// caller has seen the next generation, and has issued a fence afterwards.
    fn as_of_ns(&self) -> u64 {
        let PaddedStore { latest, store, .. } = &*self.last.padded;
        self.at_ns.max(latest.ns().min(store.newest_ns()))
    }
}

impl<S: Migrate> Generation<S> {
    /// The first generation of a store, which may have been charged before.
    pub fn first(store: S) -> Self {
        let first = Self::new((0, 0), store, Before::Nothing);
        let PaddedStore { store, latest, .. } = &*first.padded;
        let newest_ns = if store.is_known() { Some(store.newest_ns()) } else { store.beyond_ns() };
        if let Some(newest_ns) = newest_ns.filter(|newest_ns| *newest_ns != u64::MAX) {
            latest.cover(newest_ns);
        }
        first
    }

    /// Prepares a change: takes over the debts of all keys from the generation before this one, as far as possible.
    /// Returns the generation for [`Generation::next`].
    pub fn settled(
        self: &Arc<Self>,
        carry: Carry,
        now: impl Fn() -> CheckTime,
    ) -> Result<Arc<Self>, QuotaError> {
        let Some(past) = self.past().filter(|_| carry != Carry::Reset) else {
            return Ok(Arc::clone(self));
        };
        let when = now();
        let is_paid = !self.asks(past, when.ns());
        if is_paid || self.take_over_all(past, when) == CarriedOver::All {
            return Ok(Arc::new(self.without_past()));
        }
        self.inherit_debts(past, when.ns());
        let settled = self.pruned(when.ns());
        match settled.pending() {
            MOST_PENDING.. => Err(Reason::Pending { changes: MOST_PENDING }.into()),
            _ => Ok(settled),
        }
    }

    /// Makes each further charge in this generation record its time. Call this before the time of a change is read.
    pub fn close(&self) {
        self.padded.latest.close();
    }

    /// The generation after this one, in force from `when` on. It carries the debts of the keys over.
    pub fn next(self: Arc<Self>, store: S, carry: Carry, when: CheckTime) -> Self {
        let (number, at_ns) = (self.padded.number + 1, when.ns());
        let (paid_until_ns, is_listed) = (AtomicU64::new(UNKNOWN), AtomicU64::new(0));
        let from = match carry {
            Carry::Reset => Before::Nothing,
            carry => Before::Past(Past { last: self, carry, at_ns, paid_until_ns, is_listed }),
        };
        Self::new((number, at_ns), store, from)
    }

    /// Whether keys can still owe a debt that was carried over.
    pub fn is_taking_over(&self, now_ns: u64) -> bool {
        self.past().is_some_and(|past| self.asks(past, now_ns))
    }

    /// The store of this generation.
    pub fn store(&self) -> &S {
        &self.padded.store
    }

    fn new((number, since_ns): (u64, u64), store: S, from: Before<S>) -> Self {
        // Debts beyond the burst from before this store became adjustable can have any size.
        let largest_debt = AtomicU64::new(if store.is_known() { 0 } else { u64::MAX });
        let latest = LatestCharge::new();
        Self { padded: Arc::new(PaddedStore { number, since_ns, latest, store, largest_debt }), from }
    }

    /// The store before, in which keys may still have debts.
    fn past(&self) -> Option<&Past<S>> {
        match &self.from {
            Before::Past(past) => Some(past),
            Before::Nothing | Before::Off => None,
        }
    }

    /// A copy of this generation without its past.
    fn without_past(&self) -> Self {
        Self { padded: Arc::clone(&self.padded), from: Before::Nothing }
    }

    /// A copy of this generation without the older generations in which no look-up is necessary from `now_ns` on.
    fn pruned(self: &Arc<Self>, now_ns: u64) -> Arc<Self> {
        let Some(past) = self.past() else {
            return Arc::clone(self);
        };
        if !self.asks(past, now_ns) {
            return Arc::new(self.without_past());
        }
        // The recursion is at most `MOST_PENDING` deep. The last generation is looked up as of the change, so it still
        // needs the debts that were unpaid at that time.
        let last = past.last.pruned(past.at_ns);
        // Ordering: Acquire, as in `asks` and `take_over_rest`. A copy that is out of date is computed again.
        let paid_until_ns = AtomicU64::new(past.paid_until_ns.load(Ordering::Acquire));
        let is_listed = AtomicU64::new(past.is_listed.load(Ordering::Acquire));
        let from =
            Before::Past(Past { last, carry: past.carry, at_ns: past.at_ns, paid_until_ns, is_listed });
        Arc::new(Self { padded: Arc::clone(&self.padded), from })
    }

    /// The number of older generations in this one's chain.
    pub fn pending(&self) -> u32 {
        let mut pending = 0;
        let mut past = self.past();
        while let Some(Past { last, .. }) = past {
            pending += 1;
            past = last.past();
        }
        pending
    }

    /// Records a key that owes more than its burst.
    fn owes(&self, owed: u64, burst: u64) {
        // Ordering: AcqRel, before the fence that precedes the second look at the generation.
        if owed > burst && self.padded.largest_debt.load(Ordering::Relaxed) < owed {
            self.padded.largest_debt.fetch_max(owed, Ordering::AcqRel);
        }
    }

    /// Records the latest charge, and the largest debt beyond the burst at `now_ns`, of the keys that were not looked up
    /// here since the last change.
    ///
    /// The next generation reads these figures of this generation only, so this generation must know such debts.
    fn inherit_debts(&self, past: &Past<S>, now_ns: u64) {
        // A charge of the last generation that this thread does not see will see this generation, and is made again.
        full_fence();
        let (debts, as_of_ns) = (self.padded.store.debts(), past.as_of_ns());
        self.padded.latest.cover(as_of_ns);
        self.owes(debts.left(as_of_ns, self.most_carried(past), now_ns), debts.burst());
    }

    /// The largest debt beyond the burst that any key carries over, or `u64::MAX` if it is not known.
    fn most_carried(&self, past: &Past<S>) -> u64 {
        let last = &past.last.padded;
        // Ordering: Acquire; pairs with `owes`.
        match last.largest_debt.load(Ordering::Acquire) {
            u64::MAX => u64::MAX,
            most => past.carry.owed(most, last.store.debts().burst(), self.padded.store.debts().burst()),
        }
    }

    /// Whether any key can still owe a debt from an older generation, so that look-ups there are necessary.
    #[inline]
    fn asks(&self, past: &Past<S>, now_ns: u64) -> bool {
        // Ordering: Acquire; pairs with the 0 of `take_over_rest`: the keys that were taken over are visible.
        let until_ns = past.paid_until_ns.load(Ordering::Acquire);
        now_ns < until_ns && (until_ns != UNKNOWN || now_ns < self.paid_until_ns(past))
    }

    /// Computes when all debts that could be carried over are paid: full bursts, and the largest debt beyond the burst.
    #[cold]
    fn paid_until_ns(&self, past: &Past<S>) -> u64 {
        // This thread has seen this generation. After the fence, it sees the records of all charges that count in the
        // last one: see the module docs. So the value is final.
        full_fence();
        let debts = self.padded.store.debts();
        let as_of_ns = past.as_of_ns().saturating_add(SLACK_NS);
        let paid = |at_ns: u64, owed: u64| at_ns.saturating_add(debts.paid_in_ns(at_ns, owed));
        // Twice the time, because a charge at the moment of the change may belong to the next window.
        let full_ns = paid(paid(as_of_ns, debts.burst()), debts.burst());
        let blocked_ns = as_of_ns.saturating_add(past.last.padded.store.debts().longest_block_ns());
        let until_ns = match self.most_carried(past) {
            u64::MAX => u64::MAX,
            most => full_ns.max(paid(as_of_ns, most)).max(blocked_ns),
        };
        let until_ns = until_ns.min(UNKNOWN - 1);
        // Ordering: Relaxed. This time depends on no other data.
        past.paid_until_ns.store(until_ns, Ordering::Relaxed);
        until_ns
    }

    /// The time of a request that this generation decides. A request that was held up may have read its time before the
    /// change. It is decided as of the change, since debts that were paid by then are not carried over.
    #[inline]
    fn time_here(&self, when: CheckTime) -> CheckTime {
        let since_ns = self.padded.since_ns;
        let lag_ns = since_ns.saturating_sub(when.ns());
        if lag_ns == 0 || lag_ns > MOST_LAG_NS { when } else { CheckTime::from_ns(since_ns) }
    }

    /// Takes over the debt of a key that has no state here yet. Returns a denial if there is no room for the key, and an
    /// unlimited admission if the limiter is off.
    #[inline]
    fn take_over<Q: ?Sized>(&self, key: &Q, when: CheckTime) -> Option<Decision>
    where
        S: Inherit<Q>,
    {
        match &self.from {
            Before::Nothing => None,
            Before::Past(past) if self.asks(past, when.ns()) && !self.padded.store.holds(key) => {
                self.seed(past, key, when)
            }
            Before::Past(_) => None,
            Before::Off => Some(Decision::unlimited(when.ns())),
        }
    }

    /// Decides and charges. After a charge, the caller must check whether this generation is still the current one.
    #[inline]
    pub fn apply<Q: ?Sized>(&self, key: &Q, operation: Operation, when: CheckTime, cost: u64) -> Decision
    where
        S: Inherit<Q>,
    {
        let when = self.time_here(when);
        if let Some(refusal) = self.take_over(key, when) {
            return refusal.for_cost(cost);
        }
        let PaddedStore { number, store, .. } = &*self.padded;
        let decision =
            store.apply(store.prepare(key), operation, when, cost).of_generation(truncated(*number));
        if operation.goes_beyond() && decision.is_allowed() && decision.cost() > 0 {
            self.owes(store.debts().owed(&decision), decision.limit());
        }
        decision
    }

    /// [`Generation::apply`] for a check under another quota than the store's own.
    fn check_with<Q: ?Sized>(&self, key: &Q, quota: &S::Quota, when: CheckTime, cost: u64) -> Decision
    where
        S: Inherit<Q> + CheckWith<Q>,
    {
        let when = self.time_here(when);
        if let Some(refusal) = self.take_over(key, when) {
            return refusal.for_cost(cost);
        }
        let PaddedStore { number, store, .. } = &*self.padded;
        let prepared = store.prepare(key);
        let decision = match store.readable_quota(quota) {
            Some(quota) => store.check_with(prepared, &quota, when, cost),
            None => store.apply(prepared, Operation::Check, when, cost),
        };
        if decision.is_allowed() && decision.cost() > 0 {
            // A unit of the other quota can be a debt of many units, which may exceed the burst of the store's own quota.
            let debts = store.debts();
            self.owes(debts.owed(&store.peek(prepared, when, 0)), debts.burst());
        }
        decision.of_generation(truncated(*number))
    }

    /// Decides, and charges nothing.
    pub fn peek<Q: ?Sized>(&self, key: &Q, when: CheckTime, cost: u64) -> Decision
    where
        S: Inherit<Q>,
    {
        let when = self.time_here(when);
        match self.take_over(key, when) {
            Some(refusal) => refusal.for_cost(cost),
            None => self.padded.store.peek(self.padded.store.prepare(key), when, cost),
        }
    }

    /// Starts the block of a request that a peek here has denied. If the quota changes at this moment, the next denial
    /// starts the block instead.
    pub fn block<Q: ?Sized>(&self, key: &Q, when: CheckTime, denial: Decision) -> Decision
    where
        S: Inherit<Q>,
    {
        let store = &self.padded.store;
        store.block(store.prepare(key), self.time_here(when), denial)
    }

    /// Takes back units of what a key owes, with what it still owes from older generations.
    pub fn give_back<Q: ?Sized>(&self, key: &Q, when: CheckTime, units: u64) -> u64
    where
        S: Inherit<Q>,
    {
        let (when, store) = (self.time_here(when), &self.padded.store);
        if self.take_over(key, when).is_some() {
            return 0;
        }
        if let Some(past) = self.past()
            && self.asks(past, when.ns())
            && store.holds(key)
        {
            // The debt is here now. Without its units the key may become idle before the old debt is paid, and be removed: then
            // its next request would take the old debt over again.
            past.last.forget(key, CheckTime::from_ns(past.at_ns));
        }
        store.give_back(store.prepare(key), when, units)
    }

    /// Forgets what a key owes, here and in the generations that are still asked. Returns `false` if a store cannot: then the
    /// key may still owe. A thread that carries the debt over at this moment may keep it.
    pub fn forget<Q: ?Sized>(&self, key: &Q, when: CheckTime) -> bool
    where
        S: Inherit<Q>,
    {
        let past = self.past().filter(|past| self.asks(past, when.ns()));
        // The recursion is at most `MOST_PENDING` deep. The older store comes first, or a request could carry its debt over.
        past.is_none_or(|past| past.last.forget(key, CheckTime::from_ns(past.at_ns)))
            && self.padded.store.forget(key)
    }

    /// Blocks a key for this number of nanoseconds. Returns `false` if the store has no blocks, or no room for the key.
    pub fn block_for<Q: ?Sized>(&self, key: &Q, when: CheckTime, block_ns: u64) -> bool
    where
        S: Inherit<Q>,
    {
        let when = self.time_here(when);
        self.take_over(key, when).is_none() && self.padded.store.block_for(key, when, block_ns)
    }

    fn is_off(&self) -> bool {
        matches!(self.from, Before::Off)
    }

    /// Whether a charge of this generation counts in any case, because no change has begun since. If not, it counts only
    /// if this generation is still the published one. [`Published::counts_charge`] calls this between its fence and its look at the
    /// published one.
    #[inline(always)]
    pub fn is_open_for(&self, charge: &Decision) -> bool {
        self.padded.is_open_for(charge)
    }
}

/// A store whose quota can change while requests are decided: [`Direct`](crate::Direct), [`Keyed`](crate::Keyed),
/// [`Compact`](crate::Compact) or [`AnyStore`](crate::stores::AnyStore). Created by
/// [`RateLimiter::adjustable`](crate::RateLimiter::adjustable) and [`RateLimiter::any`](crate::RateLimiter::any).
///
/// A check loads the current store from a shared pointer, without a lock. After the charge, it checks whether that store
/// is still the current one. A check takes some nanoseconds longer than in a store that is not adjustable.
///
/// # Consistency
/// Every request is decided by one quota, either the old one or the new one. No charge is lost in a change.
///
/// If the quota changes during a check, the check gives its charge back and is decided again. The key keeps both
/// charges, or the request is denied because of its own charge, in two cases: another thread looks the key up in
/// between, or the store cannot refund (queues, logs, sketches, [`Overflow::Inherit`](crate::Overflow::Inherit)). This
/// can happen once for each check that runs during a change. In a measurement, two threads checked without a pause during
/// 40,000 changes. They lost 7 to 380 units in this way.
///
/// A charge from an old quota cannot be refunded any more ([`refund`](crate::RateLimiter::refund)). Units that
/// [`give_back`](crate::RateLimiter::give_back) takes back come back under the old quota or the new one. That call and a
/// change wait for each other, so `Hash`, `Eq` and `Drop` of a key must not call it, or change the quota, of the same limiter.
///
/// # Examples
/// ```
/// use tollgate::{Adjustable, Carry, Compact, Quota, RateLimiter};
///
/// struct Server {
///     limiter: RateLimiter<Adjustable<Compact>>,
/// }
///
/// let server = Server { limiter: RateLimiter::new(Quota::per_second(10)).adjustable() };
/// assert!(server.limiter.check_n("alice", 11).is_never());
/// server.limiter.set_quota(&Quota::per_second(20), Carry::AsIs)?; // whenever the configuration changes
/// assert!(server.limiter.check_n("bob", 11).is_allowed());
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
pub struct Adjustable<S> {
    present: Published<Generation<S>>,
    /// Allows one change at a time. Checks never take this lock.
    changing: Mutex<Replaced<Generation<S>>>,
    /// Held for reading while units come back to the present store, and for writing while another store is published.
    giving_back: RwLock<()>,
}

impl<S> Numbered for Generation<S> {
    fn number(&self) -> u64 {
        self.padded.number
    }
}

impl<S: Rebuild> Adjustable<S> {
    pub(crate) fn new(store: S) -> Self {
        Self {
            present: Published::new(Generation::first(store)),
            changing: Mutex::new(Replaced::default()),
            giving_back: RwLock::new(()),
        }
    }

    /// Puts another quota in force.
    pub(crate) fn set_quota(
        &self,
        quota: &Quota,
        carry: Carry,
        now: impl Fn() -> CheckTime,
    ) -> Result<(), QuotaError> {
        let make = |store: &S, keeps| if keeps { store.rebuild_shared(quota) } else { store.rebuild(quota) };
        self.replace(make, carry, now)
    }
}

impl<S: Migrate> Adjustable<S> {
    /// Puts another store in force, which `make` creates from the present one. The store may share the counts of the
    /// present one if the second argument is `true`.
    pub(crate) fn replace(
        &self,
        make: impl FnOnce(&S, bool) -> Result<S, QuotaError>,
        carry: Carry,
        now: impl Fn() -> CheckTime,
    ) -> Result<(), QuotaError> {
        let mut replaced = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.present.load().to_arc();
        // A limiter that was off begins again.
        let carry = if present.is_off() { Carry::Reset } else { carry };
        let keeps = carry != Carry::Reset;
        // The next store would keep the old one without a use.
        let carry = if present.padded.store.migrates() { carry } else { Carry::Reset };
        let last = present.settled(carry, &now)?;
        let store = make(&last.padded.store, keeps)?;
        // All slow work is finished before this point.
        last.close();
        self.publish(last.next(store, carry, now()), &mut replaced);
        drop(present);
        replaced.free_unused();
        Ok(())
    }

    /// Charges a key by `charge`, again for each change of the quota that is made meanwhile.
    #[inline(always)]
    fn charge<Q: ?Sized>(
        &self,
        key: &Q,
        at: CheckTime,
        charge: impl Fn(&Generation<S>) -> Decision,
    ) -> Decision
    where
        S: Inherit<Q>,
    {
        loop {
            let generation = self.present.load();
            let decision = charge(&generation);
            // A denial has charged nothing.
            if decision.is_denied() || decision.cost() == 0 {
                return decision;
            }
            if self.present.counts_charge(&generation, || generation.is_open_for(&decision), |_| false) {
                return decision;
            }
            // Without this refund, the new store would take this charge over, although the charge is made again.
            if !generation.is_off() {
                let store = &generation.padded.store;
                let _ = store.refund(store.prepare(key), at, &decision, decision.cost());
            }
        }
    }

    /// Drops all stores except the current one.
    pub(crate) fn forget_past(&self) {
        self.forget_past_and(|_| ());
    }

    /// Drops all stores except the current one, and changes that store.
    pub(crate) fn forget_past_and(&self, change: impl FnOnce(&S)) {
        let mut replaced = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.present.load().to_arc();
        if present.past().is_some() {
            self.publish(present.without_past(), &mut replaced);
        }
        change(&present.padded.store);
        drop(present);
        replaced.free_unused();
    }

    /// Forgets what a key owes. Returns whether it owed anything, and the store could forget it.
    pub(crate) fn forget<Q: ?Sized>(&self, key: &Q, when: CheckTime) -> bool
    where
        S: Inherit<Q>,
    {
        let mut owed = false;
        loop {
            let generation = self.present.load();
            // A peek would carry the debt over, and so take the room of another key.
            owed |= generation.is_owed(key, when);
            let is_forgotten = generation.forget(key, when);
            // Not every store forgets by an exchange.
            full_fence();
            // A change in the meantime may have carried the debt over.
            if self.present.counts_charge(&generation, || false, |_| false) {
                return owed && is_forgotten;
            }
        }
    }
}

impl<S: ManyKeys> ManyKeys for Adjustable<S> {}

impl<S: Migrate + Inherit<Q>, Q: ?Sized> Store<Q> for Adjustable<S> {
    // Not prepared: each generation prepares the key itself.
    type Prepared<'k>
        = &'k Q
    where
        Q: 'k;

    // After a charge, the caller must check whether the quota changed.
    type Ticket<'s>
        = Decision
    where
        Self: 's;

    #[inline(always)]
    fn prepare<'k>(&self, key: &'k Q) -> &'k Q {
        key
    }

    #[inline]
    fn apply(&self, key: &Q, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        self.charge(key, at, |generation| generation.apply(key, operation, at, cost))
    }

    fn peek(&self, key: &Q, at: CheckTime, cost: u64) -> Decision {
        self.present.load().peek(key, at, cost)
    }

    fn decide(&self, key: &Q, at: CheckTime, cost: u64) -> Decision {
        self.peek(key, at, cost)
    }

    const BLOCKS: bool = S::BLOCKS;

    fn block(&self, key: &Q, at: CheckTime, denial: Decision) -> Decision {
        self.present.load().block(key, at, denial)
    }

    fn refund(&self, key: &Q, at: CheckTime, charge: &Decision, units: u64) -> u64 {
        let present = self.present.load();
        let PaddedStore { number, store, .. } = &*present.padded;
        // The next store forgets the charges of a limiter that is off.
        if charge.generation() != truncated(*number) || present.is_off() || charge.is_unlimited() {
            return 0;
        }
        store.refund(store.prepare(key), at, charge, units)
    }

    /// Unlike a charge, this cannot be done again after a change: a thread that has carried the debt over with the units or
    /// without them would not know it. So no store is published meanwhile.
    fn give_back(&self, key: &Q, at: CheckTime, units: u64) -> u64 {
        let _none_is_published = self.giving_back.read().unwrap_or_else(PoisonError::into_inner);
        self.present.load().give_back(key, at, units)
    }

    fn key_hash(&self, key: &Q) -> u64 {
        self.present.load().padded.store.key_hash(key)
    }

    fn refund_traced<B: BuildHasher>(&self, key: KeyTrace<'_, B>, at: CheckTime, charge: &Decision) -> u64 {
        let PaddedStore { number, store, .. } = &*self.present.load().padded;
        if charge.generation() == truncated(*number) { store.refund_traced(key, at, charge) } else { 0 }
    }
}

impl<S: StoreBase> StoreBase for Adjustable<S> {
    fn can_refund(&self) -> bool {
        self.present.load().padded.store.can_refund()
    }

    fn burst(&self) -> u64 {
        self.present.load().padded.store.burst()
    }
}

/// The number of a generation as decisions store it. No caller keeps a decision for four billion changes.
#[expect(clippy::cast_possible_truncation, reason = "its low half")]
const fn truncated(number: u64) -> u32 {
    number as u32
}
