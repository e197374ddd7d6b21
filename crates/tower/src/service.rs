//! The path of one request: the service asks the limit, then forwards or denies the request.
//!
//! ```text
//! call ── exempt, or cost 0, or no key and `Missing::Allow` ──► forwarded
//!      ├─ no key and `Missing::Deny`, or several keys ──► the layer responds
//!      └─ the limit decides, at once or awaited
//!           ├─ admitted ── the layer does not need the response ──► forwarded
//!           │           └─ the response needs fields, may refund, or settles ──► forwarded; then the layer reads the ruling
//!           again └─ denied ──► the layer responds
//! ```
//! 1. A limit that decides immediately does so in `call`, on the service that was polled ready. This mode has no state
//!    that waits: those states hold types without values.
//! 2. For a limit that is awaited, the future takes the service that was polled ready. A clone of it stays in the
//!    layer's service for the next request.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate_http::Policy;
use tower_service::Service;

use crate::awaited::AwaitedLimit;
use crate::body::Body;
use crate::head::Head;
use crate::key::KeyExtractor;
use crate::limit::{RequestLimit, Ruling, SoftLimited};
use crate::settings::{LayerSettings, LimitedBy, Screened};
use crate::settle::{RequestEnd, SettleBy};

/// Mode: the limit decides in the service's `call`. The limit is a [`RequestLimit`].
#[derive(Debug)]
pub enum AtOnce {}

/// Mode: the request waits until the limit has decided. The limit is an [`AwaitedLimit`].
#[derive(Debug)]
pub enum Awaited {}

/// A service with limited requests, made by [`RateLimitLayer`](crate::RateLimitLayer). `M` is the mode in which it asks
/// the limit: [`AtOnce`] or [`Awaited`].
pub struct RateLimit<S, L, X: KeyExtractor, M = AtOnce> {
    inner: S,
    settings: Arc<LayerSettings<L, X>>,
    mode: PhantomData<M>,
}

impl<S, L, X: KeyExtractor, M> RateLimit<S, L, X, M> {
    pub(crate) const fn new(inner: S, settings: Arc<LayerSettings<L, X>>) -> Self {
        Self { inner, settings, mode: PhantomData }
    }

    /// Returns the inner service.
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service, mutably.
    pub const fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service, without the limit.
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

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The request goes directly from here to the inner service: each function in between would copy it.
        match self.ask(&mut request) {
            Asked::Admitted => ResponseFuture::forwarding_to(self.inner.call(request), None),
            Asked::Pending(pending) => ResponseFuture::forwarding_to(self.inner.call(request), Some(pending)),
            Asked::Refused(response) => {
                ResponseFuture { state: RequestState::Refused { response: Some(response) } }
            }
            Asked::Later(later, client, cost) => {
                let decision = L::decide(later, self, client, cost, request);
                ResponseFuture { state: RequestState::Deciding { decision } }
            }
        }
    }
}

/// The result of asking a limit in `call`.
enum Asked<S: Service<Request<B>>, B, L: Decide<M, X, S, B>, X: KeyExtractor, M> {
    Admitted,
    /// Admitted, and the layer inspects the response.
    Pending(Pending<L, X, L::Ruling>),
    Refused(Box<Response<Bytes>>),
    /// The limit must be awaited.
    Later(L::Later, LimitedBy<X::Key>, u64),
}

impl<S, L, X: KeyExtractor, M> RateLimit<S, L, X, M> {
    /// Asks the limit. The key and the ruling are dropped here, before the inner service starts, unless the response
    /// needs them.
    #[inline(always)]
    fn ask<B>(&self, request: &mut Request<B>) -> Asked<S, B, L, X, M>
    where
        S: Service<Request<B>>,
        L: Decide<M, X, S, B>,
    {
        let settings = &self.settings;
        let (client, cost) = match settings.screen(Head::of(request)) {
            Screened::Limited(client, cost) => (client, cost),
            Screened::Uncounted => return Asked::Admitted,
            Screened::Refused(response) => return Asked::Refused(response),
        };
        let ruling = match L::ask(&settings.limit, client.key(), cost) {
            Ok(ruling) => ruling,
            Err(later) => return Asked::Later(later, client, cost),
        };
        settings.options.count(&ruling, settings.limit.knows_remaining(), cost);
        match L::refusal(settings, request, &ruling) {
            Some(response) => Asked::Refused(response),
            None if settings.options.reads_responses() || ruling.is_unsettled() => {
                Asked::Pending(Pending::new(settings, client, ruling))
            }
            None => Asked::Admitted,
        }
    }
}

/// A limit as seen by a service in mode `M`.
pub trait Decide<M, X: KeyExtractor, S: Service<Request<B>>, B>: Sized {
    type Ruling: Ruling;
    type Deciding: Future<Output = RequestState<S, B, Self, X, M>>;
    type Refunding: Future<Output = Answered<S::Response, S::Error>>;

    /// Returned for a limit that must be awaited.
    type Later;

    /// Asks the limit, if the limit decides immediately.
    fn ask(&self, key: &X::Key, cost: u64) -> Result<Self::Ruling, Self::Later>;

    /// Asks the limit, waits for the decision, and forwards or denies the request.
    fn decide(
        later: Self::Later,
        service: &mut RateLimit<S, Self, X, M>,
        client: LimitedBy<X::Key>,
        cost: u64,
        request: Request<B>,
    ) -> Self::Deciding;

    /// Refunds the charge and returns the result. If the refund must be awaited, the result returns after it.
    fn refund(
        pending: Pending<Self, X, Self::Ruling>,
        answered: Answered<S::Response, S::Error>,
    ) -> Result<Answered<S::Response, S::Error>, Self::Refunding>;

    fn policies(&self, ruling: &Self::Ruling, tell: &mut dyn FnMut(&[Policy<'_>]));

    fn knows_remaining(&self) -> bool;

    /// Returns the response to a denied request. Marks an admitted request that is beyond its soft limit.
    #[inline]
    fn refusal(
        settings: &LayerSettings<Self, X>,
        request: &mut Request<B>,
        ruling: &Self::Ruling,
    ) -> Option<Box<Response<Bytes>>> {
        if !ruling.is_allowed() {
            let (head, wait) = (Head::of(request), ruling.retry_after());
            return Some(settings.refuse_by(head, wait, |tell| settings.limit.policies(ruling, tell)));
        }
        if ruling.is_soft_limited() {
            request.extensions_mut().insert(SoftLimited);
        }
        None
    }
}

/// A future that is never constructed.
#[derive(Debug)]
pub struct Never<T>(Infallible, PhantomData<fn() -> T>);

impl<T> Future for Never<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        match self.0 {}
    }
}

impl<L: RequestLimit<X::Key>, X: KeyExtractor, S: Service<Request<B>>, B> Decide<AtOnce, X, S, B> for L {
    type Ruling = L::Ruling;
    type Deciding = Never<RequestState<S, B, L, X, AtOnce>>;
    type Refunding = Never<Answered<S::Response, S::Error>>;

    type Later = Infallible;

    #[inline]
    fn ask(&self, key: &X::Key, cost: u64) -> Result<L::Ruling, Infallible> {
        Ok(self.check(key, cost))
    }

    fn decide(
        later: Infallible,
        _: &mut RateLimit<S, L, X, AtOnce>,
        _: LimitedBy<X::Key>,
        _: u64,
        _: Request<B>,
    ) -> Self::Deciding {
        match later {}
    }

    fn refund(
        pending: Pending<L, X, L::Ruling>,
        answered: Answered<S::Response, S::Error>,
    ) -> Result<Answered<S::Response, S::Error>, Self::Refunding> {
        pending.settings.limit.refund(pending.client.key(), &pending.ruling);
        Ok(answered)
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        RequestLimit::policies(self, ruling, tell);
    }

    #[inline]
    fn knows_remaining(&self) -> bool {
        RequestLimit::knows_remaining(self)
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
    type Refunding = Pin<Box<dyn Future<Output = Answered<S::Response, S::Error>> + Send>>;

    type Later = ();

    fn ask(&self, _: &X::Key, _: u64) -> Result<L::Ruling, ()> {
        Err(())
    }

    fn decide(
        (): (),
        service: &mut RateLimit<S, L, X, Awaited>,
        client: LimitedBy<X::Key>,
        cost: u64,
        mut request: Request<B>,
    ) -> Self::Deciding {
        let next = service.inner.clone();
        // The original was polled ready; its clone was not.
        let mut inner = std::mem::replace(&mut service.inner, next);
        let settings = Arc::clone(&service.settings);
        Box::pin(async move {
            let ruling = settings.limit.check(client.key(), cost).await;
            settings.options.count(&ruling, AwaitedLimit::knows_remaining(&*settings.limit), cost);
            match <L as Decide<Awaited, X, S, B>>::refusal(&settings, &mut request, &ruling) {
                Some(response) => RequestState::Refused { response: Some(response) },
                None => RequestState::HandedOn {
                    response: inner.call(request),
                    pending: (settings.options.reads_responses() || ruling.is_unsettled())
                        .then(|| Pending::new(&settings, client, ruling)),
                },
            }
        })
    }

    fn refund(
        pending: Pending<L, X, L::Ruling>,
        answered: Answered<S::Response, S::Error>,
    ) -> Result<Answered<S::Response, S::Error>, Self::Refunding> {
        Err(Box::pin(async move {
            pending.settings.limit.refund(pending.client.key(), &pending.ruling).await;
            answered
        }))
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        AwaitedLimit::policies(self, ruling, tell);
    }

    fn knows_remaining(&self) -> bool {
        AwaitedLimit::knows_remaining(self)
    }
}

/// The result of the inner service, and what remains to be settled when the body ends.
pub(crate) type Answered<R, E> = (Result<R, E>, Option<Box<RequestEnd>>);

/// The work that remains when the response is ready.
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

pin_project! {
    /// The response future of a [`RateLimit`].
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

impl<S, B, L, X, M> ResponseFuture<S, B, L, X, M>
where
    S: Service<Request<B>>,
    L: Decide<M, X, S, B>,
    X: KeyExtractor,
{
    #[inline(always)]
    const fn forwarding_to(response: S::Future, pending: Option<Pending<L, X, L::Ruling>>) -> Self {
        Self { state: RequestState::HandedOn { response, pending } }
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
                    let result = ready!(response.poll(context));
                    let Some(pending) = pending.take() else {
                        return Poll::Ready(result.map(|response| response.map(Body::inner)));
                    };
                    match pending.answer(result) {
                        Ok(answered) => return Poll::Ready(with_end(answered)),
                        Err(refund) => RequestState::Refunding { refund },
                    }
                }
                Projected::Refunding { refund } => {
                    return Poll::Ready(with_end(ready!(refund.poll(context))));
                }
                Projected::Refused { response } => {
                    return match response.take() {
                        Some(response) => Poll::Ready(Ok((*response).map(Body::refusal))),
                        // A caller polled this future again after it was ready. A future may then return anything.
                        None => Poll::Pending,
                    };
                }
            };
            self.as_mut().project().state.set(next);
        }
    }
}

fn with_end<R, E>((result, end): Answered<Response<R>, E>) -> Result<Response<Body<R>>, E> {
    let body = |body| match end {
        Some(end) => Body::unsettled(body, end),
        None => Body::inner(body),
    };
    result.map(|response| response.map(body))
}

impl<L, X: KeyExtractor, R: Ruling> Pending<L, X, R> {
    fn new(settings: &Arc<LayerSettings<L, X>>, client: LimitedBy<X::Key>, ruling: R) -> Self {
        Self { settings: Arc::clone(settings), client, ruling }
    }

    /// Does the work. If a refund must be awaited, the result returns after it. Not inlined, because most responses
    /// have no such work.
    #[inline(never)]
    fn answer<S, B, M, T>(
        mut self,
        mut result: Result<Response<T>, S::Error>,
    ) -> Result<Answered<Response<T>, S::Error>, L::Refunding>
    where
        S: Service<Request<B>, Response = Response<T>>,
        L: Decide<M, X, S, B, Ruling = R>,
    {
        let refunds = self.finish(&mut result);
        let end = self.end(&result, refunds);
        if refunds { L::refund(self, (result, end)) } else { Ok((result, end)) }
    }

    /// Writes the fields. Returns whether to refund the charge.
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

    /// Returns what remains to be settled when the body ends.
    fn end<T, E>(&mut self, result: &Result<Response<T>, E>, refunds: bool) -> Option<Box<RequestEnd>> {
        let mut unsettled = self.ruling.unsettled()?;
        if refunds {
            unsettled.settle(0);
        }
        let response = result.as_ref().ok()?;
        let settle_by = if refunds { &SettleBy::default() } else { &self.settings.options.settle_by };
        Some(Box::new(settle_by.end_of(unsettled, response.headers())))
    }
}

impl<S: Service<Request<B>>, B, L: Decide<M, X, S, B>, X: KeyExtractor, M> fmt::Debug
    for ResponseFuture<S, B, L, X, M>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
