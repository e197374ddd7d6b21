//! `/json`: requests and answers as proto3 JSON.

use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;
use tollgate::Clock;
use tonic::{Code, Status};

use super::answer::{Answerer, Entry};
use super::proto::{self, Object, RateLimitRequest, RateLimitResponse};

/// Answers a request in JSON, with the status that fits the answer.
pub async fn answer<C: Clock>(answerer: &Answerer<C>, body: &[u8], deadline: Instant) -> Response<Bytes> {
    let request: RateLimitRequest = match serde_json::from_slice(body) {
        Ok(Object(request)) => request,
        Err(error) => {
            answerer.meters().undecodable(Entry::Json, Code::InvalidArgument);
            return failure(&Status::invalid_argument(format!("the body is no request: {error}")));
        }
    };
    match answerer.answer(request, Entry::Json, deadline).await {
        Ok(answer) => response(status_of(&answer), &answer),
        Err(status) => failure(&status),
    }
}

/// Returns the status of an answer.
fn status_of(answer: &RateLimitResponse) -> StatusCode {
    match proto::Code::try_from(answer.overall_code) {
        Ok(proto::Code::Ok) => StatusCode::OK,
        Ok(proto::Code::OverLimit) => StatusCode::TOO_MANY_REQUESTS,
        Ok(proto::Code::Unknown) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the response to a request without an answer, with the JSON form of gRPC's status.
fn failure(status: &Status) -> Response<Bytes> {
    #[derive(Serialize)]
    struct Failure<'a> {
        code: i32,
        message: &'a str,
    }

    let code = match status.code() {
        Code::InvalidArgument | Code::Unimplemented => StatusCode::BAD_REQUEST,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    response(code, &Failure { code: status.code().into(), message: status.message() })
}

fn response(code: StatusCode, body: &impl Serialize) -> Response<Bytes> {
    // Writing to memory fails only for maps with odd keys, and there are none.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
