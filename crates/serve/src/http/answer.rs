//! From a request to its answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tollgate::Clock;
use tonic::Status;

use super::write::{not_allowed, text};
use super::{read, write};
use crate::answer::{Answerer, Entry};
use crate::endpoint::Backend;

/// The paths that hold units and settle them.
const RESERVE: &str = "/json/reserve";
const COMMIT: &str = "/json/commit";

const REDIS_AWAY: &str = "OK, but the Redis server cannot be used; the log and the debug pages say why\n";

/// What the HTTP endpoint needs.
pub(super) struct Http {
    pub(super) backend: Backend,
    /// Whether it answers `/json`. Everyone who reaches this endpoint can ask.
    pub(super) has_json: bool,
    /// The longest body, in bytes.
    pub(super) max_message: usize,
    /// The time that an answer may take.
    pub(super) deadline: Duration,
}

impl Http {
    /// Answers a request.
    pub async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match (request.uri().path(), request.method()) {
            ("/healthcheck", &Method::GET | &Method::HEAD) => {
                if self.backend.health.is_serving() {
                    // The service answers without the server, too, so gateways must go on asking it. Everyone who reaches this endpoint
                    // reads the text, so it has no address.
                    let is_away =
                        self.backend.stats.redis.get().is_some_and(|redis| redis.outage().is_some());
                    text(StatusCode::OK, if is_away { REDIS_AWAY } else { "OK" })
                } else {
                    text(StatusCode::INTERNAL_SERVER_ERROR, "not serving")
                }
            }
            ("/healthcheck", _) => not_allowed("GET, HEAD"),
            ("/json" | RESERVE | COMMIT, _) if !self.has_json => text(
                StatusCode::FORBIDDEN,
                "gRPC has TLS here, and this endpoint has none, so it answers /json only if --http names its address\n",
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

    async fn json(&self, entry: Entry<'_>, body: Incoming) -> Response<Full<Bytes>> {
        let too_long = "the body is longer than --max-message allows";
        let body = match read::read_body(body, self.max_message, too_long).await {
            Ok(body) => body,
            Err((status, why)) => return text(status, format!("{why}\n")),
        };
        #[expect(clippy::disallowed_methods, reason = "the caller waits in real time")]
        let deadline = Instant::now() + self.deadline;
        json(&self.backend.answerer, entry, &body, deadline).await.map(Full::new)
    }
}

/// Answers a request in JSON, with the status that fits the answer.
pub async fn json<C: Clock>(
    answerer: &Answerer<C>,
    entry: Entry<'_>,
    body: &[u8],
    deadline: Instant,
) -> Response<Bytes> {
    let answered = match entry {
        Entry::Reserve => reserve(answerer, body, deadline).await,
        Entry::Commit => commit(answerer, body, deadline).await,
        _ => check(answerer, body, deadline).await,
    };
    answered.unwrap_or_else(|status| write::failure(&status))
}

type Answered = Result<Response<Bytes>, Status>;

async fn check<C: Clock>(answerer: &Answerer<C>, body: &[u8], deadline: Instant) -> Answered {
    let answer = answerer.answer(read::message(answerer, Entry::Json, body)?, Entry::Json, deadline).await?;
    Ok(write::json(write::status_of(answer.overall_code), &answer))
}

async fn reserve<C: Clock>(answerer: &Answerer<C>, body: &[u8], deadline: Instant) -> Answered {
    let answer = answerer.reserve(read::message(answerer, Entry::Reserve, body)?, deadline).await?;
    Ok(write::json(write::status_of(answer.code), &answer))
}

async fn commit<C: Clock>(answerer: &Answerer<C>, body: &[u8], deadline: Instant) -> Answered {
    let answer = answerer.commit(read::message(answerer, Entry::Commit, body)?, deadline).await?;
    Ok(write::json(StatusCode::OK, &answer))
}
