//! The layer around simple services: which requests it admits, which charges it makes, and which fields it writes.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::{Carry, Decision, FixedWindow, Gcra, Keyed, Quota, RateLimiter, StdClock, WhenFull};
use tollgate_http::{Dialect, Fields};
use tollgate_tower::{
    ClientIp, Global, Head, Header, KeyExtractor, Missing, Proxies, RateLimitLayer, RequestLimit, Route,
    key_fn,
};
use tower::{Layer, Service, ServiceExt};

use crate::setup::{Answer, INNER, Limiter, QUOTA, ask, compact, from, header, manual, now, text, to, with};

fn limiter() -> Limiter {
    compact(QUOTA, &manual())
}

fn by_peer() -> RateLimitLayer<Limiter, ClientIp> {
    RateLimitLayer::new(limiter(), ClientIp::peer())
}

fn status<X: KeyExtractor>(layer: &RateLimitLayer<impl RequestLimit<X::Key>, X>, get: Request<()>) -> u16 {
    ask(layer, get).status().as_u16()
}

#[test]
fn client_at_limit_gets_retry_after() {
    let clock = manual();
    let layer = RateLimitLayer::new(compact(QUOTA, &clock), ClientIp::peer()).policy("per-client", QUOTA);
    for _ in 0..3 {
        let response = ask(&layer, from("203.0.113.7"));
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.headers().is_empty());
        assert_eq!(text(response), "inner");
    }
    clock.advance(Duration::from_millis(500));
    let response = ask(&layer, from("203.0.113.7"));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let of = |name| header(&response, name).unwrap_or_default();
    assert_eq!(of("retry-after"), "1200");
    assert_eq!(of("content-type"), "application/problem+json");
    assert_eq!(of("cache-control"), "no-store");
    assert_eq!(of("ratelimit-policy"), "\"per-client\";q=3;w=3600");
    assert_eq!(of("ratelimit"), "\"per-client\";r=0;t=1200");
    assert!(text(response).ends_with("\"status\":429,\"violated-policies\":[\"per-client\"]}"));

    assert_eq!(status(&layer, from("203.0.113.8")), 200);
    clock.advance(Duration::from_secs(1_200));
    assert_eq!(status(&layer, from("203.0.113.7")), 200);
    assert_eq!(status(&layer, from("203.0.113.7")), 429);
}

#[test]
fn clones_and_services_share_the_limit() {
    let layer = by_peer();
    let mut services = [layer.layer(INNER), layer.clone().layer(INNER), layer.layer(INNER).clone()];
    let mut statuses = Vec::new();
    for _ in 0..2 {
        for service in &mut services {
            statuses
                .push(now(service.ready()).map(|_| ()).and_then(|()| now(service.call(from("203.0.113.7")))));
        }
    }
    let admitted = statuses.iter().flatten().filter(|response| response.status() == 200).count();
    assert_eq!((statuses.len(), admitted), (6, 3));
}

/// A clone has its own options. It keeps the options that were set before the clone, and naming the policy keeps them
/// too.
#[test]
fn clones_keep_layer_options() {
    let layer = by_peer()
        .missing(Missing::Allow)
        .exempt(|head| head.path() == "/exempt")
        .cost(|_| 2)
        .refund(|status| status == StatusCode::NOT_FOUND)
        .refund_errors(true)
        .on_refused(|refused| Response::new(refused.policies().len().to_string().into()))
        .fields_on_allowed(true);
    let kept = layer.clone();
    let changed = layer.clone().fields(Fields::new(Dialect::Off)).policy("calls", QUOTA);
    let _ = layer.missing(Missing::Deny).cost(|_| 9).exempt(|_| false).refund_errors(false);
    let failing = || with(from("203.0.113.7"), "x-status", "-");
    for round in 0..9 {
        assert!(now(kept.layer(INNER).oneshot(failing())).is_err(), "{round}");
        assert!(now(changed.layer(INNER).oneshot(failing())).is_err(), "{round}");
        let missing = || with(from("203.0.113.7"), "x-status", "404");
        assert_eq!((status(&kept, missing()), status(&changed, missing())), (404, 404), "{round}");
        assert_eq!((status(&kept, Request::new(())), status(&changed, Request::new(()))), (200, 200));
    }
    assert_eq!((status(&kept, to("/exempt")), status(&changed, to("/exempt"))), (200, 200));
    // Both layers share the limit of three units, and each request costs two.
    assert_eq!(text(ask(&kept, from("203.0.113.7"))), "inner");
    assert_eq!(text(ask(&kept, from("203.0.113.7"))), "0");
    assert_eq!(text(ask(&changed, from("203.0.113.7"))), "1");
    let admitted = ask(&changed, from("203.0.113.8"));
    assert!(admitted.headers().is_empty(), "{:?}", admitted.headers());
}

#[test]
fn fields_on_admitted_requests_are_optional() {
    let layer = by_peer().policy("per-client", QUOTA);
    let layer = layer.fields_on_allowed(true);
    let response = ask(&layer, from("203.0.113.7"));
    assert_eq!(header(&response, "ratelimit").as_deref(), Some("\"per-client\";r=2;t=2400"));
    assert_eq!(header(&response, "retry-after"), None);

    let layer = layer.fields(Fields::new(Dialect::Draft06));
    let response = ask(&layer, from("203.0.113.7"));
    assert_eq!(header(&response, "ratelimit-remaining").as_deref(), Some("1"));
    assert_eq!(header(&response, "ratelimit"), None);
}

#[test]
fn denial_without_policy_has_retry_after() {
    let layer = by_peer().cost(|_| 3);
    assert_eq!(status(&layer, from("203.0.113.7")), 200);
    let response = ask(&layer, from("203.0.113.7"));
    assert_eq!(header(&response, "retry-after").as_deref(), Some("3600"));
    assert_eq!(header(&response, "ratelimit"), None);

    let layer = layer.cost(|_| 4);
    let response = ask(&layer, from("203.0.113.8"));
    assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (429, None));
}

// G72
#[test]
fn requests_without_key_follow_missing_policy() {
    let five = |layer: RateLimitLayer<_, ClientIp>| [(); 5].map(|()| status(&layer, Request::new(())));
    assert_eq!(five(by_peer()), [403; 5]);
    assert_eq!(five(by_peer().missing(Missing::Deny)), [403; 5]);
    assert_eq!(five(by_peer().missing(Missing::Allow)), [200; 5]);
    let shared = by_peer().missing(Missing::Shared(IpAddr::from([0, 0, 0, 0])));
    assert_eq!(five(shared.clone()), [200, 200, 200, 429, 429]);
    assert_eq!(status(&shared, from("0.0.0.0")), 429);
    assert_eq!(status(&shared, from("203.0.113.7")), 200);

    let refused = ask(&by_peer(), Request::new(()));
    assert_eq!(header(&refused, "retry-after"), None);
    assert_eq!(header(&refused, "content-type").as_deref(), Some("application/problem+json"));
    assert!(text(refused).contains("\"status\":403"));
}

/// RFC 9110, section 15.5.2: an answer with status 401 must contain a challenge.
// G70
#[test]
fn missing_credentials_get_a_challenge() {
    fn refused<L: RequestLimit<X::Key>, X: KeyExtractor>(
        layer: &RateLimitLayer<L, X>,
        request: Request<()>,
    ) -> (u16, String) {
        let response = ask(layer, request);
        let challenge = header(&response, "www-authenticate").unwrap_or_default();
        assert_eq!(header(&response, "cache-control").as_deref(), Some("no-store"));
        assert_eq!(header(&response, "retry-after"), None);
        let status = response.status();
        let title = status.canonical_reason().expect("the status has a standard reason");
        let body = text(response);
        assert!(body.contains(&format!("\"title\":\"{title}\",\"status\":{}", status.as_u16())), "{body}");
        (status.as_u16(), challenge)
    }
    let by_header = |name| RateLimitLayer::new(limiter(), Header::new(name));
    let api_key = HeaderName::from_static("x-api-key");
    let challenge = "ApiKey in=\"header\", name=\"x-api-key\"".to_owned();
    let none = || (403, String::new());
    assert_eq!(refused(&by_header(api_key.clone()), from("203.0.113.7")), (401, challenge.clone()));
    let bearer = (401, "Bearer realm=\"api\"".to_owned());
    assert_eq!(refused(&by_header(AUTHORIZATION), from("203.0.113.7")), bearer);
    let twice = with(with(Request::new(()), "x-api-key", "a"), "x-api-key", "b");
    assert_eq!(refused(&by_header(api_key.clone()), twice), none());

    // A client without an address does not need credentials.
    assert_eq!(refused(&by_peer(), Request::new(())), none());
    let pair = RateLimitLayer::new(limiter(), (ClientIp::peer(), Header::new(api_key.clone())));
    assert_eq!(refused(&pair, Request::new(())), none());
    assert_eq!(refused(&pair, with(Request::new(()), "x-api-key", "a")), none());
    assert_eq!(refused(&pair, from("203.0.113.7")), (401, challenge));

    // The layer's own challenge takes precedence, even if the policy is named later.
    let chosen = by_peer().challenge(Some(HeaderValue::from_static("Basic realm=\"x\"")));
    let basic = (401, "Basic realm=\"x\"".to_owned());
    assert_eq!(refused(&chosen.policy("calls", QUOTA), Request::new(())), basic);
    assert_eq!(refused(&by_header(api_key).challenge(None), Request::new(())), none());

    // An answer for an exceeded limit has no challenge.
    let limited = by_header(AUTHORIZATION).cost(|_| 4);
    let response = ask(&limited, with(Request::new(()), "authorization", "a"));
    assert_eq!((response.status().as_u16(), header(&response, "www-authenticate")), (429, None));
}

/// Cause: a field with two values gave no key, and `Missing::Allow` admits requests without a key. Symptom: a client
/// bypassed the limit by sending its field twice.
#[test]
fn duplicated_key_field_is_always_rejected() {
    let name = HeaderName::from_static("x-key");
    let twice = || with(with(from("203.0.113.7"), "x-key", "a"), "x-key", "b");
    let layer = || RateLimitLayer::new(limiter(), Header::new(name.clone()));
    let shared = with(Request::new(()), "x-key", "shared");
    let shared =
        Missing::Shared(Header::new(name.clone()).key(Head::of(&shared)).expect("the request has a key"));
    for missing in [Missing::Deny, Missing::Allow, shared.clone()] {
        assert_eq!(status(&layer().missing(missing), twice()), 403);
    }
    for missing in [Missing::Allow, shared] {
        assert_eq!(
            status(&layer().missing(missing), from("203.0.113.7")),
            200,
            "a request without the field is a different case"
        );
    }
    let pair = RateLimitLayer::new(limiter(), (ClientIp::peer(), Header::new(name)));
    let pair = pair.missing(Missing::Allow);
    assert_eq!([twice(), from("203.0.113.7")].map(|request| status(&pair, request)), [403, 200]);
    let single = ClientIp::header(HeaderName::from_static("x-key"), Proxies::hops(1));
    let single = RateLimitLayer::new(limiter(), single).missing(Missing::Allow);
    assert_eq!([twice(), from("203.0.113.7")].map(|request| status(&single, request)), [403, 200]);
}

#[test]
fn requests_without_key_are_counted_and_named() {
    fn check<X: KeyExtractor<Key: Clone>>(key: X, shared: X::Key, detail: &str)
    where
        Limiter: RequestLimit<X::Key>,
    {
        let layer = RateLimitLayer::new(limiter(), key);
        let answer = text(ask(&layer, Request::new(())));
        assert!(answer.contains(&format!("\"detail\":\"This request has no{detail}, so its")), "{answer}");
        let counts = layer.clone().without_key();
        assert_eq!((counts.refused, counts.allowed, counts.shared), (1, 0, 0));
        assert_eq!(status(&layer.clone().missing(Missing::Allow), Request::new(())), 200);
        for _ in 0..5 {
            let _ = status(&layer.clone().missing(Missing::Shared(shared.clone())), Request::new(()));
        }
        let counts = layer.without_key();
        assert_eq!((counts.refused, counts.allowed, counts.shared), (1, 1, 5));
    }
    let unspecified = IpAddr::from([0, 0, 0, 0]);
    let peer = " peer address: the server did not insert one (see PeerAddr and ClientIp::peer_from)";
    check(ClientIp::peer(), unspecified, peer);
    check(ClientIp::x_forwarded_for(Proxies::hops(2)), unspecified, " client address in x-forwarded-for");
    check(
        ClientIp::forwarded(Proxies::networks([])),
        unspecified,
        &format!(" client address in forwarded, or no{peer}"),
    );
    check(|_: Head<'_>| None, 7, " key that identifies its client");
    check((ClientIp::peer(), |_: Head<'_>| Some(7)), (unspecified, 7), peer);

    let header = RateLimitLayer::new(limiter(), Header::new(HeaderName::from_static("x-key")));
    let answer = text(ask(&header, Request::new(())));
    assert!(
        answer.contains("This request has no header field x-key, or has it several times, so its"),
        "{answer}"
    );
    let known = by_peer();
    assert_eq!(status(&known, from("203.0.113.7")), 200);
    assert_eq!(known.without_key(), Default::default());
}

#[test]
fn exempt_and_free_requests_are_not_counted() {
    let layer = by_peer()
        .exempt(|head| head.method() == Method::OPTIONS)
        .cost(|head| if head.headers().contains_key("x-free") { 0 } else { 2 });
    let options = || {
        let mut request = Request::new(());
        *request.method_mut() = Method::OPTIONS;
        request
    };
    for _ in 0..5 {
        assert_eq!(status(&layer, options()), 200);
        assert_eq!(status(&layer, with(Request::new(()), "x-free", "")), 200);
    }
    assert_eq!([(); 2].map(|()| status(&layer, from("203.0.113.7"))), [200, 429]);
}

// G72
#[test]
fn charges_are_refunded_by_status() {
    let layer = by_peer()
        .missing(Missing::Shared(IpAddr::from([0, 0, 0, 0])))
        .refund(|status| status.is_server_error());
    for _ in 0..9 {
        assert_eq!(status(&layer, with(from("203.0.113.7"), "x-status", "503")), 503);
        assert_eq!(status(&layer, with(Request::new(()), "x-status", "500")), 500);
    }
    let client = || with(from("203.0.113.7"), "x-status", "404");
    assert_eq!([(); 4].map(|()| status(&layer, client())), [404, 404, 404, 429]);
    let unknown = || Request::new(());
    assert_eq!([(); 4].map(|()| status(&layer, unknown())), [200, 200, 200, 429]);
}

#[test]
fn service_errors_are_charged_by_default() {
    let failing = || with(from("203.0.113.7"), "x-status", "-");
    let fail =
        |layer: &RateLimitLayer<_, ClientIp>| now(layer.layer(INNER).oneshot(failing())).map(|r| r.status());
    let layer = by_peer().refund(|_| true);
    for expected in [Err("it failed"), Err("it failed"), Err("it failed"), Ok(StatusCode::TOO_MANY_REQUESTS)]
    {
        assert_eq!(fail(&layer), expected);
    }
    let layer = by_peer().refund_errors(true);
    assert!((0..9).all(|_| fail(&layer) == Err("it failed")));
}

#[test]
fn dropped_response_future_stays_charged() {
    let layer = by_peer().refund(|_| true).refund_errors(true);
    for _ in 0..3 {
        let mut service = layer.layer(INNER);
        drop(now(service.ready()).expect("it is ready").call(from("203.0.113.7")));
    }
    assert_eq!(status(&layer, from("203.0.113.7")), 429);
}

#[test]
fn custom_denial_response() {
    let layer = by_peer().policy("per-client", QUOTA);
    let layer = layer.on_refused(|refused| {
        let names: Vec<&str> = refused.policies().iter().map(|policy| policy.name()).collect();
        let path = refused.head().path();
        let text = format!("{path} {names:?} {:?} {}", refused.retry_after(), refused.is_unknown());
        let mut response = refused.response().map(|_| Bytes::from(text));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    });
    let statuses = [(); 3].map(|()| status(&layer, from("203.0.113.7")));
    assert_eq!(statuses, [200; 3]);
    let response = ask(&layer, from("203.0.113.7"));
    assert_eq!(
        (response.status().as_u16(), header(&response, "retry-after").as_deref()),
        (503, Some("1200"))
    );
    assert_eq!(text(response), "/ [\"per-client\"] Some(1200s) false");
    assert_eq!(text(ask(&layer, Request::new(()))), "/ [] None true");
}

#[test]
fn denied_head_request_has_length_without_body() {
    let layer = by_peer();
    let mut request = Request::new(());
    let get = text(ask(&layer, request.clone()));
    *request.method_mut() = Method::HEAD;
    let head = ask(&layer, request);
    assert_eq!(header(&head, "content-length"), Some(get.len().to_string()));
    assert!(!get.is_empty() && http_body::Body::is_end_stream(head.body()));
    assert_eq!(text(head), "");
}

// G70
#[test]
fn grpc_denial_uses_grpc_status() {
    let layer = by_peer().policy("calls", QUOTA).cost(|_| 3);
    let call = || with(from("203.0.113.7"), "content-type", "application/grpc+proto");
    assert_eq!(status(&layer, call()), 200);
    let refused = ask(&layer, call());
    let of = |name| header(&refused, name).unwrap_or_default();
    assert_eq!((refused.status().as_u16(), of("grpc-status").as_str()), (200, "8"));
    assert_eq!((of("content-type").as_str(), of("retry-after").as_str()), ("application/grpc+proto", "3600"));
    assert_eq!(text(refused), "");
    let unknown = ask(&layer, with(Request::new(()), "content-type", "Application/gRPC"));
    assert_eq!((unknown.status().as_u16(), header(&unknown, "grpc-status").as_deref()), (200, Some("7")));

    let legacy = layer.fields(Fields::new(Dialect::Legacy { reset: Default::default() }));
    let refused = ask(&legacy, call());
    assert_eq!(header(&refused, "grpc-status").as_deref(), Some("8"));
    assert_eq!(header(&refused, "x-ratelimit-retry-after").as_deref(), Some("3600"));
    let by_header = RateLimitLayer::new(limiter(), Header::new(AUTHORIZATION));
    let unauthenticated = ask(&by_header, call());
    let of = |name| header(&unauthenticated, name).unwrap_or_default();
    assert_eq!((unauthenticated.status().as_u16(), of("grpc-status").as_str()), (200, "16"));
    assert_eq!(of("www-authenticate"), "Bearer realm=\"api\"");
}

#[test]
fn keys_of_all_kinds() {
    fn told<X: KeyExtractor>(key: X, requests: [Request<()>; 4]) -> [u16; 4]
    where
        Limiter: RequestLimit<X::Key>,
    {
        let layer = RateLimitLayer::new(compact(Quota::per_hour(1), &manual()), key);
        requests.map(|request| status(&layer, request))
    }
    let paths = |paths: [&str; 4]| paths.map(to);
    let key = |request, key: &str| with(request, "x-api-key", key);

    let api_key = Header::new(HeaderName::from_static("x-api-key"));
    let [a, b, again, c] = ["a", "b", "a", "c"].map(|text| key(Request::new(()), text));
    assert_eq!(told(api_key.clone(), [a, b, again, key(c, "c")]), [200, 200, 429, 403]);
    assert_eq!(told(Route::new(), paths(["/a/1", "/a/2", "/a/1?q", "/b"])), [200, 200, 429, 200]);
    let first = Route::new().normalise(|path| path.split('/').nth(1).unwrap_or_default().into());
    assert_eq!(told(first, paths(["/a/1", "/a/2", "/a/1?q", "/b"])), [200, 429, 429, 200]);
    assert_eq!(told(Global, paths(["/a", "/b", "/c", "/d"])), [200, 429, 429, 429]);
    let by_query = |head: Head<'_>| head.uri().query().map(str::len);
    assert_eq!(told(by_query, paths(["/a?x", "/b?y", "/c?xx", "/d"])), [200, 429, 200, 403]);
    let (a, b) = ("203.0.113.7", "203.0.113.8");
    let requests = [key(from(a), "k"), key(from(b), "k"), key(from(a), "k"), from(a)];
    assert_eq!(told((ClientIp::peer(), api_key), requests), [200, 200, 429, 401]);
}

/// The closures need no type annotations.
#[test]
fn closures_are_keys_without_annotations() {
    let by_query = key_fn(|head| Some(head.uri().query()?.len()));
    let layer = RateLimitLayer::new(limiter(), by_query).cost(|_| 3);
    assert_eq!(["/?a", "/?b", "/?bb", "/"].map(|uri| status(&layer, to(uri))), [200, 429, 200, 403]);

    let pair = (key_fn(|head| Some(head.method().clone())), key_fn(|head| Some(head.path().to_owned())));
    let layer = RateLimitLayer::new(limiter(), pair).cost(|_| 3);
    assert_eq!(["/a", "/b", "/a"].map(|uri| status(&layer, to(uri))), [200, 200, 429]);
}

/// A keyed limiter that stores a header's value does not keep the request's buffer alive.
#[test]
fn stored_header_key_copies_its_bytes() {
    let limiter = Arc::new(RateLimiter::keyed::<tollgate_tower::HeaderKey, _>(Gcra::new(QUOTA)));
    let layer = RateLimitLayer::new(Arc::clone(&limiter), Header::new(HeaderName::from_static("x-api-key")));
    let buffer = Bytes::from(vec![b'k'; 64]);
    let mut request = Request::new(());
    let value = http::HeaderValue::from_maybe_shared(buffer.slice(..8)).expect("a valid header value");
    request.headers_mut().insert("x-api-key", value);
    assert_eq!(status(&layer, request), 200);
    assert!(buffer.try_into_mut().is_ok(), "the limiter must not keep the buffer");
}

/// Every limiter implements `RequestLimit`.
#[test]
fn every_store_is_a_limit() {
    fn three<L: RequestLimit<IpAddr>>(limit: L) {
        let layer = RateLimitLayer::new(limit, ClientIp::peer()).refund(|status| status.is_server_error());
        let statuses = [(); 4].map(|()| status(&layer, from("203.0.113.7")));
        assert_eq!(statuses, [200, 200, 200, 429]);
    }
    let clock = manual();
    let builder = || RateLimiter::builder(Gcra::new(QUOTA)).clock(clock.clone());
    let window = || RateLimiter::builder(FixedWindow::new(QUOTA)).clock(clock.clone());
    three(builder().compact().expect("the configuration is valid"));
    three(builder().compact().expect("the configuration is valid").adjustable());
    three(Arc::new(builder().keyed::<IpAddr>()));
    three(builder().keyed::<IpAddr>().adjustable());
    three(builder().max_keys(10, WhenFull::Forget).keyed::<IpAddr>());
    three(window().sketch().expect("the configuration is valid"));
    three(builder().direct());
    three(builder().direct().adjustable());
    three(builder().striped());
}

/// A service that must be polled ready before each call.
#[derive(Clone)]
struct Reserving {
    is_ready: Arc<std::sync::Mutex<Cell<u32>>>,
    reserved: bool,
}

impl Service<Request<()>> for Reserving {
    type Response = Answer;
    type Error = Infallible;
    type Future = Ready<Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let permits = self.is_ready.lock().expect("unpoisoned");
        if self.reserved {
            return Poll::Ready(Ok(()));
        }
        match permits.get().checked_sub(1) {
            None => Poll::Pending,
            Some(left) => {
                permits.set(left);
                self.reserved = true;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.reserved), "poll_ready must return Ready before each call");
        ready(Ok(Response::new(Full::default())))
    }
}

/// The layer calls the same service that it polled ready. A denied request leaves that service ready.
#[test]
fn layer_preserves_inner_readiness() {
    let is_ready = Arc::new(std::sync::Mutex::new(Cell::new(2)));
    let layer = by_peer();
    let mut service = layer.layer(Reserving { is_ready, reserved: false });
    let mut poll = || service.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready();
    assert!(poll() && poll());
    let refused = now(service.call(Request::new(()))).map(|response| response.status().as_u16());
    assert_eq!(refused, Ok(403));
    for _ in 0..2 {
        assert_eq!(now(service.ready()).map(|_| ()), Ok(()));
        assert_eq!(
            now(service.call(from("203.0.113.7"))).map(|response| response.status().as_u16()),
            Ok(200)
        );
    }
    assert!(service.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// Servers and frameworks require these bounds of layers and services.
#[test]
fn layers_services_and_futures_are_send() {
    fn sent<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn future<T: Send + 'static>(_: T) {}
    let limiter: Arc<RateLimiter<Keyed<IpAddr>, StdClock>> =
        Arc::new(RateLimiter::builder(Gcra::new(QUOTA)).clock(StdClock::new()).keyed());
    let layer = RateLimitLayer::new(limiter, ClientIp::x_forwarded_for(Proxies::hops(1)));
    let service = layer.layer(INNER);
    sent(&layer);
    sent(&service);
    future(service.clone().oneshot(from("203.0.113.7")));
    assert!(format!("{layer:?}").contains("x-forwarded-for"));
    let _: &dyn Fn(&Decision) -> bool = &tollgate_tower::Ruling::is_allowed;
}

/// Cause: the fields showed the policy's own quota instead of the limiter's. Symptom: after a change from 100 to 10 per
/// minute, the fields advertised nine times the rate.
#[test]
fn fields_show_quota_in_force() {
    let quota = Quota::per_minute(100);
    let clock = manual();
    let builder = RateLimiter::builder(Gcra::new(quota)).clock(clock.clone());
    let limiter = Arc::new(builder.compact().expect("the configuration is valid").adjustable());
    let layer = RateLimitLayer::new(Arc::clone(&limiter), Global).policy("x", quota).fields_on_allowed(true);
    let told = |layer: &_| {
        let response = ask(layer, Request::new(()));
        [header(&response, "ratelimit-policy"), header(&response, "ratelimit")].map(Option::unwrap_or_default)
    };
    assert_eq!(told(&layer), ["\"x\";q=100;w=60", "\"x\";r=99;t=60"]);
    for (per_minute, expected) in [
        (10, ["\"x\";q=10;w=60", "\"x\";r=9;t=54"]),
        (1_000, ["\"x\";q=1000;w=60", "\"x\";r=999;t=60"]),
        (100, ["\"x\";q=100;w=60", "\"x\";r=99;t=60"]),
    ] {
        clock.advance(Duration::from_secs(3_600));
        limiter.set_quota(&Quota::per_minute(per_minute), Carry::AsIs).expect("the configuration is valid");
        assert_eq!(told(&layer), expected, "{per_minute}");
    }
}

/// Cause: the outer layer admitted the request and overwrote the inner layer's numbers with its own.
#[test]
fn outer_layer_keeps_fields_of_refusal() {
    let layer = |name, quota: Quota, dialect| {
        RateLimitLayer::new(compact(quota, &manual()), Global)
            .policy(name, quota)
            .fields(Fields::new(dialect))
            .fields_on_allowed(true)
    };
    for (dialect, name, of_inner, of_refusal, of_outer) in [
        (Dialect::Draft06, "ratelimit-remaining", "1", "0", "9"),
        (Dialect::Legacy { reset: Default::default() }, "x-ratelimit-remaining", "1", "0", "9"),
        (
            Dialect::Draft07,
            "ratelimit",
            "limit=2, remaining=1, reset=30",
            "limit=2, remaining=0, reset=30",
            "limit=10, remaining=9, reset=54",
        ),
    ] {
        let wide = layer("wide", Quota::per_minute(10), dialect);
        let narrow = layer("narrow", Quota::per_minute(2), dialect);
        let service = wide.layer(narrow.layer(INNER));
        let answer = |request| {
            let response = now(service.clone().oneshot(request)).expect("the service does not fail");
            (response.status().as_u16(), header(&response, name).unwrap_or_default())
        };
        assert_eq!(answer(from("203.0.113.7")), (200, of_inner.to_owned()), "{dialect:?}");
        assert_eq!(answer(from("203.0.113.7")), (200, of_refusal.to_owned()), "{dialect:?}");
        assert_eq!(answer(from("203.0.113.7")), (429, of_refusal.to_owned()), "{dialect:?}");
        let call = with(from("203.0.113.7"), "content-type", "application/grpc");
        assert_eq!(answer(call), (200, of_refusal.to_owned()), "{dialect:?}");
        // With the layers swapped, the smaller numbers replace the larger ones.
        let (wide, narrow) =
            (layer("wide", Quota::per_minute(10), dialect), layer("narrow", Quota::per_minute(2), dialect));
        let response = now(narrow.layer(wide.layer(INNER)).oneshot(from("203.0.113.7")))
            .expect("the service does not fail");
        assert_eq!(header(&response, name).as_deref(), Some(of_inner), "{dialect:?}");
        let alone = layer("wide", Quota::per_minute(10), dialect);
        assert_eq!(header(&ask(&alone, from("203.0.113.7")), name).as_deref(), Some(of_outer), "{dialect:?}");
    }
    // The list fields of draft 11 hold the policies of both layers. A denial lists only the policies that deny.
    let wide = layer("wide", Quota::per_minute(10), Dialect::Draft11);
    let service = wide.layer(layer("narrow", Quota::per_minute(1), Dialect::Draft11).layer(INNER));
    let lines = || {
        let response = now(service.clone().oneshot(from("203.0.113.7"))).expect("the service does not fail");
        response.headers().get_all("ratelimit").iter().count()
    };
    assert_eq!([lines(), lines()], [2, 1]);
}

/// Cause: an admitted request received the remaining units of its stripe, which are usually zero.
#[test]
fn striped_limiter_hides_remaining_units() {
    let quota = Quota::per_hour(3);
    let limiter = RateLimiter::builder(Gcra::new(quota)).clock(manual()).striped();
    let layer = RateLimitLayer::new(limiter, Global).policy("x", quota).fields_on_allowed(true);
    for _ in 0..3 {
        let response = ask(&layer, Request::new(()));
        assert_eq!((response.status().as_u16(), header(&response, "ratelimit")), (200, None));
    }
    let response = ask(&layer, Request::new(()));
    assert_eq!(response.status(), 429);
    assert_eq!(header(&response, "ratelimit").as_deref(), Some("\"x\";r=0;t=1200"));
}
