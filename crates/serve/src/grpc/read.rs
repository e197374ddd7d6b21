//! From the bytes of a call to its message. The short way is for one message in one frame that is not compressed, because Envoy sends
//! all its calls in this form.

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use prost::Message as _;
use tonic::body::Body;

use super::PREFIX;
use crate::connections::HttpBody;
use crate::proto::RateLimitRequest;

/// What a call contains.
pub(super) enum Call {
    /// One message.
    Message(RateLimitRequest),
    /// Something else. Nothing of it is lost.
    Other(Request<Body>),
}

/// Reads the first frame of a call.
pub(super) async fn call(request: Request<impl HttpBody>, max_message: usize) -> Call {
    let (head, mut rest) = request.into_parts();
    let first = rest.frame().await;
    if let Some(Ok(frame)) = &first
        && let Some(data) = frame.data_ref()
        && rest.is_end_stream()
        && !head.headers.contains_key("grpc-encoding")
        && let Some(message) = message(data)
        && message.len() <= max_message
        && let Ok(message) = RateLimitRequest::decode(message)
    {
        return Call::Message(message);
    }
    let frames = iter(first).chain(BodyStream::new(rest));
    Call::Other(Request::from_parts(head, Body::new(StreamBody::new(frames))))
}

/// Returns the message if the data is all of it.
fn message(data: &Bytes) -> Option<Bytes> {
    let mut prefix = data.get(..PREFIX)?;
    let is_compressed = prefix.get_u8() != 0;
    let length = usize::try_from(prefix.get_u32()).ok()?;
    (!is_compressed && length == data.len() - PREFIX).then(|| data.slice(PREFIX..))
}

/// Returns the time for an answer: less than the caller waits, and no more than `most`.
pub fn time_to_answer(headers: &HeaderMap, most: Duration) -> Duration {
    let Some(wait) = headers.get("grpc-timeout").and_then(|value| grpc_timeout(value.to_str().ok()?)) else {
        return most;
    };
    most.min(wait.saturating_sub((wait / 4).min(MARGIN)))
}

/// The time that a request may take to come, so that a client that never ends its requests does not hold memory for them.
pub const BODY: Duration = Duration::from_secs(10);

/// The time for the way of an answer to the caller.
const MARGIN: Duration = Duration::from_millis(5);

/// Reads a time of the protocol: at most eight digits, and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}
