//! The short way of a call: one message in one frame, not compressed. Envoy sends all its calls so.

use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::StreamExt as _;
use futures_util::future::ready;
use futures_util::stream::iter;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use prost::Message as _;
use tonic::body::Body;

use super::Failure;
use crate::serve::proto::{RateLimitRequest, RateLimitResponse};

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// What a call contains.
pub(super) enum Call {
    /// One message.
    Message(RateLimitRequest),
    /// Something else. Nothing of it is lost.
    Other(Request<Body>),
}

/// Reads the first frame of a call.
pub(super) async fn read<B>(request: Request<B>, max_message: usize) -> Call
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Failure> + Send,
{
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

/// Returns an answer as a response with the status OK.
pub(super) fn response(answer: &RateLimitResponse) -> Response<Body> {
    let length = answer.encoded_len();
    let mut data = Vec::with_capacity(PREFIX + length);
    data.put_u8(0);
    // The number of descriptors and the length of names have bounds, so an answer is far shorter.
    data.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    answer.encode_raw(&mut data);
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from(data)).with_trailers(ready(Some(Ok(trailers))));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}
