//! From a request to what it asks for.

use std::net::IpAddr;

use http::{HeaderMap, Method, Request, StatusCode, header, uri::Authority};

use tollgate_report::descriptor::DescriptorArg;

/// The longest query, in bytes.
const QUERY: usize = 8 << 10;

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageRequest {
    /// A page of figures, in this form.
    Page(PageName, Form),
    /// A part of the page to look at.
    Part(PagePart),
    /// What changes while the page is open, of the rules whose name contains this text.
    Live(String),
    /// Nothing: an open page with this number tells that it reads.
    Reads(u64),
    /// The rules that apply to a request.
    Why(WhyRequest, Form),
}

/// The pages of figures.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PageName {
    Home,
    Rules,
    Counts,
    Top,
}

/// How an answer is written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Form {
    Text,
    Json,
}

/// The parts of the page to look at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PagePart {
    Html,
    Style,
    Script,
}

/// A request that somebody asks about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WhyRequest {
    /// Its domain.
    pub domain: String,
    /// Its descriptors, as on the command line.
    pub descriptors: Vec<DescriptorArg>,
    /// The client's tier.
    pub tier: Option<String>,
    /// What the request costs.
    pub cost: u64,
}

/// A request that is refused: the status and the reason.
pub type Refusal = (StatusCode, String);

/// Reads a request. `is_local` tells whether the endpoint is on a loopback address.
///
/// # Errors
/// If the page does not exist, if the request is from another web page, or if a question cannot be understood.
pub fn asked<B>(request: &Request<B>, is_local: bool) -> Result<PageRequest, Refusal> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "only GET, HEAD here");
    }
    keep_web_pages_out(request, is_local)?;
    let query = request.uri().query().unwrap_or_default();
    if query.len() > QUERY {
        return refused(StatusCode::URI_TOO_LONG, "the query is longer than 8 KiB");
    }
    let form = form(query, request.headers());
    Ok(match request.uri().path() {
        "/" if form == Form::Text && accepts(request.headers(), "text/html") => {
            PageRequest::Part(PagePart::Html)
        }
        "/" => PageRequest::Page(PageName::Home, form),
        "/rlconfig" => PageRequest::Page(PageName::Rules, form),
        "/stats" => PageRequest::Page(PageName::Counts, form),
        "/top" => PageRequest::Page(PageName::Top, form),
        "/why" => PageRequest::Why(question(query)?, form),
        "/page" => PageRequest::Part(PagePart::Html),
        "/page.css" => PageRequest::Part(PagePart::Style),
        "/page.js" => PageRequest::Part(PagePart::Script),
        "/live" => PageRequest::Live(field(query, "filter").unwrap_or_default()),
        "/reads" => match field(query, "page").and_then(|page| page.parse().ok()) {
            Some(page) => PageRequest::Reads(page),
            None => return refused(StatusCode::BAD_REQUEST, "the number of the page is missing"),
        },
        _ => return refused(StatusCode::NOT_FOUND, "the pages are listed at /"),
    })
}

fn refused<T>(status: StatusCode, why: impl Into<String>) -> Result<T, Refusal> {
    Err((status, why.into()))
}

/// Refuses requests that a browser makes for a web page of another site. Such a page may have a name of its own for this
/// address (DNS rebinding), so an endpoint for this machine only has no other name than `localhost`.
fn keep_web_pages_out<B>(request: &Request<B>, is_local: bool) -> Result<(), Refusal> {
    let field = request.headers().get(header::HOST);
    let named = field.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let host = match (field, request.uri().authority()) {
        (Some(_), _) => named.as_ref().map_or("", Authority::host),
        (None, Some(authority)) => authority.host(),
        // A browser always names the site.
        (None, None) => return Ok(()),
    };
    let is_known = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || host.to_ascii_lowercase().ends_with(".localhost");
    if is_local && !is_known {
        let why = "this endpoint is for this machine: use localhost or an IP address as its name";
        return refused(StatusCode::MISDIRECTED_REQUEST, why);
    }
    let is = |name: &str, value: &str| request.headers().get(name).is_some_and(|found| found == value);
    if is("sec-fetch-site", "cross-site") && !is("sec-fetch-mode", "navigate") {
        return refused(StatusCode::FORBIDDEN, "another web page asks");
    }
    Ok(())
}

/// The form that a request asks for.
fn form(query: &str, headers: &HeaderMap) -> Form {
    let is_json = query.split('&').any(|part| part == "format=json")
        || headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/json");
    if is_json { Form::Json } else { Form::Text }
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.split([',', ';']).any(|one| one.trim() == kind)
}

fn field(query: &str, name: &str) -> Option<String> {
    let mut fields = form_urlencoded::parse(query.as_bytes());
    fields.find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}

fn question(query: &str) -> Result<WhyRequest, Refusal> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let some = |name| field(query, name).filter(|value| !value.is_empty());
    let example = "ask such as /why?domain=edge&descriptor=remote_address=192.0.2.1";
    let domain = some("domain").ok_or_else(|| bad(format!("the domain is missing; {example}")))?;
    let mut descriptors = Vec::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name == "descriptor" && !value.trim().is_empty() {
            descriptors.push(DescriptorArg::of_request(value.trim()).map_err(bad)?);
        }
    }
    if descriptors.is_empty() {
        return Err(bad(format!("the descriptor is missing; {example}")));
    }
    let cost = some("cost").map_or(Ok(1), |cost| cost.parse());
    let cost = cost.map_err(|_| bad("the cost is no number of units, such as 1".to_owned()))?;
    Ok(WhyRequest { domain, descriptors, tier: some("tier"), cost })
}
