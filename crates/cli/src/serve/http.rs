//! The HTTP face: `/json` and `/healthcheck`. Also what all faces of plain HTTP share.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;
use tower_service::Service;

use super::answer::{Answerer, Entry};
use super::health::Health;
use super::json;
use super::peer::ForPeer;

/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(10);

/// The paths that hold units and settle them.
const RESERVE: &str = "/json/reserve";
const COMMIT: &str = "/json/commit";

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

impl<F> ForPeer for Handler<F> {}

/// What the HTTP face needs.
#[derive(Debug)]
pub struct Http {
    /// Answers `/json`.
    pub answerer: Arc<Answerer>,
    /// Whether it answers `/json`. Everyone who reaches this face can ask.
    pub has_json: bool,
    /// Answers `/healthcheck`.
    pub health: Health,
    /// The longest body, in bytes.
    pub max_message: usize,
    /// The time that an answer may take.
    pub deadline: Duration,
}

impl Http {
    /// Answers a request.
    pub async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match (request.uri().path(), request.method()) {
            ("/healthcheck", &Method::GET | &Method::HEAD) => {
                if self.health.is_serving() {
                    text(StatusCode::OK, "OK")
                } else {
                    text(StatusCode::INTERNAL_SERVER_ERROR, "not serving")
                }
            }
            ("/healthcheck", _) => not_allowed("GET, HEAD"),
            ("/json" | RESERVE | COMMIT, _) if !self.has_json => text(
                StatusCode::FORBIDDEN,
                "gRPC has TLS here, and this face has none, so it answers /json only if --http names its address\n",
            ),
            ("/json", &Method::POST) => self.json(Entry::Json, request.into_body()).await,
            (RESERVE, &Method::POST) => self.json(Entry::Reserve, request.into_body()).await,
            (COMMIT, &Method::POST) => self.json(Entry::Commit, request.into_body()).await,
            ("/json" | RESERVE | COMMIT, _) => not_allowed("POST"),
            _ => text(
                StatusCode::NOT_FOUND,
                "there is only /json, /json/reserve and /json/commit (POST), and /healthcheck here\n",
            ),
        }
    }

    async fn json(&self, entry: Entry, body: Incoming) -> Response<Full<Bytes>> {
        match timeout(BODY, Limited::new(body, self.max_message).collect()).await {
            Err(_) => text(StatusCode::REQUEST_TIMEOUT, "the body took too long\n"),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                text(StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than --max-message allows\n")
            }
            Ok(Err(_)) => text(StatusCode::BAD_REQUEST, "the body is incomplete\n"),
            Ok(Ok(body)) => {
                #[expect(clippy::disallowed_methods, reason = "the caller waits in real time")]
                let deadline = Instant::now() + self.deadline;
                json::answer(&self.answerer, entry, &body.to_bytes(), deadline).await.map(Full::new)
            }
        }
    }
}

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
