//! The life of connections: accept, TLS, the first bytes, age, and the end.
//!
//! ```text
//! accept ─► too many? closed at once ─► TLS, allowed name? ─► first bytes of HTTP/2? ─► serve
//!                                                                                        │ age, or the drain
//!                                                            cut off ◄─ grace, deadline ─┴► GOAWAY ─► end
//! ```
//! After GOAWAY, a client opens no new request on the connection, and all requests in flight are answered.

use std::future::{Future, pending};
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};
use tower::Service;

use super::listen::{Io, Listener, Stream};
use super::log::{Level, Seldom};
use super::peer::Peer;
use super::stats::Stats;
use super::tls::Tls;

/// The first bytes of each HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a client may take to begin: TLS, and the first bytes of HTTP. Also how long a client of another protocol may take for what it
/// must send first, such as a password.
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long the server waits before it accepts again after an error, such as too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// How long a client may take to end its side of a connection that the server has ended. Also how long a connection may
/// take to begin when the server is closing, because its first request may be on its way.
const LINGER: Duration = Duration::from_secs(1);

/// The same after Ctrl+C.
const BRIEF: Duration = Duration::from_millis(100);

/// A ping after this time without a frame. It finds peers that disappeared.
const PING_AFTER: Duration = Duration::from_secs(60);

/// How long the answer to a ping may take.
const PING_ANSWER: Duration = Duration::from_secs(20);

/// How long a client may leave the bytes of a page unread.
const STALLED: Duration = Duration::from_secs(10);

/// The longest list of header fields, in bytes.
const HEADERS: u32 = 16 << 10;

/// An error of a body or a service.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request or an answer.
pub trait HttpBody: Body<Data = Bytes, Error: Into<Failure> + Send> + Send + Unpin + 'static {}

impl<B: Body<Data = Bytes, Error: Into<Failure> + Send> + Send + Unpin + 'static> HttpBody for B {}

/// What answers the requests of HTTP.
pub trait HttpService<B>:
    Service<Request<Incoming>, Response = Response<B>, Error: Into<Failure>, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<B, S> HttpService<B> for S where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<Failure>, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// What the server is doing.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ServerPhase {
    /// It answers. This includes the start of the drain.
    Serving,
    /// It accepts no connection, and asks all connections to end.
    Closing,
    /// The same, and it waits for no client that is late: somebody at a terminal waits for the end.
    Leaving,
    /// It cuts off all connections.
    Cutting,
}

/// Whether connections are to end.
pub fn is_closing(phase: &ServerPhase) -> bool {
    *phase >= ServerPhase::Closing
}

/// Returns how long the server waits for a client that is late, which depends on the phase.
pub fn patience(phase: &watch::Receiver<ServerPhase>) -> Duration {
    if *phase.borrow() >= ServerPhase::Leaving { BRIEF } else { LINGER }
}

fn is_cutting(phase: &ServerPhase) -> bool {
    *phase == ServerPhase::Cutting
}

/// The bounds of connections.
#[derive(Copy, Clone, Debug)]
pub struct Bounds {
    /// The most connections.
    pub connections: u32,
    /// The most concurrent requests on a connection.
    pub streams: u32,
    /// The age at which a connection is asked to end. 0 is never.
    pub age: Duration,
    /// The time for the end.
    pub grace: Duration,
}

/// What an endpoint speaks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// HTTP/2 only, for gRPC.
    Http2,
    /// HTTP/1 and HTTP/2.
    Http,
    /// HTTP/1, for pages. A client that takes no bytes for ten seconds is cut off. With HTTP/2, a client could keep many pages
    /// waiting although it takes all bytes of the connection.
    Pages,
    /// Another protocol, over a stream of bytes: see [`Listening::serve_streams`].
    Stream {
        /// What a client reads if all connections are in use, such as an error of the protocol. It may be empty. A client of TLS reads
        /// nothing, because its handshake would come first.
        full: &'static [u8],
    },
}

/// An endpoint: where it listens and how.
#[derive(Debug)]
pub struct Listening {
    /// The listener.
    pub listener: Listener,
    /// TLS, if the endpoint has it.
    pub tls: Option<Arc<Tls>>,
    /// What it speaks.
    pub protocol: Protocol,
    /// What it shares with other endpoints.
    pub context: ServerContext,
}

/// What the endpoints of a server share.
#[derive(Clone, Debug)]
pub struct ServerContext {
    /// The bounds.
    pub bounds: Bounds,
    /// The counts.
    pub stats: Arc<Stats>,
    /// The server's phase.
    pub phase: watch::Receiver<ServerPhase>,
    /// Held by each connection. When all are dropped, there is no connection left.
    pub alive: mpsc::Sender<()>,
}

/// What one connection needs.
struct ConnectionContext {
    tls: Option<Arc<Tls>>,
    protocol: Protocol,
    builder: auto::Builder<TokioExecutor>,
    bounds: Bounds,
    stats: Arc<Stats>,
    /// Lines about clients. The listener has its own, so that no client can hide a line about it.
    seldom: Seldom,
}

/// Counts a connection as open until it is dropped, also if the code of a program panics that serves it.
struct OpenConnection(Arc<ConnectionContext>);

impl OpenConnection {
    fn new(shared: &Arc<ConnectionContext>) -> Self {
        shared.stats.open.add();
        Self(Arc::clone(shared))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.stats.open.sub(1);
    }
}

impl Listening {
    /// Serves requests of HTTP in a task of this runtime, until the server is closing. All connections have the same service.
    pub fn spawn<B: HttpBody>(self, service: impl HttpService<B>) {
        tokio::spawn(self.serve(move |_, _| service.clone()));
    }

    /// Accepts connections and serves requests of HTTP, until the server is closing. `service` gets the name of the peer, and who it
    /// is.
    pub async fn serve<S: HttpService<B>, B: HttpBody>(
        self,
        service: impl Fn(&str, Option<Peer>) -> S + Clone + Send + 'static,
    ) {
        self.accept(move |shared, stream, peer, phase| {
            let service = service.clone();
            async move { shared.attend(stream, &peer, service, phase).await }
        })
        .await;
    }

    /// Accepts connections, and lets `talk` serve each stream of bytes, until the server is closing. `talk` gets the name of the peer. It
    /// ends the stream when the server is closing, and is cut off when the server cuts off all connections.
    pub async fn serve_streams<F>(
        self,
        talk: impl Fn(Io, String, watch::Receiver<ServerPhase>) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        self.accept(move |shared, stream, peer, mut phase| {
            let talk = talk.clone();
            async move {
                let Some(stream) = shared.begin_in_time(stream, &peer, &phase).await else { return };
                let talk = talk(stream, peer, phase.clone());
                tokio::select! {
                    biased;
                    () = talk => {}
                    _ = phase.wait_for(is_cutting) => shared.stats.cut.add(),
                }
            }
        })
        .await;
    }

    /// Accepts connections and lets `attend` serve them, until the server is closing.
    async fn accept<F>(
        self,
        attend: impl Fn(Arc<ConnectionContext>, Io, String, watch::Receiver<ServerPhase>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { listener, tls, protocol, context: ServerContext { bounds, stats, mut phase, alive } } =
            self;
        let shared = Arc::new(ConnectionContext {
            tls,
            protocol,
            builder: builder(protocol, bounds),
            bounds,
            stats,
            seldom: Seldom::default(),
        });
        let room = Arc::new(Semaphore::new(bounds.connections as usize));
        let stats = &shared.stats;
        let seldom = Seldom::default();
        // What the connections know of the server's phase.
        let (change, watched) = watch::channel(ServerPhase::Serving);
        loop {
            let closing = phase.wait_for(is_closing);
            let accepted = tokio::select! {
                // The connections that the system has accepted already may have sent a request.
                biased;
                accepted = listener.accept() => accepted,
                _ = closing => match listener.accept_queued() {
                    Some(accepted) => accepted,
                    None => break,
                },
            };
            let accepted = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    stats.accept_errors.add();
                    seldom.write(Level::Error, format_args!("cannot accept connections: {error}"));
                    sleep(ACCEPT_AGAIN).await;
                    if is_closing(&phase.borrow()) {
                        break;
                    }
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                stats.too_many.add();
                seldom.write(
                    Level::Warn,
                    format_args!(
                        "{listener} has {} connections, the most that it takes (--max-connections; always 64 for --admin, --debug and --metrics)",
                        bounds.connections
                    ),
                );
                // HTTP has no answer to a client that has asked nothing.
                if let Protocol::Stream { full } = protocol
                    && shared.tls.is_none()
                {
                    accepted.close_with(full);
                }
                continue;
            };
            stats.accepted.add();
            let (stream, peer) = accepted.open();
            let attended = attend(Arc::clone(&shared), stream, peer, watched.clone());
            let (open, alive) = (OpenConnection::new(&shared), alive.clone());
            tokio::spawn(async move {
                attended.await;
                drop((open, place, alive));
            });
        }
        // A socket is removed before the server can end.
        drop(listener);
        drop((alive, watched));
        // Only now: a client that has to leave connects again at once, and the listener must be closed by then.
        loop {
            change.send_replace(*phase.borrow_and_update());
            tokio::select! {
                () = change.closed() => break,
                changed = phase.changed() => if changed.is_err() { break },
            }
        }
    }
}

impl ConnectionContext {
    /// Serves one connection to its end.
    async fn attend<S: HttpService<B>, B: HttpBody>(
        &self,
        stream: Io,
        peer: &str,
        service: impl Fn(&str, Option<Peer>) -> S,
        phase: watch::Receiver<ServerPhase>,
    ) {
        let Some(mut stream) = self.begin_in_time(stream, peer, &phase).await else { return };
        let service = service(peer, stream.take_client());
        if self.protocol == Protocol::Pages {
            stream.cut_off_after(STALLED);
        }
        let (stream, returned) = stream.and_back();
        let service = TowerToHyperService::new(service);
        let connection = self.builder.serve_connection(TokioIo::new(stream), service).into_owned();
        match self.live(Box::pin(connection), phase.clone()).await {
            Ended::ByItself => {}
            Ended::Failed(error) => {
                self.stats.protocol_errors.add();
                self.seldom.write(Level::Debug, format_args!("the connection of {peer} ended: {error}"));
            }
            Ended::Gracefully => {
                if let Ok(stream) = returned.await {
                    let _ = timeout(patience(&phase), linger(stream)).await;
                }
            }
            Ended::Late => self.stats.cut_after_grace.add(),
            Ended::Cut => self.stats.cut.add(),
        }
    }

    /// [`Self::begin`], with its longest time.
    async fn begin_in_time(
        &self,
        stream: Io,
        peer: &str,
        phase: &watch::Receiver<ServerPhase>,
    ) -> Option<Io> {
        let mut watched = phase.clone();
        let closing = async {
            let _ = watched.wait_for(is_closing).await;
            sleep(patience(&watched)).await;
        };
        // The order of these two is fixed, so that a client whose bytes came in time is served even if the thread is late.
        let begun = tokio::select! {
            biased;
            begun = timeout(HANDSHAKE, self.begin(stream, peer)) => begun,
            () = closing => return None,
        };
        begun.unwrap_or_else(|_| {
            self.stats.handshakes_late.add();
            self.seldom.write(Level::Debug, format_args!("{peer} connected and sent nothing in time"));
            None
        })
    }

    /// Does what comes before the protocol's own bytes. `None` if there is nothing to serve.
    async fn begin(&self, mut stream: Io, peer: &str) -> Option<Io> {
        if let Some(tls) = &self.tls {
            match tls.accept(stream).await {
                Ok(secured) => stream = secured,
                Err(error) => {
                    self.stats.handshakes_failed.add();
                    self.seldom.write(Level::Debug, format_args!("TLS with {peer} failed: {error}"));
                    return None;
                }
            }
        }
        if matches!(self.protocol, Protocol::Stream { .. }) {
            return Some(stream);
        }
        let mut first = Vec::with_capacity(PREFACE.len());
        while first.len() < PREFACE.len() && PREFACE.starts_with(&first) {
            let mut buffer = [0; PREFACE.len()];
            let wanted = PREFACE.len() - first.len();
            match stream.read(&mut buffer[..wanted]).await {
                // A probe that only connects is no mistake.
                Ok(0) | Err(_) if first.is_empty() => return None,
                Ok(0) | Err(_) => break,
                Ok(read) => first.extend_from_slice(&buffer[..read]),
            }
        }
        if first == PREFACE || self.protocol != Protocol::Http2 {
            return Some(stream.again(first));
        }
        self.stats.not_http2.add();
        let what = match first.first() {
            Some(0x16) => "began TLS, but this endpoint has none (--tls-cert)",
            Some(b'A'..=b'Z') => "spoke HTTP/1, but gRPC needs HTTP/2",
            _ => "did not begin HTTP/2",
        };
        self.seldom.write(Level::Debug, format_args!("{peer} {what}"));
        None
    }

    /// Serves requests until the connection ends, by itself, by its age or with the server.
    async fn live<C>(
        &self,
        mut connection: Pin<Box<C>>,
        mut phase: watch::Receiver<ServerPhase>,
    ) -> Ended<C::Error>
    where
        C: GracefulConnection,
    {
        let age = self.bounds.age;
        let aged = async {
            match age.is_zero() {
                true => pending().await,
                false => sleep(jittered(age, 0.1)).await,
            }
        };
        let is_aged = tokio::select! {
            ended = connection.as_mut() => return ended.map_or_else(Ended::Failed, |()| Ended::ByItself),
            () = aged => true,
            _ = phase.wait_for(is_closing) => false,
        };
        connection.as_mut().graceful_shutdown();
        let grace = async {
            match is_aged {
                true => sleep(self.bounds.grace).await,
                false => pending().await,
            }
        };
        if is_aged {
            self.stats.aged.add();
        }
        tokio::select! {
            ended = connection => ended.map_or_else(Ended::Failed, |()| Ended::Gracefully),
            () = grace => Ended::Late,
            _ = phase.wait_for(is_cutting) => Ended::Cut,
        }
    }
}

/// How a connection ended.
enum Ended<E> {
    /// The client ended it.
    ByItself,
    /// The server ended it, and all requests were answered.
    Gracefully,
    /// The server cut it off at the end of its grace.
    Late,
    /// The server cut it off at the end of the drain.
    Cut,
    /// It failed.
    Failed(E),
}

/// Reads what the client sends after the end, until it ends too, because the system resets a stream that is closed before,
/// and the client may then lose the last answers.
pub async fn linger(mut stream: impl Stream) {
    let _ = stream.shutdown().await;
    let mut ignored = [0; 512];
    while stream.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
}

/// Returns a time that is longer or shorter by up to this share, at random, so that connections that began together do not
/// end together.
pub fn jittered(time: Duration, share: f64) -> Duration {
    // A new state has random keys.
    let random = (RandomState::new().hash_one(()) >> 11) as f64 / (1_u64 << 53) as f64;
    time.mul_f64(1.0 - share + 2.0 * share * random)
}

fn builder(protocol: Protocol, bounds: Bounds) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.streams)
        // A gateway resets each request that times out, so a slow moment resets many of them at once.
        .max_pending_accept_reset_streams(bounds.streams as usize)
        .max_header_list_size(HEADERS)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_ANSWER);
    match protocol {
        Protocol::Http2 => builder.http2_only(),
        Protocol::Pages => builder.http1_only(),
        Protocol::Http | Protocol::Stream { .. } => builder,
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use http::StatusCode;
    use tokio::net::TcpStream;
    use tokio::time::Instant;
    use tower::service_fn;

    use super::super::http::text;
    use super::*;

    /// An endpoint in paused time: as long as nothing happens, time passes at once.
    struct Waiting {
        address: String,
        stats: Arc<Stats>,
        phase: watch::Sender<ServerPhase>,
    }

    async fn start(protocol: Protocol) -> Waiting {
        let (listening, waiting) = listen(protocol).await;
        listening.spawn(service_fn(|_| ready(Ok::<_, Failure>(text(StatusCode::OK, "")))));
        waiting
    }

    async fn listen(protocol: Protocol) -> (Listening, Waiting) {
        let listener = Listener::tcp("grpc", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let (address, stats) = (listener.to_string(), Arc::new(Stats::default()));
        let (phase, watched) = watch::channel(ServerPhase::Serving);
        let bounds = Bounds { connections: 10, streams: 10, age: Duration::ZERO, grace: Duration::ZERO };
        let (alive, _) = mpsc::channel(1);
        let context = ServerContext { bounds, stats: Arc::clone(&stats), phase: watched, alive };
        (Listening { listener, tls: None, protocol, context }, Waiting { address, stats, phase })
    }

    /// Returns what the server sends until it closes the connection, and the seconds until then.
    async fn closed(mut stream: impl tokio::io::AsyncRead + Unpin) -> (Vec<u8>, u64) {
        let (began, mut sent) = (Instant::now(), Vec::new());
        let read = timeout(Duration::from_secs(3_600), stream.read_to_end(&mut sent)).await;
        let _ = read.expect("the server keeps the connection");
        (sent, began.elapsed().as_secs())
    }

    // G115
    #[tokio::test(start_paused = true)]
    async fn silent_clients_are_closed_after_ten_seconds() {
        for protocol in [Protocol::Http2, Protocol::Http] {
            let endpoint = start(protocol).await;
            let stream = TcpStream::connect(&endpoint.address).await.unwrap();
            assert_eq!(closed(stream).await, (Vec::new(), 10), "{protocol:?}");
            assert_eq!(endpoint.stats.handshakes_late.get(), 1, "{protocol:?}");
        }
    }

    // G115
    #[tokio::test(start_paused = true)]
    async fn slow_clients_are_closed_after_ten_seconds() {
        for protocol in [Protocol::Http2, Protocol::Http] {
            let endpoint = start(protocol).await;
            let (read, mut write) = TcpStream::connect(&endpoint.address).await.unwrap().into_split();
            let closed = tokio::spawn(closed(read));
            for byte in &PREFACE[..5] {
                write.write_all(&[*byte]).await.unwrap();
                sleep(Duration::from_secs(3)).await;
                if closed.is_finished() {
                    break;
                }
            }
            assert_eq!(closed.await.unwrap(), (Vec::new(), 10), "{protocol:?}");
        }
    }

    /// Cause: if the first bytes and the end of their time came together, chance decided. Trigger: the server had no processor for
    /// a second while it closed. Symptom: a request that had arrived was not answered.
    #[tokio::test(start_paused = true)]
    async fn bytes_that_came_in_time_are_read_by_a_late_thread() {
        let endpoint = start(Protocol::Http2).await;
        let mut streams = Vec::new();
        for _ in 0..10 {
            let mut stream = TcpStream::connect(&endpoint.address).await.unwrap();
            stream.write_all(&PREFACE[..7]).await.unwrap();
            streams.push(stream);
        }
        while endpoint.stats.accepted.get() < 10 {
            sleep(Duration::from_millis(1)).await;
        }
        endpoint.phase.send_replace(ServerPhase::Closing);
        sleep(LINGER / 2).await;
        for stream in &streams {
            let rest = [&PREFACE[7..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
            assert_eq!(stream.try_write(&rest).unwrap(), rest.len());
        }
        tokio::time::advance(LINGER).await;
        for mut stream in streams {
            assert!(stream.read_u8().await.is_ok(), "the server closed the connection");
        }
    }

    /// Cause: the runtime learns of a connection later than the system accepts it. Trigger: the server closed in between. Symptom: the
    /// connection was reset, with its requests.
    // G108
    #[tokio::test]
    async fn connections_are_served_that_only_the_system_has_accepted() {
        let endpoint = start(Protocol::Http2).await;
        tokio::task::yield_now().await;
        // From here until the first read, no other task runs.
        let mut stream = std::net::TcpStream::connect(&endpoint.address).unwrap();
        std::io::Write::write_all(&mut stream, &[&PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat())
            .unwrap();
        endpoint.phase.send_replace(ServerPhase::Closing);
        stream.set_nonblocking(true).unwrap();
        let mut stream = TcpStream::from_std(stream).unwrap();
        assert!(stream.read_u8().await.is_ok(), "the server closed the connection");
    }

    /// Cause: listeners and connections learned of the end at the same time. Trigger: a client that had to leave connected again before
    /// the thread of the listener went on. Symptom: its new connection was reset, with its requests.
    // G108
    #[tokio::test]
    async fn connections_learn_of_the_end_after_the_listener_is_closed() {
        let (listening, endpoint) = listen(Protocol::Stream { full: b"" }).await;
        let (address, (again, mut came)) = (endpoint.address.clone(), mpsc::channel(10));
        tokio::spawn(listening.serve_streams(move |_, _, mut phase| {
            let (address, again) = (address.clone(), again.clone());
            async move {
                let _ = phase.wait_for(is_closing).await;
                again.send(std::net::TcpStream::connect(address).is_ok()).await.unwrap();
            }
        }));
        let mut streams = Vec::new();
        for _ in 0..10 {
            streams.push(TcpStream::connect(&endpoint.address).await.unwrap());
        }
        while endpoint.stats.accepted.get() < 10 {
            tokio::task::yield_now().await;
        }
        endpoint.phase.send_replace(ServerPhase::Closing);
        for _ in 0..10 {
            assert_eq!(came.recv().await, Some(false), "the listener still takes connections");
        }
    }

    fn fault() {
        panic!("a fault of the program")
    }

    /// Cause: a connection was counted until its service had returned. Trigger: the code of a program that panics. Symptom: the metrics
    /// showed connections that were closed.
    #[tokio::test]
    async fn connections_whose_service_panics_are_not_open() {
        let (listening, endpoint) = listen(Protocol::Stream { full: b"" }).await;
        tokio::spawn(listening.serve_streams(|_, _, _| async { fault() }));
        // Twice as many as there is room for.
        for _ in 0..20 {
            let mut stream = TcpStream::connect(&endpoint.address).await.unwrap();
            assert!(stream.read_u8().await.is_err());
        }
        assert_eq!((endpoint.stats.accepted.get(), endpoint.stats.open.get()), (20, 0));
    }

    // G115
    #[tokio::test(start_paused = true)]
    async fn peers_that_answer_no_ping_are_closed() {
        let endpoint = start(Protocol::Http2).await;
        let mut stream = TcpStream::connect(&endpoint.address).await.unwrap();
        // The preface, and SETTINGS without any.
        stream.write_all(&[&PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()).await.unwrap();
        let (sent, seconds) = closed(stream).await;
        assert!(sent.windows(9).any(|head| head == [0, 0, 8, 6, 0, 0, 0, 0, 0]), "no PING: {sent:?}");
        assert!((80..=82).contains(&seconds), "{seconds} s");
    }

    #[test]
    fn ages_differ_by_a_tenth() {
        let age = Duration::from_secs(100);
        let ages: Vec<Duration> = (0..200).map(|_| jittered(age, 0.1)).collect();
        assert!(ages.iter().all(|age| (90..=110).contains(&age.as_secs())), "{ages:?}");
        assert!(ages.iter().any(|age| age.as_secs() < 97) && ages.iter().any(|age| age.as_secs() > 103));
    }
}
