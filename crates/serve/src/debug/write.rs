//! Responses, and the fields that keep other web pages out.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

use super::super::http::{not_allowed, text, typed};
use super::answer::pages;
use super::live::Live;
use super::read::{Form, PageName, PagePart, Refusal};
use super::why::Because;
use crate::endpoint::Backend;
use tollgate_report::output::{STYLE, to_json};

/// The bytes of a response: a page, or events as they come.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What the page may load: its own style, its own script and its own figures. It may write texts, and no markup.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

const HTML: &str = include_str!("page/page.html");
/// The style of this page. That of all pages comes first.
const OWN_STYLE: &str = include_str!("page/live.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Writes a page of figures.
pub(super) fn page(backend: &Backend, name: PageName, form: Form) -> Response<Body> {
    let (body, value) = pages(name);
    match form {
        Form::Json => json(to_json(&value(backend))),
        Form::Text => own(text(StatusCode::OK, body(backend))),
    }
}

/// Writes why rules apply.
pub(super) fn why(because: &Because, form: Form) -> Response<Body> {
    match form {
        Form::Json => json(to_json(&because.json())),
        Form::Text => own(text(StatusCode::OK, because.text())),
    }
}

/// Writes a part of the page to look at.
pub(super) fn part(part: PagePart) -> Response<Body> {
    own(match part {
        PagePart::Html => typed(StatusCode::OK, "text/html; charset=utf-8", HTML),
        PagePart::Style => typed(StatusCode::OK, "text/css; charset=utf-8", format!("{STYLE}{OWN_STYLE}")),
        PagePart::Script => typed(StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT),
    })
}

/// Writes the reason for a refusal.
pub(super) fn refusal((status, why): Refusal) -> Response<Body> {
    own(match status {
        StatusCode::METHOD_NOT_ALLOWED => not_allowed("GET, HEAD"),
        _ => text(status, format!("{why}\n")),
    })
}

/// Writes a response without a body.
pub(super) fn noted() -> Response<Body> {
    own(typed(StatusCode::NO_CONTENT, "text/plain", ""))
}

/// Writes events, each when the connection has room for it.
pub(super) fn live(live: Live) -> Response<Body> {
    let events = stream::unfold(live, async |mut live| {
        let event = Bytes::from(format!("data: {}\n\n", live.next().await?));
        Some((Ok(Frame::data(event)), live))
    });
    let mut response = Response::new(StreamBody::new(events).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    guarded(response)
}

fn json(body: String) -> Response<Body> {
    own(typed(StatusCode::OK, "application/json", body))
}

fn own(response: Response<Full<Bytes>>) -> Response<Body> {
    guarded(response.map(BodyExt::boxed_unsync))
}

/// Adds the fields that keep other web pages out.
fn guarded(mut response: Response<Body>) -> Response<Body> {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
