//! Keys that are carried over into another store.

use std::hash::{BuildHasher, Hash};

use super::{Keyed, KeyedLayout, Lookup};
use crate::algorithm::Algorithm;
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError};
use crate::base::sync::epoch;
use crate::store::op::{Inherit, Migrate, Rebuild};
use crate::store::state::{self, Action, Request};

impl<K, A, H> Migrate for Keyed<K, A, H>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
{
    fn paid_in_ns(&self, at_ns: u64, units: u64) -> u64 {
        state::paid_in_ns(&self.algorithm, at_ns, units)
    }

    fn left(&self, at_ns: u64, units: u64, now_ns: u64) -> u64 {
        state::left(&self.algorithm, at_ns, units, now_ns)
    }

    fn burst(&self) -> u64 {
        state::burst(&self.algorithm)
    }

    fn carry_all(
        &self,
        into: &Self,
        when: CheckTime,
        at_ns: u64,
        owed: &dyn Fn(&Decision) -> (u64, u64),
    ) -> bool {
        let mut all = true;
        self.for_each(at_ns, |key, before| {
            let (as_of_ns, owed) = owed(&before);
            all &= owed == 0 || into.seed(key, when, as_of_ns, owed).is_none();
        });
        all
    }

    fn owed(&self, decision: &Decision) -> u64 {
        self.algorithm.owed(decision)
    }

    fn is_known(&self) -> bool {
        self.len() == 0
    }
}

impl<K, A, H> Rebuild for Keyed<K, A, H>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher + Clone,
{
    fn rebuild(&self, quota: &Quota) -> Result<Self, QuotaError> {
        let cap = self.cap.as_ref().map(|cap| (cap.max, cap.when_full));
        let layout = KeyedLayout { capacity: self.len(), cap };
        Ok(Self::new(self.algorithm.with_quota(quota)?, self.hasher.clone(), layout))
    }
}

impl<K, A, H, Q> Inherit<Q> for Keyed<K, A, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
    Q: Lookup<K> + ?Sized,
{
    fn holds(&self, key: &Q) -> bool {
        self.contains(key)
    }

    fn knew(&self, key: &Q) -> bool {
        self.contains(key)
    }

    /// Room under the cap is made as of now.
    fn seed(&self, key: &Q, when: CheckTime, at_ns: u64, units: u64) -> Option<Decision> {
        let hash = self.hasher.hash_one(key);
        let guard = epoch::pin();
        let ask = Request { algorithm: &self.algorithm, action: Action::Seed, now_ns: at_ns, cost: units };
        if self.live(key, hash, &guard).is_some_and(|node| node.state.apply(&ask).is_ok()) {
            return None;
        }
        let seeded = self.first_sight_at(when.ns(), &ask, key, hash, &guard);
        seeded.is_denied().then_some(seeded)
    }
}
