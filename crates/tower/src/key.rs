//! Key extractors: how the layer gets the key of a request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Method};

use crate::head::Head;

/// Extracts the key of a request. Requests with equal keys share a limit.
///
/// Implemented by [`ClientIp`](crate::ClientIp), [`Header`], [`Route`], [`Global`], closures `Fn(Head<'_>) ->
/// Option<K>` ([`key_fn`] infers their types), and pairs of these. A pair has a key if both members have one.
///
/// # Examples
/// ```
/// use tollgate_tower::{ClientIp, KeyExtractor, key_fn};
///
/// #[derive(Clone)]
/// struct Tenant(u64);
///
/// fn keyed<X: KeyExtractor>(_: X) {}
/// keyed(key_fn(|head| head.extensions().get::<Tenant>().map(|tenant| tenant.0)));
/// keyed((ClientIp::peer(), key_fn(|head| Some(head.method().clone()))));
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// The type of the key.
    type Key;

    /// Returns the key of a request, or `None` if it has none. [`Missing`] decides what happens to a request without a
    /// key.
    fn key(&self, head: Head<'_>) -> Option<Self::Key>;

    /// Whether a request without a key sends several keys. The layer denies such a request whatever [`Missing`] is,
    /// because a client can send several keys on purpose. Default: no.
    fn is_ambiguous(&self, head: Head<'_>) -> bool {
        let _ = head;
        false
    }

    /// Names the missing key in the response to a request without one: *This request has no …*. Clients and operators
    /// read this text. Default: a text that reveals nothing about the server.
    fn what(&self, head: Head<'_>) -> Option<Cow<'_, str>> {
        let _ = head;
        None
    }

    /// Returns how a client without a key should authenticate: the value of `WWW-Authenticate` in a response with
    /// status 401. Returns `None` if credentials would not help; the status is then 403. Default: `None`.
    /// [`RateLimitLayer::challenge`](crate::RateLimitLayer::challenge) overrides it.
    fn challenge(&self, head: Head<'_>) -> Option<HeaderValue> {
        let _ = head;
        None
    }
}

impl<F, K> KeyExtractor for F
where
    F: Fn(Head<'_>) -> Option<K> + Send + Sync + 'static,
{
    type Key = K;

    #[inline]
    fn key(&self, head: Head<'_>) -> Option<K> {
        self(head)
    }
}

impl<X: KeyExtractor, Y: KeyExtractor> KeyExtractor for (X, Y) {
    type Key = (X::Key, Y::Key);

    fn key(&self, head: Head<'_>) -> Option<Self::Key> {
        Some((self.0.key(head)?, self.1.key(head)?))
    }

    fn is_ambiguous(&self, head: Head<'_>) -> bool {
        self.0.is_ambiguous(head) || self.1.is_ambiguous(head)
    }

    /// Names the first missing key of the pair.
    fn what(&self, head: Head<'_>) -> Option<Cow<'_, str>> {
        if self.0.key(head).is_none() { self.0.what(head) } else { self.1.what(head) }
    }

    /// Names the first missing key of the pair.
    fn challenge(&self, head: Head<'_>) -> Option<HeaderValue> {
        if self.0.key(head).is_none() { self.0.challenge(head) } else { self.1.challenge(head) }
    }
}

/// Turns a closure into a [`KeyExtractor`] without type annotations. Returns the closure unchanged.
///
/// A closure that is passed directly to [`RateLimitLayer::new`](crate::RateLimitLayer::new) must name its argument's
/// type, `|head: Head<'_>| …`. The compiler does not infer it from the trait [`KeyExtractor`].
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter};
/// use tollgate_tower::{RateLimitLayer, key_fn};
///
/// let by_host = key_fn(|head| Some(head.uri().host()?.to_owned()));
/// let layer = RateLimitLayer::new(RateLimiter::new(Quota::per_second(100)), by_host);
/// # drop(layer);
/// ```
pub const fn key_fn<F, K>(key: F) -> F
where
    F: Fn(Head<'_>) -> Option<K> + Send + Sync + 'static,
{
    key
}

/// What the layer does with requests that have no key.
///
/// # Examples
/// ```
/// use http::HeaderName;
/// use tollgate::{Quota, RateLimiter};
/// use tollgate_tower::{Header, Missing, RateLimitLayer};
///
/// // Our own proxy always writes this key. Only the proxy's own requests, such as probes, come without it.
/// let by_tenant = Header::new(HeaderName::from_static("x-tenant"));
/// let layer = RateLimitLayer::new(RateLimiter::new(Quota::per_second(100)), by_tenant).missing(Missing::Allow);
/// assert_eq!(layer.without_key().allowed, 0);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Missing<K> {
    /// Denies them. This is the default because it makes a wrong server setup visible: no request is unlimited, and no
    /// two clients share a limit by accident.
    #[default]
    Deny,
    /// Admits them without counting. A client that can send requests without a key has no limit. Choose this only if
    /// clients cannot do so, for example if your own proxy always writes the key's field. (A field that is sent several
    /// times is still denied: see [`Header`].)
    Allow,
    /// Limits them together under this key. A client that can send requests without a key can use up this limit for all
    /// other requests without a key.
    Shared(K),
}

/// One key for all requests: they share one limit.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter};
/// use tollgate_tower::{Global, RateLimitLayer};
///
/// let layer = RateLimitLayer::new(RateLimiter::new(Quota::per_second(5_000)), Global);
/// # drop(layer);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Global;

impl KeyExtractor for Global {
    type Key = ();

    #[inline]
    fn key(&self, _head: Head<'_>) -> Option<()> {
        Some(())
    }
}

/// Uses the value of a header field, such as an API key, as the key.
///
/// - A request without the field has no key. If the layer denies it, the response has status 401 with a challenge
///   ([`RateLimitLayer::challenge`](crate::RateLimitLayer::challenge)).
/// - A request that has the field several times has no key either. The layer also denies it under [`Missing::Allow`]
///   and [`Missing::Shared`], because the service that checks the value may read a different one of them.
///
/// Clients write header fields. If the server does not check the value, a client can use a new key for each request.
/// Put the layer behind the check, or limit addresses too. The layer does not limit the length of a value; only the
/// server does. A keyed limiter stores the whole value; a compact limiter stores its hash.
///
/// # Examples
/// ```
/// use http::{HeaderName, Request};
/// use tollgate_tower::{Head, Header, KeyExtractor};
///
/// let by_key = Header::new(HeaderName::from_static("x-api-key"));
/// let request = Request::get("/").header("x-api-key", "k7").body(()).unwrap();
/// assert_eq!(by_key.key(Head::of(&request)).unwrap().as_bytes(), b"k7");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    name: HeaderName,
}

impl Header {
    /// Uses the header field with this name.
    #[must_use]
    pub const fn new(name: HeaderName) -> Self {
        Self { name }
    }
}

impl KeyExtractor for Header {
    type Key = HeaderKey;

    fn key(&self, head: Head<'_>) -> Option<HeaderKey> {
        head.only(&self.name).cloned().map(HeaderKey)
    }

    fn is_ambiguous(&self, head: Head<'_>) -> bool {
        head.headers().get_all(&self.name).iter().nth(1).is_some()
    }

    fn what(&self, _head: Head<'_>) -> Option<Cow<'_, str>> {
        Some(format!("header field {}, or has it several times", self.name).into())
    }

    /// `Bearer realm="api"` for `Authorization` (RFC 6750), and `ApiKey in="header", name="x-api-key"` for other
    /// fields, here `x-api-key`. The `ApiKey` scheme is in use for API keys, but it is not registered.
    fn challenge(&self, _head: Head<'_>) -> Option<HeaderValue> {
        if self.name == AUTHORIZATION {
            return Some(HeaderValue::from_static("Bearer realm=\"api\""));
        }
        // A field name is a token and needs no escapes.
        HeaderValue::try_from(format!("ApiKey in=\"header\", name=\"{}\"", self.name)).ok()
    }
}

/// The key of [`Header`]: the value of the field, which may hold any bytes.
///
/// The key shares the request's memory. A clone owns its memory. So the clone that a keyed limiter stores does not keep
/// the server's request buffer alive.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct HeaderKey(HeaderValue);

impl HeaderKey {
    /// Returns the bytes of the value.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Clone for HeaderKey {
    fn clone(&self) -> Self {
        // These bytes come from a valid header value, so the conversion cannot fail.
        Self(HeaderValue::from_bytes(self.0.as_bytes()).unwrap_or_else(|_| self.0.clone()))
    }
}

type Normalise = dyn for<'p> Fn(&'p str) -> Cow<'p, str> + Send + Sync;

/// Uses the method and the path as the key. Allocates the path.
///
/// Clients choose paths and can invent any number of them. A limit by path alone does not stop a client that varies the
/// path. Pair it with the client's address, and reduce paths to routes with [`Route::normalise`]. In axum, a closure
/// can read the `MatchedPath` instead.
///
/// # Examples
/// ```
/// use http::{Method, Request};
/// use tollgate_tower::{Head, KeyExtractor, Route, RouteKey};
///
/// let request = Request::post("/upload?part=3").body(()).unwrap();
/// let key = RouteKey { method: Method::POST, path: "/upload".to_owned() };
/// assert_eq!(Route::new().key(Head::of(&request)), Some(key));
/// ```
#[derive(Clone, Default)]
pub struct Route {
    normalise: Option<Arc<Normalise>>,
}

impl Route {
    /// Uses the method and the path unchanged, without the query.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a function that reduces paths to routes: `/users/7` and `/users/8` to `/users/:id`.
    ///
    /// # Examples
    /// ```
    /// use std::borrow::Cow;
    /// use tollgate_tower::Route;
    ///
    /// let by_first_segment = Route::new().normalise(|path| {
    ///     Cow::Borrowed(path.split('/').nth(1).unwrap_or_default())
    /// });
    /// # drop(by_first_segment);
    /// ```
    #[must_use]
    pub fn normalise(
        mut self,
        normalise: impl for<'p> Fn(&'p str) -> Cow<'p, str> + Send + Sync + 'static,
    ) -> Self {
        self.normalise = Some(Arc::new(normalise));
        self
    }
}

impl KeyExtractor for Route {
    type Key = RouteKey;

    fn key(&self, head: Head<'_>) -> Option<Self::Key> {
        let path = match &self.normalise {
            Some(normalise) => normalise(head.path()).into_owned(),
            None => head.path().to_owned(),
        };
        Some(RouteKey { method: head.method().clone(), path })
    }
}

/// The key of [`Route`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RouteKey {
    /// The method.
    pub method: Method,
    /// The path, as [`Route::normalise`] returns it.
    pub path: String,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("normalised", &self.normalise.is_some()).finish()
    }
}
