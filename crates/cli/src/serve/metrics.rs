//! The metrics page, in Prometheus's text format.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tollgate::rules::publish_rules;
use tollgate::telemetry;

use super::answer::{AnswerCounts, BOUNDS_US, Entry};
use super::debug::{Debug, go_counts};
use super::http::{not_allowed, text, typed};
use super::process;
use super::stats::{Sample, samples_of};
use crate::error::Error;

/// The buckets of durations, in seconds. A gateway waits 20 ms.
const BUCKETS: [f64; 11] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.015, 0.02];

/// Installs the recorder of all metrics. Rules that exist already never reach it.
///
/// # Errors
/// If there is a recorder already.
pub fn install() -> Result<PrometheusHandle, Error> {
    let cannot = |error: &dyn std::fmt::Display| Error::run(format!("cannot record metrics: {error}"));
    LazyLock::force(&process::START);
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
        .map_err(|error| cannot(&error))?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|error| cannot(&error))?;
    telemetry::describe();
    Ok(handle)
}

/// The metrics page.
#[derive(Clone)]
pub struct Metrics {
    /// The recorder.
    pub handle: PrometheusHandle,
    /// What the debug pages show too.
    pub state: Debug,
    /// Where the page is.
    pub path: String,
    /// Whether it also has the names of the Go service.
    pub go_names: bool,
    /// Whether the time of an answer under such a name is in milliseconds.
    pub go_milliseconds: bool,
}

impl Metrics {
    /// Answers a request.
    pub fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match (request.uri().path(), request.method()) {
            (path, _) if path != self.path => {
                text(StatusCode::NOT_FOUND, format!("the metrics are at {}\n", self.path))
            }
            (_, &Method::GET | &Method::HEAD) => {
                typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.page())
            }
            _ => not_allowed("GET, HEAD"),
        }
    }

    fn page(&self) -> String {
        publish_rules(&self.state.rules);
        let counts = self.state.answerer.meters().read();
        let serving = Sample::gauge(
            "tollgate_service_serving",
            "Whether the service wants requests",
            u64::from(self.state.health.is_serving()),
        );
        let go = if self.go_names { self.go_samples(&counts) } else { Vec::new() };
        let samples =
            self.state.stats.samples().into_iter().chain(samples_of(&counts)).chain(go).chain([serving]);
        samples.for_each(|sample| sample.publish());
        self.handle.run_upkeep();
        let mut page = self.handle.render();
        histogram(&mut page, "tollgate_service_answer_duration_seconds", "", &counts, 1);
        if self.go_names {
            self.go_page(&mut page, &counts);
        }
        process::metrics(&mut page);
        page
    }

    /// Adds the counts of rules by the names of the Go service, and the times of answers. The recorder would keep a rule
    /// that is removed.
    fn go_page(&self, page: &mut String, counts: &AnswerCounts) {
        let mut rules: Vec<(String, [(&str, u64); 5])> = Vec::new();
        self.state.rules.for_each(|domain, rule, counts| {
            let mut levels = rule.metric.levels.iter().map(|level| &**level);
            let mut labels = format!("domain=\"{}\"", escaped(domain));
            if let Some(first) = levels.next() {
                let _ = write!(labels, ",key1=\"{}\"", escaped(first));
            }
            let rest = levels.collect::<Vec<_>>().join(".");
            if !rest.is_empty() {
                let _ = write!(labels, ",key2=\"{}\"", escaped(&rest));
            }
            rules.push((labels, go_counts(rule, &counts)));
        });
        for index in 0..5 {
            for (position, (labels, counts)) in rules.iter().enumerate() {
                let (count, value) = counts[index];
                let name = format!("ratelimit_service_rate_limit_{count}");
                if position == 0 {
                    let _ = writeln!(page, "# TYPE {name} counter");
                }
                let _ = writeln!(page, "{name}{{{labels}}} {value}");
            }
        }
        let (name, label) = ("ratelimit_service_response_time_seconds", "grpc_method=\"ShouldRateLimit\"");
        histogram(page, name, label, counts, if self.go_milliseconds { 1_000 } else { 1 });
    }

    /// Returns the other counts by the names of the Go service.
    #[rustfmt::skip]
    fn go_samples(&self, counts: &AnswerCounts) -> Vec<Sample> {
        let (counter, loads) = (Sample::counter, self.state.rules.reloads());
        let requests = Entry::ALL.iter().zip(counts.entries).map(|(entry, value)| {
            counter("ratelimit_service_total_requests", "Requests, by method", value).with("grpc_method", entry.name())
        });
        // The first code is OK.
        let errors = counts.codes.iter().skip(1).sum();
        requests.chain([
            counter("ratelimit_service_should_rate_limit_error", "Answers with an error", errors).with("err_type", "service_error"),
            counter("ratelimit_service_global_shadow_mode", "Answers that would say over a limit without --shadow", counts.shadow_denied),
            counter("ratelimit_service_config_load_success", "Loads of rules that took effect", loads.successes),
            counter("ratelimit_service_config_load_error", "Loads of rules that failed", loads.errors),
        ]).collect()
    }
}

/// Writes the times of answers, in parts of a second: 1,000 is milliseconds.
fn histogram(page: &mut String, name: &str, label: &str, counts: &AnswerCounts, parts: u32) {
    let _ = writeln!(page, "# TYPE {name} histogram");
    let comma = if label.is_empty() { "" } else { "," };
    let braced = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
    let mut below = 0;
    for (index, count) in counts.times.iter().enumerate() {
        below += count;
        let bound = BOUNDS_US.get(index).map_or("+Inf".to_owned(), |micros| {
            (Duration::from_micros(*micros) * parts).as_secs_f64().to_string()
        });
        let _ = writeln!(page, "{name}_bucket{{{label}{comma}le=\"{bound}\"}} {below}");
    }
    let sum = Duration::from_nanos(counts.time_sum_ns).as_secs_f64() * f64::from(parts);
    let _ = writeln!(page, "{name}_sum{braced} {sum}\n{name}_count{braced} {below}");
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
