//! How requests end in real servers: in progress until the end of the body, and settled by it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use http::uri::PathAndQuery;
use http::{HeaderName, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollgate::holds::{Holding, InProgress};
use tollgate::{Gcra, Keyed, ManualClock, Quota, RateLimiter};
use tollgate_tower::{Global, Holds, RateLimitLayer};
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server as GrpcServer};
use tonic::{Code, Status};
use tower::{Layer, Service, service_fn};

use super::echo::Text;
use super::server::{clients, get};

type Units = RateLimiter<Holding<Keyed<(), Gcra>>, ManualClock>;

const ESTIMATE: u64 = 100;
const FIELD: HeaderName = HeaderName::from_static("x-units-used");

/// 1,000 units for all requests, of which each holds [`ESTIMATE`].
fn units() -> Arc<Units> {
    let limiter = RateLimiter::builder(Gcra::new(Quota::per_hour(1_000))).clock(ManualClock::default());
    Arc::new(limiter.keyed().with_holds(8).expect("GCRA can refund"))
}

/// Settles by the field or trailer, or otherwise by the length of the body.
fn holding(units: &Arc<Units>) -> RateLimitLayer<Holds<Keyed<(), Gcra>, ManualClock>, Global> {
    RateLimitLayer::new(Holds::new(Arc::clone(units), Duration::from_secs(60)), Global)
        .cost(|_| ESTIMATE)
        .settle_by_header(FIELD)
        .settle_by_body(|| {
            let mut length = 0;
            move |data| {
                length += data.len() as u64;
                Some(length)
            }
        })
}

fn used(units: &Units) -> u64 {
    1_000 - units.peek(&()).remaining()
}

/// Waits until the server has noticed.
async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("not after ten seconds: {what}");
}

/// Serves HTTP/1.1 and HTTP/2, with upgrades, until the result is dropped.
async fn serve<S, B>(service: S) -> (SocketAddr, JoinSet<()>)
where
    S: Service<Request<hyper::body::Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: http_body::Body<Error = Infallible> + Send + 'static,
    B::Data: Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("the system assigns a free port");
    let address = listener.local_addr().expect("a listener has an address");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            connections.spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                server.serve_connection_with_upgrades(TokioIo::new(stream), service).await.ok();
            });
        }
    });
    (address, tasks)
}

/// A body that sends one text and then never ends.
fn endless() -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static {
    let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"first")))]);
    StreamBody::new(first.chain(stream::pending()))
}

// G118
#[tokio::test]
async fn head_ends_at_once_and_get_with_its_connection() {
    let limit = InProgress::new(4).clock(ManualClock::default());
    let service = service_fn(async |_: Request<hyper::body::Incoming>| Ok(Response::new(endless())));
    let (address, _server) = serve(RateLimitLayer::new(limit.clone(), Global).layer(service)).await;
    for client in clients() {
        let mut head = get(&format!("http://{address}/"));
        *head.method_mut() = Method::HEAD;
        let response = client.request(head).await.expect("the server answers");
        assert_eq!(response.status(), StatusCode::OK);
        eventually("HEAD has no body", || limit.is_empty()).await;

        let mut streamed = client.request(get(&format!("http://{address}/"))).await.expect("an answer");
        streamed.frame().await.expect("a frame").expect("no error");
        assert_eq!(limit.len(), 1);
        drop(streamed); // closes the connection of HTTP/1.1, and resets the stream of HTTP/2
        eventually("the client disconnected", || limit.is_empty()).await;
    }
}

/// The server does not ask such a body for its end: it knows the length.
// G134
#[tokio::test]
async fn bodies_of_known_length_are_counted() {
    let units = units();
    let service = service_fn(async |_: Request<hyper::body::Incoming>| {
        Ok(Response::new(Full::new(Bytes::from_static(b"twelve bytes"))))
    });
    let (address, _server) = serve(holding(&units).layer(service)).await;
    for (client, expected) in clients().into_iter().zip([12, 24]) {
        let response = client.request(get(&format!("http://{address}/"))).await.expect("the server answers");
        response.into_body().collect().await.expect("the body can be read");
        eventually("the body was sent", || units.holds() == 0).await;
        assert_eq!(used(&units), expected);
    }
}

/// Sends what the client sends back to it.
async fn echo_upgraded(request: Request<hyper::body::Incoming>) {
    let upgraded = hyper::upgrade::on(request).await.expect("the connection is upgraded");
    let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
    tokio::io::copy(&mut reader, &mut writer).await.ok();
}

fn switching() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, http::HeaderValue::from_static("echo"));
    headers.insert(header::CONNECTION, http::HeaderValue::from_static("upgrade"));
    response
}

/// Upgrades a connection, and asserts that it works.
async fn upgraded(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("the server accepts the connection");
    let request = b"GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(request).await.expect("the server reads");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("the server answers"));
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", answer.escape_ascii());
    echoes(&mut stream).await;
    stream
}

async fn echoes(stream: &mut TcpStream) {
    stream.write_all(b"ping").await.expect("the server reads");
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).await.expect("the server echoes");
    assert_eq!(&echo, b"ping");
}

// G118
#[tokio::test]
async fn upgraded_connection_is_not_in_progress() {
    let (limit, units) = (InProgress::new(1).clock(ManualClock::default()), units());
    let service = service_fn(async |request: Request<hyper::body::Incoming>| {
        tokio::spawn(echo_upgraded(request));
        Ok(switching())
    });
    let layered = RateLimitLayer::new(limit.clone(), Global).layer(holding(&units).layer(service));
    let (address, _server) = serve(layered).await;
    let mut stream = upgraded(address).await;
    eventually("the response was sent", || limit.is_empty() && units.holds() == 0).await;
    // Its cost is not known.
    assert_eq!(used(&units), ESTIMATE);
    echoes(&mut stream).await;
}

#[tokio::test]
async fn handler_keeps_a_permit_for_the_upgraded_connection() {
    let limit = InProgress::new(1).clock(ManualClock::default());
    let permits = limit.clone();
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let entered = permits.try_enter(&(), 1);
        std::future::ready(Ok(match entered {
            Ok(permit) => {
                tokio::spawn(async move {
                    echo_upgraded(request).await;
                    drop(permit);
                });
                switching()
            }
            Err(_) => {
                let mut refused = Response::new(Full::default());
                *refused.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                refused
            }
        }))
    });
    let layer = RateLimitLayer::new(limit.clone(), Global).exempt(|head| head.path() == "/socket");
    let (address, _server) = serve(layer.layer(service)).await;
    let mut stream = upgraded(address).await;
    echoes(&mut stream).await;
    assert_eq!(limit.len(), 1);
    let refused = clients()[0].request(get(&format!("http://{address}/socket"))).await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(stream);
    eventually("the connection is closed", || limit.is_empty()).await;
}

const METHOD: PathAndQuery = PathAndQuery::from_static("/example.Stream/List");

type Texts = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;

/// A gRPC service whose method answers with a stream of texts.
#[derive(Clone, Copy, Debug)]
struct StreamServer;

impl tonic::server::NamedService for StreamServer {
    const NAME: &'static str = "example.Stream";
}

fn failed(message: &str) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("x-units-used", "9".parse().expect("ASCII"));
    Status::with_metadata(Code::Aborted, message, metadata)
}

impl Service<http::Request<tonic::body::Body>> for StreamServer {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async move {
            let list = service_fn(async |request: tonic::Request<String>| {
                let texts = stream::iter([Ok("one".to_owned()), Ok("two".to_owned())]);
                let texts: Texts = match request.into_inner().as_str() {
                    "refuse" => return Err(failed("refused")),
                    "fail" => texts.chain(stream::iter([Err(failed("failed"))])).boxed(),
                    "endless" => texts.chain(stream::pending()).boxed(),
                    _ => texts.boxed(),
                };
                Ok(tonic::Response::new(texts))
            });
            Ok(tonic::server::Grpc::new(Text).server_streaming(list, request).await)
        })
    }
}

async fn list(channel: &Channel, what: &str) -> Result<tonic::Streaming<String>, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.expect("the server is there");
    let answer = client.server_streaming(tonic::Request::new(what.to_owned()), METHOD, Text).await?;
    Ok(answer.into_inner())
}

// G118, G134
#[tokio::test]
async fn tonic_streams_end_with_their_trailers() {
    let (limit, units) = (InProgress::new(1).clock(ManualClock::default()), units());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("the system assigns a free port");
    let address = listener.local_addr().expect("a listener has an address");
    let served = GrpcServer::builder()
        .layer(RateLimitLayer::new(limit.clone(), Global))
        .layer(holding(&units))
        .add_service(StreamServer);
    let server = tokio::spawn(served.serve_with_incoming(TcpIncoming::from(listener)));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a valid address");
    let channel = endpoint.connect().await.expect("the server accepts the connection");
    let ended = async |what: &str, cost: u64| {
        eventually(what, || limit.is_empty() && units.holds() == 0).await;
        assert_eq!(used(&units), cost, "{what}");
    };

    // The stream ends well. Its messages are counted, each with a prefix of five bytes.
    let mut texts = list(&channel, "all").await.expect("admitted");
    assert_eq!(texts.message().await.expect("a message").as_deref(), Some("one"));
    assert_eq!(texts.message().await.expect("a message").as_deref(), Some("two"));
    assert!(texts.message().await.expect("the end").is_none());
    ended("ended", 16).await;

    // The stream ends with an error, and the trailers tell the cost.
    let mut texts = list(&channel, "fail").await.expect("admitted");
    while texts.message().await.is_ok_and(|text| text.is_some()) {}
    ended("failed", 16 + 9).await;

    // An error without a message is a response with only a head, which tells the cost.
    assert_eq!(list(&channel, "refuse").await.expect_err("an error").code(), Code::Aborted);
    ended("refused", 16 + 9 + 9).await;

    // While a stream runs, another one is denied. The client cuts the stream off, and the estimate is charged.
    let mut texts = list(&channel, "endless").await.expect("admitted");
    assert_eq!(texts.message().await.expect("a message").as_deref(), Some("one"));
    let denied = list(&channel, "all").await.expect_err("one stream at a time");
    assert_eq!((denied.code(), limit.len(), units.holds()), (Code::ResourceExhausted, 1, 1));
    assert_eq!(used(&units), 34 + ESTIMATE);
    drop(texts);
    ended("cut off", 34 + ESTIMATE).await;
    drop(list(&channel, "all").await.expect("admitted"));
    server.abort();
}
