//! The floor of `tollgate serve`: tonic's own server, with the same messages, answers a constant.
//!
//! ```text
//! tollgate-serve-floor ADDRESS ANSWER [CERT KEY]
//! ```
//! ADDRESS is that of a TCP port, or the path of a Unix socket. ANSWER is the message of the answer, in hexadecimal digits. The server reads each request, and encodes the answer again each time.
//! `ci/serve_bench.py` measures it beside `tollgate serve`.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use prost::Message as _;
use tokio::net::{UnixListener, UnixStream};
use tollgate_serve::proto::{RateLimitRequest, RateLimitResponse};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

/// The service, as tonic generates services.
#[derive(Clone)]
struct Constant(Arc<RateLimitResponse>);

impl NamedService for Constant {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<http::Request<Body>> for Constant {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = Method(Arc::clone(&self.0));
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<RateLimitResponse, RateLimitRequest>::default());
            Ok(grpc.unary(method, request).await)
        })
    }
}

struct Method(Arc<RateLimitResponse>);

impl UnaryService<RateLimitRequest> for Method {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, _: Request<RateLimitRequest>) -> Self::Future {
        ready(Ok(Response::new((*self.0).clone())))
    }
}

/// The connections to a Unix socket.
struct Connections(UnixListener);

impl Stream for Connections {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}

fn bytes_of(digits: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| Ok(u8::from_str_radix(str::from_utf8(pair)?, 16)?));
    pairs.collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, answer, files @ ..] = &args[..] else {
        return Err("usage: tollgate-serve-floor ADDRESS ANSWER [CERT KEY]".into());
    };
    let answer = RateLimitResponse::decode(&bytes_of(answer)?[..])?;
    let mut server = Server::builder();
    if let [cert, key] = files {
        let identity = Identity::from_pem(std::fs::read(cert)?, std::fs::read(key)?);
        server = server.tls_config(ServerTlsConfig::new().identity(identity))?;
    }
    let server = server.add_service(Constant(Arc::new(answer)));
    match address.parse() {
        Ok(address) => server.serve(address).await?,
        Err(_) => server.serve_with_incoming(Connections(UnixListener::bind(address)?)).await?,
    }
    Ok(())
}
