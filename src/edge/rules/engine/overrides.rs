//! Limits that requests bring along.
//!
//! A request may say its own limit (`limit` of Envoy's descriptors), which comes before the file's. It counts by domain, entries and
//! unit, not by the limit, so requests of one client that say different limits share one counter: that has room for any, and each
//! request is judged by what it says. Envoy's service has one counter for these and for the file's rule; here a rule that counts in
//! windows of the same unit, by all values, looks into this counter, and this one into the rule's.

use crate::base::quota::Quota;
use crate::edge::rules::rule::{Algorithm, Limit, MILLION, Metric, Rule, Store, Unit};

/// The first index of those rules, behind all rules of any file.
pub(super) const FIRST: u32 = u32::MAX - 7;

/// Whether it is the index of one of these.
pub(super) const fn is_index(rule: u32) -> bool {
    rule >= FIRST
}

/// The index of the rule for a unit.
pub(super) const fn index(unit: Unit) -> u32 {
    FIRST + unit as u32
}

/// Clients whose own limits are counted, for each unit.
const MAX_KEYS: usize = 100_000;

/// The rule that counts the limits of a unit. It has room for any limit: 268 million a second are more than there can be.
pub(super) fn rule(unit: Unit) -> Option<Rule> {
    let most = if unit == Unit::Second { 1 << 28 } else { 1 << 32 };
    let quota = Quota::try_new(most, unit.period()).ok()?;
    let name = format!("requested per {unit}");
    Some(Rule {
        identity: name.clone().into(),
        name: name.clone().into(),
        is_named: false,
        limit: Limit::Quota {
            quota,
            algorithm: Algorithm::FixedWindow,
            store: Some(Store::Keyed { max_keys: Some(MAX_KEYS) }),
        },
        soft: u64::MAX,
        shadow: false,
        quota_mode: false,
        enforced_per_million: MILLION,
        replaces: Vec::new(),
        counted_by: u32::MAX,
        counted_by_key: 0,
        metric: Metric { levels: vec![name.into()], ..Metric::default() },
        line: 0,
    })
}
