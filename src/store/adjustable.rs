//! A store whose quota changes while requests are decided.
//!
//! ```text
//! Adjustable ──► Generation n: a store under the present quota
//!                   │ from: what keys owed under the last one, as of the time of the change
//!                   ▼
//!                Generation n − 1 ──► …
//! ```
//! A change makes an empty store for the new quota, and publishes it. Nothing is moved: a key that is not there yet is looked up
//! in the store before, as of the time of the change, and *seeded* with what it owes now by what the change [carries
//! over](Carry). Once a full burst under the new quota would be paid, nobody owes anything from before, and the old store is not
//! asked any more.
//!
//! # A charge that is made while the quota changes
//! could land in the old store after its key was looked up there, and be lost. So whoever charges looks afterwards whether its
//! generation is still the present one, and if not decides anew. Both write and then look, with a fence in between: the charge,
//! then the generation; the generation (which whoever seeds has seen), then the charge. So at least one sees the other: the
//! charge is in the seed, or is made again; sometimes both, which is against the client: a request that was under way may be
//! charged twice, or be denied for its own charge.

#[cfg(all(test, tollgate_loom))]
mod models;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::verb::{Inherit, ManyKeys, Rebuild, Store, Verb, When};
use crate::clock::Clock;
use crate::decision::{Decision, Outcome};
use crate::quota::{Quota, QuotaError};
use crate::sync::{AtomicU64, Ordering, Swap, fence_after_rmw, full_fence};

/// What a key owes under a new quota, by what it owed under the old one; see
/// [`RateLimiter::set_quota`](crate::RateLimiter::set_quota).
///
/// With 40 of 100 units left:
///
/// | | left of a new burst of 200 | left of 20 |
/// |---|---|---|
/// | as is | 40 | 20 |
/// | proportional | 80 | 8 |
/// | additive | 140 | 20 |
/// | reset | 200 | 20 |
///
/// A key that owes nothing is new under any of them: it has the whole new burst. Parts of units are rounded against the client.
/// For window algorithms the burst is the limit.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Carry {
    /// As many units are left as before, at most the new burst.
    AsIs,
    /// The same share of the burst is left.
    Proportional,
    /// As many units are left as before, and those that the burst grew by.
    Additive,
    /// Nobody owes anything.
    Reset,
}

impl Carry {
    /// The units owed of a burst of `new`, by a key that owed `owed` of `old`.
    fn owed(self, owed: u64, old: u64, new: u64) -> u64 {
        // What is left stays, so what is owed moves with the burst.
        let moved = (u128::from(owed) + u128::from(new)).saturating_sub(u128::from(old));
        let carried = match self {
            _ if owed == 0 => 0,
            Self::AsIs => moved,
            Self::Proportional => (u128::from(owed) * u128::from(new)).div_ceil(u128::from(old.max(1))),
            Self::Additive if new >= old => u128::from(owed),
            Self::Additive => moved,
            Self::Reset => 0,
        };
        u64::try_from(carried).unwrap_or(u64::MAX)
    }
}

/// A store under one quota, and what it took over from the one before.
#[derive(Debug)]
struct Generation<S> {
    number: u64,
    store: Arc<S>,
    from: Option<Past<S>>,
    /// When this generation was surely in use, in nanoseconds: charges up to then may be of another quota.
    since_ns: AtomicU64,
}

#[derive(Debug)]
struct Past<S> {
    last: Arc<Generation<S>>,
    carry: Carry,
    /// The time of the change, in nanoseconds.
    at_ns: u64,
    /// When all that could be carried over is paid.
    until_ns: u64,
}

impl<S: Rebuild> Generation<S> {
    /// Takes over what a key owes that has no state here yet.
    #[inline]
    fn take_over<Q: ?Sized, C: Clock>(&self, key: &Q, when: When<'_, C>)
    where
        S: Inherit<Q>,
    {
        if let Some(past) = &self.from
            && when.now_ns < past.until_ns
            && !self.store.holds(key)
        {
            self.seed(past, key, when);
        }
    }

    #[cold]
    fn seed<Q: ?Sized, C: Clock>(&self, past: &Past<S>, key: &Q, when: When<'_, C>)
    where
        S: Inherit<Q>,
    {
        let then = When { now_ns: past.at_ns, ..when };
        past.last.take_over(key, then);
        // This generation was seen; now the charges of the one before are.
        full_fence();
        let before = past.last.store.look(key, then, 0);
        // The burst: what a cost of nothing leaves, and what it is of, are of one store.
        let new = self.store.look(key, then, 0).limit();
        let owed = past.carry.owed(before.owed(), before.limit(), new);
        if owed > 0 {
            self.store.seed(key, when, past.at_ns, owed);
        }
    }
}

/// A store whose quota can be changed while requests are decided: [`Direct`](crate::Direct), [`Keyed`](crate::Keyed) or
/// [`Compact`](crate::Compact). Made by [`RateLimiter::adjustable`](crate::RateLimiter::adjustable).
///
/// A check takes the present store from a shared pointer, without a lock, and looks once it has charged whether it is still
/// the present one: some nanoseconds more than without.
///
/// # Consistency
/// Every request is decided by one quota, the old or the new one. No charge is lost in a change; one that was under way may be
/// made twice, or deny the very request that made it. A charge that was made under an old quota is not given back any more
/// ([`refund`](crate::RateLimiter::refund)).
pub struct Adjustable<S> {
    present: Swap<Generation<S>>,
    /// The number of the present generation, or the next one's for a moment.
    newest: AtomicU64,
    /// One change at a time. Checks never take it.
    changing: Mutex<()>,
    /// Whether any key may owe more than its burst.
    indebted: AtomicU64,
}

impl<S: Rebuild> Adjustable<S> {
    pub(crate) fn new(store: S) -> Self {
        let first = Generation { number: 0, store: Arc::new(store), from: None, since_ns: AtomicU64::new(0) };
        Self {
            present: Swap::new(first),
            newest: AtomicU64::new(0),
            changing: Mutex::new(()),
            indebted: AtomicU64::new(0),
        }
    }

    /// Puts another quota in force.
    pub(crate) fn set_quota<C: Clock>(
        &self,
        quota: &Quota,
        carry: Carry,
        when: When<'_, C>,
    ) -> Result<(), QuotaError> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let last = Arc::clone(&*self.present.load());
        let store = last.store.rebuild(quota)?;
        let at_ns = when.now_ns;
        // What was carried over to the last generation is paid: its past is not asked again.
        let last = match &last.from {
            Some(past) if past.until_ns <= at_ns => Arc::new(last.alone()),
            _ => last,
        };
        // Ordering: Relaxed. A debt that is made at this very moment is made anew, as any charge is.
        let until_ns = if self.indebted.load(Ordering::Relaxed) == 0 {
            at_ns.saturating_add(store.paid_in_ns(at_ns, quota.burst_size().max(quota.limit())))
        } else {
            u64::MAX
        };
        let number = last.number + 1;
        let from = (carry != Carry::Reset).then_some(Past { last, carry, at_ns, until_ns });
        let since_ns = AtomicU64::new(u64::MAX);
        let next = Arc::new(Generation { number, store: Arc::new(store), from, since_ns });
        // Ordering: Release: before the generation itself, so that whoever has seen that has seen this.
        self.newest.store(number, Ordering::Release);
        self.present.store(Arc::clone(&next));
        let since_ns = if when.given { at_ns } else { when.clock.now().as_nanos() };
        // Ordering: Relaxed. Until it is seen, nothing is given back.
        next.since_ns.store(since_ns, Ordering::Relaxed);
        Ok(())
    }

    /// Lets go of all stores but the present one.
    pub(crate) fn forget_past(&self) {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let present = Arc::clone(&*self.present.load());
        if present.from.is_some() {
            self.present.store(Arc::new(present.alone()));
        }
    }

    /// Whether no other generation has been published since this one was loaded.
    #[inline]
    fn is_present(&self, generation: &Arc<Generation<S>>) -> bool {
        // Ordering: Relaxed, after the fence: see the module's text.
        self.newest.load(Ordering::Relaxed) == generation.number
            || self.present.load().number == generation.number
    }
}

impl<S: Rebuild> Generation<S> {
    /// The same without its past.
    fn alone(&self) -> Self {
        // Ordering: Relaxed, as in `set_quota`.
        let since_ns = AtomicU64::new(self.since_ns.load(Ordering::Relaxed));
        Self { number: self.number, store: Arc::clone(&self.store), from: None, since_ns }
    }
}

impl<S: ManyKeys> ManyKeys for Adjustable<S> {}

impl<S: Rebuild + Inherit<Q>, Q: ?Sized> Store<Q> for Adjustable<S> {
    type Ticket<'s>
        = Decision
    where
        Self: 's;

    type Place = ();

    fn approach(&self, _key: &Q) {}

    fn prepare<C: Clock>(&self, key: &Q, (): (), when: When<'_, C>, cost: u64) -> Decision {
        self.look(key, when, cost)
    }

    fn outcome(ticket: &Decision) -> Outcome {
        ticket.outcome()
    }

    /// Never: who charges must look whether the quota changed.
    fn exchange<C: Clock>(&self, _when: When<'_, C>, _ticket: &Decision) -> bool {
        false
    }

    fn charged<C: Clock>(&self, _when: When<'_, C>, ticket: &Decision, _cost: u64) -> Decision {
        *ticket
    }

    fn uncharged<C: Clock>(&self, _when: When<'_, C>, ticket: &Decision, _cost: u64) -> Decision {
        *ticket
    }

    #[inline]
    fn act<C: Clock>(&self, key: &Q, verb: Verb, when: When<'_, C>, cost: u64) -> Decision {
        // Ordering: Relaxed, as in `set_quota`.
        if matches!(verb, Verb::Force | Verb::Reserve { .. }) && self.indebted.load(Ordering::Relaxed) == 0 {
            self.indebted.store(1, Ordering::Relaxed);
        }
        loop {
            let generation = self.present.load();
            generation.take_over(key, when);
            let decision = generation.store.act(key, verb, when, cost);
            // A refusal has written nothing.
            if decision.is_denied() || decision.cost() == 0 {
                return decision;
            }
            fence_after_rmw();
            if self.is_present(&generation) {
                return decision;
            }
        }
    }

    fn look<C: Clock>(&self, key: &Q, when: When<'_, C>, cost: u64) -> Decision {
        let generation = self.present.load();
        generation.take_over(key, when);
        generation.store.look(key, when, cost)
    }

    fn give_back<C: Clock>(&self, key: &Q, when: When<'_, C>, charge: &Decision, units: u64) -> u64 {
        let generation = self.present.load();
        // Ordering: Relaxed, as in `set_quota`.
        let since_ns = generation.since_ns.load(Ordering::Relaxed);
        if generation.number > 0 && charge.at_ns() <= since_ns {
            return 0;
        }
        generation.store.give_back(key, when, charge, units)
    }

    fn gives_back(&self) -> bool {
        self.present.load().store.gives_back()
    }

    fn foresees(&self) -> bool {
        self.present.load().store.foresees()
    }
}

impl<S: fmt::Debug> fmt::Debug for Adjustable<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present = self.present.load();
        f.debug_struct("Adjustable")
            .field("store", &present.store)
            .field("changes", &present.number)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// Bucket4j's table, and debts beyond the burst.
    #[test]
    fn what_is_carried_over_is_as_the_table_says() {
        let left = |carry: Carry, owed: u64, old: u64, new: u64| {
            i128::from(new) - i128::from(carry.owed(owed, old, new))
        };
        for (carry, of_200, of_20) in [
            (Carry::AsIs, 40, 20),
            (Carry::Proportional, 80, 8),
            (Carry::Additive, 140, 20),
            (Carry::Reset, 200, 20),
        ] {
            assert_eq!((left(carry, 60, 100, 200), left(carry, 60, 100, 20)), (of_200, of_20), "{carry:?}");
        }
        assert_eq!(left(Carry::AsIs, 150, 100, 200), -50);
        assert_eq!(left(Carry::Proportional, 150, 100, 200), -100);
        assert_eq!(left(Carry::Additive, 150, 100, 200), 50);
        assert_eq!(left(Carry::AsIs, 150, 100, 20), -50);
        assert_eq!(Carry::Proportional.owed(1, 3, 1), 1, "against the client");
        for carry in [Carry::AsIs, Carry::Proportional, Carry::Additive, Carry::Reset] {
            assert_eq!(carry.owed(0, 100, 200), 0, "who owes nothing is new");
            let _ = carry.owed(u64::MAX, 0, u64::MAX);
        }
    }
}
