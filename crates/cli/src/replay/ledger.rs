//! The decisions of a store that differ from those of a keyed store.

use serde::Serialize;
use tollgate::{Algorithm, Timestamp};

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
    pub differences: Differences,
}

impl<A: Algorithm> Ledger<A> {
    pub fn new(algorithms: Vec<A>) -> Self {
        Self { limiters: keyed(algorithms), differences: Differences::default() }
    }

    /// Records a request and its decision.
    pub fn enter(&mut self, record: &Record, admitted: bool) {
        let now = Timestamp::from_nanos(record.at);
        if !admitted {
            let admits =
                |limiter: &KeyedLimiter<A>| limiter.at(now).peek_n(&record.key, record.cost).is_allowed();
            let deserved = self.limiters.iter().all(admits);
            self.differences.wrongly_denied += u64::from(deserved);
            return;
        }
        let mut deserved = true;
        for limiter in &self.limiters {
            if limiter.at(now).check_n(&record.key, record.cost).is_denied() {
                deserved = false;
                // What was admitted wrongly counts too.
                limiter.at(now).charge_unchecked(&record.key, record.cost);
            }
        }
        self.differences.wrongly_admitted += u64::from(!deserved);
    }
}
