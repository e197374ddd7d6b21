//! What a snapshot needs of a chain of generations, and a chain that is restored.

use std::sync::Arc;

use super::{Before, Carry, Generation, Past, UNKNOWN};
use crate::base::sync::{AtomicU64, Ordering};
use crate::store::op::Migrate;

impl<S: Migrate> Generation<S> {
    /// The first generation of a restored store, in which no key owes more than `largest_debt` beyond its burst.
    pub fn restored(store: S, largest_debt: u64) -> Self {
        let first = Self::first(store);
        // Ordering: Relaxed. No other thread has the generation yet.
        first.padded.largest_debt.store(largest_debt, Ordering::Relaxed);
        first
    }

    /// The stores from which keys can still take debts over, the latest first, each with the time of the change that
    /// replaced it, in nanoseconds.
    pub fn older_stores(&self, mut now_ns: u64) -> Vec<(&S, u64)> {
        let (mut stores, mut generation) = (Vec::new(), self);
        while let Some(past) = generation.past().filter(|past| generation.asks(past, now_ns)) {
            (generation, now_ns) = (&*past.last, past.at_ns);
            stores.push((&generation.padded.store, now_ns));
        }
        stores
    }

    /// This restored generation, whose keys take debts over from another restored one, as after a change at `at_ns`.
    pub fn after(self, last: Self, carry: Carry, at_ns: u64) -> Self {
        let (paid_until_ns, is_listed) = (AtomicU64::new(UNKNOWN), AtomicU64::new(0));
        let past = Past { last: Arc::new(last), carry, at_ns, paid_until_ns, is_listed };
        Self { padded: self.padded, from: Before::Past(past) }
    }
}
