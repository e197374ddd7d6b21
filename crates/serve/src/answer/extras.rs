//! The optional parts of an answer: header fields, a body for refused requests, and metadata.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tollgate_http::{Fields, PROBLEM_JSON, Policy, problem};
use tollgate_redis::DecidedBy;
use tollgate_rules::{Answer, Applied, Metadata};

use super::super::proto::{
    Code, DescriptorStatus, HeaderValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, Unit,
};
use super::settings::{LimitHeaders, Names, Settings};
use super::text::text;

/// Adds the parts that the settings ask for.
pub(super) fn add(settings: &Settings, fields: &Fields, answer: &Answer, response: &mut RateLimitResponse) {
    if let LimitHeaders::Three(names) = &settings.limit_headers
        && let Some(status) = nearest(&response.statuses)
    {
        three(names, status, &mut response.response_headers_to_add);
    }
    let is_denied = answer.is_denied();
    let (wants_wait, wants_body) = (is_denied && settings.retry_after, is_denied && settings.problem_body);
    if !wants_wait && !wants_body && !matches!(settings.limit_headers, LimitHeaders::Dialect(_)) {
        return;
    }
    let policies: Vec<Policy<'_>> = answer.limits().filter_map(|limit| policy(&limit)).collect();
    let mut headers = HeaderMap::new();
    match wants_wait {
        true => fields.refuse_for(&mut headers, &policies, answer.retry_after()),
        false => fields.write(&mut headers, &policies),
    }
    if wants_body {
        response.raw_body = problem(&policies).into();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    }
    response.response_headers_to_add.extend(headers.iter().filter_map(|(name, value)| {
        // All values are ASCII: numbers, and names that are escaped.
        Some(header(name.as_str(), value.to_str().ok()?.to_owned()))
    }));
}

/// Returns the status that the three fields describe: the last one over its limit, or else the first one with the fewest
/// units left.
fn nearest(statuses: &[DescriptorStatus]) -> Option<&DescriptorStatus> {
    let limited = || statuses.iter().filter(|status| status.current_limit.is_some());
    let over = limited().rfind(|status| status.code == Code::OverLimit as i32);
    over.or_else(|| limited().min_by_key(|status| status.limit_remaining))
}

fn three(names: &Names, status: &DescriptorStatus, to: &mut Vec<HeaderValue>) {
    let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
    let seconds = status.duration_until_reset.map_or(0, |left| left.seconds);
    let values = [limit.to_string(), status.limit_remaining.to_string(), seconds.to_string()];
    to.extend(names.0.iter().zip(values).map(|(name, value)| header(name, value)));
}

fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value, ..HeaderValue::default() }
}

/// The name that a client sees for a rule without a name.
const UNNAMED: &str = "limit";

/// Returns the policy that a client sees for a rule.
fn policy<'a>(limit: &Applied<'a>) -> Option<Policy<'a>> {
    // A part of the limit that this process has while the server is away is not the limit of the client.
    if limit.decided_by().is_some_and(DecidedBy::is_failure) {
        return None;
    }
    // A query of a limit of 0 is not denied, so it has no policy.
    if limit.quota() == 0 && limit.decision()?.is_allowed() {
        return None;
    }
    // A name that the file does not set is a path, with values of other clients.
    Policy::of_rule(if limit.rule().is_named { limit.name() } else { UNNAMED }, limit)
}

/// Returns the metadata of an answer: what was asked, and the `metadata` of the rules of all descriptors that passed.
pub(super) fn metadata(request: &RateLimitRequest, answer: &Answer, statuses: &[DescriptorStatus]) -> Struct {
    let mut all = BTreeMap::from([
        ("domain".to_owned(), text(&request.domain).into()),
        ("descriptors".to_owned(), list(request.descriptors.iter().map(of_descriptor))),
    ]);
    if request.hits_addend != 0 {
        all.insert("hitsAddend".to_owned(), f64::from(request.hits_addend).into());
    }
    let mut of_rules = BTreeMap::new();
    let passed = (0..).zip(statuses).filter(|(_, status)| status.code == Code::Ok as i32);
    for (index, _) in passed {
        let limit = answer.strictest(index);
        if let Some(Metadata::Map(entries)) = limit.and_then(|limit| limit.rule().metadata.as_deref()) {
            merge(&mut of_rules, entries);
        }
    }
    if !of_rules.is_empty() {
        all.insert("metadata".to_owned(), of_rules.into());
    }
    Struct { fields: all }
}

/// Adds what is missing. The depth is that of a file of rules, which has a bound.
fn merge(to: &mut BTreeMap<String, Value>, entries: &[(Box<str>, Metadata)]) {
    for (name, from) in entries {
        match (to.get_mut(&**name).map(|known| &mut known.kind), from) {
            (None, _) => _ = to.insert(name.clone().into(), translated(from)),
            (Some(Some(Kind::StructValue(known))), Metadata::Map(entries)) => {
                merge(&mut known.fields, entries);
            }
            (Some(_), _) => {}
        }
    }
}

fn translated(from: &Metadata) -> Value {
    match from {
        Metadata::Null => Kind::NullValue(0).into(),
        Metadata::Bool(flag) => (*flag).into(),
        Metadata::Number(number) => (*number).into(),
        Metadata::Text(text) => text.to_string().into(),
        Metadata::List(values) => list(values.iter().map(translated)),
        Metadata::Map(entries) => {
            let mut all = BTreeMap::new();
            merge(&mut all, entries);
            all.into()
        }
    }
}

fn of_descriptor(descriptor: &RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter();
    let entries = entries.map(|entry| format!("{}={}", text(&entry.key), text(&entry.value)).into());
    let mut all = BTreeMap::from([("entries".to_owned(), list(entries))]);
    if let Some(limit) = descriptor.limit {
        let unit = Unit::try_from(limit.unit).unwrap_or(Unit::Unknown).as_str_name();
        let shown = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
        all.insert("limit".to_owned(), shown.into());
    }
    if let Some(hits) = descriptor.hits_addend {
        #[expect(clippy::cast_precision_loss, reason = "metadata has no whole numbers")]
        all.insert("hitsAddend".to_owned(), (hits as f64).into());
    }
    all.into()
}

fn list(values: impl Iterator<Item = Value>) -> Value {
    Vec::from_iter(values).into()
}
