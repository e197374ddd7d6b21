//! An endpoint from a function.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use tower_service::Service;

/// A service from a function.
#[derive(Clone)]
pub struct Handler<F>(pub F);

impl<F, Fut, B> Service<Request<Incoming>> for Handler<F>
where
    F: Fn(Request<Incoming>) -> Fut,
    Fut: Future<Output = Response<B>> + Send + 'static,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let answered = (self.0)(request);
        Box::pin(async move { Ok(answered.await) })
    }
}
