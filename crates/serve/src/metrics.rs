//! The metrics page, in Prometheus's text format.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::ready;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use metrics::Label;
use tollgate::telemetry;
use tollgate_rules::{Rules, publish_rules};
use tower::service_fn;

use super::answer::{AnswerCounts, BOUNDS_US};
use super::connections::{Listening, Protocol};
use super::debug::go_counts;
use super::endpoint::{Backend, Endpoint, EndpointService, Place};
use super::flags::ServeArgs;
use super::http::{not_allowed, text, typed};
use super::process::{self, ReadAgain};
use super::recorder::{Recorder, histogram};
use super::state::StateFile;
use super::stats::{Sample, samples_of};
use super::tls::Tls;
use tollgate_report::error::Error;

/// Returns the endpoint that the flags ask for.
///
/// # Errors
/// None: all flags were checked.
pub fn endpoints(args: &ServeArgs, _: Option<&Arc<Tls>>) -> Result<Vec<Endpoint>, Error> {
    let page = Metrics {
        recorder: Recorder::default(),
        path: args.endpoints.metrics_path.clone(),
        go_names: args.endpoints.go_metrics,
        go_milliseconds: args.endpoints.go_metrics_milliseconds,
    };
    let endpoint = |addr| Endpoint::new("metrics", Place::Port(addr), Protocol::Pages, page);
    Ok(args.endpoints.metrics.addr().map(endpoint).into_iter().collect())
}

impl EndpointService for Metrics {
    /// Rules register their metrics when they are loaded.
    fn prepare(&mut self, _: Option<&StateFile>) -> Result<(), Error> {
        install(&self.recorder)
    }

    fn start(self: Box<Self>, listening: Listening, backend: &Backend) -> Result<Option<ReadAgain>, Error> {
        let (page, backend): (Arc<Self>, _) = (self.into(), backend.clone());
        let service = service_fn(move |request| ready(Ok::<_, Infallible>(page.answer(&backend, &request))));
        listening.spawn(service);
        Ok(None)
    }
}

/// Installs the recorder of all metrics. Rules that exist already never reach it.
///
/// # Errors
/// If there is a recorder already.
fn install(recorder: &Recorder) -> Result<(), Error> {
    LazyLock::force(&process::START);
    metrics::set_global_recorder(recorder.clone())
        .map_err(|error| Error::run(format!("cannot record metrics: {error}")))?;
    telemetry::describe();
    tollgate_redis::telemetry::describe();
    tollgate_rules::telemetry::describe();
    Ok(())
}

/// The metrics page.
struct Metrics {
    /// What the library and the program hold.
    recorder: Recorder,
    /// Where the page is.
    path: String,
    /// Whether it also has the names of the Go service.
    go_names: bool,
    /// Whether the time of an answer under such a name is in milliseconds.
    go_milliseconds: bool,
}

impl Metrics {
    /// Answers a request.
    fn answer(&self, backend: &Backend, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match (request.uri().path(), request.method()) {
            (path, _) if path != self.path => {
                text(StatusCode::NOT_FOUND, format!("the metrics are at {}\n", self.path))
            }
            (_, &Method::GET | &Method::HEAD) => {
                typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.page(backend))
            }
            _ => not_allowed("GET, HEAD"),
        }
    }

    fn page(&self, backend: &Backend) -> String {
        let counts = backend.answerer.meters().read();
        let mut page = String::new();
        self.recorder.write(&mut page);
        // What is read for a page is recorded for this page only.
        let now = Recorder::of_one_page();
        metrics::with_local_recorder(&now, || {
            telemetry::describe();
            tollgate_redis::telemetry::describe();
            tollgate_rules::telemetry::describe();
            self.record(backend, &counts);
        });
        now.write(&mut page);
        answer_times(&mut page, "tollgate_service_answer_duration_seconds", "", &counts, 1);
        if self.go_names {
            let (name, label) =
                ("ratelimit_service_response_time_seconds", "grpc_method=\"ShouldRateLimit\"");
            answer_times(&mut page, name, label, &counts, if self.go_milliseconds { 1_000 } else { 1 });
        }
        process::metrics(&mut page);
        page
    }

    /// Records the figures of this moment.
    fn record(&self, backend: &Backend, counts: &AnswerCounts) {
        publish_rules(&backend.rules);
        let serving = Sample::gauge(
            "tollgate_service_serving",
            "Whether the service wants requests",
            u64::from(backend.health.is_serving()),
        );
        let requests = backend.answerer.requests(counts);
        let answers = samples_of(counts, &requests);
        let samples = backend.stats.samples().into_iter().chain(answers).chain([serving]);
        samples.for_each(|sample| sample.publish());
        if self.go_names {
            go_samples(&backend.rules, counts, &requests).iter().for_each(Sample::publish);
            record_go_rules(&backend.rules);
        }
    }
}

/// Records the counts of rules by the names of the Go service.
fn record_go_rules(rules: &Rules) {
    rules.for_each(|domain, rule, counts| {
        let mut levels = rule.metric.levels.iter().map(|level| &**level);
        let first = levels.next().unwrap_or_default().to_owned();
        let rest = levels.collect::<Vec<_>>().join(".");
        let labels = [("domain", domain.to_owned()), ("key1", first), ("key2", rest)];
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
        let labels: Vec<Label> = labels.map(|(name, value)| Label::new(name, value)).collect();
        for (count, value) in go_counts(rule, &counts) {
            let name = format!("ratelimit_service_rate_limit_{count}");
            metrics::describe_counter!(
                name.clone(),
                format!("Units of a rule, as {count} of the Go service")
            );
            metrics::counter!(name, labels.clone()).increment(value);
        }
    });
}

/// Returns the other counts by the names of the Go service.
#[rustfmt::skip]
fn go_samples(rules: &Rules, counts: &AnswerCounts, requests: &[(&'static str, u64)]) -> Vec<Sample> {
    let (counter, loads) = (Sample::counter, rules.reloads());
    let requests = requests.iter().map(|&(name, value)| {
        counter("ratelimit_service_total_requests", "Requests, by method", value).with("grpc_method", name)
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

/// Writes the times of answers, in parts of a second: 1,000 is milliseconds.
fn answer_times(page: &mut String, name: &str, label: &str, counts: &AnswerCounts, parts: u32) {
    let unit = if parts == 1 { "seconds" } else { "milliseconds" };
    let _ =
        writeln!(page, "# HELP {name} Time from a request to its answer, in {unit}\n# TYPE {name} histogram");
    let bounds = BOUNDS_US.map(|micros| Some((Duration::from_micros(micros) * parts).as_secs_f64()));
    let sum = Duration::from_nanos(counts.time_sum_ns).as_secs_f64() * f64::from(parts);
    histogram(page, name, label, counts.times.into_iter().zip(bounds.into_iter().chain([None])), sum);
}
