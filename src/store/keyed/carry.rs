//! Carries the debts of keys over into another keyed store, for a change of the quota.

use std::hash::{BuildHasher, Hash};

use super::{Absent, Keyed, Lookup};
use crate::algorithm::Algorithm;
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError};
use crate::base::reclaim;
use crate::store::op::{CarriedOver, CarryOver, Debt, Debts, Inherit, Migrate, Rebuild, Store};
use crate::store::state::{Action, Request};

impl<K, A, H> Migrate for Keyed<K, A, H>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
{
    fn debts(&self) -> &dyn Debts {
        &self.algorithm
    }

    fn carry_all(&self, into: &Self, carry: CarryOver<'_>) -> CarriedOver {
        let mut all = true;
        self.for_each(carry.at_ns, |key, before| {
            let debt = carry.debt(before, |at| self.peek(self.prepare(key), at, 0));
            all &= into.is_seeded(key, carry.when, debt);
        });
        all.into()
    }

    fn is_known(&self) -> bool {
        self.len() == 0
    }

    fn beyond_ns(&self) -> Option<u64> {
        self.beyond.latest_ns()
    }
}

impl<K, A, H> Rebuild for Keyed<K, A, H>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher + Clone + Send + Sync + 'static,
{
    fn rebuild(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self::new(self.algorithm.with_quota(quota)?, self.hasher.clone(), self.layout()))
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

    /// Makes room under the cap as of `when`, the time of the call.
    fn seed(&self, key: &Q, when: CheckTime, Debt { at_ns, units, block }: Debt) -> Option<Decision> {
        self.beyond.note_debt(units, self.algorithm.burst(), at_ns);
        let hash = self.hash(key);
        let guard = reclaim::pin();
        let ask =
            Request { algorithm: &self.algorithm, action: Action::Seed(block), now_ns: at_ns, cost: units };
        if self.live(key, hash, &guard).is_some_and(|node| node.state.apply(&ask).is_ok()) {
            return None;
        }
        let seeded = self.first_sight_at(when.ns(), &ask, &Absent { key, hash, slot: None, guard: &guard });
        seeded.is_denied().then_some(seeded)
    }

    fn forget(&self, key: &Q) -> bool {
        self.remove(key);
        true
    }

    fn block_for(&self, key: &Q, when: CheckTime, block_ns: u64) -> bool {
        let hash = self.hash(key);
        self.act_rarely(key, hash, Action::Block(block_ns), when.ns(), 1).block_ns() > 0
    }
}
