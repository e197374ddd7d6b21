//! In place of `traces`, in a program without the feature `otlp`.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use tower_service::Service;

use super::connections::Listening;
use super::stats::Stats;
use crate::flags::process::ServeProcess;
use tollgate_report::error::Error;

/// Checks nothing.
///
/// # Errors
/// Never.
#[expect(clippy::unnecessary_wraps, reason = "with spans, this can fail")]
pub fn check(_args: &ServeProcess) -> Result<(), Error> {
    Ok(())
}

/// No spans.
#[derive(Clone, Debug)]
pub struct Traces;

impl Traces {
    /// Starts nothing.
    #[expect(clippy::unnecessary_wraps, reason = "with spans, this can fail")]
    pub fn start(_args: &ServeProcess, _stats: &Arc<Stats>) -> Result<Self, Error> {
        Ok(Self)
    }

    /// Serves an endpoint.
    #[expect(clippy::unused_self, reason = "with spans, this needs the tracer")]
    pub fn spawn<S, B>(&self, listening: Listening, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        tokio::spawn(listening.serve(move |_, _| service.clone()));
    }

    /// Ends nothing.
    pub async fn end(self) {}
}
