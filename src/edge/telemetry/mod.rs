//! What operators see: counters for each rule, gauges of stores, the keys that are denied most, an event for each refusal.
//!
//! | what | without a feature | with `metrics` | with `tracing` |
//! |---|---|---|---|
//! | [`Meters`], one for each rule | [`Meters::counts`] | counters, fed by the same call | |
//! | [`Readings`] of a limiter | [`Readings::readings`] | `publish`, called when metrics are scraped | |
//! | [`Reloads`] of rules | [`Reloads::counts`] | counters and gauges | an event for each |
//! | [`TopDenied`] | [`TopDenied::top`] | | |
//! | [`CheckTimer`] | | a histogram of a sample | |
//! | [`RefusalLog`] | | | an event for each refusal |
//!
//! Labels are rules, which are few, and never keys, which are not. Nothing here starts a thread.
//!
//! # Metrics
//! | name | labels | |
//! |---|---|---|
//! | `tollgate_requests_total` | `domain`, `rule`, `decision` | requests, by what became of them; see [`Event`] |
//! | `tollgate_hits_total` | `domain`, `rule` | units that were asked for |
//! | `tollgate_near_limit_total` | `domain`, `rule` | units that went through above four fifths of the limit |
//! | `tollgate_over_limit_total` | `domain`, `rule` | units above the limit |
//! | `tollgate_soft_limited_total` | `domain`, `rule` | units that went through above the soft limit |
//! | `tollgate_check_duration_seconds` | `domain` | how long checks take, of a sample |
//! | `tollgate_keys` | whose | keys that are held |
//! | `tollgate_slots` | whose | keys for which there is room |
//! | `tollgate_evictions` | whose | a gauge: keys that owed and gave way to others, since the store was made |
//! | `tollgate_debt_denials` | whose | a gauge: new keys that were denied for a debt that may not have been theirs, since the store was made |
//! | `tollgate_sketch_false_positive_estimate` | whose | see [`Saturation::mistaken`](crate::Saturation::mistaken) |
//! | `tollgate_sketch_estimated_error` | whose | see [`Saturation::overcounted`](crate::Saturation::overcounted) |
//! | `tollgate_sketch_false_denial_estimate` | whose | see [`Saturation::denied`](crate::Saturation::denied) |
//! | `tollgate_reload_total` | `result` | loads of rules: `success`, `error` |
//! | `tollgate_reload_last_success_timestamp_seconds` | | when rules were last loaded, in Unix time |
//! | `tollgate_rules` | | rules in force |
//! | `tollgate_rules_unmatched` | `domain` | rules that have applied to no request since the last load, although the domain was asked (`rules::publish_rules`) |
//! | `tollgate_config_hash` | | a hash of the files of rules in force: processes with the same rules show the same number |
//! | `tollgate_requests_without_key_total` | `outcome` | requests that a layer found no key in: `refused`, `allowed`, `shared` |
//! | `tollgate_sync_duration_seconds` | `limiter` | how long calls to the shared state take, answered or not |
//! | `tollgate_sync_errors_total` | `limiter`, `kind` | calls to it that failed, or (`breaker`) were not sent after failures |
//! | `tollgate_failure_decisions_total` | `limiter`, `decision` | requests decided without it: `error_open`, `error_closed`, `error_local` |
//! | `tollgate_partitioned` | `limiter` | 1 while it is not asked after failures |
//! | `tollgate_breaker_state` | `limiter` | 0 closed, 1 half-open, 2 open |
//! | `tollgate_domain_not_found_total` | | requests of a domain that there are no rules for |
//!
//! *Whose* are the labels `domain` and `rule` of a rule's store (`rules::publish_rules`), and `limiter` of a limiter (`publish`). A rule's store is
//! made anew by reloads that change its kind or its algorithm.
//!
//! Values of labels are cleaned as Envoy's service cleans its names: `:`, `|` and the dots of IPv4 addresses become `_`.

#[cfg(feature = "metrics")]
mod clean;
mod event;
#[cfg(feature = "metrics")]
mod facade;
mod gauges;
mod log;
mod meters;
mod reload;
#[cfg(all(feature = "metrics", feature = "redis"))]
mod shared;
mod shares;
mod stripes;
mod timer;
mod top;

pub use self::event::Event;
#[cfg(feature = "metrics")]
pub use self::facade::publish;
#[cfg(all(feature = "metrics", feature = "tower"))]
pub(crate) use self::facade::without_key;
#[cfg(all(feature = "metrics", feature = "rules"))]
pub(crate) use self::facade::{publish_rule, publish_unmatched};
#[cfg(feature = "rules")]
pub(crate) use self::gauges::readings_of;
#[cfg(feature = "redis")]
pub(crate) use self::gauges::{BREAKER_STATE, PARTITIONED, SERVER_EVICTS};
pub use self::gauges::{Reading, Readings};
pub use self::log::{Level, Refusal, RefusalLog};
pub use self::meters::{MeterCounts, Meters};
pub use self::reload::{ReloadCounts, Reloads};
#[cfg(all(feature = "metrics", feature = "redis"))]
pub(crate) use self::shared::SharedHandles;
pub use self::shares::Shares;
#[cfg(feature = "redis")]
pub(crate) use self::stripes::Stripes;
pub use self::timer::CheckTimer;
pub use self::top::{DeniedKey, TopDenied};

/// Gives the recorder the units and descriptions of all of this crate's metrics. Call it once, after the recorder is installed.
#[cfg(feature = "metrics")]
pub fn describe() {
    facade::describe();
    #[cfg(feature = "redis")]
    shared::describe();
}
