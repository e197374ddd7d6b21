//! The holds of all rules: the book, and the charge of each hold.

use std::sync::Arc;

use tollgate::Decision;
use tollgate::internals::holding::HoldBook;
use tollgate::internals::migrate::Generation;
use tollgate::stores::AnyStore;
use tollgate_config::Rule;

use crate::counting::Hasher;

/// The most holds, and requests in progress, of all keys. Each takes about 300 bytes.
const MOST_HOLDS: usize = 1 << 18;

/// The holds of all rules. A request in progress has no charge.
pub(in crate::engine) type RuleBook = HoldBook<Option<CounterCharge>>;

pub(super) fn new_book(hasher: &Hasher) -> Arc<RuleBook> {
    Arc::new(HoldBook::with_hasher(MOST_HOLDS, hasher.clone()))
}

/// The name of a counter, by which a hold finds the counter of a later load. A search among all rules would take a time in
/// proportion to their number, and other requests would wait for the shard of the hold meanwhile.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::engine) struct CounterName {
    pub(super) domain: Box<str>,
    /// What [`Rule::counter`] returns.
    pub(super) counter: Box<str>,
}

impl CounterName {
    pub(super) fn of(domain: &str, rule: &Rule) -> Arc<Self> {
        Arc::new(Self { domain: domain.into(), counter: rule.counter().into() })
    }
}

/// The charge of a hold, and the counter that it was made in.
#[derive(Debug)]
pub(in crate::engine) struct CounterCharge {
    /// The key in the counter. Once the hold has ended, a request of another key may take its place in the book, and then gives
    /// the units back to this key.
    pub(in crate::engine) key: Box<str>,
    pub(in crate::engine) name: Arc<CounterName>,
    pub(in crate::engine) generation: Arc<Generation<AnyStore>>,
    /// A number that all counters share that take over each other's usage.
    pub(in crate::engine) lineage: u64,
    pub(in crate::engine) charge: Decision,
}
