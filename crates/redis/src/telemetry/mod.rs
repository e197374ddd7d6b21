//! What operators see of shared limiters: the metrics and events of their servers and regions.
//!
//! # Metrics
//! | name | labels | |
//! |---|---|---|
//! | `tollgate_sync_duration_seconds` | `limiter` | the duration of calls to the shared state, with or without an answer |
//! | `tollgate_sync_errors_total` | `limiter`, `kind` | calls to the shared state that failed, or (`breaker`) were not sent because of earlier failures |
//! | `tollgate_failure_decisions_total` | `limiter`, `decision` | requests decided without the shared state: `error_open`, `error_closed`, `error_local` |
//! | `tollgate_partitioned` | `limiter` | 1 while a circuit breaker stops calls to the shared state or to a part of it |
//! | `tollgate_breaker_state` | `limiter` | 0 closed, 1 half-open, 2 open |
//! | `tollgate_credentials_refused_total` | | credentials that a server refused, or that a provider could not give; absent before the first |
//! | `tollgate_server_evicts` | `limiter` | 1 if the server is set to evict keys when its memory is full |
//! | `tollgate_region_cut_off` | `limiter`, `region` | 1 while no process of this region got an answer of another region, over three exchange intervals of calls |
//! | `tollgate_region_last_answer_seconds` | `limiter`, `region` | the time since the last answer of another region |
//!
//! If a shared limiter has several servers, the metrics of calls to the shared state and of decisions without it also have
//! the label `server`, and so have the gauges of `publish_servers`. `publish_regions` sends the gauges of other regions.

#[cfg(feature = "metrics")]
mod facade;
mod gauges;
#[cfg(not(feature = "metrics"))]
mod no_facade;
#[cfg(not(feature = "tracing"))]
mod no_trace;
#[cfg(feature = "tracing")]
mod trace;

use std::time::Duration;

pub(crate) use self::facade::{SharedHandles, count_refused_credentials};
#[cfg(feature = "metrics")]
pub use self::facade::{describe, publish_regions, publish_servers};
pub(crate) use self::gauges::{
    BREAKER_STATE, PARTITIONED, REGION_CUT_OFF, REGION_LAST_ANSWER, SERVER_EVICTS,
};
#[cfg(not(feature = "metrics"))]
use self::no_facade as facade;
#[cfg(not(feature = "tracing"))]
use self::no_trace as trace;
#[cfg(feature = "rules")]
pub(crate) use self::trace::subscription_refused;
pub(crate) use self::trace::{credentials_refused, server_evicts, server_fails, server_works};

/// The server of a limiter, for the events about it.
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
    pub(crate) failing: Duration,
}
