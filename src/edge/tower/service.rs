//! One request: asked about, and then handed on or refused.
//!
//! ```text
//! call ── exempt, or of no cost, or without a key that is needed ──► handed on
//!      ── admitted ── nothing to do with the response ──► handed on
//!      │           └─ fields or a refund ──► handed on; then the ruling is looked at again
//!      └─ refused ──► answered
//! ```
//! The decision is made in `call`, on the service that was polled ready; the future is private inside, so that it can have more states.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::key::{Key, Missing};
use super::layer::Settings;
use super::limit::{Limit, Ruling, SoftLimited};
use super::refusal::{GRPC_STATUS, RESOURCE_EXHAUSTED, Refused, Wait};
use super::unknown::Outcome;
use super::{Body, Head};
use crate::edge::http::Policy;

/// A service whose requests are limited; made by [`RateLimitLayer`](super::RateLimitLayer).
pub struct RateLimit<S, L, X: Key> {
    pub(super) inner: S,
    pub(super) settings: Arc<Settings<L, X>>,
}

impl<S, L, X: Key> RateLimit<S, L, X> {
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

impl<S: Clone, L, X: Key> Clone for RateLimit<S, L, X> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<S: fmt::Debug, L: fmt::Debug, X: Key + fmt::Debug> fmt::Debug for RateLimit<S, L, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).field("settings", &self.settings).finish()
    }
}

impl<S, L, X, B, R> Service<Request<B>> for RateLimit<S, L, X>
where
    S: Service<Request<B>, Response = Response<R>>,
    X: Key,
    L: Limit<X::Key>,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, L, X>;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S::Future, L, X> {
        let settings = &*self.settings;
        let (client, cost) = match settings.ask(Head::of(&request)) {
            Asked::Uncounted => return ResponseFuture::handed_on(self.inner.call(request), None),
            Asked::Refused(response) => return ResponseFuture::refused(response),
            Asked::Limited(client, cost) => (client, cost),
        };
        let Some(key) = settings.key_of(&client) else {
            return ResponseFuture::handed_on(self.inner.call(request), None);
        };
        let ruling = settings.limit.check(key, cost);
        if !ruling.is_allowed() {
            return ResponseFuture::refused(settings.refuse_for(Head::of(&request), &ruling));
        }
        if ruling.is_soft_limited() {
            request.extensions_mut().insert(SoftLimited);
        }
        let pending = settings.looks_at_responses().then(|| Pending {
            settings: Arc::clone(&self.settings),
            client,
            ruling,
        });
        ResponseFuture::handed_on(self.inner.call(request), pending)
    }
}

/// By what a request is limited.
pub(super) enum Client<K> {
    Own(K),
    /// The key in [`Missing::Shared`].
    Shared,
}

/// What is known of a request before its limit is asked.
pub(super) enum Asked<K> {
    Uncounted,
    /// By whom, and its cost.
    Limited(Client<K>, u64),
    /// Boxed, so that the future of an admitted request is no larger for it.
    Refused(Box<Response<Bytes>>),
}

impl<L, X: Key> Settings<L, X> {
    #[inline]
    pub(super) fn ask(&self, head: Head<'_>) -> Asked<X::Key> {
        if self.exempt.as_ref().is_some_and(|exempt| exempt(head)) {
            return Asked::Uncounted;
        }
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        if cost == 0 {
            return Asked::Uncounted;
        }
        match (self.key.key(head), &*self.missing) {
            (Some(key), _) => Asked::Limited(Client::Own(key), cost),
            (None, missing) => match self.unknown(head, missing) {
                Outcome::Shared => Asked::Limited(Client::Shared, cost),
                Outcome::Allowed => Asked::Uncounted,
                Outcome::Refused => Asked::Refused(self.refuse(head, &[], None)),
            },
        }
    }

    /// What becomes of a request without a key.
    #[cold]
    fn unknown(&self, head: Head<'_>, missing: &Missing<X::Key>) -> Outcome {
        let outcome = match missing {
            Missing::Deny => Outcome::Refused,
            _ if self.key.is_ambiguous(head) => Outcome::Refused,
            Missing::Allow => Outcome::Allowed,
            Missing::Shared(_) => Outcome::Shared,
        };
        self.unknown.record(outcome);
        outcome
    }

    /// What a client without a key should authenticate by. Credentials do not help one that sends several keys.
    fn challenge(&self, head: Head<'_>) -> Option<HeaderValue> {
        if self.key.is_ambiguous(head) {
            return None;
        }
        match &self.challenge {
            Some(chosen) => chosen.clone(),
            None => self.key.challenge(head),
        }
    }

    pub(super) fn key_of<'k>(&'k self, client: &'k Client<X::Key>) -> Option<&'k X::Key> {
        match (client, &*self.missing) {
            (Client::Own(key), _) | (Client::Shared, Missing::Shared(key)) => Some(key),
            (Client::Shared, Missing::Allow | Missing::Deny) => None,
        }
    }

    /// Whether something is done with the response of an admitted request.
    pub(super) fn looks_at_responses(&self) -> bool {
        self.fields_on_allowed || self.refund.is_some() || self.refund_errors
    }

    /// Whether a response of this status is refunded.
    pub(super) fn refunds(&self, status: StatusCode) -> bool {
        self.refund.as_ref().is_some_and(|refund| refund(status))
    }

    /// Writes the fields of an admitted request, of which `policies` tells.
    pub(super) fn write_fields<R>(
        &self,
        response: &mut Response<R>,
        policies: impl FnOnce(&mut dyn FnMut(&[Policy<'_>])),
    ) {
        if self.fields_on_allowed && !is_refusal(response) {
            let headers = response.headers_mut();
            policies(&mut |policies| self.fields.write_unless_nearer(headers, policies));
        }
    }

    /// The answer to a request that a limit refused, of which `policies` tells.
    #[cold]
    pub(super) fn refuse_by(
        &self,
        head: Head<'_>,
        wait: Option<Duration>,
        policies: impl FnOnce(&mut dyn FnMut(&[Policy<'_>])),
    ) -> Box<Response<Bytes>> {
        let mut response = None;
        policies(&mut |policies| response = Some(self.refuse(head, policies, Some(wait))));
        response.unwrap_or_else(|| self.refuse(head, &[], Some(wait)))
    }

    #[cold]
    fn refuse(&self, head: Head<'_>, policies: &[Policy<'_>], wait: Option<Wait>) -> Box<Response<Bytes>> {
        let (what, challenge) = match wait {
            Some(_) => (None, None),
            None => (self.key.what(), self.challenge(head)),
        };
        let refused = Refused {
            head,
            fields: &self.fields,
            policies,
            wait,
            what: what.as_deref(),
            challenge: challenge.as_ref(),
        };
        let response = match &self.on_refused {
            Some(on_refused) => on_refused(&refused),
            None => refused.response(),
        };
        Box::new(refused.without_body_if_head(response))
    }
}

impl<L: Limit<X::Key>, X: Key> Settings<L, X> {
    #[cold]
    fn refuse_for(&self, head: Head<'_>, ruling: &L::Ruling) -> Box<Response<Bytes>> {
        self.refuse_by(head, ruling.retry_after(), |tell| self.limit.policies(ruling, tell))
    }
}

/// What is done once there is a response.
struct Pending<L: Limit<X::Key>, X: Key> {
    settings: Arc<Settings<L, X>>,
    client: Client<X::Key>,
    ruling: L::Ruling,
}

impl<L: Limit<X::Key>, X: Key> Pending<L, X> {
    fn responded<R>(self, response: &mut Response<R>) {
        let settings = &*self.settings;
        settings.write_fields(response, |tell| settings.limit.policies(&self.ruling, tell));
        if settings.refunds(response.status()) {
            self.refund();
        }
    }

    fn failed(self) {
        if self.settings.refund_errors {
            self.refund();
        }
    }

    fn refund(self) {
        if let Some(key) = self.settings.key_of(&self.client) {
            self.settings.limit.refund(key, &self.ruling);
        }
    }
}

/// Whether somebody further in refused the request, whose fields are to stay.
fn is_refusal<R>(response: &Response<R>) -> bool {
    let headers = response.headers();
    response.status() == StatusCode::TOO_MANY_REQUESTS
        || headers.contains_key(RETRY_AFTER)
        || headers.get(GRPC_STATUS).is_some_and(|status| status == RESOURCE_EXHAUSTED)
}

pin_project! {
    /// The response of a [`RateLimit`].
    pub struct ResponseFuture<F, L: Limit<X::Key>, X: Key> {
        #[pin]
        state: State<F, L, X>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<F, L: Limit<X::Key>, X: Key> {
        HandedOn { #[pin] response: F, pending: Option<Pending<L, X>> },
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

impl<F, L: Limit<X::Key>, X: Key> ResponseFuture<F, L, X> {
    const fn handed_on(response: F, pending: Option<Pending<L, X>>) -> Self {
        Self { state: State::HandedOn { response, pending } }
    }

    const fn refused(response: Box<Response<Bytes>>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }
}

impl<F, R, E, L, X> Future for ResponseFuture<F, L, X>
where
    F: Future<Output = Result<Response<R>, E>>,
    X: Key,
    L: Limit<X::Key>,
{
    type Output = Result<Response<Body<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            Projected::HandedOn { response, pending } => {
                let result = ready!(response.poll(context));
                let pending = pending.take();
                Poll::Ready(match result {
                    Ok(mut response) => {
                        if let Some(pending) = pending {
                            pending.responded(&mut response);
                        }
                        Ok(response.map(Body::inner))
                    }
                    Err(error) => {
                        if let Some(pending) = pending {
                            pending.failed();
                        }
                        Err(error)
                    }
                })
            }
            Projected::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok((*response).map(Body::refusal))),
                // Polled again after it was ready, which a future may answer as it likes.
                None => Poll::Pending,
            },
        }
    }
}

impl<F, L: Limit<X::Key>, X: Key> fmt::Debug for ResponseFuture<F, L, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
