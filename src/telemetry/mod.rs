//! Operator data: counters for each rule, gauges of stores, the most-denied keys, and an event for each denial.
//!
//! | what | without a feature | with `metrics` | with `tracing` |
//! |---|---|---|---|
//! | [`Meters`], one for each rule | [`Meters::counts`] | counters, fed by the same call | |
//! | [`Readings`] of a limiter | [`Readings::readings`] | `publish`, called when metrics are scraped | |
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
//! | `tollgate_requests_without_key_total` | `outcome` | requests in which a layer found no key: `refused`, `allowed`, `shared` |
//!
//! *Whose* stands for one of two sets of labels: `domain` and `rule` for a rule's store (`publish_rules` of `tollgate-rules`), or
//! `limiter` for a limiter (`publish`). A reload that changes a rule's kind or algorithm creates a new store.
//!
//! Label values are cleaned in the same way as Envoy's service cleans its names: `:`, `|` and the dots of IPv4
//! addresses become `_`.

mod denial;
mod event;
#[cfg(feature = "metrics")]
pub mod facade;
pub(crate) mod gauges;
pub(crate) mod keyless;
mod log;
pub(crate) mod meters;
#[cfg(not(feature = "metrics"))]
mod no_facade;
#[cfg(not(feature = "tracing"))]
mod no_trace;
mod shares;
pub(crate) mod stripes;
mod tallies;
mod timer;
mod top;
#[cfg(feature = "tracing")]
mod trace;

pub use self::denial::{Denial, Level};
pub use self::event::Event;
#[cfg(feature = "metrics")]
pub use self::facade::{describe, publish};
pub use self::gauges::{Reading, Readings};
pub use self::log::DenialLog;
pub use self::meters::{MeterCounts, Meters};
#[cfg(not(feature = "metrics"))]
use self::no_facade as facade;
#[cfg(not(feature = "tracing"))]
use self::no_trace as trace;
pub use self::shares::{NearLimit, Shares};
pub use self::timer::CheckTimer;
pub use self::top::{DeniedKey, TopDenied};
