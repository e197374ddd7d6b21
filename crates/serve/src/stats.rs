//! The server's own counts, and those of answers, for `/stats` and for the metrics.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use metrics::Label;

use super::answer::AnswerCounts;
use super::outage::RedisState;

/// What the server counts about its connections and its certificates.
///
/// Ordering: Relaxed everywhere. The counts publish no other data.
#[derive(Debug, Default)]
pub struct Stats {
    /// Connections that were accepted.
    pub accepted: Count,
    /// Connections that are open.
    pub open: Count,
    /// Connections that were closed at once, because there were too many.
    pub too_many: Count,
    /// Accepts that failed.
    pub accept_errors: Count,
    /// Connections whose first bytes were not those of the protocol.
    pub not_http2: Count,
    /// TLS handshakes that failed, and clients without an allowed name.
    pub handshakes_failed: Count,
    /// Connections that sent nothing for too long at the start.
    pub handshakes_late: Count,
    /// Connections that ended with an error of the protocol.
    pub protocol_errors: Count,
    /// Connections that were asked to end because of their age.
    pub aged: Count,
    /// Connections that were cut off at the end of their grace.
    pub cut_after_grace: Count,
    /// Connections that were cut off at the end of the drain.
    pub cut: Count,
    /// Certificates that were read and took effect, after the start.
    pub tls_loads: Count,
    /// Certificates that were read and cannot be used.
    pub tls_errors: Count,
    /// Spans that wait to be sent, or are on their way.
    pub spans_waiting: Count,
    /// Spans that a collector took.
    pub spans_sent: Count,
    /// Spans that were dropped, because too many waited or the collector did not take them.
    pub spans_dropped: Count,
    /// What is counted about the control plane, if rules are from one.
    pub xds: OnceLock<XdsStats>,
    /// What is known about the Redis server, if there is one.
    pub redis: OnceLock<Arc<RedisState>>,
    /// The writes of the state, if `--state` is set.
    pub state: OnceLock<Arc<StateCounts>>,
    /// What operators did.
    pub operators: OperatorCounts,
    /// The counts of endpoints that a program adds: see [`Stats::counter`].
    added: Mutex<Vec<AddedCount>>,
}

/// A count of an endpoint that a program adds.
#[derive(Debug)]
struct AddedCount {
    name: &'static str,
    help: &'static str,
    count: Arc<Count>,
}

/// What is counted about the control plane.
#[derive(Debug, Default)]
pub struct XdsStats {
    /// The control plane in messages.
    pub name: String,
    /// 1 if it has sent rules on the present stream.
    pub connected: Count,
    /// 1 if the last set of rules was refused.
    pub nack: Count,
    /// Sets that were accepted.
    pub acks: Count,
    /// Sets that were refused.
    pub nacks: Count,
    /// Connections that failed, and streams that ended.
    pub ended: Count,
}

/// What the server counts about its state.
#[derive(Debug, Default)]
pub struct StateCounts {
    /// Of each file, first that of the rules.
    pub files: Vec<StateFileCounts>,
    /// Writes that failed or hang.
    pub errors: Count,
    /// The counters that were taken over at the start.
    pub restored: Count,
}

/// What the server counts about a file of its state.
#[derive(Debug, Default)]
pub struct StateFileCounts {
    /// Writes that succeeded.
    pub writes: Count,
    /// The length of the last one that succeeded.
    pub bytes: Count,
    /// The time of the last write that succeeded, in seconds since the epoch; at first, that of the start.
    pub written_at: Count,
}

/// The names of what operators do, in the order of their counts.
pub const OPERATOR_ACTIONS: [&str; 5] = ["inspect", "reset", "grant", "block", "unblock"];

/// What operators did.
#[derive(Debug, Default)]
pub struct OperatorCounts {
    /// Requests that were admitted, by name.
    pub actions: [Count; OPERATOR_ACTIONS.len()],
    /// Requests that were not admitted.
    pub refused: Count,
}

impl OperatorCounts {
    /// Returns all counts. Those with the same name follow each other.
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        let actions = OPERATOR_ACTIONS.iter().zip(&self.actions).map(|(action, count)| {
            let help = "Requests of operators that were admitted, by what they do";
            Sample::counter("tollgate_service_operator_acts_total", help, count.get()).with("act", action)
        });
        let help = "Requests of operators that were not admitted: no token, a wrong one, or another user";
        actions.chain([Sample::counter("tollgate_service_operator_refused_total", help, self.refused.get())])
    }
}

/// A number that threads change.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub fn add(&self) {
        self.add_n(1);
    }

    /// Adds a number.
    pub fn add_n(&self, number: u64) {
        self.0.fetch_add(number, Relaxed);
    }

    /// Subtracts this number, of those that were added.
    pub fn sub(&self, number: u64) {
        self.0.fetch_sub(number, Relaxed);
    }

    /// Sets the number.
    pub fn set(&self, number: u64) {
        self.0.store(number, Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number with its name.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The metric's name.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// Whether it is a gauge. Otherwise it is a counter.
    pub is_gauge: bool,
    /// Its label, if it has one.
    pub label: Option<(&'static str, &'static str)>,
    /// The number.
    pub value: u64,
}

impl Sample {
    pub const fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, is_gauge: false, label: None, value }
    }

    pub const fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, is_gauge: true, label: None, value }
    }

    pub const fn with(self, label: &'static str, value: &'static str) -> Self {
        Self { label: Some((label, value)), ..self }
    }

    /// Gives the number to the recorder of metrics.
    pub fn publish(&self) {
        let labels: Vec<Label> =
            self.label.iter().map(|&(name, value)| Label::from_static_parts(name, value)).collect();
        if self.is_gauge {
            metrics::describe_gauge!(self.name, self.help);
            metrics::gauge!(self.name, labels).set(self.value as f64);
        } else {
            metrics::describe_counter!(self.name, self.help);
            metrics::counter!(self.name, labels).absolute(self.value);
        }
    }

    /// Returns the name with the label.
    pub fn full_name(&self) -> String {
        match self.label {
            None => self.name.to_owned(),
            Some((label, value)) => format!("{}{{{label}=\"{value}\"}}", self.name),
        }
    }
}

impl Stats {
    /// Returns a count of an endpoint that a program adds. The page of metrics shows it as a counter with this name and this help, and the
    /// page `/stats` too. A name that is there already returns its count.
    pub fn counter(&self, name: &'static str, help: &'static str) -> Arc<Count> {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = added.iter().find(|known| known.name == name) {
            return Arc::clone(&known.count);
        }
        let count = Arc::new(Count::default());
        added.push(AddedCount { name, help, count: Arc::clone(&count) });
        count
    }

    /// Returns all counts. Those with the same name follow each other.
    #[rustfmt::skip]
    pub fn samples(&self) -> Vec<Sample> {
        let gauge = |name, help, count: &Count| Sample::gauge(name, help, count.get());
        let counter = |name, help, count: &Count| Sample::counter(name, help, count.get());
        let xds = self.xds.get().map(XdsStats::samples).into_iter().flatten();
        let state = self.state.get().into_iter().flat_map(|state| state.samples());
        let own = [
            gauge("tollgate_service_connections", "Open connections", &self.open),
            counter("tollgate_service_connections_total", "Accepted connections", &self.accepted),
            counter("tollgate_service_connections_refused_total", "Connections closed at once because there were too many", &self.too_many),
            counter("tollgate_service_accept_errors_total", "Failed accepts", &self.accept_errors),
            counter("tollgate_service_not_http2_total", "Connections to the gRPC endpoint whose first bytes were not HTTP/2", &self.not_http2),
            counter("tollgate_service_handshakes_failed_total", "TLS handshakes that failed, and clients without an allowed name", &self.handshakes_failed),
            counter("tollgate_service_handshakes_late_total", "Connections that took too long to begin", &self.handshakes_late),
            counter("tollgate_service_connection_errors_total", "Connections that ended with an error of the protocol", &self.protocol_errors),
            counter("tollgate_service_connections_aged_total", "Connections that were asked to end because of their age", &self.aged),
            counter("tollgate_service_connections_cut_after_grace_total", "Connections cut off at the end of their grace", &self.cut_after_grace),
            counter("tollgate_service_connections_cut_total", "Connections cut off at the end of the drain", &self.cut),
            counter("tollgate_service_tls_reload_total", "Changed certificates that took effect", &self.tls_loads),
            counter("tollgate_service_tls_reload_errors_total", "Changed certificates that cannot be used", &self.tls_errors),
            gauge("tollgate_service_spans_waiting", "Spans that wait to be sent", &self.spans_waiting),
            counter("tollgate_service_spans_sent_total", "Spans that a collector took", &self.spans_sent),
            counter("tollgate_service_spans_dropped_total", "Spans that were dropped", &self.spans_dropped),
        ];
        let added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        let added = Vec::from_iter(added.iter().map(|added| counter(added.name, added.help, &added.count)));
        let redis = self.redis.get().map(|redis| {
            let help = "Whether the Redis server can be used; while it is 0, on_failure decides";
            Sample::gauge("tollgate_service_redis_usable", help, redis.outage().is_none().into())
        });
        own.into_iter().chain(added).chain(redis).chain(xds).chain(state).chain(self.operators.samples()).collect()
    }
}

impl XdsStats {
    #[rustfmt::skip]
    fn samples(&self) -> [Sample; 5] {
        let set = |result, count: &Count| Sample::counter("tollgate_xds_sets_total", "Sets of rules from the control plane, by answer", count.get()).with("result", result);
        [
            Sample::gauge("tollgate_xds_connected", "Whether the control plane has sent rules on the present stream", self.connected.get()),
            Sample::gauge("tollgate_xds_nack", "Whether the last set of rules was refused", self.nack.get()),
            set("ack", &self.acks),
            set("nack", &self.nacks),
            Sample::counter("tollgate_xds_streams_ended_total", "Connections to the control plane that failed, and streams that ended", self.ended.get()),
        ]
    }

    /// Describes the state in a few words.
    pub fn state(&self) -> &'static str {
        match (self.connected.get(), self.nack.get()) {
            (0, _) => "not connected",
            (_, 0) => "connected",
            _ => "connected, and its last set of rules was refused",
        }
    }
}

/// Returns the time in seconds since the epoch.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl StateCounts {
    /// Returns counts for this number of files.
    pub fn new(files: usize) -> Self {
        let counts =
            Self { files: Vec::from_iter((0..files).map(|_| StateFileCounts::default())), ..Self::default() };
        counts.files.iter().for_each(|file| file.written_at.set(now()));
        counts
    }

    /// Returns the counts. A write of the state is one of each file.
    #[rustfmt::skip]
    pub fn samples(&self) -> [Sample; 5] {
        let Self { files, errors, restored } = self;
        let least = |count: fn(&StateFileCounts) -> &Count| files.iter().map(|file| count(file).get()).min().unwrap_or(0);
        let (writes, bytes) = (least(|file| &file.writes), files.iter().map(|file| file.bytes.get()).sum());
        let age = now().saturating_sub(least(|file| &file.written_at));
        [
            Sample::counter("tollgate_service_state_writes_total", "Writes of the state that succeeded", writes),
            Sample::counter("tollgate_service_state_write_errors_total", "Writes of the state that failed", errors.get()),
            Sample::gauge("tollgate_service_state_bytes", "Bytes of the last state that was written", bytes),
            Sample::gauge("tollgate_service_state_age_seconds", "Seconds since the last write that succeeded, or since the start", age),
            Sample::gauge("tollgate_service_state_restored_rules", "Rules whose usage was taken over at the start", restored.get()),
        ]
    }
}

/// The gRPC codes by number.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Returns the counts of answers, and of requests by method. Those with the same name follow each other.
#[rustfmt::skip]
pub fn samples_of(counts: &AnswerCounts, requests: &[(&'static str, u64)]) -> Vec<Sample> {
    let counter = Sample::counter;
    let methods = requests.iter().map(|&(name, value)| {
        counter("tollgate_service_requests_total", "Requests, by method", value).with("method", name)
    });
    let codes = CODES.iter().zip(counts.codes).filter(|(_, value)| *value > 0).map(|(code, value)| {
        counter("tollgate_service_answers_total", "Answers, by gRPC code", value).with("code", code)
    });
    let rest = [
        counter("tollgate_service_over_limit_total", "Answers that say over a limit", counts.over_limit),
        counter("tollgate_service_shadow_denied_total", "Answers that would say over a limit without --shadow", counts.shadow_denied),
        counter("tollgate_service_overloads_total", "Requests refused at once because too many others waited", counts.overloads),
        counter("tollgate_service_late_answers_total", "Answers that came 5 ms or more after their deadline", counts.late),
        counter("tollgate_service_undecodable_total", "Requests that could not be decoded", counts.undecodable),
        Sample::gauge("tollgate_service_in_flight", "Requests that wait for their answer", counts.in_flight),
    ];
    methods.chain(codes).chain(rest).collect()
}
