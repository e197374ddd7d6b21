//! Unix sockets: their permissions, stale ones, and their end.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use tokio::net::UnixStream;

use crate::client::{ASK, Grpc, LIMIT, SERVING, block_on, bytes};
use crate::server::{FREE, Place, Server};

/// The endpoints of a server whose only gRPC endpoint is a socket.
const ENDPOINTS: &str = "--grpc-socket $/socket --http 127.0.0.1:0 --debug off --drain 0s";

fn start(place: &Place, args: &str) -> Server {
    Server::start_with(&[&place.rules()], &place.fill(&format!("{ENDPOINTS} {args}")), &[])
}

/// Asserts that the process at the socket answers.
fn answers(place: &Place) {
    block_on(async {
        let mut grpc = Grpc::over(UnixStream::connect(place.path("socket")).await.unwrap()).await;
        assert_eq!(grpc.health("ratelimit").await, SERVING);
        grpc.ok(LIMIT, &bytes(ASK)).await;
    });
}

// G110
#[test]
fn socket_answers_and_is_removed() {
    let place = Place::new();
    let server = start(&place, "");
    let socket = place.path("socket");
    // The socket replaces the port.
    assert!(!server.start_line().contains("grpc on 0.0.0.0"), "{}", server.start_line());
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o660);
    answers(&place);
    server.stop();
    assert!(!socket.exists());
}

#[test]
fn socket_mode_is_a_setting() {
    let place = Place::new();
    let _server = start(&place, "--socket-mode 0600");
    assert_eq!(place.path("socket").metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

// G110
#[test]
fn stale_socket_is_replaced() {
    let place = Place::new();
    drop(UnixListener::bind(place.path("socket")).unwrap());
    assert!(place.path("socket").exists());
    start(&place, "").stop();
}

// G110
#[test]
fn socket_in_use_is_an_error() {
    let place = Place::new();
    let _first = start(&place, "");
    place.run(ENDPOINTS).fails(1, &["another process listens there", "--grpc-socket"]);
    answers(&place);
}

// G110
#[test]
fn other_files_are_not_replaced() {
    let place = Place::new();
    place.write("socket", "text");
    place.run(ENDPOINTS).fails(1, &["a file of another kind"]);
    assert_eq!(std::fs::read_to_string(place.path("socket")).unwrap(), "text");
}

#[test]
fn socket_of_a_successor_stays() {
    let place = Place::new();
    let first = start(&place, "");
    std::fs::remove_file(place.path("socket")).unwrap();
    let _second = start(&place, "");
    first.stop();
    answers(&place);
}

/// Cause: the process ended before the tasks that own its sockets.
#[test]
fn start_that_fails_leaves_no_socket() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = taken.local_addr().unwrap();
    place.write("token", "ops:0123456789abcdef\n");
    for _ in 0..10 {
        let token = "--admin-token-file $/token";
        let args = format!("{FREE} --grpc-socket $/grpc --admin unix:$/admin --admin {admin} {token}");
        place.run(&args).fails(1, &["another process listens there", "--admin"]);
        assert!(!place.path("grpc").exists() && !place.path("admin").exists());
    }
}
