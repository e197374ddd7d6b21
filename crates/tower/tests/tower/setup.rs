//! What the tests of the layer share: a clock, a limiter, a service, its requests, and its answers.

use std::future::{Ready, ready};
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tollgate::{Compact, Gcra, ManualClock, Quota, RateLimiter, Timestamp};
use tollgate_tower::{KeyExtractor, PeerAddr, RateLimitLayer, RequestLimit};
use tower::{Layer as _, Service, ServiceExt as _};

pub(crate) const QUOTA: Quota = Quota::per_hour(3);

pub(crate) fn manual() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(1_000))
}

pub(crate) type Limiter = RateLimiter<Compact<Gcra>, ManualClock>;

pub(crate) fn compact(quota: Quota, clock: &ManualClock) -> Limiter {
    RateLimiter::builder(Gcra::new(quota)).clock(clock.clone()).compact().expect("the configuration is valid")
}

pub(crate) type Answer = Response<Full<Bytes>>;

/// Answers with the status in the request's `x-status` field, and fails if this is no status. Panics if it is called without
/// being ready.
pub(crate) struct Inner {
    is_ready: bool,
}

pub(crate) const INNER: Inner = Inner { is_ready: false };

impl Clone for Inner {
    fn clone(&self) -> Self {
        INNER
    }
}

impl Service<Request<()>> for Inner {
    type Response = Answer;
    type Error = &'static str;
    type Future = Ready<Result<Answer, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "poll_ready must return Ready before each call");
        let status =
            request.headers().get("x-status").map_or("200", |status| status.to_str().expect("ASCII"));
        let mut response = Response::new(Full::from("inner"));
        let Ok(status) = status.parse() else { return ready(Err("it failed")) };
        *response.status_mut() = status;
        ready(Ok(response))
    }
}

pub(crate) fn to(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).expect("a valid request")
}

pub(crate) fn from(peer: &str) -> Request<()> {
    let mut request = Request::new(());
    let peer: IpAddr = peer.parse().expect("a valid address");
    request.extensions_mut().insert(PeerAddr((peer, 1).into()));
    request
}

pub(crate) fn with(mut request: Request<()>, name: &'static str, value: &str) -> Request<()> {
    request.headers_mut().append(HeaderName::from_static(name), value.parse().expect("a valid header value"));
    request
}

/// Returns the output of a future that is ready at the first poll.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future must be ready at the first poll"),
    }
}

pub(crate) fn ask<L: RequestLimit<X::Key>, X: KeyExtractor>(
    layer: &RateLimitLayer<L, X>,
    request: Request<()>,
) -> Response<tollgate_tower::Body<Full<Bytes>>> {
    now(layer.layer(INNER).oneshot(request)).expect("the service does not fail")
}

pub(crate) fn text<B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>>(
    response: Response<B>,
) -> String {
    let bytes = now(response.into_body().collect()).expect("the body can be read").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

pub(crate) fn header<B>(response: &Response<B>, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| value.to_str().expect("ASCII").to_owned())
}
