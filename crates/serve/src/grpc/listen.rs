//! The services of the endpoint, and which way a call takes.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use tollgate::Clock;
use tonic::body::Body;
use tonic::service::Routes;
use tonic_reflection::server::Builder as Reflection;
use tower::Service;

use super::answer::GrpcCalls;
use crate::answer::{Answerer, Entry};
use crate::connections::HttpBody;
use crate::proto::DESCRIPTORS;

/// What the gRPC endpoint offers.
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

/// All services of the gRPC endpoint. The methods that gateways call have a short way; all others take tonic's router.
#[derive(Debug)]
pub struct Services<C> {
    calls: Arc<GrpcCalls<C>>,
    others: Routes,
}

impl<C> Clone for Services<C> {
    fn clone(&self) -> Self {
        Self { calls: Arc::clone(&self.calls), others: self.others.clone() }
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
        let calls = Arc::new(GrpcCalls { answerer: Arc::clone(answerer), max_message, deadline, kuadrant });
        Ok(Self { calls, others: others.prepare() })
    }
}

impl<C: Clock + Send + Sync + 'static, B: HttpBody> Service<Request<B>> for Services<C> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let entry = match request.uri().path() {
            SHOULD_RATE_LIMIT => Entry::ShouldRateLimit,
            RESERVE if self.calls.kuadrant => Entry::Reserve,
            COMMIT if self.calls.kuadrant => Entry::Commit,
            CHECK_RATE_LIMIT if self.calls.kuadrant => Entry::Check,
            REPORT if self.calls.kuadrant => Entry::Report,
            _ => return Box::pin(self.others.call(request)),
        };
        let calls = Arc::clone(&self.calls);
        match entry {
            Entry::Reserve => Box::pin(async move { Ok(calls.reserve(request).await) }),
            Entry::Commit => Box::pin(async move { Ok(calls.commit(request).await) }),
            _ => Box::pin(async move { Ok(calls.call(entry, request).await) }),
        }
    }
}
