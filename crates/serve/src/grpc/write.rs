//! From an answer to its bytes.

use bytes::{BufMut as _, Bytes};
use futures_util::future::ready;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use tonic::body::Body;

use super::PREFIX;
use crate::proto::RateLimitResponse;

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
