//! The layer in real servers, with real clients, over HTTP/1.1 and HTTP/2.
//!
//! The limiters' clocks do not advance, so the number of admitted requests is exact on any machine.

#[path = "../../../examples/tonic/echo.rs"]
mod echo;
mod endings;
mod server;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::{Extensions, Method, Request, StatusCode};
use http_body_util::BodyExt;
use server::{Server, client, clients, get as request, raw};
use tollgate::{Gcra, Keyed, ManualClock, Quota, RateLimiter, Timestamp};
use tollgate_tower::{ClientIp, Global, IpNet, Proxies, RateLimitLayer};
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Endpoint, Server as GrpcServer};

type Limiter = RateLimiter<Keyed<IpAddr, Gcra>, ManualClock>;

fn limiter(quota: Quota) -> Arc<Limiter> {
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    Arc::new(RateLimiter::builder(Gcra::new(quota)).clock(clock).keyed())
}

/// Reads the peer's address from axum's own extension.
fn connected(extensions: &Extensions) -> Option<IpAddr> {
    Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip())
}

fn by_peer() -> ClientIp {
    ClientIp::peer().peer_from(connected)
}

fn loopback() -> Proxies {
    let networks: [IpNet; 1] = ["127.0.0.0/8".parse().expect("a valid network")];
    Proxies::networks(networks)
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

fn header<'r, B>(response: &'r http::Response<B>, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().expect("ASCII"))
}

// G72
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_clients_get_exactly_the_limit() {
    const LIMIT: u64 = 100;
    let served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&served);
    let handler = async move || {
        counter.fetch_add(1, Ordering::Relaxed);
        "hello"
    };
    let layer = RateLimitLayer::new(limiter(Quota::per_hour(LIMIT)), by_peer());
    let server = Server::start(Router::new().route("/", get(handler)).layer(layer)).await;

    let mut tasks = Vec::new();
    for client in clients().into_iter().cycle().take(8) {
        let uri = server.uri("/");
        tasks.push(tokio::spawn(async move {
            let mut statuses = [0; 2];
            for _ in 0..50 {
                let response = client.request(request(&uri)).await.expect("the server answers");
                match response.status() {
                    StatusCode::OK => statuses[0] += 1,
                    StatusCode::TOO_MANY_REQUESTS => statuses[1] += 1,
                    other => panic!("{other}"),
                }
                response.into_body().collect().await.expect("the body can be read");
            }
            statuses
        }));
    }
    let mut total = [0; 2];
    for task in tasks {
        let [admitted, refused] = task.await.expect("the client task does not panic");
        total = [total[0] + admitted, total[1] + refused];
    }
    assert_eq!(total, [100, 300]);
    assert_eq!(served.load(Ordering::Relaxed), 100, "a denied request reached the handler");
    server.stop().await;
}

#[tokio::test]
async fn denial_is_equal_over_http1_and_http2() {
    let quota = Quota::per_minute(1);
    for client in clients() {
        let layer = RateLimitLayer::new(limiter(quota), by_peer()).policy("per-client", quota);
        let server = Server::start(hello().layer(layer.fields_on_allowed(true))).await;
        let admitted = client.request(request(&server.uri("/"))).await.expect("the server answers");
        assert_eq!(header(&admitted, "ratelimit"), "\"per-client\";r=0;t=60");
        assert_eq!((header(&admitted, "retry-after"), admitted.status().as_u16()), ("", 200));
        admitted.into_body().collect().await.expect("the body can be read");

        let refused = client.request(request(&server.uri("/"))).await.expect("the server answers");
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(header(&refused, "ratelimit-policy"), "\"per-client\";q=1;w=60");
        assert_eq!(header(&refused, "ratelimit"), "\"per-client\";r=0;t=60");
        assert_eq!(header(&refused, "retry-after"), "60");
        assert_eq!(header(&refused, "content-type"), "application/problem+json");
        assert_eq!(header(&refused, "cache-control"), "no-store");
        let length = header(&refused, "content-length").to_owned();
        let body = refused.into_body().collect().await.expect("the body can be read").to_bytes();
        assert_eq!(length, body.len().to_string());
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(
            (&problem["status"], &problem["violated-policies"][0]),
            (&429.into(), &"per-client".into())
        );

        let mut head = request(&server.uri("/"));
        *head.method_mut() = Method::HEAD;
        let refused = client.request(head).await.expect("the server answers");
        assert_eq!((refused.status().as_u16(), header(&refused, "content-length")), (429, length.as_str()));
        assert!(refused.into_body().collect().await.expect("the body can be read").to_bytes().is_empty());
        drop(client);
        server.stop().await;
    }
}

/// A client that writes false addresses to the left of the proxy's entry still counts as one client.
// G71
#[tokio::test]
async fn spoofed_addresses_share_the_client_limit() {
    let limiter = limiter(Quota::per_hour(3));
    let by_proxy = ClientIp::x_forwarded_for(loopback()).peer_from(connected);
    let server = Server::start(hello().layer(RateLimitLayer::new(limiter, by_proxy))).await;
    let mut statuses = Vec::new();
    for spoofed in 0..6 {
        let lines = format!("X-Forwarded-For: 6.6.6.{spoofed}, 203.0.113.7\r\n");
        statuses.push(raw(&server, lines.as_bytes()).await);
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
    assert_eq!(raw(&server, b"X-Forwarded-For: 203.0.113.7, 203.0.113.8\r\n").await, 200);
    server.stop().await;
}

/// Header fields that no proxy would write. The server answers every request, and no request is counted for another
/// client.
// G71
#[tokio::test]
async fn hostile_headers_are_answered() {
    let limiter = limiter(Quota::per_hour(1));
    let victim = IpAddr::from([203, 0, 113, 7]);
    let layer = |client: ClientIp| RateLimitLayer::new(Arc::clone(&limiter), client.peer_from(connected));
    let app = Router::new()
        .route("/", get(async || "hello").layer(layer(ClientIp::x_forwarded_for(loopback()))))
        .route("/f", get(async || "hello").layer(layer(ClientIp::forwarded(loopback()))));
    let server = Server::start(app).await;

    let huge =
        |byte: u8| [b"X-Forwarded-For: 203.0.113.7,".as_slice(), &vec![byte; 60_000], b"\r\n"].concat();
    let forwarded = [b"Forwarded: for=203.0.113.7, for=\"".as_slice(), &[b'\\'; 30_000], b"\r\n"].concat();
    let quotes = [b"Forwarded: for=203.0.113.7,".as_slice(), &b"\\\"".repeat(15_000), b"\r\n"].concat();
    let chain = format!("X-Forwarded-For: 203.0.113.7{}\r\n", ", 127.0.0.1".repeat(5_000));
    // None of these fields identifies the client.
    let unknown = [
        huge(b','),
        huge(b'a'),
        huge(b' '),
        huge(b'1'),
        huge(0xff),
        forwarded,
        quotes,
        chain.into_bytes(),
        b"X-Forwarded-For: 203.0.113.7, \xff\xfe\r\n".to_vec(),
        b"X-Forwarded-For: 203.0.113.7, unknown\r\n".to_vec(),
        b"X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-For: \r\n".to_vec(),
        b"X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-For: _hidden, 127.0.0.2\r\n".to_vec(),
        b"Forwarded: for=203.0.113.7, for=\"_hidden\";host=\"a, for=203.0.113.7\"\r\n".to_vec(),
        b"Forwarded: for=203.0.113.7, for=203.0.113.7;for=203.0.113.7\r\n".to_vec(),
    ];
    for lines in unknown {
        let path = if lines.starts_with(b"F") { "/f" } else { "/" };
        let status = server::raw_to(&server, path, &lines).await;
        let start = String::from_utf8_lossy(&lines[..lines.len().min(60)]).into_owned();
        // The server trims trailing blanks of a field, so the text of blanks ends with its comma.
        assert_eq!(status, 403, "{start}");
        assert_eq!(limiter.peek(&victim).remaining(), 1, "{start}");
    }
    // A field in many lines: the last lines count.
    let lines = "X-Forwarded-For: 6.6.6.6\r\n".repeat(80) + "X-Forwarded-For: 203.0.113.7\r\n";
    assert_eq!(raw(&server, lines.as_bytes()).await, 200);
    assert_eq!(limiter.peek(&victim).remaining(), 0);
    assert_eq!(server::raw_to(&server, "/f", b"Forwarded: for=\", for=\"203.0.113.7\"\r\n").await, 429);
    server.stop().await;
}

#[tokio::test]
async fn tonic_client_reads_denial() {
    let quota = Quota::per_hour(2);
    let by_client = ClientIp::peer()
        .peer_from(|extensions| Some(extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()));
    let layer = RateLimitLayer::new(limiter(quota), by_client).policy("calls", quota);
    let listener =
        tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the system assigns a free port");
    let address = listener.local_addr().expect("a listener has an address");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = GrpcServer::builder().layer(layer.clone()).add_service(echo::EchoServer);
    let server = tokio::spawn(served.serve_with_incoming_shutdown(TcpIncoming::from(listener), async {
        stopped.await.ok();
    }));

    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a valid address");
    let mut client =
        echo::EchoClient::new(endpoint.connect().await.expect("the server accepts the connection"));
    // The answer includes the trailers, where one reports an error.
    assert_eq!(client.say("hello").await.map_err(|status| status.code()), Ok("hello".to_owned()));
    assert_eq!(client.say("").await.map_err(|status| status.code()), Err(tonic::Code::InvalidArgument));
    let refused = client.say("hello").await.expect_err("the third call is denied");
    assert_eq!((refused.code(), refused.message()), (tonic::Code::ResourceExhausted, "rate limit exceeded"));
    assert_eq!(refused.metadata().get("retry-after").map(|wait| wait.as_bytes()), Some(&b"1800"[..]));
    assert_eq!(
        refused.metadata().get("ratelimit").map(|field| field.as_bytes()),
        Some(&b"\"calls\";r=0;t=1800"[..])
    );
    drop(client);
    stop.send(()).expect("the server is running");
    server.await.expect("the server task does not panic").expect("the server ends without an error");
}

/// A streamed body stays streamed: the layer does not buffer bodies.
#[tokio::test]
async fn streamed_body_is_not_buffered() {
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<bytes::Bytes, std::io::Error>>(1);
    let receiver = Arc::new(tokio::sync::Mutex::new(Some(receiver)));
    let handler = async move || {
        let receiver = receiver.lock().await.take().expect("only one request asks");
        axum::body::Body::from_stream(futures_util::stream::unfold(receiver, async |mut receiver| {
            let chunk = receiver.recv().await?;
            Some((chunk, receiver))
        }))
    };
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    let one = RateLimiter::builder(Gcra::new(Quota::per_hour(1))).clock(clock).direct();
    let app = Router::new().route("/", get(handler)).layer(RateLimitLayer::new(one, Global));
    let server = Server::start(app).await;
    let client = client(false);
    let mut response = client.request(request(&server.uri("/"))).await.expect("the server answers");
    for text in ["one", "two"] {
        sender.send(Ok(text.into())).await.expect("the other side reads");
        let frame =
            response.frame().await.expect("the body has another frame").expect("the frame has no error");
        assert_eq!(frame.into_data().expect("data"), text);
    }
    drop(sender);
    assert!(response.frame().await.is_none());
    let refused: Request<_> = request(&server.uri("/"));
    assert_eq!(client.request(refused).await.expect("the server answers").status(), 429);
    drop((client, response));
    server.stop().await;
}
