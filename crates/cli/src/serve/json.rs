//! `/json`, `/json/reserve` and `/json/commit`: requests and answers as proto3 JSON.

use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tollgate::Clock;
use tonic::{Code, Status};

use super::answer::{Answerer, Entry};
use super::proto::{self, Object};

/// Answers a request in JSON, with the status that fits the answer.
pub async fn answer<C: Clock>(
    answerer: &Answerer<C>,
    entry: Entry,
    body: &[u8],
    deadline: Instant,
) -> Response<Bytes> {
    let answered = match entry {
        Entry::Reserve => reserve(answerer, body, deadline).await,
        Entry::Commit => commit(answerer, body, deadline).await,
        _ => check(answerer, body, deadline).await,
    };
    answered.unwrap_or_else(|status| failure(&status))
}

type Answered = Result<Response<Bytes>, Status>;

async fn check<C: Clock>(answerer: &Answerer<C>, body: &[u8], deadline: Instant) -> Answered {
    let answer = answerer.answer(read(answerer, Entry::Json, body)?, Entry::Json, deadline).await?;
    Ok(response(status_of(answer.overall_code), &answer))
}

async fn reserve<C: Clock>(answerer: &Answerer<C>, body: &[u8], deadline: Instant) -> Answered {
    let answer = answerer.reserve(read(answerer, Entry::Reserve, body)?, deadline).await?;
    Ok(response(status_of(answer.code), &answer))
}

async fn commit<C: Clock>(answerer: &Answerer<C>, body: &[u8], deadline: Instant) -> Answered {
    let answer = answerer.commit(read(answerer, Entry::Commit, body)?, deadline).await?;
    Ok(response(StatusCode::OK, &answer))
}

/// Reads the message of a request.
fn read<C: Clock, T: DeserializeOwned>(
    answerer: &Answerer<C>,
    entry: Entry,
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

/// Returns the status of an answer with this code.
fn status_of(code: i32) -> StatusCode {
    match proto::Code::try_from(code) {
        Ok(proto::Code::Ok) => StatusCode::OK,
        Ok(proto::Code::OverLimit) => StatusCode::TOO_MANY_REQUESTS,
        Ok(proto::Code::Unknown) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the response to a request without an answer, with the JSON form of gRPC's status.
fn failure(status: &Status) -> Response<Bytes> {
    #[derive(Serialize)]
    struct Failure<'a> {
        code: i32,
        message: &'a str,
    }

    let code = match status.code() {
        Code::InvalidArgument | Code::Unimplemented => StatusCode::BAD_REQUEST,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    response(code, &Failure { code: status.code().into(), message: status.message() })
}

fn response(code: StatusCode, body: &impl Serialize) -> Response<Bytes> {
    // Writing to memory fails only for maps with odd keys, and there are none.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
