//! The decisions of a store that differ from those of a keyed store.

use serde::Serialize;
use tollgate::{Algorithm, LimitKind, Quota, Timestamp};

use super::limiters::{KeyedLimiter, keyed};
use crate::input::Record;

/// Decisions that differ from a keyed store's. The keyed store is charged with what the tested store admits, so each
/// decision is compared on its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Differences {
    /// Denied, though the keyed store would have admitted it.
    pub wrongly_denied: u64,
    /// Admitted, though the keyed store would have denied it.
    pub wrongly_admitted: u64,
}

/// A keyed store that is charged with what another store admits, and that decides each request for comparison.
///
/// So each decision is compared on its own. An independent keyed store would count one wrong denial twice: the client
/// has used less from then on, so the tested store admits its next request where the keyed store denies it.
pub struct Ledger<A: Algorithm> {
    limiters: Vec<KeyedLimiter<A>>,
    /// The same algorithms with limits that no client reaches, to charge wrongly admitted requests too.
    with_unreachable_limit: Vec<A>,
    pub differences: Differences,
}

impl<A: Algorithm> Ledger<A> {
    pub fn new(algorithms: Vec<A>, quotas: &[Quota], kind: LimitKind) -> Self {
        let with_unreachable_limit = algorithms
            .iter()
            .zip(quotas)
            .map(|(algorithm, quota)| with_unreachable_limit(algorithm, quota, kind));
        Self {
            with_unreachable_limit: with_unreachable_limit.collect(),
            limiters: keyed(algorithms),
            differences: Differences::default(),
        }
    }

    /// Records a request and its decision.
    pub fn enter(&mut self, record: &Record, admitted: bool) {
        let now = Timestamp::from_nanos(record.at);
        if !admitted {
            let admits =
                |limiter: &KeyedLimiter<A>| limiter.peek_at(&record.key, record.cost, now).is_allowed();
            let deserved = self.limiters.iter().all(admits);
            self.differences.wrongly_denied += u64::from(deserved);
            return;
        }
        let mut deserved = true;
        for (limiter, with_unreachable_limit) in self.limiters.iter().zip(&self.with_unreachable_limit) {
            if limiter.check_at(&record.key, record.cost, now).is_denied() {
                deserved = false;
                let _ = limiter.check_with(&record.key, with_unreachable_limit, record.cost, now);
            }
        }
        self.differences.wrongly_admitted += u64::from(!deserved);
    }
}

/// Returns the algorithm with the largest quota that its state can hold: nearly always 2³² times its own.
fn with_unreachable_limit<A: Algorithm>(algorithm: &A, quota: &Quota, kind: LimitKind) -> A {
    let larger = |shift: u32| {
        let times = |units: u64| units.checked_mul(1 << shift);
        let quota = if kind.has_burst() {
            quota.try_burst(times(quota.burst_size())?)
        } else {
            Quota::try_new(times(quota.limit())?, quota.period())
        };
        algorithm.requota(&quota.ok()?).ok()
    };
    (1..=32).rev().find_map(larger).unwrap_or_else(|| algorithm.clone())
}
