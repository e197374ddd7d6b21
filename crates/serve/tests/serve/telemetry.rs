//! What the process tells its supervisor and its operator: health, readiness, the level of the log, its own metrics, and spans.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;

use crate::client::{ASK, Grpc, LIMIT, block_on, bytes, get};
use crate::server::{Ended, FREE, PATIENCE, Place, Server, eventually, run};

/// Returns the value of a metric without labels.
fn value(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

fn metrics(server: &Server) -> String {
    let address = server.address("metrics");
    block_on(async { get(&address, "/metrics").await.body })
}

#[test]
fn metrics_describe_process_and_build() {
    let place = Place::new();
    let server = place.start("--metrics 127.0.0.1:0 --threads 3");
    let page = metrics(&server);
    let build = format!("tollgate_build_info{{version=\"{}\",os=", env!("CARGO_PKG_VERSION"));
    assert!(page.contains(&build), "{page}");
    if !cfg!(target_os = "linux") {
        return;
    }
    let resident = value(&page, "process_resident_memory_bytes");
    assert!((1e6..1e9).contains(&resident) && resident < value(&page, "process_virtual_memory_bytes"));
    let (open, most) = (value(&page, "process_open_fds"), value(&page, "process_max_fds"));
    assert!((5.0..200.0).contains(&open) && open < most, "{open} of {most}");
    assert!(value(&page, "process_start_time_seconds") > 1.7e9);
    // The three of `--threads`, and few others.
    let threads = value(&page, "process_threads");
    assert!((5.0..20.0).contains(&threads), "{threads}");
    let used = || value(&metrics(&server), "process_cpu_seconds_total");
    let first = used();
    assert!(eventually(|| used() > first), "the processor time stands still at {first}");
}

/// Many rules, two of which have the same name.
#[test]
fn each_series_is_on_the_page_once() {
    let place = Place::new();
    let rule = |key: &str| format!("{{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: 5 }} }}");
    let rules = (0..200).map(|number| format!("  - {}\n", rule(&format!("k{number}")))).collect::<String>();
    let twice = format!("  - key: t\n    descriptors:\n      - {}\n", rule("a.b"));
    let nested = format!("      - key: a\n        descriptors: [ {} ]\n", rule("b"));
    place.write("limits.yaml", format!("domain: rl\ndescriptors:\n{rules}{twice}{nested}"));
    let server = place.start("--metrics 127.0.0.1:0 --go-metrics");
    for _ in 0..2 {
        let page = metrics(&server);
        let mut names: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        names.iter_mut().for_each(|line| *line = line.rsplit_once(' ').unwrap().0);
        let count = |name: &str| names.iter().filter(|line| line.starts_with(name)).count();
        assert_eq!((count("tollgate_keys{"), count("tollgate_hits_total{")), (201, 201), "{page}");
        assert_eq!(count("ratelimit_service_rate_limit_total_hits{"), 201, "{page}");
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{page}");
        let types = page.lines().filter(|line| line.starts_with("# TYPE ")).collect::<Vec<_>>();
        assert_eq!(types.iter().collect::<std::collections::HashSet<_>>().len(), types.len(), "{types:?}");
    }
}

#[test]
fn threads_have_bounds() {
    for threads in ["0", "1025", "x"] {
        run(&format!("--threads {threads}"), &[]).fails(2, &["--threads"]);
    }
    let place = Place::new();
    if cfg!(target_os = "linux") {
        let [nine, two] =
            ["9", "2"].map(|threads| place.start(&format!("--metrics 127.0.0.1:0 --threads {threads}")));
        let count = |server| value(&metrics(server), "process_threads");
        // A thread of the start may still be ending.
        assert!(eventually(|| count(&nine) - count(&two) == 7.0), "{} and {}", count(&nine), count(&two));
    }
}

#[test]
fn signals_change_level_of_log() {
    let place = Place::new();
    let mut server = place.start("--log error --log-format json");
    let levels = ["warn", "info", "debug", "debug"];
    for (time, level) in levels.iter().enumerate() {
        server.signal("USR1");
        let said = || server.log().matches("the log has the level ").count() > time;
        assert!(eventually(said), "{level}: {}", server.log());
        assert!(
            server.log().lines().last().unwrap().contains(&format!("level {level} now")),
            "{}",
            server.log()
        );
    }
    server.signal("USR2");
    server.wait_for_line("the log has the level error now");
    server.signal("TERM");
    assert_eq!(server.wait(), 0);
    assert!(!server.log().contains("draining"), "{}", server.log());
}

#[test]
fn raised_level_shows_lines() {
    let place = Place::new();
    let mut server = place.start("");
    server.signal("USR1");
    server.wait_for_line("the log has the level info now");
    server.signal("TERM");
    assert_eq!(server.wait(), 0);
    assert!(server.log().contains("draining"), "{}", server.log());
}

/// Each series has its help and its type once, and before its values.
#[test]
fn every_series_has_help_and_type() {
    let place = Place::new();
    let args = "--metrics 127.0.0.1:0 --go-metrics --state";
    let args = format!("{args} {}", place.path("state").display());
    let server = place.start(&args);
    block_on(async { Grpc::connect(&server.address("grpc")).await.ok(LIMIT, &bytes(ASK)).await });
    let page = metrics(&server);
    let (mut helps, mut types) = (Vec::new(), Vec::new());
    for line in page.lines() {
        let words = Vec::from_iter(line.splitn(4, ' '));
        match words[..] {
            ["#", "HELP", name, help] if !help.is_empty() && !helps.contains(&name) => helps.push(name),
            ["#", "TYPE", name, _] if !types.contains(&name) => types.push(name),
            [series, ..] => {
                let name = series.split('{').next().unwrap();
                let of = |known: &[&str]| {
                    let ends = ["", "_bucket", "_sum", "_count"];
                    ends.iter().any(|end| known.last().copied() == name.strip_suffix(end))
                };
                assert!(of(&helps) && of(&types), "{line}");
            }
            [] => panic!("an empty line in {page}"),
        }
    }
    assert!(types.contains(&"tollgate_service_answer_duration_seconds") && types.len() > 30, "{types:?}");
}

/// Cause: the message was the system's, "Resource temporarily unavailable", with the remedy for a wrong address.
#[test]
fn healthcheck_says_that_the_service_does_not_answer() {
    // Its system accepts, and no program answers.
    let stopped = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stopped.local_addr().unwrap().to_string();
    let silent = run("--healthcheck", &[("TOLLGATE_HTTP", &address)]);
    silent.fails(1, &[&address, "did not answer within 1 s", "start it again"]);
    assert!(!silent.stderr.contains("os error"), "{silent:?}");
    drop(stopped);
    run("--healthcheck", &[("TOLLGATE_HTTP", &address)]).fails(1, &["connection refused; set TOLLGATE_HTTP"]);
}

#[test]
fn healthcheck_asks_running_service() {
    let place = Place::new();
    let mut server = place.start("--drain 1h");
    let address = server.address("http");
    // The check gives up after a second, which a busy machine may need.
    let check = || run("--healthcheck", &[("TOLLGATE_HTTP", &address), ("TOLLGATE_RULES", "/no/such")]);
    let is_healthy = |check: &Ended| check.code == 0 && check.stdout == "serving\n";
    assert!(eventually(|| is_healthy(&check())), "{:?}", check());
    // A container's health check has the variables of the service, and not its arguments.
    let everywhere = address.replace("127.0.0.1", "0.0.0.0");
    let without_rules = || run("--healthcheck", &[("TOLLGATE_HTTP", &everywhere)]);
    assert!(eventually(|| is_healthy(&without_rules())), "{:?}", without_rules());
    server.signal("TERM");
    let is_refused = |check: &Ended| check.code == 1 && check.stderr.contains("wants no requests");
    assert!(eventually(|| is_refused(&check())), "{:?} {}", check(), server.log());
    server.signal("KILL");
    server.wait();
    check().fails(1, &["cannot ask", "TOLLGATE_HTTP"]);
    run("--healthcheck --http off", &[]).fails(2, &["--http is off"]);
}

#[test]
fn systemd_hears_of_start_and_end() {
    let place = Place::new();
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut text = [0; 64];
        let length = socket.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    let rules = place.rules();
    let server = Server::start_with(&[&rules], FREE, &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    assert_eq!(heard(), "READY=1");
    server.stop();
    assert_eq!(heard(), "STOPPING=1");
}

#[cfg(feature = "otlp")]
mod spans {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, Request, Response};
    use http_body_util::{BodyExt as _, Full, StreamBody};
    use hyper::body::{Frame, Incoming};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use hyper_util::server::conn::auto;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
    use opentelemetry_proto::tonic::trace::v1::Span;
    use prost::Message as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::{ONCE, http};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// A collector on loopback. It takes spans over HTTP and gRPC.
    struct Collector {
        address: String,
        got: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    }

    impl Collector {
        /// Starts it on a thread of its own. It ends with the test.
        fn start() -> Self {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let got = Arc::default();
            let kept = Arc::clone(&got);
            let serve = async move {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    let kept = Arc::clone(&kept);
                    let take = service_fn(move |request| take(request, Arc::clone(&kept)));
                    tokio::spawn(async move {
                        let builder = auto::Builder::new(TokioExecutor::new());
                        let _ = builder.serve_connection(TokioIo::new(stream), take).await;
                    });
                }
            };
            std::thread::spawn(|| block_on(serve));
            Self { address, got }
        }

        /// Waits for this number of spans, and returns them with the attributes of their service.
        fn spans(&self, count: usize) -> Vec<(Span, Vec<KeyValue>)> {
            let found = || self.got.lock().unwrap().iter().flat_map(spans_of).collect::<Vec<_>>();
            assert!(eventually(|| found().len() >= count), "{count} spans do not come: {:?}", found());
            found()
        }
    }

    fn spans_of(request: &ExportTraceServiceRequest) -> Vec<(Span, Vec<KeyValue>)> {
        let of = |spans: &opentelemetry_proto::tonic::trace::v1::ResourceSpans| {
            let service = spans.resource.clone().unwrap().attributes;
            let all = spans.scope_spans.iter().flat_map(|scope| scope.spans.clone());
            all.map(|span| (span, service.clone())).collect::<Vec<_>>()
        };
        request.resource_spans.iter().flat_map(of).collect()
    }

    type Answer = Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>;

    async fn take(
        request: Request<Incoming>,
        kept: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    ) -> Result<Answer, Infallible> {
        let is_grpc = request.headers()["content-type"].as_bytes().starts_with(b"application/grpc");
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        // A frame of gRPC has five bytes before its message.
        let message = if is_grpc { body.slice(5..) } else { body };
        assert!(path.ends_with("/v1/traces") || path.ends_with("TraceService/Export"), "{path}");
        kept.lock().unwrap().push(ExportTraceServiceRequest::decode(message).unwrap());
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let frames = [Ok(Frame::data(Bytes::from_static(&[0; 5]))), Ok(Frame::trailers(trailers))];
        let body = if is_grpc {
            StreamBody::new(futures_util::stream::iter(frames)).boxed()
        } else {
            Full::new(Bytes::new()).boxed()
        };
        let kind = if is_grpc { "application/grpc" } else { "application/x-protobuf" };
        Ok(Response::builder().header("content-type", kind).body(body).unwrap())
    }

    fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
        let found = attributes.iter().find(|pair| pair.key == name)?;
        Some(match found.value.clone()?.value? {
            Value::StringValue(text) => text,
            Value::IntValue(number) => number.to_string(),
            Value::BoolValue(truth) => truth.to_string(),
            other => format!("{other:?}"),
        })
    }

    fn start(place: &Place, args: &str, variables: &[(&str, &str)]) -> Server {
        let args = format!("{FREE} --metrics 127.0.0.1:0 {args}");
        let soon = ("OTEL_BSP_SCHEDULE_DELAY", "50");
        Server::start_with(&[&place.rules()], &args, &[variables, &[soon]].concat())
    }

    /// Describes a span: its name, its status, and whether it denied. Those of gRPC belong to [`PARENT`].
    fn described(span: &Span) -> String {
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        let is_child = span.parent_span_id == bytes("b7ad6b7169203331");
        assert_eq!(is_child, span.name.starts_with("envoy"), "{span:?}");
        assert_eq!(is_child, span.trace_id == bytes("0af7651916cd43dd8448eb211c80319c"));
        let get = |name| attribute(&span.attributes, name).unwrap_or_default();
        let status = get("rpc.grpc.status_code") + &get("http.response.status_code");
        format!("{} {status} {}", span.name, get("tollgate.over_limit"))
    }

    #[test]
    fn each_call_has_span_with_context_of_caller() {
        let place = Place::new();
        for (protocol, args, name) in [
            ("", "--otlp", "tollgate"),
            ("grpc", "--otlp --otlp-attributes service.name=edge,team=a=b", "edge"),
        ] {
            let collector = Collector::start();
            let address = format!("http://{}", collector.address);
            let variables =
                [("OTEL_EXPORTER_OTLP_ENDPOINT", &*address), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
            let server = start(&place, args, &variables);
            block_on(async {
                let mut grpc = Grpc::connect(&server.address("grpc")).await;
                for (message, status) in [(ONCE, 0), (ONCE, 0), ("", 3)] {
                    assert_eq!(grpc.call_within(PARENT, LIMIT, &bytes(message)).await.status, status);
                }
                // Neither health checks nor paths that a client invents have a span.
                grpc.health("").await;
                grpc.call("/no.such/Method", &[]).await;
                let endpoint = server.address("http");
                http(&endpoint, "GET", "/healthcheck", "").await;
                http(&endpoint, "POST", "/json", "{").await;
            });
            let spans = collector.spans(4);
            server.stop();
            let mut seen: Vec<String> = spans.iter().map(|(span, _)| described(span)).collect();
            seen.sort();
            let envoy = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
            let calls = ["0 false", "0 true", "3 "].map(|call| format!("{envoy} {call}"));
            assert_eq!(seen, [&["POST /json 400 ".to_owned()][..], &calls].concat());
            assert!(
                spans.iter().all(|(_, service)| attribute(service, "service.name").as_deref() == Some(name))
            );
            assert_eq!(attribute(&spans[0].1, "team"), args.contains("team").then(|| "a=b".to_owned()));
        }
    }

    #[test]
    fn dead_collector_costs_counted_spans_only() {
        let place = Place::new();
        // It accepts connections and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", silent.local_addr().unwrap());
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*address), ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")];
        start(&place, "--otlp", &variables).during(async |server| {
            let mut grpc = Grpc::connect(&server.address("grpc")).await;
            for _ in 0..6_000 {
                grpc.ok(LIMIT, &bytes(ASK)).await;
            }
            let page = get(&server.address("metrics"), "/metrics").await.body;
            // The queue has room for 2,048. All others are dropped at once.
            assert!(value(&page, "tollgate_service_spans_dropped_total") >= 3_952.0, "{page}");
            assert_eq!(value(&page, "tollgate_service_spans_sent_total"), 0.0);
            assert!(eventually(|| server.log().contains("spans are lost")), "{}", server.log());
        });
    }

    #[test]
    fn sampling_follows_flag_and_caller() {
        let place = Place::new();
        let collector = Collector::start();
        let address = format!("http://{}", collector.address);
        // The variables of the Go service.
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*address),
            ("TRACING_ENABLED", "true"),
            ("TRACING_EXPORTER_PROTOCOL", "grpc"),
            ("TRACING_SERVICE_NAME", "RateLimit"),
            ("TRACING_SERVICE_NAMESPACE", "shop"),
            ("TRACING_SAMPLING_RATE", "0"),
        ];
        let server = start(&place, "", &variables);
        block_on(async {
            let mut grpc = Grpc::connect(&server.address("grpc")).await;
            for _ in 0..20 {
                grpc.ok(LIMIT, &bytes(ASK)).await;
            }
            grpc.call_within(PARENT, LIMIT, &bytes(ASK)).await;
        });
        // The end sends what waits.
        server.stop();
        let spans = collector.spans(1);
        assert_eq!(spans.len(), 1, "{spans:?}");
        let service = &spans[0].1;
        assert_eq!(attribute(service, "service.name").as_deref(), Some("RateLimit"));
        assert_eq!(attribute(service, "service.namespace").as_deref(), Some("shop"));
    }

    #[test]
    fn wrong_variables_of_opentelemetry_end_the_start() {
        let fails = |name: &str, value: &str, part: &str| {
            run("--otlp", &[(name, value)]).fails(2, &[name, part]);
            run("--otlp --check", &[(name, value)]).fails(2, &[name, part]);
        };
        fails("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318", "without TLS");
        // An address may have a password in it.
        for (address, code) in [("https://u:zq@collector:4318", 2), ("http://u:zq@[collector", 1)] {
            for protocol in ["http", "grpc"] {
                let args = format!("--otlp --otlp-protocol {protocol}");
                let ended = run(&args, &[("OTEL_EXPORTER_OTLP_ENDPOINT", address)]);
                assert!(ended.code == code && !format!("{ended:?}").contains("zq"), "{ended:?}");
            }
        }
        fails("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "http/protobuf or grpc");
        fails("OTEL_TRACES_SAMPLER", "jaeger_remote", "parentbased_traceidratio");
        run("--otlp --otlp-sample 1.5", &[]).fails(2, &["from 0 to 1"]);
        run("--otlp-sample 1", &[]).fails(2, &["--otlp"]);
        run("", &[("TRACING_ENABLED", "true"), ("TRACING_EXPORTER_PROTOCOL", "zipkin")])
            .fails(2, &["zipkin"]);
    }
}
