//! By what requests are told apart.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Method};

use super::Head;

/// By what requests are told apart: those with equal keys share a limit.
///
/// Implemented by [`ClientIp`](super::ClientIp), [`Header`], [`Route`], [`Global`], by closures `Fn(Head<'_>) -> Option<K>`
/// ([`key_fn`] infers their types), and by pairs of these: a pair has a key where both have.
///
/// # Examples
/// ```
/// use tollgate::tower::{ClientIp, KeyExtractor, key_fn};
///
/// #[derive(Clone)]
/// struct Tenant(u64);
///
/// fn keyed<X: KeyExtractor>(_: X) {}
/// keyed(key_fn(|head| head.extensions().get::<Tenant>().map(|tenant| tenant.0)));
/// keyed((ClientIp::peer(), key_fn(|head| Some(head.method().clone()))));
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key's type.
    type Key;

    /// The key of a request; `None` if it has none, for which see [`Missing`].
    fn key(&self, head: Head<'_>) -> Option<Self::Key>;

    /// Whether a request that has no key says several. Then it is refused whatever [`Missing`] says, since a client can do that on
    /// purpose. Default: no.
    fn is_ambiguous(&self, head: Head<'_>) -> bool {
        let _ = head;
        false
    }

    /// What a request without a key has none of, for the answer to it and those who look into why: *This request has no …*. Clients read
    /// it. Default: a text that says nothing about the server.
    fn what(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// How the client of a request without a key should authenticate: the value of `WWW-Authenticate` in an answer of status 401.
    /// `None` if credentials would not help; then the answer is status 403. Default: `None`.
    /// [`RateLimitLayer::challenge`](super::RateLimitLayer::challenge) overrides it.
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

    fn what(&self) -> Option<Cow<'_, str>> {
        match (self.0.what(), self.1.what()) {
            (Some(one), Some(other)) => Some(format!("{one}, or no {other}").into()),
            (one, other) => one.or(other),
        }
    }

    /// That of the first key that is missing.
    fn challenge(&self, head: Head<'_>) -> Option<HeaderValue> {
        if self.0.key(head).is_none() { self.0.challenge(head) } else { self.1.challenge(head) }
    }
}

/// A closure as a [`KeyExtractor`], without type annotations. It returns the closure as it is.
///
/// A closure that is passed to [`RateLimitLayer::new`](super::RateLimitLayer::new) directly has to name the type of its argument,
/// `|head: Head<'_>| …`, since the compiler does not infer it from the trait [`KeyExtractor`].
///
/// # Examples
/// ```
/// use tollgate::tower::{RateLimitLayer, key_fn};
/// use tollgate::{Quota, RateLimiter};
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

/// What happens to requests that have no key.
///
/// # Examples
/// ```
/// use http::HeaderName;
/// use tollgate::tower::{Header, Missing, RateLimitLayer};
/// use tollgate::{Quota, RateLimiter};
///
/// // A key that our own proxy always writes: what comes without it is the proxy's own, such as its probes.
/// let by_tenant = Header::new(HeaderName::from_static("x-tenant"));
/// let layer = RateLimitLayer::new(RateLimiter::new(Quota::per_second(100)), by_tenant).missing(Missing::Allow);
/// assert_eq!(layer.without_key().allowed, 0);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Missing<K> {
    /// They are refused. The default, since it is noticed when a server is set up wrongly: nobody is unlimited, and nobody
    /// shares a limit, unless you say so.
    #[default]
    Deny,
    /// They pass, uncounted. Whoever can make a request that has no key has no limit: take it only if clients cannot, as where your own
    /// proxy always writes what the key is read from. (A field that is sent several times is refused all the same: see [`Header`].)
    Allow,
    /// They share this key. Whoever can make requests without a key can use up this limit, so that none is left for others who have
    /// none.
    Shared(K),
}

/// One limit for all requests.
///
/// # Examples
/// ```
/// use tollgate::tower::{Global, RateLimitLayer};
/// use tollgate::{Quota, RateLimiter};
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

/// The value of a header field, such as an API key. A request that has none has no key; if it is refused, the answer is status 401 with
/// a challenge ([`RateLimitLayer::challenge`](super::RateLimitLayer::challenge)). One that has several has none either, and is
/// refused also under [`Missing::Allow`] and [`Missing::Shared`], since of two values what checks them may take the other one.
///
/// Clients write header fields: a value that is not checked to be somebody's is a key for each request, if a client likes. Put
/// the layer behind what checks it, or limit addresses too. A value is as long as the server lets it be, and a keyed limiter keeps it
/// whole; a compact one keeps its hash.
///
/// # Examples
/// ```
/// use http::{HeaderName, Request};
/// use tollgate::tower::{Head, Header, KeyExtractor};
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
    /// By the header field of this name.
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

    fn what(&self) -> Option<Cow<'_, str>> {
        Some(format!("header field {}, or several", self.name).into())
    }

    /// `Bearer realm="api"` for `Authorization` (RFC 6750), and `ApiKey in="header", name="x-api-key"` for a field of this name: a
    /// scheme that is in use for API keys, though not registered.
    fn challenge(&self, _head: Head<'_>) -> Option<HeaderValue> {
        if self.name == AUTHORIZATION {
            return Some(HeaderValue::from_static("Bearer realm=\"api\""));
        }
        // A field's name is a token, which needs no escapes.
        HeaderValue::try_from(format!("ApiKey in=\"header\", name=\"{}\"", self.name)).ok()
    }
}

/// The key of [`Header`]: its value, of any bytes.
///
/// Shares the request's memory. A clone, which is what a keyed limiter keeps, has memory of its own: it does not keep the
/// buffer alive that the request was read into.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct HeaderKey(HeaderValue);

impl HeaderKey {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Clone for HeaderKey {
    fn clone(&self) -> Self {
        // Bytes that were a value are one.
        Self(HeaderValue::from_bytes(self.0.as_bytes()).unwrap_or_else(|_| self.0.clone()))
    }
}

type Normalise = dyn for<'p> Fn(&'p str) -> Cow<'p, str> + Send + Sync;

/// The method and the path. Allocates the path.
///
/// Paths are written by clients, and there are as many as they like: a limit by path alone limits nobody who varies it. Pair it with
/// the client's address, and reduce paths to routes by [`Route::normalise`]; in axum, a closure that reads its `MatchedPath` does.
///
/// # Examples
/// ```
/// use http::{Method, Request};
/// use tollgate::tower::{Head, KeyExtractor, Route};
///
/// let request = Request::post("/upload?part=3").body(()).unwrap();
/// assert_eq!(Route::new().key(Head::of(&request)), Some((Method::POST, "/upload".to_owned())));
/// ```
#[derive(Clone, Default)]
pub struct Route {
    normalise: Option<Arc<Normalise>>,
}

impl Route {
    /// By method and path as they are; without the query.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reduces paths to fewer: `/users/7` and `/users/8` to `/users/:id`.
    ///
    /// # Examples
    /// ```
    /// use std::borrow::Cow;
    /// use tollgate::tower::Route;
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
    type Key = (Method, String);

    fn key(&self, head: Head<'_>) -> Option<Self::Key> {
        let path = match &self.normalise {
            Some(normalise) => normalise(head.path()).into_owned(),
            None => head.path().to_owned(),
        };
        Some((head.method().clone(), path))
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("normalised", &self.normalise.is_some()).finish()
    }
}
