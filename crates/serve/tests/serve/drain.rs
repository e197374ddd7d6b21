//! The end of a server: it loses no request, and cuts off only what does not end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::client::{
    ASK, Grpc, HEALTH, LIMIT, Load, NOT_SERVING, SERVING, block_on, bytes, comes_true, get, wait_for_stat,
};
use crate::frames::{BEGIN, GOAWAY, call, head, is_answered, message, next};
use crate::server::{Ended, FREE, PATIENCE, Place, Server, command, eventually};

/// Open connections, without those for pages.
const CONNECTIONS: &str = "tollgate_service_connections";

// G108
#[test]
fn drain_under_load_loses_no_call() {
    let place = Place::new();
    let mut first = place.start("--drain 300ms");
    let second = place.start("");
    block_on(async {
        let load = Load::start(&[first.address("grpc"), second.address("grpc")], 4);
        load.wait_for_answers(500).await;
        first.signal("TERM");
        let code = tokio::task::spawn_blocking(move || first.wait()).await.unwrap();
        assert_eq!(code, 0);
        load.wait_for_answers(500).await;
        load.wait_for_connections(8).await;
        load.end().await;
    });
}

// G108
#[test]
fn health_fails_before_requests_do() {
    let place = Place::new();
    // The drain lasts until the test has looked.
    let mut server = place.start("--drain 1h --log info");
    block_on(async {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        assert_eq!(grpc.health("ratelimit").await, SERVING);
        server.signal("TERM");
        server.wait_for_line("draining");
        for name in ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"] {
            assert_eq!(grpc.health(name).await, NOT_SERVING, "{name}");
        }
        assert_eq!(get(&server.address("http"), "/healthcheck").await.status, 500);
        // Old and new connections are still served.
        grpc.ok(LIMIT, &bytes(ASK)).await;
        Grpc::connect(&server.address("grpc")).await.ok(LIMIT, &bytes(ASK)).await;
    });
    // A second TERM cuts off the connections that it finds, which ends with another code.
    server.signal("KILL");
    server.wait();
}

#[test]
fn watches_of_health_end_with_the_server() {
    Place::new().start("--drain 200ms").until_its_end(async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        let watch = grpc.open("/grpc.health.v1.Health/Watch", &[]).await.unwrap();
        let mut watch = watch.into_body();
        let next = watch.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(next.ends_with(SERVING));
        server.signal("INT");
        let next = watch.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(next.ends_with(NOT_SERVING));
        while timeout(PATIENCE, watch.frame()).await.unwrap().is_some() {}
        assert!(comes_true(async || grpc.is_closed()).await);
    });
}

/// Opens a request whose body never ends, and waits until the server has it.
async fn endless(
    address: &str,
) -> http2::SendRequest<http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let body = http_body_util::StreamBody::new(futures_util::stream::pending()).boxed();
    let request =
        Request::post(format!("http://localhost{LIMIT}")).header("content-type", "application/grpc");
    let response = sender.send_request(request.body(body).unwrap());
    tokio::spawn(response);
    sender.ready().await.unwrap();
    // The server reads a connection in order, so it has the first request when it answers another one.
    let (head, body) = crate::client::request(HEALTH, &[]).into_parts();
    let later = sender.send_request(Request::from_parts(head, body.boxed())).await.unwrap();
    assert_eq!(later.status(), 200);
    sender
}

// G108
#[test]
fn drain_deadline_cuts_endless_requests() {
    let place = Place::new();
    let mut server = place.start("--drain-deadline 200ms");
    block_on(async {
        let _open = endless(&server.address("grpc")).await;
        server.signal("TERM");
        assert_eq!(server.wait(), 3, "{}", server.log());
    });
    server.wait_for_line("1 connection cut off");
}

// G108
#[test]
fn second_signal_ends_at_once() {
    for (signal, line) in [("TERM", "draining"), ("INT", "another Ctrl+C ends at once")] {
        let place = Place::new();
        let mut server = place.start("--drain 1h --drain-deadline 1h --log info");
        block_on(async {
            let _open = endless(&server.address("grpc")).await;
            server.signal(signal);
            server.wait_for_line(line);
            server.signal(signal);
            assert_eq!(server.wait(), 3, "{}", server.log());
        });
        assert!(!server.log().contains("Redis"), "no rule has a Redis server: {}", server.log());
    }
}

/// Cause: Ctrl+C waited for gateways to leave, as SIGTERM does, and logged that only at the level INFO. Symptom: at a
/// terminal it took more than five seconds, and showed nothing.
// G108
#[test]
fn interrupt_ends_without_drain() {
    let log = end_beside_idle_connections("--drain 1h --drain-deadline 1h", "INT");
    assert!(log.contains("another Ctrl+C ends at once"), "{log}");
}

/// Ends a server that has idle connections, and returns its log.
fn end_beside_idle_connections(flags: &str, signal: &str) -> String {
    let place = Place::new();
    let mut server = place.start(flags);
    block_on(async {
        // One has answered, two have sent nothing at all.
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        grpc.ok(LIMIT, &bytes(ASK)).await;
        let _silent = TcpStream::connect(server.address("grpc")).await.unwrap();
        let _other = TcpStream::connect(server.address("http")).await.unwrap();
        wait_for_stat(&server.address("debug"), CONNECTIONS, 3).await;
        server.signal(signal);
        let (code, log) = tokio::task::spawn_blocking(move || (server.wait(), server.log())).await.unwrap();
        assert_eq!(code, 0, "{log}");
        log
    })
}

// G108
#[test]
fn interrupt_answers_requests_in_flight() {
    Place::new().start("--drain 1h").until_its_end(async |server| {
        let mut stream = TcpStream::connect(server.address("grpc")).await.unwrap();
        // The first call has no message yet. The server has it when it answers the second one.
        let ask = bytes(ASK);
        stream.write_all(&[BEGIN, &head(1), &call(3, &ask)].concat()).await.unwrap();
        assert!(is_answered(&mut stream, 3).await, "{}", server.log());
        server.signal("INT");
        server.wait_for_line("requests in flight are answered");
        // The server tells that it ends, and waits.
        while next(&mut stream).await.expect("the request is in flight").0 != GOAWAY {}
        stream.write_all(&message(1, &ask)).await.unwrap();
        assert!(is_answered(&mut stream, 1).await, "{}", server.log());
    });
}

#[test]
fn idle_connections_do_not_delay_the_end() {
    end_beside_idle_connections("--drain-deadline 1h", "TERM");
}

// G108
#[test]
fn connections_that_begin_late_are_answered() {
    Place::new().start("--log info").until_its_end(async |server| {
        let mut late = TcpStream::connect(server.address("grpc")).await.unwrap();
        late.write_all(&BEGIN[..7]).await.unwrap();
        wait_for_stat(&server.address("debug"), CONNECTIONS, 1).await;
        server.signal("TERM");
        server.wait_for_line("closing");
        late.write_all(&[&BEGIN[7..], &call(1, &bytes(ASK))].concat()).await.unwrap();
        assert!(is_answered(&mut late, 1).await, "{}", server.log());
    });
}

// G108
#[test]
fn connections_in_the_backlog_are_answered() {
    Place::new().start("").until_its_end(async |server| {
        // The system accepts connections also for a process that does not run.
        server.signal("STOP");
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let mut stream = TcpStream::connect(server.address("grpc")).await.unwrap();
            stream.write_all(&[BEGIN, &call(1, &bytes(ASK))].concat()).await.unwrap();
            waiting.push(stream);
        }
        server.signal("TERM");
        server.signal("CONT");
        let mut answered = 0;
        for mut stream in waiting {
            answered += u32::from(is_answered(&mut stream, 1).await);
        }
        assert_eq!(answered, 100, "{}", server.log());
    });
}

/// Connects, and writes these parts without end or reading, until the server reads no more or ends the connection.
async fn deaf(address: &str, mut next: impl FnMut() -> Vec<u8>) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let fill =
        async { while let Ok(Ok(())) = timeout(Duration::from_secs(1), stream.write_all(&next())).await {} };
    timeout(PATIENCE, fill).await.expect("the server reads without end");
    stream
}

// G115
#[test]
fn clients_that_never_read_delay_nothing() {
    let place = Place::new();
    let mut server = place.start("--drain-deadline 200ms");
    block_on(async {
        let (address, ask) = (server.address("grpc"), bytes(ASK));
        let (mut streams, mut first) = ((1..).step_by(2), BEGIN.to_vec());
        let _calls = deaf(&address, || {
            let calls = streams.by_ref().take(100).flat_map(|stream| call(stream, &ask));
            std::mem::take(&mut first).into_iter().chain(calls).collect()
        })
        .await;
        let _pages = deaf(&server.address("http"), || b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100)).await;
        Grpc::connect(&address).await.ok(LIMIT, &ask).await;
        assert_eq!(get(&server.address("http"), "/healthcheck").await.status, 200);
        server.signal("TERM");
        // 3 if they were connected until the end.
        let code = server.wait();
        assert!(code == 0 || code == 3, "{code}: {}", server.log());
    });
}

// G108
#[test]
fn load_that_hangs_does_not_hang_the_end() {
    let place = Place::new();
    let mut server = place.start("--log info");
    let _pipe = load_hangs(&place, &server);
    server.signal("TERM");
    assert_eq!(server.wait(), 0, "{}", server.log());
}

/// Cause: signals were heard from the first moment, and obeyed only after the start. Trigger: a file on a file system that is away.
/// Symptom: nothing but SIGKILL ended the process, and Ctrl+C did nothing.
// G108
#[test]
fn start_that_hangs_does_not_hang_the_end() {
    for signal in ["-TERM", "-INT"] {
        let place = Place::new();
        let pipe = make_pipe(&place.path("tls.crt"));
        let mut starting = command();
        starting.arg(place.rules()).args(FREE.split(' ')).args(["--log", "info", "--tls-key"]);
        starting.arg(place.rules()).arg("--tls-cert").arg(&pipe).stderr(Stdio::piped());
        let starting = starting.spawn().unwrap();
        let _pipe = reader_of(&pipe).expect("nothing reads the certificate");
        assert!(Command::new("kill").args([signal, &starting.id().to_string()]).status().unwrap().success());
        let ended = Ended::of(starting.wait_with_output().unwrap());
        assert!(ended.code == 0 && ended.stderr.contains("ended before the start was done"), "{ended:?}");
    }
}

/// Makes a load wait for ever, as one of a file on a network that is away: the rules become a pipe, and nothing is written to
/// it. Returns the end for writing when the server has begun to read.
pub(crate) fn load_hangs(place: &Place, server: &Server) -> File {
    std::fs::rename(make_pipe(&place.path(".pipe")), place.rules()).unwrap();
    server.signal("HUP");
    reader_of(place.rules()).unwrap_or_else(|| panic!("nothing reads the rules: {}", server.log()))
}

pub(crate) fn make_pipe(path: &Path) -> PathBuf {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    path.to_owned()
}

/// Waits until a process reads a pipe, and returns the end for writing.
pub(crate) fn reader_of(pipe: impl AsRef<Path>) -> Option<File> {
    // Without a reader, this fails.
    let mut writer = OpenOptions::new();
    writer.write(true).custom_flags(libc::O_NONBLOCK);
    let mut opened = None;
    eventually(|| {
        opened = writer.open(&pipe).ok();
        opened.is_some()
    });
    opened
}
