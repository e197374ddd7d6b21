//! A gRPC service with one method, which returns its text: the code that a build script would generate from a
//! `.proto` file. The messages are the bytes of the text.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut};
use http::uri::PathAndQuery;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::NamedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tower::Service;

const METHOD: PathAndQuery = PathAndQuery::from_static("/example.Echo/Say");

/// A codec with texts as messages.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        let text = String::from_utf8(bytes.into()).map_err(|_| Status::invalid_argument("not UTF-8"))?;
        Ok(Some(text))
    }
}

/// The server part.
#[derive(Copy, Clone, Debug)]
pub(crate) struct EchoServer;

impl NamedService for EchoServer {
    const NAME: &'static str = "example.Echo";
}

impl Service<http::Request<tonic::body::Body>> for EchoServer {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() != METHOD.path() {
                return Ok(Status::unimplemented("no such method").into_http());
            }
            let say = tower::service_fn(async |request: Request<String>| match request.into_inner() {
                text if text.is_empty() => Err(Status::invalid_argument("the text is empty")),
                text => Ok(Response::new(text)),
            });
            Ok(tonic::server::Grpc::new(Text).unary(say, request).await)
        })
    }
}

/// The client part.
#[derive(Clone, Debug)]
pub(crate) struct EchoClient(tonic::client::Grpc<Channel>);

impl EchoClient {
    pub(crate) fn new(channel: Channel) -> Self {
        Self(tonic::client::Grpc::new(channel))
    }

    pub(crate) async fn say(&mut self, text: &str) -> Result<String, Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let response = self.0.unary(Request::new(text.to_owned()), METHOD, Text).await?;
        Ok(response.into_inner())
    }
}
