//! From the body of a request to its message.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tollgate::Clock;
use tonic::{Code, Status};

use crate::answer::{Answerer, Entry};
use crate::grpc::BODY;
use crate::proto::Object;

/// Reads a body of at most `longest` bytes.
///
/// # Errors
/// Returns the status of the answer, and why: `too_long` if the body is longer.
pub async fn read_body(
    body: Incoming,
    longest: usize,
    too_long: &'static str,
) -> Result<Bytes, (StatusCode, &'static str)> {
    match timeout(BODY, Limited::new(body, longest).collect()).await {
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long")),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err((StatusCode::PAYLOAD_TOO_LARGE, too_long)),
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body is incomplete")),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}

/// Reads the message of a request.
pub(super) fn message<C: Clock, T: DeserializeOwned>(
    answerer: &Answerer<C>,
    entry: Entry<'_>,
    body: &[u8],
) -> Result<T, Status> {
    match serde_json::from_slice(body) {
        Ok(Object(message)) => Ok(message),
        Err(error) => {
            answerer.meters().undecodable(entry, Code::InvalidArgument);
            Err(Status::invalid_argument(format!("the body is no request: {error}")))
        }
    }
}
