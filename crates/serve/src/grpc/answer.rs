//! From a call to its answer.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
#[cfg(feature = "otlp")]
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use tokio::time::timeout;
use tollgate::Clock;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::read::{self, Call};
use super::{BoxFuture, Failure, write};
use crate::answer::{Answerer, Entry};
#[cfg(feature = "otlp")]
use crate::proto::Code as OverallCode;
use crate::proto::{
    CommitRequest, CommitResponse, RateLimitRequest, RateLimitResponse, ReserveRequest, ReserveResponse,
};

/// The decision of a call, for a span around it. Only the code that answers knows it.
#[cfg(feature = "otlp")]
#[derive(Clone, Debug, Default)]
pub struct Decision(pub Arc<OnceLock<bool>>);

/// What the calls of gateways share.
#[derive(Debug)]
pub(super) struct GrpcCalls<C> {
    pub(super) answerer: Arc<Answerer<C>>,
    pub(super) max_message: usize,
    pub(super) deadline: Duration,
    pub(super) kuadrant: bool,
}

impl<C: Clock + Send + Sync + 'static> GrpcCalls<C> {
    /// Answers a call.
    pub(super) async fn call<B>(&self, entry: Entry, request: Request<B>) -> Response<Body>
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Failure> + Send,
    {
        let deadline = self.deadline(&request);
        #[cfg(feature = "otlp")]
        let decision = request.extensions().get::<Decision>().cloned();
        match timeout(read::BODY, read::call(request, self.max_message)).await {
            Err(_) => {
                self.answerer.meters().undecodable(entry, Code::DeadlineExceeded);
                Status::deadline_exceeded("the request took too long").into_http()
            }
            Ok(Call::Message(message)) => {
                let answered = self.answerer.answer(message, entry, deadline).await;
                #[cfg(feature = "otlp")]
                if let (Some(decision), Ok(answer)) = (decision, &answered) {
                    let _ = decision.0.set(answer.overall_code == OverallCode::OverLimit as i32);
                }
                answered.map_or_else(Status::into_http, |answer| write::response(&answer))
            }
            Ok(Call::Other(request)) => {
                let called = self.call_tonic::<RateLimitRequest>(entry, request, deadline);
                Box::pin(called).await
            }
        }
    }

    fn deadline<B>(&self, request: &Request<B>) -> Instant {
        #[expect(clippy::disallowed_methods, reason = "the caller waits in real time")]
        let now = Instant::now();
        now + read::time_to_answer(request.headers(), self.deadline)
    }

    /// Answers a call that holds units or settles them.
    pub(super) fn hold<Q, B>(
        self: Arc<Self>,
        entry: Entry,
        request: Request<B>,
    ) -> BoxFuture<'static, Result<Response<Body>, Infallible>>
    where
        Q: Question<C>,
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Failure> + Send,
    {
        Box::pin(async move {
            let deadline = self.deadline(&request);
            Ok(self.call_tonic::<Q>(entry, request.map(Body::new), deadline).await)
        })
    }

    /// Answers a call with tonic's codec.
    async fn call_tonic<Q: Question<C>>(
        &self,
        entry: Entry,
        request: Request<Body>,
        deadline: Instant,
    ) -> Response<Body> {
        let mut is_decoded = false;
        let method = Method { answerer: &self.answerer, entry, deadline, is_decoded: &mut is_decoded };
        let codec = ProstCodec::<Q::Answer, Q>::default();
        let mut grpc = Grpc::new(codec).max_decoding_message_size(self.max_message);
        let response = timeout(read::BODY, grpc.unary(method, request))
            .await
            .unwrap_or_else(|_| Status::deadline_exceeded("the request took too long").into_http());
        if !is_decoded {
            let code =
                Status::from_header_map(response.headers()).map_or(Code::Unknown, |status| status.code());
            self.answerer.meters().undecodable(entry, code);
        }
        response
    }
}

/// One call of a method.
struct Method<'a, C> {
    answerer: &'a Answerer<C>,
    entry: Entry,
    deadline: Instant,
    is_decoded: &'a mut bool,
}

impl<'a, C: Clock + Send + Sync, Q: Question<C>> UnaryService<Q> for Method<'a, C> {
    type Response = Q::Answer;
    type Future = BoxFuture<'a, Result<tonic::Response<Q::Answer>, Status>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        *self.is_decoded = true;
        let Self { answerer, entry, deadline, .. } = *self;
        Box::pin(async move {
            request.into_inner().ask(answerer, entry, deadline).await.map(tonic::Response::new)
        })
    }
}

/// A message that has an answer.
pub(super) trait Question<C>: prost::Message + Default + 'static {
    type Answer: prost::Message + 'static;

    fn ask(
        self,
        answerer: &Answerer<C>,
        entry: Entry,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::Answer, Status>> + Send;
}

impl<C: Clock + Send + Sync> Question<C> for RateLimitRequest {
    type Answer = RateLimitResponse;

    async fn ask(self, to: &Answerer<C>, entry: Entry, deadline: Instant) -> Result<Self::Answer, Status> {
        to.answer(self, entry, deadline).await
    }
}

impl<C: Clock + Send + Sync> Question<C> for ReserveRequest {
    type Answer = ReserveResponse;

    async fn ask(self, to: &Answerer<C>, _: Entry, deadline: Instant) -> Result<Self::Answer, Status> {
        to.reserve(self, deadline).await
    }
}

impl<C: Clock + Send + Sync> Question<C> for CommitRequest {
    type Answer = CommitResponse;

    async fn ask(self, to: &Answerer<C>, _: Entry, deadline: Instant) -> Result<Self::Answer, Status> {
        to.commit(self, deadline).await
    }
}
