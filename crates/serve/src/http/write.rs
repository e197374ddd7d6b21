//! From an answer to a response.

use bytes::Bytes;
use http::header::{self, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tonic::{Code, Status};

use crate::proto;

/// Returns an answer of plain text.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", body)
}

/// Returns an answer with this content type.
pub fn typed(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns the answer to a method that a path does not have.
pub fn not_allowed(allowed: &'static str) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("only {allowed} here\n"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Returns the status of an answer with this code.
pub(super) fn status_of(code: i32) -> StatusCode {
    match proto::Code::try_from(code) {
        Ok(proto::Code::Ok) => StatusCode::OK,
        Ok(proto::Code::OverLimit) => StatusCode::TOO_MANY_REQUESTS,
        Ok(proto::Code::Unknown) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the response to a request without an answer, with the JSON form of gRPC's status.
pub(super) fn failure(status: &Status) -> Response<Bytes> {
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
    json(code, &Failure { code: status.code().into(), message: status.message() })
}

/// Returns an answer in JSON.
pub(super) fn json(code: StatusCode, body: &impl Serialize) -> Response<Bytes> {
    // Writing to memory fails only for maps with odd keys, and there are none.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
