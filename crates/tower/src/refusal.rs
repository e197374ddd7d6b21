//! The response to a denied request.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use tollgate_http::{Fields, PROBLEM_JSON, Policy, problem, problem_at, unknown_client};

use crate::head::Head;

pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The gRPC status code of a denial by a limit.
pub(crate) const RESOURCE_EXHAUSTED: &str = "8";
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// A denied request and the reason. [`RateLimitLayer::on_refused`](crate::RateLimitLayer::on_refused) passes it to your
/// function, which builds the response from it.
#[derive(Copy, Clone)]
pub struct Refused<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) fields: &'a Fields,
    pub(crate) policies: &'a [Policy<'a>],
    /// `None` if the request has no key.
    pub(crate) wait: Option<Wait>,
    /// The name of the missing key, if the request has no key.
    pub(crate) what: Option<&'a str>,
    /// The challenge, if the request has no key and credentials would help.
    pub(crate) challenge: Option<&'a HeaderValue>,
    pub(crate) instance: Option<&'a Instance>,
}

/// Returns the `instance` of a denial's problem document.
pub(crate) type Instance = dyn Fn(&Refused<'_>) -> Option<String> + Send + Sync;

/// The time until the same request could be admitted, if it is known.
pub(crate) type Wait = Option<Duration>;

impl<'a> Refused<'a> {
    /// Returns the request.
    #[must_use]
    pub const fn head(&self) -> Head<'a> {
        self.head
    }

    /// Returns all limits that the request was subject to, including those with enough quota left. Empty if the request
    /// has no key.
    #[must_use]
    pub const fn policies(&self) -> &'a [Policy<'a>] {
        self.policies
    }

    /// Returns how long until the same request could be admitted. Returns `None` if it can never be admitted, or if the
    /// time is not known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.wait.flatten()
    }

    /// Whether the request was denied because it has no key, and not by a limit: see [`Missing`](crate::Missing).
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.wait.is_none()
    }

    /// Returns the challenge of status 401, which states how the client should authenticate. Returns `None` unless the
    /// request lacks a key and credentials would help. See
    /// [`RateLimitLayer::challenge`](crate::RateLimitLayer::challenge).
    #[must_use]
    pub const fn challenge(&self) -> Option<&'a HeaderValue> {
        self.challenge
    }

    /// Builds the default response: [`Refused::grpc`] for gRPC calls, [`Refused::problem`] for all other requests.
    #[must_use]
    pub fn response(&self) -> Response<Bytes> {
        if self.head.is_grpc() { self.grpc() } else { self.problem() }
    }

    /// Builds a response with status 429, a problem document (RFC 9457), `Retry-After`, and the fields of the layer's
    /// dialect. The document names the policies that deny the request, and has the layer's
    /// [`instance`](crate::RateLimitLayer::instance).
    ///
    /// For a request without a key, the status is 401 with the [challenge](Refused::challenge) in `WWW-Authenticate`,
    /// or 403 if there is no challenge. The `detail` of the problem document names the [missing
    /// key](crate::KeyExtractor::what).
    #[must_use]
    pub fn problem(&self) -> Response<Bytes> {
        let (status, body) = match self.wait {
            Some(_) => {
                let body = match self.instance.and_then(|instance| instance(self)) {
                    Some(instance) => problem_at(self.policies, &instance),
                    None => problem(self.policies),
                };
                (StatusCode::TOO_MANY_REQUESTS, Bytes::from(body))
            }
            None => {
                let status = self.challenge.map_or(StatusCode::FORBIDDEN, |_| StatusCode::UNAUTHORIZED);
                (status, Bytes::from(unknown_client(status, self.what)))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        self.write_fields(&mut response);
        response
    }

    /// Builds a gRPC error without a message: status 200 with `grpc-status` 8 (`RESOURCE_EXHAUSTED`), and the fields of
    /// [`Refused::problem`]. For a request without a key, `grpc-status` is 16 (`UNAUTHENTICATED`) if there is a
    /// [challenge](Refused::challenge), or 7 (`PERMISSION_DENIED`) if there is none.
    #[must_use]
    pub fn grpc(&self) -> Response<Bytes> {
        let (status, message) = match self.wait {
            Some(_) => (RESOURCE_EXHAUSTED, "rate limit exceeded"),
            None => (if self.challenge.is_some() { "16" } else { "7" }, "the request has no rate limit key"),
        };
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        // The same content type as the request: `application/grpc+proto`, `application/grpc-web`.
        let asked = self.head.headers().get(CONTENT_TYPE).filter(|_| self.head.is_grpc()).cloned();
        let content_type = asked.unwrap_or_else(|| HeaderValue::from_static("application/grpc"));
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(GRPC_STATUS, HeaderValue::from_static(status));
        headers.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
        self.write_fields(&mut response);
        response
    }

    fn write_fields(&self, response: &mut Response<Bytes>) {
        let headers = response.headers_mut();
        match self.wait {
            Some(wait) => self.fields.refuse_for(headers, self.policies, wait),
            None => {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                if let Some(challenge) = self.challenge {
                    headers.insert(WWW_AUTHENTICATE, challenge.clone());
                }
            }
        }
    }

    /// The response to `HEAD` has the fields of a response to `GET`, but no body.
    pub(crate) fn without_body_if_head(&self, mut response: Response<Bytes>) -> Response<Bytes> {
        if *self.head.method() == Method::HEAD {
            let body = std::mem::take(response.body_mut());
            response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| body.len().into());
        }
        response
    }
}

impl fmt::Debug for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("method", self.head.method())
            .field("path", &self.head.path())
            .field("policies", &self.policies)
            .field("is_unknown", &self.is_unknown())
            .finish_non_exhaustive()
    }
}
