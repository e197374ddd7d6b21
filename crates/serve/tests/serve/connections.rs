//! Connections: their age, their limits, and clients that speak something else.

use http::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{ASK, Grpc, LIMIT, Load, bytes, comes_true, stat, wait_for_stat};
use crate::frames::{BEGIN, RST_STREAM, frame, head};
use crate::server::{PATIENCE, Place, eventually};

// G108
#[test]
fn aged_connections_lose_no_call() {
    Place::new().serve("--connection-age 100ms", async |server| {
        let load = Load::start(&[server.address("grpc")], 4);
        load.wait_for_connections(40).await;
        load.wait_for_answers(40).await;
        load.end().await;
        let debug = server.address("debug");
        assert!(stat(&debug, "tollgate_service_connections_aged_total").await >= 16);
        assert_eq!(stat(&debug, "tollgate_service_connections_cut_after_grace_total").await, 0);
    });
}

// G108
#[test]
fn grace_ends_a_connection_with_open_requests() {
    Place::new().serve("--connection-age 100ms --connection-grace 100ms", async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        // A watch never ends by itself.
        let watch = grpc.open("/grpc.health.v1.Health/Watch", &[]).await.unwrap();
        wait_for_stat(&server.address("debug"), "tollgate_service_connections_cut_after_grace_total", 1)
            .await;
        drop(watch);
    });
}

// G115
#[test]
fn too_many_connections_are_closed_at_once() {
    let place = Place::new();
    place.serve("--max-connections 2", async |server| {
        let address = server.address("grpc");
        let (mut first, mut second) = (Grpc::connect(&address).await, Grpc::connect(&address).await);
        first.ok(LIMIT, &bytes(ASK)).await;
        second.ok(LIMIT, &bytes(ASK)).await;
        let mut third = TcpStream::connect(&address).await.unwrap();
        assert!(matches!(third.read(&mut [0]).await, Ok(0) | Err(_)));
        first.ok(LIMIT, &bytes(ASK)).await;
        drop(second);
        wait_for_stat(&server.address("debug"), "tollgate_service_connections_refused_total", 1).await;
        let is_free = comes_true(async || {
            let stream = TcpStream::connect(&address).await.unwrap();
            match Grpc::try_over(stream).await {
                Ok(mut grpc) => grpc.try_call(LIMIT, &bytes(ASK)).await.is_ok(),
                Err(_) => false,
            }
        });
        assert!(is_free.await, "the place of a closed connection is not free");
    });
}

// G115
#[test]
fn other_protocols_are_counted_and_closed() {
    Place::new().serve("--log debug", async |server| {
        let address = server.address("grpc");
        for first in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 2, 0], b"\0\0\0", b"PRI * HTTP/1.0"] {
            let mut stream = TcpStream::connect(&address).await.unwrap();
            stream.write_all(first).await.unwrap();
            let mut rest = Vec::new();
            let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
        }
        assert_eq!(stat(&server.address("debug"), "tollgate_service_not_http2_total").await, 4);
        // A probe that only connects is no mistake.
        drop(TcpStream::connect(&address).await.unwrap());
        Grpc::connect(&address).await.ok(LIMIT, &bytes(ASK)).await;
        assert_eq!(stat(&server.address("debug"), "tollgate_service_not_http2_total").await, 4);
        server.wait_for_line("spoke HTTP/1, but gRPC needs HTTP/2");
    });
}

#[test]
fn preface_may_come_byte_by_byte() {
    Place::new().serve("", async |server| {
        let mut stream = TcpStream::connect(server.address("grpc")).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
            stream.write_all(&[*byte]).await.unwrap();
        }
        // An empty SETTINGS frame, and a PING.
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        stream.write_all(&[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]).await.unwrap();
        let mut read = Vec::new();
        let pong = [1, 2, 3, 4, 5, 6, 7, 8];
        while !read.ends_with(&pong) {
            let byte = timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap();
            read.push(byte);
        }
    });
}

// G115
#[test]
fn header_lists_have_a_bound() {
    Place::new().serve("", async |server| {
        let stream = TcpStream::connect(server.address("grpc")).await.unwrap();
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let ask = |length: usize| {
            let mut request = crate::client::request(LIMIT, &bytes(ASK));
            request.headers_mut().insert("x-long", "v".repeat(length).parse().unwrap());
            request
        };
        let small: Request<_> = ask(8 << 10);
        assert_eq!(sender.send_request(small).await.unwrap().status(), 200);
        let large = sender.send_request(ask(32 << 10)).await;
        assert!(large.is_err() || large.is_ok_and(|response| response.status() == 431));
        // The connection survives.
        assert_eq!(sender.send_request(ask(1)).await.unwrap().status(), 200);
    });
}

// G115
#[test]
fn concurrent_streams_have_a_bound() {
    Place::new().serve("--max-streams 7", async |server| {
        let mut stream = TcpStream::connect(server.address("grpc")).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(head[3], 4, "the first frame is SETTINGS");
        let mut settings = vec![0; usize::from(head[2])];
        stream.read_exact(&mut settings).await.unwrap();
        // SETTINGS_MAX_CONCURRENT_STREAMS and SETTINGS_MAX_HEADER_LIST_SIZE
        assert!(settings.chunks(6).any(|setting| setting == [0, 3, 0, 0, 0, 7]), "{settings:?}");
        assert!(settings.chunks(6).any(|setting| setting == [0, 6, 0, 0, 0x40, 0]), "{settings:?}");
    });
}

// G115
#[test]
fn rapid_resets_stop_no_other_client() {
    const RESETS: usize = 30_000;
    const CANCEL: &[u8] = &[0, 0, 0, 8];
    Place::new().serve("", async |server| {
        let address = server.address("grpc");
        let mut other = Grpc::connect(&address).await;
        let (mut resets, mut before) = (0, 0);
        while resets < RESETS {
            let stream = TcpStream::connect(&address).await.unwrap();
            let (mut read, mut write) = stream.into_split();
            let ignored =
                tokio::spawn(async move { tokio::io::copy(&mut read, &mut tokio::io::sink()).await });
            write.write_all(BEGIN).await.unwrap();
            let mut streams = (1..).step_by(2);
            while resets < RESETS {
                let pairs = streams
                    .by_ref()
                    .take(100)
                    .flat_map(|stream| [head(stream), frame(RST_STREAM, 0, stream, CANCEL)].concat());
                // The server may end the connection.
                if write.write_all(&pairs.collect::<Vec<u8>>()).await.is_err() {
                    break;
                }
                resets += 100;
                timeout(PATIENCE, other.ok(LIMIT, &bytes(ASK))).await.unwrap();
                if resets == RESETS / 3 {
                    before = server.resident_bytes();
                }
            }
            ignored.abort();
        }
        // The server may still read what the last connections sent.
        let is_flat = eventually(|| server.resident_bytes() < before + (4 << 20));
        assert!(before > 0 && is_flat, "{before} bytes, then {}", server.resident_bytes());
    });
}
