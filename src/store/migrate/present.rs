//! The verbs of the present store, and the switch that turns a limiter off.

use std::fmt;
use std::sync::{Arc, PoisonError};

use super::{Adjustable, Before, Generation, Replaced};
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::store::op::{Inherit, Migrate};
use crate::store::present::{CheckWith, PresentStore};

impl<S: Migrate> Adjustable<S> {
    /// Publishes the next generation. The caller allows no other change.
    pub(super) fn publish(&self, next: Generation<S>, replaced: &mut Replaced<Generation<S>>) {
        let next = Arc::new(next);
        let _none_comes_back = self.giving_back.write().unwrap_or_else(PoisonError::into_inner);
        self.present.publish(next, replaced);
    }

    /// Admits every request from now on, until another quota is put in force.
    pub(crate) fn turn_off(&self) {
        let mut replaced = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.present.load().to_arc();
        // The store stays, because the next one is made from it.
        let off = Generation { padded: Arc::clone(&present.padded), from: Before::Off };
        self.publish(off, &mut replaced);
        drop(present);
        replaced.free_unused();
    }

    pub(crate) fn is_off(&self) -> bool {
        self.present.load().is_off()
    }
}

impl<S: Migrate + Inherit<Q> + CheckWith<Q>, Q: ?Sized> CheckWith<Q> for Adjustable<S> {
    type Quota = S::Quota;

    fn check_with(&self, key: &Q, quota: &S::Quota, at: CheckTime, cost: u64) -> Decision {
        self.charge(key, at, |generation| generation.check_with(key, quota, at, cost))
    }

    fn readable_quota(&self, quota: &S::Quota) -> Option<S::Quota> {
        self.present(|store| store.readable_quota(quota))
    }
}

impl<S: Migrate> PresentStore for Adjustable<S> {
    type Store = S;

    fn present<T>(&self, property: impl FnOnce(&S) -> T) -> T {
        property(&self.present.load().padded.store)
    }

    fn with_all_keys<T>(&self, when: impl FnOnce() -> CheckTime, property: impl FnOnce(&S) -> T) -> T {
        let present = self.present.load();
        present.take_over_rest(when());
        property(&present.padded.store)
    }

    fn change(&self, change: impl FnOnce(&S)) {
        self.forget_past_and(change);
    }

    fn has_key<Q: ?Sized>(&self, key: &Q, when: impl FnOnce() -> CheckTime) -> bool
    where
        S: Inherit<Q>,
    {
        self.present.load().has_key(key, when())
    }
}

impl<S: fmt::Debug> fmt::Debug for Adjustable<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present = self.present.load();
        f.debug_struct("Adjustable")
            .field("store", &present.padded.store)
            .field("changes", &present.padded.number)
            .finish_non_exhaustive()
    }
}
