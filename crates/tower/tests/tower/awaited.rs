//! `RateLimitLayer::awaited`, for limits whose check is a future: its behaviour is the same as with a local limit.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tollgate::Decision;
use tollgate_tower::{AwaitedLimit, ClientIp, RateLimitLayer, RequestLimit};
use tower::{Layer, Service, ServiceExt};

use crate::setup::{INNER, Limiter, QUOTA, compact, from, manual};

/// Stands for a limiter on another machine: its checks are futures.
struct Far {
    limiter: Limiter,
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
    Arc::new(Far { limiter: compact(QUOTA, &manual()), asked: AtomicU64::new(0) })
}

#[tokio::test]
async fn fourth_request_gets_retry_after() {
    let layer =
        RateLimitLayer::new(far(), ClientIp::peer()).policy("far", QUOTA).fields_on_allowed(true).awaited();
    let service = layer.layer(INNER);
    for left in ["2", "1", "0"] {
        let response = service.clone().oneshot(from("192.0.2.1")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let field = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        assert!(field.starts_with(&format!("\"far\";r={left}")), "{field}");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "inner");
    }
    let response = service.oneshot(from("192.0.2.1")).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "1200");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"{") && String::from_utf8_lossy(&body).contains("far"));
}

#[tokio::test]
async fn exempt_and_keyless_requests_skip_the_check() {
    let limit = far();
    let layer = RateLimitLayer::new(Arc::clone(&limit), ClientIp::peer())
        .exempt(|head| head.path() == "/health")
        .cost(|head| u64::from(head.path() != "/free"))
        .awaited();
    let service = layer.layer(INNER);
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
    let mut service = layer.layer(INNER);
    service.ready().await.unwrap();
    drop(service.call(from("192.0.2.1")));
    let gone =
        tokio::time::timeout(Duration::ZERO, service.ready().await.unwrap().call(from("192.0.2.1"))).await;
    drop(gone);
    let response = service.ready().await.unwrap().call(from("192.0.2.1")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}
