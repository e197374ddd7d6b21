//! One request: asked about, and then handed on or refused.
//!
//! ```text
//! call ── exempt, or of no cost, or without a key that is needed ──► handed on
//!      └─ the limit decides, at once or awaited
//!           ├─ admitted ── nothing to do with the response ──► handed on
//!           │           └─ fields or a refund ──► handed on; then the ruling is looked at again
//!           └─ refused ──► answered
//! ```
//! A limit that decides at once does so in `call`, on the service that was polled ready: the states that wait are then uninhabited.
//! A limit that is awaited takes the service that was polled ready into the future, and a clone waits for the next request.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::awaited::AwaitedLimit;
use super::key::KeyExtractor;
use super::limit::{Limit, Ruling, SoftLimited};
use super::settings::{LayerSettings, LimitedBy, Screened};
use super::{Body, Head};
use crate::edge::http::Policy;

/// The limit decides in the service's `call`: a [`Limit`].
#[derive(Debug)]
pub enum AtOnce {}

/// The request waits until the limit has decided: an [`AwaitedLimit`].
#[derive(Debug)]
pub enum Awaited {}

/// A service whose requests are limited; made by [`RateLimitLayer`](super::RateLimitLayer). `M` says how the limit is asked: [`AtOnce`]
/// or [`Awaited`].
pub struct RateLimit<S, L, X: KeyExtractor, M = AtOnce> {
    inner: S,
    settings: Arc<LayerSettings<L, X>>,
    mode: PhantomData<M>,
}

impl<S, L, X: KeyExtractor, M> RateLimit<S, L, X, M> {
    pub(super) const fn new(inner: S, settings: Arc<LayerSettings<L, X>>) -> Self {
        Self { inner, settings, mode: PhantomData }
    }

    /// The inner service.
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub const fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service, no longer limited.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Clone, L, X: KeyExtractor, M> Clone for RateLimit<S, L, X, M> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.settings))
    }
}

impl<S: fmt::Debug, L: fmt::Debug, X: KeyExtractor + fmt::Debug, M> fmt::Debug for RateLimit<S, L, X, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).field("settings", &self.settings).finish()
    }
}

impl<S, L, X, M, B, R> Service<Request<B>> for RateLimit<S, L, X, M>
where
    S: Service<Request<B>, Response = Response<R>>,
    X: KeyExtractor,
    L: Decide<M, X, S, B>,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, L, X, M>;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let state = match self.settings.screen(Head::of(&request)) {
            Screened::Uncounted => {
                RequestState::HandedOn { response: self.inner.call(request), pending: None }
            }
            Screened::Refused(response) => RequestState::Refused { response: Some(response) },
            Screened::Limited(client, cost) => L::decide(self, client, cost, request),
        };
        ResponseFuture { state }
    }
}

/// A limit as a service of mode `M` asks it.
pub trait Decide<M, X: KeyExtractor, S: Service<Request<B>>, B>: Sized {
    type Ruling: Ruling;
    type Deciding: Future<Output = RequestState<S, B, Self, X, M>>;
    type Refunding: Future<Output = Result<S::Response, S::Error>>;

    /// Asks the limit, and hands the request on or refuses it.
    fn decide(
        service: &mut RateLimit<S, Self, X, M>,
        client: LimitedBy<X::Key>,
        cost: u64,
        request: Request<B>,
    ) -> RequestState<S, B, Self, X, M>;

    /// Takes the charge back and returns the result. A refund that is awaited returns it later.
    fn refund(
        pending: Pending<Self, X, Self::Ruling>,
        result: Result<S::Response, S::Error>,
    ) -> Result<Result<S::Response, S::Error>, Self::Refunding>;

    fn policies(&self, ruling: &Self::Ruling, tell: &mut dyn FnMut(&[Policy<'_>]));
}

/// A future that there never is.
#[derive(Debug)]
pub struct Never<T>(Infallible, PhantomData<fn() -> T>);

impl<T> Future for Never<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        match self.0 {}
    }
}

impl<L: Limit<X::Key>, X: KeyExtractor, S: Service<Request<B>>, B> Decide<AtOnce, X, S, B> for L {
    type Ruling = L::Ruling;
    type Deciding = Never<RequestState<S, B, L, X, AtOnce>>;
    type Refunding = Never<Result<S::Response, S::Error>>;

    #[inline]
    fn decide(
        service: &mut RateLimit<S, L, X, AtOnce>,
        client: LimitedBy<X::Key>,
        cost: u64,
        request: Request<B>,
    ) -> RequestState<S, B, L, X, AtOnce> {
        let RateLimit { inner, settings, .. } = service;
        let Some(key) = settings.key_of(&client) else {
            return RequestState::HandedOn { response: inner.call(request), pending: None };
        };
        let ruling = settings.limit.check(key, cost);
        RequestState::ruled(inner, settings, client, ruling, request)
    }

    fn refund(
        pending: Pending<L, X, L::Ruling>,
        result: Result<S::Response, S::Error>,
    ) -> Result<Result<S::Response, S::Error>, Self::Refunding> {
        if let Some(key) = pending.settings.key_of(&pending.client) {
            pending.settings.limit.refund(key, &pending.ruling);
        }
        Ok(result)
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        Limit::policies(self, ruling, tell);
    }
}

impl<L, X, S, B> Decide<Awaited, X, S, B> for L
where
    L: AwaitedLimit<X::Key>,
    X: KeyExtractor,
    X::Key: Send + Sync + 'static,
    S: Service<Request<B>> + Clone + Send + 'static,
    S::Response: Send,
    S::Error: Send,
    B: Send + 'static,
{
    type Ruling = L::Ruling;
    type Deciding = Pin<Box<dyn Future<Output = RequestState<S, B, L, X, Awaited>> + Send>>;
    type Refunding = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn decide(
        service: &mut RateLimit<S, L, X, Awaited>,
        client: LimitedBy<X::Key>,
        cost: u64,
        request: Request<B>,
    ) -> RequestState<S, B, L, X, Awaited> {
        let next = service.inner.clone();
        // That one was polled ready, not its clone.
        let mut inner = std::mem::replace(&mut service.inner, next);
        let settings = Arc::clone(&service.settings);
        let decision = async move {
            let Some(key) = settings.key_of(&client) else {
                return RequestState::HandedOn { response: inner.call(request), pending: None };
            };
            let ruling = settings.limit.check(key, cost).await;
            RequestState::ruled(&mut inner, &settings, client, ruling, request)
        };
        RequestState::Deciding { decision: Box::pin(decision) }
    }

    fn refund(
        pending: Pending<L, X, L::Ruling>,
        result: Result<S::Response, S::Error>,
    ) -> Result<Result<S::Response, S::Error>, Self::Refunding> {
        Err(Box::pin(async move {
            if let Some(key) = pending.settings.key_of(&pending.client) {
                pending.settings.limit.refund(key, &pending.ruling).await;
            }
            result
        }))
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        AwaitedLimit::policies(self, ruling, tell);
    }
}

/// What is done once there is a response.
#[derive(Debug)]
pub struct Pending<L, X: KeyExtractor, R> {
    settings: Arc<LayerSettings<L, X>>,
    client: LimitedBy<X::Key>,
    ruling: R,
}

pin_project! {
    #[project = Projected]
    pub enum RequestState<S, B, L, X, M>
    where
        S: Service<Request<B>>,
        L: Decide<M, X, S, B>,
        X: KeyExtractor,
    {
        Deciding { #[pin] decision: L::Deciding },
        HandedOn { #[pin] response: S::Future, pending: Option<Pending<L, X, L::Ruling>> },
        Refunding { #[pin] refund: L::Refunding },
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

impl<S: Service<Request<B>>, B, L: Decide<M, X, S, B>, X: KeyExtractor, M> RequestState<S, B, L, X, M> {
    /// Does as the limit ruled.
    #[inline]
    fn ruled(
        inner: &mut S,
        settings: &Arc<LayerSettings<L, X>>,
        client: LimitedBy<X::Key>,
        ruling: L::Ruling,
        mut request: Request<B>,
    ) -> Self {
        if !ruling.is_allowed() {
            let (head, wait) = (Head::of(&request), ruling.retry_after());
            let response = settings.refuse_by(head, wait, |tell| settings.limit.policies(&ruling, tell));
            return Self::Refused { response: Some(response) };
        }
        if ruling.is_soft_limited() {
            request.extensions_mut().insert(SoftLimited);
        }
        let pending = settings.options.looks_at_responses().then(|| Pending {
            settings: Arc::clone(settings),
            client,
            ruling,
        });
        Self::HandedOn { response: inner.call(request), pending }
    }
}

pin_project! {
    /// The response of a [`RateLimit`].
    pub struct ResponseFuture<S, B, L, X, M>
    where
        S: Service<Request<B>>,
        L: Decide<M, X, S, B>,
        X: KeyExtractor,
    {
        #[pin]
        state: RequestState<S, B, L, X, M>,
    }
}

impl<S, B, R, L, X, M> Future for ResponseFuture<S, B, L, X, M>
where
    S: Service<Request<B>, Response = Response<R>>,
    L: Decide<M, X, S, B>,
    X: KeyExtractor,
{
    type Output = Result<Response<Body<R>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project().state.project() {
                Projected::Deciding { decision } => ready!(decision.poll(context)),
                Projected::HandedOn { response, pending } => {
                    let mut result = ready!(response.poll(context));
                    if let Some(pending) = pending.take()
                        && pending.finish(&mut result)
                    {
                        match L::refund(pending, result) {
                            Ok(refunded) => result = refunded,
                            Err(refund) => {
                                self.as_mut().project().state.set(RequestState::Refunding { refund });
                                continue;
                            }
                        }
                    }
                    return Poll::Ready(result.map(|response| response.map(Body::inner)));
                }
                Projected::Refunding { refund } => {
                    let result = ready!(refund.poll(context));
                    return Poll::Ready(result.map(|response| response.map(Body::inner)));
                }
                Projected::Refused { response } => {
                    return match response.take() {
                        Some(response) => Poll::Ready(Ok((*response).map(Body::refusal))),
                        // Polled again after it was ready, which a future may answer as it likes.
                        None => Poll::Pending,
                    };
                }
            };
            self.as_mut().project().state.set(next);
        }
    }
}

impl<L, X: KeyExtractor, R> Pending<L, X, R> {
    /// Writes the fields; whether the charge is to be taken back.
    fn finish<S, B, M, T>(&self, result: &mut Result<Response<T>, S::Error>) -> bool
    where
        S: Service<Request<B>, Response = Response<T>>,
        L: Decide<M, X, S, B, Ruling = R>,
    {
        let settings = &*self.settings;
        match result {
            Ok(response) => {
                settings.options.write_fields(response, |tell| settings.limit.policies(&self.ruling, tell));
                settings.options.refunds(response.status())
            }
            Err(_) => settings.options.refund_errors,
        }
    }
}

impl<S: Service<Request<B>>, B, L: Decide<M, X, S, B>, X: KeyExtractor, M> fmt::Debug
    for ResponseFuture<S, B, L, X, M>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
