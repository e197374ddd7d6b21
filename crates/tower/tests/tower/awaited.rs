//! `RateLimitLayer::awaited`, for limits whose check is a future: its behaviour is the same as with a local limit.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tollgate::{Compact, Decision, Gcra, ManualClock, Quota, RateLimiter, Timestamp};
use tollgate_tower::{AwaitedLimit, ClientIp, PeerAddr, RateLimitLayer, RequestLimit};
use tower::{Layer, Service, ServiceExt};

const QUOTA: Quota = Quota::per_hour(3);

/// Stands for a limiter on another machine: its checks are futures.
struct Far {
    limiter: RateLimiter<Compact<Gcra>, ManualClock>,
    asked: AtomicU64,
}

impl AwaitedLimit<IpAddr> for Far {
    type Ruling = Decision;

    async fn check(&self, key: &IpAddr, cost: u64) -> Decision {
        tokio::task::yield_now().await;
        self.asked.fetch_add(1, Ordering::SeqCst);
        RequestLimit::check(&self.limiter, key, cost)
    }

    async fn refund(&self, key: &IpAddr, ruling: &Decision) {
        tokio::task::yield_now().await;
        RequestLimit::refund(&self.limiter, key, ruling);
    }
}

fn far() -> Arc<Far> {
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    let limiter =
        RateLimiter::builder(Gcra::new(QUOTA)).clock(clock).compact().expect("the configuration is valid");
    Arc::new(Far { limiter, asked: AtomicU64::new(0) })
}

/// Answers with the status that the request asks for. Panics if it is called without being ready.
struct Inner {
    ready: bool,
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<Request<()>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "poll_ready must return Ready before each call");
        let status =
            request.headers().get("x-status").map_or(200, |status| status.to_str().unwrap().parse().unwrap());
        let mut response = Response::new(Full::from("inner"));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        std::future::ready(Ok(response))
    }
}

fn request(status: &str) -> Request<()> {
    let peer = PeerAddr("192.0.2.1:1".parse().unwrap());
    Request::builder().extension(peer).header("x-status", status).body(()).unwrap()
}

#[tokio::test]
async fn fourth_request_gets_retry_after() {
    let layer =
        RateLimitLayer::new(far(), ClientIp::peer()).policy("far", QUOTA).fields_on_allowed(true).awaited();
    let service = layer.layer(Inner { ready: false });
    for left in ["2", "1", "0"] {
        let response = service.clone().oneshot(request("200")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let field = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        assert!(field.starts_with(&format!("\"far\";r={left}")), "{field}");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "inner");
    }
    let response = service.oneshot(request("200")).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "1200");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"{") && String::from_utf8_lossy(&body).contains("far"));
}

#[tokio::test]
async fn charges_are_refunded_by_status() {
    let limit = far();
    let layer = RateLimitLayer::new(Arc::clone(&limit), ClientIp::peer())
        .refund(|status| status.is_server_error())
        .awaited();
    let service = layer.layer(Inner { ready: false });
    for _ in 0..10 {
        let response = service.clone().oneshot(request("503")).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    for expected in [200, 200, 200, 429] {
        let response = service.clone().oneshot(request("200")).await.unwrap();
        assert_eq!(response.status().as_u16(), expected);
    }
}

#[tokio::test]
async fn exempt_and_keyless_requests_skip_the_check() {
    let limit = far();
    let layer = RateLimitLayer::new(Arc::clone(&limit), ClientIp::peer())
        .exempt(|head| head.path() == "/health")
        .cost(|head| u64::from(head.path() != "/free"))
        .awaited();
    let service = layer.layer(Inner { ready: false });
    for (path, status) in [("/health", 200), ("/free", 200), ("/", 403)] {
        // The request has no peer address, so it has no key.
        let request = Request::builder().uri(path).body(()).unwrap();
        assert_eq!(service.clone().oneshot(request).await.unwrap().status().as_u16(), status, "{path}");
    }
    assert_eq!(limit.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn cancelled_awaited_check_harms_no_request() {
    let limit = far();
    let layer = RateLimitLayer::new(Arc::clone(&limit), ClientIp::peer()).awaited();
    let mut service = layer.layer(Inner { ready: false });
    service.ready().await.unwrap();
    drop(service.call(request("200")));
    let gone =
        tokio::time::timeout(Duration::ZERO, service.ready().await.unwrap().call(request("200"))).await;
    drop(gone);
    let response = service.ready().await.unwrap().call(request("200")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}
