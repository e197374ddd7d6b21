//! What operators see of rules: counts of loads, and the metrics and events of rules.
//!
//! [`tollgate::telemetry`] has the metrics of each rule, and the words of these tables.
//!
//! # Metrics
//! | name | labels | |
//! |---|---|---|
//! | `tollgate_reload_total` | `result` | loads of rules: `success`, `error` |
//! | `tollgate_reload_last_success_timestamp_seconds` | | the Unix time of the last successful load |
//! | `tollgate_rules` | | rules in force |
//! | `tollgate_rules_unmatched` | `domain` | rules that matched no request since the last load, in a domain that had requests (`tollgate_rules::publish_rules`) |
//! | `tollgate_config_hash` | | a hash of the rule files in force: processes with the same rules have the same number |
//! | `tollgate_rules_version` | | the version of the rules in force, for rules that follow a source with numbers |
//! | `tollgate_rules_version_timestamp_seconds` | | the Unix time when that version was written; 0 if unknown |
//! | `tollgate_rules_source_answer_timestamp_seconds` | | the Unix time of the last answer of the source |
//! | `tollgate_rules_source_fails` | | 1 while the source does not answer, or has rules that cannot be used; `Rules::last_error` has the reason |
//! | `tollgate_domains_removed_total` | | domains that loads of rules have removed |
//! | `tollgate_domain_not_found_total` | | requests with a domain that has no rules |
//!
//! A load drops the counters of the rules that it removes. Most recorders keep the series of a dropped counter for ever. An
//! `idle_timeout` of a recorder also removes series of idle rules in force, which then count nothing more.

#[cfg(feature = "metrics")]
mod facade;
#[cfg(not(feature = "metrics"))]
mod no_facade;
#[cfg(not(feature = "tracing"))]
mod no_trace;
mod reload;
#[cfg(feature = "tracing")]
mod trace;

#[cfg(feature = "metrics")]
pub use self::facade::describe;
#[cfg(feature = "metrics")]
pub(crate) use self::facade::{publish_rule, publish_unmatched};
#[cfg(not(feature = "metrics"))]
use self::no_facade as facade;
#[cfg(not(feature = "tracing"))]
use self::no_trace as trace;
pub use self::reload::{ReloadCounts, Reloads};
pub(crate) use self::trace::request_without_rule;
