//! A request without its body.

use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Uri, Version, header};

/// A request without its body, as keys, costs and exemptions see it.
///
/// A borrowed view: making one copies nothing, and it does not depend on the body's type.
#[derive(Copy, Clone, Debug)]
pub struct Head<'r> {
    method: &'r Method,
    uri: &'r Uri,
    version: Version,
    headers: &'r HeaderMap,
    extensions: &'r Extensions,
}

impl<'r> Head<'r> {
    /// The head of a request.
    #[inline]
    #[must_use]
    pub fn of<B>(request: &'r Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> &'r Method {
        self.method
    }

    /// The target; under a nested axum router, what is left of it.
    #[must_use]
    pub const fn uri(&self) -> &'r Uri {
        self.uri
    }

    /// The path of the target.
    #[must_use]
    pub fn path(&self) -> &'r str {
        self.uri.path()
    }

    /// The version of HTTP.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The header fields.
    #[must_use]
    pub const fn headers(&self) -> &'r HeaderMap {
        self.headers
    }

    /// What servers and middleware have added: the peer's address, the matched route.
    #[must_use]
    pub const fn extensions(&self) -> &'r Extensions {
        self.extensions
    }

    /// The value of a header field that the request has exactly once. Of two, different readers take different ones.
    #[must_use]
    pub fn only(&self, name: &header::HeaderName) -> Option<&'r HeaderValue> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next();
        if values.next().is_some() { None } else { first }
    }

    /// Whether it is a gRPC call: its content type begins with `application/grpc`, gRPC-Web included.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        let content_type = self.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        let prefix = content_type.and_then(|value| value.get(..b"application/grpc".len()));
        prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"application/grpc"))
    }
}
