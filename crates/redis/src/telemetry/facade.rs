//! The `metrics` facade: metrics about the server of a shared limiter.
//!
//! Only this module names the crate `metrics`. Without the feature, `no_facade` stands in for it.

use std::sync::Arc;

use metrics::{Counter, Histogram, Label};
use tollgate::internals::facade::{
    counter, describe_counters, describe_duration, describe_gauges, histogram, publish_readings, value,
};
use tollgate::telemetry::{Event, Readings};

use super::gauges::{BREAKER_STATE, PARTITIONED, REGION_CUT_OFF, REGION_LAST_ANSWER, SERVER_EVICTS};

const SYNC_DURATION: &str = "tollgate_sync_duration_seconds";
const SYNC_ERRORS: &str = "tollgate_sync_errors_total";
const UNDECIDED: &str = "tollgate_failure_decisions_total";
const CREDENTIALS_REFUSED: &str = "tollgate_credentials_refused_total";

/// The metrics of one shared limiter's server.
pub(crate) struct SharedHandles {
    duration: Histogram,
    /// The error counters, in the order of the labels.
    errors: Box<[Counter]>,
    decided: [(Event, Counter); 3],
}

impl SharedHandles {
    /// Registers the metrics. `kinds` are the labels of the errors. With several servers, `server` is the server's name.
    pub(crate) fn register(limiter: &str, server: Option<&str>, kinds: &[&'static str]) -> Self {
        let whose: Vec<_> = server_labels(limiter, server);
        let labels = |label, value| {
            let mut labels = whose.clone();
            labels.push(Label::from_static_parts(label, value));
            labels
        };
        let decided = |event: Event| (event, counter(UNDECIDED, labels("decision", event.as_str())));
        Self {
            duration: histogram(SYNC_DURATION, whose.clone()),
            errors: kinds.iter().map(|kind| counter(SYNC_ERRORS, labels("kind", kind))).collect(),
            decided: [Event::ErrorOpen, Event::ErrorClosed, Event::ErrorLocal].map(decided),
        }
    }

    pub(crate) fn took(&self, duration: std::time::Duration) {
        self.duration.record(duration);
    }

    /// Counts an error. `index` is the position of its kind among all kinds.
    pub(crate) fn error(&self, index: usize) {
        if let Some(errors) = self.errors.get(index) {
            errors.increment(1);
        }
    }

    pub(crate) fn decided(&self, event: Event) {
        if let Some((_, counter)) = self.decided.iter().find(|(decided, _)| *decided == event) {
            counter.increment(1);
        }
    }
}

/// Counts credentials that a server refused, or that a provider could not give.
pub(crate) fn count_refused_credentials() {
    counter(CREDENTIALS_REFUSED, Vec::new()).increment(1);
}

fn server_labels(limiter: &str, server: Option<&str>) -> Vec<Label> {
    let server = server.map(|server| Label::new("server", value(server)));
    [Label::new("limiter", value(limiter))].into_iter().chain(server).collect()
}

/// Sends the readings of each server of a limiter to the metrics facade, under the limiter's and the server's names.
/// `servers` comes from the limiter's `health_by_server`. Call it when metrics are scraped.
pub fn publish_servers<R: Readings>(limiter: &str, servers: &[(Arc<str>, R)]) {
    for (server, health) in servers {
        publish_readings(&health.readings(), || server_labels(limiter, Some(server)));
    }
}

/// Sends the readings of the other regions of a limiter to the metrics facade, under the limiter's and the region's names.
/// `regions` comes from the limiter's `health_by_region`. Call it when metrics are scraped.
pub fn publish_regions<R: Readings>(limiter: &str, regions: &[(Arc<str>, R)]) {
    for (region, health) in regions {
        let labels = || vec![Label::new("limiter", value(limiter)), Label::new("region", value(region))];
        publish_readings(&health.readings(), labels);
    }
}

/// Registers the units and descriptions of the metrics of shared limiters. Call it once, after the recorder is installed,
/// beside [`tollgate::telemetry::describe`].
pub fn describe() {
    describe_counters(&[
        (SYNC_ERRORS, "Calls to the shared state that failed or were not sent, by kind"),
        (UNDECIDED, "Requests that were decided without the shared state, because it was unavailable"),
        (CREDENTIALS_REFUSED, "Credentials that a server refused, or that a provider could not give"),
    ]);
    describe_gauges(&[
        (PARTITIONED, "1 while a circuit breaker stops calls to the shared state or to a part of it"),
        (BREAKER_STATE, "The state of the circuit breaker: 0 closed, 1 half-open, 2 open"),
        (
            REGION_CUT_OFF,
            "1 while no process of this region got an answer of another region, over three exchange intervals of calls",
        ),
        (REGION_LAST_ANSWER, "The time since the last answer of another region"),
        (
            SERVER_EVICTS,
            "1 if the server is set to evict keys, and with them the state of limits, when its memory is full",
        ),
    ]);
    describe_duration(SYNC_DURATION, "The duration of calls to the shared state, with or without an answer");
}
