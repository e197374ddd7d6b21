//! Spans: one for each call, for an OpenTelemetry collector.
//!
//! A service around an endpoint begins a span with the caller's context (`traceparent`), and ends it with the answer. Ended spans
//! wait in a queue with a bound, and threads of a low priority send them. A span that finds the queue full, or that the
//! collector does not take, is dropped and counted. No answer ever waits for a span.

use std::convert::Infallible;
use std::env;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use futures_util::future::Either;
use http::{HeaderMap, Request, Response};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context as TraceContext, Key, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, Span, SpanData,
    SpanProcessor,
};
use tokio::runtime::{self, Handle};
use tokio::task::spawn_blocking;
use tower::Service;

use super::grpc::{self, Decision};
use super::log::{Level, Seldom};
use super::process;
use super::stats::Stats;
use super::variables::HIDDEN;
use crate::flags::process::{OtlpProtocol, ServeOtlp, ServeProcess};
use tollgate_report::error::Error;

/// The most spans that wait to be sent. A span is about half a KiB.
const MOST_WAITING: usize = 2_048;

/// The longest `tracestate` that a span keeps, in bytes. The standard asks for this length, and a client could send more.
const LONGEST: usize = 512;

/// How long the end waits for the last spans.
const LAST: Duration = Duration::from_secs(1);

/// The samplers that `OTEL_TRACES_SAMPLER` may name. The SDK would take any other name as the default without a word.
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// Where spans go, if they go anywhere.
#[derive(Clone, Debug)]
pub struct Traces(Option<(SdkTracerProvider, SdkTracer)>);

impl Traces {
    /// Starts what sends spans, if the flags ask for it.
    ///
    /// # Errors
    /// If a variable of OpenTelemetry cannot be used.
    pub fn start(args: &ServeProcess, stats: &Arc<Stats>) -> Result<Self, Error> {
        if !args.otlp.otlp {
            return Ok(Self(None));
        }
        let (protocol, sampler) = check(args)?;
        let processor = processor(protocol, Arc::clone(stats))?;
        let mut builder =
            SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource(&args.otlp));
        if let Some(sampler) = sampler {
            builder = builder.with_sampler(sampler);
        }
        let provider = builder.build();
        let tracer = provider.tracer("tollgate");
        Ok(Self(Some((provider, tracer))))
    }

    /// Returns a service with a span for each call. Without a collector, this costs a call nothing.
    pub fn around<S>(&self, service: S) -> Traced<S> {
        Traced { service, tracer: self.0.as_ref().map(|(_, tracer)| tracer.clone()) }
    }

    /// Sends the last spans, for at most a second.
    pub async fn end(self) {
        if let Some((provider, _)) = self.0 {
            let _ = spawn_blocking(move || provider.shutdown_with_timeout(LAST)).await;
        }
    }
}

/// Returns the protocol, and the sampler if a flag chooses it.
///
/// # Errors
/// If spans are asked for, and a variable of OpenTelemetry cannot be used.
pub fn check(args: &ServeProcess) -> Result<(OtlpProtocol, Option<Sampler>), Error> {
    let share = args.otlp.otlp_sample;
    let sampler = share.map(|share| Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share))));
    if !args.otlp.otlp {
        return Ok((OtlpProtocol::Http, sampler));
    }
    match variable("OTEL_TRACES_SAMPLER") {
        Some(name) if sampler.is_none() && !SAMPLERS.contains(&&*name) => {
            Err(Error::usage(format!("OTEL_TRACES_SAMPLER={name}: expected one of {}", SAMPLERS.join(", "))))
        }
        _ => Ok((protocol(&args.otlp)?, sampler)),
    }
}

/// Returns a variable of OpenTelemetry. An empty one is as none.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The variables with the collector's address, which may have a password.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Returns the protocol, after a check of the collector's address.
fn protocol(args: &ServeOtlp) -> Result<OtlpProtocol, Error> {
    for name in ENDPOINTS {
        if variable(name).is_some_and(|address| !address.starts_with("http://")) {
            return Err(Error::usage(format!(
                "{name}: expected an address such as http://localhost:4318; spans are sent without TLS, so use a \
                 collector on this machine or in the same network"
            )));
        }
    }
    if let Some(protocol) = args.otlp_protocol {
        return Ok(protocol);
    }
    let names = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    match names.iter().find_map(|name| variable(name)).as_deref() {
        None | Some("http/protobuf") => Ok(OtlpProtocol::Http),
        Some("grpc") => Ok(OtlpProtocol::Grpc),
        Some(other) => {
            Err(Error::usage(format!("OTEL_EXPORTER_OTLP_PROTOCOL={other}: expected http/protobuf or grpc")))
        }
    }
}

/// Returns what this service is, by the flags and the variables.
fn resource(args: &ServeOtlp) -> Resource {
    let given = args.otlp_attributes.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    let found = Resource::builder().with_attributes(given.clone()).build();
    let name = found.get(&Key::from_static_str("service.name"));
    if name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        return found;
    }
    Resource::builder().with_service_name("tollgate").with_attributes(given).build()
}

/// Starts the threads that send spans: one for connections, and the one of the queue, which the first one starts so that it
/// has the same low priority.
fn processor(protocol: OtlpProtocol, stats: Arc<Stats>) -> Result<Bounded, Error> {
    let (started, result) = sync_channel(1);
    let run = move || {
        process::give_way();
        let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error.to_string()))),
        };
        runtime.block_on(async move {
            let exporter = match protocol {
                OtlpProtocol::Http => SpanExporter::builder().with_http().build(),
                OtlpProtocol::Grpc => SpanExporter::builder().with_tonic().build(),
            };
            let bounded = |exporter| Bounded::new(exporter, Handle::current(), stats);
            let _ = started.send(exporter.map(bounded).map_err(|error| error.to_string()));
            std::future::pending::<()>().await;
        });
    };
    let failed = |why: String| {
        let addresses = ENDPOINTS.iter().filter_map(|name| variable(name));
        let why = addresses.fold(why, |why, address| why.replace(&address, HIDDEN));
        Error::run(format!("cannot send spans: {why}"))
    };
    let thread = thread::Builder::new().name("tollgate-traces".to_owned());
    thread.spawn(run).map_err(|error| failed(error.to_string()))?;
    result.recv().map_err(|error| failed(error.to_string()))?.map_err(failed)
}

/// The queue of spans, with a bound and counts.
#[derive(Debug)]
struct Bounded {
    queue: BatchSpanProcessor,
    stats: Arc<Stats>,
}

impl Bounded {
    fn new(exporter: SpanExporter, runtime: Handle, stats: Arc<Stats>) -> Self {
        let seldom = Seldom::default();
        let sender = Sender { exporter: Arc::new(exporter), runtime, stats: Arc::clone(&stats), seldom };
        let config = BatchConfigBuilder::default().with_max_queue_size(MOST_WAITING).build();
        let queue = BatchSpanProcessor::builder(sender).with_batch_config(config).build();
        Self { queue, stats }
    }
}

impl SpanProcessor for Bounded {
    fn on_start(&self, _: &mut Span, _: &TraceContext) {}

    fn on_end(&self, span: SpanData) {
        // It counts before it looks, so that no more than this number wait.
        self.stats.spans_waiting.add();
        if self.stats.spans_waiting.get() <= MOST_WAITING as u64 {
            self.queue.on_end(span);
        } else {
            self.stats.spans_waiting.sub(1);
            self.stats.spans_dropped.add();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.queue.force_flush()
    }

    fn shutdown_with_timeout(&self, most: Duration) -> OTelSdkResult {
        self.queue.shutdown_with_timeout(most)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.queue.set_resource(resource);
    }
}

/// Sends spans, and counts those that it could not send.
#[derive(Debug)]
struct Sender {
    exporter: Arc<SpanExporter>,
    /// Connections belong to this runtime. The queue's thread has none.
    runtime: Handle,
    stats: Arc<Stats>,
    seldom: Seldom,
}

impl opentelemetry_sdk::trace::SpanExporter for Sender {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (count, exporter) = (batch.len() as u64, Arc::clone(&self.exporter));
        let sent = self.runtime.spawn(async move { exporter.export(batch).await }).await;
        let sent = sent.unwrap_or_else(|error| Err(OTelSdkError::InternalFailure(error.to_string())));
        self.stats.spans_waiting.sub(count);
        match &sent {
            Ok(()) => self.stats.spans_sent.add_n(count),
            Err(error) => {
                self.stats.spans_dropped.add_n(count);
                self.seldom.write(Level::Warn, format_args!("{count} spans are lost: {error}"));
            }
        }
        sent
    }

    fn set_resource(&mut self, resource: &Resource) {
        if let Some(exporter) = Arc::get_mut(&mut self.exporter) {
            exporter.set_resource(resource);
        }
    }
}

/// A service with a span for each call.
#[derive(Clone, Debug)]
pub struct Traced<S> {
    service: S,
    tracer: Option<SdkTracer>,
}

impl<S, Q, A> Service<Request<Q>> for Traced<S>
where
    S: Service<Request<Q>, Response = Response<A>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<A>;
    type Error = Infallible;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Result<Response<A>, Infallible>> + Send>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        let begun = self.tracer.as_ref().and_then(|tracer| begin(tracer, &mut request));
        let answered = self.service.call(request);
        let Some((span, decision)) = begun else { return Either::Left(answered) };
        Either::Right(Box::pin(async move {
            let response = answered.await?;
            end(span, &decision, &response);
            Ok(response)
        }))
    }
}

/// Returns the name of a call's span. Other paths have none: a client chooses them, and health checks are many.
fn name(path: &str) -> Option<&'static str> {
    match path {
        "/json" => Some("POST /json"),
        "/json/reserve" => Some("POST /json/reserve"),
        "/json/commit" => Some("POST /json/commit"),
        path => grpc::PATHS.iter().find(|known| **known == path).map(|known| &known[1..]),
    }
}

fn begin<Q>(tracer: &SdkTracer, request: &mut Request<Q>) -> Option<(Span, Decision)> {
    let name = name(request.uri().path())?;
    let parent =
        TraceContextPropagator::new().extract_with_context(&TraceContext::new(), &Headers(request.headers()));
    let span = tracer.span_builder(name).with_kind(SpanKind::Server).start_with_context(tracer, &parent);
    let decision = Decision::default();
    if span.is_recording() {
        request.extensions_mut().insert(decision.clone());
    }
    Some((span, decision))
}

fn end<A>(mut span: Span, decision: &Decision, response: &Response<A>) {
    let status = response.status();
    let content = response.headers().get(http::header::CONTENT_TYPE);
    let failed = if content.is_some_and(|content| content.as_bytes().starts_with(b"application/grpc")) {
        // An error is in the first headers. The status of an answer comes after its body.
        let code = response.headers().get("grpc-status").and_then(|code| code.to_str().ok()?.parse().ok());
        let code: i64 = code.unwrap_or(0);
        span.set_attributes([
            KeyValue::new("rpc.system", "grpc"),
            KeyValue::new("rpc.grpc.status_code", code),
        ]);
        code != 0
    } else {
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        status.is_server_error()
    };
    if let Some(over_limit) = decision.0.get() {
        span.set_attribute(KeyValue::new("tollgate.over_limit", *over_limit));
    }
    if failed {
        span.set_status(Status::error(""));
    }
    span.end();
}

/// The headers of a call, for the reader of its context.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?.to_str().ok()?;
        (value.len() <= LONGEST).then_some(value)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_context_is_left_out() {
        for (length, is_kept) in [(LONGEST, true), (LONGEST + 1, false)] {
            let value = "x".repeat(length).parse().unwrap();
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static("tracestate"), value)]);
            assert_eq!(Headers(&headers).get("tracestate").is_some(), is_kept);
        }
    }
}
