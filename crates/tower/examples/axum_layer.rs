//! An axum server with limits for each client: `cargo run -p tollgate-tower-examples --example axum_layer`.
//!
//! The server listens on port 3000 of this machine. Run `curl -i http://127.0.0.1:3000/` and `/search` a few times.
//! With `-- --once`, the server takes a free port, sends some requests to itself, prints the answers (the fourth
//! search is denied) and ends.

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Router, serve};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tollgate::{Quota, RateLimiter};
use tollgate_tower::{ClientIp, RateLimitLayer};

const PER_CLIENT: Quota = Quota::per_second(100).burst(200);
const SEARCHES: Quota = Quota::per_minute(3);

fn app() -> Router {
    // Clients connect to this server directly. Behind a proxy, use `ClientIp::x_forwarded_for(Proxies::hops(1))`,
    // which needs no adapter.
    let by_client =
        ClientIp::peer().peer_from(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip()));

    let everything = RateLimitLayer::new(RateLimiter::new(PER_CLIENT), by_client.clone())
        .policy("per-client", PER_CLIENT)
        .exempt(|head| head.path() == "/health");
    let searches = RateLimitLayer::new(RateLimiter::new(SEARCHES), by_client)
        .policy("searches", SEARCHES)
        .fields_on_allowed(true)
        .refund(|status| status.is_server_error());

    Router::new()
        .route("/search", get(async || "found\n").layer(searches))
        .route("/", get(async || "hello\n"))
        .route("/health", get(async || "ok\n"))
        .layer(everything)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The connection's address comes with each request.
    let service = app().into_make_service_with_connect_info::<SocketAddr>();
    if !std::env::args().any(|argument| argument == "--once") {
        let listener = TcpListener::bind("127.0.0.1:3000").await?;
        println!("http://{}", listener.local_addr()?);
        return Ok(serve(listener, service).await?);
    }

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = serve(listener, service).with_graceful_shutdown(async {
        stopped.await.ok();
    });
    let server = tokio::spawn(server.into_future());

    let client = Client::builder(TokioExecutor::new()).build_http();
    for (call, path) in ["/", "/search", "/search", "/search", "/search", "/health"].into_iter().enumerate() {
        let request = Request::get(format!("http://{address}{path}")).body(Empty::<bytes::Bytes>::new())?;
        let response = client.request(request).await?;
        println!("GET {path}: {}", response.status());
        assert_eq!(response.status().is_success(), call != 4);
        for (name, value) in response.headers() {
            println!("    {name}: {}", value.to_str()?);
        }
        print!("{}", String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()));
        println!();
    }

    drop(client);
    let _ = stop.send(());
    server.await??;
    Ok(())
}
