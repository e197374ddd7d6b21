//! A request without its body.

use std::net::IpAddr;
use std::sync::OnceLock;

use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Uri, Version, header};

/// A request without its body. Key extractors, cost functions and exemptions read it.
///
/// It is a borrowed view: it copies nothing and does not depend on the body's type.
///
/// # Examples
/// ```
/// use http::Request;
/// use tollgate_tower::Head;
///
/// let request = Request::get("/search?q=x").header("x-api-key", "k7").body(()).unwrap();
/// let head = Head::of(&request);
/// assert_eq!((head.method().as_str(), head.path()), ("GET", "/search"));
/// assert_eq!(head.headers()["x-api-key"], "k7");
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Head<'r> {
    method: &'r Method,
    uri: &'r Uri,
    version: Version,
    headers: &'r HeaderMap,
    extensions: &'r Extensions,
    /// The place for an address that an extractor cuts.
    cut: Option<&'r OnceLock<CutAddress>>,
}

/// An address, cut to the network by which its client is counted.
#[derive(Copy, Clone, Debug)]
#[cfg_attr(not(feature = "rules"), expect(dead_code, reason = "only a layer of rules reads it"))]
pub(crate) struct CutAddress {
    pub(crate) network: IpAddr,
    pub(crate) address: IpAddr,
}

impl<'r> Head<'r> {
    /// Returns the head of a request.
    #[inline]
    #[must_use]
    pub fn of<B>(request: &'r Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
            cut: None,
        }
    }

    /// Returns this head with a place in which [`Head::note_cut`] puts its first address.
    #[cfg(feature = "rules")]
    pub(crate) const fn with_cut<'c>(self, cut: &'c OnceLock<CutAddress>) -> Head<'c>
    where
        'r: 'c,
    {
        Head { cut: Some(cut), ..self }
    }

    /// Whether [`Head::note_cut`] notes an address.
    #[inline]
    pub(crate) const fn notes_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Notes that an extractor cut an address, for a layer whose rules match the whole address.
    pub(crate) fn note_cut(&self, network: IpAddr, address: IpAddr) {
        if let Some(cut) = self.cut.filter(|_| network != address) {
            cut.get_or_init(|| CutAddress { network, address });
        }
    }

    /// Returns the method.
    #[must_use]
    pub const fn method(&self) -> &'r Method {
        self.method
    }

    /// Returns the request target. Under a nested axum router, this is the part after the router's prefix.
    #[must_use]
    pub const fn uri(&self) -> &'r Uri {
        self.uri
    }

    /// Returns the path of the target.
    #[must_use]
    pub fn path(&self) -> &'r str {
        self.uri.path()
    }

    /// Returns the HTTP version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the header fields.
    #[must_use]
    pub const fn headers(&self) -> &'r HeaderMap {
        self.headers
    }

    /// Returns the extensions: data from servers and middleware, such as the peer's address or the matched route.
    #[must_use]
    pub const fn extensions(&self) -> &'r Extensions {
        self.extensions
    }

    /// Returns the value of a header field if the request has that field exactly once. If a field occurs twice,
    /// different programs may read different values.
    ///
    /// # Examples
    /// ```
    /// use http::{Request, header::AUTHORIZATION};
    /// use tollgate_tower::Head;
    ///
    /// let twice = Request::get("/").header(AUTHORIZATION, "mine").header(AUTHORIZATION, "yours").body(()).unwrap();
    /// assert_eq!(Head::of(&twice).only(&AUTHORIZATION), None);
    /// ```
    #[must_use]
    pub fn only(&self, name: &header::HeaderName) -> Option<&'r HeaderValue> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next();
        if values.next().is_some() { None } else { first }
    }

    /// Whether the request is a gRPC call. Its content type is then `application/grpc`, or gRPC-Web's
    /// `application/grpc-web` or `application/grpc-web-text`, with or without a format (`+proto`).
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        let content_type = self.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        let after = content_type.and_then(|value| without_prefix(value, b"application/grpc"));
        after.is_some_and(|after| {
            let after = without_prefix(after, b"-web").unwrap_or(after);
            let after = without_prefix(after, b"-text").unwrap_or(after);
            matches!(after.trim_ascii_start().first(), None | Some(b'+' | b';'))
        })
    }
}

/// Returns the text after a prefix, ignoring case.
fn without_prefix<'v>(value: &'v [u8], prefix: &[u8]) -> Option<&'v [u8]> {
    let (begins, after) = value.split_at_checked(prefix.len())?;
    begins.eq_ignore_ascii_case(prefix).then_some(after)
}
