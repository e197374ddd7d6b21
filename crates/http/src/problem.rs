//! The body of a denial: a problem document (RFC 9457).

use std::fmt::Write as _;

use http::{HeaderValue, StatusCode};

use crate::line::escape;
use crate::policy::Policy;

/// The media type of the text from [`problem`]: `application/problem+json`.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Returns the problem document for a request that does not identify its client, so that its limit is not known. The
/// status is 401 or 403, and `what` names the missing key. Without it, the text reveals nothing about the server.
///
/// # Examples
/// ```
/// use http::StatusCode;
/// use tollgate_http::unknown_client;
///
/// let body = unknown_client(StatusCode::FORBIDDEN, Some("client certificate"));
/// assert!(body.contains("This request has no client certificate, so its rate limit is not known"));
/// ```
#[must_use]
pub fn unknown_client(status: StatusCode, what: Option<&str>) -> String {
    let title = status.canonical_reason().unwrap_or_default();
    let mut body = format!(
        "{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{},\"detail\":\"This request has no",
        status.as_u16()
    );
    // Each byte is one ASCII character.
    match what {
        Some(what) => {
            body.push(' ');
            escape(what, |bytes| body.extend(bytes.iter().copied().map(char::from)));
        }
        None => body.push_str(" key that identifies its client"),
    }
    body.push_str(", so its rate limit is not known\"}");
    body
}

/// Returns the problem document of a denial in JSON. It lists the policies that denied the request.
///
/// Names have the same form as in the fields of draft 11 (see [`Fields`](crate::Fields)), so clients can compare them.
/// The list omits policies that are not violated or not enforced.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter};
/// use tollgate_http::{Policy, problem};
///
/// let quota = Quota::per_minute(1);
/// let limiter = RateLimiter::new(quota);
/// let _ = limiter.check("alice");
/// let body = problem(&[Policy::new("burst", &quota, limiter.check("alice"))]);
/// assert_eq!(
///     body,
///     r##"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","##.to_owned()
///         + r##""title":"Request cannot be satisfied as assigned quota has been exceeded","##
///         + r##""status":429,"violated-policies":["burst"]}"##
/// );
/// ```
#[must_use]
pub fn problem(policies: &[Policy<'_>]) -> String {
    with_instance(policies, None)
}

/// Returns the same problem document with an `instance`: a URI reference about this denial, such as a page that explains
/// the limit. Bytes that no URI may contain are percent-encoded.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter};
/// use tollgate_http::{Policy, problem_at};
///
/// let quota = Quota::per_minute(1);
/// let limiter = RateLimiter::new(quota);
/// let _ = limiter.check("alice");
/// let body = problem_at(&[Policy::new("burst", &quota, limiter.check("alice"))], "/limits#burst");
/// assert!(body.ends_with(r##""status":429,"violated-policies":["burst"],"instance":"/limits#burst"}"##));
/// ```
#[must_use]
pub fn problem_at(policies: &[Policy<'_>], instance: &str) -> String {
    with_instance(policies, Some(instance))
}

fn with_instance(policies: &[Policy<'_>], instance: Option<&str>) -> String {
    const HEAD: &str = "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
        \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
        \"status\":429,\"violated-policies\":[";
    let violated = || policies.iter().filter(|policy| policy.is_violated()).map(Policy::name);
    let names: usize = violated().map(|name| name.len() + 3).sum();
    let mut body = String::with_capacity(HEAD.len() + names + 2);
    body.push_str(HEAD);
    for (index, name) in violated().enumerate() {
        body.push_str(if index == 0 { "\"" } else { ",\"" });
        // Each byte is one ASCII character.
        escape(name, |bytes| body.extend(bytes.iter().copied().map(char::from)));
        body.push('"');
    }
    body.push(']');
    if let Some(instance) = instance {
        body.push_str(",\"instance\":\"");
        for &byte in instance.as_bytes() {
            match byte {
                b'!'..=b'~' if !matches!(byte, b'"' | b'\\') => body.push(char::from(byte)),
                // Writing to a `String` does not fail.
                _ => _ = write!(body, "%{byte:02X}"),
            }
        }
        body.push('"');
    }
    body.push('}');
    body
}
