//! The holds of all rules, and what a request does with them.

use std::sync::Arc;
use std::time::Duration;

use crate::base::decision::Decision;
use crate::edge::rules::counting::Hasher;
use crate::edge::rules::rule::{Amount, Rule};
use crate::store::holding::HoldBook;
use crate::store::migrate::Generation;
use crate::store::{AnyStore, HoldId};

/// The most holds, and requests in progress, of all keys. Each takes about 300 bytes.
const MOST_HOLDS: usize = 1 << 18;

/// The holds of all rules. A request in progress has no charge.
pub(super) type RuleBook = HoldBook<Option<HeldCharge>>;

pub(super) fn new_book(hasher: &Hasher) -> Arc<RuleBook> {
    Arc::new(HoldBook::with_hasher(MOST_HOLDS, hasher.clone()))
}

/// The name of a counter, by which a hold finds the counter of a later load. A search among all rules would take a time in
/// proportion to their number, and other requests would wait for the shard of the hold meanwhile.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct CounterName {
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
pub(super) struct HeldCharge {
    /// The key in the counter. A request of any key can need the place of the hold once it has ended.
    pub(super) key: Box<str>,
    pub(super) name: Arc<CounterName>,
    pub(super) generation: Arc<Generation<AnyStore>>,
    /// The counters that take over this counter's usage have the same.
    pub(super) lineage: u64,
    pub(super) charge: Decision,
}

/// How a request uses the holds of its rules.
#[derive(Copy, Clone, Debug)]
pub(super) enum HoldUse<'d> {
    /// As the rules say.
    ByRule,
    /// It holds its cost, under this identity.
    As(&'d HoldId),
    /// Not at all.
    Nothing,
}

#[derive(Copy, Clone, Debug)]
pub(super) enum HoldStep {
    /// It takes units.
    Take(HoldId),
    /// It settles the hold that ends first, for this cost.
    Settle(u64),
}

impl Rule {
    /// How long a request holds units of the rule at most, if it does.
    pub(super) fn hold_life(&self) -> Option<Duration> {
        match (&self.limit, &self.hold) {
            (Amount::InProgress { life, .. }, _) => Some(*life),
            (_, hold) => hold.as_ref().map(|hold| hold.life),
        }
    }
}
