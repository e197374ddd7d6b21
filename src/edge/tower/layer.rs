//! The layer: what is limited, by what, and what is said.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use tower_layer::Layer;

use super::awaited::AwaitedLimit;
use super::head::Head;
use super::key::{KeyExtractor, Missing};
use super::limit::Named;
use super::refusal::Refused;
use super::service::{AtOnce, Awaited, RateLimit};
use super::settings::{LayerOptions, LayerSettings};
use super::unknown::WithoutKey;
use crate::base::quota::Quota;
use crate::edge::http::Fields;

/// Limits requests to a service: those that the [limit](super::Limit) does not admit are answered with status 429 and do not reach it.
///
/// Clones, and all services that they are laid on, share the limit. Takes any body; a response's becomes a
/// [`Body`](super::Body). Errors are the inner service's. Waits for nothing: a request whose turn comes later by a queueing
/// algorithm ([`Decision::delay`](crate::Decision::delay)) goes at once.
///
/// # Complexity
/// A request that is admitted costs the key and the check, and allocates nothing beyond those two; with
/// [fields on it](RateLimitLayer::fields_on_allowed), their values. A refusal allocates its response.
///
/// # Examples
/// ```
/// use http::{Request, StatusCode};
/// use tollgate::tower::{ClientIp, PeerAddr, RateLimitLayer};
/// use tollgate::{Quota, RateLimiter};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// const PER_CLIENT: Quota = Quota::per_minute(2);
///
/// let layer = RateLimitLayer::new(RateLimiter::new(PER_CLIENT), ClientIp::peer())
///     .policy("per-client", PER_CLIENT)
///     .exempt(|head| head.path() == "/health");
/// let service = ServiceBuilder::new().layer(layer).service(service_fn(async |_request: Request<String>| {
///     Ok::<_, std::convert::Infallible>(http::Response::new("hello".to_owned()))
/// }));
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// for expected in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
///     let request = Request::builder().extension(PeerAddr("203.0.113.7:80".parse()?)).body(String::new())?;
///     let response = service.clone().oneshot(request).await?;
///     assert_eq!(response.status(), expected);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RateLimitLayer<L, X: KeyExtractor, M = AtOnce> {
    settings: Arc<LayerSettings<L, X>>,
    mode: PhantomData<M>,
}

impl<L, X: KeyExtractor> RateLimitLayer<L, X> {
    /// A layer of this limit, for keys by `key`. An [`Arc`] of a limiter is one too: keep the other to list, reset or adjust.
    ///
    /// The limit is a [`Limit`](super::Limit), or an [`AwaitedLimit`] if the layer ends with [`awaited`](RateLimitLayer::awaited).
    ///
    /// With feature `metrics` this registers `tollgate_requests_without_key_total`: install the recorder before.
    #[must_use]
    pub fn new(limit: L, key: X) -> Self {
        Self {
            settings: Arc::new(LayerSettings {
                limit: Arc::new(limit),
                key: Arc::new(key),
                missing: Missing::Deny,
                options: LayerOptions::default(),
            }),
            mode: PhantomData,
        }
    }
}

impl<L, X: KeyExtractor, M> RateLimitLayer<L, X, M> {
    fn with(mut self, set: impl FnOnce(&mut LayerSettings<L, X>)) -> Self {
        set(Arc::make_mut(&mut self.settings));
        self
    }

    /// Names the limit, and says its quota: what clients are told in `RateLimit-Policy`, `RateLimit` and problem documents. Without,
    /// they are told when to come back only. Default: without.
    ///
    /// If the limiter's quota [changes](crate::Adjustable), clients are told the one that is in force, with the exceptions that
    /// [`Policy::new`](crate::edge::http::Policy::new) names.
    ///
    /// A [striped](crate::Builder::striped) limiter does not know what is left where it admits: its clients are told of it on
    /// refusals only.
    #[must_use]
    pub fn policy(
        self,
        name: impl Into<Cow<'static, str>>,
        quota: Quota,
    ) -> RateLimitLayer<Named<Arc<L>>, X, M> {
        let settings = Arc::unwrap_or_clone(self.settings);
        RateLimitLayer {
            settings: Arc::new(LayerSettings {
                limit: Arc::new(Named::new(name, quota, settings.limit)),
                key: settings.key,
                missing: settings.missing,
                options: settings.options,
            }),
            mode: PhantomData,
        }
    }

    /// What happens to requests without a key. Default: they are refused ([`Missing::Deny`]), with the status that
    /// [`RateLimitLayer::challenge`] chooses.
    #[must_use]
    pub fn missing(self, missing: Missing<X::Key>) -> Self {
        let missing = match missing {
            Missing::Deny => Missing::Deny,
            Missing::Allow => Missing::Allow,
            Missing::Shared(key) => Missing::Shared(Arc::new(key)),
        };
        self.with(|settings| settings.missing = missing)
    }

    /// How a request without a key is refused. With a challenge the answer is status 401, and `WWW-Authenticate` holds the
    /// challenge (RFC 9110, 15.5.2); gRPC calls get `UNAUTHENTICATED`. With `None` it is status 403, and `PERMISSION_DENIED`.
    ///
    /// Default: what the key says ([`KeyExtractor::challenge`]). A [`Header`](super::Header) has a challenge, since it reads credentials; a
    /// [`ClientIp`](super::ClientIp) and a closure have none. A request that sends several keys is refused with status 403 always.
    ///
    /// # Examples
    /// ```
    /// use http::{HeaderName, HeaderValue};
    /// use tollgate::tower::{Header, RateLimitLayer};
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let by_key = Header::new(HeaderName::from_static("x-api-key"));
    /// let challenge = HeaderValue::from_static("ApiKey realm=\"search\"");
    /// let layer = RateLimitLayer::new(RateLimiter::new(Quota::per_second(9)), by_key).challenge(Some(challenge));
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn challenge(self, challenge: Option<HeaderValue>) -> Self {
        self.with(|settings| settings.options.challenge = Some(challenge))
    }

    /// How many requests had no key so far, and what became of them: of this layer, its clones and their services together. With feature
    /// `metrics` they are counted by `tollgate_requests_without_key_total{outcome}` too.
    ///
    /// # Examples
    /// ```
    /// use tollgate::tower::{ClientIp, RateLimitLayer};
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let layer = RateLimitLayer::new(RateLimiter::new(Quota::per_second(9)), ClientIp::peer());
    /// assert_eq!(layer.without_key().refused, 0);
    /// ```
    #[must_use]
    pub fn without_key(&self) -> WithoutKey {
        self.settings.options.unknown.counts()
    }

    /// Requests that are not limited, and not asked for a key. Default: none.
    #[must_use]
    pub fn exempt(self, exempt: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.options.exempt = Some(Arc::new(exempt)))
    }

    /// What a request costs, in units. One that costs nothing is exempt. Default: 1.
    #[must_use]
    pub fn cost(self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.options.cost = Some(Arc::new(cost)))
    }

    /// Takes charges back by the status of the response: `|status| status.is_server_error()`. Default: never.
    ///
    /// A response that is refunded carries the fields that were true before. A request whose client goes away before there is a
    /// response stays charged, as otherwise nobody would be limited who hangs up soon enough. For errors of the inner service
    /// see [`RateLimitLayer::refund_errors`]. Some limits give nothing back: see [`RateLimiter::refund`](crate::RateLimiter::refund).
    #[must_use]
    pub fn refund(self, refund: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.options.refund = Some(Arc::new(refund)))
    }

    /// Takes charges back if the inner service fails, so that there is no response. Default: it does not, since clients can make
    /// some services fail.
    #[must_use]
    pub fn refund_errors(self, refund_errors: bool) -> Self {
        self.with(|settings| settings.options.refund_errors = refund_errors)
    }

    /// How header fields are written. Default: as in draft 11, on refusals only.
    #[must_use]
    pub fn fields(self, fields: Fields) -> Self {
        self.with(|settings| settings.options.fields = fields)
    }

    /// Writes the fields of admitted requests too, so that clients know how much they have left. Default: false.
    ///
    /// There are none without a [policy](RateLimitLayer::policy), and none of a limit that does not
    /// [know what is left](super::Limit::knows_remaining), such as a [striped](crate::Builder::striped) limiter.
    ///
    /// A response that is a refusal already, by another layer further in or by the service itself, keeps the fields that it has: those
    /// of status 429, with a `Retry-After`, or with `grpc-status` 8. So does, in dialects that hold one policy, a response whose fields
    /// say that less is left than this layer would say. In draft 11 ours are appended.
    #[must_use]
    pub fn fields_on_allowed(self, fields_on_allowed: bool) -> Self {
        self.with(|settings| settings.options.fields_on_allowed = fields_on_allowed)
    }

    /// What is answered to requests that are refused. Default: [`Refused::response`].
    ///
    /// # Examples
    /// ```
    /// use http::StatusCode;
    /// use tollgate::tower::{ClientIp, RateLimitLayer};
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let layer = RateLimitLayer::new(RateLimiter::new(Quota::per_second(9)), ClientIp::peer())
    ///     .on_refused(|refused| {
    ///         let mut response = refused.response();
    ///         *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    ///         response
    ///     });
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn on_refused(
        self,
        on_refused: impl Fn(&Refused<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.options.on_refused = Some(Arc::new(on_refused)))
    }

    /// The same layer of a limit that is awaited: one that asks a server.
    ///
    /// The request waits until the limit has decided. If its client goes away meanwhile it may have been charged, as one that goes away
    /// later is.
    ///
    /// # Complexity
    /// One allocation for each request, and one for a refund, besides what the limit needs.
    #[must_use]
    pub fn awaited(self) -> RateLimitLayer<L, X, Awaited>
    where
        L: AwaitedLimit<X::Key>,
    {
        RateLimitLayer { settings: self.settings, mode: PhantomData }
    }
}

impl<S, L, X: KeyExtractor, M> Layer<S> for RateLimitLayer<L, X, M> {
    type Service = RateLimit<S, L, X, M>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.settings))
    }
}

impl<L, X: KeyExtractor, M> Clone for RateLimitLayer<L, X, M> {
    fn clone(&self) -> Self {
        Self { settings: Arc::clone(&self.settings), mode: PhantomData }
    }
}

impl<L: fmt::Debug, X: KeyExtractor + fmt::Debug, M> fmt::Debug for RateLimitLayer<L, X, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitLayer").field(&self.settings).finish()
    }
}
