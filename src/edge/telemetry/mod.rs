//! Operator data: counters for each rule, gauges of stores, the most-denied keys, and an event for each denial.
//!
//! | what | without a feature | with `metrics` | with `tracing` |
//! |---|---|---|---|
//! | [`Meters`], one for each rule | [`Meters::counts`] | counters, fed by the same call | |
//! | [`Readings`] of a limiter | [`Readings::readings`] | `publish`, called when metrics are scraped | |
//! | [`Reloads`] of rules | [`Reloads::counts`] | counters and gauges | an event for each |
//! | [`TopDenied`] | [`TopDenied::top`] | | |
//! | [`CheckTimer`] | | a histogram of a sample | |
//! | [`DenialLog`] | | | an event for each denial |
//!
//! Labels name rules, because rules are few. Labels never name keys, because keys are many. This module starts no
//! threads.
//!
//! # Metrics
//! | name | labels | |
//! |---|---|---|
//! | `tollgate_requests_total` | `domain`, `rule`, `decision` | requests, by outcome; see [`Event`] |
//! | `tollgate_hits_total` | `domain`, `rule` | requested units |
//! | `tollgate_near_limit_total` | `domain`, `rule` | admitted units above four fifths of the limit |
//! | `tollgate_over_limit_total` | `domain`, `rule` | units above the limit |
//! | `tollgate_soft_limited_total` | `domain`, `rule` | admitted units above the soft limit |
//! | `tollgate_blocked_total` | `domain`, `rule` | units that were denied because their key is [blocked](crate::Blocked) |
//! | `tollgate_check_duration_seconds` | `domain` | the duration of a sample of checks |
//! | `tollgate_keys` | whose | stored keys |
//! | `tollgate_slots` | whose | the capacity in keys |
//! | `tollgate_evictions` | whose | a gauge: keys with debt that were evicted since the store was created |
//! | `tollgate_debt_denials` | whose | a gauge: new keys that were denied for a debt that may belong to other keys, since the store was created |
//! | `tollgate_sketch_false_positive_estimate` | whose | see [`Saturation::false_positive`](crate::stores::Saturation::false_positive) |
//! | `tollgate_sketch_estimated_error` | whose | see [`Saturation::overcounted`](crate::stores::Saturation::overcounted) |
//! | `tollgate_sketch_false_denial_estimate` | whose | see [`Saturation::denied`](crate::stores::Saturation::denied) |
//! | `tollgate_reload_total` | `result` | loads of rules: `success`, `error` |
//! | `tollgate_reload_last_success_timestamp_seconds` | | the Unix time of the last successful load |
//! | `tollgate_rules` | | rules in force |
//! | `tollgate_rules_unmatched` | `domain` | rules that matched no request since the last load, in a domain that had requests (`rules::publish_rules`) |
//! | `tollgate_config_hash` | | a hash of the rule files in force: processes with the same rules have the same number |
//! | `tollgate_rules_version` | | the version of the rules in force, for rules that follow a source with numbers |
//! | `tollgate_rules_version_timestamp_seconds` | | the Unix time when that version was written; 0 if unknown |
//! | `tollgate_rules_source_answer_timestamp_seconds` | | the Unix time of the last answer of the source |
//! | `tollgate_rules_source_fails` | | 1 while the source does not answer, or has rules that cannot be used; `Rules::last_error` has the reason |
//! | `tollgate_domains_removed_total` | | domains that loads of rules have removed |
//! | `tollgate_requests_without_key_total` | `outcome` | requests in which a layer found no key: `refused`, `allowed`, `shared` |
//! | `tollgate_sync_duration_seconds` | `limiter` | the duration of calls to the shared state, with or without an answer |
//! | `tollgate_sync_errors_total` | `limiter`, `kind` | calls to the shared state that failed, or (`breaker`) were not sent because of earlier failures |
//! | `tollgate_failure_decisions_total` | `limiter`, `decision` | requests decided without the shared state: `error_open`, `error_closed`, `error_local` |
//! | `tollgate_partitioned` | `limiter` | 1 while a circuit breaker stops calls to the shared state or to a part of it |
//! | `tollgate_breaker_state` | `limiter` | 0 closed, 1 half-open, 2 open |
//! | `tollgate_credentials_refused_total` | | credentials that a server refused, or that a provider could not give; absent before the first |
//! | `tollgate_server_evicts` | `limiter` | 1 if the server is set to evict keys when its memory is full |
//! | `tollgate_region_cut_off` | `limiter`, `region` | 1 while no process of this region got an answer of another region, over three exchange intervals of calls |
//! | `tollgate_region_last_answer_seconds` | `limiter`, `region` | the time since the last answer of another region |
//! | `tollgate_domain_not_found_total` | | requests with a domain that has no rules |
//!
//! If a shared limiter has several servers, the metrics of calls to the shared state and of decisions without it also have
//! the label `server`, and so have the gauges of `publish_servers`. `publish_regions` sends the gauges of other regions.
//!
//! *Whose* stands for one of two sets of labels: `domain` and `rule` for a rule's store (`rules::publish_rules`), or
//! `limiter` for a limiter (`publish`). A reload that changes a rule's kind or algorithm creates a new store.
//!
//! A load drops the counters of the rules that it removes. Most recorders keep the series of a dropped counter for ever. An
//! `idle_timeout` of a recorder also removes series of idle rules in force, which then count nothing more.
//!
//! Label values are cleaned in the same way as Envoy's service cleans its names: `:`, `|` and the dots of IPv4
//! addresses become `_`.

mod denial;
mod event;
#[cfg(feature = "metrics")]
mod facade;
mod gauges;
pub(crate) mod keyless;
mod log;
mod meters;
#[cfg(not(feature = "metrics"))]
mod no_facade;
#[cfg(not(feature = "tracing"))]
mod no_trace;
mod reload;
mod shares;
mod stripes;
mod timer;
mod top;
#[cfg(feature = "tracing")]
mod trace;

pub use self::denial::{Denial, Level};
pub use self::event::Event;
#[cfg(feature = "redis")]
pub(crate) use self::facade::{SharedHandles, count_refused_credentials};
#[cfg(feature = "metrics")]
pub use self::facade::{describe, publish};
#[cfg(all(feature = "metrics", feature = "redis"))]
pub use self::facade::{publish_regions, publish_servers};
#[cfg(all(feature = "metrics", feature = "rules"))]
pub(crate) use self::facade::{publish_rule, publish_unmatched};
#[cfg(feature = "rules")]
pub(crate) use self::gauges::readings_of;
#[cfg(feature = "redis")]
pub(crate) use self::gauges::{
    BREAKER_STATE, PARTITIONED, REGION_CUT_OFF, REGION_LAST_ANSWER, SERVER_EVICTS,
};
pub use self::gauges::{Reading, Readings};
pub use self::log::DenialLog;
pub use self::meters::{MeterCounts, Meters};
#[cfg(not(feature = "metrics"))]
use self::no_facade as facade;
#[cfg(not(feature = "tracing"))]
use self::no_trace as trace;
pub use self::reload::{ReloadCounts, Reloads};
pub use self::shares::{NearLimit, Shares};
#[cfg(feature = "redis")]
pub(crate) use self::stripes::Stripes;
pub use self::timer::CheckTimer;
pub use self::top::{DeniedKey, TopDenied};
#[cfg(feature = "rules")]
pub(crate) use self::trace::request_without_rule;
#[cfg(all(feature = "redis", feature = "rules"))]
pub(crate) use self::trace::subscription_refused;
#[cfg(feature = "redis")]
pub(crate) use self::trace::{credentials_refused, server_evicts, server_fails, server_works};

/// The server of a limiter, for the events about it.
#[cfg(feature = "redis")]
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "without events, nothing reads it"))]
#[derive(Copy, Clone, Debug)]
pub(crate) struct LimiterServer<'a> {
    pub(crate) limiter: &'a str,
    /// The server's name in a set.
    pub(crate) server: Option<&'a str>,
    /// Without user and password.
    pub(crate) address: &'a str,
    /// What decides while the server does not answer.
    pub(crate) on_failure: &'static str,
    /// How long calls have failed.
    pub(crate) failing: std::time::Duration,
}
