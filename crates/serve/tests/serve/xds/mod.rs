//! Rules from a control plane.

mod plane;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tollgate_serve::proto::DiscoveryResponse;

use self::plane::{Behaviour, Plane, nonce_of, set};
use crate::client::{
    Grpc, LIMIT, NOT_SERVING, ONCE, SERVING, bytes, comes_true, get, http, stat, wait_for_stat,
};
use crate::drain::{make_pipe, reader_of};
use crate::server::{FREE, Place, Server, command, eventually, run};
use crate::tls::{Authority, Pair, dns, install, tls_client};

/// Short pauses without chance.
const SHORT: &str = "--xds-retry 50ms --xds-pause 50ms --xds-max-pause 200ms --xds-spread 0";

fn sends(message: &DiscoveryResponse) -> Behaviour {
    Behaviour { sends: Some(message.encode_to_vec().into()), ..Behaviour::default() }
}

async fn start_plane(first: Behaviour) -> Plane {
    Plane::start("127.0.0.1:0", None, first).await
}

/// Starts the service. It takes rules from a control plane that runs on the runtime of the test.
async fn start(plane: &Plane, args: &str) -> Server {
    let args = format!("{FREE} --xds {} {SHORT} {args}", plane.address);
    tokio::task::spawn_blocking(move || Server::start_with(&[], &args, &[])).await.unwrap()
}

/// Starts both, lets a test use them, and stops the service.
fn following(first: Behaviour, args: &str, test: impl AsyncFnOnce(&Plane, &mut Server)) {
    runtime(async {
        let plane = start_plane(first).await;
        let mut server = start(&plane, args).await;
        test(&plane, &mut server).await;
    });
}

fn runtime<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// The code of the answer for a value of `once` that no other request has: 1 is OK, 2 is over the limit.
async fn ask(server: &Server) -> (u32, Option<u8>) {
    let mut grpc = Grpc::connect(&server.address("grpc")).await;
    let called = grpc.call(LIMIT, &bytes(ONCE)).await;
    (called.status, called.message.get(1).copied())
}

const OK: (u32, Option<u8>) = (0, Some(1));
const OVER: (u32, Option<u8>) = (0, Some(2));
const UNAVAILABLE: (u32, Option<u8>) = (14, None);

async fn xds_stat(server: &Server, name: &str) -> u64 {
    stat(&server.address("debug"), &format!("tollgate_xds_{name}")).await
}

async fn wait_for_xds(server: &Server, name: &str, number: u64) {
    let is_there = comes_true(async || xds_stat(server, name).await == number);
    assert!(is_there.await, "{name} is not {number}: {}", server.log());
}

// G138
#[test]
fn rules_come_from_a_control_plane() {
    // It sends nothing at first, so there are no limits yet, and no pass.
    let args = "--start-without-rules --log info --xds-node-id edge --xds-node-metadata zone=a --xds-headers x-team=web";
    following(Behaviour::default(), args, async |plane, server| {
        assert!(server.start_line().contains("from the control plane localhost:"), "{}", server.start_line());
        let first = &plane.streams(1).await[0];
        let node = first.node.as_ref().unwrap();
        assert_eq!((&*node.id, node.metadata.as_ref().unwrap().fields.len()), ("edge", 1));
        assert_eq!((&*first.version_info, &*first.response_nonce), ("", ""));
        assert_eq!(plane.heads.lock().unwrap()[0]["x-team"], "web");
        assert_eq!(ask(server).await, UNAVAILABLE);
        // A slow one: a byte at a time.
        plane.set(|behaviour| behaviour.piece = Some(1));
        plane.send(&set("1", &["other"]));
        let answer = plane.answer_to("1").await;
        assert_eq!((&*answer.version_info, answer.error_detail), ("1", None));
        assert_eq!((ask(server).await, ask(server).await), (OK, OVER));
        assert_eq!((xds_stat(server, "connected").await, xds_stat(server, "nack").await), (1, 0));
        let domains = async || {
            let page = get(&server.address("debug"), "/rlconfig").await.body;
            page.lines().filter_map(|line| line.split('.').next().map(str::to_owned)).collect::<Vec<_>>()
        };
        assert_eq!(domains().await, ["other", "rl"]);
        // Each set is the whole state. The counts of the rules that stay are kept.
        plane.send(&set("2", &["third"]));
        plane.answer_to("2").await;
        assert_eq!(domains().await, ["rl", "third"]);
        assert_eq!(ask(server).await, OVER);
        assert!(get(&server.address("debug"), "/").await.body.contains(": connected\n"));
    });
}

// G139
#[test]
fn start_waits_for_the_first_rules() {
    runtime(async {
        let plane = Arc::new(start_plane(Behaviour::default()).await);
        let late = Arc::clone(&plane);
        let sends = tokio::spawn(async move {
            late.streams(1).await;
            late.send(&set("1", &[]));
        });
        let server = start(&plane, "").await;
        sends.await.unwrap();
        assert!(server.start_line().contains("serves 1 rule of 1 domain"), "{}", server.start_line());
    });
}

/// Starts the service, and waits until it waits for rules.
async fn start_to_wait(plane: &Plane, args: &str) -> Server {
    let args = format!("{FREE} --log info --xds {} {SHORT} {args}", plane.address);
    let mut command = command();
    command.args(args.split_ascii_whitespace());
    let start = || Server::spawn_until("waits for the first rules", command, &[]);
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Cause: no endpoint was open until the first rules, so a supervisor with a liveness probe killed the process.
// G139
#[test]
fn endpoints_are_open_and_unhealthy_before_the_first_rules() {
    runtime(async {
        let plane = start_plane(Behaviour { ignores: true, ..Behaviour::default() }).await;
        let (place, args) = (Place::new(), "--xds-ping 100ms --metrics 127.0.0.1:0");
        let admin = place.path("admin");
        let mut server = start_to_wait(&plane, &format!("{args} --admin unix:{}", admin.display())).await;
        let (grpc_address, http_address) = (server.address("grpc"), server.address("http"));
        let health = async || {
            let mut grpc = Grpc::connect(&grpc_address).await;
            (grpc.health("ratelimit").await, get(&http_address, "/healthcheck").await.status)
        };
        assert_eq!(health().await, (NOT_SERVING.into(), 500));
        // The check gives up after a second, which a busy machine may need.
        let probe = || run("--healthcheck", &[("TOLLGATE_HTTP", &http_address)]);
        assert!(eventually(|| probe().stderr.contains("wants no requests")));
        assert_eq!(ask(&server).await, UNAVAILABLE);
        let body = r#"{"domain":"rl","descriptors":[{"entries":[{"key":"once","value":"x"}]}]}"#;
        assert_eq!(http(&http_address, "POST", "/json", body).await.status, 503);
        assert!(get(&server.address("debug"), "/").await.body.contains("not serving"));
        let metrics = get(&server.address("metrics"), "/metrics").await.body;
        assert!(metrics.contains("tollgate_service_serving 0"), "{metrics}");
        tokio::net::UnixStream::connect(&admin).await.unwrap();
        plane.set(|behaviour| *behaviour = sends(&set("1", &[])));
        server.wait_for_line("serves 1 rule of 1 domain");
        assert_eq!(health().await, (SERVING.into(), 200));
        assert_eq!((ask(&server).await, ask(&server).await), (OK, OVER));
    });
}

// G139
#[test]
#[ignore = "takes ten seconds or more; .ci/run runs it"]
fn start_ends_without_rules_in_time() {
    runtime(async {
        let (plane, place) = (start_plane(Behaviour::default()).await, Place::new());
        let socket = place.path("socket");
        let mut server = start_to_wait(&plane, &format!("--grpc-socket {}", socket.display())).await;
        assert!(socket.exists());
        assert_eq!(server.wait(), 1);
        let line = "no rules within 20 s: the control plane localhost";
        let why = "it sends no rules for the node \"default\"; check --xds-node-id";
        let all_said =
            || [line, why, "add --start-without-rules"].iter().all(|part| server.log().contains(part));
        assert!(eventually(all_said), "{}", server.log());
        assert!(!socket.exists());
    });
}

/// Cause: the end of such a start waited for the thread that follows the control plane. Trigger: a file system that hangs when the
/// thread reads a certificate. Symptom: the process did not end, and said nothing.
// G139
#[test]
#[ignore = "takes ten seconds or more; .ci/run runs it"]
fn start_without_rules_ends_although_a_file_hangs() {
    runtime(async {
        let (plane, place) = (start_plane(Behaviour::default()).await, Place::new());
        place.write("ca.crt", Authority::new().pem());
        let args = format!("--xds-tls --xds-ca {}", place.name("ca.crt"));
        let mut server = start_to_wait(&plane, &args).await;
        std::fs::rename(make_pipe(&place.path(".pipe")), place.path("ca.crt")).unwrap();
        let _hangs = reader_of(place.path("ca.crt")).unwrap();
        assert_eq!(server.wait(), 1);
        assert!(eventually(|| server.log().contains("no rules within 20 s")), "{}", server.log());
    });
}

#[test]
fn start_that_waits_for_rules_can_be_ended() {
    runtime(async {
        let plane = start_plane(Behaviour::default()).await;
        let _server = start_to_wait(&plane, "").await;
        plane.streams(1).await;
    });
}

// G138
#[test]
fn refusal_is_seen_everywhere_and_old_rules_stay() {
    following(sends(&set("1", &[])), "--metrics 127.0.0.1:0", async |plane, server| {
        assert_eq!((ask(server).await, ask(server).await), (OK, OVER));
        // The same domain twice.
        plane.send(&set("2", &["rl"]));
        let answer = plane.answer_to("2").await;
        let told = answer.error_detail.unwrap();
        assert_eq!((&*answer.version_info, told.code), ("1", 3));
        let why = "already has the domain \"rl\"";
        assert!(told.message.contains(why), "{}", told.message);
        assert_eq!(ask(server).await, OVER);
        server.wait_for_line(why);
        assert!(server.log().contains("the earlier rules stay in force"), "{}", server.log());
        for page in ["/", "/rlconfig", "/?format=json"] {
            let page = get(&server.address("debug"), page).await.body;
            assert!(page.contains("already has the domain"), "{page}");
        }
        let metrics = get(&server.address("metrics"), "/metrics").await.body;
        for line in
            ["tollgate_xds_nack 1", "tollgate_xds_connected 1", "tollgate_xds_sets_total{result=\"nack\"} 1"]
        {
            assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
        }
        plane.send(&set("3", &[]));
        assert_eq!(plane.answer_to("3").await.version_info, "3");
        assert_eq!(xds_stat(server, "nack").await, 0);
        assert!(!get(&server.address("debug"), "/").await.body.contains("already has"));
    });
}

/// Cause: a process without rules replaced the state of the one before by an empty one, and every client had a new budget.
// G143
#[test]
fn state_stays_while_there_are_no_rules() {
    runtime(async {
        let plane = start_plane(sends(&set("1", &[]))).await;
        let place = Place::new();
        let state = format!("--log info --state {}", place.path("state").display());
        let server = start(&plane, &state).await;
        assert_eq!(ask(&server).await, OK);
        server.stop();
        plane.set(|behaviour| behaviour.sends = None);
        let server = start(&plane, &format!("{state} --state-every 1s --start-without-rules")).await;
        assert_eq!(ask(&server).await, UNAVAILABLE);
        wait_for_stat(&server.address("debug"), "tollgate_service_state_writes_total", 2).await;
        server.stop();
        // The rules come after the start. Cause: the log told of the usage only at a write, so never if there is none.
        let mut server = start(&plane, &format!("{state} --state-every 0 --start-without-rules")).await;
        plane.send(&set("2", &[]));
        plane.answer_to("2").await;
        assert_eq!(ask(&server).await, OVER);
        server.wait_for_line("took over the usage of 1 rule");
        assert_eq!(stat(&server.address("debug"), "tollgate_service_state_restored_rules").await, 1);
    });
}

/// Cause: servers send a refused set again at once. The Go service would then load it as often as the network permits.
// G139
#[test]
fn refused_set_that_returns_is_answered_later_and_later() {
    following(sends(&set("1", &[])), "", async |plane, server| {
        plane.set(|behaviour| behaviour.repeats = true);
        #[expect(clippy::disallowed_methods, reason = "another process waits in real time")]
        let from = Instant::now();
        plane.send(&set("2", &["rl"]));
        let nonce = nonce_of("2");
        let answers = async |count| {
            plane
                .wait(|seen| {
                    (seen.iter().filter(|request| request.response_nonce == nonce).count() >= count)
                        .then_some(())
                })
                .await;
        };
        // At once, after a second, and after two more.
        answers(3).await;
        assert!(from.elapsed() >= Duration::from_secs(3));
        assert_eq!(stat(&server.address("debug"), "tollgate_reload_total{result=\"error\"}").await, 1);
        // Another set does not wait.
        plane.send(&set("3", &[]));
        plane.answer_to("3").await;
    });
}

// G139
#[test]
fn ended_streams_are_errors_and_begin_again_after_pauses() {
    for code in [0, 14] {
        runtime(async {
            let plane = start_plane(sends(&set("1", &[]))).await;
            let mut server = start(&plane, "").await;
            let before = plane.streams(1).await.len();
            #[expect(clippy::disallowed_methods, reason = "another process waits in real time")]
            let from = Instant::now();
            plane.set(|behaviour| (behaviour.sends, behaviour.ends) = (None, Some(code)));
            server.wait_for_line(if code == 0 { "it ended the stream" } else { "Unavailable" });
            plane.streams(before + 4).await;
            // 50 ms, 100 ms and twice 200 ms.
            assert!(from.elapsed() >= Duration::from_millis(550));
            assert_eq!(ask(&server).await, OK);
            // The log has the reason once.
            let log = server.log();
            assert_eq!(log.matches("the earlier rules stay in force").count(), 1, "{log}");
            assert_eq!(xds_stat(&server, "connected").await, 0);
            plane.set(|behaviour| behaviour.ends = None);
            plane.streams(before + 5).await;
            plane.send(&set("2", &[]));
            plane.answer_to("2").await;
            assert!(!get(&server.address("debug"), "/").await.body.contains("failed"));
        });
    }
}

// G139
#[test]
fn control_plane_can_restart() {
    runtime(async {
        let place = Place::new();
        let copy = format!("--xds-copy {}", place.path("copy").display());
        let plane = start_plane(sends(&set("9", &["other"]))).await;
        let server = start(&plane, &copy).await;
        let address = plane.address.clone();
        drop(plane);
        wait_for_xds(&server, "connected", 0).await;
        assert_eq!((ask(&server).await, ask(&server).await), (OK, OVER));
        // Another process of the service starts without it, from the copy.
        let mut alone = {
            let args = format!("{FREE} --xds {address} {SHORT} {copy}");
            tokio::task::spawn_blocking(move || Server::start_with(&[], &args, &[])).await.unwrap()
        };
        assert!(alone.start_line().contains("serves 2 rules of 2 domains"), "{}", alone.start_line());
        // Another thread than that of the start writes it.
        alone.wait_for_line("the last good copy");
        assert_eq!((ask(&alone).await, ask(&alone).await), (OK, OVER));
        // It begins with the first version again.
        let plane =
            Plane::start(&address.replace("localhost", "127.0.0.1"), None, sends(&set("1", &[]))).await;
        for server in [server, alone] {
            wait_for_xds(&server, "connected", 1).await;
            wait_for_xds(
                &server,
                "sets_total{result=\"ack\"}",
                if server.log().contains("copy") { 1 } else { 2 },
            )
            .await;
            assert_eq!(ask(&server).await, OVER);
        }
        assert!(plane.seen().iter().all(|request| request.error_detail.is_none()));
    });
}

/// Cause: a service with the name of another node began with the rules of the node before.
// G139
#[test]
fn copy_of_another_node_is_not_used() {
    runtime(async {
        let place = Place::new();
        let copy = format!("--xds-copy {} --xds-node-id", place.path("copy").display());
        let plane = start_plane(sends(&set("1", &[]))).await;
        start(&plane, &format!("{copy} one")).await.stop();
        plane.set(|behaviour| behaviour.sends = None);
        let mut server = start(&plane, &format!("{copy} other --start-without-rules")).await;
        server.wait_for_line("it is a copy of");
        assert_eq!(ask(&server).await, UNAVAILABLE);
        server.stop();
        let server = start(&plane, &format!("{copy} one")).await;
        assert_eq!(ask(&server).await, OK);
    });
}

// G139
#[test]
fn messages_have_a_largest_size() {
    following(sends(&set("1", &[])), "--xds-max-message 1KiB", async |plane, server| {
        let many: Vec<String> = (0..40).map(|at| format!("domain-{at}")).collect();
        plane.send(&set("2", &many.iter().map(String::as_str).collect::<Vec<_>>()));
        server.wait_for_line("raise --xds-max-message");
        assert_eq!(ask(server).await, OK);
        // Bytes that are no message.
        plane.set(|behaviour| behaviour.sends = Some(Bytes::from_static(b"\xff\xff\xff")));
        server.wait_for_line("Internal");
        plane.send(&set("3", &[]));
        plane.answer_to("3").await;
        assert_eq!(ask(server).await, OVER);
    });
}

// G139
#[test]
fn connection_that_is_half_open_is_noticed() {
    following(
        Behaviour { ignores: true, ..Behaviour::default() },
        "--start-without-rules --xds-ping 100ms",
        async |plane, server| {
            server.wait_for_line("no rules yet");
            plane.set(|behaviour| *behaviour = sends(&set("1", &[])));
            plane.answer_to("1").await;
            assert_eq!(ask(server).await, OK);
        },
    );
}

/// Returns the TLS of a control plane that asks for client certificates.
fn mutual(authority: &Authority, own: &Pair) -> ServerConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let chain = vec![CertificateDer::from_pem_slice(own.cert.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

// G139
#[test]
fn certificates_are_read_for_each_connection() {
    runtime(async {
        let (place, authority, other) = (Place::new(), Authority::new(), Authority::new());
        let own = authority.issue(&[dns("plane.example")]);
        let plane = Plane::start("127.0.0.1:0", Some(mutual(&authority, &own)), sends(&set("1", &[]))).await;
        // A certificate that the control plane does not trust.
        install(&place, &other.server());
        place.write("ca.crt", authority.pem());
        let file = |name: &str| place.name(name);
        let [ca, cert, key] = ["ca.crt", "tls.crt", "tls.key"].map(file);
        let args = format!(
            "--start-without-rules --xds-tls --xds-ca {ca} --xds-cert {cert} --xds-key {key} --xds-san plane.example"
        );
        let mut server = start(&plane, &args).await;
        server.wait_for_line("no rules yet");
        // Cause: the log said "connection error" only.
        server.wait_for_line("fatal alert");
        assert_eq!(ask(&server).await, UNAVAILABLE);
        // In two steps: a certificate with the key of another cannot be used, and nothing ends.
        let pair = authority.server();
        place.write("tls.crt", &pair.cert);
        server.wait_for_line("cannot be used together");
        place.write("tls.key", &pair.key);
        plane.answer_to("1").await;
        assert_eq!(ask(&server).await, OK);
        server.stop();

        // A control plane with another name, or of another authority, gets no request.
        let seen = plane.seen().len();
        for (ca, name, part) in [(&ca, "other.example", "NotValidForName"), (&cert, "plane.example", "TLS: ")]
        {
            let args = format!("--start-without-rules --xds-tls --xds-ca {ca} --xds-san {name}");
            let mut server = start(&plane, &args).await;
            let line = server.wait_for_line("no rules yet");
            assert!(line.contains(part) || line.contains("not valid for name"), "{line}");
        }
        assert_eq!(plane.seen().len(), seen);
    });
}

#[test]
fn wrong_flags_are_named() {
    run("--xds eg", &[]).fails(2, &["expected one such as envoy-gateway:18001"]);
    run("--xds eg:1 limits.yaml", &[]).fails(2, &["--xds", "cannot be used with"]);
    run("--xds-ca ca.crt --xds eg:1", &[]).fails(2, &["--xds-tls"]);
    run("--xds eg:1 --xds-store redis", &[]).fails(2, &["--xds-store redis needs --redis"]);
    run("--xds eg:1 --xds-tls --xds-ca /none --check", &[]).fails(1, &["cannot read /none"]);
    run("", &[("CONFIG_TYPE", "GRPC_XDS_SOTW"), ("CONFIG_GRPC_XDS_SERVER_URL", "x")])
        .fails(2, &["CONFIG_GRPC_XDS_SERVER_URL"]);
    // A header field may be a password.
    for variables in [
        [("TOLLGATE_XDS_HEADERS", "authorization s3cret"), ("CONFIG_TYPE", "FILE")],
        [("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "token-bin=s3cret"), ("CONFIG_TYPE", "GRPC_XDS_SOTW")],
    ] {
        let ended = run("--xds eg:1 --check", &variables);
        assert!(!ended.stderr.contains("s3cret"), "{ended:?}");
        ended.fails(2, &["--xds-headers: expected header fields such as x-name=value"]);
    }
    // A flag has priority over a variable.
    let ended = run("--xds eg:1 --check", &[("TOLLGATE_RULES", "/no/such")]);
    assert_eq!(ended.code, 0, "{ended:?}");
    // A file that is named has priority over the variables of the Go service.
    let place = Place::new();
    let ended = run(&format!("{} --check", place.rules().display()), &[("CONFIG_TYPE", "GRPC_XDS_SOTW")]);
    assert_eq!(ended.code, 0, "{ended:?}");
}

/// What Envoy Gateway sets, and starts.
// G139
#[test]
fn deployment_of_envoy_gateway_starts_unchanged() {
    runtime(async {
        let (place, authority) = (Place::new(), Authority::new());
        let own = authority.issue(&[dns("localhost"), dns("envoy-gateway")]);
        let plane = Plane::start("127.0.0.1:0", Some(mutual(&authority, &own)), sends(&set("1", &[]))).await;
        // There, they are in the folder /certs, and serve both sides.
        install(&place, &authority.issue(&[dns("localhost"), dns("envoy-ratelimit")]));
        place.write("ca.crt", authority.pem());
        let file = |name: &str| place.name(name);
        let [ca, cert, key] = ["ca.crt", "tls.crt", "tls.key"].map(file);
        let gateway = [
            ("RUNTIME_ROOT", "/data"),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("LOG_LEVEL", "info"),
            ("USE_STATSD", "false"),
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_SERVER_URL", &plane.address),
            ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
            ("GRPC_SERVER_USE_TLS", "true"),
            ("GRPC_SERVER_TLS_CERT", &cert),
            ("GRPC_SERVER_TLS_KEY", &key),
            ("GRPC_SERVER_TLS_CA_CERT", &ca),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &cert),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &key),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &ca),
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", "redis.redis-system.svc.cluster.local:6379"),
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", "127.0.0.1:0"),
            ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
            // Free ports, for this test.
            ("HOST", "127.0.0.1"),
            ("PORT", "0"),
            ("GRPC_HOST", "127.0.0.1"),
            ("GRPC_PORT", "0"),
            ("DEBUG_PORT", "0"),
        ];
        // Only the image is another one. Cause: its variables replaced those of the deployment.
        let image = include_str!("../../../../../packaging/Containerfile");
        let last = image.rsplit_once("\nFROM ").unwrap().1;
        let of_image = last.split_ascii_whitespace().filter_map(|word| word.split_once('='));
        let of_image: Vec<_> = of_image.filter(|(name, _)| name.starts_with("TOLLGATE_")).collect();
        // The command there is /bin/ratelimit, without arguments.
        let program = place.path("ratelimit");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tollgate-serve"), &program).unwrap();
        let mut command = Command::new(program);
        command.env_clear();
        let gateway: Vec<(String, String)> = gateway
            .iter()
            .chain(&of_image)
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let server = tokio::task::spawn_blocking(move || {
            let gateway: Vec<(&str, &str)> =
                gateway.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            Server::spawn(command, &gateway)
        });
        let server = server.await.unwrap();
        assert!(server.start_line().contains("grpc on 127.0.0.1:"), "{}", server.start_line());
        let answer = plane.answer_to("1").await;
        assert_eq!(answer.error_detail, None);
        assert_eq!(plane.streams(1).await[0].node.as_ref().unwrap().id, "envoy-ratelimit");
        assert_eq!(get(&server.address("http"), "/healthcheck").await.status, 200);
        let metrics = get(&server.address("metrics"), "/metrics").await.body;
        assert!(
            metrics.contains("tollgate_xds_connected 1") && metrics.contains("ratelimit_service_"),
            "{metrics}"
        );
        let mut grpc = tls_client(&server, &authority).await;
        let codes = [grpc.ok(LIMIT, &bytes(ONCE)).await[1], grpc.ok(LIMIT, &bytes(ONCE)).await[1]];
        assert_eq!(codes, [1, 2]);
        let unused = "GRPC_SERVER_TLS_CA_CERT, PROMETHEUS_MAPPER_YAML";
        assert!(server.log().contains(unused), "{}", server.log());
    });
}
