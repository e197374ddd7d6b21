//! Limits that have to be awaited: those that ask a server.
//!
//! ```text
//! call ── exempt, or of no cost, or without a key that is needed ──► handed on
//!      └─ the limit is awaited ── admitted ──► handed on; the response looked at
//!                              └─ refused ──► answered
//! ```
//! The inner service that was polled ready is taken into the future, and a clone of it waits for the next request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::key::Key;
use super::layer::Settings;
use super::limit::{Named, Ruling, SoftLimited};
use super::service::Asked;
use super::{Body, Head};
use crate::edge::http::Policy;

/// What decides about requests with keys of type `K`, by asking elsewhere. For limits in this process see [`Limit`](super::Limit).
///
/// # Examples
/// A limit of your own, which asks nobody for long:
/// ```
/// use std::time::Duration;
/// use tollgate::tower::{AwaitedLimit, ClientIp, RateLimitLayer, Ruling};
///
/// struct Elsewhere;
/// struct Said(bool);
///
/// impl<K: Sync> AwaitedLimit<K> for Elsewhere {
///     type Ruling = Said;
///     async fn check(&self, _key: &K, _cost: u64) -> Said {
///         tokio::time::sleep(Duration::from_millis(1)).await;
///         Said(true)
///     }
///     async fn refund(&self, _key: &K, _ruling: &Said) {}
/// }
///
/// impl Ruling for Said {
///     fn is_allowed(&self) -> bool {
///         self.0
///     }
///     fn retry_after(&self) -> Option<Duration> {
///         None
///     }
/// }
///
/// let layer = RateLimitLayer::new(Elsewhere, ClientIp::peer()).awaited();
/// # drop(layer);
/// ```
pub trait AwaitedLimit<K: ?Sized>: Send + Sync + 'static {
    /// The answer. It is kept until the response is there, if the request is admitted.
    type Ruling: Ruling + Send + Sync;

    /// Decides about a request of `cost` units, 1 or more, and charges it if it is admitted. Has a time limit of its own: the request
    /// waits for it.
    fn check(&self, key: &K, cost: u64) -> impl Future<Output = Self::Ruling> + Send;

    /// Takes the charge of an admitted request back, as far as that can be done. Called at most once for a ruling, with its key; the
    /// response waits for it.
    fn refund(&self, key: &K, ruling: &Self::Ruling) -> impl Future<Output = ()> + Send;

    /// As [`Limit::policies`](super::Limit::policies).
    fn policies(&self, ruling: &Self::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        let _ = ruling;
        tell(&[]);
    }

    /// As [`Limit::knows_remaining`](super::Limit::knows_remaining).
    fn knows_remaining(&self) -> bool {
        true
    }
}

impl<K: ?Sized + Sync, L: AwaitedLimit<K> + ?Sized> AwaitedLimit<K> for Arc<L> {
    type Ruling = L::Ruling;

    fn check(&self, key: &K, cost: u64) -> impl Future<Output = L::Ruling> + Send {
        (**self).check(key, cost)
    }

    fn refund(&self, key: &K, ruling: &L::Ruling) -> impl Future<Output = ()> + Send {
        (**self).refund(key, ruling)
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        (**self).policies(ruling, tell);
    }

    fn knows_remaining(&self) -> bool {
        (**self).knows_remaining()
    }
}

impl<K: ?Sized + Sync, L: AwaitedLimit<K>> AwaitedLimit<K> for Named<L> {
    type Ruling = L::Ruling;

    fn check(&self, key: &K, cost: u64) -> impl Future<Output = L::Ruling> + Send {
        self.limit.check(key, cost)
    }

    fn refund(&self, key: &K, ruling: &L::Ruling) -> impl Future<Output = ()> + Send {
        self.limit.refund(key, ruling)
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        self.tell(ruling, self.limit.knows_remaining(), tell);
    }

    fn knows_remaining(&self) -> bool {
        self.limit.knows_remaining()
    }
}

/// Limits requests as a [`RateLimitLayer`](super::RateLimitLayer) does, by a limit that is awaited; made by
/// [`RateLimitLayer::awaited`](super::RateLimitLayer::awaited).
///
/// The request waits until the limit has decided. If its client goes away meanwhile it may have been charged, as one that goes away
/// later is.
///
/// # Complexity
/// One allocation for each request, besides what the limit needs.
pub struct AwaitedLayer<L, X: Key> {
    pub(super) settings: Arc<Settings<L, X>>,
}

impl<S, L, X: Key> Layer<S> for AwaitedLayer<L, X> {
    type Service = AwaitedRateLimit<S, L, X>;

    fn layer(&self, inner: S) -> AwaitedRateLimit<S, L, X> {
        AwaitedRateLimit { inner, settings: Arc::clone(&self.settings) }
    }
}

impl<L, X: Key> Clone for AwaitedLayer<L, X> {
    fn clone(&self) -> Self {
        Self { settings: Arc::clone(&self.settings) }
    }
}

impl<L: fmt::Debug, X: Key + fmt::Debug> fmt::Debug for AwaitedLayer<L, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AwaitedLayer").field(&self.settings).finish()
    }
}

/// A service whose requests are limited; made by [`AwaitedLayer`].
pub struct AwaitedRateLimit<S, L, X: Key> {
    inner: S,
    settings: Arc<Settings<L, X>>,
}

impl<S: Clone, L, X: Key> Clone for AwaitedRateLimit<S, L, X> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<S: fmt::Debug, L: fmt::Debug, X: Key + fmt::Debug> fmt::Debug for AwaitedRateLimit<S, L, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitedRateLimit")
            .field("inner", &self.inner)
            .field("settings", &self.settings)
            .finish()
    }
}

impl<S, L, X, B, R> Service<Request<B>> for AwaitedRateLimit<S, L, X>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: Send + 'static,
    X: Key + Send + Sync + 'static,
    X::Key: Send + Sync + 'static,
    L: AwaitedLimit<X::Key>,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body<R>>, S::Error>> + Send>>;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let next = self.inner.clone();
        // That one was polled ready, not its clone.
        let inner = std::mem::replace(&mut self.inner, next);
        Box::pin(limited(inner, Arc::clone(&self.settings), request))
    }
}

async fn limited<S, L, X, B, R>(
    mut inner: S,
    settings: Arc<Settings<L, X>>,
    mut request: Request<B>,
) -> Result<Response<Body<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    X: Key,
    L: AwaitedLimit<X::Key>,
{
    let asked = settings.ask(Head::of(&request));
    let (client, cost) = match asked {
        Asked::Uncounted => return Ok(inner.call(request).await?.map(Body::inner)),
        Asked::Refused(response) => return Ok((*response).map(Body::refusal)),
        Asked::Limited(client, cost) => (client, cost),
    };
    let Some(key) = settings.key_of(&client) else {
        return Ok(inner.call(request).await?.map(Body::inner));
    };
    let ruling = settings.limit.check(key, cost).await;
    if !ruling.is_allowed() {
        let head = Head::of(&request);
        let response =
            settings.refuse_by(head, ruling.retry_after(), |tell| settings.limit.policies(&ruling, tell));
        return Ok((*response).map(Body::refusal));
    }
    if ruling.is_soft_limited() {
        request.extensions_mut().insert(SoftLimited);
    }
    match inner.call(request).await {
        Ok(mut response) => {
            settings.write_fields(&mut response, |tell| settings.limit.policies(&ruling, tell));
            if settings.refunds(response.status()) {
                settings.limit.refund(key, &ruling).await;
            }
            Ok(response.map(Body::inner))
        }
        Err(error) => {
            if settings.refund_errors {
                settings.limit.refund(key, &ruling).await;
            }
            Err(error)
        }
    }
}
