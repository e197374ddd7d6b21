//! A plain hyper server with a limit for each client: `cargo run -p tollgate-tower-examples --example hyper`.
//!
//! hyper has no layers of its own. The program adapts the service that tower builds, and adds the peer's address to
//! each request. It serves on a free port of this machine and sends five requests to itself. Three are answered and
//! two are denied; then it ends.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tollgate::{Quota, RateLimiter};
use tollgate_tower::{ClientIp, PeerAddr, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

const PER_CLIENT: Quota = Quota::per_hour(3);

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layer = RateLimitLayer::new(RateLimiter::new(PER_CLIENT), ClientIp::peer())
        .policy("per-client", PER_CLIENT)
        .fields_on_allowed(true);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let limited = layer.layer(service_fn(hello));
            let service = limited.map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(PeerAddr(peer));
                request
            });
            tokio::spawn(async move {
                let connection = auto::Builder::new(TokioExecutor::new());
                let io = TokioIo::new(stream);
                if let Err(error) = connection.serve_connection(io, TowerToHyperService::new(service)).await {
                    eprintln!("connection from {peer}: {error}");
                }
            });
        }
    });

    let client = Client::builder(TokioExecutor::new()).build_http();
    for call in 0..5 {
        let request = Request::get(format!("http://{address}/")).body(Empty::<Bytes>::new())?;
        let response = client.request(request).await?;
        assert_eq!(response.status().is_success(), call < 3);
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let (left, wait) = (header("ratelimit").unwrap_or("-"), header("retry-after").unwrap_or("-"));
        println!("{}: RateLimit {left}, Retry-After {wait}", response.status());
        let body = response.into_body().collect().await?.to_bytes();
        println!("{}", String::from_utf8_lossy(&body).trim_end());
    }
    server.abort();
    Ok(())
}
