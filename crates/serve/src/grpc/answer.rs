//! From a call to its answer.

use std::sync::Arc;
#[cfg(feature = "otlp")]
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use http::{Request, Response};
use tokio::time::timeout;
use tollgate::Clock;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::read::{self, Call};
use super::write;
use crate::answer::{Answerer, Entry};
use crate::connections::HttpBody;
#[cfg(feature = "otlp")]
use crate::proto::Code as OverallCode;
use crate::proto::{CommitRequest, RateLimitRequest, ReserveRequest};

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
    pub(super) async fn call(&self, entry: Entry<'_>, request: Request<impl HttpBody>) -> Response<Body> {
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
                let ask = |message: RateLimitRequest| self.answerer.answer(message, entry, deadline);
                Box::pin(self.call_tonic(entry, request, ask)).await
            }
        }
    }

    fn deadline<B>(&self, request: &Request<B>) -> Instant {
        #[expect(clippy::disallowed_methods, reason = "the caller waits in real time")]
        let now = Instant::now();
        now + read::time_to_answer(request.headers(), self.deadline)
    }

    /// Answers a call that holds units.
    pub(super) async fn reserve(&self, request: Request<impl HttpBody>) -> Response<Body> {
        let deadline = self.deadline(&request);
        let ask = |message: ReserveRequest| self.answerer.reserve(message, deadline);
        self.call_tonic(Entry::Reserve, request, ask).await
    }

    /// Answers a call that settles units.
    pub(super) async fn commit(&self, request: Request<impl HttpBody>) -> Response<Body> {
        let deadline = self.deadline(&request);
        let ask = |message: CommitRequest| self.answerer.commit(message, deadline);
        self.call_tonic(Entry::Commit, request, ask).await
    }

    /// Answers a call with tonic's codec.
    async fn call_tonic<Q, A, F>(
        &self,
        entry: Entry<'_>,
        request: Request<impl HttpBody>,
        ask: impl Fn(Q) -> F,
    ) -> Response<Body>
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + 'static,
        F: Future<Output = Result<A, Status>>,
    {
        let mut is_decoded = false;
        let method = service_fn(|request: tonic::Request<Q>| {
            is_decoded = true;
            let asked = ask(request.into_inner());
            async { asked.await.map(tonic::Response::new) }
        });
        let mut grpc = Grpc::new(ProstCodec::<A, Q>::default()).max_decoding_message_size(self.max_message);
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
