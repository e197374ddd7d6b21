//! The layer and its options: the limit, the key extractor, and the response to denied requests.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tollgate::Quota;
use tollgate::telemetry::Meters;
use tollgate_http::Fields;
use tower_layer::Layer;

use crate::awaited::AwaitedLimit;
use crate::head::Head;
use crate::key::{KeyExtractor, Missing};
use crate::limit::{Named, RequestLimit, Settles};
use crate::refusal::Refused;
use crate::service::{AtOnce, Awaited, RateLimit};
use crate::settings::{LayerOptions, LayerSettings};
use crate::settle::{Count, number};
use crate::unknown::WithoutKey;

/// Limits the requests to a service. A request that the [limit](crate::RequestLimit) denies gets status 429 and does not reach
/// the service.
///
/// All clones of a layer, and all services that they wrap, share one limit. The layer accepts any body type and
/// changes the response's body to a [`Body`](crate::Body). Errors come from the inner service only. The layer never
/// delays a request: it ignores the wait that a queueing algorithm computes
/// ([`Decision::delay`](tollgate::Decision::delay)).
///
/// # Complexity
/// An admitted request costs the key extraction and the check; the layer allocates nothing itself. With [fields on
/// admitted responses](RateLimitLayer::fields_on_allowed), the layer also allocates the field values. A denial
/// allocates its response.
///
/// # Examples
/// ```
/// use http::{Request, StatusCode};
/// use tollgate::{Quota, RateLimiter};
/// use tollgate_tower::{ClientIp, PeerAddr, RateLimitLayer};
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
    /// Creates a layer that applies `limit` to the keys that `key` extracts.
    ///
    /// The limit is a [`RequestLimit`](crate::RequestLimit), or an [`AwaitedLimit`] if the last call on the layer is
    /// [`awaited`](RateLimitLayer::awaited). An [`Arc`] of a limiter works too: keep a clone of it to list, reset or
    /// adjust keys.
    ///
    /// With the feature `metrics`, this registers `tollgate_requests_without_key_total`. Install the recorder first.
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

    /// Sets the name and quota that clients see in `RateLimit-Policy`, `RateLimit` and problem documents. Default:
    /// none. Without a policy, clients only learn when to retry.
    ///
    /// If the limiter's quota [changes](tollgate::Adjustable), clients see the quota in force.
    /// [`Policy::new`](tollgate_http::Policy::new) lists the exceptions.
    ///
    /// A [striped](tollgate::Builder::striped) limiter does not know the remaining quota when it admits a request. Its
    /// clients see the policy on denials only.
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

    /// Sets what happens to requests without a key. Default: the layer denies them ([`Missing::Deny`]), with the status
    /// that [`RateLimitLayer::challenge`] chooses.
    #[must_use]
    pub fn missing(self, missing: Missing<X::Key>) -> Self {
        let missing = match missing {
            Missing::Deny => Missing::Deny,
            Missing::Allow => Missing::Allow,
            Missing::Shared(key) => Missing::Shared(Arc::new(key)),
        };
        self.with(|settings| settings.missing = missing)
    }

    /// Sets the status of the response to a request without a key. With a challenge, the status is 401 and
    /// `WWW-Authenticate` holds the challenge (RFC 9110, 15.5.2); gRPC calls get `UNAUTHENTICATED`. With `None`, the
    /// status is 403, and gRPC calls get `PERMISSION_DENIED`.
    ///
    /// Default: the challenge of the key extractor ([`KeyExtractor::challenge`]). A [`Header`](crate::Header) has a
    /// challenge, because it reads credentials. A [`ClientIp`](crate::ClientIp) and a closure have none. A request that
    /// sends several keys always gets status 403.
    ///
    /// # Examples
    /// ```
    /// use http::{HeaderName, HeaderValue};
    /// use tollgate::{Quota, RateLimiter};
    /// use tollgate_tower::{Header, RateLimitLayer};
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

    /// Returns how many requests had no key so far, by outcome. The counts cover this layer, its clones and all their
    /// services. With the feature `metrics`, the counter `tollgate_requests_without_key_total{outcome}` has the same
    /// numbers.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    /// use tollgate_tower::{ClientIp, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(RateLimiter::new(Quota::per_second(9)), ClientIp::peer());
    /// assert_eq!(layer.without_key().refused, 0);
    /// ```
    #[must_use]
    pub fn without_key(&self) -> WithoutKey {
        self.settings.options.unknown.counts()
    }

    /// Sets which requests are exempt: the layer neither limits them nor extracts their key. Default: none.
    #[must_use]
    pub fn exempt(self, exempt: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.options.exempt = Some(Arc::new(exempt)))
    }

    /// Sets the cost of a request, in units. A request with cost 0 is exempt. Default: 1.
    #[must_use]
    pub fn cost(self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.options.cost = Some(Arc::new(cost)))
    }

    /// Sets which response statuses refund the charge, such as `|status| status.is_server_error()`. Default: none.
    ///
    /// The header fields of a refunded response show the state before the refund. If the client disconnects before the
    /// response, the request stays charged; otherwise a client could avoid the limit by disconnecting early.
    /// [`RateLimitLayer::refund_errors`] covers errors of the inner service. Some limits cannot refund: see
    /// [`RateLimiter::refund`](tollgate::RateLimiter::refund).
    #[must_use]
    pub fn refund(self, refund: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.options.refund = Some(Arc::new(refund)))
    }

    /// Refunds the charge if the inner service returns an error instead of a response. Default: no refund, because
    /// clients can make some services fail.
    #[must_use]
    pub fn refund_errors(self, refund_errors: bool) -> Self {
        self.with(|settings| settings.options.refund_errors = refund_errors)
    }

    /// Sets the dialect of the rate limit header fields. Default: draft 11, on denials only.
    #[must_use]
    pub fn fields(self, fields: Fields) -> Self {
        self.with(|settings| settings.options.fields = fields)
    }

    /// Writes the rate limit fields to admitted responses too, so that clients see their remaining quota. Default:
    /// false.
    ///
    /// The layer writes no fields without a [policy](RateLimitLayer::policy). It also writes none if the limit does not
    /// [know the remaining quota](crate::RequestLimit::knows_remaining), such as a [striped](tollgate::Builder::striped) limiter.
    ///
    /// If an inner layer or the service itself denied the request, the response keeps its fields. The layer recognises
    /// such a response by status 429, by a `Retry-After` field, or by `grpc-status` 8. In dialects that hold one policy,
    /// a response also keeps its fields if they show less remaining quota than this layer would write. In draft 11, the
    /// layer appends its fields.
    #[must_use]
    pub fn fields_on_allowed(self, fields_on_allowed: bool) -> Self {
        self.with(|settings| settings.options.fields_on_allowed = fields_on_allowed)
    }

    /// Counts admitted and denied requests. Default: not counted. With rules, each rule has meters
    /// already.
    ///
    /// Pass the [`Meters`], or an [`Arc`] of them to read the counts later. With the feature `metrics`, they also feed
    /// the counter `tollgate_requests_total{domain, rule, decision}`. Requests that are exempt or have no key are not
    /// counted here; [`RateLimitLayer::without_key`] counts the latter. A refund does not change a count.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::telemetry::Meters;
    /// use tollgate::{Quota, RateLimiter};
    /// use tollgate_tower::{Global, RateLimitLayer};
    ///
    /// let meters = Arc::new(Meters::new("shop", "all-requests")); // the labels `domain` and `rule`
    /// let limiter = RateLimiter::new(Quota::per_second(5_000));
    /// let layer = RateLimitLayer::new(limiter, Global).metered(Arc::clone(&meters));
    /// assert_eq!(meters.counts().denied, 0);
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn metered(self, meters: impl Into<Arc<Meters>>) -> Self {
        let meters = meters.into();
        self.with(|settings| settings.options.meters = Some(meters))
    }

    /// Sets the function that builds the response to denied requests. Default: [`Refused::response`].
    ///
    /// # Examples
    /// ```
    /// use http::StatusCode;
    /// use tollgate::{Quota, RateLimiter};
    /// use tollgate_tower::{ClientIp, RateLimitLayer};
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

    /// Sets the function that returns the `instance` of a denial's [problem document](Refused::problem): a URI reference,
    /// such as a page that explains the limit. Default: none. It is not called for a request without a key.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    /// use tollgate_tower::{ClientIp, RateLimitLayer};
    ///
    /// const PER_CLIENT: Quota = Quota::per_second(9);
    ///
    /// let layer = RateLimitLayer::new(RateLimiter::new(PER_CLIENT), ClientIp::peer())
    ///     .policy("per-client", PER_CLIENT)
    ///     .instance(|refused| {
    ///         let denied = refused.policies().iter().find(|policy| policy.is_violated())?;
    ///         Some(format!("https://docs.example/limits#{}", denied.name()))
    ///     });
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn instance(self, instance: impl Fn(&Refused<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.options.instance = Some(Arc::new(instance)))
    }

    /// Returns the same layer for a limit that must be awaited, such as one that asks a server.
    ///
    /// The request waits until the limit has decided. If its client disconnects during this wait, the request may
    /// already be charged, and it stays charged.
    ///
    /// # Complexity
    /// One allocation for each request and one for each refund, plus the allocations of the limit.
    #[must_use]
    pub fn awaited(self) -> RateLimitLayer<L, X, Awaited>
    where
        L: AwaitedLimit<X::Key>,
    {
        RateLimitLayer { settings: self.settings, mode: PhantomData }
    }
}

/// Costs that the response tells: see [`Holds`](crate::Holds).
impl<L: RequestLimit<X::Key, Ruling: Settles>, X: KeyExtractor, M> RateLimitLayer<L, X, M> {
    /// Charges the cost that a header field of the response tells, instead of the estimate that is held. The field can
    /// also be a trailer, as in gRPC. Its value is a whole number. If the field is missing, occurs twice or is not such a
    /// number, it tells nothing.
    ///
    /// The layer does not remove the field from the response.
    #[must_use]
    pub fn settle_by_header(self, name: HeaderName) -> Self {
        self.settle_by(move |fields| number(fields, &name))
    }

    /// Charges the cost that a function finds in the header fields of the response, or otherwise in its trailers,
    /// instead of the estimate that is held. Replaces [`RateLimitLayer::settle_by_header`].
    ///
    /// A cost in the header fields is charged when the response begins; with rules, when its body has ended.
    #[must_use]
    pub fn settle_by(self, cost: impl Fn(&HeaderMap) -> Option<u64> + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.options.settle_by.fields = Some(Arc::new(cost)))
    }

    /// Charges the cost that a function counts in the body, instead of the estimate that is held. The layer calls `new`
    /// for each response. It passes the data of each frame to the function that `new` returns. This function returns the
    /// cost of all data until now, or `None` as long as it is not known.
    ///
    /// The last cost is charged when the body has ended. If the body breaks off or is dropped early, the client may have
    /// caused it, so the layer charges at least the estimate. A cost in the fields or trailers takes precedence
    /// ([`RateLimitLayer::settle_by`]).
    ///
    /// A frame can end anywhere, also within a line or a character. Data in several parts, as in a chain of buffers, is
    /// copied into one.
    ///
    /// # Examples
    /// Charges the length of the body:
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Quota, RateLimiter};
    /// # use tollgate_tower::{Global, Holds, RateLimitLayer};
    /// let bytes = RateLimiter::new(Quota::per_second(1_000_000)).with_holds(1_000)?;
    /// let layer = RateLimitLayer::new(Holds::new(bytes, Duration::from_secs(60)), Global)
    ///     .cost(|_| 10_000)
    ///     .settle_by_body(|| {
    ///         let mut length = 0;
    ///         move |data| {
    ///             length += data.len() as u64;
    ///             Some(length)
    ///         }
    ///     });
    /// # drop(layer);
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    #[must_use]
    pub fn settle_by_body<F>(self, new: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: FnMut(&[u8]) -> Option<u64> + Send + Sync + 'static,
    {
        let new = move || -> Box<Count> { Box::new(new()) };
        self.with(|settings| settings.options.settle_by.count = Some(Arc::new(new)))
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
