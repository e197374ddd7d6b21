//! Tests of the gRPC services, without a connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::iter;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use prost::Message;
use tollgate::DefaultClock;
use tollgate_rules::Rules;
use tollgate_serve::answer::{Answerer, Settings};
use tollgate_serve::grpc::{
    BODY, CHECK_RATE_LIMIT, COMMIT, ENVOY, KUADRANT, Options, RESERVE, SHOULD_RATE_LIMIT, Services,
    time_to_answer,
};
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::ServiceExt;

use crate::answer::{of, request};

const RULES: &str = "
domain: rl
tollgate: {}
descriptors:
  - key: generic_key
    rate_limit: { unit: year, every: 70, requests_per_unit: 2 }
";

fn answerer() -> Arc<Answerer> {
    Arc::new(Answerer::new(Arc::new(Rules::from_yaml(RULES).unwrap()), Settings::default()))
}

fn services(answerer: &Arc<Answerer>, options: &Options) -> Services<DefaultClock> {
    Services::new(answerer, options, Routes::default()).unwrap()
}

fn question() -> Vec<u8> {
    request([of([("generic_key", "v")])]).encode_to_vec()
}

/// Puts the prefix of a gRPC message in front: whether it is compressed, and its length.
fn framed(flag: u8, length: usize, message: &[u8]) -> Bytes {
    let length = u32::try_from(length).unwrap().to_be_bytes();
    [&[flag][..], &length, message].concat().into()
}

/// Calls a method. Returns the gRPC code, and the body.
async fn called(services: &Services<DefaultClock>, path: &str, body: Bytes) -> (Code, Bytes) {
    let request =
        http::Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
    let response = services.clone().oneshot(request.body(Full::new(body)).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let early = Status::from_header_map(response.headers());
    let collected = response.into_body().collect().await.unwrap();
    let trailers = collected.trailers().and_then(Status::from_header_map);
    let code = early.or(trailers).map(|status| status.code()).unwrap();
    (code, collected.to_bytes())
}

#[tokio::test]
async fn call_is_answered_and_counted() {
    let answerer = answerer();
    let services = services(&answerer, &Options::default());
    let message = question();
    for expected in [[8, 1], [8, 1], [8, 2]] {
        let (code, body) = called(&services, SHOULD_RATE_LIMIT, framed(0, message.len(), &message)).await;
        assert_eq!((code, &body[5..7]), (Code::Ok, &expected[..]));
    }
    let counts = answerer.meters().read();
    assert_eq!((counts.entries, counts.codes[0], counts.over_limit), ([3, 0, 0, 0, 0, 0], 3, 1));
    assert_eq!((counts.times.iter().sum::<u64>(), counts.in_flight), (3, 0));
}

// G106
#[tokio::test]
async fn broken_calls_have_codes_and_are_counted() {
    let answerer = answerer();
    let services = services(&answerer, &Options { max_message: 100, ..Options::default() });
    let message = question();
    let length = message.len();
    for (body, expected) in [
        (Bytes::new(), Code::Internal),
        (framed(0, length, &[]), Code::Internal),
        (framed(0, length, &message[..5]), Code::Internal),
        (framed(0, 3, &[0x0a, 0x05, 0x61]), Code::Internal),
        (framed(1, length, &message), Code::Internal),
        (framed(2, length, &message), Code::Internal),
        (framed(0, 101, &[0; 101]), Code::OutOfRange),
        (framed(0, 0, &[]), Code::InvalidArgument),
    ] {
        let (code, answer) = called(&services, SHOULD_RATE_LIMIT, body.clone()).await;
        assert_eq!((code, answer.len()), (expected, 0), "{body:?}");
    }
    let counts = answerer.meters().read();
    assert_eq!((counts.undecodable, counts.codes[0], counts.codes.iter().sum::<u64>()), (7, 0, 8));
    assert_eq!(
        called(&services, &SHOULD_RATE_LIMIT.replace("Should", "Must"), Bytes::new()).await.0,
        Code::Unimplemented
    );
    assert_eq!(called(&services, "/a.b/c", Bytes::new()).await.0, Code::Unimplemented);
}

/// A body that sends some bytes and never ends.
fn endless(bytes: Bytes) -> impl hyper::body::Body<Data = Bytes, Error = Infallible> + Unpin + Send {
    StreamBody::new(iter([Ok(Frame::data(bytes))]).chain(futures_util::stream::pending()))
}

#[tokio::test(start_paused = true)]
async fn request_that_never_ends_is_given_up() {
    let answerer = answerer();
    let services = services(&answerer, &Options::default());
    let message = question();
    for sent in [0, 3, 5 + message.len()] {
        let body = framed(0, message.len(), &message).slice(..sent);
        let began = tokio::time::Instant::now();
        let request = http::Request::post(SHOULD_RATE_LIMIT).body(endless(body)).unwrap();
        let response = services.clone().oneshot(request).await.unwrap();
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{sent}");
        assert!(began.elapsed() <= 2 * BODY, "{sent}");
    }
    let counts = answerer.meters().read();
    assert_eq!((counts.undecodable, counts.codes[0], counts.in_flight), (3, 0, 0));
}

#[tokio::test]
async fn services_are_offered_on_request() {
    let answerer = answerer();
    let message = question();
    let body = || framed(0, message.len(), &message);
    // A request for the list of services.
    let list = || framed(0, 2, &[0x3a, 0]);
    let all = Options { kuadrant: true, reflection: true, ..Options::default() };
    let (none, all) = (services(&answerer, &Options::default()), services(&answerer, &all));
    assert_eq!(called(&none, CHECK_RATE_LIMIT, body()).await.0, Code::Unimplemented);
    assert_eq!(called(&all, CHECK_RATE_LIMIT, body()).await.0, Code::Ok);
    // The rules have no `hold`, and the answer names what is missing. Both messages begin as a question does.
    for path in [RESERVE, COMMIT] {
        assert_eq!(called(&none, path, body()).await.0, Code::Unimplemented);
        assert_eq!(called(&all, path, body()).await.0, Code::Unimplemented);
        assert_eq!(called(&all, path, framed(0, 0, &[])).await.0, Code::InvalidArgument);
        assert_eq!(called(&all, path, framed(0, 3, &[0x0a, 0x05, 0x61])).await.0, Code::Internal);
    }
    assert_eq!(answerer.meters().read().entries[4..6], [3, 3]);
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        assert_eq!(called(&none, &path, list()).await.0, Code::Unimplemented);
        let (code, answer) = called(&all, &path, list()).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(code, Code::Ok);
        assert!(answer.contains(ENVOY) && answer.contains(KUADRANT), "{answer:?}");
    }
}

#[test]
fn answer_takes_less_time_than_the_caller_waits() {
    let most = Duration::from_millis(15);
    for (header, micros) in [
        ("20m", 15_000),
        ("10m", 7_500),
        ("1S", 15_000),
        ("400u", 300),
        ("99999999H", 15_000),
        ("0m", 0),
        ("123456789m", 15_000),
        ("m", 15_000),
        ("", 15_000),
        ("5x", 15_000),
        ("+5m", 15_000),
        ("5ü", 15_000),
    ] {
        let mut headers = http::HeaderMap::new();
        headers.insert("grpc-timeout", http::HeaderValue::from_bytes(header.as_bytes()).unwrap());
        assert_eq!(time_to_answer(&headers, most), Duration::from_micros(micros), "{header}");
    }
    assert_eq!(time_to_answer(&http::HeaderMap::new(), most), most);
}
