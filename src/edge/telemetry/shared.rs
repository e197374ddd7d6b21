//! Metrics about the server of a shared limiter.

use metrics::{Counter, Histogram, Label};

use super::event::Event;
use super::facade::{counter, describe_counters, describe_duration, describe_gauges, histogram, value};
use super::gauges::{BREAKER_STATE, PARTITIONED, SERVER_EVICTS};

const SYNC_DURATION: &str = "tollgate_sync_duration_seconds";
const SYNC_ERRORS: &str = "tollgate_sync_errors_total";
const UNDECIDED: &str = "tollgate_failure_decisions_total";

/// The metrics of one shared limiter's server.
pub(crate) struct SharedHandles {
    duration: Histogram,
    /// The error counters, in the order of the labels.
    errors: Box<[Counter]>,
    decided: [(Event, Counter); 3],
}

impl SharedHandles {
    /// Registers the metrics. `kinds` are the labels of the errors.
    pub(crate) fn register(limiter: &str, kinds: &[&'static str]) -> Self {
        let name = Label::new("limiter", value(limiter));
        let labels = |label, value| vec![name.clone(), Label::from_static_parts(label, value)];
        let decided = |event: Event| (event, counter(UNDECIDED, labels("decision", event.as_str())));
        Self {
            duration: histogram(SYNC_DURATION, vec![name.clone()]),
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

pub(super) fn describe() {
    describe_counters(&[
        (SYNC_ERRORS, "Calls to the shared state that failed or were not sent, by kind"),
        (UNDECIDED, "Requests that were decided without the shared state, because it was unavailable"),
    ]);
    describe_gauges(&[
        (PARTITIONED, "1 while a circuit breaker stops calls to the shared state or to a part of it"),
        (BREAKER_STATE, "The state of the circuit breaker: 0 closed, 1 half-open, 2 open"),
        (
            SERVER_EVICTS,
            "1 if the server is set to evict keys, and with them the state of limits, when its memory is full",
        ),
    ]);
    describe_duration(SYNC_DURATION, "The duration of calls to the shared state, with or without an answer");
}
