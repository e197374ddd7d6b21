//! The debts that a generation takes over from the one before it: of one key at its first request, or of all keys.

use super::{Generation, Past};
use crate::algorithm::step::BlockRest;
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::sync::{Ordering, full_fence};
use crate::store::op::{CarriedOver, CarryOver, Debt, Inherit, Migrate, PeekAt};

impl<S: Migrate> Generation<S> {
    #[cold]
    pub(super) fn seed<Q: ?Sized>(&self, past: &Past<S>, key: &Q, when: CheckTime) -> Option<Decision>
    where
        S: Inherit<Q>,
    {
        // The recursion is at most `MOST_PENDING` deep.
        if let Some(refusal) = past.last.take_over(key, CheckTime::from_ns(past.at_ns)) {
            return Some(refusal);
        }
        // This thread has seen the new generation. After the fence, it sees each charge in the old store whose thread
        // has not seen the new generation: see the module docs.
        full_fence();
        let debt = self.debt(past, key, when.ns());
        if debt.units == 0 { None } else { self.padded.store.seed(key, when, debt) }
    }

    /// The debt that a key has in this generation by the states of the older ones, for a caller with the time `when_ns`. The
    /// caller has issued a fence.
    fn debt<Q: ?Sized>(&self, past: &Past<S>, key: &Q, when_ns: u64) -> Debt
    where
        S: Inherit<Q>,
    {
        let last = &past.last.padded.store;
        if last.knew(key) {
            let debt = self.carried(past, when_ns, &|at| last.peek(last.prepare(key), at, 0));
            if debt.units > 0 {
                return debt;
            }
        }
        match past.last.past() {
            // The last generation had no room for the key, and admitted it without a state.
            Some(older) if past.last.asks(older, past.at_ns) && !last.holds(key) => {
                self.carried_on(past, past.last.debt(older, key, past.at_ns))
            }
            _ => Debt { at_ns: past.at_ns, units: 0, block: BlockRest::default() },
        }
    }

    /// The debt in this generation of a key that would have `debt` in the generation before.
    fn carried_on(&self, past: &Past<S>, Debt { at_ns, units, block }: Debt) -> Debt {
        let (last, burst) = (past.last.padded.store.debts(), self.padded.store.debts().burst());
        let at_ns = at_ns.max(past.at_ns);
        let left = last.left(at_ns, units, past.at_ns);
        self.carrying(Debt { at_ns, units: past.carry.owed(left, last.burst(), burst), block })
    }

    /// Records a debt that is carried over into this generation.
    fn carrying(&self, debt: Debt) -> Debt {
        if debt.units > 0 {
            self.padded.latest.cover(debt.at_ns);
            self.owes(debt.units, self.padded.store.debts().burst());
        }
        debt
    }

    /// Whether a key owes anything in this generation, also by the older ones. Carries nothing over.
    pub(super) fn is_owed<Q: ?Sized>(&self, key: &Q, when: CheckTime) -> bool
    where
        S: Inherit<Q>,
    {
        let (when, store) = (self.time_here(when), &self.padded.store);
        // A key without a state may owe what a first fill withholds.
        let owes = || store.knew(key) && store.peek(store.prepare(key), when, 0).owed() > 0;
        self.is_here_or_owed(key, when, owes)
    }

    /// Whether a key has a state in this generation, or owes anything by the older ones. Carries nothing over.
    pub(super) fn has_key<Q: ?Sized>(&self, key: &Q, when: CheckTime) -> bool
    where
        S: Inherit<Q>,
    {
        self.is_here_or_owed(key, self.time_here(when), || self.padded.store.holds(key))
    }

    /// Whether a key `is_here`, or owes anything by the older generations.
    fn is_here_or_owed<Q: ?Sized>(&self, key: &Q, when: CheckTime, is_here: impl Fn() -> bool) -> bool
    where
        S: Inherit<Q>,
    {
        let store = &self.padded.store;
        is_here()
            || self.past().is_some_and(|past| {
                if !self.asks(past, when.ns()) || store.holds(key) {
                    // Another thread may have taken the debt over since the first look.
                    return is_here();
                }
                full_fence();
                let Debt { at_ns, units, .. } = self.debt(past, key, when.ns());
                units > 0 && store.debts().left(at_ns, units, when.ns()) > 0
            })
    }

    /// The debt that a key has in this generation, for a caller with the time `when_ns`. `peek` returns the key's decision in
    /// the generation before.
    fn carried(&self, past: &Past<S>, when_ns: u64, peek: &PeekAt<'_>) -> Debt {
        let (last, debts) = (&past.last.padded, past.last.padded.store.debts());
        let mut at_ns = past.as_of_ns();
        let mut before = peek(CheckTime::from_ns(at_ns));
        let is_too_late = debts.owed(&before) == 0 && at_ns > past.at_ns;
        if is_too_late {
            // Only another key may have been charged so late, by a caller whose time is far ahead. Then this key owes
            // what it owed at the time of the change.
            at_ns = past.at_ns;
            before = peek(CheckTime::from_ns(at_ns));
        }
        if debts.owed(&before) == 0 && when_ns < past.at_ns {
            // The caller is late. At its time, the key may still owe what is paid by the time of the change.
            at_ns = when_ns;
            before = peek(CheckTime::from_ns(at_ns));
        }
        // Ordering: Relaxed: an unknown debt is in the generation from its beginning.
        let is_unknown = last.largest_debt.load(Ordering::Relaxed) == u64::MAX;
        let beyond = debts.owed(&before).saturating_sub(before.limit());
        let owes_burst_ns = at_ns.saturating_add(debts.paid_in_ns(at_ns, beyond));
        let is_later = is_too_late || (is_unknown && !last.store.may_owe_beyond(owes_burst_ns));
        if beyond > 0 && is_later {
            // The key was charged later. So its debt counts from the time when it owes a burst.
            at_ns = owes_burst_ns;
            before = peek(CheckTime::from_ns(at_ns));
        }
        let (at_ns, burst) = (before.owed_as_of_ns(), self.padded.store.debts().burst());
        let units = past.carry.owed(debts.owed(&before), before.limit(), burst);
        self.carrying(Debt { at_ns, units, block: BlockRest::of(&before) })
    }

    /// Takes over the debts of all keys that were not looked up yet, so that the store of this generation has all keys that
    /// owe, as far as an older store can list them and there is room for them. Only the first call does so.
    pub fn take_over_rest(&self, when: CheckTime) {
        let Some(past) = self.past() else { return };
        // Ordering: Acquire; pairs with the store below: the keys are visible.
        if past.is_listed.load(Ordering::Acquire) != 0 || !self.asks(past, when.ns()) {
            return;
        }
        // A caller may be far ahead. What is paid by its time is not paid for others, so the store takes over what the keys owed
        // at the time of the change.
        let then = CheckTime::from_ns(when.ns().min(past.at_ns));
        if self.take_over_all(past, then) == CarriedOver::All {
            // Ordering: Release; pairs with `asks`. A thread that computes the time at this moment may restore it.
            past.paid_until_ns.store(0, Ordering::Release);
        }
        // Ordering: Release; pairs with the load above.
        past.is_listed.store(1, Ordering::Release);
    }

    /// Takes over the debts of all keys, if the old store can list them. After that, the past is not needed any more.
    pub(super) fn take_over_all(&self, past: &Past<S>, when: CheckTime) -> CarriedOver {
        let then = CheckTime::from_ns(past.at_ns);
        // The recursion is at most `MOST_PENDING` deep.
        if let Some(older) = past.last.past()
            && past.last.asks(older, past.at_ns)
            && past.last.take_over_all(older, then) == CarriedOver::NotAll
        {
            return CarriedOver::NotAll;
        }
        full_fence();
        let owed = &|peek: &PeekAt<'_>| self.carried(past, past.at_ns, peek);
        past.last.padded.store.carry_all(&self.padded.store, CarryOver { when, at_ns: past.at_ns, owed })
    }
}
