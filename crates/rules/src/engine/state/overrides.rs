//! Limits that requests set themselves.
//!
//! A request may set its own limit (`limit` of Envoy's descriptors), which takes precedence over the file's. It counts
//! by domain, entries and unit, and not by the limit. Requests of one client with different limits therefore share one
//! counter. That counter has room for any limit, and each request is decided by its own limit.
//!
//! Envoy's service uses one counter for these limits and for the file's rule. Here, each has its own counter. If the
//! file's rule counts by all values in windows of the same unit, each side also reads the other's counter.

use tollgate::{Limit, LimitKind, Quota, StoreConfig, StoreKind, WhenFull};
use tollgate_config::{Amount, Metric, Rule, Store, TimeUnit};

/// The first index of these rules, after all rules of any file.
pub(super) const FIRST: u32 = u32::MAX - 7;

/// Whether this is the index of such a rule.
pub(in crate::engine) const fn is_index(rule: u32) -> bool {
    rule >= FIRST
}

/// Returns the index of the rule for a unit.
pub(in crate::engine) const fn index(unit: TimeUnit) -> u32 {
    FIRST + unit as u32
}

/// The number of clients with their own limits that are counted, for each unit.
const MAX_KEYS: usize = 100_000;

/// Creates the rule that counts the limits of a unit. It has room for any limit: 268 million per second exceed every
/// possible rate.
pub(super) fn rule(unit: TimeUnit) -> Option<Rule> {
    let most = if unit == TimeUnit::Second { 1 << 28 } else { 1 << 32 };
    let limit = Limit::try_new(LimitKind::FixedWindow, Quota::try_new(most, unit.period()).ok()?).ok()?;
    let name = format!("requested per {unit}");
    let store = StoreConfig::new(StoreKind::Keyed).with_max_keys(MAX_KEYS, WhenFull::Forget);
    let limit = Amount::Limited { limit, store: Some(Store::Local(store)) };
    let mut rule = Rule::of(limit, 0);
    rule.identity = name.clone().into();
    rule.name = name.clone().into();
    rule.counted_by = u32::MAX;
    rule.metric = Metric { levels: vec![name.into()], ..Metric::default() };
    Some(rule)
}
