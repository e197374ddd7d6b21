//! A limit on requests in progress: a request counts until the body of its response has ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tollgate::holds::InProgress;
use tollgate::{ManualClock, Quota};
use tollgate_tower::{Body, Header, RateLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::holds::Step::{self, Break, Data, Panic};
use crate::holds::Steps;
use crate::setup::now;

fn body<const N: usize>(steps: [Step; N]) -> Result<Response<Steps>, &'static str> {
    Ok(Response::new(Steps { steps: steps.into(), knows_end: true, ..Steps::default() }))
}

fn key() -> Header {
    Header::new(http::HeaderName::from_static("x-key"))
}

fn request(path: &str) -> Request<()> {
    Request::builder().uri(path).header("x-key", "alice").body(()).unwrap()
}

/// Answers at once; `/never` waits, `/error` fails, `/panic` panics, `/broken` breaks off, `/body-panic` panics later.
fn service() -> impl Service<
    Request<()>,
    Response = Response<Steps>,
    Error = &'static str,
    Future: Future<Output = Result<Response<Steps>, &'static str>>,
> + Clone {
    service_fn(async |request: Request<()>| match request.uri().path() {
        "/never" => std::future::pending().await,
        "/error" => Err("the service failed"),
        "/panic" => panic!("the service panicked"),
        "/broken" => body([Data("one"), Break, Data("never sent")]),
        "/body-panic" => body([Data("one"), Panic]),
        _ => body([Data("one"), Data("two")]),
    })
}

struct Limited {
    limit: InProgress<ManualClock>,
    layer: RateLimitLayer<InProgress<ManualClock>, Header>,
}

impl Limited {
    fn new(limit: InProgress<ManualClock>) -> Self {
        Self { layer: RateLimitLayer::new(limit.clone(), key()), limit }
    }

    fn call(&self, path: &str) -> Result<Response<Body<Steps>>, &'static str> {
        now(self.layer.layer(service()).oneshot(request(path)))
    }

    fn status(&self, path: &str) -> StatusCode {
        self.call(path).unwrap().status()
    }
}

fn two_for_each_key() -> (Limited, ManualClock) {
    let clock = ManualClock::default();
    (Limited::new(InProgress::new(2).life(Duration::from_secs(60)).clock(clock.clone())), clock)
}

/// Reads the next frame.
fn next(body: &mut Body<Steps>) -> Option<Result<Bytes, &'static str>> {
    let frame = now(body.frame())?;
    Some(frame.map(|frame| {
        let mut data = frame.into_data().unwrap();
        data.copy_to_bytes(data.remaining())
    }))
}

// G118
#[test]
fn request_counts_until_its_body_ends() {
    let (limited, _clock) = two_for_each_key();
    let [mut first, second] = [1, 2].map(|_| limited.call("/").unwrap().into_body());
    let refused = limited.call("/").unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "60");
    // Every frame, and then the end.
    assert_eq!(next(&mut first), Some(Ok(Bytes::from("one"))));
    assert_eq!(next(&mut first), Some(Ok(Bytes::from("two"))));
    assert_eq!((limited.limit.len(), first.is_end_stream()), (2, true));
    assert_eq!((next(&mut first), limited.limit.len()), (None, 1));
    assert_eq!(limited.status("/"), StatusCode::OK);
    drop(second);
    assert!(limited.limit.is_empty());
}

// G118
#[test]
fn broken_requests_end() {
    let (limited, _clock) = two_for_each_key();
    for _ in 0..3 {
        // The body breaks off, and the server keeps it for a while.
        let mut body = limited.call("/broken").unwrap().into_body();
        assert_eq!(next(&mut body), Some(Ok(Bytes::from("one"))));
        assert_eq!(limited.limit.len(), 1);
        assert!(next(&mut body).unwrap().is_err() && limited.limit.is_empty());
        assert!(limited.call("/error").is_err() && limited.limit.is_empty());
        let panicked = catch_unwind(AssertUnwindSafe(|| limited.call("/panic")));
        assert!(panicked.is_err() && limited.limit.is_empty());
        // The body panics, and its connection drops it.
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut body = limited.call("/body-panic").unwrap().into_body();
            next(&mut body);
            next(&mut body)
        }));
        assert!(panicked.is_err() && limited.limit.is_empty());
        // The client disconnects while the service works.
        let mut waiting = Box::pin(limited.layer.layer(service()).oneshot(request("/never")));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(limited.limit.len(), 1);
        drop(waiting);
        assert!(limited.limit.is_empty());
    }
}

// G118
#[test]
fn lost_request_ends_with_its_life() {
    let (limited, clock) = two_for_each_key();
    std::mem::forget([1, 2].map(|_| limited.call("/").unwrap()));
    assert_eq!(limited.status("/"), StatusCode::TOO_MANY_REQUESTS);
    clock.advance(Duration::from_secs(60));
    assert_eq!(limited.status("/"), StatusCode::OK);
}

#[test]
fn layers_of_permits_and_rates_stack() {
    let clock = ManualClock::default();
    let permits = InProgress::new(1).clock(clock.clone());
    let rate = tollgate::RateLimiter::builder(tollgate::Gcra::new(Quota::per_hour(2))).clock(clock);
    let stack = tower::ServiceBuilder::new()
        .layer(RateLimitLayer::new(permits.clone(), key()).policy("permits", Quota::per_second(1)))
        .layer(RateLimitLayer::new(rate.compact().unwrap(), key()))
        .service(service());
    let call = || now(stack.clone().oneshot(request("/"))).unwrap();
    let held = call();
    // The permit is asked first, so the rate is not charged.
    assert_eq!(call().status(), StatusCode::TOO_MANY_REQUESTS);
    drop(held);
    assert_eq!(call().status(), StatusCode::OK);
    assert_eq!(call().status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(permits.is_empty(), "a refused request is not in progress");
}
