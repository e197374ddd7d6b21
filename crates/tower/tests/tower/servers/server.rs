//! A server on a free local port, and its clients.

use std::net::SocketAddr;

use axum::Router;
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server, for HTTP/1.1 and for HTTP/2 without TLS.
pub(crate) struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub(crate) async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the system assigns a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        let served = axum::serve(listener, service).with_graceful_shutdown(async {
            stopped.await.ok();
        });
        Self { address, stop, task: tokio::spawn(served.into_future()) }
    }

    pub(crate) fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stops the server. Returns when all connections are closed.
    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("the server is running");
        self.task.await.expect("the server task does not panic").expect("the server ends without an error");
    }
}

pub(crate) type TestClient = Client<HttpConnector, Empty<Bytes>>;

/// A client of HTTP/1.1, or of HTTP/2 by prior knowledge.
pub(crate) fn client(http2: bool) -> TestClient {
    Client::builder(TokioExecutor::new()).http2_only(http2).build_http()
}

pub(crate) fn clients() -> [TestClient; 2] {
    [client(false), client(true)]
}

pub(crate) fn get(uri: &str) -> Request<Empty<Bytes>> {
    Request::get(uri).body(Empty::new()).expect("a valid request")
}

/// Sends these header lines byte by byte and returns the status of the answer.
pub(crate) async fn raw(server: &Server, lines: &[u8]) -> u16 {
    raw_to(server, "/", lines).await
}

pub(crate) async fn raw_to(server: &Server, path: &str, lines: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(server.address).await.expect("the server accepts the connection");
    let start = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for part in [start.as_bytes(), lines, b"\r\n"] {
        stream.write_all(part).await.expect("the other side reads");
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("the server answers");
    let status = answer.get(9..12).and_then(|status| str::from_utf8(status).ok());
    status.and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{}", answer.escape_ascii()))
}
