//! The gRPC services: Envoy's, and on request Kuadrant's and reflection.
//!
//! A gateway asks once for each of its requests, and tonic's router and codec would take most of the time of an answer.
//! So a call that is one message in one frame has a short way ([`frame`]). All other calls take tonic's way.

mod frame;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "otlp")]
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use tokio::time::timeout;
use tollgate::Clock;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::service::Routes;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tonic_reflection::server::Builder as Reflection;
use tower_service::Service;

use self::frame::Call;
use super::answer::{Answerer, Entry};
use super::peer::ForPeer;
#[cfg(feature = "otlp")]
use super::proto::Code as OverallCode;
use super::proto::{
    CommitRequest, CommitResponse, DESCRIPTORS, RateLimitRequest, RateLimitResponse, ReserveRequest,
    ReserveResponse,
};

/// What the gRPC face offers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether clients can ask which services and messages there are.
    pub reflection: bool,
    /// Whether Kuadrant's service is offered.
    pub kuadrant: bool,
    /// The longest request, in bytes. A client of a gateway controls the length of values, and an error lets its
    /// request pass, so this must not be less than a gateway can send.
    pub max_message: usize,
    /// The time that an answer may take. A call may set less time.
    pub deadline: Duration,
    /// Other services for reflection: their names and descriptor sets.
    pub others: Vec<(&'static str, &'static [u8])>,
}

impl Default for Options {
    fn default() -> Self {
        let deadline = Duration::from_millis(15);
        Self { reflection: false, kuadrant: false, max_message: 4 << 20, deadline, others: Vec::new() }
    }
}

/// Envoy's service, and the path of its method.
pub const ENVOY: &str = "envoy.service.ratelimit.v3.RateLimitService";
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Kuadrant's service, and the paths of its methods.
pub const KUADRANT: &str = "kuadrant.service.ratelimit.v1.RateLimitService";
pub const CHECK_RATE_LIMIT: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit";
pub const REPORT: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Report";
pub const RESERVE: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Reserve";
pub const COMMIT: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Commit";

/// The paths of all methods that ask for a decision, or report to one.
#[cfg(feature = "otlp")]
pub const PATHS: [&str; 5] = [SHOULD_RATE_LIMIT, CHECK_RATE_LIMIT, REPORT, RESERVE, COMMIT];

/// The decision of a call, for a span around it. The answer alone knows it.
#[cfg(feature = "otlp")]
#[derive(Clone, Debug, Default)]
pub struct Decision(pub Arc<OnceLock<bool>>);

/// All services of the gRPC face. The methods that gateways call have a short way; all others take tonic's router.
#[derive(Debug)]
pub struct Services<C> {
    face: Arc<Face<C>>,
    others: Routes,
}

impl<C> ForPeer for Services<C> {}

impl<C> Clone for Services<C> {
    fn clone(&self) -> Self {
        Self { face: Arc::clone(&self.face), others: self.others.clone() }
    }
}

impl<C: Clock + Send + Sync + 'static> Services<C> {
    /// Creates the services: those of `others`, and what the options ask for.
    ///
    /// # Errors
    /// If a descriptor set for reflection is invalid.
    pub fn new(
        answerer: &Arc<Answerer<C>>,
        options: &Options,
        mut others: Routes,
    ) -> Result<Self, tonic_reflection::server::Error> {
        let Options { max_message, deadline, kuadrant, .. } = *options;
        if options.reflection {
            let reflection = || {
                let mut reflection = Reflection::configure()
                    .register_encoded_file_descriptor_set(DESCRIPTORS)
                    .with_service_name(ENVOY);
                if kuadrant {
                    reflection = reflection.with_service_name(KUADRANT);
                }
                options.others.iter().fold(reflection, |reflection, (name, descriptors)| {
                    reflection.register_encoded_file_descriptor_set(descriptors).with_service_name(*name)
                })
            };
            // Older tools know only the second one.
            others = others.add_service(reflection().build_v1()?).add_service(reflection().build_v1alpha()?);
        }
        let face = Arc::new(Face { answerer: Arc::clone(answerer), max_message, deadline, kuadrant });
        Ok(Self { face, others: others.prepare() })
    }
}

impl<C, B> Service<Request<B>> for Services<C>
where
    C: Clock + Send + Sync + 'static,
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Failure> + Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let entry = match request.uri().path() {
            SHOULD_RATE_LIMIT => Entry::ShouldRateLimit,
            RESERVE if self.face.kuadrant => return self.face.clone().hold::<ReserveRequest, B>(request),
            COMMIT if self.face.kuadrant => return self.face.clone().hold::<CommitRequest, B>(request),
            CHECK_RATE_LIMIT if self.face.kuadrant => Entry::Check,
            REPORT if self.face.kuadrant => Entry::Report,
            _ => return Box::pin(self.others.call(request)),
        };
        let face = Arc::clone(&self.face);
        Box::pin(async move { Ok(face.call(entry, request).await) })
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What the calls of gateways share.
#[derive(Debug)]
struct Face<C> {
    answerer: Arc<Answerer<C>>,
    max_message: usize,
    deadline: Duration,
    kuadrant: bool,
}

impl<C: Clock + Send + Sync + 'static> Face<C> {
    /// Answers a call.
    async fn call<B>(&self, entry: Entry, request: Request<B>) -> Response<Body>
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Failure> + Send,
    {
        let deadline = self.deadline(&request);
        #[cfg(feature = "otlp")]
        let decision = request.extensions().get::<Decision>().cloned();
        match timeout(BODY, frame::read(request, self.max_message)).await {
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
                answered.map_or_else(Status::into_http, |answer| frame::response(&answer))
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
        now + time_to_answer(request.headers(), self.deadline)
    }

    /// Answers a call that holds units or settles them.
    fn hold<Q, B>(
        self: Arc<Self>,
        request: Request<B>,
    ) -> BoxFuture<'static, Result<Response<Body>, Infallible>>
    where
        Q: Question<C>,
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Failure> + Send,
    {
        Box::pin(async move {
            let deadline = self.deadline(&request);
            let entry = Q::ENTRY;
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
        let response = timeout(BODY, grpc.unary(method, request))
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

/// Returns the time for an answer: less than the caller waits, and no more than `most`.
pub fn time_to_answer(headers: &http::HeaderMap, most: Duration) -> Duration {
    let Some(wait) = headers.get("grpc-timeout").and_then(|value| grpc_timeout(value.to_str().ok()?)) else {
        return most;
    };
    most.min(wait.saturating_sub((wait / 4).min(MARGIN)))
}

/// The time that a request may take to come. A client that never ends its requests must not hold memory for them.
pub const BODY: Duration = Duration::from_secs(10);

/// The time for the way of an answer to the caller.
const MARGIN: Duration = Duration::from_millis(5);

/// Reads a time of the protocol: at most eight digits, and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
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
trait Question<C>: prost::Message + Default + 'static {
    /// The method that it comes by, unless there are several.
    const ENTRY: Entry;

    type Answer: prost::Message + 'static;

    fn ask(
        self,
        answerer: &Answerer<C>,
        entry: Entry,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::Answer, Status>> + Send;
}

impl<C: Clock + Send + Sync> Question<C> for RateLimitRequest {
    const ENTRY: Entry = Entry::ShouldRateLimit;

    type Answer = RateLimitResponse;

    async fn ask(self, to: &Answerer<C>, entry: Entry, deadline: Instant) -> Result<Self::Answer, Status> {
        to.answer(self, entry, deadline).await
    }
}

impl<C: Clock + Send + Sync> Question<C> for ReserveRequest {
    const ENTRY: Entry = Entry::Reserve;

    type Answer = ReserveResponse;

    async fn ask(self, to: &Answerer<C>, _: Entry, deadline: Instant) -> Result<Self::Answer, Status> {
        to.reserve(self, deadline).await
    }
}

impl<C: Clock + Send + Sync> Question<C> for CommitRequest {
    const ENTRY: Entry = Entry::Commit;

    type Answer = CommitResponse;

    async fn ask(self, to: &Answerer<C>, _: Entry, deadline: Instant) -> Result<Self::Answer, Status> {
        to.commit(self, deadline).await
    }
}
