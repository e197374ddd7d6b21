//! The tower layer with limits that several servers share.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Request, Response};
use http_body_util::BodyExt;
use tollgate::{Block, ManualClock, Quota, Timestamp};
use tollgate_http::Policy;
use tollgate_redis::{Client, InProcess, Limit, OnFailure};
use tollgate_rules::{Config, Rules};
use tollgate_tower::{
    AwaitedLimit, ClientIp, Global, Header, KeyExtractor as _, PeerAddr, RateLimitLayer, Route,
};
use tower::{Layer, Service, ServiceExt};

use crate::setup::{INNER, QUOTA};

const BURST: Quota = Quota::per_day(8);

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(3_600 * 1_000))
}

fn request(path: &str, status: &str) -> Request<()> {
    let peer = PeerAddr("192.0.2.1:1".parse().unwrap());
    Request::builder().uri(path).extension(peer).header("x-status", status).body(()).unwrap()
}

async fn status<S, R>(service: &S, request: Request<()>) -> (u16, Response<R>)
where
    S: Service<Request<()>, Response = Response<R>, Error = &'static str> + Clone,
{
    let response = service.clone().oneshot(request).await.unwrap();
    (response.status().as_u16(), response)
}

/// Returns a client whose server does not exist.
fn nowhere() -> Client {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the system has a free port");
    let port = listener.local_addr().expect("a bound listener has an address").port();
    Client::open(&format!("redis://127.0.0.1:{port}/")).expect("the address is valid")
}

#[tokio::test]
async fn two_services_share_limit_and_report_remaining() {
    let clock = clock();
    let server = InProcess::new(clock.clone());
    let service = || {
        let limiter = server.limiter("api", Limit::gcra(QUOTA)).atomic().unwrap();
        let layer =
            RateLimitLayer::new(limiter, ClientIp::peer()).policy("api", QUOTA).fields_on_allowed(true);
        layer.awaited().layer(INNER)
    };
    let (one, other) = (service(), service());
    for (turn, left) in ["2", "1", "0"].into_iter().enumerate() {
        let (status, response) = status(if turn == 1 { &other } else { &one }, request("/", "200")).await;
        assert_eq!(status, 200);
        let field = response.headers()["ratelimit"].to_str().unwrap();
        assert!(field.starts_with(&format!("\"api\";r={left}")), "{field}");
    }
    let (refused, response) = status(&other, request("/", "200")).await;
    assert_eq!(refused, 429);
    assert_eq!(response.headers()["retry-after"], "1200");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("api"));
    clock.advance(Duration::from_secs(1_200));
    assert_eq!(status(&one, request("/", "200")).await.0, 200);
    assert_eq!(status(&other, request("/", "200")).await.0, 429);
}

#[tokio::test]
async fn failed_requests_are_refunded_on_server() {
    let server = InProcess::new(clock());
    let limiter = server.limiter("api", Limit::fixed_window(QUOTA)).atomic().unwrap();
    let layer = RateLimitLayer::new(limiter, ClientIp::peer()).refund(|status| status.is_server_error());
    let service = layer.awaited().layer(INNER);
    for _ in 0..10 {
        assert_eq!(status(&service, request("/", "503")).await.0, 503);
    }
    for expected in [200, 200, 200, 429] {
        assert_eq!(status(&service, request("/", "200")).await.0, expected);
    }
}

/// If the policy decides without a count, a denial has a `Retry-After` field, and no response has a `RateLimit` field.
#[tokio::test]
async fn outage_omits_ratelimit_field() {
    for (on_failure, expected, has_figures) in [
        (OnFailure::Open, 200, false),
        (OnFailure::Closed, 429, false),
        (OnFailure::Local { processes: 1 }, 200, true),
    ] {
        let builder = nowhere().limiter("api", Limit::gcra(QUOTA)).on_failure(on_failure);
        let limiter = builder.timeout(Duration::from_secs(5)).atomic().unwrap();
        let layer =
            RateLimitLayer::new(limiter, ClientIp::peer()).policy("api", QUOTA).fields_on_allowed(true);
        let (status, response) = status(&layer.awaited().layer(INNER), request("/", "200")).await;
        assert_eq!(status, expected);
        assert_eq!(response.headers().contains_key("ratelimit"), has_figures, "{on_failure:?}");
        assert_eq!(response.headers().contains_key("retry-after"), status == 429);
    }
}

#[tokio::test]
async fn every_key_extractor_works_with_shared_limits() {
    let server = InProcess::new(clock());
    let limiter = |name: &str| server.limiter(name, Limit::gcra(QUOTA)).atomic().unwrap();
    let token = Header::new(HeaderName::from_static("x-status"));
    let by_token = RateLimitLayer::new(limiter("token"), token).awaited().layer(INNER);
    let by_route = RateLimitLayer::new(limiter("route"), (ClientIp::peer(), Route::new()));
    let by_route = by_route.awaited().layer(INNER);
    let all = RateLimitLayer::new(limiter("all"), Global).awaited().layer(INNER);
    for (value, expected) in [("200", 3), ("201", 3)] {
        let mut admitted = 0;
        for _ in 0..9 {
            admitted += u32::from(status(&by_token, request("/", value)).await.0 != 429);
        }
        assert_eq!(admitted, expected);
    }
    for path in ["/a", "/b"] {
        for expected in [200, 200, 200, 429] {
            assert_eq!(status(&by_route, request(path, "200")).await.0, expected);
        }
    }
    for expected in [200, 200, 200, 429] {
        assert_eq!(status(&all, request("/", "200")).await.0, expected);
    }
}

const LIMITS: &str = "
domain: shop
tollgate: { store: redis, mode: atomic, timeout: 5s }
descriptors:
  - key: remote_address
    rate_limit: { unit: hour, requests_per_unit: 3, name: per-address }
  - key: path
    rate_limit: { unit: hour, requests_per_unit: 2, name: per-path, store: keyed }
";

#[tokio::test]
async fn layer_awaits_shared_rules() {
    let clock = clock();
    let server = InProcess::new(clock.clone());
    let service = || {
        let config = Config::from_yaml("limits.yaml", LIMITS).unwrap();
        let rules = Rules::builder().clock(clock.clone()).shared(server.clone()).load([config]).unwrap();
        let client = ClientIp::peer();
        let layer = RateLimitLayer::rules(Arc::new(rules), "shop", move |head, descriptors| {
            descriptors.begin().entry("remote_address", client.key(head)?);
            descriptors.begin().entry("path", head.path());
            Some(())
        })
        .unwrap();
        let layer = layer.fields_on_allowed(true).refund(|status| status.is_server_error());
        layer.awaited().layer(INNER)
    };
    let (one, other) = (service(), service());
    let (first, response) = status(&one, request("/a", "200")).await;
    assert_eq!(
        (first, &response.headers()["ratelimit"]),
        (200, &"\"per-address\";r=2;t=3600, \"per-path\";r=1;t=3600".parse().unwrap())
    );
    // Failed requests are refunded, in the local rule and on the server.
    for _ in 0..9 {
        assert_eq!(status(&one, request("/a", "503")).await.0, 503);
    }
    assert_eq!(status(&one, request("/a", "200")).await.0, 200);
    // The path's rule is local and denies first, so the server is not asked about the address.
    let (refused, response) = status(&one, request("/a", "200")).await;
    assert_eq!((refused, response.headers()["retry-after"].to_str().unwrap()), (429, "3600"));
    let field = response.headers()["ratelimit"].to_str().unwrap();
    assert!(field.contains("per-path") && !field.contains("per-address"), "{field}");
    assert_eq!(status(&other, request("/a", "200")).await.0, 200);
    let (refused, response) = status(&other, request("/b", "200")).await;
    assert_eq!(refused, 429);
    let field = response.headers()["ratelimit"].to_str().unwrap();
    assert!(field.contains("\"per-address\";r=0"), "{field}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("per-address"));
}

#[tokio::test]
async fn outage_of_rules_omits_ratelimit_field() {
    let config = Config::from_yaml("limits.yaml", &LIMITS.replace("5s", "5s, on_failure: closed")).unwrap();
    let rules = Rules::builder().shared(nowhere()).load([config]).unwrap();
    let layer = RateLimitLayer::rules(Arc::new(rules), "shop", |_, descriptors| {
        descriptors.begin().entry("remote_address", "x");
        Some(())
    })
    .unwrap();
    let (refused, response) = status(&layer.awaited().layer(INNER), request("/a", "200")).await;
    assert_eq!(refused, 429);
    assert!(response.headers().contains_key("retry-after"));
    assert!(!response.headers().contains_key("ratelimit"), "{:?}", response.headers());
}

/// Sends thirty requests, and returns how many were admitted. Only denials have a `RateLimit` field, since the units
/// that remain in total are unknown.
async fn admitted_without_ratelimit_field<L: AwaitedLimit<IpAddr>>(limit: L) -> u32 {
    let layer = RateLimitLayer::new(limit, ClientIp::peer()).policy("held", BURST).fields_on_allowed(true);
    let service = layer.awaited().layer(INNER);
    let mut admitted = 0;
    for _ in 0..30 {
        let (code, response) = status(&service, request("/", "200")).await;
        admitted += u32::from(code == 200);
        assert_eq!(response.headers().contains_key("ratelimit"), code == 429);
    }
    admitted
}

#[tokio::test]
async fn layer_awaits_leases_and_write_back() {
    let server = InProcess::default();
    let leases = server.limiter("leases", Limit::gcra(BURST)).leases().build().unwrap();
    assert_eq!(admitted_without_ratelimit_field(leases.clone()).await, 8);
    // A layer that does not wait uses held units, and there are none.
    let service = RateLimitLayer::new(leases, ClientIp::peer()).layer(INNER);
    assert_eq!(status(&service, request("/", "200")).await.0, 429);
    let write_back = server.limiter("write-back", Limit::gcra(BURST)).write_back().build().unwrap();
    let admitted = admitted_without_ratelimit_field(write_back).await;
    assert!((4..=13).contains(&admitted), "{admitted}");
}

/// Clients see the quota of the limit in header fields, also during a block.
#[test]
fn denial_in_a_block_knows_its_quota() {
    for quota in [Quota::per_minute(5), Quota::per_minute(7), Quota::per_second(999)] {
        let limit = Limit::gcra(quota).with_block(Block::of(Duration::from_secs(600))).unwrap();
        let limiter =
            InProcess::new(ManualClock::default()).blocking().limiter("login", limit).atomic().unwrap();
        assert!(limiter.check_n("a", limit.most()).is_allowed());
        for cost in [1, 3] {
            let denied = limiter.check_n("a", cost).decision();
            let policy = Policy::new("login", &quota, denied);
            assert_eq!((policy.quota(), policy.window()), (quota.limit(), quota.period()), "{quota}");
            assert!(denied.is_block() && denied.remaining() == 0);
        }
    }
}
