//! Clients: gRPC as bytes over HTTP/2, HTTP/1, and callers that keep a server busy.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The longest wait for anything that must happen. A busy machine needs seconds for what takes milliseconds otherwise.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub const LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
pub const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// A request of the domain `rl` with one descriptor, (generic_key, v).
pub const ASK: &str = "0a02726c12120a100a0b67656e657269635f6b6579120176";
/// A request of the domain `rl` with one descriptor, (once, x).
pub const ONCE: &str = "0a02726c120b0a090a046f6e6365120178";
/// The answers SERVING and NOT_SERVING.
pub const SERVING: &[u8] = &[8, 1];
pub const NOT_SERVING: &[u8] = &[8, 2];

pub fn bytes(hex: &str) -> Bytes {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Returns a field of a message: bytes, or another message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let (mut field, mut length) = (vec![(number << 3) | 2], content.len());
    while length >= 0x80 {
        field.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    field.push(u8::try_from(length).unwrap());
    field.extend_from_slice(content);
    field
}

/// Returns the bytes of a request of the domain `rl` with these entries, each in a descriptor of its own.
fn asking_each<V: AsRef<[u8]>>(descriptors: &[&[(&str, V)]]) -> Vec<u8> {
    let entry =
        |(key, value): &(&str, V)| field(1, &[field(1, key.as_bytes()), field(2, value.as_ref())].concat());
    let descriptor = |entries: &&[(&str, V)]| field(2, &entries.iter().flat_map(entry).collect::<Vec<u8>>());
    [field(1, b"rl")].into_iter().chain(descriptors.iter().map(descriptor)).flatten().collect()
}

/// Returns the bytes of a request of the domain `rl` with these entries in one descriptor.
pub fn asking(entries: &[(&str, &str)]) -> Vec<u8> {
    asking_each(&[entries])
}

/// Returns a request with a new value for each of the keys `compact`, `keyed` and `sketch`. Some values are long, and some are not UTF-8.
pub fn new_values(number: u64) -> Vec<u8> {
    let mut value = number.to_string().into_bytes();
    match number % 64 {
        0 => value.resize(8_192, b'x'),
        1 => value.extend([0xff, 0xfe]),
        _ => {}
    }
    let entries = ["compact", "keyed", "sketch"].map(|key| [(key, &value)]);
    asking_each(&entries.each_ref().map(<[_; 1]>::as_slice))
}

/// Runs a test's future.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// An HTTP/2 connection.
#[derive(Clone)]
pub struct Grpc(http2::SendRequest<Full<Bytes>>);

/// The answer to a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Called {
    /// `grpc-status`.
    pub status: u32,
    pub message: Bytes,
}

impl Grpc {
    pub async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        // Otherwise the system holds the message back until the peer has confirmed the head: some 40 ms.
        stream.set_nodelay(true).unwrap();
        Self::over(stream).await
    }

    pub async fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self::try_over(stream).await.unwrap()
    }

    pub async fn try_over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> hyper::Result<Self> {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Calls a method. An error is one of the connection.
    pub async fn try_call(&mut self, path: &str, message: &[u8]) -> hyper::Result<Called> {
        self.0.ready().await?;
        called(self.0.send_request(request(path, message)).await?).await
    }

    pub async fn call(&mut self, path: &str, message: &[u8]) -> Called {
        self.try_call(path, message).await.unwrap()
    }

    /// Calls a method within a trace.
    pub async fn call_within(&mut self, traceparent: &str, path: &str, message: &[u8]) -> Called {
        let mut request = request(path, message);
        request.headers_mut().insert("traceparent", traceparent.parse().unwrap());
        self.0.ready().await.unwrap();
        called(self.0.send_request(request).await.unwrap()).await.unwrap()
    }

    /// Calls a method, and asserts that the status is OK.
    pub async fn ok(&mut self, path: &str, message: &[u8]) -> Bytes {
        let called = self.call(path, message).await;
        assert_eq!(called.status, 0, "{called:?}");
        called.message
    }

    pub async fn health(&mut self, name: &str) -> Bytes {
        let mut message = vec![0x0a, u8::try_from(name.len()).unwrap()];
        message.extend(name.bytes());
        self.ok(HEALTH, if name.is_empty() { &[] } else { &message }).await
    }

    /// Returns the response without its body.
    pub async fn open(&mut self, path: &str, message: &[u8]) -> hyper::Result<Response<Incoming>> {
        self.0.ready().await?;
        self.0.send_request(request(path, message)).await
    }

    /// Whether the connection has ended, or is asked to end.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

pub fn request(path: &str, message: &[u8]) -> Request<Full<Bytes>> {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.put_slice(message);
    Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(framed.freeze()))
        .unwrap()
}

async fn called(response: Response<Incoming>) -> hyper::Result<Called> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let status = |headers: &HeaderMap| headers.get("grpc-status")?.to_str().ok()?.parse().ok();
    let status = status(&trailers).or_else(|| status(&head.headers)).unwrap_or(u32::MAX);
    let message = body.to_bytes();
    Ok(Called { status, message: message.slice(message.len().min(5)..) })
}

/// The answer to an HTTP/1 request.
pub struct Page {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

/// Sends an HTTP/1 request.
pub async fn http(address: &str, method: &str, path: &str, body: &str) -> Page {
    send(TcpStream::connect(address).await.unwrap(), method, path, &[], body).await
}

/// Sends an HTTP/1 request with these header fields.
pub async fn send(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> Page {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let request = fields.iter().fold(request, |request, &(name, value)| request.header(name, value));
    let body = Full::new(Bytes::from(body.to_owned()));
    let response = sender.send_request(request.body(body).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Page {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

pub async fn get(address: &str, path: &str) -> Page {
    http(address, "GET", path, "").await
}

/// Returns a count from `/stats`.
pub async fn stat(debug: &str, name: &str) -> u64 {
    let page = get(debug, "/stats").await.body;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).expect(&page);
    line.parse().unwrap()
}

/// Waits until a condition holds, while the tasks of the test go on. Returns whether it does.
pub async fn comes_true(mut holds: impl AsyncFnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        if Instant::now() > end {
            return false;
        }
        sleep(Duration::from_millis(10)).await;
    }
    true
}

/// Waits until a count from `/stats` is at least this number.
pub async fn wait_for_stat(debug: &str, name: &str, least: u64) {
    assert!(comes_true(async || stat(debug, name).await >= least).await, "{name} stays below {least}");
}

/// Callers that keep servers busy, as a gateway does: after the end of a connection, they connect again, to the next
/// server that accepts.
pub struct Load {
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    answers: AtomicU64,
    connections: AtomicU64,
    failures: std::sync::Mutex<Vec<String>>,
}

impl Counts {
    fn fail(&self, why: String) {
        self.failures.lock().unwrap().push(why);
    }
}

impl Load {
    /// Starts connections with eight concurrent calls each.
    pub fn start(servers: &[String], connections: usize) -> Self {
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let servers: Arc<[String]> = servers.into();
        let one = |_| {
            let (servers, stop, counts) = (Arc::clone(&servers), Arc::clone(&stop), Arc::clone(&counts));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let Some(grpc) = first(&servers).await else {
                        counts.fail("no server accepts".to_owned());
                        return;
                    };
                    counts.connections.fetch_add(1, Ordering::Relaxed);
                    let calls = (0..8).map(|_| calls(grpc.clone(), Arc::clone(&stop), Arc::clone(&counts)));
                    futures_util::future::join_all(calls).await;
                }
            })
        };
        let tasks = (0..connections).map(one).collect();
        Self { stop, counts, tasks }
    }

    /// Waits until the callers have this many more answers.
    pub async fn wait_for_answers(&self, more: u64) {
        let least = self.counts.answers.load(Ordering::Relaxed) + more;
        self.wait_until(|counts| counts.answers.load(Ordering::Relaxed) >= least).await;
    }

    /// Waits until the callers have opened this many connections.
    pub async fn wait_for_connections(&self, least: u64) {
        self.wait_until(|counts| counts.connections.load(Ordering::Relaxed) >= least).await;
    }

    async fn wait_until(&self, holds: impl Fn(&Counts) -> bool) {
        let held = comes_true(async || {
            let failures = self.counts.failures.lock().unwrap().clone();
            assert!(failures.is_empty(), "{failures:?}");
            holds(&self.counts)
        });
        assert!(held.await, "the callers are stuck");
    }

    /// Ends the load, and asserts that each call was answered.
    pub async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        let failures = std::mem::take(&mut *self.counts.failures.lock().unwrap());
        assert!(failures.is_empty(), "{} failures: {:?}", failures.len(), &failures[..failures.len().min(5)]);
        self.counts.answers.load(Ordering::Relaxed)
    }
}

async fn first(servers: &[String]) -> Option<Grpc> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        for server in servers {
            // A server that ends resets connections that it has not accepted. No call was lost.
            if let Ok(stream) = TcpStream::connect(server).await
                && let Ok(grpc) = Grpc::try_over(stream).await
            {
                return Some(grpc);
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
    None
}

/// Calls until the connection ends or the test stops.
async fn calls(mut grpc: Grpc, stop: Arc<AtomicBool>, counts: Arc<Counts>) {
    let ask = bytes(ASK);
    while !stop.load(Ordering::Relaxed) {
        if grpc.0.ready().await.is_err() {
            return;
        }
        let sent = grpc.0.try_send_request(request(LIMIT, &ask));
        let Ok(sent) = timeout(PATIENCE, sent).await else {
            counts.fail("no answer in two minutes".to_owned());
            return;
        };
        let response = match sent {
            Ok(response) => response,
            Err(mut error) => {
                // With the message, the request was never sent. After GOAWAY without an error, HTTP/2 defines that the
                // server has not seen it: h2's client sends its pong before requests that it has queued already. Both are
                // sent again on the next connection, and any other error is a lost call.
                let why = format!("{:?}", error.error());
                if error.take_message().is_none() && !why.contains("NO_ERROR, Remote") {
                    counts.fail(why);
                }
                return;
            }
        };
        match called(response).await {
            Ok(Called { status: 0, .. }) => {
                counts.answers.fetch_add(1, Ordering::Relaxed);
            }
            other => counts.fail(format!("{other:?}")),
        }
    }
}
